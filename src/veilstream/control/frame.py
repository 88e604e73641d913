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

from veilstream.control.offsets import Offsets, chosen, distance, length
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
MOST_CELLS = 1 << 15  # weights held at once: what a processor keeps at hand, twice as quick as all of a batch
ANYWHERE = MarkovChain(np.ones((1, 1)), name="anywhere")  # no chain is believed


class At(NamedTuple):
    """What a memory holds, k streams."""

    anchor: Index  # k x axes: of the last release
    waited: Index  # k: steps without a release
    move: Index  # k x axes: that the last release made
    place: Index  # k: which place that is, or NOWHERE
    rung: Index  # k: of a ladder
    law: Index  # k: of the next move; of MOVING a share is AHEAD


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

    def at_memory(self, memory: Memory) -> At:
        axes = self.lattice.axes
        waited, move, place = memory[:, axes], memory[:, axes + 1 : 2 * axes + 1], memory[:, -2]
        after = np.where((waited == 0) & (move != 0).any(1), MOVING, self.group(waited))
        return At(memory[:, :axes], waited, move, place, memory[:, -1], np.where(place == NOWHERE, after, LEAVING))

    def place_of(self, memory: Memory) -> Index:
        """Which place of its own the last release was, where places have changed."""
        at = self.at_memory(memory)
        return index_of(self.packed, self.landing(at, 0 * at.anchor))

    def channel(self, memory: Memory) -> Array:
        raise InputError("this policy's releases have no end (veil start), so there is no table of them to look at")

    def check(self) -> None:
        """Laws are checked where it is made."""

    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory:
        flat, y = memory.reshape(-1, memory.shape[-1]), np.asarray(y, np.int64).reshape(-1)
        return self.follow(flat, y)[0].reshape(memory.shape)

    def skip(self, memory: Memory, k: int = 1) -> Memory:
        later = memory.copy()
        later[..., self.lattice.axes] += k
        return later

    # --- the channel -----------------------------------------------------------------------------------------

    @property
    def spacing(self) -> float:
        return self.lattice.spacing

    def farthest(self, left: Array, stretch: Array | float = 1.0, aside: NDArray[np.bool_] | float = 0.0) -> Array:
        """How far a release so many cells from its reading may be; aside: where it lies up to half a column off."""
        if self.lattice.axes == 1:
            return (length(left) + 0.5) * self.spacing  # the reading is anywhere in its level
        return (length(left, stretch) + 0.5 * aside) * self.spacing * (1 + WIDTH) + ROUNDED_KM

    def cost(
        self, left: Index, stretch: Array | float = 1.0, at: Index | None = None, share: Array | float = 1.0
    ) -> Array:
        """lam d(w) + share beta(w) in bits; w in cells, ... x axes. at: its index, where known."""
        values = self.values[self.offsets.index(left) if at is None else at]
        return np.asarray(self.weight * distance(left, self.spacing, stretch) + share * values)

    @staticmethod
    def group(waited: Index) -> Index:
        """Which output model is used after so many steps without a release."""
        return _WAITS.searchsorted(waited, side="right")

    @cached_property
    def _here(self) -> Index:
        return np.arange(len(self.offsets))

    @cached_property
    def _laws(self) -> Array:
        """Cumulative laws of near moves and rings, LAWS x (n + rings)."""
        return np.cumsum(np.concatenate([self.moves, self.jumps], 1), 1)

    @cached_property
    def rates(self) -> Array:
        """r(v) by index of v: LAWS x (n + rings)."""
        return np.concatenate([self.moves, self.jumps / self.offsets.cells], 1)

    def free(self, at: At, v: Index) -> Array:
        """r(v) of moves that name no place, k x m; v: k x m x axes."""
        which = at.law[:, None]
        law = self.rates[which, self.offsets.index(v)]
        if self.steer:
            again = self.rates[AHEAD, self.offsets.index(v - at.move[:, None])]
            law = law + np.where(which == MOVING, self.steer, 0.0) * (again - law)
        if self.places is None:
            return np.asarray(law)
        return law * np.where(at.place == NOWHERE, 1 - self.places.back, self.places.leave)[:, None]

    def among(self, at: At) -> Array:
        """r(y) of the places, k x n."""
        p = self.places
        if p is None:
            return np.zeros((len(at.place), 0))
        cells = length(p.offsets(self.lattice, self.lattice.places(at.anchor).reshape(-1, self.lattice.axes)))
        own = (1 - p.leave) * p.law[self.group(at.waited), np.maximum(at.place, 0)]
        return np.where((at.place == NOWHERE)[:, None], p.coming(cells, self.spacing), own)

    def weights(self, at: At, x: Index) -> tuple[Array, Index]:
        """r 2^-cost of everything that may be released for these readings, and where a move leads, k x m and k x m x
        axes: to her places, near the truth, to where the last release was. Columns are `stretch` times as wide as rows
        at a far truth."""
        u, inside, stretch = self.lattice.seen(at.anchor, x)
        far = self.offsets.ring(u) > 0
        width = np.where(far, stretch, 1.0)[:, None]
        moves = np.concatenate([u[:, None] - self.offsets.near, np.zeros_like(u)[:, None]], 1)
        share = np.where((moves[:, :-1] != 0).any(-1), self.fade, 1.0)
        near = np.exp2(-self.cost(self.offsets.near[None], width, self._here, share))
        stay = np.exp2(-self.cost(u, stretch)) * far
        free = self.free(at, moves) * np.concatenate([near, stay[:, None]], 1)
        if np.isfinite(self.limit):
            left = (u + inside)[:, None] - moves
            free = np.where(self.farthest(left, width, self.lattice.shifts(at.anchor, moves)) > self.limit, 0, free)
        if self.places is None:
            return free, moves
        named = self.among(at) * np.exp2(-self._to_places(self.places, x))
        return np.concatenate([named, free * 2**-self.places.fee], 1), moves

    def _to_places(self, p: Places, x: Index) -> Array:
        """lam d + worth of her places for these readings, k x n; one that is near none is left over as anywhere."""
        left = p.offsets(self.lattice, self.lattice.decode(x))
        far = length(left)
        nearest = np.argmin(far, 1)
        known = far[np.arange(len(x)), nearest] <= np.sqrt(2.0 * self.lattice.axes)
        whole = np.rint(left).astype(np.int64)
        worth = np.where(known[:, None], p.worth[nearest], self.values[self.offsets.index(whole)])
        bits = self.weight * distance(left, self.spacing) + worth
        return np.where(far * self.spacing * (1 + WIDTH) > self.limit, np.inf, bits)

    def draw(self, memory: Memory, x: Index, unseen: NDArray[np.bool_], uniform: Array) -> Index:
        """The releases of k streams for these readings, packed; from the output law where they are not to be seen."""
        parts, most = [], max(1, MOST_CELLS // len(self.offsets))
        for i in range(0, len(x), most):
            here = slice(i, i + most)
            at, blind = self.at_memory(memory[here]), unseen[here]
            mass, moves = self.weights(at, x[here])
            which, each, n = chosen(mass, uniform[here]), np.arange(len(mass)), len(self.packed)
            v, place = self._blind(at, uniform[here])
            v = np.where(blind[:, None], v, moves[each, np.maximum(which - n, 0)])
            y = self.landing(at, v)
            if n:
                place = np.where(blind, place, np.where(which < n, which, NOWHERE))
                y = np.where(place == NOWHERE, y, self.packed[place])
            parts.append(y)
        return np.concatenate(parts)

    def landing(self, at: At, v: Index) -> Index:
        """The release that such a move leads to."""
        return self.lattice.encode(self.lattice.places(self.lattice.moved(at.anchor, v)))

    def _blind(self, at: At, uniform: Array) -> tuple[Index, Index]:
        """Moves, and places instead where one is named, from the output law, without a look at the truth."""
        named = np.cumsum(self.among(at), 1)
        share = named[:, -1] if self.places is not None else np.zeros(len(uniform))
        rest = np.minimum(np.maximum((uniform - share) / (1 - share), 0), 1 - 1e-12)
        ahead = np.where(at.law == MOVING, self.steer, 0.0)
        straight = rest < ahead
        rest = np.where(straight, rest / np.where(ahead > 0, ahead, 1), (rest - ahead) / (1 - ahead))
        v = self._move(np.where(straight, AHEAD, at.law), rest) + np.where(straight[:, None], at.move, 0)
        place = np.minimum((named <= uniform[:, None]).sum(1), named.shape[1] - 1)
        return v, np.where(uniform < share, place, NOWHERE)

    def _move(self, law: Index, uniform: Array) -> Index:
        """A move from each of these laws."""
        sums, n = self._laws[law], len(self.offsets)
        which = np.minimum((sums <= uniform[:, None]).sum(1), sums.shape[1] - 1)
        each = np.arange(len(which))
        below = np.where(which > 0, sums[each, which - 1], 0)
        share = np.minimum(np.maximum((uniform - below) / (sums[each, which] - below), 0), 1 - 1e-12)
        far = self.offsets.on_ring(np.maximum(which - n + 1, 1), share)
        return np.where((which < n)[:, None], self.offsets.near[np.minimum(which, n - 1)], far)

    # --- what is revealed ------------------------------------------------------------------------------------

    def follow(self, memory: Memory, y: Index) -> tuple[Memory, Array]:
        """The memories after these releases; and q(y) of each, given those before. What q sums to over all releases is
        at most 1."""
        at, zero = self.at_memory(memory), np.zeros((len(y), 1), np.int64)
        v, there, place = self.lattice.offset(at.anchor, y), self.lattice.nearest(y), index_of(self.packed, y)
        q = self.free(at, v[:, None])[:, 0] / self.lattice.shared(at.anchor, v)
        if self.places is not None:
            named = self.among(at)[np.arange(len(y)), np.maximum(place, 0)]
            q = q + np.where(place == NOWHERE, 0, named)
        return np.concatenate([there, zero, v, place[:, None], at.rung[:, None]], 1), np.asarray(q)

    def law(self, memory: Memory, y: Index) -> Array:
        """q(y) of the next release."""
        return self.follow(memory, y)[1]

    def chance(self, memory: Memory, x: Index, y: Index) -> Array:
        """a(y|x) of these releases."""
        mass, moves = self.weights(self.at_memory(memory), x)
        every = self.at_memory(np.repeat(memory, moves.shape[1], 0))
        there = self.landing(every, moves.reshape(-1, self.lattice.axes)).reshape(moves.shape[:2])
        same = np.concatenate([y[:, None] == self.packed, there == y[:, None]], 1)
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
