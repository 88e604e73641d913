"""Certificates for chains with a public clock: the alternation of `alternation`, once around at every sweep.

    a_l,s(y|z)  <-  2^( -C(z,y) + sum_z' P_l(z,z') [ log2 (m_l,sy P_l)(z') - alpha_l+1,next(s,y)(z') ] ) / normaliser

with l the place in a round of L steps: alpha backward around the round, the law mu forward. Without memory first, then
with the last release or two, from the policy that is to be certified: its own occupancies are nearly the best. What it
never shows grows from nothing by a factor a sweep only, and it is there that a bound fails; so the start is mixed with
the best without memory and with 2^-C.
"""

from collections.abc import Iterator
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from veilstream.control.automaton import window
from veilstream.control.controller import Controller
from veilstream.control.policy import Policy
from veilstream.control.stationary import LongRun
from veilstream.model.information import Array
from veilstream.model.problem import Problem
from veilstream.solvers.bounds.alternation import SMALLEST_LAW
from veilstream.solvers.bounds.certify import LEAST_BITS, Certificate, Ending
from veilstream.solvers.bounds.witness import NATS, Witness, reverse_cost, weights_of
from veilstream.solvers.solution import Progress
from veilstream.solvers.starts import newest

LOOK_EVERY, WHILE, MOST_SWEEPS = 10, 50, 600
WINDOWS = 0, 1, 2  # releases remembered, one after the other
LAPS, MORE_LAPS = 12, 3  # of value iteration, for the potential of a witness: from nothing, from that of an iterate
MIXED = 0.3  # of a start: what the policy may not show
LARGEST = 8_000_000  # numbers in an array L x S x Y x Z
HELPED = 0.05  # of the gap: what the last look must have closed to go on with this memory


def certify_cycle(
    problem: Problem,
    weight: float,
    policy: Policy | None = None,
    *,
    upper: float = np.inf,
    seconds: float = 60.0,
    tolerance: float = 1e-3,
    progress: Progress | None = None,
) -> Certificate:
    """Bound leakage + weight * distortion from below, in bits per step, over all mechanisms that may see the clock."""
    search = CycleSearch(problem, weight, policy, upper, seconds, tolerance, progress)
    for w in WINDOWS:
        if search.tight or not search.fits(w) or not search.in_time(w):
            break
        if not search.climb(w):
            break
    return search.certificate()


class CycleSearch:
    """The best bound found so far; `climb` improves it with the memory of the last w releases."""

    def __init__(
        self,
        problem: Problem,
        weight: float,
        policy: Policy | None,
        upper: float,
        seconds: float,
        tolerance: float,
        progress: Progress | None,
    ) -> None:
        chain, C = problem.chain, problem.cost(weight)
        kept = np.isfinite(C).any(0)  # a release nobody may make is no release
        self.problem, self.policy, self.C = problem, policy if kept.all() else None, C[:, kept]
        self.P = np.stack([chain.at(phase).transition for phase in chain.around])
        cheapest = float(chain.stationary @ self.C.min(1))
        self.bound = cheapest * (1 - 1e-12)
        self.reachable = min(upper, float((chain.stationary @ self.C).min()), chain.entropy_rate + cheapest)
        self.tolerance, self.progress = tolerance, progress
        self.began, self.seconds = perf_counter(), seconds
        self.until = self.began + seconds
        self.best: Witness | None = None
        self.memory, self.steps, self.sweep_s = 1, 0, 0.0
        self.plain = np.zeros(0)  # what no memory has led to
        self.history: list[dict[str, float]] = []
        self.late = False

    @property
    def tight(self) -> bool:
        return self.bound >= min((1 - self.tolerance) * self.reachable, self.reachable - LEAST_BITS)

    def fits(self, w: int) -> bool:
        Z, Y = self.C.shape
        return bool(len(self.P) * Y ** (w + 1) * Z <= LARGEST)

    def in_time(self, w: int) -> bool:
        """Whether a first look at this memory is over before the time is up."""
        first_look = perf_counter() + self.sweep_s * (LAPS + 2) * self.C.shape[1] ** w
        self.late = self.best is not None and first_look > self.until
        return not self.late

    def climb(self, w: int) -> bool:
        """Sweeps on one memory, while they help; whether a longer one is worth a try."""
        table, cost = window(self.C.shape[1], w).table, self.C.T * NATS
        start = None if self.policy is None else occupancies(self.problem, self.policy, w)
        if start is not None and w:
            start = mixed(start, self.plain, cost)
        at_first, sweeps_from = self.bound, perf_counter()
        own = before = -np.inf  # the best of this memory, now and a while ago
        for k, (log_m, alpha) in enumerate(alternate(self.P, cost, table, start), 1):
            self.steps += 1
            if k > 1 and k % LOOK_EVERY and perf_counter() < self.until:
                continue
            own = max(own, self.offer(witness(self.P, cost, table, log_m, alpha)))
            stale = k % WHILE == 0 and own - before < HELPED * (self.reachable - own)
            before = own if k % WHILE == 0 else before
            if self.tight or stale or perf_counter() > self.until or k == MOST_SWEEPS:
                break
        self.plain = self.plain if w else log_m
        self.sweep_s = (perf_counter() - sweeps_from) / (2 * k * len(table))  # a state of it; half of it are looks
        return w == 0 or self.bound > at_first

    def offer(self, found: Witness) -> float:
        """Keep a witness if it proves more; what it proves."""
        value = found.bound(self.P, self.C)
        if value > self.bound:
            self.bound, self.best, self.memory = value, found, len(found.next)
            self.history.append({"seconds": perf_counter() - self.began, "bound": value, "memory": self.memory})
        if self.progress:
            share = min(1.0, (perf_counter() - self.began) / self.seconds) if self.seconds > 0 else 1.0
            self.progress(
                share, f"proved {self.bound:.4f} bits, memory {len(found.next)} at each of {len(self.P)} steps"
            )
        return value

    def certificate(self) -> Certificate:
        late = self.late or perf_counter() > self.until
        outcome = Ending.TIGHT if self.tight else Ending.TIME if late else Ending.SIZE
        spent = perf_counter() - self.began
        return Certificate(
            self.bound, self.reachable, self.memory, self.steps, outcome, spent, self.history, [self.best]
        )


