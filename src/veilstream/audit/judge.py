"""Mechanisms of others on a model, each beside our policy at equal error and the proved floor under both.

A finite mechanism is judged by the exact adversaries, like any policy of ours. One that draws something once and keeps
it is judged for an adversary who has learned that draw: what she learns in the long run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from veilstream.audit.figures import LEAST_TRACES, Figures, Tally, looked_at, near
from veilstream.audit.mechanisms import MECHANISMS
from veilstream.audit.mechanisms.mechanism import Emulation, Made, distances_to, law_of
from veilstream.audit.pairs import Adversary, Aligned, Reached
from veilstream.audit.spec import JudgeSpec
from veilstream.audit.traces import sampled
from veilstream.control.epsilon import Epsilon
from veilstream.control.evaluate import evaluate
from veilstream.control.limit_check import MODEL_ONLY
from veilstream.control.policy import Policy
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.information import Array
from veilstream.model.interval import Z95, Interval
from veilstream.model.problem import Average, Problem
from veilstream.shown import Progress, Rows, Shown, within
from veilstream.solvers import solve
from veilstream.solvers.solution import Level, Point, Solution
from veilstream.units import counted

OURS = "veilstream"
NEXT_TO_NOTHING = 1e-9  # error that only the truth has
LEAST_FLOOR = 1e-3  # bits per step below which nothing is said to be so many times as much


Operates = tuple[Interval, Interval, str]  # error, bits per step, and how sure these are


class Title(NamedTuple):
    """What a mechanism is called, and what is said of it."""

    name: str
    setting: float | None
    label: str
    what: str
    source: str


@dataclass(frozen=True)
class Judged:
    """One mechanism at one setting, on data drawn from the chain."""

    name: str
    setting: float | None
    label: str
    what: str
    source: str
    error: Interval  # mean, from reading to release
    leakage: Interval  # bits per step
    level: str  # of the leakage
    figures: Figures
    epsilon: Epsilon | None
    draws: int = 1  # of what it keeps
    files: Reached | None = None  # of two files or a program: what was learned from other traces
    ours: Judged | None = None  # our policy at this error
    floor: float | None = None  # bits per step below which no mechanism of this error can be, proved

    @property
    def times(self) -> float | None:
        """What it reveals, of what ours does at its error; None where that is next to nothing.

        Not of the floor: a bound that is not close would make any mechanism look worse.
        """
        enough = None if self.ours is None else self.ours.leakage.value
        return self.leakage.value / enough if enough is not None and enough > LEAST_FLOOR else None

    def to_json(self) -> dict[str, Any]:
        own = {k: getattr(self, k) for k in ("name", "setting", "label", "what", "source", "level", "draws")}
        return {
            **own,
            "error": self.error.to_json(),
            "leakage": self.leakage.to_json(),
            **self.figures.to_json(),
            "epsilon": None if self.epsilon is None else self.epsilon.to_json(),
            "floor": self.floor,
            "ours": None if self.ours is None else self.ours.to_json(),
            "files": None if self.files is None else self.files.to_json(),
        }


@dataclass(frozen=True, eq=False, repr=False)
class Judgement(Shown):
    """Mechanisms side by side; `judge` makes it.

    >>> import veilstream as vs
    >>> found = vs.judge("builtin:binary", mechanism=["randomised-response=0.2"], certify_seconds=1, streams=40)
    >>> found
    <Judgement of binary: 1 mechanism>
    >>> one = found.rows[0]
    >>> round(one.error.value, 3), one.floor <= one.ours.leakage.value <= one.leakage.high
    (0.2, True)
    """

    name: str
    unit: str
    thing: str  # what a state is: place, level or state
    truth: float  # bits per step if nothing were hidden
    rows: Sequence[Judged]
    private: bool = False  # whether it is about a person's data
    warnings: Sequence[str] = ()
    seconds: float = 0.0

    def about(self) -> tuple[str, Rows]:
        rows = [(row.label, sentence(row, self.thing)) for row in self.rows]
        return f"of {self.name}: {counted(len(self.rows), 'mechanism')}", rows

    @property
    def headline(self) -> str:
        """How many times what is enough they reveal."""
        seen = [(row.times, row.label) for row in self.rows if row.times is not None]
        if not seen:
            return "No mechanism here has one of ours to be compared with."
        (least, best), (most, worst) = min(seen), max(seen)
        if len(seen) == 1:
            return f"{best} reveals {least:.1f} times{self._sure} what is enough for its error."
        return (
            f"{len(seen)} mechanisms reveal {least:.1f} ({best}) to {most:.0f} times ({worst}) what is enough for "
            "their error."
        )

    @property
    def _sure(self) -> str:
        """The interval of that number, where the one mechanism is known from data alone."""
        row = next(row for row in self.rows if row.times is not None)
        if row.files is None or row.times is None or not np.isfinite(row.leakage.low):
            return ""
        low, high = (row.times * v / row.leakage.value for v in (row.leakage.low, row.leakage.high))
        return f" [{low:.1f}, {high:.1f}]"

    @property
    def words(self) -> str:
        """A sentence about each."""
        return "\n".join(f"{row.label}: {sentence(row, self.thing)}" for row in self.rows)

    def plot(self, ax: Any = None) -> Any:
        """A matplotlib Figure: bits per step against error, each joined to our policy of that error and to the floor;
        ax: axes to draw on instead."""
        from veilstream.shown import picture

        return picture("judged", self, ax)

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "unit": self.unit,
            "truth_bits": self.truth,
            "headline": self.headline,
            "mechanisms": [row.to_json() for row in self.rows],
            "warnings": list(self.warnings),
            "seconds": round(self.seconds, 3),
        }


def sentence(row: Judged, thing: str) -> str:
    """What it does, what it reveals, and what the best would."""
    f, b, bound = row.figures, row.leakage, ""
    if row.files is not None and np.isfinite(b.low):
        bound = f" [{b.low:.3g}, {b.high:.3g}]"
    said = f"{row.what}; reveals {b.value:.3g}{bound} bits per step"
    if row.ours is not None and row.floor is not None:  # at its error
        said += (
            f", where {row.ours.leakage.value:.3g} are enough for that error and {row.floor:.3g} are needed (proved)"
        )
    said += f"; the {thing} is identified in {f.vulnerability.value:.0%} of steps ({f.prior:.0%} without any release)"
    if row.files is not None:
        seen = row.files
        said += f"; by an adversary who learned from other stretches ({seen.traces:,} in all, {row.level})"
        if seen.identified is not None:
            said += f", who tells whose trace it is in {seen.identified.value:.0%} of {seen.streams}"
    return said + "."


@dataclass(frozen=True, eq=False)
class Judge:
    """What every mechanism is put on: a model, and how much work is done."""

    utility: Utility
    spec: JudgeSpec

    @cached_property
    def distances(self) -> Array | None:
        """Between symbols; None where there are none."""
        cost, d = self.utility.cost, self.utility.distortion
        if cost is not None:
            return cost.states.distances()
        return d if d.shape == (self.utility.chain.n_symbols,) * 2 else None

    def asked(self) -> list[tuple[Emulation, float]]:
        """The mechanisms with their settings: those that were asked for, or all that fit."""
        u, found = self.utility, list[tuple[Emulation, float]]()
        texts = [part for text in self.spec.mechanism for part in text.split(",") if part.strip()]
        for text in texts:
            name, _, setting = map(str.strip, text.partition("="))
            one = named(name)
            if not one.fits(u):
                raise InputError(f"mechanism {name} is for {one.on}, which this model is not about")
            found += [(one, s) for s in ([one.read(setting, u)] if setting else one.usual(u))]
        return found if texts else [(one, s) for one in MECHANISMS.values() if one.fits(u) for s in one.usual(u)]

    def mechanism(self, one: Emulation, setting: float, progress: Progress | None = None) -> Judged:
        """One of the list at one setting."""
        made, u = one.make(self.utility, setting), self.utility
        return self.made(made, Title(one.name, setting, one.label(setting, u), one.what, one.source), progress)

    def made(self, made: Made, title: Title, progress: Progress | None = None) -> Judged:
        """Any finite mechanism, with our policy at its error."""
        problem = made.problem(self.utility.chain)
        found = self._row(problem, made.policies, title, operating(problem, made.policies, self.spec))
        return self.beside(found, made.distortion, progress)

    def beside(self, found: Judged, shown: Array, progress: Progress | None = None) -> Judged:
        """With our policy at its error, which may show all that it shows; and the floor under both.

        shown: distances from states to what it shows, |X| x |Y|.
        """
        u, error = self.utility, found.error.value
        if error <= NEXT_TO_NOTHING:
            return found  # the truth, which nothing else is
        d = u.distortion if shown is u.distortion else np.concatenate([u.distortion, shown], 1)
        problem = Problem(u.chain, d, Average(limit=error * (1 + NEXT_TO_NOTHING)))
        seconds = self.spec.certify_seconds
        best = solve(problem, certify=True, certify_seconds=seconds, progress=progress, seed=self.spec.seed)
        ours = self._row(
            problem, [best.policy], Title(OURS, None, OURS, "the policy of veil solve", ""), of_point(best)
        )
        return replace(found, ours=ours, floor=float(best.leakage_lower or 0.0))

    def pairs(self, pairs: Aligned, label: str, what: str, progress: Progress | None = None) -> Judged:
        """Two files, or a program: by adversaries who learned from other traces."""
        seen = Adversary(pairs, self.spec.folds, self.spec.seed).learned(self.utility.names, progress)
        level = MODEL_ONLY if seen.traces < LEAST_TRACES else str(Level.ESTIMATED)
        title = Title(label, None, label, what, "")
        found = Judged(*title, seen.error, seen.bits, level, seen.figures, None, files=seen)
        return self.beside(found, distances_to(self.utility, pairs.shown))

    def _row(self, problem: Problem, policies: Sequence[Policy], title: Title, operates: Operates) -> Judged:
        u, chain, spec, n = self.utility, problem.chain, self.spec, len(policies)
        law, states = law_of(u), None if u.cost is None else u.cost.states
        tally, streams = Tally(law, self.distances, near(states)), max(2, spec.streams // n)
        felt = problem.distortion[np.unique(chain.symbols, return_index=True)[1]]  # a row a symbol
        for i, policy in enumerate(policies):
            data = sampled(chain, policy, spec.steps, streams, spec.seed + i)
            tally.add(chain, policy, data, felt, spec.steps // 3)
        epsilon = Epsilon.of(u.chain, policies[0]) if n == 1 else None
        return Judged(*title, *operates, tally.figures(looked_at(law, u.names, states)), epsilon, n)


def operating(problem: Problem, policies: Sequence[Policy], spec: JudgeSpec) -> Operates:
    """Where a mechanism operates in the long run, a mean over the draws of what it keeps."""
    steps, streams, truth = spec.steps, max(2, spec.streams // len(policies)), problem.chain.entropy_rate
    if len(policies) == 1:
        error, bits, level = of_point(Point.of(problem, policies[0], steps, streams, spec.seed))
    else:
        seen = [evaluate(problem, p, steps, streams, seed=spec.seed + i) for i, p in enumerate(policies)]
        values = (np.array([getattr(s, k) for s in seen]) for k in ("distortion", "leakage"))
        error, bits = (around(v.mean(), v.std(ddof=1) / np.sqrt(len(v))) for v in values)
        level = str(Level.ESTIMATED)
    return error, Interval(*(min(v, truth) for v in (bits.value, bits.low, bits.high))), level  # no more than the truth


def of_point(point: Point | Solution) -> Operates:
    error, bits = around(point.distortion, point.distortion_se), around(point.leakage, point.leakage_se)
    return error, bits, str(point.level)


def around(value: float, se: float) -> Interval:
    return Interval(float(value), float(max(value - Z95 * se, 0.0)), float(value + Z95 * se))


def named(name: str) -> Emulation:
    if name not in MECHANISMS:
        near = get_close_matches(name, MECHANISMS, 1)
        hint = f"did you mean {near[0]}?" if near else "known: " + ", ".join(MECHANISMS)
        raise InputError(f"unknown mechanism {name!r}; {hint}")
    return MECHANISMS[name]


def judge_model(utility: Utility, spec: JudgeSpec, progress: Progress | None = None) -> tuple[list[Judged], list[str]]:
    """Every mechanism that was asked for; of all that fit those that can be, and a line for each of the others."""
    judge = Judge(utility, spec)
    asked, rows, left = judge.asked(), list[Judged](), list[str]()
    for i, (one, setting) in enumerate(asked):
        bar = within(progress, i / len(asked), (i + 1) / len(asked), f"{one.label(setting, utility)}: ")
        bar(0.0, "exact adversaries")
        try:
            rows.append(judge.mechanism(one, setting, bar))
        except InputError as cannot:
            if spec.mechanism:
                raise
            left.append(f"left out: {cannot}")
    return rows, left
