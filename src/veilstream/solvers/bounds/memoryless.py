"""The bound without memory: one reverse channel for each release. Instant, at any size.

With a single memory state the potential drops out, and the bound of `witness` reads

    g = sum_z pi(z) min_y [ C(z,y) + log2 w_y(z) - sum_z' P(z,z') log2 (w_y P)(z') ]

Its maximum over w is the minimum over channels a(y|z) of E C + H(Z'|Y) - H(Z|Y), a convex problem. It is found by
an alternation of Blahut and Arimoto's kind (mirror descent with step 1):

    m(y,z) = pi(z) a(y|z),    a(y|z) <- 2^( -C(z,y) + sum_z' P(z,z') log2 (m_y P)(z') ) / normaliser,    w = m

The channel is also a good start for causal Blahut-Arimoto: it comes from a problem without local minima.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from veilstream.chain import stationary_law
from veilstream.information import Array
from veilstream.solvers.bounds.witness import NATS, Witness, improve, reverse_cost, weights_of


def alternate(P: Array, cost: Array, pi: Array) -> Iterator[Array]:
    """log m(y,z) after every sweep. cost: Y x Z in nats."""
    with np.errstate(divide="ignore"):
        log_m = np.log(pi) - cost
    while True:
        top = log_m.max(1, keepdims=True)
        mP = np.exp(log_m - top) @ P
        x = (np.log(np.where(mP > 0, mP, 1)) + top) @ P.T - cost
        best = x.max(0)
        log_m = x - best - np.log(np.exp(x - best).sum(0)) + np.log(pi)
        yield log_m


def witness(P: Array, cost: Array, pi: Array, log_m: Array) -> Witness:
    """The witness that log m gives, with the potential that makes the minimum over y equal for all z."""
    w = weights_of(log_m, np.isfinite(cost))[None]
    rho = reverse_cost(P, cost, w)
    best = rho[0].min(0)
    alpha = np.linalg.solve(np.eye(len(P)) - P + pi, best - pi @ best)[None]
    next = np.zeros(w.shape[:2], dtype=np.int64)
    return Witness(next, w, improve(P, next, rho, alpha - alpha.mean(), 2))


def memoryless_channel(P: Array, C: Array, sweeps: int = 500) -> Array:
    """a(y|z), Z x Y: the minimiser of E C + H(Z'|Y) - H(Z|Y), for an irreducible P and C (Z x Y) in bits."""
    pi = stationary_law(P)
    *_, log_m = islice(alternate(P, C.T * NATS, pi), sweeps)
    return np.exp(log_m - np.log(pi)).T
