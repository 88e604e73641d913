"""What a policy with a finite memory does in the long run, computed without sampling.

mu(s,z) is the stationary law of (memory, state). Since all releases say no less than the memory that they led to,

    I(Z_t; Y_t | S_t) = sum_s mu(s) L(mu(.|s), a_s)

is an upper bound on the leakage rate I(Z_t; Y_t | all releases), exact when the memory holds all that matters.
For a window of w releases with a = r K / N no |Y|^w x |Z| x |Y| array is needed:

    sum_zy mu a log2 a = sum_y P(s,y) log2 r + sum_zy mu a log2 K - sum_z mu log2 N        for each s

A policy gives one `LawStep` for each of its public phases (one, unless there is a schedule); everything here is built
on those, and knows no policy.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import DTypeLike

from veilstream.core.chain import MarkovChain
from veilstream.core.information import Array, Index, xlog2
from veilstream.core.problem import Problem
from veilstream.errors import InputError

DENSE_LIMIT = 1100  # (memory, state) pairs up to which the stationary law is solved for directly
SETTLED, LARGE, LARGE_SETTLED = 1e-11, 500_000, 1e-9  # total variation in a step of a law that counts as stationary
POWER_STEPS = 300
VECTORS = 20  # kept by Arnoldi's method where powers do not settle
PERIODS, PERIOD_SETTLED = 100, 1e-7  # rounds of a schedule, and the total variation in one that counts as none
STARTUP_STEPS = 5000
OCCURS, ALIKE = 1e-9, 1e-6  # a probability that counts as some, a difference of probabilities that counts as none
STARTS, STARTUP_LEAST = 8, 20  # of a round of a public clock, and steps looked at after each
STARTUP_BITS = 1e-3  # what may be left of the start-up bits when they are added up no further


class Rates(NamedTuple):
    """Per step."""

    leakage: float  # bits
    distortion: float


class Opening(NamedTuple):
    """How a stream starts: after `steps` releases, which leaked `bits`, (memory, state) has this law."""

    law: Array
    steps: int = 0
    bits: float = 0.0


class LawStep(Protocol):
    """One step of the law mu of (memory, state), in whatever layout."""

    def __call__(self, mu: Array) -> Array: ...
    def rates(self, mu: Array, d: Array) -> Rates:
        """What the release at it leaks and costs."""
        ...

    def shown(self, mu: Array) -> Array:
        """m(z,y): how often z shows y."""
        ...

    def guess(self) -> Array:
        """A law to start iterating from."""
        ...

    def opening(self, initial: Array) -> Opening | None:
        """From the law of the first state; None where the layout cannot hold it."""
        ...

    def solved(self) -> Array | None:
        """The stationary law, where it is small enough to be solved for."""
        ...


class Moves:
    """Products with the transition matrix, over its non-zeros alone where it is large and sparse."""

    def __init__(self, chain: MarkovChain, dtype: DTypeLike = np.float64) -> None:
        P = chain.sparse if chain.is_sparse else chain.transition
        self.P = P.astype(dtype, copy=False)

    def step(self, x: Array) -> Array:
        """x P along the last axis: a law one step later."""
        return np.asarray(x.reshape(-1, x.shape[-1]) @ self.P).reshape(x.shape)

    def ahead(self, x: Array) -> Array:
        """x P^T: what is expected one step later."""
        return np.asarray(x.reshape(-1, x.shape[-1]) @ self.P.T).reshape(x.shape)


class WindowStep:
    """Under a table r K / N over the last w releases; mu is S x Z. Splits s = q n + k with n the kernel's length."""

    def __init__(
        self, chain: MarkovChain, output_model: Array, kernel: Array, window: int, first: int | Opening = 0
    ) -> None:
        S, Y = output_model.shape
        self.chain, self.window, self.first = chain, window, first
        self.n_kept = max(S // Y, 1)  # S': windows without their oldest symbol
        self.moves = Moves(chain)
        self.K = np.tile(kernel, (max(self.n_kept // len(kernel), 1), 1, 1)).swapaxes(1, 2)  # n x Y x Z
        self.r = self._split(output_model)  # n x Q x Y
        self.N = self.r @ self.K  # n x Q x Z
        self._mean: tuple[Array, Array] | None = None  # of the last distortion asked for

    def _split(self, x: Array) -> Array:
        return x.reshape(-1, len(self.K), x.shape[-1]).swapaxes(0, 1)

    def _join(self, x: Array) -> Array:
        return x.swapaxes(0, 1).reshape(-1, *x.shape[2:])

    def __call__(self, mu: Array) -> Array:
        p_kyz = (self.r.swapaxes(1, 2) @ (self._split(mu) / self.N)) * self.K
        if self.window == 0:
            return self.moves.step(p_kyz.sum((0, 1))[None])
        return self.moves.step(p_kyz.reshape(-1, self.n_kept, *p_kyz.shape[1:]).sum(0).reshape(mu.shape))

    def rates(self, mu: Array, d: Array) -> Rates:
        m = self._split(mu)
        p_sy = self.r * ((m / self.N) @ self.K.swapaxes(1, 2))
        p_s = p_sy.sum(-1)
        leak = (m * self.log_a).sum(-1) - xlog2(p_sy, p_sy).sum(-1) + xlog2(p_s, p_s)
        return Rates(float(np.maximum(leak, 0).sum()), float((m * self.mean(d)).sum()))

    @cached_property
    def log_a(self) -> Array:
        """sum_y a log2 a for every s and z, n x Q x Z: made once, for a clock asks at every step of its round."""
        both = xlog2(self.r, self.r) @ self.K + self.r @ xlog2(self.K, self.K)
        return np.asarray(both / self.N - np.log2(self.N))

    def mean(self, d: Array) -> Array:
        """sum_y a d for every s and z, n x Q x Z."""
        if self._mean is None or self._mean[0] is not d:
            self._mean = d, self.r @ (self.K * d.T) / self.N
        return self._mean[1]

    def shown(self, mu: Array) -> Array:
        return np.asarray(((self.r.swapaxes(1, 2) @ (self._split(mu) / self.N)) * self.K).sum(0).T)

    def guess(self) -> Array:
        S = self.r.shape[0] * self.r.shape[1]
        return np.tile(self.chain.stationary / S, (S, 1))

    def opening(self, initial: Array) -> Opening:
        if isinstance(self.first, Opening):
            return self.first
        mu = np.zeros((self.r.shape[0] * self.r.shape[1], len(self.chain)))
        mu[self.first] = initial
        return Opening(mu)

    def table(self) -> Array:
        """a_s(y|z), S x Z x Y."""
        return self._join(self.r[:, :, None, :] * (self.K.swapaxes(1, 2)[:, None] / self.N[..., None]))

    def transition(self, states: Index | slice = slice(None)) -> Array:
        """T((s,z), (s',z')) = sum over y leading from s to s' of a_s(y|z) P(z,z'), for these states."""
        a, P = self.table()[:, states], self.chain.transition[states][:, states]
        S, Z, Y = a.shape
        moves = a[..., None] * P[:, None, :]  # S x Z x Y x Z'
        if S == 1:
            return np.asarray(moves.sum(2)).reshape(Z, Z)
        T = np.zeros((S, Z, S // Y, Y, Z))
        T[np.arange(S), :, np.arange(S) % (S // Y)] = moves
        return T.reshape(S * Z, S * Z)

    def solved(self) -> Array | None:
        mu = np.zeros_like(self.guess())
        if mu.size > DENSE_LIMIT:
            return None
        for states in self.chain.closed_classes:
            T = self.transition(states)
            A = np.eye(len(T)) - T.T
            A[-1] = 1  # in place of one balance equation, which the others imply: the law sums to 1
            law = np.maximum(np.linalg.solve(A, np.eye(len(T))[-1]), 0)
            mu[:, states] += self.chain.stationary[states].sum() * law.reshape(len(mu), -1) / law.sum()
        return mu


class MemoryStep:
    """Under any table a_s(y|z) with memories s' = next(s, y); mu is S x Z."""

    def __init__(self, chain: MarkovChain, table: Array, next: Index, first: int) -> None:
        self.chain, self.table, self.next, self.first = chain, table, next, first
        self.moves = Moves(chain)

    def __call__(self, mu: Array) -> Array:
        arrived = np.zeros_like(mu)
        np.add.at(arrived, self.next, (mu[..., None] * self.table).swapaxes(1, 2))  # S x Y x Z
        return self.moves.step(arrived)

    def rates(self, mu: Array, d: Array) -> Rates:
        m = mu[..., None] * self.table  # S x Z x Y
        p_sy, p_s = m.sum(1), mu.sum(1)
        leak = xlog2(m, self.table).sum((1, 2)) - xlog2(p_sy, p_sy).sum(1) + xlog2(p_s, p_s)
        return Rates(float(np.maximum(leak, 0).sum()), float((m.sum(0) * d).sum()))

    def shown(self, mu: Array) -> Array:
        m_zy: Array = (mu[..., None] * self.table).sum(0)
        return m_zy

    def guess(self) -> Array:
        return np.tile(self.chain.stationary / len(self.table), (len(self.table), 1))

    def opening(self, initial: Array) -> Opening:
        mu = np.zeros(self.table.shape[:2])
        mu[self.first] = initial
        return Opening(mu)

    def solved(self) -> None:
        return None


def stationary_law(step: LawStep, chain: MarkovChain, guess: Array | None = None) -> Array:
    """mu = mu T over (memory, state); a chain with several closed classes keeps its stationary weights."""
    mu, done = power(step, chain, step.guess() if guess is None else guess)
    if done:
        return mu
    solved = step.solved()
    return solved if solved is not None else arnoldi(step, chain, mu)


def power(step: Callable[[Array], Array], chain: MarkovChain, mu: Array) -> tuple[Array, bool]:
    """The law after many steps, and whether it has settled."""
    lazy = 0.5 if chain.period > 1 else 1.0  # half steps have the same law and none of the periods
    settled = SETTLED if mu.size < LARGE else LARGE_SETTLED
    known = mu.ndim == 2 and mu.shape[1] == len(chain)  # laid out S x Z: the law of z alone is the chain's own,
    for _ in range(POWER_STEPS):
        new = mu + lazy * (step(mu) - mu)
        if known:  # and keeping to it spares waiting for a chain that mixes slowly
            new *= chain.stationary / np.maximum(new.sum(0), 1e-300)
        change, mu = np.abs(new - mu).sum(), new
        if change < settled:
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
    return np.asarray(law / law.sum())


def law_at_phases(steps: Sequence[LawStep], chain: MarkovChain, guess: Array | None = None) -> list[Array]:
    """The law before each step of the period, when the whole period leaves it alone."""
    mu = stationary_law(steps[0], chain) if guess is None else guess
    for _ in range(PERIODS if len(steps) > 1 else 0):
        before = mu
        for step in steps:
            mu = step(mu)
        if np.abs(mu - before).sum() < PERIOD_SETTLED:
            break
    laws = [mu]
    for step in steps[:-1]:
        laws.append(step(laws[-1]))
    return laws


class HasLaw(Protocol):
    """A policy, as far as this module looks at one."""

    def law_steps(self, chain: MarkovChain) -> Sequence[LawStep] | None: ...


class HasTable(HasLaw, Protocol):
    def table(self) -> Array | None: ...
    def next_memory(self, s: Index, y: Index) -> Index: ...


def steps_of(policy: HasLaw, chain: MarkovChain) -> Sequence[LawStep]:
    steps = policy.law_steps(chain)
    if steps is None:
        raise InputError("this policy has no steady state that can be computed; use evaluate")
    return steps


def rates(problem: Problem, policy: HasLaw) -> Rates:
    """Leakage and distortion in the long run, switching between the parts of a schedule included."""
    return _mean_rates(problem, steps_of(policy, problem.chain))


def _mean_rates(problem: Problem, steps: Sequence[LawStep]) -> Rates:
    laws = law_at_phases(steps, problem.chain)
    found = [step.rates(mu, problem.distortion) for step, mu in zip(steps, laws, strict=True)]
    leakage, distortion = np.mean(found, 0)
    return Rates(float(leakage), float(distortion))


def long_run(problem: Problem, policy: HasLaw) -> tuple[Rates, float | None]:
    """Rates and start-up bits."""
    steps = steps_of(policy, problem.chain)
    found = _mean_rates(problem, steps)
    return found, _startup(problem, steps, found.leakage)


def startup_bits(problem: Problem, policy: HasLaw, rate: float) -> float | None:
    """sum_t (leakage at t - rate) from the chain's initial law: what the first steps add, once.

    None for a schedule, and where the layout of the law cannot hold the start. With a public clock: the mean over
    starts spread over its round.
    """
    return _startup(problem, steps_of(policy, problem.chain), rate)


def _startup(problem: Problem, steps: Sequence[LawStep], rate: float) -> float | None:
    if problem.chain.phases > 1:
        return _startup_around(problem, steps)
    opening = steps[0].opening(problem.chain.initial) if len(steps) == 1 else None
    if opening is None:
        return None
    return opening.bits - opening.steps * rate + excess_bits(steps[0], opening.law, problem.distortion, rate)


def _startup_around(problem: Problem, steps: Sequence[LawStep]) -> float | None:
    """sum_t (leakage at t - that of the settled law at the same phase)."""
    chain, d, n = problem.chain, problem.distortion, len(steps)
    settled = [step.rates(mu, d).leakage for step, mu in zip(steps, law_at_phases(steps, chain), strict=True)]
    total, starts = 0.0, np.unique(np.linspace(0, n, STARTS, endpoint=False).astype(int))
    for first in starts:
        opening = steps[first].opening(chain.at(chain.around[first]).initial)
        if opening is None or opening.steps:
            return None
        mu = opening.law
        for t in range(first, first + STARTUP_STEPS):
            excess = steps[t % n].rates(mu, d).leakage - settled[t % n]
            total += excess
            if abs(excess) * (t - first) < STARTUP_BITS and t - first >= STARTUP_LEAST:
                break
            mu = steps[t % n](mu)
    return float(total / len(starts))


def excess_bits(step: LawStep, mu: Array, distortion: Array, rate: float) -> float:
    """sum_t (leakage at t - rate) from the law mu on.

    The excess is looked at every step at first, then ever more rarely (trapezoids between), until what may be left is
    under a thousandth of a bit.
    """
    excess = step.rates(mu, distortion).leakage - rate
    total, before, t = excess, excess, 0
    while t < STARTUP_STEPS and (t < 5 or max(abs(before), abs(excess)) * max(t, 20) > STARTUP_BITS):
        stride = 1 + t // 32
        for _ in range(stride):
            mu = step(mu)
        before, excess = excess, step.rates(mu, distortion).leakage - rate
        total += stride * excess + (stride - 1) * (before - excess) / 2
        t += stride
    return total


def mean_joint(chain: MarkovChain, policy: HasLaw) -> Array | None:
    """m(z,y) in the long run, |Z| x |Y|; None where the policy's long run cannot be computed."""
    steps = policy.law_steps(chain)
    if steps is None:
        return None
    laws = law_at_phases(steps, chain)
    return sum((step.shown(mu) for step, mu in zip(steps, laws, strict=True)), np.zeros(())) / len(steps)


def holds_all(chain: MarkovChain, policy: HasTable) -> bool:
    """Whether the memory tells as much as all releases, so that I(Z_t; Y_t | S_t) is the rate and no bound on it.

    So it is if the law of the state given the memory is a belief: for every s and y that occur

        mu(.|s') = sum_z mu(z|s) a_s(y|z) P(z,.) / p(y|s),        s' = next(s, y)
    """
    table, steps = policy.table(), policy.law_steps(chain)
    if table is None or steps is None or len(steps) > 1:
        return False
    mu = stationary_law(steps[0], chain)
    if mu.shape != table.shape[:2]:
        return False
    p_s = mu.sum(1)
    m = mu[..., None] * table  # S x Z x Y
    s, y = np.nonzero(m.sum(1) > OCCURS)
    found = Moves(chain).step(m[s, :, y]) / m.sum(1)[s, y, None]
    to = policy.next_memory(s, y)
    return bool(np.abs(found - mu[to] / p_s[to, None]).max() < ALIKE)
