"""Products with a table that is never made: a_s(y|z) = r(y|s) k_s(z,y) / N(s,z), s' = next(s, y).

All that a sweep and the law of (memory, state) ask for is

    N(s,z) = sum_y r(y|s) k_s(z,y),      sum_z x(s,z) k_s(z,y),      sum over next(s,y) = s' of r(y|s) x(s,z) k_s(z,y)

Where groups of memories are of one size (windows, plain tables) each of these is a product of matrices for every group.
Where they are not (memories made to measure) every memory is led to by one release, so k_s(z,y) = B(s',z), and with
R(s,s') = r(y|s) they are  R B,  (x B^T)(s, next(s,y))  and  (R^T x) B.

Arrays have any axes before those of the memory: a batch of weights, phases.
"""

from dataclasses import dataclass

import numpy as np

from veilstream.control.automaton import Automaton
from veilstream.model.information import Array, xlog2


@dataclass(frozen=True, eq=False)
class ByGroup:
    """Groups of one size: K is ... x G x |Y| x |Z|."""

    automaton: Automaton
    K: Array

    def normaliser(self, r: Array) -> Array:
        return self.automaton.join(self.automaton.split(r) @ self.K)

    def back(self, x: Array) -> Array:
        return self.automaton.join(self.automaton.split(x) @ self.K.swapaxes(-1, -2))

    def shown(self, r: Array, x: Array) -> Array:
        """By group: ... x G x |Y| x |Z|."""
        split = self.automaton.split
        return np.asarray((split(r).swapaxes(-1, -2) @ split(x)) * self.K)

    def arrive(self, r: Array, x: Array) -> Array:
        return self.automaton.arrive(self.shown(r, x))

    def joint(self, r: Array, x: Array) -> Array:
        """sum_s r x k: how often z shows y, ... x |Z| x |Y|."""
        return np.asarray(self.shown(r, x).sum(-3).swapaxes(-1, -2))

    def by(self, f: Array) -> "ByGroup":
        """The kernel times f(y,z)."""
        return ByGroup(self.automaton, self.K * f)

    @property
    def logs(self) -> "ByGroup":
        """k log2 k."""
        return ByGroup(self.automaton, xlog2(self.K, self.K))


@dataclass(frozen=True, eq=False)
class ByMemory:
    """Every memory led to by one release: B is ... x S x |Z|."""

    automaton: Automaton
    B: Array

    def _spread(self, r: Array) -> Array:
        S = len(self.automaton)
        R = np.zeros((*r.shape[:-1], S), dtype=r.dtype)
        R[..., np.arange(S)[:, None], self.automaton.table] = r
        return R

    def normaliser(self, r: Array) -> Array:
        return np.asarray(self._spread(r) @ self.B)

    def back(self, x: Array) -> Array:
        product = x @ self.B.swapaxes(-1, -2)
        return np.take_along_axis(
            product, np.broadcast_to(self.automaton.table, (*product.shape[:-1], self.automaton.table.shape[1])), -1
        )

    def arrive(self, r: Array, x: Array) -> Array:
        return np.asarray((self._spread(r).swapaxes(-1, -2) @ x) * self.B)

    def joint(self, r: Array, x: Array) -> Array:
        led = self.arrive(r, x)
        m = np.zeros((*led.shape[:-2], self.automaton.n_outputs, led.shape[-1]))
        for y in range(self.automaton.n_outputs):
            m[..., y, :] = led[..., self.automaton.newest == y, :].sum(-2)
        return m.swapaxes(-1, -2)

    def by(self, f: Array) -> "ByMemory":
        return ByMemory(self.automaton, self.B * f[..., self.automaton.newest, :])

    @property
    def logs(self) -> "ByMemory":
        return ByMemory(self.automaton, xlog2(self.B, self.B))


Kernel = ByGroup | ByMemory


def kernel_of(automaton: Automaton, K: Array) -> Kernel:
    """From tables by group, G x |Z| x |Y|."""
    by_y = K.swapaxes(-1, -2)
    if automaton.regular:
        return ByGroup(automaton, by_y)
    if automaton.newest is not None:
        B = np.empty((len(automaton), K.shape[1]))
        B[automaton.to] = by_y
        if np.allclose(B[automaton.to], by_y, rtol=1e-9, atol=0):
            return ByMemory(automaton, B)
    apart = automaton.apart
    return ByGroup(apart, by_y[automaton.group])
