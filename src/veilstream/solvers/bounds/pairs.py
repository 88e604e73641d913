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
which part is likelier, so each has a V of its own. Where every transition is possible, y has one part.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from veilstream.core.information import Array, Index

MOST_STATES = 48  # of a pair, at which Newton's step is taken
BLOCK = 1 << 22  # numbers in an array at a time
LOWEST = -500.0  # nats: theta below the largest
LONGEST = 3.0  # nats: a change of theta
SETTLED, UNSETTLED = 1e-7, 1e-5  # nats: f is V; it is not, and more rounds are due
MORE_ROUNDS = 12


@dataclass(frozen=True, eq=False)
class ReleaseParts:
    """The cost of each part of each release, infinite outside it, in nats: what pairs are made of."""

    cost: Array  # Q x Z
    release: Index  # Q

    @classmethod
    def of(cls, P: Array, cost: Array) -> "ReleaseParts":
        """cost: Y x Z, nats, infinite where forbidden."""
        rows, release, positive = [], [], (P > 0).all()
        for y, row in enumerate(cost):
            states = np.flatnonzero(np.isfinite(row))
            n, group = 1, np.zeros(len(states))
            if not positive:
                successors = csr_array(P[states] > 0, dtype=float)
                n, group = connected_components(successors @ successors.T)
            for k in range(n):
                part = np.full(len(P), np.inf)
                part[states[group == k]] = row[states[group == k]]
                rows.append(part)
                release.append(y)
        return cls(np.array(rows), np.array(release))

    def costs(self, P: Array, next: Index, alpha: Array, s: Index, q: Index) -> Array:
        """c(z) of the pairs (s, q), N x Z; infinite outside the part."""
        return np.asarray(self.cost[q] + (alpha @ P.T)[next[s, self.release[q]]] - alpha[s])


@dataclass(frozen=True, eq=False)
class Balance:
    """A theta for each of N pairs, normalised, and what it gives."""

    theta: Array  # N x Z, log b; LOWEST where b is nothing to speak of, -inf outside the part
    b: Array  # N x Z
    bP: Array  # N x Z
    f: Array  # N x Z, infinite outside

    @property
    def value(self) -> Array:
        """V, from above: the mean of f under b."""
        return np.asarray((self.b * np.where(np.isfinite(self.f), self.f, 0)).sum(1))

    @property
    def least(self) -> Array:
        """V, from below."""
        return np.asarray(self.f.min(1))

    @property
    def off(self) -> Array:
        """How far f is from V, 0 outside."""
        return np.where(np.isfinite(self.f), self.value[:, None] - self.f, 0)


def balance(P: Array, c: Array, theta: Array) -> Balance:
    inside = np.isfinite(c)
    theta = np.where(inside, theta, -np.inf)
    theta = np.where(inside, np.maximum(theta - theta.max(1, keepdims=True), LOWEST), -np.inf)
    theta = theta - np.log(np.exp(theta).sum(1, keepdims=True))
    b = np.exp(theta)
    bP = b @ P
    ahead = np.log(np.where(bP > 0, bP, 1)) @ P.T
    with np.errstate(invalid="ignore"):  # inf - inf outside
        return Balance(theta, b, bP, np.where(inside, c + theta - ahead, np.inf))


def follow(P: Array, c: Array, theta: Array, rounds: int) -> Balance:
    """theta <- theta + V - f, a few times: enough for pairs that are not near the minimum."""
    x = balance(P, c, theta)
    for _ in range(rounds):
        x = balance(P, c, x.theta + x.off)
    return x


@dataclass(frozen=True, eq=False)
class Solved:
    """N pairs at their best, and how V bends at the K likeliest states of each."""

    theta: Array  # N x Z
    b: Array  # N x Z
    value: Array  # N
    at: Index  # N x K
    bend: Array  # E: N x K x K


def solve(P: Array, c: Array, theta: Array, rounds: int) -> Solved:
    """Newton's method, at most so many steps, each from where the last has led."""
    N, Z = c.shape
    K = min(Z, MOST_STATES)
    found = Solved(
        np.empty((N, Z)), np.empty((N, Z)), np.empty(N), np.empty((N, K), dtype=np.int64), np.empty((N, K, K))
    )
    for part in blocks(N, K * Z):
        at, A, x = newton(P, c[part], theta[part], rounds, K)
        slow = np.flatnonzero(np.abs(x.off).max(1) > UNSETTLED)
        if slow.size:  # a few pairs of a sticky chain have far to go
            at[slow], A[slow], further = newton(P, c[part][slow], x.theta[slow], MORE_ROUNDS, K)
            for name in ("theta", "b", "bP", "f"):
                getattr(x, name)[slow] = getattr(further, name)
        b = np.take_along_axis(x.b, at, 1)
        bend = b[:, :, None] * np.linalg.inv(A)
        found.theta[part], found.b[part], found.value[part], found.at[part] = x.theta, x.b, x.value, at
        found.bend[part] = (bend + bend.swapaxes(1, 2)) / 2 - b[:, :, None] * b[:, None]
    return found


def newton(P: Array, c: Array, theta: Array, rounds: int, K: int) -> tuple[Index, Array, Balance]:
    """The likeliest states, I - P B + 1 b' there, and the pairs after `rounds` steps or when they have settled."""
    x, i = balance(P, c, theta), np.arange(K)
    for k in range(rounds + 1):
        at = np.argpartition(-x.b, K - 1, axis=1)[:, :K] if c.shape[1] > K else np.tile(i, (len(c), 1))
        b = np.take_along_axis(x.b, at, 1)
        here = P[at]  # N x K x Z
        A = b[:, None] * (1 - (here / np.where(x.bP > 0, x.bP, 1)[:, None]) @ here.swapaxes(1, 2))
        A[:, i, i] += 1
        off = x.off
        if k == rounds or np.abs(off).max(initial=0) < SETTLED:
            break
        d = np.linalg.solve(A, np.take_along_axis(off, at, 1)[..., None])[..., 0]
        d *= np.minimum(1, LONGEST / np.maximum(np.abs(d).max(1, keepdims=True), 1e-9))
        step = np.zeros_like(off)
        np.put_along_axis(step, at, d, 1)
        x = balance(P, c, x.theta + step)
        for _ in range(2 if c.shape[1] > K else 0):  # the others
            step = x.off
            np.put_along_axis(step, at, 0.0, 1)
            x = balance(P, c, x.theta + step)
    return at, A, x


def blocks(n: int, numbers: int) -> Iterator[slice]:
    """n things in turn, as many at a time as have BLOCK numbers between them."""
    each = max(1, BLOCK // numbers)
    return (slice(first, min(n, first + each)) for first in range(0, n, each))


def weights(parts: ReleaseParts, theta: Array, n_outputs: int) -> Array:
    """w_sy(z), S x Y x Z, from theta of all pairs, S x Q x Z. How parts of a release compare changes nothing."""
    w = np.zeros((len(theta), n_outputs, theta.shape[2]))
    for q, y in enumerate(parts.release):
        w[:, y] += np.exp(theta[:, q])
    return w
