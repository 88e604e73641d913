"""The best frame for a public kernel of moves: causal Blahut-Arimoto on offsets (`control.frame`).

    alpha_g(u) = -log2 sum_w r_g(u-w) 2^-(lam d(w) + beta(w))            beta(w) = sum_g share_g (K_g alpha_g)(w)
    mu_g(u')   = share_g sum_w nu(w) K_g(u'|w)                           r_g(v) = sum_u mu_g(u) a_g(v|u)

K_g moves what is left over g steps. Sums over w are convolutions. A far truth is its ring: it stays there, or returns
(`Kernel.back`), or is jumped to, which costs the bits of one cell of the ring. All of it is a guess at how anyone
moves; no promise rests on it.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.signal import fftconvolve

from veilstream.control.frame import LAWS, LEAST, Frame
from veilstream.control.offsets import Offsets, distance
from veilstream.errors import InputError
from veilstream.model.information import Array
from veilstream.model.lattice import Lattice

WAITED = 1, 6, 36  # steps that K_g goes, where one, a few or many passed since the last release
SHARE = 0.94, 0.04, 0.02  # of releases that come so
FARTHEST_KM = 20_100.0
REACH = {1: 32, 2: 12}  # cells
VALUE_RINGS = 24
SWEEPS, ENOUGH = 60, 1e-4
FLOOR = 1e-3, 1e-4  # of all near moves together in an output model, and of every ring: people are not the kernel


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
        o, n, groups, share = self.offsets, len(self.offsets), len(SHARE), np.array(SHARE)
        window, side = o.index(o.window(2 * o.reach)), (2 * o.reach + 1,) * o.axes  # of u - w: twice as far
        turn = (slice(None, None, -1),) * o.axes
        ends = np.stack([o.radii[1:] * 0.75] + [0 * o.radii[1:]] * (o.axes - 1), -1)
        d, far_d = distance(o.near, self.lattice.spacing), distance(ends, self.lattice.spacing)
        frame = self._first(weight) if warm is None else replace(warm.frame, weight=weight)
        r, rho, beta = frame.moves[:groups].copy(), frame.jumps[:groups].copy(), frame.values
        alpha = np.zeros((groups, n + o.rings))
        mu = np.full((groups, n + o.rings), 1 / (n + o.rings)) * share[:, None]
        last, forbidden = np.inf, distance(o.near, self.lattice.spacing) > self.limit
        figures = np.zeros(3)
        for _ in range(SWEEPS):
            e, figures = np.where(forbidden, 0, np.exp2(-(weight * d + beta[:n]))), np.zeros(3)
            landing, own = e.sum(), e.reshape(side)
            stays = np.exp2(-(weight * far_d + beta[n:])) if np.isinf(self.limit) else np.zeros(o.rings)
            nu, spent = np.zeros(n + o.rings), -np.log2(np.maximum(e, LEAST))
            for g in range(groups):
                rates = np.append(r[g], rho[g] / o.cells)
                N = np.maximum(fftconvolve(rates[window], own, "valid").ravel(), LEAST)
                jump, stay = rho[g] / o.cells * landing, r[g, n // 2] * stays
                far = np.maximum(stay + jump, LEAST)
                alpha[g] = -np.log2(np.concatenate([N, far]))
                ratio = (mu[g, :n] / N).reshape(side)
                q = np.maximum(rates[window] * fftconvolve(ratio, own[turn]), 0)  # of every move, twice as far
                left = e * np.maximum(fftconvolve(rates[window], ratio[turn], "valid").ravel()[::-1], 0)
                jumped, stayed = mu[g, n:] * jump / far, mu[g, n:] * stay / far
                nu[:n] += left + jumped.sum() * e / landing
                nu[n:] += stayed
                shown = np.bincount(window.ravel(), q.ravel(), n + o.rings)
                shown[n // 2] += stayed.sum()
                shown[n:] += jumped
                figures += (
                    -left @ spent
                    - mu[g, :n] @ np.log2(N)
                    - jumped.sum() * (e @ spent) / landing
                    - mu[g, n:] @ np.log2(far)
                    - stayed @ -np.log2(np.maximum(stays, LEAST)),
                    left @ d + jumped.sum() * (e @ d) / landing + stayed @ far_d,
                    -shown @ np.log2(rates),
                )
                shown = shown / shown.sum() + np.repeat([FLOOR[0] / n, FLOOR[1]], [n, o.rings])
                r[g], rho[g] = np.split(shown / shown.sum(), [n])
            values = sum(s * K @ a for s, K, a in zip(share, self.kernels, alpha, strict=True))
            beta = values - values[n // 2]
            mu = np.stack([s * (nu @ K) for s, K in zip(share, self.kernels, strict=True)])
            now = float(values[n // 2])
            if abs(now - last) <= ENOUGH * max(abs(now), 1e-3):
                break
            last = now
        moves, jumps = (np.concatenate([own, np.repeat(own[:1], LAWS - groups, 0)]) for own in (r, rho))
        return Found(Frame(self.lattice, o, weight, beta, moves, jumps, self.limit), *figures.tolist())

    def _first(self, weight: float) -> Frame:
        n, rings = len(self.offsets), self.offsets.rings
        near = np.exp2(-distance(self.offsets.near, 1.0))
        r = np.tile(near / near.sum(), (LAWS, 1)) * (1 - rings * 1e-3)
        beta = np.concatenate([np.zeros(n), np.full(rings, 4.0)])
        return Frame(self.lattice, self.offsets, weight, beta, r, np.full((LAWS, rings), 1e-3), self.limit)
