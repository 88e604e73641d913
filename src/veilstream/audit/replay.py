"""A policy run over recorded data: what its releases cost on the data itself, not on the chain's idea of it.

Distortion is measured twice: from the state to the release, as the solver means it, and from the raw reading to the
release, as the person feels it. Order-1 chains and fitted chains of any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilstream.core.chain import MarkovChain, draw
from veilstream.core.policy import Policy
from veilstream.data.crossval import walk
from veilstream.data.states import StateSpace


@dataclass(frozen=True)
class Replay:
    """Mean distances in the states' unit, over `steps` recorded steps and all repeats; standard errors over repeats."""

    state_to_release: float
    raw_to_release: float
    raw_to_state: float
    state_to_release_se: float
    raw_to_release_se: float
    steps: int


def replay(
    policy: Policy,
    chain: MarkovChain,
    states: StateSpace,
    runs: Sequence[NDArray[np.float64]],
    repeats: int = 20,
    seed: int = 0,
) -> Replay:
    """Release every run (rows: the raw reading of each step) `repeats` times, each run from the policy's start."""
    rng = np.random.default_rng(seed)
    near, far = np.zeros(repeats), np.zeros(repeats)
    raw, steps = 0.0, 0
    d = states.distances()
    for points in runs:
        x = states.encode(points)
        z = walk(chain, x)
        memory = policy.start(repeats)
        to_all = states.distances_from(points)  # steps x n
        for t in range(len(x)):
            channel = policy.channel(memory)  # repeats x |Z| x |Y|
            y = draw(channel[:, z[t]], rng.random(repeats))
            memory = policy.update(memory, y)
            near += d[x[t], y]
            far += to_all[t, y]
        raw += float(to_all[np.arange(len(x)), x].sum())
        steps += len(x)
    near, far = near / steps, far / steps
    root = np.sqrt(repeats)
    return Replay(
        float(near.mean()), float(far.mean()), raw / steps, float(near.std() / root), float(far.std() / root), steps
    )
