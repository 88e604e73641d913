"""What a local policy does in the long run: the formulas of `steady`, over the non-zeros alone."""

import numpy as np

from veilstream.core.chain import LARGE, MarkovChain
from veilstream.core.information import Array, xlog2
from veilstream.core.local.pattern import Pattern, Products, Rows, pattern_of
from veilstream.core.local.policy import FLOOR, START, LocalPolicy
from veilstream.core.policy import WindowPolicy
from veilstream.core.problem import Problem
from veilstream.core.steady import Rates, Step, arnoldi, excess_bits, power, stationary_joint


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


def as_window(policy: LocalPolicy) -> WindowPolicy:
    """The same channels as full tables, for a chain that makes everything possible; the start is not in them."""
    Y, Z, w = policy.n_outputs, policy.n_states, policy.window
    r = np.full((Y**w, Y), FLOOR)
    keys = np.repeat(policy.output_model.keys, np.diff(policy.output_model.start))
    known = keys != START
    r[keys[known], policy.output_model.columns[known]] = policy.output_model.values[known]
    K = np.zeros((Y ** max(w - 1, 0), Z, Y))
    keys = np.repeat(policy.kernel.keys, np.diff(policy.kernel.start))
    base = keys < Z
    K[:, keys[base], policy.kernel.columns[base]] = policy.kernel.values[base]
    K[keys[~base] // Z - 1, keys[~base] % Z, policy.kernel.columns[~base]] = policy.kernel.values[~base]
    return WindowPolicy(r, K, w)


def judged(problem: Problem, policy: LocalPolicy) -> tuple[Rates, float | None]:
    """Rates and start-up bits of a local policy on any chain: over the non-zeros where there are few, else densely."""
    chain = problem.chain
    if chain.is_sparse or len(chain) < LARGE:
        step = LocalStep(chain, policy)
        found = local_rates(step, problem.distortion)
        return found, local_startup_bits(problem, step, found.leakage)
    full = as_window(policy)
    dense = Step(chain, full)
    found = dense.rates(stationary_joint(chain, full), problem.distortion)
    b, (z, y, a) = chain.initial, policy.entries(START)
    m = np.zeros((problem.n_outputs, len(chain)))
    m[y, z] = b[z] * a
    mu = np.zeros((len(full.output_model), len(chain)))
    mu[policy.update(np.full(problem.n_outputs, START), np.arange(problem.n_outputs))] = m @ chain.transition
    first = first_bits(problem, policy) - found.leakage
    return found, first + excess_bits(dense, mu, problem.distortion, found.leakage)


def first_bits(problem: Problem, policy: LocalPolicy) -> float:
    """What the first release leaks."""
    b, (z, y, a) = problem.chain.initial, policy.entries(START)
    p = np.bincount(y, b[z] * a, problem.n_outputs)
    return float(xlog2(b[z] * a, a).sum() - xlog2(p, p).sum())


def local_rates(step: LocalStep, distortion: Array, guess: Array | None = None) -> Rates:
    """The steady state."""
    mu, done = power(step, step.chain, step.first_law() if guess is None else guess)
    mu = mu if done else arnoldi(step, step.chain, mu)
    return step.rates(mu, distortion)


def local_startup_bits(problem: Problem, step: LocalStep, rate: float) -> float | None:
    """What the first steps add, once; None where the first release leads outside the pattern."""
    mu = step.after_first(problem.chain.initial)
    if mu is None:
        return None
    return first_bits(problem, step.policy) - rate + excess_bits(step, mu, problem.distortion, rate)
