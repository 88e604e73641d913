"""A window policy that stores only what can occur: local releases on a chain of local moves.

    a_s(y|z) = r(y|s) K(s',z,y) / N(s,z)        s: the last w releases, s': s without its oldest

as `WindowPolicy`, with r kept for the y that follow s on the chain it was made for, and K for the y that z may show.
What is not kept still has a law, so that no true state and no history is without a release, and none outside its
limit: r is FLOOR there, and K is that of `base`, which knows every state. On the chain it was made for this never
happens. Before the first release the memory is -1, with an output model of its own; the first release is then taken
for the whole window.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.core.chain import LARGE, MarkovChain
from veilstream.core.information import Array, Index
from veilstream.core.local.pattern import Pattern, Rows, pattern_of
from veilstream.core.local.steady import First, LocalStep, repeated
from veilstream.core.policy import Export, Memory, Policy
from veilstream.core.steady import LawStep, Opening, WindowStep
from veilstream.core.window import checked_window
from veilstream.errors import InputError

FLOOR = 1e-9  # least output probability r(y|s): a deployed policy never makes a release impossible
START = -1  # the memory before anything was released; as a tail: the kernel of every state, whatever the window


@dataclass(frozen=True, eq=False)
class Sparse:
    """Numbers at (row, column) in order: row i has the key `keys[i]` and lies at start[i]:start[i + 1]."""

    keys: Index  # ascending
    start: Index
    columns: Index  # ascending in each row
    values: Array

    @classmethod
    def of(cls, keys: Index, columns: Index, values: Array) -> "Sparse":
        """From one key for each number, already in order."""
        rows, first = np.unique(keys, return_index=True)
        return cls(rows, np.append(first, len(keys)), columns, np.asarray(values, float))

    def check(self, what: str, n_columns: int) -> None:
        """Every row is there, in order, and has a number above zero."""
        n = len(self.columns)
        ok = all(x.ndim == 1 and x.dtype == np.int64 for x in (self.keys, self.start, self.columns))
        ok = ok and len(self.keys) > 0 and len(self.start) == len(self.keys) + 1 and self.values.shape == (n,)
        ok = ok and bool(self.start[0] == 0 and self.start[-1] == n and (np.diff(self.start) > 0).all())
        ok = ok and bool(
            (np.diff(self.keys) > 0).all() and (self.columns >= 0).all() and (self.columns < n_columns).all()
        )
        if ok:
            rising = np.diff(self.columns) > 0
            rising[self.start[1:-1] - 1] = True  # a new row may begin anywhere
            ok = bool(rising.all() and np.isfinite(self.values).all() and (self.values >= 0).all())
            ok = ok and bool((np.maximum.reduceat(self.values, self.start[:-1]) > 0).all())
        if not ok:
            raise InputError(f"the policy's {what} is not a table: rows and columns in order, numbers >= 0, none empty")

    def row(self, key: int) -> slice:
        """Where the row of that key lies; empty if there is none."""
        i = int(np.searchsorted(self.keys, key))
        found = i < len(self.keys) and self.keys[i] == key
        return slice(int(self.start[i]), int(self.start[i + 1])) if found else slice(0, 0)

    def at(self, keys: Index, columns: Index, default: Array | float) -> Array:
        """The numbers at (key, column), `default` where none is kept."""
        width = int(self.columns.max(initial=0)) + 1
        place = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        own = np.repeat(np.arange(len(self.keys)), np.diff(self.start)) * width + self.columns
        wanted = place * width + np.minimum(columns, width - 1)
        i = np.searchsorted(own, wanted).clip(max=len(own) - 1)
        found = (self.keys[place] == keys) & (columns < width) & (own[i] == wanted)
        return np.where(found, self.values[i], default)


@dataclass(frozen=True, eq=False)
class LocalPolicy(Policy, kind="local"):
    """A table over the last w released symbols, in base |Y|, kept where it is not zero.

    >>> import veilstream as vs
    >>> solution = vs.solve("builtin:grid16x16-local", weight=2.0, reach=1, window=1)
    >>> type(solution.policy).__name__, solution.policy.window
    ('LocalPolicy', 1)
    """

    by_parts: ClassVar[bool] = True
    output_model: Sparse  # r: rows START and windows s, columns y
    kernel: Sparse  # K: rows z (base, all of them) and, for w > 1, (s' + 1) |Z| + z; columns y
    shape: tuple[int, int]  # |Z|, |Y|
    window: int
    chain: MarkovChain | None = None

    def __post_init__(self) -> None:
        self.output_model.check("output model", self.n_outputs)
        self.kernel.check("kernel", self.n_outputs)
        if self.n_states < 1 or self.output_model.start[1] != self.n_outputs:
            raise InputError(f"the policy's output model must know each of its {self.n_outputs} releases at the start")
        if self.window < 0 or self.n_outputs**self.window * self.n_states > 2**62:
            raise InputError(f"window {self.window} is too long for {self.n_outputs} releases")
        keys = self.kernel.keys
        if len(keys) < self.n_states or not np.array_equal(keys[: self.n_states], np.arange(self.n_states)):
            raise InputError(f"the policy's kernel must know each of its {self.n_states} states")
        own = np.repeat(keys, np.diff(self.kernel.start)) % self.n_states * self.n_outputs + self.kernel.columns
        within = np.isin(own, own[: self.kernel.start[self.n_states]])  # what a state may show, whatever the window
        tails = self.n_outputs ** (self.window - 1) if self.window > 1 else 0
        if not within.all() or keys[-1] >= (tails + 1) * self.n_states:
            raise InputError("the policy's kernel has a row or a release that its states do not have")
        if self.output_model.keys[-1] >= self.n_outputs**self.window:
            raise InputError(f"the policy's output model has a memory longer than its window, {self.window}")
        if self.output_model.keys[0] != START:
            raise InputError("the policy's output model must say how a stream starts")
        if not (self.output_model.values > 0).all():
            raise InputError("the policy's output model makes a release impossible")

    @property
    def n_states(self) -> int:
        return self.shape[0]

    @property
    def n_outputs(self) -> int:
        return self.shape[1]

    @property
    def remembers(self) -> int:
        return self.window

    @property
    def allowed(self) -> tuple[Index, Index]:
        """What each state may show, as rows: (start, y)."""
        start = self.kernel.start[: self.n_states + 1]
        return start, self.kernel.columns[: start[-1]]

    def start(self, n: int | None = None) -> Memory:
        return np.full((() if n is None else (n,)), START, dtype=np.int64)

    def tail(self, memory: ArrayLike) -> Index:
        """The kernel's own number of a memory: s' for a window of two or more, START otherwise."""
        m = np.asarray(memory)
        return (
            np.where(m < 0, START, m % self.n_outputs ** (self.window - 1))
            if self.window > 1
            else np.full_like(m, START)
        )

    def entries(self, memory: int) -> tuple[Index, Index, Array]:
        """The channel of one memory where it is not zero: (z, y, a), by z and y."""
        start, y = self.allowed
        K = self.kernel.values[: len(y)].copy()
        tail = int(self.tail(memory))
        if tail != START:
            low, high = np.searchsorted(self.kernel.keys, (np.array([0, 1]) + tail + 1) * self.n_states)
            z, part = self.kernel.keys[low:high] % self.n_states, slice(self.kernel.start[low], self.kernel.start[high])
            own = np.repeat(z, np.diff(self.kernel.start[low : high + 1])) * self.n_outputs + self.kernel.columns[part]
            every = np.repeat(np.arange(self.n_states), np.diff(start)) * self.n_outputs + y
            K[np.searchsorted(every, own)] = self.kernel.values[part]
        r = np.full(self.n_outputs, FLOOR)
        row = self.output_model.row(memory)
        r[self.output_model.columns[row]] = self.output_model.values[row]
        a = r[y] * K
        n = np.diff(start)
        return np.repeat(np.arange(self.n_states), n), y, a / np.repeat(np.add.reduceat(a, start[:-1]), n)

    def channel(self, memory: Memory) -> Array:
        memory = np.asarray(memory)
        out = np.zeros((*memory.shape, self.n_states, self.n_outputs))
        for i in np.ndindex(memory.shape):
            z, y, a = self.entries(int(memory[i]))
            out[i][z, y] = a
        return out

    def rows(self, memory: Memory, z: Index) -> Array:
        rows, start = np.zeros((len(z), self.n_outputs)), self.allowed[0]
        for m in np.unique(memory).tolist():
            _, y, a = self.entries(m)
            here = np.flatnonzero(memory == m)
            for x in np.unique(z[here]).tolist():
                part = slice(start[x], start[x + 1])
                rows[np.ix_(here[z[here] == x], y[part])] = a[part]
        return rows

    def columns(self, memory: Memory, y: Index) -> Array:
        columns = np.zeros((len(y), self.n_states))
        for m in np.unique(memory).tolist():
            z, shown, a = self.entries(m)
            here = np.flatnonzero(memory == m)
            for v in np.unique(y[here]).tolist():
                part = shown == v
                columns[np.ix_(here[y[here] == v], z[part])] = a[part]
        return columns

    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory:
        Y, w, y = self.n_outputs, self.window, np.asarray(y, np.int64)
        after = (memory * Y + y) % Y**w
        return np.where(np.asarray(memory) == START, y * repeated(Y, w), after)

    def output_model_at(self, windows: Index, y: Index) -> Array:
        return self.output_model.at(windows % self.n_outputs**self.window, y, FLOOR)

    # --- the long run ------------------------------------------------------------------------------------

    def law_steps(self, chain: MarkovChain) -> Sequence[LawStep]:
        """Over the non-zeros where there are few, else densely."""
        if chain.is_sparse or len(chain) < LARGE:
            pattern = pattern_of(chain.sparse, Rows(*self.allowed), self.n_outputs, self.window)
            return [self.law_step(chain, pattern)]
        r, K = self._full()
        dense = WindowStep(chain, r, K, self.window)
        first, Y = First(*self.entries(START)), self.n_outputs
        m = np.zeros((Y, len(chain)))
        m[first.y, first.z] = chain.initial[first.z] * first.a
        mu = np.zeros((len(r), len(chain)))
        mu[self.update(np.full(Y, START), np.arange(Y))] = m @ chain.transition
        dense.first = Opening(mu, 1, first.bits(chain.initial, Y))
        return [dense]

    def law_step(self, chain: MarkovChain, pattern: Pattern) -> LocalStep:
        """On a pattern that holds what can occur: r and K at its entries."""
        p, Z = pattern, self.n_states
        r = self.output_model.at(p.windows[p.output_window], p.output, FLOOR)
        K = self.kernel.at(p.kernel_state, p.kernel_output, 0.0)
        if self.window > 1:
            K = self.kernel.at((p.kernel_tail + 1) * Z + p.kernel_state, p.kernel_output, K)
        return LocalStep(chain, p, r, K, First(*self.entries(START)))

    def _full(self) -> tuple[Array, Array]:
        """r and K as full tables, for a chain that makes everything possible; the start is not in them."""
        Y, Z, w = self.n_outputs, self.n_states, self.window
        r = np.full((Y**w, Y), FLOOR)
        keys = np.repeat(self.output_model.keys, np.diff(self.output_model.start))
        known = keys != START
        r[keys[known], self.output_model.columns[known]] = self.output_model.values[known]
        K = np.zeros((Y ** max(w - 1, 0), Z, Y))
        keys = np.repeat(self.kernel.keys, np.diff(self.kernel.start))
        base = keys < Z
        K[:, keys[base], self.kernel.columns[base]] = self.kernel.values[base]
        K[keys[~base] // Z - 1, keys[~base] % Z, self.kernel.columns[~base]] = self.kernel.values[~base]
        return r, K

    # --- the file ----------------------------------------------------------------------------------------

    def export(self) -> Export:
        meta = {"kind": self.kind, "window": self.window, "n_states": self.n_states, "n_outputs": self.n_outputs}
        arrays: dict[str, NDArray[Any]] = {}
        for name, table in (("output_model", self.output_model), ("kernel", self.kernel)):
            arrays |= {f"{name}_{k}": getattr(table, k) for k in ("keys", "start", "columns", "values")}
        return meta, arrays

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> "LocalPolicy":
        r, K = (
            Sparse(*(arrays[f"{name}_{k}"] for k in ("keys", "start", "columns", "values")))
            for name in ("output_model", "kernel")
        )
        return cls(r, K, (int(meta["n_states"]), int(meta["n_outputs"])), checked_window(meta), chain)
