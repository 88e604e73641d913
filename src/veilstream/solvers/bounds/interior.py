"""The best bound for a given memory: a convex programme, solved by an interior-point method.

    maximise g   subject to   f_sy(z) >= g   for all s, z and allowed y, where
    f_sy(z) = C(z,y) + theta_sy(z) - sum_z' P(z,z') log (e^theta_sy P)(z') + (P alpha_next(s,y))(z) - alpha_s(z)

over theta = log w, alpha and g. f is concave in them, so this is convex. The multipliers m(s,y,z) of the
constraints are the occupancies of the mechanism that is hardest to bound. One step of the primal-dual method
(infeasible, with slacks F for f - g; Nocedal and Wright 2006, ch. 19) linearises

    sum m grad f = 0 in theta and alpha,  sum m = 1,      f - g - F = 0,      m F = tau.

Every pair (s,y) has its own theta, so these are eliminated pair by pair (|Z| x |Z| systems); one dense system in
alpha and g is left. Any theta and alpha on the way give a valid bound: accuracy here is quality, not truth.
(`potential` solves the same with theta at its best for every alpha: quicker from a good start and possible at a larger
size, but on sticky chains that bends too much.)
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from veilstream.core.information import Array
from veilstream.solvers.bounds.pairs import ReleaseParts
from veilstream.solvers.bounds.witness import reverse_cost, weights_of

LONGEST_STEP = 3.0  # nats by which a theta may change in one step
TO_THE_BOUNDARY = 0.9
INSIDE = 0.1  # a first iterate has no product m F below this part of the mean
RIDGE = 1e-12  # relative


@dataclass(frozen=True, eq=False)
class Iterate:
    next: NDArray[np.int64]  # S x Y
    theta: Array  # S x Y x Z
    alpha: Array  # S x Z
    g: float
    m: Array  # S x Y x Z, multipliers; 0 where forbidden
    F: Array  # S x Y x Z, slacks; 1 where forbidden
    length: float = 1.0  # of the step that led here

    @property
    def gap(self) -> float:
        """sum m F: nats that this memory may still have to give."""
        return float((self.m * self.F).sum())


def start(P: Array, cost: Array, next: NDArray[np.int64], m: Array, alpha: Array) -> Iterate:
    """A first iterate from occupancies m (S x Y x Z) and a potential. cost: Y x Z, nats."""
    allowed = np.broadcast_to(np.isfinite(cost), m.shape)
    m = np.where(allowed, np.maximum(m, 1e-12), 0)
    m /= m.sum()
    theta = np.log(np.where(allowed, m, 1))
    f = reverse_cost(P, cost, weights_of(theta, allowed)) + (alpha @ P.T)[next] - alpha[:, None]
    g = float(f.min()) - 0.01
    return inside(next, theta, alpha, g, m, np.where(allowed, f - g, 1))


def refined(x: Iterate, parent: NDArray[np.int64], next: NDArray[np.int64], weight: Array, margin: float) -> Iterate:
    """The same on a finer memory, `margin` nats further inside.

    Every state does as its parent did, and shares its multipliers by weight.
    """
    n_children = np.bincount(parent)[parent]
    share = weight / np.maximum(np.bincount(parent, weight)[parent], 1e-300)
    m = x.m[parent] * np.maximum(share, 0.1 / n_children)[:, None, None]
    F = np.where(m > 0, x.F[parent] + margin, 1)
    return inside(next, x.theta[parent], x.alpha[parent], x.g - margin, m, F)


def inside(next: NDArray[np.int64], theta: Array, alpha: Array, g: float, m: Array, F: Array) -> Iterate:
    least = INSIDE * (m * F).sum() / (m > 0).sum() / F
    return Iterate(next, theta, alpha, g, np.where(m > 0, np.maximum(m, least), 0), F)


def gauge(parts: ReleaseParts, n_outputs: int) -> Array:
    """The directions of theta_sy that change nothing, as projectors Y x Z x Z: a constant on all of a part."""
    inside = np.isfinite(parts.cost).astype(float)
    projectors = np.zeros((n_outputs, inside.shape[1], inside.shape[1]))
    for y, part in zip(parts.release, inside, strict=True):
        projectors[y] += part[:, None] * part / part.sum()
    return projectors


def step(P: Array, cost: Array, still: Array, x: Iterate, gap: float) -> Iterate:
    """One Newton step towards equal products m F that add up to `gap`; `still` is the gauge.

    Raises LinAlgError when precision runs out.
    """
    allowed = np.broadcast_to(np.isfinite(cost), x.m.shape)
    i = np.arange(len(P))
    w = weights_of(x.theta, allowed)
    f = reverse_cost(P, cost, w) + (x.alpha @ P.T)[x.next] - x.alpha[:, None]
    residual = np.where(allowed, f - x.g - x.F, 0)
    tau = np.where(allowed, gap / allowed.sum(), 0)
    D = x.m / x.F

    # derivatives in theta, for every pair: A = df/dtheta = 1 - P B and H = A' D A - sum m d2f
    wP = w @ P
    B = w[:, :, None, :] * P.T / np.where(wP > 0, wP, 1)[..., None]  # S x Y x Z' x Z
    A = -(P @ B)
    A[..., i, i] += 1
    DA = A * D[..., None]
    nu = x.m @ P
    H = DA.swapaxes(2, 3) @ A - (B * nu[..., None]).swapaxes(2, 3) @ B
    H[..., i, i] += (nu[..., None, :] @ B)[..., 0, :]
    size = np.trace(H, axis1=2, axis2=3)[..., None] / len(P)
    H += size[..., None] * still
    H[..., i, i] += np.where(allowed, RIDGE * (size + 1e3 * x.m.mean(-1, keepdims=True)) + 1e-100, 1)
    scale = 1 / np.sqrt(H[..., i, i])
    H *= scale[..., None] * scale[..., None, :]

    # eliminate theta: what is left acts on u = P alpha_next - alpha - g, through a matrix E for every pair
    pull = tau / x.F - D * residual
    pull_theta = (pull[..., None, :] @ A)[..., 0, :]
    right = np.concatenate([DA.swapaxes(2, 3), pull_theta[..., None]], -1)
    X = np.linalg.solve(H, scale[..., None] * right) * scale[..., None]
    X, theta_0 = X[..., :-1], X[..., -1]
    E = -(DA @ X)
    E[..., i, i] += D * (1 + 10 * RIDGE)  # what is lost to cancellation must not turn it indefinite
    d_alpha, d_g = reduced(P, x.next, E, pull - (pull_theta[..., None, :] @ X)[..., 0, :])

    # back to all variables, and as far as they stay positive
    u = (d_alpha @ P.T)[x.next] - d_alpha[:, None] - d_g
    d_theta = np.where(allowed, theta_0 - (X @ u[..., None])[..., 0], 0)
    d_F = np.where(allowed, (A @ d_theta[..., None])[..., 0] + u + residual, 0)
    d_m = np.where(allowed, (tau - x.m * d_F) / x.F - x.m, 0)
    h = min(longest(x.F, d_F), LONGEST_STEP / max(np.abs(d_theta).max(), 1e-9))
    theta, alpha, g = x.theta + h * d_theta, x.alpha + h * d_alpha, float(x.g + h * d_g)
    m, F = x.m + longest(x.m, d_m) * d_m, x.F + h * d_F
    if not (np.isfinite(theta).all() and np.isfinite(m).all() and np.isfinite(g)):
        raise np.linalg.LinAlgError("the interior-point step is not finite")
    return Iterate(x.next, theta, alpha - alpha.mean(), g, m, F, h)


def reduced(P: Array, next: NDArray[np.int64], E: Array, pull: Array) -> tuple[Array, float]:
    """Solve (sum_sy L' E L) d = sum_sy L' pull + (0, 1) for d = (alpha, g), L d = P alpha_next - alpha - g."""
    S, Z = len(next), len(P)
    n = S * Z
    full = np.zeros((n + 1, n + 1))
    block = [slice(s * Z, (s + 1) * Z) for s in range(S)]
    for s in range(S):
        full[block[s], block[s]] += E[s].sum(0)
        for t in np.unique(next[s]):
            EP = E[s][next[s] == t].sum(0) @ P
            full[block[t], block[t]] += P.T @ EP
            if s <= t:  # the upper triangle is enough
                full[block[s], block[t]] -= EP
            if t <= s:
                full[block[t], block[s]] -= EP.T
    E1 = E.sum(-1)
    cross, right = E1.sum(1), -pull.sum(1)
    np.add.at(cross, next, -(E1 @ P))
    np.add.at(right, next, pull @ P)
    full[:n, n] = cross.ravel()
    full[n, n] = E1.sum()
    diagonal = np.einsum("ii->i", full)
    diagonal *= 1 + RIDGE
    diagonal += 1e-250
    diagonal[diagonal[:n].argmax()] *= 2  # alpha + constant changes nothing: hold one entry
    factor = cho_factor(full, overwrite_a=True, check_finite=False)
    solution = cho_solve(factor, np.append(right.ravel(), 1 - pull.sum()), check_finite=False)
    return solution[:n].reshape(S, Z), float(solution[n])


def longest(x: Array, dx: Array) -> float:
    """How far to go so that x + h dx stays positive, at most 1."""
    shrinking = dx < 0
    return min(1.0, TO_THE_BOUNDARY * float((x[shrinking] / -dx[shrinking]).min(initial=np.inf)))
