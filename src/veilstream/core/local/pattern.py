"""Which (window, state, release) can occur: the non-zeros that a local problem is solved on.

With transitions P and the releases each state may show, and windows s of the last w releases written in base |Y|:

    entries  e = (s, z)       z can be the state when s was released last                      mu, alpha
    outputs  o = (s, y)       y may be shown by some z of s                                    r
    kernel   k = (s', z, y)   s' is s without its oldest symbol                                K
    triples  t = (s, z, y)    z of s may show y                                                the channel a

The set is closed: after (s, z, y) come exactly the entries (s'y, z') with P(z, z') > 0. With local moves and local
releases all of these grow like |Z|. What a sweep or a step needs is then sums over triples, as sparse products whose
pattern never changes:

    N(e) = sum_y r(o) K(k),     p(o) = r(o) sum_z share(e) K(k),     arrived(k) = K(k) sum_s r(o) share(e)
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from veilstream.core.information import Array, Index
from veilstream.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

LARGEST_KEY = 2**62


@dataclass(frozen=True, eq=False)
class Rows:
    """Lists of unequal length, one after the other: row i is `items[start[i]:start[i + 1]]`."""

    start: Index
    items: Index

    @classmethod
    def of(cls, mask: NDArray[np.bool_]) -> "Rows":
        """The columns that are True in each row."""
        start = np.concatenate([[0], np.cumsum(mask.sum(1))])
        return cls(start, np.nonzero(mask)[1])

    @property
    def length(self) -> Index:
        return np.diff(self.start)

    def expand(self, which: Index) -> tuple[Index, Index]:
        """The rows `which` laid end to end: (place in `which`, place in `items`) of every item."""
        n = self.length[which]
        source = np.repeat(np.arange(len(which)), n)
        first = np.cumsum(n) - n
        return source, np.arange(len(source)) - np.repeat(first - self.start[which], n)


@dataclass(frozen=True, eq=False)
class Pattern:
    """Made by `pattern_of`; all index arrays are flat."""

    n_states: int
    n_outputs: int
    window: int
    windows: Index  # code of every window s, ascending
    entry_window: Index  # E: place of s in `windows`
    entry_state: Index  # E
    output_start: Index  # S + 1: the outputs of each window lie together
    output: Index  # O: y
    kernel_tail: Index  # k: code of s'
    kernel_state: Index
    kernel_output: Index
    kernel_row: Index  # k: number of its (s', z)
    row_start: Index  # the kernel entries of each (s', z) lie together
    triple_start: Index  # E + 1: the triples of each entry lie together
    triple_output: Index  # T: place in `output`
    triple_kernel: Index  # T: place in the kernel
    follow: "csr_array"  # k x E: P(z, z') from (s', z, y) to (s'y, z')

    @property
    def n_triples(self) -> int:
        return len(self.triple_output)

    @property
    def nonzeros(self) -> int:
        """Multiplications in one pass: every triple, and every transition of every kernel entry."""
        return self.n_triples + int(self.follow.nnz)

    @cached_property
    def entry_row(self) -> Index:
        """The kernel row (s', z) of every entry."""
        return self.kernel_row[self.triple_kernel[self.triple_start[:-1]]]

    @cached_property
    def output_window(self) -> Index:
        return np.repeat(np.arange(len(self.windows)), np.diff(self.output_start))

    @cached_property
    def by_kernel(self) -> tuple[Index, Index, Index]:
        """The triples sorted by kernel entry: order, start of each kernel entry, their entries."""
        order = np.argsort(self.triple_kernel, kind="stable")
        start = np.concatenate([[0], np.cumsum(np.bincount(self.triple_kernel, minlength=len(self.kernel_row)))])
        return order, start, np.repeat(np.arange(len(self.entry_state)), np.diff(self.triple_start))[order]

    def by_output(self, x: Array) -> Array:
        """sum over y of x(s, y), for each window."""
        return np.add.reduceat(x, self.output_start[:-1], axis=-1)


class Products:
    """The three sums over triples, for one r and one K at a time."""

    def __init__(self, pattern: Pattern, dtype: Any = np.float64) -> None:
        from scipy.sparse import csr_array

        p = pattern
        self.pattern = p
        self.order, start, entries = p.by_kernel
        E, O, n = len(p.entry_state), len(p.output), len(p.kernel_row)
        blank = np.zeros(p.n_triples, dtype)
        self.from_r = csr_array((blank, p.triple_output, p.triple_start), (E, O))
        self.from_share = csr_array((blank.copy(), entries, start), (n, E))
        self.to_output = self.from_r.T  # shares the numbers: always the transpose of what `normaliser` was given
        self.triple_output_by_kernel = p.triple_output[self.order]

    def normaliser(self, r: Array, K: Array) -> Array:
        """N(e) = sum_y r K; K is kept for `outputs`."""
        np.take(K, self.pattern.triple_kernel, out=self.from_r.data, mode="clip")  # clip: not buffered
        return np.asarray(self.from_r @ r)

    def outputs(self, share: Array) -> Array:
        """sum_z share(e) K(k) for every output."""
        return np.asarray(self.to_output @ share)

    def arrived(self, r: Array, K: Array, share: Array) -> Array:
        """K(k) sum_s r(o) share(e) for every kernel entry."""
        np.take(r, self.triple_output_by_kernel, out=self.from_share.data, mode="clip")
        return np.asarray(K * (self.from_share @ share))


def pattern_of(
    transition: "csr_array", allowed: Rows, n_outputs: int, window: int, most_triples: float = np.inf
) -> Pattern:
    """The pattern of a chain (csr) and of what each state may show; refused beyond `most_triples`."""
    Z, Y = transition.shape[0], n_outputs
    if Y**window * max(Y, Z) > LARGEST_KEY:
        raise InputError(f"window {window} over {Y} releases has more memories than can be numbered; use a smaller one")
    moves = Rows(transition.indptr.astype(np.int64), transition.indices.astype(np.int64))
    code, state = np.zeros(Z, np.int64), np.arange(Z)
    for _ in range(window):  # windows grow by one release at a time
        code, state = _reached(code, state, allowed, moves, Y, Z, most_triples)
    _check_size(int(allowed.length[state].sum()), most_triples)
    entry, at = allowed.expand(np.arange(Z)[state])
    y, tail = allowed.items[at], code[entry] % max(Y ** (window - 1), 1)
    windows, entry_window = np.unique(code, return_inverse=True)
    outputs, triple_output = np.unique(entry_window[entry] * Y + y, return_inverse=True)
    rows, row = np.unique(tail * Z + state[entry], return_inverse=True)
    kernel, triple_kernel = np.unique(row * Y + y, return_inverse=True)
    kernel_row, kernel_output = np.divmod(kernel, Y)
    kernel_tail, kernel_state = np.divmod(rows[kernel_row], Z)
    source, at = moves.expand(kernel_state)
    newest = (kernel_tail * Y + kernel_output)[source] if window else np.zeros(len(source), np.int64)
    to = np.searchsorted(code * Z + state, newest * Z + moves.items[at])
    from scipy.sparse import csr_array

    start = np.concatenate([[0], np.cumsum(moves.length[kernel_state])])
    return Pattern(
        n_states=Z,
        n_outputs=Y,
        window=window,
        windows=windows,
        entry_window=entry_window,
        entry_state=state,
        output_start=np.searchsorted(outputs, np.arange(len(windows) + 1) * Y),
        output=outputs % Y,
        kernel_tail=kernel_tail,
        kernel_state=kernel_state,
        kernel_output=kernel_output,
        kernel_row=kernel_row,
        row_start=np.searchsorted(kernel_row, np.arange(len(rows))),
        triple_start=np.concatenate([[0], np.cumsum(allowed.length[state])]),
        triple_output=triple_output,
        triple_kernel=triple_kernel,
        follow=csr_array((transition.data[at], to, start), (len(kernel), len(state))),
    )


def _reached(code: Index, state: Index, allowed: Rows, moves: Rows, Y: int, Z: int, most: float) -> tuple[Index, Index]:
    """(s, z) -> all (s.y, z') one step later, ascending."""
    _check_size(int(allowed.length[state].sum()), most)
    entry, at = allowed.expand(state)
    longer = np.unique((code[entry] * Y + allowed.items[at]) * Z + state[entry])  # (s.y, z)
    source, at = moves.expand(longer % Z)
    _check_size(len(source), most)
    return np.divmod(np.unique((longer // Z)[source] * Z + moves.items[at]), Z)


def _check_size(triples: int, most: float) -> None:
    if triples > most:
        raise TooLarge(triples)


class TooLarge(Exception):
    """More triples than asked for; `args[0]` of them at the least."""
