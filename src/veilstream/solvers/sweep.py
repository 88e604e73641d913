"""One sweep of causal Blahut-Arimoto, as an array program over a batch of weights and starts.

A memory s holds the last w released symbols, s = (o, s') with o the oldest; after y it is (s', y). With cost C in bits:

    K(s',z,y)  = 2^-( C(z,y) + sum_z' P(z,z') alpha_(s',y)(z') )        backward: value of what follows
    N(s,z)     = sum_y r(y|s) K(s',z,y),   a_s(y|z) = r(y|s) K(s',z,y) / N(s,z)
    alpha_s(z) <- -log2 N(s,z) - g                                      g: the gain, so that alpha stays bounded
    mu(s,z)    <- law of the next (s,z) under a                         forward
    r(y|s)     <- sum_z mu(s,z) a_s(y|z) / mu(s)                        output model

K does not depend on o, so every line is a product of matrices and no |Y|^w x |Z| x |Y| array is ever made.
Shapes: B batch, O = |Y| oldest symbols, S' = |Y|^(w-1) the others, S = O S', Y outputs, Z states.
"""

from dataclasses import dataclass

import numpy as np

from veilstream.information import Array, Index
from veilstream.problem import Problem

FLOOR = 1e-9  # least output probability r(y|s): a deployed policy never makes a release impossible


@dataclass
class Tables:
    """What a sweep improves, all laid out B x S' x O x (Y or Z)."""

    r: Array
    alpha: Array
    mu: Array

    def __len__(self) -> int:
        return len(self.r)

    def take(self, index: Index) -> "Tables":
        return Tables(self.r[index], self.alpha[index], self.mu[index])

    def put(self, index: Index, part: "Tables") -> None:
        self.r[index], self.alpha[index], self.mu[index] = part.r, part.alpha, part.mu


class Sweep:
    """The recursion for one chain, one window and a batch of costs (B x Z x Y).

    `look_ahead=False` keeps alpha at zero: the myopic policy, Blahut-Arimoto at every window and nothing beyond.
    """

    def __init__(self, problem: Problem, cost: Array, window: int, look_ahead: bool = True) -> None:
        chain = problem.chain
        self.P = chain.transition
        self.law = chain.stationary
        self.absorption = chain.absorption
        self.lazy = 0.5 if chain.period > 1 else 1.0  # half steps: a periodic law would never settle
        self.cost = cost.swapaxes(-1, -2)[:, None]  # B x 1 x Y x Z
        self.window, self.look_ahead = window, look_ahead
        self.Y = problem.n_outputs
        self.O = self.Y if window else 1
        self.Sp = self.Y ** max(window - 1, 0)

    def start(self, r: Array) -> Tables:
        """From output models r, B x S x Y; no value yet, every window equally likely."""
        B, S, _ = r.shape
        mu = np.tile(self.law / S, (B, self.Sp, self.O, 1))
        return Tables(self.by_oldest(r), np.zeros(mu.shape), mu)

    def by_oldest(self, x: Array) -> Array:
        """B x S x . -> B x S' x O x . (the oldest symbol is the most significant digit of s)."""
        return x.reshape(len(x), self.O, self.Sp, x.shape[-1]).swapaxes(1, 2)

    def by_window(self, x: Array) -> Array:
        """B x S' x O x . -> B x S x ."""
        return x.swapaxes(1, 2).reshape(len(x), self.O * self.Sp, x.shape[-1])

    def kernel(self, t: Tables, index: Index, stretch: Array | float = 1.0) -> tuple[Array, Array]:
        """K as B x S' x Y x Z, scaled to a largest entry of 1 for each (s', z), and that scale in bits."""
        if self.window:
            after = self.by_window(t.alpha).reshape(len(t), self.Sp, self.Y, -1)
        else:
            after = np.broadcast_to(t.alpha, (len(t), 1, self.Y, t.alpha.shape[-1]))
        follow = self.cost[index] * stretch + after @ self.P.T
        low = follow.min(2, keepdims=True)
        return np.exp2(low - follow), low

    def __call__(self, t: Tables, index: Index, stretch: Array | float = 1.0) -> tuple[Tables, Array, Array]:
        """One sweep of the batch entries `index`, costs stretched (annealing).

        Returns the new tables, the value per step, and how far r is from the best for this mu and alpha: Blahut's
        bound sum_s mu(s) max_y log2 c_s(y), both in bits, per batch entry.
        """
        # backward
        K, low = self.kernel(t, index, stretch)
        N = t.r @ K
        change = low - np.log2(N) - t.alpha  # T alpha - alpha
        # forward
        share = t.mu / N
        arrived = ((t.r.swapaxes(2, 3) @ share) * K) @ self.P
        if self.window:
            mu = self.by_oldest(arrived.reshape(len(t), self.O * self.Sp, -1))
        else:
            mu = arrived.sum(2, keepdims=True)
        # output model
        seen = t.mu.sum(-1, keepdims=True)
        c = np.divide(share @ K.swapaxes(2, 3), seen, out=np.ones_like(t.r), where=seen > 1e-250)
        r = np.maximum(t.r * c, FLOOR)
        slack = (seen[..., 0] * np.log2(np.maximum(c.max(-1), 1))).sum((1, 2))
        value = (t.mu * change).sum((1, 2, 3))
        alpha = t.alpha + self.lazy * (change - self._gain(t.mu, change)) if self.look_ahead else t.alpha
        mu = t.mu + self.lazy * (mu - t.mu)
        mu /= mu.sum((1, 2, 3), keepdims=True)
        return Tables(r / r.sum(-1, keepdims=True), alpha, mu), value, slack

    def _gain(self, mu: Array, change: Array) -> Array:
        """The value per step in each closed class of the chain, spread over the states that lead there."""
        in_class = mu.sum((1, 2)) @ self.absorption
        gain = ((mu * change).sum((1, 2)) @ self.absorption) / np.maximum(in_class, 1e-300)
        return (gain @ self.absorption.T)[:, None, None]


def extrapolate(first: Tables, second: Tables, third: Tables, cap: Array) -> Tables:
    """`third` with its output model thrown ahead along the last two moves of log r (SQUAREM, Varadhan & Roland 2008).

        l0, l1, l2 = log r,   u = l1 - l0,   v = (l2 - l1) - u,   step = |u| / |v| in [1, cap]
        l = l0 + 2 step u + step^2 v                               step = 1 gives l2 back

    Norms weigh (s,y) by its probability. Without this the last per mille takes thousands of sweeps.
    """
    l0, l1, l2 = np.log(first.r), np.log(second.r), np.log(third.r)
    u = l1 - l0
    v = l2 - l1 - u
    weight = first.mu.sum(-1, keepdims=True) * first.r
    ratio = (weight * u**2).sum((1, 2, 3)) / np.maximum((weight * v**2).sum((1, 2, 3)), 1e-300)
    step = np.clip(np.sqrt(ratio), 1, cap)[:, None, None, None]
    log_r = np.clip(l0 + 2 * step * u + step**2 * v, l2 - 20, l2 + 20)
    r = np.exp(log_r - log_r.max(-1, keepdims=True))
    r = np.maximum(r / r.sum(-1, keepdims=True), FLOOR)
    return Tables(r / r.sum(-1, keepdims=True), third.alpha, third.mu)
