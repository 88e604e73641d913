"""The best bound for a given memory: a convex programme, solved by an interior-point method.

    maximise g   subject to   f_sy(z) := C + theta_sy(z) - sum_z' P(z,z') log (e^theta_sy P)(z') + (P alpha_next(s,y))(z) - alpha_s(z) >= g

over theta = log w, alpha and g: f is concave, so this is convex. The multipliers m(s,y,z) of the constraints are the
occupancies of the mechanism that is hardest to bound. One step of the primal-dual method (infeasible, with slacks F for
f - g; Nocedal and Wright, ch. 19) linearises

    sum m grad f + grad g = 0,      f - g - F = 0,      m F = tau.

Every pair (s,y) has its own theta, so those are eliminated pair by pair (|Z| x |Z| systems); one dense system
in alpha and g is left. Any theta and alpha on the way give a valid bound, so accuracy is a matter of quality, not of truth.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from veilstream.information import Array
from veilstream.solvers.bounds.witness import reverse_cost, weights_of

LONGEST_STEP = 3.0  # nats by which a theta may change in one step
TO_THE_BOUNDARY = 0.9
RIDGE = 1e-12  # relative; theta_sy + constant and alpha + constant change nothing and must not be singular


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
    """A first iterate from occupancies m (S x Y x Z) and a potential; cost: Y x Z, nats."""
    allowed = np.broadcast_to(np.isfinite(cost), m.shape)
    m = np.where(allowed, np.maximum(m, 1e-12), 0)
    m /= m.sum()
    theta = np.log(np.where(allowed, m, 1))
    f = reverse_cost(P, cost, weights_of(theta, allowed)) + (alpha @ P.T)[next] - alpha[:, None]
    g = float(f.min()) - 0.01
    F = np.where(allowed, f - g, 1)
    m = np.where(allowed, np.maximum(m, 0.1 * (m * F).sum() / allowed.sum() / F), 0)
    return Iterate(next, theta, alpha, g, m, F)


def refined(x: Iterate, parent: NDArray[np.int64], next: NDArray[np.int64], weight: Array) -> Iterate:
    """The same iterate on a finer memory: every state does as its parent did, and shares its multipliers by weight."""
    n_children = np.bincount(parent)[parent]
    share = weight / np.maximum(np.bincount(parent, weight)[parent], 1e-300)
    m = x.m[parent] * np.maximum(share, 0.1 / n_children)[:, None, None]
    return Iterate(next, x.theta[parent], x.alpha[parent], x.g, m, x.F[parent])


def step(P: Array, cost: Array, x: Iterate, centring: float) -> Iterate:
    """One Newton step towards m F = centring * its present mean. Raises LinAlgError when precision runs out."""
    S, Y, Z = x.m.shape
    allowed = np.broadcast_to(np.isfinite(cost), x.m.shape)
    i = np.arange(Z)
    w = weights_of(x.theta, allowed)
    f = reverse_cost(P, cost, w) + (x.alpha @ P.T)[x.next] - x.alpha[:, None]
    residual = np.where(allowed, f - x.g - x.F, 0)
    tau = np.where(allowed, centring * x.gap / allowed.sum(), 0)
    D = x.m / x.F

    # derivatives in theta: A = df/dtheta = 1 - P B, H = -sum m d2f + A' D A, of every pair (s,y)
    wP = w @ P
    B = w[:, :, None, :] * P.T / np.where(wP > 0, wP, 1)[..., None]  # S x Y x Z' x Z
    A = -(P @ B)
    A[..., i, i] += 1
    nu = x.m @ P
    H = (A * D[..., None]).swapaxes(2, 3) @ A - (B * nu[..., None]).swapaxes(2, 3) @ B
    H[..., i, i] += (nu[..., None, :] @ B)[..., 0, :]
    size = np.trace(H, axis1=2, axis2=3)[..., None] / Z
    H += (size / Z)[..., None] * (allowed[..., None] & allowed[..., None, :])
    H[..., i, i] += np.where(allowed, RIDGE * (size + 1e3 * x.m.mean(-1, keepdims=True)) + 1e-100, 1)
    scale = 1 / np.sqrt(H[..., i, i])
    H *= scale[..., None] * scale[..., None, :]

    # eliminate theta: what is left acts on u = P alpha_next - alpha - g through the matrix E of every pair
    pull = tau / x.F - D * residual
    pull_theta = (pull[..., None, :] @ A)[..., 0, :]
    right = np.concatenate([(A * D[..., None]).swapaxes(2, 3), pull_theta[..., None]], -1)
    X = np.linalg.solve(H, scale[..., None] * right) * scale[..., None]
    X, theta_0 = X[..., :-1], X[..., -1]
    E = -(A * D[..., None]) @ X
    E[..., i, i] += D
    E = (E + E.swapaxes(2, 3)) / 2
    d_alpha, d_g = reduced(P, x.next, E, pull - (pull_theta[..., None, :] @ X)[..., 0, :])

    u = (d_alpha @ P.T)[x.next] - d_alpha[:, None] - d_g
    d_theta = np.where(allowed, theta_0 - (X @ u[..., None])[..., 0], 0)
    d_F = np.where(allowed, (A @ d_theta[..., None])[..., 0] + u + residual, 0)
    d_m = np.where(allowed, (tau - x.m * d_F) / x.F - x.m, 0)
    h = min(longest(x.F, d_F), LONGEST_STEP / max(np.abs(d_theta).max(), 1e-9))
    alpha = x.alpha + h * d_alpha
    new = Iterate(
        x.next,
        x.theta + h * d_theta,
        alpha - alpha.mean(),
        float(x.g + h * d_g),
        x.m + longest(x.m, d_m) * d_m,
        x.F + h * d_F,
        h,
    )
    if not (np.isfinite(new.theta).all() and np.isfinite(new.m).all() and np.isfinite(new.g)):
        raise np.linalg.LinAlgError("the interior-point step is not finite")
    return new


def reduced(P: Array, next: NDArray[np.int64], E: Array, pull: Array) -> tuple[Array, float]:
    """Solve sum_sy L' E L (d_alpha, d_g) = L' pull + (0, 1), with L = the map from (alpha, g) to P alpha_next - alpha - g."""
    (S, Y), Z = next.shape, len(P)
    n = S * Z
    M = np.zeros((S, Z, S, Z))
    EP = E @ P
    PEP = P.T @ EP
    for s in range(S):
        M[s, :, s] += E[s].sum(0)
        for y, t in enumerate(next[s]):
            M[s, :, t] -= EP[s, y]
            M[t, :, s] -= EP[s, y].T
            M[t, :, t] += PEP[s, y]
    E1 = E.sum(-1)
    cross, right = E1.sum(1), -pull.sum(1)
    np.add.at(cross, next, -(E1 @ P))
    np.add.at(right, next, pull @ P)
    full = np.empty((n + 1, n + 1))
    full[:n, :n] = M.reshape(n, n)
    full[:n, n] = full[n, :n] = cross.ravel()
    full[n, n] = E1.sum()
    d = np.sqrt(np.maximum(np.diag(full), 1e-250))
    constant = np.append(d[:n], 0) / np.linalg.norm(d[:n])  # alpha + constant changes nothing
    full /= d
    full /= d[:, None]
    full += np.outer(constant, constant)
    full[np.arange(n + 1), np.arange(n + 1)] += RIDGE / 10
    solution = cho_solve(cho_factor(full, overwrite_a=True), np.append(right.ravel(), 1 - pull.sum()) / d) / d
    return solution[:n].reshape(S, Z), float(solution[n])


def longest(x: Array, dx: Array) -> float:
    """How far to go so that x + h dx stays positive, at most 1."""
    shrinking = dx < 0
    return min(1.0, TO_THE_BOUNDARY * float((x[shrinking] / -dx[shrinking]).min(initial=np.inf)))
