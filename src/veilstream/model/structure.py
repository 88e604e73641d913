"""Stochastic matrices: whether one is, its classes, where it ends, its periods, powers and stationary law."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from veilstream.errors import InputError
from veilstream.model.information import Array, Index, normalised

ROW_TOLERANCE = 1e-6
ROUNDING = 1e-12  # rows this close to 1 stay as they are: what was saved is what is loaded


def checked_stochastic(values: ArrayLike, what: str) -> Array:
    """`values` as probabilities whose last axis sums to 1, or a line saying which row does not."""
    try:
        p = np.array(values, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be an array of numbers with rows of equal length") from None
    if p.size == 0:
        raise InputError(f"{what} is empty: a chain needs at least one state")
    if np.isnan(p).any() or np.isinf(p).any():
        raise InputError(f"{what} has an entry that is not a finite number")
    if (p < 0).any():
        raise InputError(f"{what} has a negative entry ({p.min():g}); probabilities are >= 0")
    sums = np.atleast_1d(p.sum(-1))
    worst = int(np.abs(sums - 1).argmax()) if p.ndim <= 2 else 0
    if abs(sums.ravel()[worst] - 1) > ROW_TOLERANCE:
        row = f"row {worst} " if p.ndim == 2 else ""
        raise InputError(f"{what} {row}sums to {sums.ravel()[worst]:g}; it must sum to 1")
    total = p.sum(-1, keepdims=True)
    return np.where(np.abs(total - 1) <= ROUNDING, p, p / total)


def closed_classes(P: Array) -> list[Index]:
    """The communicating classes that are never left."""
    if (P > 0).all():
        return [np.arange(len(P))]
    from scipy.sparse import csr_array  # here: it costs more to import than all the rest
    from scipy.sparse.csgraph import connected_components

    n, label = connected_components(csr_array(P > 0), connection="strong")
    i, j = np.nonzero(P)
    left = np.isin(np.arange(n), label[i][label[i] != label[j]])
    return [np.flatnonzero(label == k) for k in np.flatnonzero(~left)]


def absorption(P: Array, closed: Sequence[Index]) -> Array:
    """A(z, k) = P(the chain ends in closed class k | it starts in z),  |Z| x classes."""
    A = np.zeros((len(P), len(closed)))
    for k, states in enumerate(closed):
        A[states, k] = 1
    transient = np.flatnonzero(A.sum(1) == 0)
    if transient.size:
        rest = np.setdiff1d(np.arange(len(P)), transient)
        stay, leave = P[np.ix_(transient, transient)], P[np.ix_(transient, rest)]
        A[transient] = np.linalg.solve(np.eye(transient.size) - stay, leave @ A[rest])
    return A


def period(P: Array, closed: Sequence[Index]) -> int:
    """The greatest period among the closed classes (1: aperiodic)."""
    longest = 1
    for states in closed:
        if P[states, states].any():  # a state that can stay
            continue
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order

        edges = csr_array(P[np.ix_(states, states)] > 0)
        order, parent = breadth_first_order(edges, 0)
        level = np.zeros(len(states), dtype=int)
        for i in order[1:]:
            level[i] = level[parent[i]] + 1
        i, j = edges.nonzero()
        longest = max(longest, int(np.gcd.reduce(level[i] + 1 - level[j])))
    return longest


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
