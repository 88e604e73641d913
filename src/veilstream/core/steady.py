"""What a window policy does in the long run, computed without sampling.

mu(s,z) is the stationary law of (window, state). Since all releases say no less than the last w of them,

    leak_w = I(Z_t; Y_t | last w releases) = sum_s mu(s) L(mu(.|s), a_s)

is an upper bound on the leakage rate I(Z_t; Y_t | all releases), exact when the window holds all that matters.
With a = r K / N no |Y|^w x |Z| x |Y| array is needed:

    sum_zy mu a log2 a = sum_y P(s,y) log2 r + sum_zy mu a log2 K - sum_z mu log2 N        for each s
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from veilstream.core.chain import MarkovChain
from veilstream.core.information import Array, xlog2
from veilstream.core.local.policy import LocalPolicy
from veilstream.core.policy import Policy, Schedule, WindowPolicy
from veilstream.core.problem import Problem
from veilstream.errors import InputError

DENSE_LIMIT = 1100  # (window, state) pairs up to which the stationary law is solved for directly
SETTLED = 1e-11  # total variation left in a law that counts as stationary
POWER_STEPS = 300
VECTORS = 20  # kept by Arnoldi's method where powers do not settle
STARTUP_STEPS = 5000


@dataclass(frozen=True)
class Rates:
    """Per step, when (window, state) has law mu; `by_window` is what one release after s leaks, L(mu(.|s), a_s)."""

    leakage: float
    distortion: float
    by_window: Array  # S


class Moves:
    """Products with the transition matrix, over its non-zeros alone where it is large and sparse."""

    def __init__(self, chain: MarkovChain, dtype: Any = np.float64) -> None:
        P = chain.sparse if chain.is_sparse else chain.transition
        self.P = P.astype(dtype, copy=False)

    def step(self, x: Array) -> Array:
        """x P along the last axis: a law one step later."""
        return (x.reshape(-1, x.shape[-1]) @ self.P).reshape(x.shape)

    def ahead(self, x: Array) -> Array:
        """x P^T: what is expected one step later."""
        return (x.reshape(-1, x.shape[-1]) @ self.P.T).reshape(x.shape)


class Stepping(Protocol):
    """One step of the law of (window, state), in whatever layout, and what the release at it leaks."""

    def __call__(self, mu: Array) -> Array: ...
    def rates(self, mu: Array, d: Array) -> Rates: ...


class Step:
    """One step of the law of (window, state) under a window policy. Splits s = q n + k with n the kernel's length."""

    def __init__(self, chain: MarkovChain, policy: WindowPolicy) -> None:
        S, Y = policy.output_model.shape
        self.n_kept = max(S // Y, 1)  # S': windows without their oldest symbol
        kernel = np.tile(policy.kernel, (max(self.n_kept // len(policy.kernel), 1), 1, 1))
        self.moves = Moves(chain)
        self.window = policy.window
        self.K = kernel.swapaxes(1, 2)  # n x Y x Z
        self.r = self._split(policy.output_model)  # n x Q x Y
        self.N = self.r @ self.K  # n x Q x Z

    def _split(self, x: Array) -> Array:
        return x.reshape(-1, len(self.K), x.shape[-1]).swapaxes(0, 1)

    def __call__(self, mu: Array) -> Array:
        """The law one step later, S x Z."""
        p_kyz = (self.r.swapaxes(1, 2) @ (self._split(mu) / self.N)) * self.K
        if self.window == 0:
            return self.moves.step(p_kyz.sum((0, 1))[None])
        return self.moves.step(p_kyz.reshape(-1, self.n_kept, *p_kyz.shape[1:]).sum(0).reshape(mu.shape))

    def rates(self, mu: Array, d: Array) -> Rates:
        m = self._split(mu)
        share = m / self.N
        p_sy = self.r * (share @ self.K.swapaxes(1, 2))
        p_s = p_sy.sum(-1)
        log_a = xlog2(p_sy, self.r) + self.r * (share @ xlog2(self.K, self.K).swapaxes(1, 2))
        leak = log_a.sum(-1) - xlog2(m, self.N).sum(-1) - xlog2(p_sy, p_sy).sum(-1) + xlog2(p_s, p_s)
        leak = np.maximum(leak, 0)
        distortion = (self.r * (share @ (self.K * d.T).swapaxes(1, 2))).sum()
        by_window = np.divide(leak, p_s, out=np.zeros_like(leak), where=p_s > 0)
        return Rates(float(leak.sum()), float(distortion), by_window.swapaxes(0, 1).ravel())


def stationary_joint(chain: MarkovChain, policy: WindowPolicy, guess: Array | None = None) -> Array:
    """mu = mu T over (window, state), S x Z; a chain with several closed classes keeps its stationary weights."""
    step = Step(chain, policy)
    S, Z = len(policy.output_model), len(chain)
    mu, done = power(step, chain, np.tile(chain.stationary / S, (S, 1)) if guess is None else guess)
    if not done and S * Z <= DENSE_LIMIT:
        return _solve_densely(chain, policy)
    return mu if done else arnoldi(step, chain, mu)


def power(step: Callable[[Array], Array], chain: MarkovChain, mu: Array) -> tuple[Array, bool]:
    """The law after many steps, and whether it has settled."""
    lazy = 0.5 if chain.period > 1 else 1.0  # half steps have the same law and none of the periods
    for _ in range(POWER_STEPS):
        new = mu + lazy * (step(mu) - mu)
        change, mu = np.abs(new - mu).sum(), new
        if change < SETTLED:
            return mu, True
    return mu, False


def arnoldi(step: Callable[[Array], Array], chain: MarkovChain, mu: Array) -> Array:
    """The law that a step leaves alone, from one near it; `mu` itself where that law is not the only one."""
    if len(chain.closed_classes) > 1:
        return mu
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

    def half_step(v: Array) -> Array:
        return (v + step(v.reshape(mu.shape)).ravel()) / 2

    operator = LinearOperator((mu.size, mu.size), half_step)
    try:
        _, vector = eigs(operator, k=1, which="LM", v0=mu.ravel(), ncv=VECTORS, tol=SETTLED, maxiter=200)
    except ArpackNoConvergence:
        return mu
    law = np.abs(vector[:, 0].real).reshape(mu.shape)
    return law / law.sum()


def dense_transition(a: Array, P: Array) -> Array:
    """T((s,z), (s',z')) = sum over y leading from s to s' of a_s(y|z) P(z,z'), from the table a, S x Z x Y."""
    S, Z, Y = a.shape
    moves = a[..., None] * P[:, None, :]  # S x Z x Y x Z'
    if S == 1:
        return moves.sum(2).reshape(Z, Z)
    n_kept = S // Y
    T = np.zeros((S, Z, n_kept, Y, Z))
    T[np.arange(S), :, np.arange(S) % n_kept] = moves
    return T.reshape(S * Z, S * Z)


def _solve_densely(chain: MarkovChain, policy: WindowPolicy) -> Array:
    S = len(policy.output_model)
    table = policy.channel(np.arange(S))
    mu = np.zeros((S, len(chain)))
    for states in chain.closed_classes:
        n = S * len(states)
        T = dense_transition(table[:, states], chain.transition[np.ix_(states, states)])
        A = np.eye(n) - T.T
        A[-1] = 1  # in place of one balance equation, which the others imply: the law sums to 1
        law = np.maximum(np.linalg.solve(A, np.eye(n)[-1]), 0)
        mu[:, states] += chain.stationary[states].sum() * law.reshape(S, -1) / law.sum()
    return mu


def startup_bits(problem: Problem, policy: WindowPolicy, rate: float) -> float:
    """sum_t (leakage at t - rate) from the chain's initial law: what the first steps add, once.

    The excess is looked at every step at first, then ever more rarely (trapezoids between), until what may be left is
    under a thousandth of a bit.
    """
    mu = np.zeros((len(policy.output_model), problem.n_states))
    mu[policy.first] = problem.chain.initial
    return excess_bits(Step(problem.chain, policy), mu, problem.distortion, rate)


def excess_bits(step: Stepping, mu: Array, distortion: Array, rate: float) -> float:
    """sum_t (leakage at t - rate) from the law mu on."""
    excess = step.rates(mu, distortion).leakage - rate
    total, t = excess, 0
    while t < STARTUP_STEPS and (t < 20 or abs(excess) * t > 1e-3):
        stride = 1 + t // 32
        for _ in range(stride):
            mu = step(mu)
        before, excess = excess, step.rates(mu, distortion).leakage - rate
        total += stride * excess + (stride - 1) * (before - excess) / 2
        t += stride
    return total


def widen(policy: WindowPolicy, window: int) -> WindowPolicy:
    """The same policy, remembering more than it uses."""
    copies = policy.n_outputs ** (window - policy.window)
    return WindowPolicy(np.tile(policy.output_model, (copies, 1)), policy.kernel, window, policy.first)


def schedule_rates(problem: Problem, schedule: Schedule, tolerance: float = 1e-7) -> tuple[float, float]:
    """(leakage, distortion) of a schedule of window policies, switching included: the law over one whole period."""
    parts = [p for p in schedule.policies if isinstance(p, WindowPolicy)]
    if len(parts) < len(schedule.policies):
        raise InputError("exact rates need a schedule of window policies")
    window = max(p.window for p in parts)
    parts = [widen(p, window) for p in parts]
    steps = [Step(problem.chain, p) for p in parts]
    turns = [step for step, n in zip(steps, schedule.durations, strict=True) for _ in range(n)]
    mu = stationary_joint(problem.chain, parts[0])
    for _ in range(100):
        before = mu
        for step in turns:
            mu = step(mu)
        if np.abs(mu - before).sum() < tolerance:
            break
    total = np.zeros(2)
    for step in turns:
        now = step.rates(mu, problem.distortion)
        total += now.leakage, now.distortion
        mu = step(mu)
    leakage, distortion = total / schedule.period
    return float(leakage), float(distortion)


def rates(problem: Problem, policy: Policy, guess: Array | None = None) -> Rates:
    """The steady state of a window or local policy."""
    if isinstance(policy, LocalPolicy):
        from veilstream.core.local.steady import judged

        return judged(problem, policy)[0]
    if not isinstance(policy, WindowPolicy):
        raise InputError("only a window or local policy has a steady state that can be computed; use evaluate")
    mu = stationary_joint(problem.chain, policy, guess)
    return Step(problem.chain, policy).rates(mu, problem.distortion)
