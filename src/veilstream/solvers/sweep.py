"""One sweep of causal Blahut-Arimoto, as an array program over a batch of weights and starts.

A memory s holds the last w released symbols, s = (o, s') with o the oldest; after y it is (s', y). With cost C in bits:

    K(s',z,y)  = 2^-( C(z,y) + sum_z' P(z,z') alpha_(s',y)(z') )        value of what follows
    N(s,z)     = sum_y r(y|s) K(s',z,y),   a_s(y|z) = r(y|s) K(s',z,y) / N(s,z)
    r(y|s)     <- sum_z mu(s,z) a_s(y|z) / mu(s)                        output model: one step, or several (`fitted`)
    alpha_s(z) <- -log2 N(s,z) - g                                      backward; g: the gain, which keeps alpha bounded
    mu(s,z)    <- law of the next (s,z) under a                         forward

K does not depend on o, so every line is a product of matrices and no |Y|^w x |Z| x |Y| array is ever made.
Shapes: B batch, O = |Y| oldest symbols, S' = |Y|^(w-1) the others, S = O S', Y outputs, Z states.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from veilstream.core.information import Array, Index, normalised
from veilstream.core.local.policy import FLOOR
from veilstream.core.policy import Policy
from veilstream.core.problem import Problem
from veilstream.core.steady import DENSE_LIMIT, Moves, Rates, WindowStep, stationary_law
from veilstream.core.window import WindowPolicy

FARTHEST, LEAP = 30.0, 10.0  # of a step thrown ahead: its length in steps, and its size in log r
UNSEEN = 1e-250  # the law of a window below which its output model is left alone


@dataclass
class Tables:
    """What a sweep improves, laid out B x S' x O x (Y or Z); B x non-zeros in `sparse_sweep`."""

    r: Array
    alpha: Array
    mu: Array

    def __len__(self) -> int:
        return len(self.r)

    def take(self, index: Index) -> "Tables":
        return Tables(self.r[index], self.alpha[index], self.mu[index])

    def put(self, index: Index, part: "Tables") -> None:
        self.r[index], self.alpha[index], self.mu[index] = part.r, part.alpha, part.mu


class Sweeping(Protocol):
    """What the driver in `causal_ba` needs of a sweep, dense or sparse."""

    settle_every: int | None  # sweeps; None: ever more rarely

    @property
    def window(self) -> int | None:
        """None: a memory made to measure."""
        ...

    def start(self, r: Array) -> Tables: ...
    def __call__(
        self, t: Tables, index: Index, stretch: Array | float = 1.0, rounds: int = 0
    ) -> tuple[Tables, Array, Array]: ...
    def seen(self, mu: Array) -> Array:
        """The law of the window of every r(y|s), in a shape that fits r."""
        ...

    def total(self, x: Array) -> Array:
        """sum over y of x(s,y), in a shape that fits r."""
        ...

    def settle(self, t: Tables, index: Index) -> None: ...
    def result(self, t: Tables, i: int) -> tuple[Policy, Rates]: ...


