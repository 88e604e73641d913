"""A frame with history: the places of a record enter where its person has been, and fade to the frame elsewhere.

On the cells of her record (`Places`) this is causal Blahut-Arimoto again, with K_g counted on the record:

    alpha_g(s, x) = -log2 sum_y r_g(y|s) 2^-(lam d(x,y) + E(x,y))        E(x, y) = sum_g share_g (K_g alpha_g(y, .))(x)
    r_g(y|s)      = expected releases along the record, and a little of what comes back and of what is near

How often she leaves them, how she moves then and how she comes back is counted outing by outing: of each the places
that she knows from that outing alone are taken away, and the frame is run along it (`unseen`). The weight of a limit is
met on these runs too, since on a record that is known whole every place is an old one.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from veilstream.control.frame import LEAST, MOVING, NOWHERE, Frame
from veilstream.control.frame_mechanism import FrameMechanism
from veilstream.control.offsets import Offsets, distance, length
from veilstream.control.places import MOST_PLACES, Places
from veilstream.errors import InputError
from veilstream.model.information import Array, Index
from veilstream.model.lattice import WIDTH, Lattice
from veilstream.solvers.frame import FrameSweep, Kernel

FEE = 5.0  # bits of a release elsewhere: those of coming back
FADE = 0.25  # of 1, 1/2, 1/4 and 1/10 the least bits + weight x error on the records of four people, 1 km
SMOOTH, KAPPA = 0.5, 1.0  # releases and moves that every row is given, of what comes back and of what is near
FIRST_SWEEPS, SWEEPS = 20, 8
OUTING = 12  # steps without a reading before a new one
LONGEST = 500  # steps of one
MOST_STEPS = 2500  # of the record, the latest, that frames are run along
COPIES = 16
NEARLY_ALL = 0.999
FEW = 5.0  # moves, below which a law is the usual one
STAYS = {0: (0.85, 0.05, 0.1), 1: (0.7, 0.2, 0.1), 2: (0.7, 0.2, 0.1)}  # stay, anywhere, near: after each wait
USUAL = 0.5, 3.0, 1.75  # stay, cells, exponent of moves where nothing is known of them
LEAVES = 0.02, 3.0, 1.75
SCALES, EXPONENTS = (0.6, 1.6, 3.0, 6.0, 12.0, 24.0), (1.0, 1.75, 3.0)  # of moves: cells, and how they fall off
AGAIN, AROUND = (0.3, 0.6, 0.8), (2.0, 4.0, 8.0, 16.0)  # share of moves like the last one, and how like, in cells


@dataclass(frozen=True, eq=False)
class History:
    """A record on the cells of a lattice."""

    lattice: Lattice
    points: Array  # readings, n x axes
    waited: Index  # n: steps without a reading before each; a stream begins after a long wait

    @classmethod
    def of(cls, lattice: Lattice, points: Array, step: Index, stream: Index) -> "History":
        waited = np.diff(step, prepend=step[:1]) - 1
        waited[np.flatnonzero(np.diff(stream, prepend=stream[:1] - 1))] = 100 * OUTING
        return cls(lattice, points, waited)

    @cached_property
    def group(self) -> Index:
        return Frame.group(self.waited)

    @cached_property
    def packed(self) -> Index:
        return self.lattice.encode(self.points)

    @cached_property
    def _cells(self) -> tuple[Index, Array, Index]:
        """The most visited cells as releases, rising, how often each was visited, and which each reading is in."""
        cell = self.lattice.packed(self.lattice.nearest(self.packed))
        found, where, visits = np.unique(cell, return_inverse=True, return_counts=True)
        kept = np.sort(np.argsort(-visits, kind="stable")[:MOST_PLACES])
        number = np.full(len(found), NOWHERE)
        number[kept] = np.arange(len(kept))
        return found[kept], visits[kept].astype(float), number[where.ravel()]

    @property
    def places(self) -> Array:
        return self.lattice.decode(self._cells[0])

    @property
    def visits(self) -> Array:
        return self._cells[1]

    @property
    def cell(self) -> Index:
        return self._cells[2]

    @cached_property
    def apart(self) -> Array:
        """Cells between any two places, truth x release x axes."""
        p, n = self.places, len(self.visits)
        none = Places(p, np.full((1, n, n), 1 / n), np.zeros((n, n)), np.full(n, 1 / n), 0.5, 0.5, 0.0, 1.0)
        return none.offsets(self.lattice, p)

    @cached_property
    def far(self) -> float:
        """Of a usual move, in the lattice's unit."""
        near = (self.group[1:] == 0) & (self.cell[1:] != self.cell[:-1]) & (self.cell[1:] >= 0) & (self.cell[:-1] >= 0)
        moves = length(self.apart[self.cell[1:][near], self.cell[:-1][near]])
        return self.lattice.spacing * float(moves.mean() if len(moves) else USUAL[1])

    @cached_property
    def outings(self) -> list[slice]:
        """Of the latest steps."""
        first = max(0, len(self.waited) - MOST_STEPS)
        starts = np.flatnonzero(self.waited[first:] >= OUTING) + first
        cuts = np.unique(np.concatenate([[first], starts, [len(self.waited)]])).tolist()
        parts = [range(a, b, LONGEST) for a, b in pairwise(cuts)]
        ends = [*(start for part in parts for start in part), len(self.waited)]
        return [slice(a, b) for a, b in pairwise(ends)]

    def known_elsewhere(self, outing: slice) -> NDArray[np.bool_]:
        """Places that were visited at other times too."""
        own = self.cell[outing]
        return self.visits > np.bincount(own[own >= 0], minlength=len(self.visits))


