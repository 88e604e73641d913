"""The best reverse channel of every pair (s,y) of a memory and a release, for a given potential.

What stands in the minimum of `witness` for one pair is f(z) = c(z) + theta(z) - sum_z' P(z,z') log (e^theta P)(z'),
theta = log w and c(z) = C(z,y) + (P alpha_next(s,y))(z) - alpha_s(z). The most that weights can make of it is

    V(c) = max over theta of min over z of f(z)  =  min over laws b of  b c + H(bP) - H(b)

and at the best, w = b, f is V for every z. So V is concave in c, its gradient is b, and its second derivative is -E:

    (I - P B + 1 b') d = V - f      Newton's step in theta,    B(z|z') = b(z) P(z,z') / (bP)(z')
    E = diag(b) (I - P B + 1 b')^-1 - b b'

On large chains Newton's step is taken at the likeliest states of a pair, and the others follow by theta <- theta + V -
f, which never moves away from the answer. **Any theta proves min f**: how well this is solved is quality, not truth.

States that may show y and share no successor with the others that may are a part by themselves: there is no saying
which part is likelier, so each has a V of its own. Where every transition is possible, y has one part; on a chain of
order m, where a state names the ones before it, as many as there are pasts to tell apart, each small. Releases with the
same part are a *group*, and all that is done to pairs is done to the pairs of a group at once, on its states alone.

The Newton system of `potential` (`System`) is solved by conjugate gradients: one matrix a pair, and never the whole.

    (sum_i L_i' E_i L_i) (d, g) = (right, right_g),      L_i (d, g) = P d_next - d_s - g   at the likeliest states of i

The whole has a row for every memory and state, tens of thousands, and is full. But a product with it is a small matrix
for each pair and two products with P. The preconditioner is its diagonal blocks, one a memory (E of the pairs that
start there, P' E P of those that lead there), inverted. A memory is forgotten in a few steps, so that what is
between the blocks dies out as fast: some tens of products are enough, at any size.

Potentials that do not move by themselves move with all others of their state that do not: one more block. A vector of
the system is flat: the potentials that move by themselves (S x Z, 0 elsewhere), what the others share (Z), and g.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, cg

from veilstream.model.information import Array, Index

MOST_STATES = 48  # of a pair, at which Newton's step is taken
BLOCK = 1 << 22  # numbers in an array at a time
LOWEST = -500.0  # nats: theta below the largest
LONGEST = 3.0  # nats: a change of theta
SETTLED, UNSETTLED = 1e-7, 1e-5  # nats: f is V; it is not, and more rounds are due
MORE_ROUNDS = 12


@dataclass(frozen=True, eq=False)
class Group:
    """A part that these releases have in common."""

    states: Index  # K
    successors: Index  # J
    P: Array  # K x J: from the ones to the others
    release: Index  # R
    cost: Array  # R x K, nats

    def ahead(self, alpha: Array) -> Array:
        """(P alpha_s)(z), S x K."""
        return np.asarray(alpha[:, self.successors] @ self.P.T)


def groups_of(P: Array, cost: Array) -> list[Group]:
    """cost: Y x Z, nats, infinite where forbidden."""
    releases: dict[tuple[int, ...], list[int]] = {}
    positive = (P > 0).all()
    for y, row in enumerate(cost):
        states = np.flatnonzero(np.isfinite(row))
        n, part = 1, np.zeros(len(states))
        if not positive:
            successors = csr_array(P[states] > 0, dtype=float)
            n, part = connected_components(successors @ successors.T)
        for k in range(n):
            releases.setdefault(tuple(states[part == k].tolist()), []).append(y)
    found = []
    for members, ys in releases.items():
        states, release = np.array(members), np.array(ys)
        successors = np.flatnonzero((P[states] > 0).any(0))
        found.append(Group(states, successors, P[np.ix_(states, successors)], release, cost[np.ix_(release, states)]))
    return found


class Balance(NamedTuple):
    """A theta for each of N pairs of a group, normalised, and what it gives."""

    theta: Array  # N x K, log b; LOWEST where b is nothing to speak of
    b: Array  # N x K
    bP: Array  # N x J
    f: Array  # N x K

    @property
    def value(self) -> Array:
        """V, from above: the mean of f under b."""
        return np.asarray((self.b * self.f).sum(1))

    @property
    def off(self) -> Array:
        """How far f is from V."""
        return np.asarray(self.value[:, None] - self.f)


def balance(P: Array, c: Array, theta: Array) -> Balance:
    theta = np.maximum(theta - theta.max(1, keepdims=True), LOWEST)
    theta -= np.log(np.exp(theta).sum(1, keepdims=True))
    b = np.exp(theta)
    bP = b @ P
    return Balance(theta, b, bP, c + theta - np.log(bP) @ P.T)


def follow(P: Array, c: Array, theta: Array, rounds: int) -> Balance:
    """theta <- theta + V - f, a few times: enough for pairs that are not near the minimum."""
    x = balance(P, c, theta)
    for _ in range(rounds):
        x = balance(P, c, x.theta + x.off)
    return x


class Solved(NamedTuple):
    """N pairs at their best, and the matrix of Newton's step at the k likeliest states of each."""

    theta: Array  # N x K
    b: Array  # N x K
    value: Array  # N
    at: Index  # N x k, in rising order
    inverse: Array  # (I - P B + 1 b')^-1: N x k x k

    @property
    def bend(self) -> Array:
        """E: N x k x k."""
        b = np.take_along_axis(self.b, self.at, 1)
        bend = b[:, :, None] * self.inverse
        return np.asarray((bend + bend.swapaxes(1, 2)) / 2 - b[:, :, None] * b[:, None])