class Sweep:
    """The recursion for one chain, one window and a batch of costs (B x Z x Y).

    `look_ahead=False` keeps alpha at zero: the myopic policy, Blahut-Arimoto at every window and nothing beyond.
    """

    settle_every: int | None = None

    def __init__(
        self, problem: Problem, cost: Array, window: int, look_ahead: bool = True, dtype: Any = np.float64
    ) -> None:
        chain = problem.chain
        self.problem = problem
        self.moves = Moves(chain, dtype)
        self.dtype = np.dtype(dtype)
        self.law = chain.stationary
        self.absorption = chain.absorption
        self.lazy = self.dtype.type(0.5 if chain.period > 1 else 1.0)  # half steps: a periodic law would never settle
        self.cost = cost.astype(dtype, copy=False).swapaxes(-1, -2)[:, None]  # B x 1 x Y x Z
        self.window, self.look_ahead = window, look_ahead
        self.Y = problem.n_outputs
        self.O = self.Y if window else 1
        self.Sp = self.Y ** max(window - 1, 0)

    def start(self, r: Array) -> Tables:
        """From output models r, B x S x Y; no value yet, every window equally likely."""
        B, S, _ = r.shape
        mu = np.tile((self.law / S).astype(self.dtype), (B, self.Sp, self.O, 1))
        return Tables(self.by_oldest(r.astype(self.dtype, copy=False)), np.zeros_like(mu), mu)

    def by_oldest(self, x: Array) -> Array:
        """B x S x . -> B x S' x O x . (the oldest symbol is the most significant digit of s)."""
        return x.reshape(len(x), self.O, self.Sp, x.shape[-1]).swapaxes(1, 2)

    def by_window(self, x: Array) -> Array:
        """B x S' x O x . -> B x S x ."""
        return x.swapaxes(1, 2).reshape(len(x), self.O * self.Sp, x.shape[-1])

    def seen(self, mu: Array) -> Array:
        return np.asarray(mu.sum(-1, keepdims=True))

    def total(self, x: Array) -> Array:
        return np.asarray(x.sum(-1, keepdims=True))

    def kernel(self, t: Tables, index: Index, stretch: Array | float = 1.0) -> tuple[Array, Array]:
        """K as B x S' x Y x Z, scaled to a largest entry of 1 for each (s', z), and that scale in bits."""
        if self.window:
            after = self.by_window(t.alpha).reshape(len(t), self.Sp, self.Y, -1)
        else:
            after = np.broadcast_to(t.alpha, (len(t), 1, self.Y, t.alpha.shape[-1]))
        stretch = np.reshape(stretch, (-1, 1, 1, 1)).astype(self.dtype)
        follow = self.cost[index] * stretch + self.moves.ahead(after)
        low = follow.min(2, keepdims=True)
        return np.exp2(low - follow), low

    def __call__(
        self, t: Tables, index: Index, stretch: Array | float = 1.0, rounds: int = 0
    ) -> tuple[Tables, Array, Array]:
        """One sweep of the batch entries `index`, costs stretched (annealing), r fitted in so many rounds (`fitted`).

        Returns the new tables, the value per step, and how far r was from the best for this mu and alpha: Blahut's
        bound sum_s mu(s) max_y log2 c_s(y), both in bits, per batch entry.
        """
        K, low = self.kernel(t, index, stretch)
        r, slack = self.fit(t, K, rounds)
        # backward
        N = r @ K
        change = low - np.log2(N) - t.alpha  # T alpha - alpha
        # forward
        arrived = self.moves.step((r.swapaxes(2, 3) @ (t.mu / N)) * K)
        if self.window:
            mu = self.by_oldest(arrived.reshape(len(t), self.O * self.Sp, -1))
        else:
            mu = arrived.sum(2, keepdims=True)
        value = (t.mu * change).sum((1, 2, 3), dtype=float)
        gain = gains(t.mu.sum((1, 2)), (t.mu * change).sum((1, 2)), self.absorption)
        gain = gain.astype(self.dtype)[:, None, None]
        alpha = t.alpha + self.lazy * (change - gain) if self.look_ahead else t.alpha
        mu = t.mu + self.lazy * (mu - t.mu)
        mu /= mu.sum((1, 2, 3), keepdims=True)
        return Tables(r, alpha, mu), value, slack

    def fit(self, t: Tables, K: Array, rounds: int) -> tuple[Array, Array]:
        """A better output model for this law and kernel, and how far the old one was from the best, in bits."""
        seen = self.seen(t.mu)

        def better(r: Array) -> tuple[Array, Array, Array]:
            N = r @ K
            c = np.divide((t.mu / N) @ K.swapaxes(2, 3), seen, out=np.ones_like(r), where=seen > UNSEEN)
            return floored(r * c, sums=False), (t.mu * np.log2(N)).sum(-1, keepdims=True), c

        r, c = fitted(better, t.r, self.total, rounds)
        return r, (seen[..., 0] * np.log2(np.maximum(c.max(-1), 1))).sum((1, 2))

    def settle(self, t: Tables, index: Index) -> None:
        """Newton's step, where the tables are small: mu and alpha of the present policy, solved for and not iterated.

            mu T = mu,    (I - T) alpha = T* alpha - T alpha - g        T: transitions under a, T*: the soft minimum

        Chains that mix slowly would otherwise need thousands of sweeps. `t` changes in place.
        """
        chain = self.problem.chain
        S, Z = self.O * self.Sp, len(chain)
        if S * Z > DENSE_LIMIT or len(chain.closed_classes) > 1:
            return
        K, low = self.kernel(t, index)
        N = t.r @ K
        improved = self.by_window(low - np.log2(N)).reshape(len(t), -1)
        old = self.by_window(t.alpha).reshape(len(t), -1)
        r = self.by_window(t.r)
        mu, alpha = np.empty((2, len(t), S, Z))
        for i in range(len(t)):
            step = WindowStep(chain, r[i], K[i].swapaxes(1, 2), self.window)
            T = step.transition()
            mu[i] = stationary_law(step, chain)
            one_step = improved[i] - T @ old[i]
            gain = mu[i].ravel() @ one_step
            alpha[i] = np.linalg.solve(np.eye(S * Z) - T + mu[i].ravel(), one_step - gain).reshape(S, Z)
        t.mu = self.by_oldest(mu)
        if self.look_ahead:
            t.alpha = self.by_oldest(alpha)

    def result(self, t: Tables, i: int) -> tuple[WindowPolicy, Rates]:
        """The policy that run i has found, and its rates in the long run."""
        one, chain = t.take(np.array([i])), self.problem.chain
        K = self.kernel(one, np.array([i]))[0][0].swapaxes(1, 2)
        mu = self.by_window(one.mu)[0]
        policy = WindowPolicy(self.by_window(one.r)[0], K, self.window, first=int(mu.sum(1).argmax()))
        [step] = policy.law_steps(chain)
        law = stationary_law(step, chain, mu.astype(float) / mu.sum())
        return policy, step.rates(law, self.problem.distortion)


