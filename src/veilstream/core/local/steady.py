"""One step of the law of (window, state) under a local policy: the formulas of `core.steady` over the non-zeros."""

from typing import NamedTuple

import numpy as np

from veilstream.core.chain import MarkovChain
from veilstream.core.information import Array, Index, xlog2
from veilstream.core.local.pattern import Pattern, Products, Rows
from veilstream.core.steady import Opening, Rates


class First(NamedTuple):
    """The first release, which has an output model of its own: its channel where it is not zero."""

    z: Index
    y: Index
    a: Array

    def bits(self, initial: Array, n_outputs: int) -> float:
        """What it leaks."""
        m = initial[self.z] * self.a
        p = np.bincount(self.y, m, n_outputs)
        return float(xlog2(m, self.a).sum() - xlog2(p, p).sum())


class LocalStep:
    """mu(e) over the entries e = (window, state) of a pattern; r and K at its outputs and kernel entries."""

    def __init__(self, chain: MarkovChain, pattern: Pattern, r: Array, K: Array, first: First) -> None:
        self.chain, self.pattern, self.r, self.K, self.first = chain, pattern, r, K, first
        self.products = Products(pattern)
        self.N = self.products.normaliser(self.r, self.K)

    def __call__(self, mu: Array) -> Array:
        return np.asarray(self.pattern.follow.T @ self.products.arrived(self.r, self.K, mu / self.N))

    def guess(self) -> Array:
        """Every state with its long-run probability, all its windows alike."""
        z = self.pattern.entry_state
        return (self.chain.stationary / np.maximum(np.bincount(z, minlength=len(self.chain)), 1))[z]

    def solved(self) -> None:
        return None

    def rates(self, mu: Array, d: Array) -> Rates:
        """As `WindowStep.rates`: sum mu a log2 a, split over r, K and N."""
        p, share = self.pattern, mu / self.N
        p_sy = self.r * self.products.outputs(share)
        p_s = p.by_output(p_sy)
        flow = self.products.arrived(self.r, self.K, share)  # of (s', z, y)
        by_entry = np.bincount(p.entry_window, xlog2(mu, self.N), len(p.windows))
        log_K = self._outputs_of(xlog2(self.K, self.K), share)
        leak = p.by_output(xlog2(p_sy, self.r) + self.r * log_K - xlog2(p_sy, p_sy)) - by_entry + xlog2(p_s, p_s)
        total = float(flow @ d[p.kernel_state, p.kernel_output])
        return Rates(float(np.maximum(leak, 0).sum()), total)

    def _outputs_of(self, values: Array, share: Array) -> Array:
        """sum_z share(e) values(k) for every output; leaves K in place."""
        self.products.normaliser(self.r, values)
        found = self.products.outputs(share)
        self.products.normaliser(self.r, self.K)
        return found

    def shown(self, mu: Array) -> Array:
        p = self.pattern
        flow = self.products.arrived(self.r, self.K, mu / self.N)
        m_zy = np.zeros((p.n_states, p.n_outputs))
        np.add.at(m_zy, (p.kernel_state, p.kernel_output), flow)
        return m_zy

    def opening(self, initial: Array) -> Opening | None:
        """One step after the start; None where the pattern does not hold it."""
        p, Y = self.pattern, self.pattern.n_outputs
        z, y, a = self.first
        to, n = self.chain.sparse, self.chain.sparse.indptr
        source, at = Rows(n.astype(np.int64), to.indices).expand(z)
        window = (y * repeated(Y, p.window))[source]
        key = p.windows[p.entry_window] * p.n_states + p.entry_state
        wanted = window * p.n_states + to.indices[at]
        i = np.searchsorted(key, wanted).clip(max=len(key) - 1)
        mass = (initial[z] * a)[source] * to.data[at]
        if (mass[key[i] != wanted] > 0).any():
            return None
        return Opening(np.bincount(i, mass, len(key)).astype(float), 1, self.first.bits(initial, Y))


def repeated(n_outputs: int, window: int) -> int:
    """The code of a window that holds release 1 only: y times it is the window of y alone."""
    return sum(n_outputs**k for k in range(window))
