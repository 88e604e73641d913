"""Whether a limit is kept on later data: one rule and one sentence, wherever a limit is read.

    broken                  the 95 % interval lies above the limit; of one at every step: a single step lies beyond it
    kept                    the interval ends at or below the limit, or within TOLERANCE of it, which is then said
    not shown to be kept    it covers the limit, or fewer than LEAST_UNITS traces or weeks are later than the fit

A limit on the mean is met exactly on the data it was solved for, so later data of the same person scatters around it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from veilstream.control.controller import controller_of
from veilstream.control.drift import span
from veilstream.control.policy import Policy
from veilstream.control.replay import DRAWS, Replay
from veilstream.model.information import Array
from veilstream.model.interval import Interval, ratio_interval
from veilstream.model.problem import Average, Budget, Constraint, Instantaneous, Problem, parts
from veilstream.units import counted, off

TOLERANCE = 0.05  # of the limit
BITS = "bits per step"


@dataclass(frozen=True)
class HeldOut:
    """Means over the steps of traces or weeks that were held out."""

    units: int
    unit: str  # traces or weeks
    distortion: Interval  # as the problem counts it, between states or from a state's own readings
    raw_distortion: Interval  # from reading to release
    leakage: Interval  # bits per step, whatever the law: see `universal_bound`
    beyond: Interval | None = None  # share of steps beyond the limit at every step; None: no such limit, or by feedback

    @classmethod
    def of(cls, replay: Replay, policy: Policy, problem: Problem) -> "HeldOut":
        drawn = replay.leakage(policy, problem.chain, min(DRAWS, COPIES * replay.n_steps), problem.distortion).each
        assert drawn is not None
        error, bits, between = drawn
        # means without a draw where that can be; else all three are of the same draws
        if policy.moves_by is None and controller_of(policy) is not None:
            error, between = replay.errors(policy), replay.under(problem.distortion).errors(policy)
        most, beyond = problem.every_step, None
        if most is not None and policy.moves_by is None:  # about readings, where these are behind the worst distances
            limited = replay if problem.worst is not None else replay.under(problem.distortion)
            beyond = limited.beyond(most).errors(policy)
        return cls.of_steps(replay, error, bits, between, beyond)

    @classmethod
    def of_steps(
        cls, replay: Replay, error: Array, bits: Array, between: Array | None = None, beyond: Array | None = None
    ) -> "HeldOut":
        """From figures at every step: error from reading to release, bits, error as the problem counts it (by default
        the same), and whether a limit at every step is broken."""
        assert replay.units is not None
        units = np.unique(replay.units, return_inverse=True)[1]
        counts = np.bincount(units).astype(float)
        figures = (error if between is None else between, error, bits, beyond)
        intervals = [
            None if v is None else ratio_interval(np.bincount(units, v).astype(float), counts) for v in figures
        ]
        return cls(len(counts), replay.unit, *intervals)  # type: ignore[arg-type]

    @classmethod
    def read(cls, said: Any) -> "HeldOut | None":
        """What `to_json` wrote, from a file, which may say anything."""
        if not isinstance(said, Mapping) or not isinstance(units := said.get("traces"), int) or units < 1:
            return None
        figures = [Interval.read(said.get(k)) for k in (*FIGURES, "beyond")]
        if None in figures[:-1]:
            return None
        return cls(units, "weeks" if said.get("unit") == "weeks" else "traces", *figures)  # type: ignore[arg-type]

    @property
    def level(self) -> str:
        """Whether it says something about the person."""
        return HELD_OUT if self.units >= LEAST_UNITS else MODEL_ONLY

    def to_json(self) -> dict[str, Any]:
        figures = {k: getattr(self, k).to_json() for k in FIGURES}
        beyond = {} if self.beyond is None else {"beyond": self.beyond.to_json()}
        return {"traces": self.units, "unit": self.unit, "level": self.level, **figures, **beyond}


class Verdict(StrEnum):
    """What later data shows of a limit; weakest first."""

    BROKEN = "broken"
    NOT_SHOWN = "not shown to be kept"
    KEPT = "kept"


@dataclass(frozen=True)
class LimitCheck:
    """A limit, and what became of it on later data."""

    asked: str  # in words, as in "an error of at most 0.75 km on average"
    limit: float  # in the unit of `seen`
    unit: str  # of `seen`
    seen: Interval | None  # on later data; None: there is none
    units: int = 0  # traces or weeks of it
    of: str = "traces"
    every_step: bool = False  # `seen` is the share of steps (%) beyond the limit

    @property
    def verdict(self) -> Verdict:
        seen = self.seen
        if seen is not None and self.every_step and self.limit == 0 and seen.value > 0:
            return Verdict.BROKEN
        if seen is None or self.units < LEAST_UNITS:
            return Verdict.NOT_SHOWN
        if seen.low > self.limit:
            return Verdict.BROKEN
        return Verdict.KEPT if seen.high <= self.limit * (1 + TOLERANCE) else Verdict.NOT_SHOWN

    @property
    def above(self) -> bool:
        """Whether later data lies above the limit, shown or not."""
        return self.seen is not None and self.seen.value > self.limit

    @property
    def flag(self) -> str:
        """What it was asked with."""
        return "`max`" if self.every_step else "`budget`" if self.unit == BITS else "`avg`"

    @property
    def words(self) -> str:
        """One sentence: the verdict, what was asked, what came out on later data."""
        seen, verdict = self.seen, self.verdict
        near = verdict is Verdict.KEPT and seen is not None and seen.high > self.limit
        head = f"Limit {verdict}{f' within {TOLERANCE:.0%}' if near else ''}. Asked: {self.asked};"
        if seen is None:
            return f"{head} there is no later data to check it on."
        found = f"{head} on later data ({counted(self.units, self.of.removesuffix('s'))}): {span(seen)}"
        found += f"{self.unit} of steps beyond it" if self.every_step else f" {self.unit}".rstrip()
        if verdict is not Verdict.NOT_SHOWN:
            return f"{found}."
        where, end = ("above", "reaches below") if self.above else ("within", "reaches beyond")
        if self.units < LEAST_UNITS:
            return f"{found}, {where} the limit, but fewer than {LEAST_UNITS} {self.of} show nothing."
        return f"{found}; its mean is {where} the limit, its interval {end} it."

    def to_json(self) -> dict[str, Any]:
        seen = None if self.seen is None else self.seen.to_json()
        told = {"verdict": str(self.verdict), "asked": self.asked, "limit": self.limit, "unit": self.unit}
        return {**told, "later": seen, "traces": self.units, "words": self.words}


def check_limits(
    constraint: Constraint, later: HeldOut | None, unit: str, between_states: bool = False, beyond: float = 0.0
) -> list[LimitCheck]:
    """Every limit of a constraint on later data, weakest verdict first; none where only a weight was asked for.

    between_states: a limit on the mean is about states, not about readings; beyond: the share of the readings of a
    state that a limit at every step leaves out.
    """
    found = []
    many = (0, "traces") if later is None else (later.units, later.unit)
    for part in parts(constraint):
        seen: Interval | None = None
        if isinstance(part, Average) and part.limit is not None:
            if later is not None:
                seen = later.distortion if between_states else later.raw_distortion
            found.append(LimitCheck(off(f"at most {part.limit:.4g}", unit), part.limit, unit, seen, *many))
        elif isinstance(part, Budget):
            seen = None if later is None else later.leakage
            found.append(LimitCheck(f"at most {part.bits:.4g} {BITS}", part.bits, BITS, seen, *many))
        elif isinstance(part, Instantaneous):
            share = None if later is None else later.beyond
            if share is not None:  # less than one step in a million is none
                seen = Interval(*(round(100 * v, 4) for v in (share.value, share.low, share.high)))
            most = f", in {1 - beyond:.4g} of the readings of each state" if beyond else ""
            asked = f"{part.told(unit)}{most}".replace("<=", "at most")
            found.append(LimitCheck(asked, 100 * beyond, " %", seen, *many, True))
    return sorted(found, key=lambda c: list(Verdict).index(c.verdict))


def weakest(checks: Sequence[LimitCheck]) -> Verdict | None:
    """No verdict says more than its weakest part; None: no limit was asked for."""
    return min((c.verdict for c in checks), key=list(Verdict).index, default=None)


def limits_json(checks: Sequence[LimitCheck]) -> dict[str, Any]:
    return {"limits": [c.to_json() for c in checks], "limit_verdict": weakest(checks)} if checks else {}


HELD_OUT, MODEL_ONLY = "held out", "model only"
FIGURES = ("distortion", "raw_distortion", "leakage")
COPIES = 64  # draws of every stream at most: traces differ by more
LEAST_UNITS = 10  # traces or weeks; fewer say nothing about a person
