"""The sweep of `sweep`, over the non-zeros of a local problem: cost follows their number.

The same lines on flat arrays (`pattern` says what they are indexed by): r over outputs (s,y), alpha and mu over entries
(s,z), K over kernel entries (s',z,y), in single precision if asked for. The policy found is always judged in double.
"""

from typing import Any

import numpy as np

from veilstream.core.information import Array, Index
from veilstream.core.local.pattern import Pattern, Products
from veilstream.core.local.policy import FLOOR, START, LocalPolicy, Sparse
from veilstream.core.problem import Problem
from veilstream.core.steady import Rates, stationary_law
from veilstream.solvers.sweep import UNSEEN, Tables, fitted, gains

MOST_STEPS, SETTLED = 60, 1e-6  # of mu between two looks; total variation in a step


class SparseSweep:
    """The recursion for one problem on its pattern, for a batch of weights, one after the other."""

    settle_every: int | None = 50  # cheap: before every look

    def __init__(
        self, problem: Problem, weights: Array, pattern: Pattern, look_ahead: bool = True, dtype: Any = np.float64
    ) -> None:
        chain, p = problem.chain, pattern
        self.problem, self.pattern, self.look_ahead = problem, pattern, look_ahead
        self.window, self.dtype = p.window, np.dtype(dtype)
        self.distortion = problem.distortion[p.kernel_state, p.kernel_output].astype(dtype)
        self.weights = np.asarray(weights, dtype)
        self.products = Products(p, dtype)
        self.follow = p.follow.astype(dtype)
        self.lead = self.follow.T.tocsr()
        self.absorption = chain.absorption
        self.lazy = self.dtype.type(0.5 if chain.period > 1 else 1.0)

    def start(self, r: Array) -> Tables:
        """From output models r, B x outputs; no value yet, every window of a state equally likely."""
        z = self.pattern.entry_state
        law = self.problem.chain.stationary / np.maximum(np.bincount(z, minlength=self.pattern.n_states), 1)
        mu = np.tile((law[z] / law[z].sum()).astype(self.dtype), (len(r), 1))
        return Tables(r.astype(self.dtype), np.zeros_like(mu), mu)

    def seen(self, mu: Array) -> Array:
        p = self.pattern
        windows = np.stack([np.bincount(p.entry_window, m, len(p.windows)) for m in mu]).astype(self.dtype)
        return windows[:, p.output_window]

    def total(self, x: Array) -> Array:
        p = self.pattern
        return np.asarray(p.by_output(x)[..., p.output_window])

    def kernel(self, alpha: Array, i: int, stretch: float = 1.0) -> tuple[Array, Array]:
        """K of one run, scaled to a largest entry of 1 for each (s', z), and that scale in bits."""
        p = self.pattern
        follow = self.follow @ alpha
        follow += self.dtype.type(self.weights[i] * stretch) * self.distortion
        low = np.minimum.reduceat(follow, p.row_start)
        return np.exp2(low[p.kernel_row] - follow), low

    def __call__(
        self, t: Tables, index: Index, stretch: Array | float = 1.0, rounds: int = 0
    ) -> tuple[Tables, Array, Array]:
        """One sweep of the runs `index`: new tables, value, slack, as `Sweep`."""
        stretches = np.broadcast_to(np.ravel(stretch), len(index))
        runs = [self._one(t.r[j], t.alpha[j], t.mu[j], i, stretches[j], rounds) for j, i in enumerate(index)]
        r, alpha, mu, value, slack = zip(*runs, strict=True)
        return Tables(np.stack(r), np.stack(alpha), np.stack(mu)), np.array(value), np.array(slack)

    def _one(
        self, r: Array, alpha: Array, mu: Array, i: int, stretch: float, rounds: int
    ) -> tuple[Array, Array, Array, float, float]:
        p, products = self.pattern, self.products
        K, low = self.kernel(alpha, i, stretch)
        windows = np.bincount(p.entry_window, mu, len(p.windows))
        seen = windows[p.output_window]

        def better(r: Array) -> tuple[Array, Array, Array]:
            N = products.normaliser(r, K)
            c = np.divide(products.outputs(mu / N), seen, out=np.ones_like(r), where=seen > UNSEEN, casting="same_kind")
            new = np.maximum(r * c, self.dtype.type(FLOOR))
            fit: Array = np.bincount(p.entry_window, mu * np.log2(N), len(p.windows)).astype(float)
            return new / self.total(new), fit[p.output_window], c

        # output model
        r, c = fitted(better, r, self.total, rounds)
        slack = float(windows @ np.log2(np.maximum(np.maximum.reduceat(c, p.output_start[:-1]), 1)))
        # backward
        N = products.normaliser(r, K)
        change = low[p.entry_row] - np.log2(N) - alpha
        # forward
        arrived = self.lead @ products.arrived(r, K, mu / N)
        gained = mu.astype(np.float64) * change
        if self.look_ahead:
            law, by_state = (np.bincount(p.entry_state, x, p.n_states).astype(float) for x in (mu, gained))
            gain = gains(law, by_state, self.absorption)[p.entry_state].astype(self.dtype)
            alpha = alpha + self.lazy * (change - gain)
        mu = mu + self.lazy * (arrived - mu)
        return r, alpha, mu / mu.sum(), float(gained.sum()), slack

    def settle(self, t: Tables, index: Index) -> None:
        """mu of the present policy, by steps of it alone: without, values on slowly mixing chains mislead."""
        for j, i in enumerate(index):
            K, _ = self.kernel(t.alpha[j], i)
            N = self.products.normaliser(t.r[j], K)
            mu = t.mu[j]
            for _ in range(MOST_STEPS):
                before, mu = mu, self.lead @ self.products.arrived(t.r[j], K, mu / N)
                mu = before + self.lazy * (mu - before)
                if np.abs(mu - before).sum() < SETTLED:
                    break
            t.mu[j] = mu / mu.sum()

    def result(self, t: Tables, i: int) -> tuple[LocalPolicy, Rates]:
        """The policy that run i has found, and its rates in the long run."""
        policy = self.policy(t, i)
        step, mu = policy.law_step(self.problem.chain, self.pattern), t.mu[i].astype(float)
        law = stationary_law(step, self.problem.chain, mu / mu.sum())
        return policy, step.rates(law, self.problem.distortion)

    def policy(self, t: Tables, i: int) -> LocalPolicy:
        p, Z, Y = self.pattern, self.pattern.n_states, self.pattern.n_outputs
        r, K = t.r[i].astype(float), self.kernel(t.alpha[i], i)[0].astype(float)
        r /= p.by_output(r)[p.output_window]
        marginal = np.bincount(p.output, self.seen(t.mu[i : i + 1])[0] * r, Y)
        marginal = np.maximum(marginal / marginal.sum(), FLOOR)
        z, y = np.nonzero(self.problem.allowed)
        cost = float(self.weights[i]) * self.problem.distortion[z, y]
        start = np.searchsorted(z, np.arange(Z))
        base = np.exp2(np.minimum.reduceat(cost, start)[z] - cost)
        if p.window <= 1:
            base[np.searchsorted(z * Y + y, p.kernel_state * Y + p.kernel_output)] = K
            kernel = Sparse.of(z, y, base)
        else:
            keys = np.concatenate([z, (p.kernel_tail + 1) * Z + p.kernel_state])
            kernel = Sparse.of(keys, np.concatenate([y, p.kernel_output]), np.concatenate([base, K]))
        windows = np.concatenate([np.full(Y, START), p.windows[p.output_window]])
        outputs = Sparse.of(windows, np.concatenate([np.arange(Y), p.output]), np.concatenate([marginal, r]))
        return LocalPolicy(outputs, kernel, (Z, Y), p.window)


