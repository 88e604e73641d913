"""Channels by memory, of a policy whose memories are few numbers: a row, a column, an output law or a draw at once."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilstream.model.information import Array, Index, entropy, rows_times
from veilstream.model.problem import output_law

LEAST = 1e-300  # p log2 p is 0 there
FEW = 8  # streams a memory below which they are not worth sorting


@dataclass(frozen=True, eq=False)
class Lookup:
    """What can be looked up by memory, of a policy that is a table."""

    table: Array  # a_s(y|z), S x |Z| x |Y|

    @cached_property
    def positive(self) -> bool:
        """Whether every release is possible whatever the belief is."""
        return bool((self.table > 0).all())

    @cached_property
    def noise(self) -> Array:
        """H(a_s(.|z)), S x |Z|."""
        return entropy(self.table)

    @cached_property
    def _by_release(self) -> Array:
        """a_s(y|.), S x |Y| x |Z|."""
        return np.ascontiguousarray(np.swapaxes(self.table, 1, 2))

    def rows(self, memory: Index, z: Index) -> Array:
        """a_s(.|z), n x |Y|."""
        return np.asarray(self.table[memory, z])

    def columns(self, memory: Index, y: Index) -> Array:
        """a_s(y|.), n x |Z|."""
        S, Y, Z = self._by_release.shape
        found: Array = self._by_release.reshape(S * Y, Z).take(memory * Y + y, 0)
        return found

    def output_law(self, b: Array, memory: Index) -> Array:
        """sum_z b(z) a_s(y|z): many streams together by memory, one product each; few of them one by one."""
        S = len(self.table)
        if len(b) < FEW * S:
            return output_law(b, self.table[memory])
        order = np.argsort(memory.astype(np.uint16 if S <= 1 << 16 else np.int64), kind="stable")
        p, at, end = np.empty((len(b), self.table.shape[2])), b.take(order, 0), 0
        for a, n in zip(self.table, np.bincount(memory, minlength=S).tolist(), strict=True):
            start, end = end, end + n
            rows_times(at[start:end], a, out=p[start:end])
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return p.take(back, 0)

    @cached_property
    def _cumulative(self) -> Array:
        """Cumulative a_s(.|z), (S |Z|) x |Y|.

        From the last possible symbol on they are infinite, so that no uniform below 1 falls off the end.
        """
        sums = np.cumsum(self.table, -1)
        whole = np.where(sums >= sums[..., -1:], np.inf, sums / sums[..., -1:])
        return np.ascontiguousarray(whole.reshape(-1, sums.shape[-1]))

    def draw(self, memory: Index, z: Index, u: Array) -> Index:
        """y ~ a_s(.|z), n."""
        row = self._cumulative.take(memory * self.table.shape[1] + z, 0)
        passed = (row <= u[:, None]).astype(np.float32)  # counted by a product: a sum takes four times as long
        return np.asarray(passed @ np.ones(row.shape[1], np.float32), np.int64)
