"""The best frame for a public kernel of moves: causal Blahut-Arimoto on offsets (`control.frame`).

    alpha_g(u) = -log2 sum_v r_g(v) 2^-(lam d(u-v) + beta(u-v))          beta(w) = sum_g share_g (K_g alpha_g)(w)
    mu_g(u')   = share_g sum_u mu(u) a(v|u) K_g(u' | u-v)                r_g(v) = sum_u mu_g(u) a_g(v|u)

K_g moves what is left over g steps. A far truth is its ring: it stays there, or returns (`Kernel.back`), or is jumped
to, which costs the bits of one cell of the ring. All of it is a guess at how anyone moves; no promise rests on it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from veilstream.control.frame import LEAST, Frame, Offsets, distance
from veilstream.errors import Infeasible, InputError
from veilstream.model.information import Array
from veilstream.model.lattice import Lattice

WAITED = 1, 6, 36  # steps that K_g goes, where one, a few or many passed since the last release
SHARE = 0.94, 0.04, 0.02  # of releases that come so
FARTHEST_KM = 20_100.0
REACH = {1: 32, 2: 10}  # cells
VALUE_RINGS = 24
FINENESS = 2.0, 6.0  # cells to a mean limit, to one at every step
MOST_RINGS_KM = 40.0  # reach of a frame with a limit at every step: columns are even over so much of the earth
SWEEPS, ENOUGH = 60, 1e-4
FLOOR = 1e-3, 1e-4  # of all near moves together in an output model, and of every ring: people are not the kernel
WEIGHTS = 1e-3, 1e3  # times what a cell costs: where the weight of a limit is looked for


@dataclass(frozen=True)
class Kernel:
    """How anyone may move in one step. Lengths in the lattice's unit.

    A stay wanders by `wander` on average, a move goes an exponential distance of mean `jump` in a direction of its own;
    `anywhere` of all steps go to any distance, all orders of magnitude alike; `back` of far truths return in a step.
    """

    stay: float = 11 / 12
    jump: float = 1.67
    wander: float = 0.02
    anywhere: float = 5e-3
    back: float = 1 / 12

    def __post_init__(self) -> None:
        shares = (self.stay, self.anywhere, self.back)
        if not (all(0 < x < 1 for x in shares) and self.jump > 0 and self.wander >= 0):
            raise InputError(
                "a kernel needs `stay`, `anywhere` and `back` between 0 and 1, and `jump` above 0, found "
                f"{self.stay:.3g}, {self.anywhere:.3g}, {self.back:.3g} and {self.jump:.3g}"
            )

    def matrix(self, offsets: Offsets, spacing: float) -> Array:
        """P(u'|w) over near offsets and rings, one step."""
        near, n, rings = offsets.near, len(offsets), offsets.rings
        apart = np.abs(near[:, None] - near[None])
        d = np.sqrt((apart.astype(float) ** 2).sum(-1)) * spacing
        move = np.exp(-d / self.jump)
        np.fill_diagonal(move, 0)
        cell = spacing**offsets.axes
        if offsets.axes == 2:
            beyond = 2 * np.pi * self.jump**2  # the whole integral
        else:
            beyond = 2 * self.jump
        total = np.maximum(beyond / cell, move.sum(1).max() * (1 + 1e-9))
        P = np.zeros((n + rings, n + rings))
        P[:n, :n] = (1 - self.stay - self.anywhere) * move / total
        P[:n, n:] = self.anywhere / (rings + 1)
        P[:n, n] += (1 - self.stay - self.anywhere) * (1 - move.sum(1) / total)
        leave = min(0.2, 0.5 * self.wander / spacing)  # to each neighbour
        beside = apart.sum(-1) == 1
        P[:n, :n] += self.stay * leave * beside
        P[np.arange(n), np.arange(n)] += 1 - P[:n].sum(1)
        P[n:, n:] = (1 - self.back) * np.eye(rings)
        P[n:] += self.back * P[n // 2]
        return P


@dataclass(frozen=True, eq=False)
class Found:
    """A frame with what it does under the kernel it was made for: *model only*."""

    frame: Frame
    leakage: float  # bits per step
    distortion: float  # mean error
    charged: float  # bits per step that its public meter counts


@dataclass(frozen=True, eq=False)
class FrameSweep:
    """The recursion for one lattice and kernel, with or without a limit at every step."""

    lattice: Lattice
    offsets: Offsets
    kernels: tuple[Array, ...]
    limit: float = np.inf

    @classmethod
    def of(cls, spacing: float, axes: int, unit: str, kernel: Kernel, limit: float = np.inf) -> "FrameSweep":
        reach = REACH[axes]
        far = FARTHEST_KM / (spacing * reach)
        rings = VALUE_RINGS if axes == 1 else max(1, int(np.ceil(np.log2(far))))
        offsets = Offsets(reach, axes, rings)
        P = kernel.matrix(offsets, spacing)
        return cls(Lattice(spacing, axes, unit), offsets, tuple(np.linalg.matrix_power(P, k) for k in WAITED), limit)

    def solve(self, weight: float, warm: Found | None = None) -> Found:
        o, near, n = self.offsets, self.offsets.near, len(self.offsets)
        left = o.index(near[:, None] - near[None])  # of u - v
        rings_at = distance(np.stack([o.radii[1:] * 0.75] + [0 * o.radii[1:]] * (o.axes - 1), -1), self.lattice.spacing)
        share, groups = np.array(SHARE), len(SHARE)
        frame = self._first(weight) if warm is None else replace(warm.frame, weight=weight)
        r, rho, beta = frame.moves.copy(), frame.jumps.copy(), frame.values.copy()
        alpha = np.stack([beta] * groups)
        mu = np.full((groups, n + o.rings), 1 / (n + o.rings)) * share[:, None]
        last = np.inf
        near_d = frame.cost(near[:, None] - near[None]) - beta[left]
        landing_d = frame.cost(near) - beta[:n]
        for _ in range(SWEEPS):
            E = np.exp2(-(near_d + beta[left]))  # u x v
            landing = np.exp2(-(landing_d + beta[:n]))
            Z = landing.sum()
            stays = np.exp2(-(weight * rings_at + beta[n:])) if np.isinf(self.limit) else np.zeros(o.rings)
            nu = np.zeros(n + o.rings)
            for g in range(groups):
                N = np.maximum(E @ r[g], LEAST)
                jump = rho[g] / o.cells * Z
                far = np.maximum(r[g].sum() * stays + jump, LEAST)
                alpha[g] = -np.log2(np.concatenate([N, far]))
                m = mu[g, :n, None] * E * (r[g] / N[:, None])
                jumped = mu[g, n:] * jump / far
                stayed = mu[g, n:] - jumped
                nu += np.bincount(left.ravel(), m.ravel(), n + o.rings)
                nu[:n] += jumped.sum() * landing / Z
                nu[n:] += stayed
                new_r, new_rho = m.sum(0) + stayed.sum() * r[g] / r[g].sum(), jumped
                total = new_r.sum() + new_rho.sum()
                new_r, new_rho = new_r / total + FLOOR[0] / n, new_rho / total + FLOOR[1]
                total = new_r.sum() + new_rho.sum()
                r[g], rho[g] = new_r / total, new_rho / total
            values = sum(s * K @ a for s, K, a in zip(share, self.kernels, alpha, strict=True))
            beta = values - values[n // 2]
            mu = np.stack([s * (nu @ K) for s, K in zip(share, self.kernels, strict=True)])
            now = float(values[n // 2])
            if abs(now - last) <= ENOUGH * max(abs(now), 1e-3):
                break
            last = now
        found = Frame(self.lattice, o, weight, beta, r, rho, self.limit)
        return self.measured(found, mu)

    def _first(self, weight: float) -> Frame:
        n, rings = len(self.offsets), self.offsets.rings
        groups = len(SHARE)
        near = np.exp2(-distance(self.offsets.near, 1.0))
        r = np.tile(near / near.sum(), (groups, 1)) * (1 - rings * 1e-3)
        beta = np.concatenate([np.zeros(n), np.full(rings, 4.0)])
        return Frame(self.lattice, self.offsets, weight, beta, r, np.full((groups, rings), 1e-3), self.limit)

    def measured(self, frame: Frame, mu: Array) -> Found:
        """Under the kernel, near truths and jumps alike."""
        o, near, n = self.offsets, self.offsets.near, len(self.offsets)
        E = np.exp2(-frame.cost(near[:, None] - near[None]))
        landing = np.exp2(-frame.cost(near))
        d, home = distance(near[:, None] - near[None], frame.spacing), distance(near, frame.spacing)
        bits = error = charged = 0.0
        for g in range(len(mu)):
            N = np.maximum(E @ frame.moves[g], LEAST)
            a = E * (frame.moves[g] / N[:, None])
            m = mu[g, :n, None] * a
            q = m.sum(0)
            jump = frame.jumps[g] / o.cells * landing.sum()
            bits += float((m * np.log2(np.maximum(a, LEAST) / frame.moves[g])).sum())
            where = (landing * np.log2(np.maximum(landing, LEAST))).sum() / landing.sum()
            bits += float((mu[g, n:] * (where - np.log2(np.maximum(jump, LEAST)))).sum())
            error += float((m * d).sum() + mu[g, n:].sum() * (landing * home).sum() / landing.sum())
            charged += float(q @ frame.charges[g, :n] + mu[g, n:] @ frame.charges[g, n:])
        return Found(frame, bits, error, charged)


def solve_frame(
    average: float | None = None,
    every: float | None = None,
    *,
    axes: int = 2,
    unit: str = "km",
    kernel: Kernel | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Found:
    """The frame with a mean error of at most `average` under the kernel, and at most `every` at every step."""
    kernel = Kernel() if kernel is None else kernel
    if average is None and every is None:
        raise InputError("a frame needs a limit: `avg` or `max`")
    limits = zip((average, every), FINENESS, strict=True)
    spacing = min(limit / cells for limit, cells in limits if limit is not None)
    sweep = FrameSweep.of(spacing, axes, unit, kernel, np.inf if every is None else every)
    if every is not None and axes == 2 and sweep.offsets.reach * spacing > MOST_RINGS_KM:
        raise Infeasible(
            f"a limit of {every:g} km at every step is too wide for one public lattice",
            f"ask for at most {MOST_RINGS_KM * FINENESS[1] / sweep.offsets.reach:.3g} km, or for a mean",
        )
    if average is None:
        return sweep.solve(0.0)
    low, high = np.log(np.array(WEIGHTS) / average)
    found, best = None, None
    for k in range(24):
        weight = float(np.exp((low + high) / 2))
        found = sweep.solve(weight, found)
        if found.distortion <= average:
            high, best = np.log(weight), found
        else:
            low = np.log(weight)
        if progress:
            progress((k + 1) / 24, f"weight {weight:.3g}")
        if best is not None and best.distortion >= 0.995 * average:
            break
    if best is None:
        raise Infeasible(f"no frame with cells of {spacing:g} has a mean error of {average:g}", "allow more")
    return best
