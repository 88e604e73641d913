"""Offsets on a lattice, seen from the last release: near ones one by one, farther ones as rings.

Offsets of at most R cells either way are *near*; ring k holds those out to R 2^k. What is known of an offset is a
number for each near one and for each ring, whose cells are all alike.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilstream.errors import InputError
from veilstream.model.chain import draw
from veilstream.model.information import Array, Index

MOST_REACH, MOST_RINGS = 32, 40
FEW = 8  # rows, for which numpy's calls take longer than the sums
INSIDE = {1: 0.25, 2: 0.3826}  # cells from a reading to the middle of its own, in the mean


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
        return self.window(self.reach).reshape(-1, self.axes)

    def window(self, reach: int) -> Index:
        """All offsets of at most so many cells either way, one axis of the array for each of the lattice."""
        side = np.arange(-reach, reach + 1)
        return np.stack(np.meshgrid(*[side] * self.axes, indexing="ij"), -1)

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
        far = np.maximum.reduce(np.abs(u), -1, initial=1)
        doublings = np.frexp((far - 1) // self.reach)[1]  # 0 up to R, 1 up to 2R, 2 up to 4R
        return np.asarray(np.minimum(doublings, self.rings), np.int64)

    def index(self, u: Index) -> Index:
        """Which near offset each of these is, else n - 1 + its ring."""
        ring, side = self.ring(u), 2 * self.reach + 1
        number = u[..., 0] if self.axes == 1 else u[..., 0] * side + u[..., 1]
        return np.where(ring == 0, number + len(self) // 2, ring + (len(self) - 1))


def length(left: Array | Index) -> Array:
    """Of offsets, ... x axes -> ..., in cells."""
    square = np.asarray(left, float) ** 2
    return np.asarray(np.sqrt(square[..., 0] if left.shape[-1] == 1 else square[..., 0] + square[..., 1]))


def distance(left: Array | Index, spacing: float) -> Array:
    """Mean distance from a reading anywhere in its cell to a release so many cells away, nearly."""
    return np.asarray(spacing * np.sqrt(length(left) ** 2 + INSIDE[left.shape[-1]] ** 2))


def chosen(mass: Array, uniform: Array) -> Index:
    """One entry a row, with these chances up to a factor: a block of entries, then one in it, three times as quick as
    adding all of them up. What weighs nothing is never chosen."""
    if len(mass) < FEW:
        return draw(mass, uniform)
    k, m = mass.shape
    side = int(np.sqrt(m))
    blocks = np.zeros((k, -(-m // side), side))
    blocks.reshape(k, -1)[:, :m] = mass
    sums, each = blocks @ np.ones(side), np.arange(k)
    block = draw(sums, uniform)
    before = np.cumsum(sums, -1)
    own = sums[each, block]
    rest = (uniform * before[:, -1] - (before[each, block] - own)) / own
    return block * side + draw(blocks[each, block], np.minimum(np.maximum(rest, 0), 1))
