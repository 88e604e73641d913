"""What a limit is about: the distances from what was true to what is released, and the streams they are measured on.

felt      from a person's own readings, where her model carries a record of them: the mean over the readings of a state
          for a limit on average (met on her own streams, starts and gaps included), the farthest for one at every step;
          a record of fewer than LEAST_STEPS steps says too little
states    between the centres of states, under the long run of the chain: the paper's meaning, for study

Either with any of the costs of `cost`: "squared", "states,zero-one", "hypo.csv"; the distance itself unless told.

What is released are public points (`points`); the states themselves for study, or where asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from veilstream.control.replay import Replay, Total
from veilstream.data.cost import MEASURES, SIGNED, Cost
from veilstream.data.points import points_of
from veilstream.data.states import StateSpace
from veilstream.data.trajectories import Trajectories
from veilstream.data.zones import cost_of_names, is_zones
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array
from veilstream.model.problem import Average, Constraint, Problem
from veilstream.units import noun

ABOUT = ("felt", "states")
LEAST_STEPS = 50  # of a record that says how readings lie around their states; with fewer, states stand for them


def meaning(text: str) -> tuple[str, str]:
    """Split the text of a distortion into its subject (felt, states) and its measure: "squared" is felt, squared."""
    about, measure = ABOUT[0], MEASURES[0]
    for word in [text] if Path(text).is_file() else text.split(","):
        word = word.strip()
        if word in ABOUT:
            about = word
        elif word in MEASURES or word.endswith(".csv") or Path(word).is_file():
            measure = word
        else:
            known = ", ".join((*ABOUT, *MEASURES))
            raise InputError(f"`distortion` must be one of {known} or a FILE.csv, found {word[:40]!r}")
    return about, measure


@dataclass(frozen=True, eq=False)
class Utility:
    """A chain with the distances of its symbols to releases."""

    chain: MarkovChain
    distortion: Array
    unit: str  # of the distortion; "" where it has none
    names: tuple[str, ...]
    worst: Array | None = None  # what a limit at every step is about, where it is not the distortion
    replay: Replay | None = None  # the streams that a limit on average is about; None: the long run of the chain
    between: Array | None = None  # distances from states to releases, where the distortion is not these
    held_out: Replay | None = None  # later streams that nothing was fitted to
    fitted: bool = False  # whether it is a person's
    points: StateSpace | None = None  # what is released, where that is not the states
    cost: Cost | None = None  # what the distortion is made of, where there are states
    record: Trajectories | None = None  # the readings behind the replay

    @classmethod
    def of(
        cls,
        chain: MarkovChain,
        states: StateSpace,
        record: Trajectories | None = None,
        distortion: str = "felt",
        quantile: float = 1.0,
        held_out: Trajectories | None = None,
        show: str | None = None,
    ) -> Utility:
        """quantile: of the readings of a state that a limit at every step is for. show: how far apart releases are."""
        about, measure = meaning(distortion)
        if states.kind == "names" and measure in MEASURES:
            measure = "zero-one"  # two names are as far apart as any
        names = tuple(states.names)
        if is_zones(show):
            if measure != MEASURES[0]:
                raise InputError("names of zones are right or wrong: leave out `distortion`, or `show`")
            cost = cost_of_names(states, str(show))
            points: StateSpace | None = cost.shown
        else:
            points = points_of(states, show or ("states" if about == "states" else None))
            cost = Cost.of(states, points or states, measure)
        later = None if held_out is None else held_out.replay(cost, chain)
        between = cost.distances_from(states.coordinates)
        plain = cls(chain, between, cost.unit, names, held_out=later, fitted=True, points=points, cost=cost)
        if record is None or len(record) < LEAST_STEPS or about == "states":
            return plain
        mean, worst = record.felt(states, quantile, cost)
        replay = record.replay(cost, chain)
        return replace(plain, distortion=mean, worst=worst, replay=replay, between=between, record=record)

    def problem(self, constraint: Constraint) -> Problem:
        never = None if self.cost is None else self.cost.forbidden
        for x in () if never is None else np.flatnonzero(never.all(1)):
            raise InputError(
                f"{self.names[x]!r} may show nothing: no release lies at a state that it may be shown as; give a finer "
                "`show`, or `show='states'`"
            )
        return Problem(self.chain, self.distortion, constraint, self.worst, never)

    def total(self) -> Total:
        """The total that releases must keep in the mean: the sum of the recorded readings."""
        if self.record is None or self.cost is None or self.cost.states.kind != "bins":
            raise InputError("`keep_total` is for values with their readings in the model, as `veil fit` writes it")
        errors = self.record.replay(replace(self.cost, measure=SIGNED, table=None), self.chain)
        return Total(self.cost.shown.coordinates[:, 0], errors, float(self.record.points.mean()))

    @property
    def thing(self) -> str:
        """The noun for a state in sentences: place, level or state."""
        return noun("" if self.cost is None else self.cost.states.unit)

    @property
    def truth(self) -> float:
        """Bits per step that the truth would reveal: on the recorded data where there is some, else in the long run."""
        there = None if self.replay is None else self.replay.truth(self.chain)
        return self.chain.entropy_rate if there is None else there

    @property
    def by_the_hour(self) -> float:
        """The mean distance of releasing what is best for the hour, which leaks nothing either."""
        if self.replay is None or self.chain.phases == 1:
            return self.blind
        return self.replay.blind(self.chain)

    @property
    def blind(self) -> float:
        """The mean distance of always releasing the one best thing, which leaks nothing."""
        if self.replay is not None:
            return self.replay.blind()
        return float((self.chain.stationary @ self.problem(Average(weight=0.0)).distortion).min())
