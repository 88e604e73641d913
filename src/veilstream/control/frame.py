"""A frame that travels with the last release: a policy that works wherever its person is, with no history of her.

The truth lives on a public lattice without an end (`model.lattice`), and everything is seen from the last release:

    u = x - y_prev    offset of the truth        v = y - y_prev    move of the release        w = u - v    what is left

    a_g(v|u) = r_g(v) 2^-(lam d(w) + beta(w)) / N_g(u)                               g: how long nothing was released

Offsets of at most R cells either way are *near*; farther ones lie on rings, ring k out to R 2^k. A release moves to any
cell near the last one, or jumps to any cell near the truth. Jumps have the law of their ring, r_g(v) = rho_g(k) /
cells(k), so that a step of a thousand kilometres is a release like any other, at the bits that a new place costs. Every
truth is given the same work: both kinds of move are always weighed.

**What it reveals, whatever the data is.** For every law of the data, sum E log2 a(v|u)/r(v) bounds I(X;Y)
(`universal_bound`). Its largest value over truths is a function of the release alone,

    c_g(v) = max over u of log2 a_g(v|u) / r_g(v),

so the sum of c along the releases is a public meter that bounds, in the mean, what they reveal of anybody. For a truth
on ring k, N(u) >= (least r on rings k-1, k, k+1) sum_w 2^-(lam d(w) + beta(w)), the sum over one column alone, however
wide columns are out there. The solver is `solvers.frame`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.control.accountant import Streams
from veilstream.control.mechanism import SILENT
from veilstream.control.policy import Export, Memory, Policy
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.histories import BLIND
from veilstream.model.information import Array, Index
from veilstream.model.lattice import WIDTH, Lattice

WAITS = 1, 12  # steps without a release from which on another output model is used
MOST_REACH, MOST_RINGS = 32, 40
LEAST = 1e-300
MOST_CELLS = 1 << 22  # weights held at once


@dataclass(frozen=True)
class Offsets:
    """The near offsets and the rings around them, in cells.

    >>> offsets = Offsets(reach=2, axes=1, rings=2)
    >>> offsets.near[:, 0].tolist(), offsets.ring(np.array([[2], [3], [9]])).tolist(), offsets.cells.tolist()
    ([-2, -1, 0, 1, 2], [0, 1, 2], [4.0, 8.0])
    """

    reach: int
    axes: int
    rings: int

    def __post_init__(self) -> None:
        if not (1 <= self.reach <= MOST_REACH and self.axes in (1, 2) and 1 <= self.rings <= MOST_RINGS):
            raise InputError(f"a frame of {self.reach} cells, {self.axes} axes and {self.rings} rings is none")

    @cached_property
    def near(self) -> Index:
        """n x axes, n = (2R+1)^axes."""
        side = np.arange(-self.reach, self.reach + 1)
        return np.stack(np.meshgrid(*[side] * self.axes, indexing="ij"), -1).reshape(-1, self.axes)

    def __len__(self) -> int:
        return int((2 * self.reach + 1) ** self.axes)

    @cached_property
    def radii(self) -> Array:
        """R 2^k, k = 0 .. rings."""
        return np.asarray(self.reach * 2.0 ** np.arange(self.rings + 1), np.float64)

    @cached_property
    def cells(self) -> Array:
        """Cells of each ring."""
        return np.asarray(np.diff((2 * self.radii + 1) ** self.axes), np.float64)

    def ring(self, u: Index) -> Index:
        """0 for near offsets; what lies beyond the last ring is on it."""
        return np.asarray(np.minimum(np.searchsorted(self.radii, np.abs(u).max(-1)), self.rings))

    def index(self, u: Index) -> Index:
        """Which near offset each of these is, else n - 1 + its ring."""
        ring, side = self.ring(u), 2 * self.reach + 1
        number = u[..., 0] + self.reach
        for axis in range(1, self.axes):
            number = number * side + u[..., axis] + self.reach
        return np.where(ring == 0, number, len(self) - 1 + ring)

    def on_ring(self, ring: Index, share: Array) -> Index:
        """The cell that a share of the cells of these rings (1 ..) comes to."""
        inner, outer = (self.radii[ring - k].astype(np.int64) for k in (1, 0))
        at, band = (share * self.cells[ring - 1]).astype(np.int64), outer - inner
        if self.axes == 1:
            return np.where(at < band, at - outer, inner + 1 + at - band)[:, None]
        i, j = np.divmod(at, 2 * outer + 1)  # rows below the hole and above it, then what is left and right of it
        k, l = np.divmod(np.maximum(at - 2 * band * (2 * outer + 1), 0), 2 * band)
        whole = i < 2 * band
        row = np.where(i < band, i - outer, np.where(whole, inner + 1 + i - band, k - inner))
        return np.stack([row, np.where(whole, j - outer, np.where(l < band, l - outer, inner + 1 + l - band))], 1)


@dataclass(frozen=True, eq=False)
class Frame(Policy, kind="frame"):
    """Output models and values on offsets. A release is a place of the lattice, as a number; a memory is the last one,
    and for how many steps there has been none.

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
    moves: Array  # r: G x n
    jumps: Array  # rho: G x rings
    limit: float = np.inf  # of the distance from a reading to its release, at every step
    average: float = np.inf  # the mean error that was asked for
    chain: MarkovChain | None = None  # of what is left, by the kernel it was made for; no promise rests on it

    def __post_init__(self) -> None:
        n, rings, groups = len(self.offsets), self.offsets.rings, len(WAITS) + 1
        found = (np.shape(self.values), np.shape(self.moves), np.shape(self.jumps))
        if found != ((n + rings,), (groups, n), (groups, rings)) or self.lattice.axes != self.offsets.axes:
            raise InputError(f"a frame of {n} offsets and {rings} rings does not fit tables of shape {found}")
        if not (self.weight >= 0 and min(self.limit, self.average) > 0 and np.isfinite(self.values).all()):
            raise InputError("a frame needs a limit above 0, and a weight and values that are finite")
        total = self.moves.sum(1) + self.jumps.sum(1)
        if not ((self.moves > 0).all() and (self.jumps > 0).all() and np.allclose(total, 1, atol=1e-9)):
            raise InputError("a frame's output models must be laws that call nothing impossible")
        if self.slack > self.limit:
            raise InputError(f"cells of {self.spacing:g} are too wide for a limit of {self.limit:g} at every step")

    # --- the loop --------------------------------------------------------------------------------------------

    @property
    def n_states(self) -> int:
        """Offsets of a truth that the kernel tells apart."""
        return len(self.offsets) + self.offsets.rings

    @property
    def n_outputs(self) -> int:
        return self.n_states

    def start(self, n: int | None = None) -> Memory:
        """At the origin, as if after a long time."""
        one = np.array([0] * self.lattice.axes + [WAITS[-1]])
        return one if n is None else np.tile(one, (n, 1))

    def channel(self, memory: Memory) -> Array:
        raise InputError("this policy's releases have no end (veil start), so there is no table of them to look at")

    def check(self) -> None:
        """Laws are checked where it is made."""

    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory:
        there = self.lattice.nearest(np.asarray(y, np.int64).reshape(-1))
        return np.concatenate([there, np.zeros((len(there), 1), np.int64)], 1).reshape(np.shape(memory))

    def skip(self, memory: Memory, k: int = 1) -> Memory:
        return np.concatenate([memory[..., :-1], memory[..., -1:] + k], -1)

    # --- the channel ---------------------------------------------------------------------------------------

    @property
    def spacing(self) -> float:
        return self.lattice.spacing

    @property
    def slack(self) -> float:
        """How much farther a reading may be from a release than their cells are: half a cell of the truth, and half a
        column where a release changes bands."""
        return self.spacing * (0.5 if self.lattice.axes == 1 else 1.25)

    def cost(self, left: Index, stretch: Array | float = 1.0) -> Array:
        """lam d(w) + beta(w) in bits, infinite beyond the limit; w in cells, ... x axes."""
        return self._bits(left, self.offsets.index(left), stretch)

    def _bits(self, left: Index, at: Index, stretch: Array | float = 1.0) -> Array:
        """`cost`, where the index of what is left is known."""
        bits = self.weight * distance(left, self.spacing, stretch) + self.values[at]
        if np.isinf(self.limit):
            return bits
        farthest = length(left, stretch) * self.spacing * (1 + WIDTH) + self.slack
        return np.where(farthest > self.limit, np.inf, bits)

    @staticmethod
    def group(waited: Index) -> Index:
        """Which output model is used after so many steps without a release."""
        return np.searchsorted(np.array(WAITS), waited, side="right")

    @cached_property
    def _here(self) -> Index:
        return np.arange(len(self.offsets))

    @cached_property
    def _law(self) -> Array:
        """Cumulative laws of near moves and rings, G x (n + rings)."""
        return np.cumsum(np.concatenate([self.moves, self.jumps], 1), 1)

    @cached_property
    def _rates(self) -> Array:
        """r_g(v) by index of v: G x (n + rings)."""
        return np.concatenate([self.moves, self.jumps / self.offsets.cells], 1)

    def law(self, group: Index, v: Index) -> Array:
        """r_g(v) of moves, n x axes."""
        return np.asarray(self._rates[group, self.offsets.index(v)])

    def weights(self, group: Index, u: Index, stretch: Array) -> tuple[Array, Index]:
        """2^-cost r_g(v) of all moves v that may be made, n x 2|near|, and the moves: near the last release, then near
        the truth, where they are not the same. Columns are `stretch` times as wide at a far truth."""
        near, n = self.offsets.near, len(self.offsets)
        left = u[:, None] - near  # by a move near the last release; and the jumps that leave what is near
        at = self.offsets.index(left)
        width = np.where(self.offsets.ring(u) > 0, stretch, 1.0)[:, None]
        landing = np.broadcast_to(self._bits(near[None], self._here, width), at.shape)
        cost = np.concatenate([self._bits(left, at), landing], 1)
        rate = np.concatenate([self.moves[group], self._rates[group[:, None], at] * (at >= n)], 1)
        return rate * np.exp2(-cost), np.concatenate([np.broadcast_to(near, left.shape), left], 1)

    def draw(self, group: Index, u: Index, stretch: Array, uniform: Array) -> Index:
        """The moves of n streams with their truths at these offsets, n x axes."""
        parts, most = [], max(1, MOST_CELLS // len(self.offsets))
        for i in range(0, len(u), most):
            here = slice(i, i + most)
            mass, moves = self.weights(group[here], u[here], stretch[here])
            which = chosen(mass, uniform[here])
            parts.append(moves[np.arange(len(which)), which])
        return np.concatenate(parts)

    def blind(self, group: Index, uniform: Array) -> Index:
        """Moves from the output law, without a look at the truth."""
        sums, n = self._law[group], len(self.offsets)
        which = np.minimum((sums <= uniform[:, None]).sum(1), sums.shape[1] - 1)
        each = np.arange(len(which))
        below = np.where(which > 0, sums[each, which - 1], 0)
        share = np.minimum(np.maximum((uniform - below) / (sums[each, which] - below), 0), 1 - 1e-12)
        far = self.offsets.on_ring(np.maximum(which - n + 1, 1), share)
        return np.where((which < n)[:, None], self.offsets.near[np.minimum(which, n - 1)], far)

    # --- what is revealed ------------------------------------------------------------------------------------

    @cached_property
    def charges(self) -> Array:
        """c_g(v) by index of v, bits: no truth reveals more by that move. G x (n + rings)."""
        near, n = self.offsets.near, len(self.offsets)
        E = np.exp2(-self.cost(near[:, None] - near[None]))  # of near truths u and moves v
        own = np.stack([self.weights(np.full(n, g), near, np.ones(n))[0].sum(1) for g in range(len(self.moves))])
        close = np.log2(np.maximum((E / np.maximum(own, LEAST)[..., None]).max(1), LEAST))  # G x n
        middle = near[:, -1] == 0 if self.lattice.axes == 2 else np.ones(n, bool)
        landing = np.exp2(-self.cost(near[middle])).sum()
        least = np.pad(self._rates[:, n:], ((0, 0), (1, 1)), mode="edge")
        least[:, 0] = self.moves.min(1)
        N = landing * np.minimum(np.minimum(least[:, :-2], least[:, 1:-1]), least[:, 2:])  # G x rings
        inner = (self.offsets.radii[:-1] + 1)[None] - np.abs(near).max(1)[:, None]  # nearest a truth on ring k is to v
        beyond = self.weight * inner * self.spacing + self.values.min()
        beyond = np.where(inner * self.spacing + self.slack > self.limit, np.inf, beyond)
        far = (-beyond[None] - np.log2(np.maximum(N, LEAST))[:, None]).max(-1)
        jump = np.pad(N, ((0, 0), (1, 1)), mode="edge")
        jump[:, 0] = own.min(1)
        fewest = np.minimum(np.minimum(jump[:, :-2], jump[:, 1:-1]), jump[:, 2:])
        most = -float(self.cost(near, 0.0).min())
        found = np.concatenate([np.maximum(close, far), most - np.log2(np.maximum(fewest, LEAST))], 1)
        return np.asarray(np.clip(found, 0, -np.log2(self._rates)))  # a(v|u) <= 1

    def charge(self, group: Index, v: Index) -> Array:
        return np.asarray(self.charges[group, self.offsets.index(v)])

    # --- the file ----------------------------------------------------------------------------------------

    def export(self) -> Export:
        o, limit = self.offsets, None if np.isinf(self.limit) else self.limit
        meta: dict[str, Any] = {"kind": self.kind, "reach": o.reach, "axes": o.axes, "rings": o.rings}
        meta |= {"spacing": self.spacing, "unit": self.lattice.unit, "weight": self.weight, "limit": limit}
        meta |= {"average": None if np.isinf(self.average) else self.average}
        return meta, {"values": self.values, "moves": self.moves, "jumps": self.jumps}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> "Frame":
        offsets = Offsets(int(meta["reach"]), int(meta["axes"]), int(meta["rings"]))
        limit, average = (np.inf if meta[k] is None else float(meta[k]) for k in ("limit", "average"))
        values, moves, jumps = (np.asarray(arrays[k], float) for k in ("values", "moves", "jumps"))
        lattice = Lattice(float(meta["spacing"]), offsets.axes, str(meta["unit"]))
        if offsets.radii[-1] < lattice.farthest:
            raise InputError("the rings of a frame must reach every place, or its output models are no laws")
        return cls(lattice, offsets, float(meta["weight"]), values, moves, jumps, limit, average, chain)


class FrameMechanism:
    """The release loop of a frame: what `Mechanism` is for policies that have a table."""

    def __init__(self, policy: Frame, ceiling: float | None = None) -> None:
        if ceiling is not None and not ceiling >= 0:
            raise InputError(f"ceiling must be a number of bits >= 0, found {ceiling}")
        self.policy, self.ceiling = policy, np.inf if ceiling is None else ceiling
        self.dearest = policy.charges.max(1)  # of one release, G
        self.meter = None  # of the kind that keeps a belief
        self.safe = None if np.isinf(policy.limit) else np.zeros(1, bool)  # what may be shown without a look: nothing

    def start(self, n: int, step: ArrayLike = 0) -> Streams:
        """n streams that begin at these public steps."""
        first = np.broadcast_to(np.asarray(step, np.int64), n).copy()
        return Streams(self.policy.start(n), np.empty((n, 0)), np.zeros(n), first)

    def skip(self, s: Streams, k: int = 1) -> Streams:
        """k steps without a release."""
        return Streams(self.policy.skip(s.memory, k), s.belief, s.total, s.step + k)

    def true_states(self, last: Index, x: Index) -> Index:
        """What the mechanism may look at: the reading."""
        return x

    def draw(self, anchor: Index, group: Index, x: Index, u: Array) -> Index:
        """Moves from the last releases, by the readings or, where these are BLIND, by the output law."""
        seen = self.policy.draw(group, *self.policy.lattice.seen(anchor, np.maximum(x, 0)), u)
        return np.where((x == BLIND)[:, None], self.policy.blind(group, u), seen)

    def step(self, s: Streams, x: Index, u: Array) -> tuple[Streams, Index]:
        """One step of every stream: packed readings x (BLIND: do not look), uniforms u -> new state, packed releases y.

        Beyond the ceiling nothing is looked at; with a limit at every step a stream that does not look is silent.
        """
        policy, lattice = self.policy, self.policy.lattice
        anchor, group = s.memory[:, :-1], policy.group(s.memory[:, -1])
        over = s.total + self.dearest[group] > self.ceiling  # public
        unseen = (x == BLIND) | over
        v = self.draw(anchor, group, np.where(unseen, BLIND, x), u)
        there = lattice.moved(anchor, v)
        y = lattice.encode(lattice.places(there))
        silent = unseen & bool(np.isfinite(policy.limit))
        memory = np.concatenate([there, np.zeros((len(there), 1), np.int64)], 1)
        memory = np.where(silent[:, None], policy.skip(s.memory), memory)
        bits = np.where(over | silent, 0.0, policy.charge(group, v))
        return Streams(memory, s.belief, s.total + bits, s.step + 1), np.where(silent, SILENT, y)


def length(left: Array | Index, stretch: Array | float = 1.0) -> Array:
    """Of offsets, ... x axes -> ..., in cells; columns `stretch` times as wide as rows."""
    square = np.asarray(left, float) ** 2
    return np.asarray(np.sqrt(square[..., 0] if left.shape[-1] == 1 else square[..., 0] + square[..., 1] * stretch**2))


def distance(left: Array | Index, spacing: float, stretch: Array | float = 1.0) -> Array:
    """Mean distance from a reading anywhere in its cell to a release so many cells away, nearly."""
    inside = 0.25 if left.shape[-1] == 1 else 0.3826  # from the middle of its own cell
    return np.asarray(spacing * np.sqrt(length(left, stretch) ** 2 + inside**2))


def chosen(mass: Array, uniform: Array) -> Index:
    """One entry a row, with these chances up to a factor: what weighs nothing is never chosen."""
    sums = np.cumsum(mass, -1)
    total = sums[:, -1:]
    return np.asarray(((sums <= uniform[:, None] * total) & (sums < total)).sum(-1))