def occupancies(problem: Problem, policy: Policy, w: int) -> Array | None:
    """m_l(s,y,z) of the policy at each step of a round, on the memory of the last w releases."""
    chain, Y = problem.chain, problem.n_outputs
    if not isinstance(policy, Controller) or policy.phases != chain.phases or policy.turn is not None:
        return None
    held = [v for v in range(w + 1) if np.array_equal(policy.automaton.table, window(Y, v).table)]
    if not held:
        return None
    if held[0] < w:
        states = newest(Y, w) if held[0] else np.zeros(Y**w, np.int64)
        policy = policy.on(window(Y, w), states, 0)
    found = LongRun(chain, policy)
    pairs = zip(found.steps, found.laws, strict=True)
    return np.stack([mu[:, None] * step.table().swapaxes(1, 2) for step, mu in pairs])


def mixed(m: Array, log_plain: Array, cost: Array) -> Array:
    """Occupancies m with some of all that may be shown: as without memory, and as 2^-C."""
    free, plain = np.exp(-cost), np.exp(log_plain)
    free, plain = free / free.sum(0), plain / plain.sum(2, keepdims=True)
    return np.asarray((1 - MIXED) * m + MIXED * m.sum(2, keepdims=True) * (free + plain) / 2)


def alternate(P: Array, cost: Array, next: NDArray[np.int64], m: Array | None) -> Iterator[tuple[Array, Array | None]]:
    """log m (L x S x Y x Z) and alpha after every sweep, from these occupancies. cost: Y x Z, nats."""
    L, S, allowed = len(P), len(next), np.isfinite(cost)
    if m is None:
        log_a = np.broadcast_to(-cost - np.log(np.exp(-cost).sum(0)), (L, S, *cost.shape)).copy()
        mu = np.full((L, S, P.shape[1]), 1 / (S * P.shape[1]))
    else:
        mu = m.sum(2)
        with np.errstate(divide="ignore"):
            log_a = np.log(m / np.maximum(mu, SMALLEST_LAW)[:, :, None])
        log_a = np.where(allowed, np.maximum(log_a, np.log(SMALLEST_LAW)), -np.inf)
    around(P, next, log_a, mu)
    alpha = None
    while True:
        log_m = np.log(np.maximum(mu, SMALLEST_LAW))[:, :, None] + log_a
        yield log_m, alpha
        if alpha is None:
            alpha = witness(P, cost, next, log_m).alpha
        for at in range(L - 1, -1, -1):
            rho = reverse_cost(P[at], cost, weights_of(log_m[at], allowed))
            x = log_a[at] - np.where(allowed, rho + (alpha[(at + 1) % L] @ P[at].T)[next], 0)
            top = x.max(1, keepdims=True)
            normaliser = top + np.log(np.exp(x - top).sum(1, keepdims=True))
            log_a[at] = x - normaliser
            alpha[at] = -normaliser[:, 0]
            alpha[at] -= alpha[at].mean()
        around(P, next, log_a, mu)


def around(P: Array, next: NDArray[np.int64], log_a: Array, mu: Array) -> None:
    """The laws of one round under a, from that at its start; `mu` changes in place."""
    law = mu[0]
    for at in range(len(P)):
        mu[at] = law
        flow = (law[:, None] * np.exp(log_a[at])) @ P[at]
        law = np.zeros_like(law)
        np.add.at(law, next, flow)
        law /= law.sum()
    mu[0] = law


def witness(P: Array, cost: Array, next: NDArray[np.int64], log_m: Array, start: Array | None = None) -> Witness:
    """What an iterate proves: the potential by value iteration, lap by lap, from the iterate's own where it has one."""
    allowed, L = np.isfinite(cost), len(P)
    w = np.stack([weights_of(part, allowed) for part in log_m])
    rho = np.stack([reverse_cost(P[at], cost, w[at]) for at in range(L)])
    alpha = np.zeros((L, len(next), P.shape[1])) if start is None else start.copy()
    for _ in range(LAPS if start is None else MORE_LAPS):
        for at in range(L - 1, -1, -1):
            alpha[at] = (rho[at] + (alpha[(at + 1) % L] @ P[at].T)[next]).min(1)
            alpha[at] -= alpha[at].mean()
    return Witness(next, w, alpha)
