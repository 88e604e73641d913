"""The lower bound, and why it is one.

Choose a memory of past releases, s' = next(s, y); for every s and y, positive weights w_sy(z) on the states that
may show y; and a potential alpha_s(z). With transition matrix P and cost C(z,y) in bits (infinite where
forbidden), let

    rho_s(z,y) = C(z,y) + log2 w_sy(z) - sum_z' P(z,z') log2 (w_sy P)(z')
    g          = min over s, z and allowed y of   rho_s(z,y) + (P alpha_next(s,y))(z) - alpha_s(z)

**No causal release mechanism, whatever it remembers, has leakage + E C below g bits per step.**

Proof. B_sy(z|z') = w_sy(z) P(z,z') / (w_sy P)(z') is a law of z for every z': a guess, made backwards in time, of
where the user was when y was shown. So Q(z^n | z_n+1, y^n) = prod_t B_{s_t y_t}(z_t | z_t+1) is a law of z^n, and
for any mechanism (the true posterior is the best guess: Gibbs' inequality)

    I(Z^n; Y^n) >= I(Z^n; Y^n | Z_n+1)  >=  E log2 [ Q(z^n | z_n+1, y^n) / P(z^n | z_n+1) ]
                 = sum_t E [ log2 w_{s_t y_t}(z_t) - log2 (w_{s_t y_t} P)(z_t+1) ] + H(Z_1) - H(Z_n+1)

The first step holds because under a causal mechanism Y^n depends on Z_n+1 through Z^n only. For the same reason
z_t+1 is drawn from P(z_t, .) whatever s_t and y_t are, so the expected bracket plus C(z_t,y_t) is the expected rho.
Add and subtract alpha: the sum is at least n g - span(alpha). Hence, for every n,

    I(Z^n;Y^n) + sum_t E C(Z_t,Y_t)  >=  n g - span(alpha) - log2 |Z|.                                       QED

Nothing here has to be optimal or converged: bad weights or potentials only give a smaller g. And how good can g
be? For a given memory the largest g is, by convex duality, the least value over mechanisms of
E C + H(Z'|S,Y) - H(Z|S,Y). That falls short of the mechanism's own leakage + E C by I(Z'; S,Y | S'): by exactly
what the memory forgets in a step, on average and not in the worst case.

With a public clock the transition at step t is P_l, l = t mod L the place in a round of L steps; let w and alpha have
that index too, and

    g_l = min over s, z and allowed y of   rho_l,s(z,y) + (P_l alpha_l+1,next(s,y))(z) - alpha_l,s(z)

Nothing in the proof asks that the brackets of different steps be alike: B is made with P_l and w_l at the steps it is
about, z_t+1 is drawn from P_l(z_t, .) whatever was released, and adding and subtracting alpha_l telescopes from step
to step. So I + sum E C >= sum_t g_(t mod L) - span(alpha) - log2 |Z|: **the mean of the g_l is a bound**. A constant
added to all of alpha_l moves bits from one g_l to its neighbour and leaves the mean as it is. The phase is public, so a
mechanism that looks at it is one of those bounded. (The clock goes around without jumps.)

Rounding. g is computed in double precision. Each of its terms is a sum of at most |Z| products of numbers not above
M = 1 + the largest |C|, |log w|, |log w P|, |alpha|, so its error is below 4 (|Z| + 8) M 2^-53 nats, including that
the rows of P sum to 1 only up to rounding. Twice that is subtracted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilstream.model.information import Array

NATS = np.log(2)  # nats in a bit; everything inside this package is in nats
SMALLEST = 1e-250  # weights below this, relative to the largest of their s, y, are raised to it


@dataclass(frozen=True, eq=False)
class Witness:
    """What proves a bound: anyone can check it with `bound`, without knowing how it was found.

    Weights and potential at each step of a round of the public clock; without a clock a round has one step.
    """

    next: NDArray[np.int64]  # S x Y, the memory
    weights: Array  # L x S x Y x Z, zero exactly where y is forbidden
    alpha: Array  # L x S x Z, nats

    def bound(self, P: Sequence[Array] | Array, C: Array) -> float:
        """The mean of the g_l in bits, rounding errors subtracted. P: L x Z x Z, C: Z x Y, in bits."""
        cost = C.T * NATS
        total, largest = 0.0, 0.0
        for at, P_l in enumerate(P):
            log_w, log_wP = logs(P_l, self.weights[at])
            ahead = (self.alpha[(at + 1) % len(P)] @ P_l.T)[self.next] - self.alpha[at][:, None]
            total += np.where(np.isfinite(cost), cost + log_w - log_wP @ P_l.T + ahead, np.inf).min()
            sizes = [np.abs(x).max() for x in (cost[np.isfinite(cost)], log_w, log_wP)]
            largest = max(largest, 1 + sum(sizes) + 2 * np.abs(self.alpha).max())
        return float((total / len(P) - 8 * (C.shape[0] + len(P) + 8) * largest * 2.0**-53) / NATS)


def logs(P: Array, w: Array) -> tuple[Array, Array]:
    """log w(z) and log (w P)(z'), 0 where the argument is 0 (those never meet a positive probability)."""
    wP = w @ P
    return np.log(np.where(w > 0, w, 1)), np.log(np.where(wP > 0, wP, 1))


def weights_of(theta: Array, allowed: NDArray[np.bool_]) -> Array:
    """w = exp(theta), scaled so that the largest of every s, y is 1."""
    theta = np.where(allowed, theta, -np.inf)
    return np.where(allowed, np.maximum(np.exp(theta - theta.max(-1, keepdims=True)), SMALLEST), 0)


def reverse_cost(P: Array, cost: Array, w: Array) -> Array:
    """rho_s(z,y) as S x Y x Z, in nats; infinite where forbidden. cost: Y x Z."""
    log_w, log_wP = logs(P, w)
    return cost + log_w - log_wP @ P.T


def improve(P: Sequence[Array], next: NDArray[np.int64], rho: Array, alpha: Array, laps: int) -> Array:
    """A better potential by value iteration, alpha_l <- min_y rho_l + P_l alpha_l+1,next, so many rounds backward.

    rho: L x S x Y x Z, alpha: L x S x Z.
    """
    alpha = alpha.copy()
    for _ in range(laps):
        for at in range(len(P) - 1, -1, -1):
            alpha[at] = (rho[at] + (alpha[(at + 1) % len(P)] @ P[at].T)[next]).min(1)
            alpha[at] -= alpha[at].mean()
    return alpha
