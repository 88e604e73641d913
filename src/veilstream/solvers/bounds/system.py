"""The Newton system of `potential`, by conjugate gradients: one matrix a pair, and never the whole.

    (sum_i L_i' E_i L_i) (d, g) = (right, right_g),      L_i (d, g) = P d_next - d_s - g   at the likeliest states of i

The whole has a row for every memory and state, tens of thousands, and is full. But a product with it is a small matrix
for each pair and two products with P. The preconditioner is its diagonal blocks, one a memory (E of the pairs that
start there, P' E P of those that lead there), inverted. A memory is forgotten in a few steps, so that what is
between the blocks dies out as fast: some tens of products are enough, at any size.

Potentials that do not move by themselves move with all others of their state that do not: one more block. A vector of
the system is flat: the potentials that move by themselves (S x Z, 0 elsewhere), what the others share (Z), and g.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, cg

from veilstream.model.information import Array, Index
from veilstream.solvers.bounds.pairs import Group

RIDGE = 1e-10, 1e-12  # of a number's own diagonal, of their mean
SINGULAR = 1e-9  # of the diagonal of a block: alpha + constant changes nothing


class Piece(NamedTuple):
    """The pairs of a group that are part of the system."""

    group: Group
    s: Index  # N: from which memory
    to: Index  # N: to which
    at: Index  # N x k: at which states of the group, in rising order
    E: Array  # N x k x k

    @property
    def whole(self) -> bool:
        """Whether `at` is all states of the group."""
        return bool(self.at.shape[1] == len(self.group.states))

    def spread(self, v: Array) -> Array:
        """N x k -> N x K."""
        if self.whole:
            return v
        wide = np.zeros((len(v), len(self.group.states)))
        np.put_along_axis(wide, self.at, v, 1)
        return wide


class System:
    def __init__(self, own: NDArray[np.bool_], pieces: list[Piece]) -> None:
        self.own, self.pieces = own, pieces
        self.by = [(summing(x.s, len(own)), summing(x.to, len(own))) for x in pieces]
        self.ridge, self.blocks, self.common, self.total = self._diagonal()

    def wide(self, x: Array) -> tuple[Array, float]:
        """d (S x Z) and g of a flat vector."""
        S, Z = self.own.shape
        return np.where(self.own, x[: S * Z].reshape(S, Z), x[S * Z : -1]), float(x[-1])

    def flat(self, d: Array, g: float) -> Array:
        """What pulls at potentials that move together adds up."""
        return np.concatenate([np.where(self.own, d, 0).ravel(), np.where(self.own, 0, d).sum(0), [g]])

    def forward(self, d: Array, g: float) -> list[Array]:
        """L (d, g), at the likeliest states of the pairs of each piece."""
        found = []
        for x in self.pieces:
            u = x.group.ahead(d)[x.to] - d[:, x.group.states][x.s] - g
            found.append(u if x.whole else np.take_along_axis(u, x.at, 1))
        return found

    def back(self, v: list[Array]) -> tuple[Array, float]:
        """L' v."""
        d = np.zeros(self.own.shape)
        for x, (s, to), v_x in zip(self.pieces, self.by, v, strict=True):
            wide = x.spread(v_x)
            d[:, x.group.states] -= s @ wide
            d[:, x.group.successors] += (to @ wide) @ x.group.P
        return d, -sum(float(v_x.sum()) for v_x in v)

    def times(self, x: Array) -> Array:
        u = self.forward(*self.wide(x))
        pulls = [(piece.E @ u_x[..., None])[..., 0] for piece, u_x in zip(self.pieces, u, strict=True)]
        return self.flat(*self.back(pulls)) + self.ridge * x

    def eased(self, x: Array) -> Array:
        """The preconditioner."""
        S, Z = self.own.shape
        d = (self.blocks @ x[: S * Z].reshape(S, Z, 1)).ravel()
        return np.concatenate([d, self.common @ x[S * Z : -1], x[-1:] / self.total])

    def _diagonal(self) -> tuple[Array, Array, Array, float]:
        """A ridge, and the inverted blocks: one a memory (S x Z x Z), one that the others share, one of g."""
        S, Z = self.own.shape
        M = np.zeros((S, Z, Z))
        for x, (s, to) in zip(self.pieces, self.by, strict=True):
            K, P = len(x.group.states), x.group.P
            if x.whole:
                starts, leads = (sums @ x.E.reshape(len(x.s), -1) for sums in (s, to))
            else:
                starts, leads = np.zeros((2, S, K, K))
                here = x.at[:, :, None], x.at[:, None]
                np.add.at(starts, (x.s[:, None, None], *here), x.E)
                np.add.at(leads, (x.to[:, None, None], *here), x.E)
            states, successors = x.group.states, x.group.successors
            M[:, states[:, None], states] += starts.reshape(S, K, K)
            M[:, successors[:, None], successors] += P.T @ leads.reshape(S, K, K) @ P
        shared = np.einsum("si,sij,sj->ij", ~self.own, M, ~self.own, optimize=True)
        M *= self.own[:, :, None] & self.own[:, None]
        total = sum(float(x.E.sum()) for x in self.pieces)
        diagonal = np.concatenate([np.einsum("sii->si", M).ravel(), np.diag(shared), [0.0]])
        ridge = RIDGE[0] * diagonal + RIDGE[1] * diagonal.mean() + 1e-250
        return ridge, inverted(M), inverted(shared[None])[0], total

    def solve(self, right: tuple[Array, float], tolerance: float, most: int) -> tuple[Array, float]:
        """Conjugate gradients, until the residual has fallen by `tolerance`. Raises LinAlgError where it cannot."""
        r = self.flat(*right)
        times, eased = (LinearOperator((r.size, r.size), f, dtype=float) for f in (self.times, self.eased))
        x, _ = cg(times, r, rtol=tolerance, maxiter=most, M=eased)
        if not np.isfinite(x).all():
            raise np.linalg.LinAlgError("the Newton system is not positive")
        return self.wide(x)


def inverted(M: Array) -> Array:
    """The inverse of each block, scaled to a diagonal of 1 and a little more; M is used up."""
    diagonal = np.einsum("sii->si", M)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1))
    M *= scale[:, :, None] * scale[:, None]
    diagonal[...] = np.where(diagonal > 0, diagonal, 1) + SINGULAR
    return np.asarray(np.linalg.inv(M) * scale[:, :, None] * scale[:, None])


def summing(where: Index, n: int) -> csr_array:
    """The matrix that adds up rows by where they belong."""
    return csr_array((np.ones(len(where)), (where, np.arange(len(where)))), (n, len(where)))