def sparse_starts(problem: Problem, pattern: Pattern, random: int, seed: int) -> Array:
    """The models of `starts.starting_models` over the outputs of a pattern, starts x outputs."""
    from scipy.sparse import csr_array

    p, chain, Y = pattern, problem.chain, pattern.n_outputs
    newest = p.windows[p.output_window] % Y if p.window else np.zeros(len(p.output), np.int64)
    uniform = 1 / np.diff(p.output_start)[p.output_window]
    nearest = np.where(problem.allowed, problem.distortion, np.inf).argmin(1)
    show = csr_array((np.ones(len(chain)), (np.arange(len(chain)), nearest)), (len(chain), Y))
    flow = (show.T @ chain.sparse.multiply(chain.stationary[:, None]).tocsr() @ show).tocsr()
    truth = np.asarray(flow[newest, p.output]).ravel() + 1e-12
    hold = (newest == p.output) + 1e-12
    rng = np.random.default_rng(seed)
    others = [rng.gamma(0.3, size=len(p.output)) + 1e-12 for _ in range(random)]

    def mixed(x: Array) -> Array:
        return 0.95 * x / p.by_output(x)[p.output_window] + 0.05 * uniform

    return np.stack([uniform, mixed(truth), mixed(hold), mixed(truth), uniform, *map(mixed, others)])
