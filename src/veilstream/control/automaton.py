"""A public memory of past releases: s' = next(s, y).

Memories that go on alike, whatever is released, form a group: next(s, y) = to(group(s), y). Nothing that looks ahead
can tell them apart, so an optimal policy has one kernel for each group and not one for each memory. The last w releases
are |Y|^w memories in |Y|^(w-1) groups: all windows that differ in their oldest release only.

Products with a table that is never made: a_s(y|z) = r(y|s) k_s(z,y) / N(s,z). All that a sweep and the law of (memory,
state) ask for is

    N(s,z) = sum_y r(y|s) k_s(z,y),      sum_z x(s,z) k_s(z,y),      sum over next(s,y) = s' of r(y|s) x(s,z) k_s(z,y)

Where groups of memories are of one size (windows, plain tables) each of these is a product of matrices for every group.
Where they are not (memories made to measure) every memory is led to by one release, so k_s(z,y) = B(s',z), and with
R(s,s') = r(y|s) they are  R B,  (x B^T)(s, next(s,y))  and  (R^T x) B.

Arrays have any axes before those of the memory: a batch of weights, phases.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from veilstream.errors import InputError
from veilstream.model.information import Array, Index, xlog2


@dataclass(frozen=True, eq=False)
class Automaton:
    group: Index  # S
    to: Index  # G x |Y|

    def __post_init__(self) -> None:
        group, to = np.asarray(self.group), np.asarray(self.to)
        whole = group.dtype.kind in "iu" and to.dtype.kind in "iu" and group.ndim == 1 and to.ndim == 2
        if not whole or not group.size or not to.size:
            raise InputError(f"a memory does not fit tables of shape {group.shape} and {to.shape}")
        if (group < 0).any() or (group >= len(to)).any() or (to < 0).any() or (to >= len(group)).any():
            raise InputError("the policy's memory leads to states that it does not have")
        if (np.diff(group) < 0).any():
            raise InputError("the memories of a policy must be numbered group by group")
        object.__setattr__(self, "group", group.astype(np.int64))
        object.__setattr__(self, "to", to.astype(np.int64))

    @classmethod
    def of(cls, next: Index) -> "tuple[Automaton, Index]":
        """From the whole table, S x |Y|: memories are numbered anew, group by group; and which each of them was."""
        rows, group = np.unique(next, axis=0, return_inverse=True)
        order = np.argsort(group.reshape(-1), kind="stable")
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        return cls(group.reshape(-1)[order], number[rows]), order

    def __len__(self) -> int:
        return len(self.group)

    @property
    def n_outputs(self) -> int:
        return int(self.to.shape[1])

    def next(self, s: ArrayLike, y: ArrayLike) -> Index:
        if len(self.to) == 1:  # the last release, or none
            return np.asarray(self.to[0].take(np.asarray(y)))
        return np.asarray(self.to[self.group.take(np.asarray(s)), np.asarray(y)])

    @cached_property
    def table(self) -> Index:
        """next(s, y), S x |Y|."""
        return self.to[self.group]

    @cached_property
    def apart(self) -> "Automaton":
        """The same memory with a group for each of its states: for kernels that differ without looking ahead."""
        return Automaton(np.arange(len(self)), self.table)

    @cached_property
    def newest(self) -> Index | None:
        """The release that leads to each memory; None where several do, or none."""
        led = np.zeros((len(self), self.n_outputs), dtype=bool)
        led[self.to, np.arange(self.n_outputs)] = True
        return None if (led.sum(1) != 1).any() else np.asarray(led.argmax(1))

    # --- arrays by group, where all are of one size --------------------------------------------------------

    @cached_property
    def regular(self) -> bool:
        sizes = np.bincount(self.group, minlength=len(self.to))
        return bool((sizes == sizes[0]).all())

    def split(self, x: Array) -> Array:
        """... x S x n -> ... x G x (S / G) x n."""
        return x.reshape(*x.shape[:-2], len(self.to), -1, x.shape[-1])

    def join(self, x: Array) -> Array:
        """The way back from `split`."""
        return x.reshape(*x.shape[:-3], -1, x.shape[-1])

    @cached_property
    def is_last(self) -> bool:
        """Whether the memory is the last release: then nothing has to be looked up."""
        return bool(np.array_equal(self.to, np.arange(len(self))[None]))

    @cached_property
    def _arrivals(self) -> tuple[Index | None, Any]:
        """Where all that leads to a memory is found: a permutation, or a sparse matrix S x G |Y|."""
        to = self.to.ravel()
        if len(to) == len(self) and (np.bincount(to, minlength=len(self)) == 1).all():
            where = np.empty_like(to)
            where[to] = np.arange(len(to))
            return where, None
        from scipy.sparse import csr_array

        return None, csr_array((np.ones(len(to)), (to, np.arange(len(to)))), shape=(len(self), len(to)))

    def arrive(self, p: Array) -> Array:
        """sum over what leads to s' of p, ... x G x |Y| x n -> ... x S x n."""
        flat = p.reshape(*p.shape[:-3], -1, p.shape[-1])
        if self.is_last:
            return flat
        where, matrix = self._arrivals
        if where is not None:
            return np.asarray(flat[..., where, :])
        if flat.ndim == 2:
            return np.asarray(matrix @ flat)
        return np.stack([self.arrive(part) for part in p])


def window(n_outputs: int, w: int) -> Automaton:
    """The last w releases: windows that differ in their oldest release only are neighbours."""
    if w == 0:
        return Automaton(np.zeros(1, int), np.zeros((1, n_outputs), int))
    groups = n_outputs ** (w - 1)
    later = np.arange(groups)[:, None] * n_outputs + np.arange(n_outputs)  # all but the oldest, and the new release
    oldest, rest = np.divmod(later, groups)
    return Automaton(np.repeat(np.arange(groups), n_outputs), rest * n_outputs + oldest)


def product(one: Automaton, other: Automaton, first: tuple[int, int]) -> tuple[Automaton, Index]:
    """Both memories at once, as far as they can be reached from `first`: and the two states of each, S x 2."""
    pairs, seen = [first], {first: 0}
    rows = []
    for pair in pairs:  # grows while it is gone through
        follow = zip(one.table[pair[0]].tolist(), other.table[pair[1]].tolist(), strict=True)
        row = []
        for to in follow:
            if to not in seen:
                seen[to] = len(pairs)
                pairs.append(to)
            row.append(seen[to])
        rows.append(row)
    memory, order = Automaton.of(np.array(rows))
    return memory, np.array(pairs)[order]


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
