"""The best bound for a memory: a concave programme over the potential alone.

    maximise g   subject to   V_i(alpha) >= g   for every pair i = (s,y)

V_i is the most that weights can prove for the pair (`pairs`), concave in the potential. The multipliers p_i are the
probabilities of the pairs under the mechanism that is hardest to bound. One step of the primal-dual interior-point
method (infeasible, with slacks F for V - g; Nocedal and Wright 2006, ch. 19) linearises

    sum p_i grad V_i = 0,  sum p_i = 1,      V_i - g - F_i = 0,      p_i F_i = tau

and is one linear system in alpha and g, of the matrix sum_i L_i' (p_i E_i + p_i/F_i b_i b_i') L_i, where L_i takes
alpha to P alpha_next - alpha_s (`system`).

On large chains not all of it is worth a Newton step. A pair that the mechanism would hardly use is part of it only when
it comes near the minimum (*active*). And where a state is rare in a memory (she was seen here and is now far off),
the potentials of that state in all such memories move together: what comes depends on where she is, not on where she
was thought to be. Any alpha on the way gives a valid bound: what is left out here is quality, not truth.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from veilstream.model.information import Array, Index
from veilstream.solvers.bounds.pairs import Group, Piece, Solved, System, blocks, follow, solve

TO_THE_BOUNDARY = 0.9
CENTRING = 0.2
INSIDE = 0.1  # a first iterate has no product p F below this part of the mean
BELOW = 0.02  # nats: where g starts, below the least V
SMALL = 48  # states of a part up to which all pairs are active and all potentials move by themselves, ...
FEW_PAIRS = 20_000_000  # ... if there are at most so many products pairs x states x states
RARE = 4e-3  # beyond: a state less likely than this in a memory moves with the others
NEAR = 0.3  # a pair with less than this on states that are not rare ...
FEW = 3  # ... is one of many alike: so many of a release are enough
USED = 1e-5  # a pair that likely is active from the start
SEVERAL = 600  # and so are as many of the lowest
CLOSE = 0.01  # and one this far above the mean, relative
MARGIN = 3e-3  # relative: one this far above g becomes active
FIRST_ROUNDS, ROUNDS, FOLLOWING = 20, 16, 3  # of Newton's method at the start and after a step; of the other pairs
TRIES = 8  # of a step, each half of the last
RIGHT, MOST_PRODUCTS = 5e-4, 400  # the residual of a Newton step, relative, and what may be spent on it
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Pairs:
    """All pairs of a group, memory by memory: N = S x R."""

    group: Group
    s: Index  # N
    r: Index  # N: which release of the group
    to: Index  # N
    theta: Array  # N x K
    p: Array  # N, multipliers
    F: Array  # N, slacks of active pairs
    active: Mask  # N
    solved: Solved  # the active ones

    def costs(self, alpha: Array, which: Mask | Index) -> Array:
        """c(z) of these pairs, N x K."""
        ahead, here = self.group.ahead(alpha), alpha[:, self.group.states]
        return np.asarray(self.group.cost[self.r[which]] + ahead[self.to[which]] - here[self.s[which]])

    def solve(self, alpha: Array, which: Mask, rounds: int, known: Solved | None = None) -> Solved:
        return solve(self.group.P, self.costs(alpha, which), self.theta[which], rounds, known)

    def follow(self, alpha: Array, which: Mask, rounds: int) -> tuple[Array, Array, Array]:
        """theta with these pairs brought nearer to their best, and V of all pairs from above and from below."""
        theta, (value, least) = self.theta.copy(), np.full((2, len(self.s)), np.inf)
        rows = np.flatnonzero(which)
        for part in blocks(len(rows), theta.shape[1]):
            i = rows[part]
            x = follow(self.group.P, self.costs(alpha, i), theta[i], rounds)
            theta[i], value[i], least[i] = x.theta, x.value, x.f.min(1)
        return theta, value, least

    @property
    def place(self) -> tuple[Index, Index, Index]:
        """Where theta stands in an array S x Y x Z."""
        return self.s[:, None], self.group.release[self.r][:, None], self.group.states[None]


@dataclass(frozen=True, eq=False)
class Ascent:
    next: Index  # S x Y
    alpha: Array  # S x Z
    own: Mask  # S x Z: which potentials move by themselves
    g: float
    pairs: list[Pairs]

    @property
    def gap(self) -> float:
        """sum p F: nats that this memory may still have to give."""
        return sum(float((x.p * x.F)[x.active].sum()) for x in self.pairs)

    @property
    def value(self) -> float:
        """The mean of V, in nats."""
        p = [x.p[x.active] for x in self.pairs]
        return sum(float(p_x @ x.solved.value) for p_x, x in zip(p, self.pairs, strict=True)) / sum(map(np.sum, p))

    @property
    def n_active(self) -> int:
        return sum(int(x.active.sum()) for x in self.pairs)

    @property
    def size(self) -> int:
        """Numbers in all theta."""
        return sum(x.theta.size for x in self.pairs)

    @property
    def weights(self) -> Array:
        """w_sy(z), S x Y x Z. How parts of a release compare changes nothing."""
        return self._whole([np.exp(x.theta) for x in self.pairs])

    @property
    def m(self) -> Array:
        """The occupancies of the mechanism that is hardest to bound, S x Y x Z."""
        total = sum(float(x.p.sum()) for x in self.pairs)
        return self._whole([(x.p / total)[:, None] * np.exp(x.theta) for x in self.pairs])

    def _whole(self, of_pairs: list[Array]) -> Array:
        found = np.zeros((*self.next.shape, self.alpha.shape[1]))
        for x, part in zip(self.pairs, of_pairs, strict=True):
            found[x.place] = part
        return found


def start(groups: list[Group], next: Index, log_m: Array, alpha: Array) -> Ascent:
    """A first iterate from occupancies (log m: S x Y x Z) and a potential (S x Z)."""
    work = sum(len(next) * len(x.release) * len(x.states) ** 2 for x in groups)
    few = work <= FEW_PAIRS and max(len(x.states) for x in groups) <= SMALL
    found, values = [], []
    for group in groups:
        s, r = (i.ravel() for i in np.indices((len(next), len(group.release))))
        to, none = next[s, group.release[r]], np.zeros(len(s), dtype=bool)
        theta = log_m[s[:, None], group.release[r][:, None], group.states[None]]
        nothing = solve(group.P, np.zeros((0, len(group.states))), theta[:0], 0)
        x = Pairs(group, s, r, to, theta, np.exp(theta).sum(1), np.ones(len(s)), none, nothing)
        theta, value, _ = x.follow(alpha, ~none, 2 * FOLLOWING)
        found.append(replace(x, theta=theta))
        values.append(value)
    total = sum(float(x.p.sum()) for x in found)
    found = [replace(x, p=np.maximum(x.p / total, 1e-9)) for x in found]
    own = np.ones(alpha.shape, dtype=bool) if few else likely(alpha.shape, found)
    everything = np.sort(np.concatenate(values))
    mean = sum(float(x.p @ v) for x, v in zip(found, values, strict=True)) / sum(float(x.p.sum()) for x in found)
    low = max(mean + CLOSE * abs(mean), everything[min(SEVERAL, len(everything)) - 1] + 1e-9)
    for k, (x, value) in enumerate(zip(found, values, strict=True)):
        active = few | wanted(x, own, value, low) | (x.p > USED)
        solved = x.solve(alpha, active, FIRST_ROUNDS)
        x.theta[active] = solved.theta
        found[k] = replace(x, active=active, solved=solved)
    return inside(Ascent(next, alpha, own, 0.0, found), BELOW)


def likely(shape: tuple[int, ...], pairs: list[Pairs]) -> Mask:
    """Which states are not rare in a memory, S x Z."""
    law = np.zeros(shape)
    for x in pairs:
        for s, at in enumerate(np.split(np.arange(len(x.s)), shape[0])):
            law[s, x.group.states] += x.p[at] @ np.exp(x.theta[at])
    return np.asarray(law >= RARE * law.sum(1, keepdims=True))


def wanted(x: Pairs, own: Mask, value: Array, below: float) -> Mask:
    """Pairs to look at among those with a V below this: all near ones, a few of each release that are far off."""
    low = value < below
    if own.all():
        return low
    rows = np.flatnonzero(low)
    near = np.zeros(len(low), dtype=bool)
    near[rows] = (np.exp(x.theta[rows]) * own[:, x.group.states][x.s[rows]]).sum(1) > NEAR
    far = np.where(low & ~near, value, np.inf).reshape(-1, len(x.group.release))
    lowest = np.zeros_like(far, dtype=bool)
    np.put_along_axis(lowest, np.argsort(far, axis=0)[:FEW], True, 0)
    return np.asarray((low & near) | (lowest & np.isfinite(far)).ravel())


def refined(x: Ascent, parent: Index, next: Index, weight: Array, margin: float) -> Ascent:
    """The same on a finer memory, `margin` nats further inside.

    Every state does as its parent did, and shares its multipliers by weight.
    """
    n_children = np.bincount(parent)[parent]
    share = np.maximum(weight / np.maximum(np.bincount(parent, weight)[parent], 1e-300), 0.1 / n_children)
    alpha, found = x.alpha[parent], []
    for old in x.pairs:
        R = len(old.group.release)
        s, r = (i.ravel() for i in np.indices((len(parent), R)))
        i = parent[s] * R + r
        new = replace(
            old, s=s, r=r, to=next[s, old.group.release[r]], theta=old.theta[i], p=old.p[i] * share[s], F=old.F[i]
        )
        active = old.active[i]
        solved = new.solve(alpha, active, 1)
        new.theta[active] = solved.theta
        found.append(replace(new, active=active, solved=solved))
    own = x.own[parent] if x.own.all() else likely(alpha.shape, found)
    return inside(Ascent(next, alpha, own, x.g, found), margin)


def inside(x: Ascent, below: float) -> Ascent:
    """g below every V, and no product p F far below the mean."""
    g = min(float(part.solved.value.min(initial=np.inf)) for part in x.pairs) - below
    for part in x.pairs:
        part.F[part.active] = part.solved.value - g
    x = replace(x, g=g)
    least = INSIDE * x.gap / x.n_active
    pairs = [replace(part, p=np.where(part.active, np.maximum(part.p, least / part.F), part.p)) for part in x.pairs]
    return replace(x, pairs=pairs)


def step(x: Ascent) -> Ascent:
    """One Newton step towards equal products p F, CENTRING times what they are.

    Raises LinAlgError when precision runs out.
    """
    tau = CENTRING * x.gap / x.n_active
    pieces, pulls, residuals = [], [], []
    for part in x.pairs:
        a, solved = part.active, part.solved
        p, F, b = part.p[a], part.F[a], np.take_along_axis(solved.b, solved.at, 1)
        residual = solved.value - x.g - F
        E = p[:, None, None] * solved.bend + (p / F)[:, None, None] * b[:, :, None] * b[:, None]
        pieces.append(Piece(part.group, part.s[a], part.to[a], solved.at, E))
        pulls.append((tau / F - p / F * residual)[:, None] * b)
        residuals.append(residual)
    system = System(x.own, pieces)
    right, right_g = system.back(pulls)
    d_alpha, d_g = system.solve((right, 1 + right_g), RIGHT, MOST_PRODUCTS)
    tangents = [
        (part.solved.b * (part.group.ahead(d_alpha)[piece.to] - d_alpha[:, part.group.states][piece.s])).sum(1)
        for part, piece in zip(x.pairs, pieces, strict=True)
    ]
    return moved(x, d_alpha, d_g, tangents, residuals, tau)


def moved(x: Ascent, d_alpha: Array, d_g: float, tangents: list[Array], residuals: list[Array], tau: float) -> Ascent:
    """As far along a Newton step as slacks and multipliers stay positive, and V bends less than they allow."""
    slacks = [(part.F[part.active], u - d_g + r) for part, u, r in zip(x.pairs, tangents, residuals, strict=True)]
    multipliers = []
    for part, (F, d_F) in zip(x.pairs, slacks, strict=True):
        p = part.p[part.active]
        multipliers.append((p, (tau - p * d_F) / F - p))
    h, h_p = (min(longest(*pair) for pair in both) for both in (slacks, multipliers))
    if not (np.isfinite(d_alpha).all() and np.isfinite(h_p)):
        raise np.linalg.LinAlgError("the interior-point step is not finite")
    for _ in range(TRIES):
        alpha, g = x.alpha + h * d_alpha, float(x.g + h * d_g)
        solved = [part.solve(alpha, part.active, ROUNDS, part.solved) for part in x.pairs]
        if all(  # V is concave: less than its tangent says
            (part.solved.value + h * u - new.value <= np.maximum(F + h * d_F, x.gap)).all()
            for part, new, u, (F, d_F) in zip(x.pairs, solved, tangents, slacks, strict=True)
        ):
            break
        h /= 2
    pairs = []
    for part, new, (F, d_F), (p, d_p) in zip(x.pairs, solved, slacks, multipliers, strict=True):
        theta, all_p, all_F = part.theta.copy(), part.p.copy(), part.F.copy()
        p = p + h_p * d_p
        F, found = F + h * d_F, new.value - g
        slack = np.where(found > INSIDE * F, found, np.maximum(F, tau / p))  # as found, where that is not too small
        theta[part.active], all_p[part.active], all_F[part.active] = new.theta, p, slack
        pairs.append(replace(part, theta=theta, p=all_p, F=all_F, solved=new))
    return replace(x, alpha=alpha - alpha.mean(), g=g, pairs=pairs)


def looked(x: Ascent) -> Ascent:
    """All other pairs brought nearer to their best, and those that have come near the minimum made active."""
    below, tau, pairs = x.g + max(2 * x.gap, MARGIN * abs(x.g)), x.gap / x.n_active, []
    for part in x.pairs:
        if part.active.all():
            pairs.append(part)
            continue
        theta, value, least = part.follow(x.alpha, ~part.active, FOLLOWING)
        part = replace(part, theta=theta)
        low = least < x.g
        solved = part.solve(x.alpha, low, ROUNDS)
        theta[low], value[low] = solved.theta, solved.value
        new = wanted(part, x.own, value, below) & ~part.active
        F = np.where(new, np.maximum(value - x.g, INSIDE * x.gap), part.F)
        p = np.where(new, CENTRING * tau / F, part.p)
        more = part.solve(x.alpha, new, ROUNDS)
        theta[new] = more.theta
        active = part.active | new
        pairs.append(replace(part, p=p, F=F, active=active, solved=merged(active, new, part.solved, more)))
    return replace(x, pairs=pairs)


def merged(active: Mask, new: Mask, old: Solved, more: Solved) -> Solved:
    """Old and new pairs in the order of the active ones."""
    order = np.argsort(np.concatenate([np.flatnonzero(active & ~new), np.flatnonzero(new)]))
    return Solved(*(np.concatenate(both)[order] for both in zip(old, more, strict=True)))


def longest(x: Array, dx: Array) -> float:
    """How far to go so that x + h dx stays positive, at most 1."""
    shrinking = dx < 0
    return min(1.0, TO_THE_BOUNDARY * float((x[shrinking] / -dx[shrinking]).min(initial=np.inf)))
