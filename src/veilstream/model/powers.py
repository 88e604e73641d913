"""Powers of a transition matrix that stay stochastic, for any number of steps."""

from collections.abc import Iterator

import numpy as np

from veilstream.model.information import Array, normalised

SETTLED = 1e-12  # largest entry in which P^(2^j) and its square may differ and count as the same


class Powers:
    """P^k as a product of P, P^2, P^4, ..., each made when first asked for and kept.

    Every one of these is made stochastic again, or rounding would eat the law; once squaring changes nothing the rest
    of k is nothing to wait for.
    """

    def __init__(self, P: Array) -> None:
        self._doublings, self._settled = [P], 1 << 30

    def law(self, b: Array, k: int) -> Array:
        """b P^k along the last axis: a law k steps later."""
        for P in self._factors(k):
            b = b @ P
        return b / b.sum(-1, keepdims=True) if k > 1 else b

    def _factors(self, k: int) -> Iterator[Array]:
        for j in range(int(k).bit_length()):
            settled = j >= self._settled
            if settled or k >> j & 1:
                yield self._doubling(j)
            if settled:
                break

    def _doubling(self, j: int) -> Array:
        while len(self._doublings) <= min(j, self._settled):
            last = self._doublings[-1]
            square = last @ last
            square /= square.sum(1, keepdims=True)
            if np.abs(square - last).max() <= SETTLED:
                self._settled = len(self._doublings)
            self._doublings.append(square)
        return self._doublings[min(j, self._settled)]


def stationary_law(P: Array) -> Array:
    """pi P = pi for an irreducible P, by elimination without subtractions (Grassmann, Taksar, Heyman 1985)."""
    A = P.copy()
    n = len(A)
    for k in range(n - 1, 0, -1):
        A[:k, k] /= A[k, :k].sum()
        A[:k, :k] += np.outer(A[:k, k], A[k, :k])
    pi = np.ones(n)
    for k in range(1, n):
        pi[k] = pi[:k] @ A[:k, k]
    return normalised(pi)