def floored(r: Array, sums: bool = True) -> Array:
    """r with no entry below FLOOR, normalised; sums: whether it still has to be."""
    return normalised(np.maximum(normalised(r) if sums else r, FLOOR))


def gains(mu: Array, change: Array, absorption: Array) -> Array:
    """The value per step in each closed class of the chain, spread over the states that lead there; all B x Z."""
    in_class = mu @ absorption
    return ((change @ absorption) / np.maximum(in_class, 1e-300)) @ absorption.T


def fitted(
    better: Callable[[Array], tuple[Array, Array, Array]], r: Array, total: Callable[[Array], Array], rounds: int
) -> tuple[Array, Array]:
    """The output model, nearer to the best for this law and kernel; and the first c.

    better: one step of Blahut and Arimoto's, r c, with the likelihood of each row before it and c. A convex problem for
    each row, on which these steps are slow: so in every round log r is thrown ahead along its last two moves (SQUAREM,
    Varadhan & Roland 2008), row by row, and where a row is worse for it that is taken back.

        l0, l1, l2 = log r,   u = l1 - l0,   v = (l2 - l1) - u,   step = |u| / |v| in [1, FARTHEST]
        l = l0 + 2 step u + step^2 v                               step = 1 gives l2 back
    """
    r1, _, first = better(r)
    for _ in range(rounds):
        r2, before, _ = better(r1)
        l0, l1, l2 = np.log(r), np.log(r1), np.log(r2)
        u = l1 - l0
        v = l2 - l1 - u
        step = np.sqrt(total(r * u * u) / np.maximum(total(r * v * v), 1e-30))
        step = np.clip(step, 1, FARTHEST).astype(r.dtype, copy=False)
        ahead = np.exp(np.clip(l0 + step * (2 * u + step * v), l2 - LEAP, l2 + LEAP))
        ahead /= total(ahead)
        r3, after, _ = better(ahead)
        worse = after < before
        r, r1 = np.where(worse, r1, ahead), np.where(worse, r2, r3)
    return r1, first