def solve(P: Array, c: Array, theta: Array, rounds: int, known: Solved | None = None) -> Solved:
    """Newton's method, at most so many steps, and more where that is not enough.

    Its matrix costs more than a step, so all of them take that of the start, or of where the same pairs were solved
    before (known); only pairs that have far to go, on sticky chains, get a new one at every step.
    """
    found = []
    for part in blocks(len(c), min(c.shape[1], MOST_STATES) * P.shape[1]):
        x = balance(P, c[part], theta[part])
        by = turned(P, x) if known is None else (known.at[part], known.inverse[part])
        x = newton(P, c[part], x, rounds, by)
        slow = np.flatnonzero(np.abs(x.off).max(1) > UNSETTLED)
        if slow.size:
            further = newton(P, c[part][slow], Balance(*(v[slow] for v in x)), MORE_ROUNDS)
            for old, new in zip(x, further, strict=True):
                old[slow] = new
        found.append(Solved(x.theta, x.b, x.value, *turned(P, x)))
    return Solved(*(np.concatenate(v) for v in zip(*found, strict=True)))


def turned(P: Array, x: Balance) -> tuple[Index, Array]:
    """The likeliest states, and (I - P B + 1 b')^-1 there."""
    N, K = x.b.shape
    k = min(K, MOST_STATES)
    at = np.tile(np.arange(k), (N, 1))
    if k < K:
        at = np.sort(np.argpartition(-x.b, k - 1, axis=1)[:, :k], axis=1)
    b, here = np.take_along_axis(x.b, at, 1), P[at]  # N x k x J
    A = b[:, None] * (1 - (here / x.bP[:, None]) @ here.swapaxes(1, 2))
    np.einsum("nii->ni", A)[...] += 1
    return at, np.linalg.inv(A)


def newton(P: Array, c: Array, x: Balance, rounds: int, by: tuple[Index, Array] | None = None) -> Balance:
    """Steps until the pairs have settled, all by this matrix or each by its own."""
    for _ in range(rounds):
        off = x.off
        if np.abs(off).max(initial=0) < SETTLED:
            break
        at, inverse = by or turned(P, x)
        d = (inverse @ np.take_along_axis(off, at, 1)[..., None])[..., 0]
        d *= np.minimum(1, LONGEST / np.maximum(np.abs(d).max(1, keepdims=True), 1e-9))
        np.put_along_axis(off, at, d, 1)  # the others follow
        x = balance(P, c, x.theta + off)
    return x


def blocks(n: int, numbers: int) -> Iterator[slice]:
    """n things in turn, as many at a time as have BLOCK numbers between them; one block of none."""
    each = max(1, BLOCK // numbers)
    return (slice(first, min(n, first + each)) for first in range(0, max(n, 1), each))


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
