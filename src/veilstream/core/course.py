"""Recorded streams as a policy would meet them, and what its releases cost on them: starts and gaps included.

For a policy whose memories are numbers the mean is exact, without a draw. With p_t(s) the law of the memory before
step t and z_t the true state then,

    cost_t      = sum_s p_t(s) sum_y a_s(y|z_t) distance_t(y)
    p_{t+1}(s') = sum over (s, y) leading to s' of p_t(s) a_s(y|z_t)

For others it is the mean over draws with the same random numbers every time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.core.chain import MarkovChain
from veilstream.core.information import Array, Index
from veilstream.core.meter import Meter, Unmetered
from veilstream.core.policy import Policy
from veilstream.core.release import Mechanism

MOST_MOVES = 20_000_000  # entries in the moves of the memory, one matrix a state
DRAWS = 200_000  # of releases, over all copies
LEAST_COPIES, MOST_COPIES = 8, 200


@dataclass(frozen=True, eq=False)
class OnCourse:
    """Means over the steps of a course, with standard errors over copies."""

    felt: float  # reading to release
    felt_se: float
    bits: float  # per step: log2 a(y|z)/q(y), q the output law of the chain's filter
    bits_se: float
    copies: int

    def to_json(self) -> dict[str, Any]:
        bits = {"leakage": self.bits, "leakage_se": self.bits_se}
        felt = {"raw_distortion": self.felt, "raw_distortion_se": self.felt_se}
        return {"raw_distortion": self.felt, "record": {**bits, **felt, "copies": self.copies}}


@dataclass(frozen=True, eq=False)
class Course:
    """One stream each: true states z of the policy's chain, steps missed before each, distances to every release."""

    states: Sequence[Index]
    gaps: Sequence[Index]
    distances: Sequence[Array]  # steps x |Y|
    first: Sequence[int] = ()  # the public number of each stream's first step; 0 unless told

    def __post_init__(self) -> None:
        if not len(self.first):
            object.__setattr__(self, "first", [0] * len(self.states))

    @cached_property
    def steps(self) -> int:
        return sum(map(len, self.states))

    def least(self, allowed: NDArray[np.bool_]) -> float:
        """The least mean distance of any policy: for every state the release that is best for its readings."""
        z, d = np.concatenate(self.states), np.concatenate(self.distances)
        cost = np.zeros(allowed.shape)
        np.add.at(cost, z, d)
        return float(np.where(allowed, cost, np.inf).min(1)[np.unique(z)].sum() / self.steps)

    def blind(self) -> float:
        """The mean distance of always releasing the one thing that is best for all."""
        return float(np.concatenate(self.distances).sum(0).min() / self.steps)

    def felt(self, policy: Policy) -> float:
        """Mean distance from reading to release."""
        tables = policy.phase_tables()
        if tables is None or len(tables[0]) ** 2 * policy.n_states > MOST_MOVES:
            return self.run(policy, Unmetered()).felt
        n, Y = len(tables[0]), policy.n_outputs
        s, y = np.divmod(np.arange(n * Y), Y)
        to = policy.next_memory(s, y)
        kinds = {id(table): table for table in tables}
        moves = {}  # |Z| x S x S of each table
        for k, table in kinds.items():
            moves[k] = np.zeros((policy.n_states, n, n))
            np.add.at(moves[k], np.s_[:, s, to], table[s, :, y].T)  # type: ignore[arg-type]
        total, start = 0.0, np.eye(n)[first_memory(policy)]
        for z, gaps, distance, first in zip(self.states, self.gaps, self.distances, self.first, strict=True):
            phase = policy.phase(np.arange(len(z)) + np.cumsum(gaps), first)
            active = [id(tables[i]) for i in phase.tolist()]
            laws, p = np.empty((len(z), n)), start
            for t, (k, x) in enumerate(zip(active, z.tolist(), strict=True)):
                laws[t] = p
                p = p @ moves[k][x]
            which = np.array(active)
            for k, table in kinds.items():
                for x in np.unique(z[which == k]):
                    here = (which == k) & (z == x)
                    total += float(((laws[here] @ table[:, x]) * distance[here]).sum())
        return total / self.steps

    def leakage(self, policy: Policy, chain: MarkovChain) -> OnCourse:
        """Bits per step for these very streams, whatever their law: the adversary's model is the chain."""
        return self.run(policy, Mechanism(policy.made_for(chain)).meter)

    def run(self, policy: Policy, meter: Meter, seed: int = 0) -> OnCourse:
        """Every stream released several times, memory and belief going on over gaps."""
        copies = int(np.clip(DRAWS // max(self.steps, 1), LEAST_COPIES, MOST_COPIES))
        mechanism, rng = Mechanism(policy, meter=meter), np.random.default_rng(seed)
        far, bits = np.zeros((2, copies))
        each = np.arange(copies)
        for z, gaps, distance, first in zip(self.states, self.gaps, self.distances, self.first, strict=True):
            s = mechanism.start(copies, first)
            for t, x in enumerate(z.tolist()):
                if gaps[t]:
                    s = mechanism.skip(s, int(gaps[t]))
                now = mechanism.look(s)
                y = mechanism.draw(s, now, np.full(copies, x), rng.random(copies))
                far += distance[t, y]
                if now.law is not None and now.channel is not None:
                    bits += np.log2(now.channel[each, x, y] / now.law[each, y])
                s = mechanism.after(s, now, y)
        far, bits, root = far / self.steps, bits / self.steps, np.sqrt(copies)
        return OnCourse(
            float(far.mean()), float(far.std(ddof=1) / root), float(bits.mean()), float(bits.std(ddof=1) / root), copies
        )


def first_memory(policy: Policy) -> int:
    """The numbered memory that a stream starts from: of a schedule, that of the part that begins."""
    while len(parts := policy.shares()) > 1:
        policy = parts[0][1]
    return int(policy.start())
