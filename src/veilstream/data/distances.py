"""How far raw readings lie from their states, and what releasing always the same would cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilstream.data.readings import Readings
from veilstream.data.states import StateSpace
from veilstream.model.chain import MarkovChain

RAW_SAMPLE = 200_000  # raw readings used


@dataclass(frozen=True)
class Distances:
    """Distances in the model's unit. `blind_*`: always releasing the one best state, which leaks nothing."""

    raw_mean: float  # raw reading to its state
    raw_median: float
    raw_p95: float
    blind_state: int
    blind_state_to_state: float
    blind_raw_to_state: float


def distances_of(readings: Readings, states: StateSpace, chain: MarkovChain) -> Distances:
    """From raw readings to their states, and what releasing always the same state would cost."""
    frame = readings.frame
    every = -(-frame.height // RAW_SAMPLE)
    raw = frame.select(readings.columns).gather_every(every).to_numpy()
    to_state = states.distance_to(raw, states.encode(raw))
    law = np.bincount(chain.symbols, chain.stationary, minlength=len(states))
    cost = law @ states.distances()
    blind = int(cost.argmin())
    to_blind = states.distance_to(raw, np.full(len(raw), blind))
    return Distances(
        float(to_state.mean()),
        float(np.median(to_state)),
        float(np.quantile(to_state, 0.95)),
        blind,
        float(cost[blind]),
        float(to_blind.mean()),
    )
