"""A frame that travels with the last release: a policy that works wherever its person is.

The truth lives on a public lattice without an end (`model.lattice`), and everything is seen from the last release:

    u = x - y_prev    offset of the truth        v = y - y_prev    move of the release        w = u - v    what is left

    a(v|u) = r(v) 2^-(lam d(w) + beta(w)) / N(u)            r: how releases go on, known from the releases before

A release lands near the truth (w of at most R cells either way), stays where the last one was, or goes to a place of
the person's (`control.places`), if her history is known. r depends on how long nothing was released, and after a move
on how that one went: a share `steer` of it lies around the same move again. Moves beyond R cells lie
on rings (`control.offsets`), so that a step of a thousand kilometres is a release like any other, at the bits that a
new place costs. Every truth is given the same work.

**What it reveals, whatever the data is.** The public meter counts -log2 q(y), q the law of the next release given those
before, which sums to at most 1. For every law of the data, I(X^n;Y^n) <= H(Y^n) <= E sum -log2 q(y_t): nobody can learn
more from releases than it takes to write them down. A public move between the rungs of feedback adds what it can say.

q(y) = r(v), shared by all cells that lie at the same offset v where columns change their width on the way. The solver
is `solvers.frame`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.control.offsets import INSIDE, Offsets, chosen, distance, length
from veilstream.control.places import Places, index_of
from veilstream.control.policy import Export, Memory, Policy
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, Index
from veilstream.model.lattice import WIDTH, Lattice

WAITS = 1, 12  # steps without a release from which on another output model is used
LAWS = len(WAITS) + 4  # of moves: after each wait; after a move, and around the same move again; away from the places
MOVING, AHEAD, LEAVING = LAWS - 3, LAWS - 2, LAWS - 1
NOWHERE = -1  # as a place
_WAITS = np.array(WAITS)
LEAST = 1e-300
ROUNDED_KM = 2e-4  # what packing moves a reading and its release apart, at most
EXACT = 2  # rings around whose cells the rate of every move is known; with 1, up to 7 % more bits on trips
MOST_CELLS = 1 << 18  # weights held at once: what a processor keeps at hand
ANYWHERE = MarkovChain(np.ones((1, 1)), name="anywhere")  # no chain is believed


class At(NamedTuple):
    """What a memory holds, k streams, and what follows from it before the next release."""

    anchor: Index  # k x axes: of the last release
    waited: Index  # k: steps without a release
    move: Index  # k x axes: that the last release made
    place: Index  # k: which place that is, or NOWHERE
    rung: Index  # k: of a ladder
    law: Index  # k: of the next move; of MOVING a share is AHEAD
    size: Array  # k x axes: of the cells seen from the anchor
    share: Array  # k: of releases that name no place
    named: Array  # k x places: r(y) of each place


class Ways(NamedTuple):
    """From where releases that land near the truth are counted: the last one, or where it is beyond R the truth's own
    cell, whose columns are as wide as they are there."""

    u: Index  # of the truth from there
    away: NDArray[np.bool_]  # k: from its own
    own: Index
    size: Array

    def base(self, at: At, away: NDArray[np.bool_]) -> tuple[Index, Array]:
        """The anchors and the cells that they see."""
        own = away[:, None]
        return np.where(own, self.own, at.anchor), np.where(own, self.size, at.size)


@dataclass(frozen=True, eq=False)
class Frame(Policy, kind="frame"):
    """Output models and values on offsets. A release is a place of the lattice as a number, a memory what `At` says.

    >>> import veilstream as vs
    >>> policy = vs.start(avg="1km").policy
    >>> memory = policy.start()
    >>> policy.update(memory, policy.lattice.encode([[48.137, 11.575]])[0]).tolist() == memory.tolist()
    False
    """

    lattice: Lattice
    offsets: Offsets
    weight: float  # lam: bits per unit of distance
    values: Array  # beta: n + rings, bits: what is left after a release costs this much from then on
    moves: Array  # r: LAWS x n
    jumps: Array  # to each ring: LAWS x rings
    limit: float = np.inf  # of the distance from a reading to its release, at every step
    average: float = np.inf  # the mean error that was asked for
    steer: float = 0.0
    fade: float = 1.0  # share of beta that counts after a release that moves: who moves on leaves it behind
    places: Places | None = None
    chain: MarkovChain | None = ANYWHERE

    def __post_init__(self) -> None:
        n, rings = len(self.offsets), self.offsets.rings
        found = (np.shape(self.values), np.shape(self.moves), np.shape(self.jumps))
        if found != ((n + rings,), (LAWS, n), (LAWS, rings)) or self.lattice.axes != self.offsets.axes:
            raise InputError(f"a frame of {n} offsets and {rings} rings does not fit tables of shape {found}")
        if not (self.weight >= 0 and min(self.limit, self.average) > 0 and np.isfinite(self.values).all()):
            raise InputError("a frame needs a limit above 0, and a weight and values that are finite")
        total = self.moves.sum(1) + self.jumps.sum(1)
        if not ((self.moves > 0).all() and (self.jumps > 0).all() and np.allclose(total, 1, atol=1e-9)):
            raise InputError("a frame's output models must be laws that call nothing impossible")
        if not 0 <= self.steer < 1:
            raise InputError(f"a frame's share of moves ahead must be from 0 up to 1, found {self.steer:g}")
        if self.farthest(np.full(self.lattice.axes, 0.5 * (self.lattice.axes == 2)), aside=1.0) > self.limit:
            raise InputError(f"cells of {self.spacing:g} are too wide for a limit of {self.limit:g} at every step")
        if self.offsets.radii[-1] < self.lattice.farthest:
            raise InputError("the rings of a frame must reach every place, or its output models are no laws")
        if self.places is not None and (
            self.places.points.shape[1] != self.lattice.axes
            or len(self.places.law) != len(WAITS) + 1
            or (np.diff(self.packed) <= 0).any()
        ):
            raise InputError("a frame's places must lie on its lattice, in order")

    # --- the loop --------------------------------------------------------------------------------------------

    @property
    def n_states(self) -> int:
        """Of the chain it believes in: none."""
        return 1

    @property
    def n_outputs(self) -> int:
        return 1

    @cached_property
    def packed(self) -> Index:
        """The places as releases, rising."""
        return np.zeros(0, np.int64) if self.places is None else self.lattice.encode(self.places.points)

    def start(self, n: int | None = None) -> Memory:
        """At the commonest place, or at the origin; as if after a long time."""
        place, anchor = NOWHERE, np.zeros(self.lattice.axes, np.int64)
        if self.places is not None:
            place = int(self.places.common.argmax())
            anchor = self.lattice.nearest(self.packed[place : place + 1])[0]
        one = np.concatenate([anchor, [WAITS[-1]], 0 * anchor, [place, 0]])
        return one if n is None else np.tile(one, (n, 1))

    def known(self, memory: Memory) -> At:
        axes, p = self.lattice.axes, self.places
        anchor, waited, move = memory[:, :axes], memory[:, axes], memory[:, axes + 1 : 2 * axes + 1]
        place, size = memory[:, -2], self.lattice.size(memory[:, 0])
        law = np.where((waited == 0) & (move != 0).any(1), MOVING, self.group(waited))
        if p is None:
            return At(anchor, waited, move, place, memory[:, -1], law, size, np.ones(len(law)), np.empty((len(law), 0)))
        elsewhere = place == NOWHERE
        named = self._named[self.group(waited), place]
        if (rows := elsewhere.nonzero()[0]).size:
            cells = length(p.offsets(self.lattice, self.lattice.places(anchor[rows])))
            named[rows] = p.coming(cells, self.spacing)
        law, share = np.where(elsewhere, law, LEAVING), np.where(elsewhere, 1 - p.back, p.leave)
        return At(anchor, waited, move, place, memory[:, -1], law, size, share, named)

    def place_of(self, memory: Memory) -> Index:
        """Which place of its own the last release was, where places have changed."""
        return index_of(self.packed, self.lattice.packed(memory[:, : self.lattice.axes]))

    def channel(self, memory: Memory) -> Array:
        raise InputError("this policy's releases have no end (veil start), so there is no table of them to look at")

    def check(self) -> None:
        """Laws are checked where it is made."""

    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory:
        flat, y = memory.reshape(-1, memory.shape[-1]), np.asarray(y, np.int64).reshape(-1)
        return self.follow(self.known(flat), y)[0].reshape(memory.shape)

    def skip(self, memory: Memory, k: int = 1) -> Memory:
        later = memory.copy()
        later[..., self.lattice.axes] += k
        return later

    # --- the channel -----------------------------------------------------------------------------------------

    @property
    def spacing(self) -> float:
        return self.lattice.spacing

    def farthest(self, left: Array, aside: NDArray[np.bool_] | float = 0.0) -> Array:
        """How far a release so many cells from its reading may be; aside: where it lies up to half a column off."""
        if self.lattice.axes == 1:
            return (length(np.rint(left)) + 0.5) * self.spacing  # the reading is anywhere in its level
        return (length(left) + 0.5 * aside) * self.spacing * (1 + WIDTH) + ROUNDED_KM

    @staticmethod
    def group(waited: Index) -> Index:
        """Which output model is used after so many steps without a release."""
        return _WAITS.searchsorted(waited, side="right")

    # tables, made once: what is left of a reading is a look-up and a product

    @cached_property
    def rates(self) -> Array:
        """r(v) by index of v: LAWS x (n + rings)."""
        return np.concatenate([self.moves, self.jumps / self.offsets.cells], 1)

    @cached_property
    def _windows(self) -> NDArray[np.float64]:
        """r(u - w) of near w by law and TABLE - u, for u of at most TABLE = R 2^EXACT cells; and a law of ones."""
        o, reach = self.offsets, self.offsets.reach
        rates = self.rates[:, o.index(-o.window((2**EXACT + 1) * reach))]
        side = (2 * reach + 1,) * o.axes
        every = np.concatenate([rates, np.ones_like(rates[:1])])
        return np.lib.stride_tricks.sliding_window_view(every, side, tuple(range(1, o.axes + 1)))

    @cached_property
    def _landing(self) -> Array:
        """2^-(lam d(w) + fade beta(w)) of near w; and ones, for who does not look."""
        o = self.offsets
        bits = self.weight * distance(o.near, self.spacing) + self.fade * self.values[: len(o)]
        return np.stack([np.exp2(-bits), np.ones(len(o))])

    @cached_property
    def _named(self) -> Array:
        """r(y|s) of places from a place: groups x n x n."""
        assert self.places is not None
        return (1 - self.places.leave) * self.places.law

    def free(self, at: At, v: Index, where: Index | int | None = None) -> Array:
        """r(v) of moves that name no place; v: k x axes. where: their index, if known."""
        law = self.rates[at.law, self.offsets.index(v) if where is None else where]
        if self.steer and (rows := (at.law == MOVING).nonzero()[0]).size:
            again = self.rates[AHEAD, self.offsets.index((v - at.move)[rows])]
            law[rows] += self.steer * (again - law[rows])
        return np.asarray(law * at.share)

    def _near(self, at: At, u: Index, where: Index) -> tuple[Array, Array]:
        """r(u - w) of near w, k x n, and a factor of each row. The rates around what lies beyond the table are its."""
        most, last = self.offsets.reach * 2**EXACT, len(self.offsets) - 1 + EXACT

        def window(law: Index | int, u: Index, where: Index) -> tuple[Array, Array]:
            corner = np.minimum(np.maximum(most - u, 0), 2 * most)
            found = self._windows[(np.where(where > last, LAWS, law), *corner.T)]
            return found.reshape(len(u), -1), np.where(where > last, self.rates[law, where], 1.0)

        near, scale = window(at.law, u, where)
        if self.steer and (rows := (at.law == MOVING).nonzero()[0]).size:  # a share lies around the same move again
            left = (u - at.move)[rows]
            again, other = window(AHEAD, left, self.offsets.index(left))
            own = near[rows] * scale[rows, None]
            near[rows], scale[rows] = own + self.steer * (again * other[:, None] - own), 1
        return near, scale * at.share

    def weights(self, at: At, x: Index, unseen: NDArray[np.bool_]) -> tuple[Array, Ways]:
        """Up to a factor, r 2^-cost of everything that may be released for these readings, k x m: her places, moves
        that leave w near, to where the last release was. Who is not to look has u = 0, no cost, goes nowhere far.
        """
        o, n, near, points = self.offsets, len(self.packed), len(self.offsets), self.lattice.decode(x)
        exact = self.lattice.between(at.anchor, at.size, points)
        u = np.where(unseen[:, None], 0, np.rint(exact)).astype(np.int64)
        where, mass = o.index(u), np.empty((len(u), n + near + 1))
        away = where >= near
        ways = Ways(np.where(away[:, None], 0, u), away, *self.lattice.cell(points))
        fee = 1.0 if self.places is None else np.where(unseen, 1.0, 2**-self.places.fee)
        rates, scale = self._near(at, u, where)
        scale *= fee
        np.multiply(rates, self._landing.take(unseen, 0), out=mass[:, n:-1])
        # who stays does not leave behind what the release missed: not faded
        mass[np.arange(len(u)), n + np.where(unseen, near, np.minimum(where, near))] = 0
        cost = self.weight * distance(u, self.spacing) + self.values[where]
        mass[:, -1] = ~unseen * fee * self.free(at, 0 * u, near // 2) * np.exp2(-cost) / scale
        if np.isfinite(self.limit):
            mass[:, n:] *= self._allowed(at, ways, exact, points) | unseen[:, None]
        if self.places is not None:
            bits = np.where(unseen[:, None], 0.0, self._to_places(self.places, points))
            mass[:, :n] = at.named * np.exp2(-bits) / scale[:, None]
        return mass, ways

    def _allowed(self, at: At, ways: Ways, exact: Array, points: Array) -> NDArray[np.bool_]:
        """Which releases keep the limit at every step: near w, then where the last release was."""
        anchor, size = ways.base(at, ways.away)
        inside = self.lattice.between(anchor, size, points) - ways.u
        aside = self.lattice.shifts(anchor, size, ways.u[:, :1] - self.offsets.near[:, 0])
        near = self.farthest(self.offsets.near + inside[:, None], aside) <= self.limit
        stay = (self.farthest(exact) <= self.limit) & ~ways.away
        return np.concatenate([near, stay[:, None]], 1)

    def _to_places(self, p: Places, points: Array) -> Array:
        """lam d + worth of her places for these readings, k x n; one that is near none is left over as anywhere."""
        left = p.offsets(self.lattice, points)
        far = length(left)
        nearest = np.argmin(far, 1)
        known = far[np.arange(len(points)), nearest] <= np.sqrt(2.0 * self.lattice.axes)
        beta = self.values.take(self.offsets.index(np.rint(left).astype(np.int64)))
        worth = np.where(known[:, None], p.worth[nearest], beta)
        bits = self.weight * self.spacing * np.sqrt(far**2 + INSIDE[self.lattice.axes] ** 2) + worth
        return np.where(far * self.spacing * (1 + WIDTH) > self.limit, np.inf, bits)

    def draw(self, at: At, x: Index, unseen: NDArray[np.bool_], uniform: Array) -> Index:
        """The releases of k streams for these readings, packed; unseen: without a look, from the output law of what is
        near or hers."""
        most = max(1, MOST_CELLS // len(self.offsets))
        if len(x) > most:
            parts = [slice(i, i + most) for i in range(0, len(x), most)]
            own = [self.draw(At._make(known[p] for known in at), x[p], unseen[p], uniform[p]) for p in parts]
            return np.concatenate(own)
        mass, ways = self.weights(at, x, unseen)
        which, n = chosen(mass, uniform), len(self.packed)
        moves = which < mass.shape[1] - 1
        v = (ways.u - self.offsets.near.take(which - n, 0, mode="clip")) * moves[:, None]
        y = self.lattice.landing(*ways.base(at, ways.away & moves), v)
        return np.where(which < n, self.packed.take(which, mode="clip"), y) if n else y

    # --- what is revealed ------------------------------------------------------------------------------------

    def follow(self, at: At, y: Index) -> tuple[Memory, Array]:
        """The memories after these releases; and q(y) of each, given those before. What q sums to over all releases is
        at most 1."""
        points = self.lattice.decode(y)
        there, size = self.lattice.cell(points)
        v = np.rint(self.lattice.between(at.anchor, at.size, points)).astype(np.int64)
        q, place = self.free(at, v) / self.lattice.shared(at.size, size), index_of(self.packed, y)
        if self.places is not None:
            q = q + np.where(place == NOWHERE, 0, at.named[np.arange(len(y)), place])
        zero = np.zeros((len(y), 1), np.int64)
        return np.concatenate([there, zero, v, place[:, None], at.rung[:, None]], 1), np.asarray(q)

    def chance(self, at: At, x: Index, y: Index) -> Array:
        """a(y|x) of these releases."""
        mass, ways = self.weights(at, x, np.zeros(len(x), bool))
        k, m = len(x), len(self.offsets)
        v = (ways.u[:, None] - self.offsets.near).reshape(k * m, -1)
        anchor, size = ways.base(at, ways.away)
        moved = self.lattice.landing(np.repeat(anchor, m, 0), np.repeat(size, m, 0), v).reshape(k, m)
        stayed = self.lattice.packed(at.anchor)[:, None]
        same = np.concatenate([np.broadcast_to(self.packed, (k, len(self.packed))), moved, stayed], 1) == y[:, None]
        return np.asarray((mass * same).sum(1) / mass.sum(1))

    @cached_property
    def dearest(self) -> float:
        """Bits of the dearest release, whatever was released before."""
        least = self.rates[: LEAVING if self.places is None else LAWS].min()
        if self.places is not None:
            least *= min(self.places.leave, 1 - self.places.back)
        return float(-np.log2(least * (1 - self.steer) / self.lattice.most_shared))

    # --- the file --------------------------------------------------------------------------------------------

    def export(self) -> Export:
        o = self.offsets
        finite = {k: None if np.isinf(v) else v for k, v in (("limit", self.limit), ("average", self.average))}
        meta: dict[str, Any] = {"kind": self.kind, "reach": o.reach, "axes": o.axes, "rings": o.rings}
        meta |= {"spacing": self.spacing, "unit": self.lattice.unit, **finite}
        meta |= {"weight": self.weight, "steer": self.steer, "fade": self.fade}
        arrays = {"values": self.values, "moves": self.moves, "jumps": self.jumps}
        if self.places is not None:
            meta["places"], own = self.places.export()
            arrays |= {f"places.{k}": v for k, v in own.items()}
        return meta, arrays

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> "Frame":
        offsets = Offsets(int(meta["reach"]), int(meta["axes"]), int(meta["rings"]))
        limit, average = (np.inf if meta[k] is None else float(meta[k]) for k in ("limit", "average"))
        values, moves, jumps = (np.asarray(arrays[k], float) for k in ("values", "moves", "jumps"))
        lattice = Lattice(float(meta["spacing"]), offsets.axes, str(meta["unit"]))
        own = {k.removeprefix("places."): v for k, v in arrays.items() if k.startswith("places.")}
        places = Places.restore(meta["places"], own) if "places" in meta else None
        weight, steer, fade = (float(meta[k]) for k in ("weight", "steer", "fade"))
        return cls(lattice, offsets, weight, values, moves, jumps, limit, average, steer, fade, places, chain)