@dataclass(frozen=True, eq=False)
class Spread:
    """A law of moves: a share stays, the others fall off with their distance, ~ (d + d0)^-(b + axes - 1)."""

    offsets: Offsets
    stay: float
    d0: float  # cells
    b: float

    @cached_property
    def _density(self) -> tuple[Array, Array]:
        """Of a move to each near cell and to each ring, 0 for staying; up to a factor."""
        o, power = self.offsets, -(self.b + self.offsets.axes - 1)
        near = np.where(np.arange(len(o)) == len(o) // 2, 0, (length(o.near) + self.d0) ** power)
        shells = np.geomspace(o.radii[:-1] + 1, o.radii[1:], 64, axis=1)  # rings x 64
        around = 8 * shells * 1.12 if o.axes == 2 else 2 * np.ones_like(shells)
        rings = np.trapezoid(around * (shells * (1.12 if o.axes == 2 else 1) + self.d0) ** power, shells, axis=1)
        return np.asarray(near), np.asarray(rings)

    @cached_property
    def tables(self) -> tuple[Array, Array]:
        """Shares of each near move and of each ring."""
        near, rings = self._density
        total, n = near.sum() + rings.sum(), len(near)
        near = (1 - self.stay) * near / total
        near[n // 2] = self.stay
        return near, (1 - self.stay) * rings / total

    def rate(self, v: Index) -> Array:
        near, rings = self.tables
        return np.asarray(np.concatenate([near, rings / self.offsets.cells])[self.offsets.index(v)])


def fit_moves(offsets: Offsets, moves: Index, usual: tuple[float, float, float], ahead: Array | float = 0.0) -> Spread:
    """The likeliest spread of these moves, m x axes; ahead: how likely each is as one like the last, and its share."""
    if len(moves) < FEW * COPIES:
        return Spread(offsets, *usual)
    zero = (moves == 0).all(1)
    stay = float((zero.sum() + usual[0] * COPIES) / (len(moves) + COPIES))
    every = [Spread(offsets, min(max(stay, 0.01), 0.99), d0, b) for d0, b in product(SCALES, EXPONENTS)]
    return max(every, key=lambda s: float(np.log(s.rate(moves) + ahead)[~zero].sum()))


def fit_ahead(free: Spread, moves: Index, last: Index) -> tuple[Spread, float, Spread]:
    """The spread of moves after a move, how many of them are like it, and how like."""
    o = free.offsets
    best = float(np.log(free.rate(moves)).sum()), free, 0.0, Spread(o, 0.2, AROUND[0], 3.0)
    for share, around in product(AGAIN, AROUND):
        ahead = Spread(o, 1 / (1 + around**o.axes), around, 3.0)
        again = share / (1 - share) * ahead.rate(moves - last)
        own = fit_moves(o, moves, (free.stay, free.d0, free.b), again)
        likely = float(np.log((1 - share) * (own.rate(moves) + again)).sum())
        best = max(best, (likely, own, share, ahead), key=lambda found: found[0])
    return best[1:]


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What a frame does on outings of which it knows no place."""

    error: float
    error_se: float  # over outings
    bits: float
    charged: float  # by its meter
    largest: float  # error of nearly all releases
    frame: Frame = field(repr=False)  # with how she leaves and comes back, as counted there


@dataclass(frozen=True, eq=False)
class PlaceSweep:
    """The recursion on the places of a history, and the frame around them."""

    history: History
    sweep: FrameSweep

    @classmethod
    def of(cls, history: History, unit: str, kernel: Kernel, limit: float = np.inf) -> "PlaceSweep":
        if len(history.points) < 2:
            raise InputError("a record of fewer than two readings says nothing of a person's places")
        lattice = history.lattice
        return cls(history, FrameSweep.of(lattice.spacing, lattice.axes, unit, kernel, limit))

    @cached_property
    def _kernels(self) -> tuple[list[Array], Array]:
        """K_g and the share of releases after each wait."""
        h = self.history
        n, came = len(h.visits), h.cell[:-1]
        common = h.visits / h.visits.sum()
        near = np.exp(-length(h.apart) * (h.lattice.spacing / h.far)) * (h.visits + 0.3)
        near = 0.4 * near / near.sum(1, keepdims=True) + 0.6 * np.eye(n)
        kernels, shares = [], []
        for g in range(3):
            here = (h.group[1:] == g) & (came >= 0) & (h.cell[1:] >= 0)
            counts = np.zeros((n, n))
            np.add.at(counts, (came[here], h.cell[1:][here]), 1)
            prior = near if g == 0 else 0.6 * np.eye(n) + 0.25 * near + 0.15 * common
            kernels.append((counts + KAPPA * prior) / (counts.sum(1, keepdims=True) + KAPPA))
            shares.append(here.sum() + 1.0)
        return kernels, np.asarray(shares, float) / float(sum(shares))

    def solve(self, weight: float, warm: Frame | None = None) -> Frame:
        """The frame for this weight, with how she leaves and comes back as `warm` has it."""
        h, (kernels, share) = self.history, self._kernels
        n, limit = len(h.visits), self.sweep.limit
        base = replace(self.sweep.solve(weight).frame, fade=FADE)
        d = distance(h.apart, h.lattice.spacing)
        allowed = length(h.apart) * h.lattice.spacing * (1 + WIDTH) <= limit
        common = h.visits / h.visits.sum()
        places = None if warm is None else warm.places
        law = np.stack([0.8 * np.eye(n) + 0.2 * common] * 3) if places is None else places.law
        alpha = np.zeros((3, n, n))  # s, x
        for _ in range(FIRST_SWEEPS if places is None else SWEEPS):
            worth = sum(s * (K @ a.T) for s, K, a in zip(share, kernels, alpha, strict=True))
            worth = worth - (worth.diagonal() * common).sum()
            factor = np.where(allowed, np.exp2(-(weight * d + worth)), 0)
            alpha = -np.log2(np.maximum(law @ factor.T, LEAST))
            law, common_y = self._along(factor, law)
        leave, back = (0.02, 0.15) if places is None else (places.leave, places.back)
        places = Places(h.places, law, np.asarray(worth), common_y, leave, back, FEE, h.far)
        if warm is None:
            usual, leaving = Spread(base.offsets, *USUAL), Spread(base.offsets, *LEAVES)
            return with_moves(replace(base, places=places), usual, (usual, 0.0, usual), leaving)
        return replace(base, places=places, moves=warm.moves, jumps=warm.jumps, steer=warm.steer)

    def expected(self, factor: Array, law: Array) -> Array:
        """Releases expected along the record, g x s x y: p the law of the last release, a = r factor / N the channel,

        counts_g(s, y) = sum_t p_t(s) a(y|s, x_t) = r_g(y|s) sum_t p_t(s) / N_g(s, x_t) factor(x_t, y)
        """
        h, n = self.history, len(law[0])
        least = 1 / np.maximum(np.einsum("gsy,xy->gxs", law, factor, optimize=True), LEAST)  # 1 / N
        held, p = np.zeros((3, n, n)), np.zeros(n)  # sums of p / N: g x x x s
        for g, x in zip(h.group.tolist(), h.cell.tolist(), strict=True):
            if x == NOWHERE:
                continue
            if not p.any():
                p[x] = 1.0
                continue
            v = p * least[g, x]
            held[g, x] += v
            p = v @ law[g] * factor[x]
        return np.asarray(law * np.einsum("gxs,xy->gsy", held, factor, optimize=True))

    def _along(self, factor: Array, law: Array) -> tuple[Array, Array]:
        """r_g(y|s) of the releases expected along the record, and how common each is."""
        h, n, counts = self.history, len(law[0]), self.expected(factor, law)
        common = 0.9 * counts.sum((0, 1)) / max(counts.sum(), 1e-300) + 0.1 * h.visits / h.visits.sum()
        common /= common.sum()
        near = np.exp(-length(h.apart) * (h.lattice.spacing / h.far)).T * common
        near /= near.sum(1, keepdims=True)
        rows = []
        for g, (stay, anywhere, local) in STAYS.items():
            usual = stay * np.eye(n) + anywhere * common + local * near
            rows.append((counts[g] + SMOOTH * usual) / (counts[g].sum(1, keepdims=True) + SMOOTH))
        return np.stack(rows), common

    def unseen(self, frame: Frame, density: bool = False) -> Rehearsal:
        """The frame along every outing, without the places that only that outing knows; and what to learn from it.
        density: its bits too, which takes as long again."""
        h, rng, places = self.history, np.random.default_rng(0), frame.places
        assert places is not None
        memory, errors, bits, seen, charged = frame.start(COPIES), [], [], [], 0.0
        for outing in h.outings:
            live = h.known_elsewhere(outing)
            if not live.any():
                live = h.visits == h.visits.max()
            part = replace(frame, places=places.only(live))
            mechanism = FrameMechanism(part)
            s = mechanism.start(COPIES)
            s.memory[:] = memory
            s.memory[:, -2] = part.place_of(memory)
            for t in range(outing.start, outing.stop):
                if h.waited[t]:
                    s = mechanism.skip(s, min(int(h.waited[t]), OUTING))
                x, view = np.full(COPIES, h.packed[t]), mechanism.look(s)
                y = mechanism.draw(s, view, x, rng.random(COPIES))
                after = mechanism.after(s, view, y)
                errors.append(self.error(np.tile(h.points[t], (COPIES, 1)), y))
                bits.append(mechanism.density(s, view, x, y) if density else np.zeros(COPIES))
                was, now = view.parts[0].at, part.known(after.memory)
                seen.append(
                    (was.place != NOWHERE, now.place != NOWHERE, now.move, was.move * (was.waited == 0)[:, None])
                )
                s = after
            memory, charged = s.memory, charged + float(s.total.mean())
        inside, there, moves, lasts = (np.concatenate(column) for column in zip(*seen, strict=True))
        means, counts = np.mean(errors, 1), np.array([o.stop - o.start for o in h.outings])
        off = np.add.reduceat(means - means.mean(), [o.start - h.outings[0].start for o in h.outings])
        se = float(np.sqrt((off**2).sum() * len(counts) / max(len(counts) - 1, 1)) / counts.sum())
        learned = self._learned(frame, inside, there, moves, lasts)
        figures = float(means.mean()), se, float(np.mean(bits)), charged / len(means)
        return Rehearsal(*figures, float(np.quantile(errors, NEARLY_ALL)), learned)

    def error(self, points: Array, y: Index) -> Array:
        """From readings to releases, in the lattice's unit."""
        return errors_of(self.history.lattice, points, y)

    def _learned(
        self, frame: Frame, inside: NDArray[np.bool_], there: NDArray[np.bool_], move: Index, last: Index
    ) -> Frame:
        """Shares of leaving and coming back, and moves elsewhere, as counted over the copies."""
        assert frame.places is not None
        out, left = ~inside & ~there, inside & ~there
        leave = np.clip((left.sum() / COPIES + 0.5) / (inside.sum() / COPIES + 1), 0.005, 0.3)
        back = np.clip(((~inside & there).sum() / COPIES + 0.5) / ((~inside).sum() / COPIES + 2), 0.01, 0.9)
        after = out & (last != 0).any(1)
        free = fit_moves(frame.offsets, move[out & ~after], USUAL)
        leaving = fit_moves(frame.offsets, move[left], LEAVES)
        moving = fit_moves(frame.offsets, move[after], (free.stay, free.d0, free.b))
        ahead = fit_ahead(moving, move[after], last[after]) if after.sum() >= FEW * COPIES else (moving, 0.0, moving)
        places = replace(frame.places, leave=float(leave), back=float(back))
        return with_moves(replace(frame, places=places), free, ahead, leaving)


def with_moves(frame: Frame, free: Spread, moving: tuple[Spread, float, Spread], leaving: Spread) -> Frame:
    """The frame with these laws of moves: after a stay; after a move, with the share that is like it; from a place."""
    laws = [*[free] * MOVING, moving[0], moving[2], leaving]
    moves, jumps = (np.stack(tables) for tables in zip(*(law.tables for law in laws), strict=True))
    moves, jumps = np.maximum(moves, 1e-9), np.maximum(jumps, 1e-9)
    total = moves.sum(1, keepdims=True) + jumps.sum(1, keepdims=True)
    return replace(frame, moves=moves / total, jumps=jumps / total, steer=moving[1])


def errors_of(lattice: Lattice, points: Array, y: Index) -> Array:
    """From readings to packed releases, in the lattice's unit."""
    from veilstream.data.states import apart_km

    shown = lattice.decode(y)
    return np.asarray(apart_km(points, shown) if lattice.is_map else np.abs(points - shown)[:, 0])
