"""Causal Blahut-Arimoto around a public clock: `sweep`, with an index.

    K_phi(s',z,y) = 2^-( C(z,y) + sum_z' P_phi(z,z') alpha_next_(s',y)(z') )    alpha_next: of the phase that follows

One sweep goes once around backward (alpha), once around forward (mu and r). Where a phase lasts several steps, or is
followed by different ones (Friday's last by Saturday's first), what follows is taken as a public chain of phases with
the frequencies F of the clock, alpha_next = sum_psi F(phi,psi) alpha_psi: exact where every step of a day has a phase
of its own; in any case what is found is judged step by step on the true round.

A constant added to all of alpha_phi changes no policy; so every phase is held at mean 0 by itself.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from veilstream.core.by_clock import ClockPolicy
from veilstream.core.information import Array, Index
from veilstream.core.problem import Problem
from veilstream.core.steady import Rates, law_at_phases
from veilstream.core.window import WindowPolicy
from veilstream.solvers.sweep import Sweep, Tables

NEVER = 1 << 30


class CyclicSweep:
    """The recursion for a chain with a clock; tables have an axis of phases after that of the batch."""

    settle_every: int | None = NEVER  # going around settles the law

    def __init__(
        self, problem: Problem, cost: Array, window: int, look_ahead: bool = True, dtype: Any = np.float64
    ) -> None:
        chain = problem.chain
        self.problem, self.window, self.look_ahead = problem, window, look_ahead
        each = [replace(problem, chain=chain.at(phase)) for phase in range(chain.phases)]
        self.parts = [Sweep(part, cost, window, look_ahead, dtype) for part in each]
        around = chain.around
        F = np.zeros((chain.phases, chain.phases))
        np.add.at(F, (around, np.roll(around, -1)), 1)
        self.share = F.sum(1) / len(around)  # of the time, in each phase
        self.follows = [[(int(j), F[i, j] / F[i].sum()) for j in np.flatnonzero(F[i])] for i in range(len(F))]
        self.precedes = [[(int(i), F[i, j] / F[:, j].sum()) for i in np.flatnonzero(F[:, j])] for j in range(len(F))]

    def start(self, r: Array) -> Tables:
        """From output models r, B x S x Y or B x phases x S x Y."""
        n = len(self.parts)
        by_phase = [r if r.ndim == 3 else r[:, phase] for phase in range(n)]
        each = [part.start(own) for part, own in zip(self.parts, by_phase, strict=True)]
        return Tables(*(np.stack([getattr(t, k) for t in each], 1) for k in ("r", "alpha", "mu")))

    def seen(self, mu: Array) -> Array:
        """The law of (phase, window)."""
        return np.asarray(self._shares(mu) * mu.sum(-1, keepdims=True))

    def _shares(self, x: Array) -> Array:
        return np.asarray(self.share.reshape(-1, *[1] * (x.ndim - 2)))

    def total(self, x: Array) -> Array:
        return np.asarray(x.sum(-1, keepdims=True))

    def _next(self, phase: int, alpha: Array) -> Array:
        first, *others = self.follows[phase]
        ahead = first[1] * alpha[:, first[0]] if others else alpha[:, first[0]]
        for j, weight in others:
            ahead = ahead + weight * alpha[:, j]
        return np.asarray(ahead)

    def __call__(
        self, t: Tables, index: Index, stretch: Array | float = 1.0, rounds: int = 0
    ) -> tuple[Tables, Array, Array]:
        """One sweep: new tables, value per step, and how far r was from the best for its mu and alpha, in bits."""
        n, alpha, mu, raw, r = len(self.parts), t.alpha.copy(), t.mu.copy(), np.empty_like(t.alpha), t.r.copy()
        K, N, ahead = dict[int, Array](), dict[int, Array](), dict[int, Array]()
        slack, value = np.zeros((2, len(t)))
        # output model and backward
        for i in range(n - 1, -1, -1):
            ahead[i] = self._next(i, alpha) if self.look_ahead else np.zeros_like(alpha[:, i])
            own = Tables(r[:, i], ahead[i], mu[:, i])
            K[i], low = self.parts[i].kernel(own, index, stretch)
            r[:, i], left = self.parts[i].fit(own, K[i], rounds)
            slack += self.share[i] * left
            N[i] = r[:, i] @ K[i]
            raw[:, i] = low - np.log2(N[i])
            if self.look_ahead:
                alpha[:, i] = raw[:, i] - (mu[:, i] * raw[:, i]).sum((1, 2, 3), keepdims=True)
        # forward
        arrived = dict[int, Array]()
        for i in range(n):
            for j, _ in self.precedes[i]:
                if j not in arrived:
                    arrived[j] = self._arrived(j, r[:, j], K[j], N[j], mu[:, j])
            now = sum((weight * arrived[j] for j, weight in self.precedes[i]), np.zeros(()))
            mu[:, i] = now / now.sum((1, 2, 3), keepdims=True)
            arrived[i] = self._arrived(i, r[:, i], K[i], N[i], mu[:, i])
            gained = (mu[:, i] * raw[:, i]).sum((1, 2, 3)) - (arrived[i] * ahead[i]).sum((1, 2, 3))
            value += self.share[i] * gained
        return Tables(r, alpha, mu), value, slack

    def _arrived(self, phase: int, r: Array, K: Array, N: Array, mu: Array) -> Array:
        """The law of (window, state) one step after this one."""
        part = self.parts[phase]
        moved = part.moves.step((r.swapaxes(2, 3) @ (mu / N)) * K)
        if part.window:
            return part.by_oldest(moved.reshape(len(r), part.O * part.Sp, -1))
        return np.asarray(moved.sum(2, keepdims=True))

    def settle(self, t: Tables, index: Index) -> None:
        pass

    def result(self, t: Tables, i: int) -> tuple[ClockPolicy, Rates]:
        """The policy that run i has found, and its rates over the true round."""
        chain, one, at = self.problem.chain, t.take(np.array([i])), np.array([i])
        first = int(self.parts[0].by_window(one.mu.mean(1))[0].sum(1).argmax())
        made = []
        for phase, part in enumerate(self.parts):
            ahead = self._next(phase, one.alpha)
            K = part.kernel(Tables(one.r[:, phase], ahead, one.mu[:, phase]), at)[0][0].swapaxes(1, 2)
            made.append(WindowPolicy(part.by_window(one.r[:, phase])[0], K, self.window, first=first))
        policy = ClockPolicy(tuple(made)).made_for(chain)
        steps = policy.law_steps(chain)
        assert steps is not None
        guess = self.parts[0].by_window(one.mu[:, chain.around[0]])[0].astype(float)
        laws = law_at_phases(steps, chain, guess / guess.sum())
        found = [step.rates(law, self.problem.distortion) for step, law in zip(steps, laws, strict=True)]
        leakage, distortion = np.mean(found, 0)
        return policy, Rates(float(leakage), float(distortion))
