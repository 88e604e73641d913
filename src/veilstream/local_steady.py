"""What a local policy does in the long run: the formulas of `steady`, over the non-zeros alone."""

import numpy as np

from veilstream.chain import MarkovChain
from veilstream.information import Array, xlog2
from veilstream.local_policy import FLOOR, START, LocalPolicy
from veilstream.pattern import Pattern, Products, Rows, pattern_of
from veilstream.problem import Problem
from veilstream.steady import Rates, arnoldi, excess_bits, power


class LocalStep:
    """One step of the law mu(e) of (window, state) under a local policy, and what it leaks."""

    def __init__(self, chain: MarkovChain, policy: LocalPolicy, pattern: Pattern | None = None) -> None:
        if pattern is None:
            pattern = pattern_of(chain.sparse, Rows(*policy.allowed), policy.n_outputs, policy.window)
        self.chain, self.policy, self.pattern = chain, policy, pattern
        self.products = Products(pattern)
        self.r, self.K = tables_on(pattern, policy)
        self.N = self.products.normaliser(self.r, self.K)

    def __call__(self, mu: Array) -> Array:
        return self.pattern.follow.T @ self.products.arrived(self.r, self.K, mu / self.N)

    def first_law(self) -> Array:
        """Every state with its long-run probability, all its windows alike."""
        z = self.pattern.entry_state
        return (self.chain.stationary / np.maximum(np.bincount(z, minlength=len(self.chain)), 1))[z]

    def rates(self, mu: Array, d: Array) -> Rates:
        """As `steady.Step.rates`: sum mu a log2 a, split over r, K and N."""
        p, share = self.pattern, mu / self.N
        p_sy = self.r * self.products.outputs(share)
        p_s = p.by_output(p_sy)
        flow = self.products.arrived(self.r, self.K, share)  # of (s', z, y)
        by_entry = np.bincount(p.entry_window, xlog2(mu, self.N), len(p.windows))
        log_K = self.products_of(xlog2(self.K, self.K), share)
        leak = p.by_output(xlog2(p_sy, self.r) + self.r * log_K - xlog2(p_sy, p_sy)) - by_entry + xlog2(p_s, p_s)
        leak = np.maximum(leak, 0)
        by_window = np.divide(leak, p_s, out=np.zeros_like(leak), where=p_s > 0)
        total = float(flow @ d[p.kernel_state, p.kernel_output])
        return Rates(float(leak.sum()), total, by_window)

    def products_of(self, values: Array, share: Array) -> Array:
        """sum_z share(e) values(k) for every output; leaves K in place."""
        self.products.normaliser(self.r, values)
        found = self.products.outputs(share)
        self.products.normaliser(self.r, self.K)
        return found

    def after_first(self, law: Array) -> Array | None:
        """mu one step after the start, from the law of the first state; None where the pattern does not hold it."""
        p, Y = self.pattern, self.policy.n_outputs
        z, y, a = self.policy.entries(START)
        to, n = self.chain.sparse, self.chain.sparse.indptr
        source, at = Rows(n.astype(np.int64), to.indices).expand(z)
        window = (y * sum(Y**k for k in range(p.window)))[source]
        key = p.windows[p.entry_window] * p.n_states + p.entry_state
        wanted = window * p.n_states + to.indices[at]
        i = np.searchsorted(key, wanted).clip(max=len(key) - 1)
        mass = (law[z] * a)[source] * to.data[at]
        if (mass[key[i] != wanted] > 0).any():
            return None
        return np.bincount(i, mass, len(key)).astype(float)


def tables_on(pattern: Pattern, policy: LocalPolicy) -> tuple[Array, Array]:
    """r and K of a policy at the entries of a pattern."""
    p, Z = pattern, policy.n_states
    r = policy.output_model.at(p.windows[p.output_window], p.output, FLOOR)
    K = policy.kernel.at(p.kernel_state, p.kernel_output, 0.0)
    if policy.window > 1:
        K = policy.kernel.at((p.kernel_tail + 1) * Z + p.kernel_state, p.kernel_output, K)
    return r, K


def local_rates(step: LocalStep, distortion: Array, guess: Array | None = None) -> Rates:
    """The steady state."""
    mu, done = power(step, step.chain, step.first_law() if guess is None else guess)
    mu = mu if done else arnoldi(step, step.chain, mu)
    return step.rates(mu, distortion)


def local_startup_bits(problem: Problem, step: LocalStep, rate: float) -> float | None:
    """What the first steps add, once; None where the first release leads outside the pattern."""
    b = problem.chain.initial
    mu = step.after_first(b)
    if mu is None:
        return None
    z, y, a = step.policy.entries(START)
    p = np.bincount(y, b[z] * a, problem.n_outputs)
    first = float(xlog2(b[z] * a, a).sum() - xlog2(p, p).sum())
    return first - rate + excess_bits(step, mu, problem.distortion, rate)
