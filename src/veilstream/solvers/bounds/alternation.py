"""Good reverse channels for a given memory by alternation: simple, and possible at any size.

For a memory s' = next(s,y) the largest bound of `witness` is the minimum over mechanisms a_s(y|z) of
E C + H(Z'|S,Y) - H(Z|S,Y), convex in the occupancies m(s,y,z) = mu(s,z) a_s(y|z). Mirror descent with step 1, in the
manner of Blahut and Arimoto, with one step of the potential and one of the law mu for each of the mechanism:

    a_s(y|z)    <-  2^( -C(z,y) + sum_z' P(z,z') [ log2 (m_sy P)(z') - alpha_next(s,y)(z') ] ) / normaliser
    alpha_s(z)  <-  log2 mu(s,z) - log2 normaliser,    mu(s',z') <- sum over next(s,y) = s' of (m_sy P)(z'),    w = m

Without memory (a single s) mu is the stationary law pi, alpha drops out of a, and the bound reads

    g = sum_z pi(z) min_y [ C(z,y) + log2 w_y(z) - sum_z' P(z,z') log2 (w_y P)(z') ]

That converges in a moment on every chain tried. With memory it does on chains that mix, and may circle on sticky ones.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from veilstream.model.information import Array
from veilstream.solvers.bounds.witness import Witness, improve, reverse_cost, weights_of

SMALLEST_LAW = 1e-250


def alternate(P: Array, cost: Array, next: NDArray[np.int64], pi: Array) -> Iterator[tuple[Array, Array]]:
    """log m (S x Y x Z) and alpha (S x Z) after every sweep. cost: Y x Z, nats."""
    S, allowed = len(next), np.isfinite(cost)
    mu = np.tile(pi / S, (S, 1))
    alpha = np.log(mu)
    log_a = np.broadcast_to(-cost - np.log(np.exp(-cost).sum(0)), (S, *cost.shape))
    while True:
        log_m = np.log(np.maximum(mu, SMALLEST_LAW))[:, None] + log_a
        rho = reverse_cost(P, cost, weights_of(log_m, allowed))
        x = log_a - np.where(allowed, rho + (alpha @ P.T)[next], 0)
        top = x.max(1, keepdims=True)
        normaliser = top + np.log(np.exp(x - top).sum(1, keepdims=True))
        log_a = x - normaliser
        alpha = -normaliser[:, 0]
        alpha -= alpha.mean()
        flow = (mu[:, None] * np.exp(log_a)) @ P
        yield np.log(np.maximum(mu, SMALLEST_LAW))[:, None] + log_a, alpha
        mu = np.zeros_like(mu)
        np.add.at(mu, next, flow)


def witness(
    P: Array, cost: Array, next: NDArray[np.int64], pi: Array, log_m: Array, alpha: Array
) -> tuple[Witness, float]:
    """The witness that an iterate gives, and the most its memory can prove, by m, in nats."""
    w = weights_of(log_m, np.isfinite(cost))
    rho = reverse_cost(P, cost, w)
    if len(next) == 1:  # the potential that makes the minimum over y equal for all z
        best = rho[0].min(0)
        alpha = np.linalg.solve(np.eye(len(P)) - np.asarray(P) + pi, best - pi @ best)[None]
    m = np.exp(log_m)
    value = float((m * np.where(m > 0, rho, 0)).sum() / m.sum())
    alpha = improve(P, next, rho, alpha - alpha.mean(), 2 if len(next) == 1 else 30)
    return Witness(next, w[None], alpha[None]), value
