"""What a person feels: from the raw reading to what was released of it, on recorded data.

The solver's distortion is from the state to the release; readings lie around their states.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veilstream.audit.traces import release
from veilstream.core.chain import MarkovChain
from veilstream.core.histories import TrueStates
from veilstream.core.information import Array
from veilstream.core.policy import Policy
from veilstream.data.states import StateSpace


@dataclass(frozen=True)
class Felt:
    """Mean distances in the states' unit, over `steps` recorded steps and all copies; standard errors over copies."""

    state_to_release: float
    raw_to_release: float
    raw_to_state: float
    state_to_release_se: float
    raw_to_release_se: float
    steps: int


def felt(
    policy: Policy, chain: MarkovChain, states: StateSpace, runs: Sequence[Array], copies: int = 20, seed: int = 0
) -> Felt:
    """Release every run (rows: the raw reading of each step) `copies` times, each run from the policy's start."""
    true_states = TrueStates.of(chain)
    symbols = [states.encode(points) for points in runs]
    traces = release(policy, [true_states.along(x) for x in symbols], copies, seed)
    d, n = states.distances(), sum(map(len, symbols))
    near, far = np.zeros((2, copies))
    seen = np.zeros(len(runs), np.int64)  # copies of each run met so far
    for y, i in zip(traces.y, traces.origin, strict=True):
        y = y[: len(symbols[i])]
        near[seen[i]] += d[symbols[i], y].sum()
        far[seen[i]] += states.distance_to(runs[i], y).sum()
        seen[i] += 1
    raw = sum(float(states.distance_to(p, x).sum()) for p, x in zip(runs, symbols, strict=True))
    near, far, root = near / n, far / n, np.sqrt(copies)
    return Felt(float(near.mean()), float(far.mean()), raw / n, float(near.std() / root), float(far.std() / root), n)
