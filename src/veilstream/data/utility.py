"""What a limit is about: the distances from what was true to what is released, and the streams they are measured on.

felt      from a person's own readings, where her model carries a record of them: the mean over the readings of a state
          for a limit on average (met on her own streams, starts and gaps included), the farthest for one at every step;
          a record of fewer than LEAST_STEPS steps says too little
states    between the centres of states, under the long run of the chain: the paper's meaning, for study
"""

from __future__ import annotations

from dataclasses import dataclass

from veilstream.core.chain import MarkovChain
from veilstream.core.course import Course
from veilstream.core.information import Array
from veilstream.core.problem import Average, Constraint, Problem
from veilstream.data.record import Record
from veilstream.data.states import StateSpace
from veilstream.errors import InputError

DISTORTIONS = ("felt", "states")
LEAST_STEPS = 50  # of a record that says how readings lie around their states; with fewer, states stand for them


@dataclass(frozen=True, eq=False)
class Utility:
    """A chain with the distances of its symbols to releases."""

    chain: MarkovChain
    distortion: Array
    unit: str  # of the distortion; "" where it has none
    names: tuple[str, ...]
    worst: Array | None = None  # what a limit at every step is about, where it is not the distortion
    course: Course | None = None  # the streams that a limit on average is about; None: the long run of the chain
    between: Array | None = None  # distances between states, where the distortion is not these
    held_out: Course | None = None  # later streams that nothing was fitted to
    fitted: bool = False  # whether it is a person's

    @classmethod
    def of(
        cls,
        chain: MarkovChain,
        states: StateSpace,
        record: Record | None = None,
        distortion: str = "felt",
        quantile: float = 1.0,
        held_out: Record | None = None,
    ) -> Utility:
        """quantile: of the readings of a state that a limit at every step is for."""
        if distortion not in DISTORTIONS:
            raise InputError(f"`distortion` must be one of {', '.join(DISTORTIONS)}, found {distortion!r}")
        between, names = states.distances(), tuple(states.names)
        later = None if held_out is None else held_out.course(states, chain)
        if record is None or len(record) < LEAST_STEPS or distortion == "states":
            return cls(chain, between, states.unit, names, held_out=later, fitted=True)
        mean, worst = record.felt(states, quantile)
        return cls(
            chain, mean, states.unit, names, worst, record.course(states, chain), between, held_out=later, fitted=True
        )

    def problem(self, constraint: Constraint) -> Problem:
        return Problem(self.chain, self.distortion, constraint, self.worst)

    @property
    def blind(self) -> float:
        """The mean distance of always releasing the one best thing, which tells nothing."""
        if self.course is not None:
            return self.course.blind()
        return float((self.chain.stationary @ self.problem(Average(weight=0.0)).distortion).min())
