"""Chains with a public clock: how a person's data moves depends on the hour, which everybody knows.

    P_phi(z, z') = P(Z_{t+1} = z' | Z_t = z, phase of step t is phi)

The phase is public, so it costs no bits; everything downstream is as for one matrix, with an index. `transition` is the
mean chain, of somebody who does not look at the clock: with pi_l the law at step l of one round (of L steps),

    P(z, z') = sum_l pi_l(z) P_phi(l)(z, z') / sum_l pi_l(z),       whose stationary law is the mean of the pi_l
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain, checked_stochastic, draw
from veilstream.model.clock import Clock
from veilstream.model.information import Array, Index, entropy, rows_times
from veilstream.model.powers import Powers

BLOCK = 1 << 17  # steps of a gap that are looked at together
LONGEST = 1 << 22  # steps of a gap beyond which the first of them are forgotten
MOST_CELLS = 1 << 20  # entries of transition matrices gathered for streams at different phases
KEPT = 64  # rounds of different phases whose products are kept


@dataclass(frozen=True, eq=False)
class CyclicChain(MarkovChain):
    """Made by `of`: the mean chain comes from the cycle."""

    cycle: Array = None  # type: ignore[assignment]  # phases x |Z| x |Z|
    clock: Clock = None  # type: ignore[assignment]

    @classmethod
    def of(
        cls,
        cycle: ArrayLike,
        clock: Clock,
        histories: tuple[tuple[int, ...], ...] | None = None,
        name: str = "chain",
        counts: Array | None = None,
    ) -> "CyclicChain":
        P = checked_stochastic(cycle, "cycle")
        if P.ndim != 3 or P.shape[1] != P.shape[2] or len(P) != clock.phases:
            raise InputError(f"cycle must be {clock.phases} square matrices, one a phase, found shape {P.shape}")
        pi = laws_around(P, clock.around)
        mass = np.zeros(P.shape[:2])
        np.add.at(mass, clock.around, pi)
        flow = np.einsum("pz,pzk->zk", mass, P)
        seen = mass.sum(0)[:, None]
        mean = np.where(seen > 0, flow / np.where(seen > 0, seen, 1), P.mean(0))
        return cls(mean, None, histories, name, counts, P, clock)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cycle is None or self.clock is None or self.cycle.shape[1:] != self.transition.shape:
            raise InputError("a chain with a clock is made by CyclicChain.of(cycle, clock)")
        if len(self.closed_classes) > 1:
            raise InputError("a chain with a clock must not fall apart into several classes of states")

    # --- one round -------------------------------------------------------------------------------------

    @property
    def phases(self) -> int:  # type: ignore[override]
        return self.clock.phases

    @property
    def around(self) -> Index:
        return self.clock.around

    @cached_property
    def laws(self) -> Array:
        """The law at each step of one round, L x |Z|."""
        return laws_around(self.cycle, self.around)

    @cached_property
    def law_by_phase(self) -> Array:
        """The law of the state given the phase, phases x |Z|."""
        law = np.zeros(self.cycle.shape[:2])
        np.add.at(law, self.around, self.laws)
        return np.asarray(law / law.sum(1, keepdims=True))

    @cached_property
    def _plain(self) -> list[MarkovChain]:
        name = f"{self.name} at one phase"
        return [MarkovChain(P, law, self.histories, name) for P, law in zip(self.cycle, self.law_by_phase, strict=True)]

    def at(self, phase: int) -> MarkovChain:
        return self._plain[phase]

    @property
    def rarest(self) -> Array:
        return np.asarray(self.cycle.min(0))

    @cached_property
    def entropy_rate(self) -> float:
        """Mean over the round of sum_z pi_l(z) H(P_l(z, .))."""
        return float((self.laws * entropy(self.cycle)[self.around]).sum(1).mean())

    # --- steps in public time ------------------------------------------------------------------------

    def phase(self, step: ArrayLike) -> Index:
        return self.clock.phase(step)

    def initial_at(self, step: Index) -> Array:
        return np.asarray(self.law_by_phase[self.phase(step)])

    def moved(self, b: Array, step: Index) -> Array:
        phase = np.broadcast_to(self.phase(step), b.shape[:1])
        if len(phase) and (phase == phase[0]).all():
            return rows_times(b, self.cycle[phase[0]])
        if b.size * b.shape[-1] <= MOST_CELLS:
            return np.asarray((b[:, None] @ self.cycle[phase])[:, 0])
        after = np.empty_like(b)
        for i in np.unique(phase):
            after[phase == i] = b[phase == i] @ self.cycle[i]
        return after

    def later(self, b: Array, k: int = 1, step: Index | None = None) -> Array:
        """Across any number of steps, the clock put forward or back between them; from step 0 unless told."""
        if k < 1:
            return b
        first = np.broadcast_to(np.zeros((), np.int64) if step is None else step, b.shape[:-1])
        after = np.empty_like(b)
        for start in np.unique(first):
            after[first == start] = self._along(b[first == start], int(start), k)
        return after

    def _along(self, b: Array, start: int, k: int) -> Array:
        if k > LONGEST:
            start, k = start + k - LONGEST, LONGEST
        for at in range(start, start + k, BLOCK):
            phases = self.phase(np.arange(at, min(at + BLOCK, start + k)))
            n, whole = len(self.around), len(phases) // len(self.around)
            rounds = phases[: whole * n].reshape(whole, n)
            new = np.ones(whole, bool)  # rounds that are not as the one before
            new[1:] = (rounds[1:] != rounds[:-1]).any(1)
            starts = np.flatnonzero(new)
            for i, times in zip(starts, np.diff(np.append(starts, whole)), strict=True):
                b = self._round(rounds[i]).law(b, int(times))
            for phase in phases[whole * n :]:
                b = b @ self.cycle[phase]
        return np.asarray(b / b.sum(-1, keepdims=True))

    def _round(self, phases: Index) -> Powers:
        """Powers of the product of these phases in turn."""
        key = phases.tobytes()
        if key not in self._rounds:
            if len(self._rounds) >= KEPT:
                self._rounds.clear()
            self._rounds[key] = Powers(product(self.cycle, phases))
        return self._rounds[key]

    @cached_property
    def _rounds(self) -> dict[bytes, Powers]:
        return {}

    def sample(
        self, steps: int, streams: int = 1, seed: "int | np.random.Generator" = 0, first: ArrayLike = 0
    ) -> Index:
        """From the law at the phase of the first step, whose public number is `first` (one for all, or one each)."""
        rng = np.random.default_rng(seed)
        z = np.empty((streams, steps), dtype=np.int64)
        step = np.broadcast_to(np.asarray(first, np.int64), streams)
        law = self.initial_at(step)
        for t in range(steps):
            z[:, t] = draw(law, rng.random(streams))
            law = self.cycle[self.phase(step + t), z[:, t]]
        return z

    def thinned(self, least: float) -> MarkovChain:
        raise InputError("transitions cannot be left out of a chain with a clock")

    def lift(self, order: int) -> MarkovChain:
        raise InputError("a chain with a clock cannot be lifted")


def product(cycle: Array, phases: Sequence[int] | Index) -> Array:
    """P of the first phase, times that of the second, ...: rows stay laws."""
    P = np.eye(cycle.shape[1])
    for phase in phases:
        P = P @ cycle[phase]
        P /= P.sum(1, keepdims=True)
    return P


def laws_around(cycle: Array, around: Index) -> Array:
    """pi_l of every step of a round that leaves the law at its start alone."""
    pi = np.empty((len(around), cycle.shape[1]))
    law = MarkovChain(product(cycle, around)).stationary
    for i, phase in enumerate(around):
        pi[i] = law
        law = law @ cycle[phase]
    return pi
