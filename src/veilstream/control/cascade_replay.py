"""What a coarser audience's releases cost on recorded streams: exactly, over all draws of the finer audience's.

With p_t(s2,s1) the law of both memories before step t, z_t the true state, and y1 read off s1',

    shown(s2,s1') = sum over next(s1,y1) = s1' of p_t(s2,s1) a(y1|z_t,s1)
    error_t       = sum shown(s2,s1') c(y2|y1,s2) distance_t(y2)
    p_{t+1}       = the same with s2' = next(s2,y2)

Bits on recorded data need no such law: whatever is guessed of the finer releases, its density bounds what the coarser
ones tell (`universal_bound`), so they are those of an ordinary replay whose true states are drawn finer releases.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilstream.control.accountant import Accountant
from veilstream.control.automaton import Kernel, kernel_of
from veilstream.control.cascade import Finer
from veilstream.control.controller import Controller
from veilstream.control.loop import replay
from veilstream.control.mechanism import Mechanism
from veilstream.control.policy import Policy
from veilstream.control.replay import Replay
from veilstream.model.information import Array

COPIES = 8  # of the finer releases of every stream, for figures that are drawn


@dataclass(frozen=True, eq=False)
class BehindReplay:
    finer: Finer
    streams: Replay  # true states, and what each coarser release costs

    def least(self, allowed: NDArray[np.bool_]) -> float:
        """The least mean distance of any policy that looks at the finer release."""
        cost = np.zeros(allowed.shape)
        for q, t in self._finer_laws():
            cost += q[:, None] * self.streams.table[t]
        shown = cost.any(1)
        return float(np.where(allowed, cost, np.inf)[shown].min(1).sum() / self.streams.n_steps)

    def error(self, policy: Policy) -> float:
        """Mean distance from reading to coarser release."""
        return float(self.errors(policy).mean())

    def errors(self, policy: Policy) -> Array:
        """Mean distance at every step."""
        assert isinstance(policy, Controller)
        coarse, own, at = self.finer.seen(policy), self.finer.policy, self.streams
        kernels = [kernel_of(coarse.automaton, K) for K in coarse.kernel]
        costs = np.empty(at.n_steps)
        for rows in at.streams:
            place = coarse.place_at(at.step[rows])
            phase = place if coarse.turn is None else coarse.turn[place]
            p = np.zeros((len(coarse.automaton), len(own.automaton)))
            p[coarse.first, own.first] = 1
            for t, f2, shown in self._laws(rows, p, kernels, coarse, phase.tolist()):
                led = kernels[f2].joint(coarse.output_model[f2], shown / coarse.normaliser[f2])
                costs[t] = led.sum(0) @ at.table[t]
        return costs

    def _laws(
        self, rows: slice, p: Array, kernels: list[Kernel], coarse: Controller, phases: list[int]
    ) -> Iterator[tuple[int, int, Array]]:
        """Step, coarser phase, and the law of (s2, s1') once the finer release is drawn, along one stream."""
        for t, f2 in zip(range(rows.start, rows.stop), phases, strict=True):
            shown = self._after(t, p)
            yield t, f2, shown
            p = kernels[f2].arrive(coarse.output_model[f2], shown / coarse.normaliser[f2])

    def _after(self, t: int, p: Array) -> Array:
        """... x S1 -> ... x S1'."""
        f, z = int(self.finer.policy.phase_at(self.streams.step[t])), int(self.streams.states[t])
        return p @ self.finer.moves(f, z)

    def _finer_laws(self) -> Iterator[tuple[Array, int]]:
        """The law of the finer release at every step."""
        own = self.finer.policy
        for rows in self.streams.streams:
            p = np.zeros(len(own.automaton))
            p[own.first] = 1
            for t in range(rows.start, rows.stop):
                p = self._after(t, p)
                yield self.finer.by_symbol(p, self.finer.last), t

    def drawn(self, copies: int = COPIES, seed: int = 0) -> Replay:
        """The same streams as their finer releases were drawn, several times: what the coarser policy looks at."""
        at, rng, parts = self.streams, np.random.default_rng(seed), []
        mechanism = Mechanism(self.finer.policy, meter=Accountant(), sighted=True)
        for rows in at.streams:
            z = np.tile(at.states[rows], (copies, 1))
            y, _ = replay(mechanism, z, uniforms=rng.random, gaps=at.gaps[rows], first=at.step[rows.start])
            parts.append(y)
        row = np.concatenate([np.tile(np.arange(s.start, s.stop), copies) for s in at.streams])
        stream = np.concatenate([copies * i + np.repeat(np.arange(copies), y.shape[1]) for i, y in enumerate(parts)])
        states = self.finer.of_release[np.concatenate([y.ravel() for y in parts])]
        units = None if at.units is None else at.units[row]
        return Replay(stream, at.step[row], states, at.table[row], units, at.unit)
