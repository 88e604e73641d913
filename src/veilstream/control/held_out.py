"""A policy on streams that were not fitted: what it costs and reveals there, intervals over whole traces or weeks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilstream.control.controller import controller_of
from veilstream.control.policy import Policy
from veilstream.control.replay import DRAWS, Replay
from veilstream.model.information import Array
from veilstream.model.interval import Interval, ratio_interval
from veilstream.model.problem import Problem

HELD_OUT, MODEL_ONLY = "held out", "model only"
FIGURES = ("distortion", "raw_distortion", "leakage")
COPIES = 64  # draws of every stream at most: traces differ by more
LEAST_UNITS = 10  # traces or weeks; fewer say nothing about a person


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
