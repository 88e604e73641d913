"""A public lattice without an end: squares of the earth, or levels of a value, `spacing` apart.

    level    i = round(value / h)
    place    i = round(lat / h),  j = round(lon / h_b)        h_b: one of round(360 cos(lat_b) / h) parts of a circle

b is the band of latitude of an *anchor*, the place that offsets are counted from: seen from one anchor the lattice is a
plain one, so that what is computed for offsets holds for all of them. A cell is at most WIDTH wider or narrower than h
in the whole band; far from it columns are of another width (`seen`).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.errors import InputError
from veilstream.model.distortion import EARTH_RADIUS_KM
from veilstream.model.information import Array, Index

KM_PER_DEGREE = np.pi / 180 * EARTH_RADIUS_KM
BAND = 0.5  # degrees
BANDS = 181  # from the equator to a pole, and one more
POLE = 85.0  # beyond it bands are as this one
WIDTH = 0.05
FINE = 1e6  # a packed place is in millionths of a degree
HALF = 1 << 28  # levels either way; a value beyond counts as the last
MOST_LETTERS = 16  # of a unit


@dataclass(frozen=True)
class Lattice:
    """Places (axes 2, spacing in km) or levels (axes 1, spacing in the value's unit).

    >>> lattice = Lattice(0.5, 2)
    >>> anchor = lattice.nearest(lattice.encode([[48.137, 11.575]]))
    >>> lattice.offset(anchor, lattice.encode([[48.137, 11.595]])).tolist()
    [[0, 3]]
    """

    spacing: float
    axes: int
    unit: str = "km"

    def __post_init__(self) -> None:
        if not (self.spacing > 0 and np.isfinite(self.spacing)) or self.axes not in (1, 2):
            raise InputError(f"a lattice needs a spacing above 0 and 1 or 2 axes, found {self.spacing:g}, {self.axes}")
        if not self.unit.isprintable() or len(self.unit) > MOST_LETTERS:
            raise InputError("the unit of a lattice is no text of a few letters")

    @property
    def kind(self) -> str:
        return "lattice"

    @property
    def is_map(self) -> bool:
        return self.axes == 2

    @property
    def farthest(self) -> float:
        """Cells from any anchor to any reading, at most."""
        return 2 * HALF if self.axes == 1 else 180 / self.height

    @property
    def height(self) -> float:
        """Of a row, in degrees."""
        return self.spacing / KM_PER_DEGREE

    def width(self, row: Index) -> Array:
        """Of the columns seen from an anchor in this row, in degrees."""
        band = np.floor(row * (self.height / BAND)).astype(np.int64) + BANDS
        return np.asarray(self._widths.take(band, mode="clip"))

    @cached_property
    def _widths(self) -> Array:
        """Of every band, and of one beyond either pole for rows that round to there."""
        middle = np.abs(np.arange(-BANDS, BANDS + 1) + 0.5) * BAND
        columns = np.rint(360 * np.cos(np.radians(np.minimum(middle, POLE))) / self.height)
        return np.asarray(360 / np.maximum(columns, 1))

    def encode(self, points: ArrayLike) -> Index:
        """Readings or releases as one whole number each, which no anchor is needed to read; none is below 0."""
        points = np.asarray(points, float).reshape(-1, self.axes)
        if self.axes == 1:
            with np.errstate(over="ignore"):
                level = np.minimum(np.maximum(np.rint(points[:, 0] / self.spacing), -HALF), HALF - 1)
            return np.asarray(level, np.int64) + HALF
        lat = np.rint((np.minimum(np.maximum(points[:, 0], -90), 90) + 90) * FINE)
        lon = np.rint(((points[:, 1] + 180) % 360) * FINE)
        return np.asarray(lat, np.int64) << 32 | np.asarray(lon, np.int64)

    def decode(self, packed: ArrayLike) -> Array:
        """Latitude and longitude, or the level, of each: n x axes."""
        packed = np.asarray(packed, np.int64)
        if self.axes == 1:
            return np.asarray((packed - HALF) * self.spacing)[..., None]
        return np.array(((packed >> 32) / FINE - 90, (packed & 0xFFFFFFFF) / FINE - 180)).T

    def nearest(self, packed: Index) -> Index:
        """The anchor nearest to each, n x axes."""
        if self.axes == 1:
            return np.asarray(packed)[:, None] - HALF
        lat, lon = self.decode(packed).T
        row = np.rint(lat / self.height).astype(np.int64)
        return np.array((row, np.rint(lon / self.width(row)).astype(np.int64))).T

    def offset(self, anchor: Index, packed: Index) -> Index:
        """Cells from each anchor to each of these, n x axes, the short way around the earth."""
        return self.seen(anchor, packed)[0]

    def seen(self, anchor: Index, packed: Index) -> tuple[Index, Array, Array]:
        """`offset`; where in its cell each of these is, in cells from the middle; and how wide the anchor's columns are
        there, in rows."""
        if self.axes == 1:
            return self.nearest(packed) - anchor, np.zeros((len(packed), 1)), np.ones(len(packed))
        lat, lon = self.decode(packed).T
        width = self.width(anchor[:, 0])
        exact = np.array((lat / self.height, lon / width)).T
        cell = np.rint(exact)
        rows, columns = (cell.astype(np.int64) - anchor).T
        around = np.rint(360 / width).astype(np.int64)
        columns = (columns + around // 2) % around - around // 2
        stretch = width * np.cos(np.radians(lat)) / self.height
        return np.array((rows, columns)).T, exact - cell, np.asarray(stretch)

    def moved(self, anchor: Index, offset: Index) -> Index:
        """The anchor nearest to the cell that lies so far from each anchor."""
        if self.axes == 1:
            return anchor + offset
        row = anchor[:, 0] + offset[:, 0]
        last = int(np.floor(90 / self.height))
        row = np.minimum(np.maximum(row, -last), last)
        lon = ((anchor[:, 1] + offset[:, 1]) * self.width(anchor[:, 0]) + 180) % 360 - 180
        return np.array((row, np.rint(lon / self.width(row)).astype(np.int64))).T

    def shifts(self, anchor: Index, offset: Index) -> NDArray[np.bool_]:
        """Whether the anchor's columns end on the way, so that `moved` rounds: k x m, of k x m x axes."""
        if self.axes == 1:
            return np.zeros(offset.shape[:-1], bool)
        row = anchor[:, :1]
        return np.asarray(self.width(row) != self.width(row + offset[..., 0]))

    def shared(self, anchor: Index, offset: Index) -> Array:
        """How many cells may lie at this offset from the anchor: more than one where columns are narrower there."""
        if self.axes == 1:
            return np.ones(len(anchor))
        here, there = self.width(anchor[:, 0]), self.width(anchor[:, 0] + offset[:, 0])
        return np.where(here == there, 1.0, np.floor(here / there) + 1)

    @property
    def most_shared(self) -> float:
        """From any anchor."""
        return 1.0 if self.axes == 1 else float(np.floor(1 / np.cos(np.radians(POLE))) + 2)

    def places(self, anchor: Index) -> Array:
        """Latitude and longitude, or the level, of each anchor."""
        if self.axes == 1:
            return np.asarray(anchor * self.spacing, np.float64)
        lon = (anchor[:, 1] * self.width(anchor[:, 0]) + 180) % 360 - 180
        return np.array((np.minimum(np.maximum(anchor[:, 0] * self.height, -90), 90), lon)).T
