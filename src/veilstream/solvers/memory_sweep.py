"""One sweep of causal Blahut-Arimoto on a memory made to measure; `sweep` has the recursion for windows.

Every memory s' is led to by one release y(s'), so the kernel is a table of memories and states,

    B(s',z) = 2^-( C(z,y(s')) + sum_z' P(z,z') alpha_s'(z') ),      R(s,s') = r(y|s) where s' = next(s,y)
    N = R B,   alpha_s(z) <- -log2 N(s,z) - g,   mu <- ((R^T mu/N) B) P,   r(y|s) <- r(y|s) ((mu/N) B^T)(s,s') / mu(s)

and a sweep costs |S|^2 |Z| and |S| |Z|^2 products. A memory is made finer by `split` (`memory`), which sorts
the pairs (s,y) that lead to a state: it keeps its one release.
"""

from typing import Any

import numpy as np

from veilstream.core.information import Array, Index
from veilstream.core.memory import KernelStep, MemoryPolicy, newest, spread
from veilstream.core.problem import Problem
from veilstream.core.steady import Moves, Rates, stationary_law
from veilstream.solvers.memory import split
from veilstream.solvers.sweep import UNSEEN, Tables, fitted, floored, gains


class MemorySweep:
    """The recursion for one chain, one memory and a batch of costs (B x Z x Y); tables are B x S x (Y or Z)."""

    settle_every: int | None = 1 << 30
    window = None

    def __init__(self, problem: Problem, cost: Array, next: Index, dtype: Any = np.float64) -> None:
        chain = problem.chain
        self.problem, self.next, self.dtype = problem, next, np.dtype(dtype)
        self.moves, self.newest = Moves(chain, dtype), newest(next)
        self.absorption = chain.absorption
        self.lazy = self.dtype.type(0.5 if chain.period > 1 else 1.0)
        self.cost = cost.astype(dtype, copy=False).swapaxes(-1, -2)  # B x Y x Z

    def start(self, r: Array) -> Tables:
        law = self.problem.chain.stationary / len(self.next)
        mu = np.tile(law.astype(self.dtype), (len(r), len(self.next), 1))
        return Tables(r.astype(self.dtype, copy=False), np.zeros_like(mu), mu)

    def seen(self, mu: Array) -> Array:
        return np.asarray(mu.sum(-1, keepdims=True))

    def total(self, x: Array) -> Array:
        return np.asarray(x.sum(-1, keepdims=True))

    def kernel(self, t: Tables, index: Index, stretch: Array | float = 1.0) -> tuple[Array, Array]:
        """B as runs x S x Z, scaled to a largest entry of 1 for each z, and that scale in bits."""
        stretch = np.reshape(stretch, (-1, 1, 1)).astype(self.dtype)
        follow = (self.cost[index] * stretch)[:, self.newest] + self.moves.ahead(t.alpha)
        low = follow.min(1, keepdims=True)
        return np.exp2(low - follow), low

    def __call__(
        self, t: Tables, index: Index, stretch: Array | float = 1.0, rounds: int = 0
    ) -> tuple[Tables, Array, Array]:
        """One sweep; as `sweep.Sweep.__call__`."""
        B, low = self.kernel(t, index, stretch)
        seen, led = self.seen(t.mu), np.broadcast_to(self.next, t.r.shape)

        def better(r: Array) -> tuple[Array, Array, Array]:
            N = spread(r, self.next) @ B
            to = np.take_along_axis((t.mu / N) @ B.swapaxes(1, 2), led, 2)
            c = np.divide(to, seen, out=np.ones_like(r), where=seen > UNSEEN)
            return floored(r * c, sums=False), (t.mu * np.log2(N)).sum(-1, keepdims=True), c

        r, c = fitted(better, t.r, self.total, rounds)
        slack = (seen[..., 0] * np.log2(np.maximum(c.max(-1), 1))).sum(1)
        R = spread(r, self.next)
        N = R @ B
        change = low - np.log2(N) - t.alpha
        mu = self.moves.step((R.swapaxes(1, 2) @ (t.mu / N)) * B)
        value = (t.mu * change).sum((1, 2), dtype=float)
        gain = gains(t.mu.sum(1), (t.mu * change).sum(1), self.absorption).astype(self.dtype)[:, None]
        alpha = t.alpha + self.lazy * (change - gain)
        mu = t.mu + self.lazy * (mu - t.mu)
        mu /= mu.sum((1, 2), keepdims=True)
        return Tables(r, alpha, mu), value, slack

    def settle(self, t: Tables, index: Index) -> None:
        pass

    def result(self, t: Tables, i: int) -> tuple[MemoryPolicy, Rates]:
        """The policy that run i has found, and its rates in the long run."""
        one, chain = t.take(np.array([i])), self.problem.chain
        B, mu = self.kernel(one, np.array([i]))[0][0], one.mu[0]
        policy = MemoryPolicy(one.r[0], B, self.next, first=int(mu.sum(1).argmax()))
        step = KernelStep(chain, policy.output_model, policy.kernel, self.next, policy.first)
        law = stationary_law(step, chain, mu.astype(float) / mu.sum())
        return policy, step.rates(law, self.problem.distortion)

    def finer(self, t: Tables, n_states: int) -> tuple[Index, Tables]:
        """A memory of up to n_states states, split where the only run forgets most, and the same tables on it."""
        B = self.kernel(t, np.array([0]))[0][0]
        a = t.r[0][..., None] * B[self.next]  # S x Y x Z
        m = a * (t.mu[0] / a.sum(1))[:, None]
        parent, to, weight = split(self.problem.chain.transition, self.next, m.astype(float), n_states)
        share = weight / np.maximum(np.bincount(parent, weight)[parent], 1e-300)
        mu = t.mu[:, parent] * share.astype(self.dtype)[:, None]
        return to, Tables(t.r[:, parent], t.alpha[:, parent], mu / mu.sum((1, 2), keepdims=True))
