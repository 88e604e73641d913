"""From the symbols of a stream to the states of its chain: what a chain of order m must know of the past."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from veilstream.model.chain import MarkovChain
from veilstream.model.information import Index

BLIND = -1  # as a true symbol or state: there is none to look at


@dataclass(frozen=True, eq=False)
class TrueStates:
    """From the true symbols x of a stream to the states z of its chain, one symbol at a time.

    For order 1 they are the same. For order m the last z is the private memory (it stands for the last m symbols):
    z_t = following[z_{t-1}, x_t], the longest known beginning of the new history; after a gap z_t = first[x_t].
    """

    first: Index  # n_symbols
    following: Index | None  # |Z| x n_symbols; None for order 1

    @classmethod
    def of(cls, chain: MarkovChain) -> "TrueStates":
        n = chain.n_symbols
        if chain.histories is None:
            return cls.plain(n)
        longest: dict[tuple[int, ...], int] = {}
        for z in np.argsort(chain.initial):  # a beginning that is no state itself: its likeliest continuation
            h = chain.histories[z]
            longest |= {h[:k]: int(z) for k in range(1, len(h))}
        longest |= {h: z for z, h in enumerate(chain.histories)}
        following = np.empty((len(chain), n), dtype=np.int64)
        for z, h in enumerate(chain.histories):
            for x in range(n):
                new = (x, *h)[: chain.order]
                while new not in longest:
                    new = new[:-1]
                following[z, x] = longest[new]
        return cls(np.array([longest[(x,)] for x in range(n)]), following)

    @classmethod
    def plain(cls, n: int) -> "TrueStates":
        """Of any chain of order 1 on n symbols."""
        return cls(np.arange(n), None)

    def __call__(self, last: Index, x: Index) -> Index:
        """z of each stream from its last z and its new x; BLIND in `last`: no usable past; in `x`: nothing read."""
        z = self.first[x]
        if self.following is not None:
            z = np.where(last == BLIND, z, self.following[last, x])
        return np.where(x == BLIND, BLIND, z)

    def after_gap(self, chain: MarkovChain) -> Index:
        """phi_k(z) for k = 1, 2, ...: the state whose row is drawn from in truth z, k symbols after a gap.

        The last k symbols of z's history are all that is known then. As many rows as it takes to know all of it;
        none for order 1.
        """
        rows = [np.array([self.along(h[:k][::-1])[-1] for h in chain.histories or ()]) for k in range(1, chain.order)]
        return np.array(rows, np.int64).reshape(len(rows), len(chain))

    def along(self, sequence: Iterable[int]) -> Index:
        """The states z along one sequence of symbols, from its start."""
        x = np.asarray(sequence, np.int64)
        if self.following is None:
            return x
        z = np.empty(len(x), np.int64)
        for t, symbol in enumerate(x.tolist()):
            z[t] = self.following[z[t - 1], symbol] if t else self.first[symbol]
        return z
