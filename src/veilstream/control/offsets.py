"""Offsets on a lattice, seen from the last release: near ones one by one, farther ones as rings.

Offsets of at most R cells either way are *near*; ring k holds those out to R 2^k. What is known of an offset is a
number for each near one and for each ring, whose cells are all alike.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilstream.errors import InputError
from veilstream.model.information import Array, Index

MOST_REACH, MOST_RINGS = 32, 40
MOST_LOOKED_UP = 1 << 21


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

    @cached_property
    def _rings(self) -> Index | None:
        """Of every distance up to the last ring's; None where that is too far."""
        if self.radii[-1] > MOST_LOOKED_UP:
            return None
        return np.minimum(np.searchsorted(self.radii, np.arange(int(self.radii[-1]) + 1)), self.rings)

    def ring(self, u: Index) -> Index:
        """0 for near offsets; what lies beyond the last ring is on it."""
        far = np.abs(u[..., 0])
        if self.axes == 2:
            far = np.maximum(far, np.abs(u[..., 1]))
        if self._rings is not None:  # five times as quick
            return self._rings.take(far, mode="clip")
        return np.asarray(np.minimum(np.searchsorted(self.radii, far), self.rings))

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
        return np.array((row, np.where(whole, j - outer, np.where(l < band, l - outer, inner + 1 + l - band)))).T


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
