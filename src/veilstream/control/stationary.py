"""What a controller does in the long run, computed without sampling.

mu(s,z) is the stationary law of (memory, state). Since all releases say no less than the memory that they led to,

    I(Z_t; Y_t | S_t) = sum_s mu(s) L(mu(.|s), a_s)

is an upper bound on the leakage rate I(Z_t; Y_t | all releases), exact when the memory holds all that matters. With
a = r K / N no |S| x |Z| x |Y| array is needed:

    sum_zy mu a log2 a = sum_y P(s,y) log2 r + sum_zy mu a log2 K - sum_z mu log2 N        for each s

A policy that is no controller has no such law, and is evaluated by sampling (`evaluate`).
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from veilstream.control.automaton import kernel_of
from veilstream.control.controller import Controller, controller_of
from veilstream.control.policy import Policy
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, xlog2
from veilstream.model.problem import Problem

SETTLED, LARGE, LARGE_SETTLED = 1e-11, 500_000, 1e-9  # total variation in a step of a law that counts as stationary
POWER_STEPS = 300
VECTORS = 20  # kept by Krylov's method where powers do not settle
PERIODS, PERIOD_SETTLED = 100, 1e-7  # rounds of a clock, and the total variation in one that counts as none
STARTUP_STEPS = 5000
OCCURS, ALIKE = 1e-9, 1e-6  # a probability that counts as some, a difference of probabilities that counts as none
STARTS, STARTUP_LEAST = 8, 5  # of a round of a public clock, and steps looked at after each
STARTUP_BITS = 1e-3  # what may be left of the start-up bits when they are added up no further


class Rates(NamedTuple):
    """Per step."""

    leakage: float  # bits
    distortion: float


class Moves:
    """A transition matrix that arrays of any axes are multiplied by: x @ P is a law one step later, x @ P.T is ahead.

    Over its non-zeros alone where it is large and sparse.
    """

    __array_ufunc__ = None  # so that numpy leaves x @ P to __rmatmul__

    def __init__(self, P: Any) -> None:
        self.P = P

    @classmethod
    def of(cls, chain: MarkovChain, dtype: DTypeLike = np.float64) -> "Moves":
        return cls((chain.sparse if chain.is_sparse else chain.transition).astype(dtype, copy=False))

    @property
    def T(self) -> "Moves":
        return Moves(self.P.T)

    def __rmatmul__(self, x: Array) -> Array:
        return np.asarray(x.reshape(-1, x.shape[-1]) @ self.P).reshape(x.shape)


class Step:
    """One step of the law of (memory, state), S x Z, under one phase of a controller."""

    def __init__(self, chain: MarkovChain, policy: Controller, phase: int = 0) -> None:
        self.chain, self.automaton, self.first = chain, policy.automaton, policy.first
        self.policy, self.phase = policy, phase
        self.moves = Moves.of(chain)
        self.r, self.kernel = policy.output_model[phase], kernel_of(policy.automaton, policy.kernel[phase])
        self.N = self.kernel.normaliser(self.r)  # S x Z
        self._mean: tuple[Array, Array] | None = None  # of the last distortion asked for

    def __call__(self, mu: Array) -> Array:
        return self.kernel.arrive(self.r, mu / self.N) @ self.moves

    def rates(self, mu: Array, d: Array) -> Rates:
        """What the release at this step leaks and costs."""
        p_sy = self.r * self.kernel.back(mu / self.N)
        p_s = p_sy.sum(-1)
        leak = (mu * self.log_a).sum(-1) - xlog2(p_sy, p_sy).sum(-1) + xlog2(p_s, p_s)
        return Rates(float(np.maximum(leak, 0).sum()), float((mu * self.mean(d)).sum()))

    @cached_property
    def log_a(self) -> Array:
        """sum_y a log2 a for every s and z: made once, for a clock asks at every step of its round."""
        both = self.kernel.normaliser(xlog2(self.r, self.r)) + self.kernel.logs.normaliser(self.r)
        return np.asarray(both / self.N - np.log2(self.N))

    def mean(self, d: Array) -> Array:
        """sum_y a d for every s and z."""
        if self._mean is None or self._mean[0] is not d:
            self._mean = d, self.kernel.by(d.T).normaliser(self.r) / self.N
        return self._mean[1]

    def shown(self, mu: Array) -> Array:
        """m(z,y): how often z shows y."""
        return self.kernel.joint(self.r, mu / self.N)

    def guess(self) -> Array:
        """A law to start iterating from."""
        S = len(self.automaton)
        return np.tile(self.chain.stationary / S, (S, 1))

    def opening(self, initial: Array) -> Array:
        """The law of a stream that begins, from that of its first state."""
        mu = np.zeros((len(self.automaton), len(self.chain)))
        mu[self.first] = initial
        return mu

    def table(self) -> Array:
        """a_s(y|z), S x Z x Y."""
        return self.policy.at_phase(self.phase).channel(np.arange(len(self.automaton)))


def stationary_law(step: Step, chain: MarkovChain, guess: Array | None = None) -> Array:
    """mu = mu T over (memory, state); a chain with several closed classes keeps its stationary weights."""
    mu, done = power(step, chain, step.guess() if guess is None else guess)
    return mu if done else solved(step, chain, mu)


def power(step: Callable[[Array], Array], chain: MarkovChain, mu: Array) -> tuple[Array, bool]:
    """The law after many steps, and whether it has settled."""
    lazy = 0.5 if chain.period > 1 else 1.0  # half steps have the same law and none of the periods
    settled = SETTLED if mu.size < LARGE else LARGE_SETTLED
    for _ in range(POWER_STEPS):
        new = mu + lazy * (step(mu) - mu)
        new *= chain.stationary / np.maximum(new.sum(0), 1e-300)  # z alone is the chain's own: no waiting for it to mix
        change, mu = np.abs(new - mu).sum(), new
        if change < settled:
            return mu, True
    return mu, False


def solved(step: Callable[[Array], Array], chain: MarkovChain, mu: Array) -> Array:
    """The law that a step leaves alone, from one near it, by Krylov's subspaces: for each closed class k of the chain

    mu - mu T + sum_k mu(k) u_k = sum_k pi(k) u_k,        u_k: the law so far within the class, pi(k) its weight
    """
    from scipy.sparse.linalg import LinearOperator, gmres

    inside = np.stack([np.isin(np.arange(len(chain)), states) for states in chain.closed_classes])  # K x Z
    near = mu * inside[:, None]
    near /= np.maximum(near.sum((1, 2), keepdims=True), 1e-300)

    def left(v: Array) -> Array:
        law = v.reshape(mu.shape)
        return np.asarray((law - step(law) + np.tensordot(inside @ law.sum(0), near, 1)).ravel())

    operator, right = LinearOperator((mu.size, mu.size), left), np.tensordot(inside @ chain.stationary, near, 1)
    v, _ = gmres(operator, right.ravel(), x0=mu.ravel(), rtol=SETTLED, restart=min(VECTORS, mu.size), maxiter=200)
    law = np.maximum(v.reshape(mu.shape), 0)
    return np.asarray(law / law.sum())


class LongRun:
    """A controller on a chain: one step of the law for each step of a round, and the law that a round leaves alone."""

    def __init__(self, chain: MarkovChain, policy: Controller, guess: Array | None = None) -> None:
        self.chain, self.policy = chain, policy
        if chain.phases > 1:
            pairs = [(int(phase) if policy.phases > 1 else 0, int(phase)) for phase in chain.around]
        else:
            pairs = [(int(f), 0) for f in (range(policy.phases) if policy.turn is None else policy.turn)]
        made = {pair: Step(chain.at(pair[1]), policy, pair[0]) for pair in dict.fromkeys(pairs)}
        self.steps: Sequence[Step] = [made[pair] for pair in pairs]
        self._guess = guess

    @cached_property
    def laws(self) -> list[Array]:
        """The law before each step of the round."""
        mu = stationary_law(self.steps[0], self.chain, self._guess) if len(self.steps) == 1 else self._settled()
        laws = [mu]
        for step in self.steps[:-1]:
            laws.append(step(laws[-1]))
        return laws

    def _settled(self) -> Array:
        mu = stationary_law(self.steps[0], self.chain) if self._guess is None else self._guess
        for _ in range(PERIODS):
            before = mu
            for step in self.steps:
                mu = step(mu)
            if np.abs(mu - before).sum() < PERIOD_SETTLED:
                break
        return mu

    def by_step(self, d: Array) -> list[Rates]:
        return [step.rates(mu, d) for step, mu in zip(self.steps, self.laws, strict=True)]

    def rates(self, d: Array) -> Rates:
        """Leakage and distortion, switching between the phases included."""
        leakage, distortion = np.mean(self.by_step(d), 0)
        return Rates(float(leakage), float(distortion))

    @cached_property
    def joint(self) -> Array:
        """m(z,y), |Z| x |Y|."""
        shown = [step.shown(mu) for step, mu in zip(self.steps, self.laws, strict=True)]
        return np.asarray(np.mean(shown, 0))

    def startup_bits(self, d: Array) -> float | None:
        """sum_t (leakage at t - rate) from the chain's initial law: what the first steps add, once.

        None for a schedule. With a public clock: the mean over starts spread over its round.
        """
        if len(self.steps) != len(self.chain.around):
            return None
        settled = [found.leakage for found in self.by_step(d)]
        starts = np.unique(np.linspace(0, len(self.steps), STARTS, endpoint=False).astype(int))
        return float(np.mean([self._excess_bits(int(first), d, settled) for first in starts]))

    def _excess_bits(self, first: int, d: Array, settled: list[float]) -> float:
        """What a stream that begins at this step of the round adds, until what may be left is next to nothing.

        Without a clock the excess is looked at every step at first, then ever more rarely (trapezoids between).
        """
        n, total, before, t, stride = len(self.steps), 0.0, 0.0, 0, 1
        mu = self.steps[first].opening(self.chain.at(self.chain.around[first]).initial)
        while True:
            excess = self.steps[(first + t) % n].rates(mu, d).leakage - settled[(first + t) % n]
            total += stride * excess + (stride - 1) * (before - excess) / 2
            enough = max(abs(before), abs(excess)) * max(t, 20) <= STARTUP_BITS and t >= STARTUP_LEAST
            if enough or t >= STARTUP_STEPS:
                return total
            before, stride = excess, 1 if n > 1 else 1 + t // 32
            for step in range(first + t, first + t + stride):
                mu = self.steps[step % n](mu)
            t += stride


def long_run(chain: MarkovChain, policy: Policy) -> LongRun | None:
    """None where it cannot be computed: no finite policy, or one with a round of its own beside a clock."""
    found = controller_of(policy)
    alike = found is not None and (chain.phases == 1 or (found.turn is None and found.phases in (1, chain.phases)))
    return LongRun(chain, found) if found is not None and alike else None


def rates(problem: Problem, policy: Policy) -> Rates:
    """Leakage and distortion in the long run."""
    found = long_run(problem.chain, policy)
    if found is None:
        raise InputError("this policy has no steady state that can be computed; use evaluate")
    return found.rates(problem.distortion)


def holds_all(chain: MarkovChain, policy: Policy) -> bool:
    """Whether the memory tells as much as all releases, so that I(Z_t; Y_t | S_t) is the rate and no bound on it.

    So it is if the law of the state given the memory is a belief: for every s and y that occur

        mu(.|s') = sum_z mu(z|s) a_s(y|z) P(z,.) / p(y|s),        s' = next(s, y)
    """
    found = long_run(chain, policy)
    if found is None or len(found.steps) > 1 or found.policy.table() is None:
        return False
    [step], [mu] = found.steps, found.laws
    p_s, m = mu.sum(1), mu[..., None] * step.table()  # S x Z x Y
    s, y = np.nonzero(m.sum(1) > OCCURS)
    after = (m[s, :, y] @ Moves.of(chain)) / m.sum(1)[s, y, None]
    to = step.automaton.next(s, y)
    return bool(np.abs(after - mu[to] / p_s[to, None]).max() < ALIKE)
