"""The best bound for the memory of a policy, from where the policy has settled: a concave programme over the potential.

    maximise g   subject to   V_i(alpha) >= g   for every pair i = (s,y)

V_i is the most that weights can prove for the pair (`pairs`), concave in the potential. The multipliers p_i are the
probabilities of the pairs under the mechanism that is hardest to bound. One step of the primal-dual interior-point
method (infeasible, with slacks F for V - g; Nocedal and Wright 2006, ch. 19) linearises

    sum p_i grad V_i = 0,  sum p_i = 1,      V_i - g - F_i = 0,      p_i F_i = tau

and is one linear system in alpha and g, of the matrix sum_i L_i' (p_i E_i + p_i/F_i b_i b_i') L_i, where L_i takes
alpha to P alpha_next - alpha_s.

Not all of it is worth a Newton step. A pair that the mechanism would hardly use is looked at only when it comes
near the minimum (*active*). And where a state is rare in a memory (she was seen here and is now far off), the
potentials of that state in all such memories move together: what comes depends on where she is, not on where she was
thought to be. Any alpha on the way gives a valid bound: what is left out here is quality, not truth.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from veilstream.core.information import Array, Index
from veilstream.solvers.bounds.pairs import ReleaseParts, Solved, blocks, follow, solve

TO_THE_BOUNDARY = 0.9
CENTRING = 0.2
INSIDE = 0.1  # a first iterate has no product p F below this part of the mean
BELOW = 0.02  # nats: where g starts, below the least V
RIDGE = 1e-10  # relative
SMALL = 1_000  # numbers in a potential up to which each moves by itself
LARGE = 2_000  # numbers in a potential that may move by themselves
RARE = 1e-3  # a state less likely than this in a memory moves with the others
NEAR = 0.3  # a pair with less than this on states that are not rare ...
FEW = 3  # ... is one of many alike: so many of a release are enough
CLOSE = 0.01  # relative: a pair this far above the value is active from the start
MARGIN = 3e-3  # relative: one this far above g becomes active
USED = 1e-5  # and so is one that likely
SEVERAL = 600  # and so are as many of the lowest
FIRST_ROUNDS, ROUNDS, FOLLOWING = 8, 3, 3  # of Newton's method at the start and after a step; of the other pairs
TRIES = 8  # of a step, each half of the last


@dataclass(frozen=True, eq=False)
class Ascent:
    next: Index  # S x Y
    parts: ReleaseParts
    theta: Array  # S x Q x Z
    alpha: Array  # S x Z
    place: Index  # S x Z: which number of the system an entry of alpha moves with
    g: float
    p: Array  # S x Q, multipliers
    F: Array  # S x Q, slacks of active pairs
    active: NDArray[np.bool_]  # S x Q
    pairs: Solved  # the active ones

    @property
    def gap(self) -> float:
        """sum p F: nats that this memory may still have to give."""
        return float((self.p * self.F)[self.active].sum())

    @property
    def value(self) -> float:
        """The mean of V, in nats."""
        p = self.p[self.active]
        return float(p @ self.pairs.value / p.sum())

    @property
    def m(self) -> Array:
        """The occupancies of the mechanism that is hardest to bound, S x Y x Z."""
        return occupancies(self.parts, self.p / self.p.sum(), self.theta, self.next.shape[1])


def occupancies(parts: ReleaseParts, p: Array, theta: Array, n_outputs: int) -> Array:
    m = np.zeros((len(theta), n_outputs, theta.shape[2]))
    for q, y in enumerate(parts.release):
        m[:, y] += p[:, q, None] * np.exp(theta[:, q])
    return m


def start(P: Array, parts: ReleaseParts, next: Index, log_m: Array, alpha: Array) -> Ascent:
    """A first iterate from occupancies (log m: S x Y x Z) and a potential."""
    theta = np.where(np.isfinite(parts.cost), log_m[:, parts.release], -np.inf)
    p = np.exp(theta).sum(2)
    p = np.maximum(p / p.sum(), 1e-9)
    theta, value, _ = others(P, parts, next, theta, alpha, np.ones(p.shape, dtype=bool), 2 * FOLLOWING)
    place = places(p, theta)
    mean = float((p * value).sum() / p.sum())
    several = np.sort(value, axis=None)[min(SEVERAL, value.size) - 1]
    active = wanted(place, theta, value, max(mean + CLOSE * abs(mean), several + 1e-9)) | (p > USED)
    pairs = solved(P, parts, next, theta, alpha, active, FIRST_ROUNDS)
    theta[active] = pairs.theta
    F = np.ones(p.shape)
    g = float(pairs.value.min()) - BELOW
    F[active] = pairs.value - g
    p = np.where(active, np.maximum(p, INSIDE * (p * F)[active].sum() / active.sum() / F), p)
    return Ascent(next, parts, theta, alpha, place, g, p, F, active, pairs)


def solved(
    P: Array, parts: ReleaseParts, next: Index, theta: Array, alpha: Array, active: NDArray[np.bool_], rounds: int
) -> Solved:
    s, q = np.nonzero(active)
    return solve(P, parts.costs(P, next, alpha, s, q), theta[s, q], rounds)


def others(
    P: Array, parts: ReleaseParts, next: Index, theta: Array, alpha: Array, which: NDArray[np.bool_], rounds: int
) -> tuple[Array, Array, Array]:
    """theta with these pairs brought nearer to their best, and V of all pairs from above and from below."""
    s, q = np.nonzero(which)
    theta, value, least = theta.copy(), np.full(which.shape, np.inf), np.full(which.shape, np.inf)
    for part in blocks(len(s), theta.shape[2]):
        i, j = s[part], q[part]
        x = follow(P, parts.costs(P, next, alpha, i, j), theta[i, j], rounds)
        theta[i, j], value[i, j], least[i, j] = x.theta, x.value, x.least
    return theta, value, least


def places(p: Array, theta: Array) -> Index:
    """Which numbers of a potential move by themselves: those of likely states; the others of a state move as one."""
    S, _, Z = theta.shape
    if S * Z <= SMALL:
        return np.arange(S * Z).reshape(S, Z)
    law = np.stack([p_s @ np.exp(theta_s) for p_s, theta_s in zip(p, theta, strict=True)])
    law /= law.sum(1, keepdims=True)
    rare = max(RARE, float(np.partition(law.ravel(), -min(LARGE, law.size))[-min(LARGE, law.size)]))
    own = law >= rare
    return np.asarray(np.where(own, np.cumsum(own).reshape(S, Z) - 1, own.sum() + np.arange(Z)))


def wanted(place: Index, theta: Array, value: Array, below: float) -> NDArray[np.bool_]:
    """Pairs to look at among those with a V below this: all near ones, a few of each release that are far off."""
    S, Q, Z = theta.shape
    low = value < below
    if place.max() == S * Z - 1:
        return low
    own = place < place.max() + 1 - Z
    near = np.stack([np.exp(theta_s) @ own_s for theta_s, own_s in zip(theta, own, strict=True)]) > NEAR
    far = np.where(low & ~near, value, np.inf)
    few = np.argsort(far, axis=0)[:FEW]
    lowest = np.zeros_like(low)
    lowest[few, np.arange(Q)] = True
    return np.asarray((low & near) | (lowest & np.isfinite(far)))


def step(P: Array, x: Ascent) -> Ascent:
    """One Newton step towards equal products p F, CENTRING times what they are.

    Raises LinAlgError when precision runs out.
    """
    a, b = x.active, np.take_along_axis(x.pairs.b, x.pairs.at, 1)
    p, F = x.p[a], x.F[a]
    residual = x.pairs.value - x.g - F
    tau = CENTRING * x.gap / len(p)
    pull = tau / F - p / F * residual
    E = p[:, None, None] * x.pairs.bend + (p / F)[:, None, None] * b[:, :, None] * b[:, None]
    d_alpha, d_g = newton(P, x, E, pull[:, None] * b)
    s, q = np.nonzero(a)
    to = x.next[s, x.parts.release[q]]
    u = (x.pairs.b * ((d_alpha @ P.T)[to] - d_alpha[s])).sum(1) - d_g
    d_F = u + residual
    d_p = (tau - p * d_F) / F - p
    h = longest(F, d_F)
    for _ in range(TRIES):
        alpha, g = x.alpha + h * d_alpha, float(x.g + h * d_g)
        if not (np.isfinite(alpha).all() and np.isfinite(d_p).all()):
            raise np.linalg.LinAlgError("the interior-point step is not finite")
        pairs = solved(P, x.parts, x.next, x.theta, alpha, a, ROUNDS)
        bent = x.pairs.value + h * (u + d_g) - pairs.value  # V is concave: less than its tangent says
        if (bent <= np.maximum(F + h * d_F, x.gap)).all():
            break
        h /= 2
    theta, all_p, all_F = x.theta.copy(), x.p.copy(), x.F.copy()
    slack = np.maximum(pairs.value - g, INSIDE * (F + h * d_F))  # as it is, where it is not too small for that
    theta[a], all_p[a], all_F[a] = pairs.theta, p + longest(p, d_p) * d_p, slack
    return replace(x, theta=theta, alpha=alpha - alpha.mean(), g=g, p=all_p, F=all_F, pairs=pairs)


def looked(P: Array, x: Ascent) -> Ascent:
    """All other pairs brought nearer to their best, and those that have come near the minimum made active."""
    theta, value, least = others(P, x.parts, x.next, x.theta, x.alpha, ~x.active, FOLLOWING)
    low = least < x.g
    if low.any():
        pairs = solved(P, x.parts, x.next, theta, x.alpha, low, ROUNDS)
        theta[low], value[low] = pairs.theta, pairs.value
    new = wanted(x.place, theta, value, x.g + max(2 * x.gap, MARGIN * abs(x.g))) & ~x.active
    if not new.any():
        return replace(x, theta=theta)
    active = x.active | new
    tau = x.gap / x.active.sum()
    F = np.where(new, np.maximum(value - x.g, INSIDE * x.gap), x.F)
    p = np.where(new, CENTRING * tau / F, x.p)
    more = solved(P, x.parts, x.next, theta, x.alpha, new, ROUNDS)
    theta[new] = more.theta
    return replace(x, theta=theta, p=p, F=F, active=active, pairs=merged(active, new, x.pairs, more))


def merged(active: NDArray[np.bool_], new: NDArray[np.bool_], old: Solved, more: Solved) -> Solved:
    """Old and new pairs in the order of the active ones."""
    is_new = new[active]

    def both(a: Any, b: Any) -> Any:
        found = np.empty((len(is_new), *a.shape[1:]), dtype=a.dtype)
        found[~is_new], found[is_new] = a, b
        return found

    return Solved(*(both(getattr(old, k.name), getattr(more, k.name)) for k in fields(Solved)))


def newton(P: Array, x: Ascent, E: Array, pull: Array) -> tuple[Array, float]:
    """Solve (sum_i L_i' E_i L_i) d = sum_i L_i' pull_i + (0, 1) for d = (alpha, g), L d = P alpha_next - alpha_s - g.

    E and pull are at the likeliest states of each active pair.
    """
    Z, n = x.alpha.shape[1], int(x.place.max()) + 1
    full, right, cross = np.zeros((n + 1, n + 1)), np.zeros(n + 1), np.zeros(n)
    s, q = np.nonzero(x.active)
    to, E1 = x.next[s, x.parts.release[q]], E.sum(-1)
    for i in range(len(s)):  # between a memory and the next
        at = x.pairs.at[i]
        full[np.ix_(x.place[s[i], at], x.place[to[i]])] -= E[i] @ P[at]
    full += full.T
    for here, states, sign in ((s, np.eye(Z), 1.0), (to, P, -1.0)):
        for t in np.unique(here).tolist():
            among = np.flatnonzero(here == t).tolist()
            E_t, E1_t, pull_t = np.zeros((Z, Z)), np.zeros(Z), np.zeros(Z)
            for i in among:
                at = x.pairs.at[i]
                E_t[np.ix_(at, at)] += E[i]
                E1_t[at] += E1[i]
                pull_t[at] += pull[i]
            place = x.place[t]
            full[np.ix_(place, place)] += E_t if sign > 0 else states.T @ E_t @ states
            cross[place] += sign * (E1_t @ states)
            right[place] -= sign * (pull_t @ states)
    full[:n, n] = full[n, :n] = cross
    full[n, n], right[n] = E1.sum(), 1 - pull.sum()
    diagonal = np.einsum("ii->i", full)
    diagonal *= 1 + RIDGE
    diagonal += 1e-12 * diagonal[:n].mean() + 1e-250
    diagonal[diagonal[:n].argmax()] *= 2  # alpha + constant changes nothing: hold one entry
    d: Any = cho_solve(cho_factor(full, overwrite_a=True, check_finite=False), right, check_finite=False)
    return d[:n][x.place], float(d[n])


def longest(x: Array, dx: Array) -> float:
    """How far to go so that x + h dx stays positive, at most 1."""
    shrinking = dx < 0
    return min(1.0, TO_THE_BOUNDARY * float((x[shrinking] / -dx[shrinking]).min(initial=np.inf)))
