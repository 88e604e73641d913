"""Good reverse channels for a given memory by alternation: simple, and possible at any size.

For a memory s' = next(s,y) the largest bound of `witness` is the minimum over mechanisms a_s(y|z) of
E C + H(Z'|S,Y) - H(Z|S,Y), convex in the occupancies m(s,y,z) = mu(s,z) a_s(y|z). Mirror descent with step 1, in the
manner of Blahut and Arimoto, once around the public clock at every sweep: alpha backward around the round, the law mu
forward. l is the place in a round of L steps; without a clock L = 1.

    a_l,s(y|z)  <-  2^( -C(z,y) + sum_z' P_l(z,z') [ log2 (m_l,sy P_l)(z') - alpha_l+1,next(s,y)(z') ] ) / normaliser
    alpha_l,s   <-  -log2 normaliser,    mu_l+1(s',z') <- sum over next(s,y) = s' of (m_l,sy P_l)(z'),    w = m

Without memory (a single s) mu is the law pi_l, alpha drops out of a, and without a clock the bound reads

    g = sum_z pi(z) min_y [ C(z,y) + log2 w_y(z) - sum_z' P(z,z') log2 (w_y P)(z') ]

That converges in a moment on every chain tried. With memory it does on chains that mix, and may circle on sticky ones.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from veilstream.control.automaton import window
from veilstream.control.controller import Controller
from veilstream.control.stationary import LongRun
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array
from veilstream.solvers.bounds.witness import Witness, improve, reverse_cost, weights_of
from veilstream.solvers.starts import newest

SMALLEST_LAW = 1e-250
LAPS, MORE_LAPS = 12, 3  # of value iteration, for the potential of a witness: from nothing, from that of an iterate
MIXED = 0.3  # of a start: what the policy may not show


def alternate(
    P: Sequence[Array], cost: Array, next: NDArray[np.int64], laws: Array, m: Array | None = None
) -> Iterator[tuple[Array, Array]]:
    """log m (L x S x Y x Z) and alpha (L x S x Z) after every sweep, from occupancies m, of which the first are then.

    cost: Y x Z, nats. laws: L x Z, of the state.
    """
    L, S, allowed = len(P), len(next), np.isfinite(cost)
    if m is None:
        log_a = np.broadcast_to(-cost - np.log(np.exp(-cost).sum(0)), (L, S, *cost.shape)).copy()
        mu = np.repeat(laws[:, None] / S, S, 1)
    else:
        mu = m.sum(2)
        with np.errstate(divide="ignore"):
            log_a = np.log(m / np.maximum(mu, SMALLEST_LAW)[:, :, None])
        log_a = np.where(allowed, np.maximum(log_a, np.log(SMALLEST_LAW)), -np.inf)
    around(P, next, log_a, mu)
    alpha = np.zeros(mu.shape)
    if S > 1:
        alpha = witness(P, cost, next, laws, occupied(mu, log_a), alpha, LAPS)[0].alpha
        yield occupied(mu, log_a), alpha
    while True:
        for at in range(L - 1, -1, -1):
            rho = reverse_cost(P[at], cost, weights_of(occupied(mu[at], log_a[at]), allowed))
            x = log_a[at] - np.where(allowed, rho + (alpha[(at + 1) % L] @ P[at].T)[next], 0)
            top = x.max(1, keepdims=True)
            normaliser = top + np.log(np.exp(x - top).sum(1, keepdims=True))
            log_a[at] = x - normaliser
            alpha[at] = -normaliser[:, 0]
            alpha[at] -= alpha[at].mean()
        around(P, next, log_a, mu)
        yield occupied(mu, log_a), alpha


def occupied(mu: Array, log_a: Array) -> Array:
    """log m"""
    return np.asarray(np.log(np.maximum(mu, SMALLEST_LAW))[..., None, :] + log_a)


def around(P: Sequence[Array], next: NDArray[np.int64], log_a: Array, mu: Array) -> None:
    """The laws of one round under a, from that at its start; `mu` changes in place."""
    law = mu[0]
    for at, P_l in enumerate(P):
        mu[at] = law
        flow = (law[:, None] * np.exp(log_a[at])) @ P_l
        law = np.zeros_like(law)
        np.add.at(law, next, flow)
        law /= law.sum()
    mu[0] = law


def witness(
    P: Sequence[Array],
    cost: Array,
    next: NDArray[np.int64],
    laws: Array,
    log_m: Array,
    alpha: Array,
    laps: int = MORE_LAPS,
) -> tuple[Witness, float]:
    """The witness that an iterate gives, and the most its memory can prove, by m, in nats."""
    w = weights_of(log_m, np.isfinite(cost))
    rho = np.stack([reverse_cost(P_l, cost, w_l) for P_l, w_l in zip(P, w, strict=True)])
    if len(P) == len(next) == 1:  # the potential that makes the minimum over y equal for all z
        pi, best = laws[0], rho[0, 0].min(0)
        alpha = np.linalg.solve(np.eye(len(pi)) - np.eye(len(pi)) @ P[0] + pi, best - pi @ best)[None, None]
    m = np.exp(log_m)
    value = float((m * np.where(m > 0, rho, 0)).sum() / m.sum())
    return Witness(next, w, improve(P, next, rho, alpha, laps)), value


def occupancies(chain: MarkovChain, policy: Controller, w: int) -> Array | None:
    """m_l(s,y,z) of a policy at each step of a round, on the memory of the last w releases; None where it has more."""
    Y = policy.n_outputs
    held = [v for v in range(w + 1) if np.array_equal(policy.automaton.table, window(Y, v).table)]
    if not held or policy.phases != chain.phases or policy.turn is not None:
        return None
    if held[0] < w:
        states = newest(Y, w) if held[0] else np.zeros(Y**w, np.int64)
        policy = policy.on(window(Y, w), states, 0)
    found = LongRun(chain, policy)
    pairs = zip(found.steps, found.laws, strict=True)
    return np.stack([mu[:, None] * step.table().swapaxes(1, 2) for step, mu in pairs])


def mixed(m: Array, log_plain: Array, cost: Array) -> Array:
    """Occupancies m with some of all that may be shown, as without memory and as 2^-C.

    What a policy never shows grows from nothing by a factor a sweep only, and it is there that a bound fails.
    """
    free, plain = np.exp(-cost), np.exp(log_plain)
    free, plain = free / free.sum(0), plain / plain.sum(2, keepdims=True)
    return np.asarray((1 - MIXED) * m + MIXED * m.sum(2, keepdims=True) * (free + plain) / 2)
