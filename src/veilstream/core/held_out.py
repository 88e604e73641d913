"""A policy on streams that were not fitted: what it costs and tells there, intervals over whole traces or weeks."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from veilstream.core.chain import MarkovChain
from veilstream.core.controller import controller_of
from veilstream.core.course import DRAWS, Course
from veilstream.core.information import Array
from veilstream.core.interval import Interval, ratio_interval
from veilstream.core.policy import Policy

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
    leakage: Interval  # bits per step, whatever the law: see `any_law`

    @classmethod
    def of(cls, course: Course, policy: Policy, chain: MarkovChain, distortion: Array) -> "HeldOut":
        """distortion: |Z| x |Y|, the problem's."""
        assert course.units is not None
        units = np.unique(np.concatenate(course.units), return_inverse=True)[1]
        counts = np.bincount(units).astype(float)

        def interval(values: Array) -> Interval:
            return ratio_interval(np.bincount(units, values).astype(float), counts)

        drawn = course.leakage(policy, chain, min(DRAWS, COPIES * course.steps), distortion).each
        assert drawn is not None
        felt, bits, between = drawn
        if (
            policy.moves_by is None and controller_of(policy) is not None
        ):  # means without a draw; else all three are of the same draws
            felt, between = (np.concatenate(c.costs(policy)) for c in (course, course.under(distortion)))
        return cls(len(counts), course.unit, interval(between), interval(felt), interval(bits))

    @property
    def level(self) -> str:
        """Whether it says something about the person."""
        return HELD_OUT if self.units >= LEAST_UNITS else MODEL_ONLY

    def to_json(self) -> dict[str, Any]:
        figures = {k: getattr(self, k).to_json() for k in FIGURES}
        return {"traces": self.units, "unit": self.unit, "level": self.level, **figures}
