"""A public lattice without an end: squares of the earth, or levels of a value, `spacing` apart.

    level    i = round(value / h)
    place    i = round(lat / h),  j = round(lon / h_b)        h_b: one of round(360 cos(lat_b) / h) parts of a circle

b is the band of latitude of an *anchor*, the place that offsets are counted from: seen from one anchor the lattice is a
plain one, so that what is computed for offsets holds for all of them. A cell is at most WIDTH wider or narrower than h
in the whole band; far from it columns are of another width.
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
FINE = 1_000_000  # a packed place is in millionths of a degree
HALF = 1 << 28  # levels either way; a value beyond counts as the last
MOST_LETTERS = 16  # of a unit
_MIDDLE, _ENDS = np.array([90, 180]), np.array([90.0, np.inf])  # of latitude and longitude
_AROUND, _BITS = np.array([1e9, 360.0]), np.array([32, 0])  # latitude does not go round


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

    def size(self, row: Index) -> Array:
        """Of the cells seen from an anchor in this row, ... -> ... x axes: degrees, or the value's unit."""
        if self.axes == 1:
            return np.full((*row.shape, 1), self.spacing)
        band = (row * (self.height / BAND) + BANDS).astype(np.int64)
        return np.asarray(self._sizes.take(band, 0, mode="clip"))

    def width(self, row: Index) -> Array:
        """Of the columns seen from an anchor in this row, in degrees."""
        return self.size(row)[..., -1]

    @cached_property
    def _sizes(self) -> Array:
        """Of every band, and of one beyond either pole for rows that round to there."""
        middle = np.abs(np.arange(-BANDS, BANDS + 1) + 0.5) * BAND
        columns = np.rint(360 * np.cos(np.radians(np.minimum(middle, POLE))) / self.height)
        return np.stack([np.full(len(middle), self.height), 360 / np.maximum(columns, 1)], -1)

    def encode(self, points: ArrayLike) -> Index:
        """Readings or releases as one whole number each, which no anchor is needed to read; none is below 0."""
        points = np.asarray(points, float).reshape(-1, self.axes)
        if self.axes == 1:
            with np.errstate(over="ignore"):
                level = np.minimum(np.maximum(np.rint(points[:, 0] / self.spacing), -HALF), HALF - 1)
            return np.asarray(level, np.int64) + HALF
        degrees = (np.minimum(np.maximum(points, -_ENDS), _ENDS) + _MIDDLE) % 360
        lat, lon = np.rint(degrees * FINE).astype(np.int64).T
        return np.asarray(lat << 32 | lon)

    def decode(self, packed: ArrayLike) -> Array:
        """Latitude and longitude, or the level, of each: n x axes."""
        packed = np.asarray(packed, np.int64)[..., None]
        if self.axes == 1:
            return np.asarray((packed - HALF) * self.spacing)
        return np.asarray(((packed >> _BITS & 0xFFFFFFFF) - FINE * _MIDDLE) / FINE)

    def cell(self, points: Array) -> tuple[Index, Array]:
        """The anchor nearest to each of these points, n x axes, and the size of the cells seen from there."""
        size = self.size(np.rint(points[:, 0] / (self.spacing if self.axes == 1 else self.height)))
        return np.rint(points / size).astype(np.int64), size

    def nearest(self, packed: Index) -> Index:
        """The anchor nearest to each, n x axes."""
        return self.cell(self.decode(packed))[0]

    def between(self, anchor: Index, size: Array, points: Array) -> Array:
        """Cells from each anchor to each of these points, n x axes, the short way around the earth. size: as seen from
        the anchors."""
        apart = points - anchor * size
        return (apart if self.axes == 1 else (apart + 180) % _AROUND - 180) / size

    def offset(self, anchor: Index, packed: Index) -> Index:
        """`between`, in whole cells."""
        return np.rint(self.between(anchor, self.size(anchor[:, 0]), self.decode(packed))).astype(np.int64)

    def landing(self, anchor: Index, size: Array, offset: Index) -> Index:
        """The anchors nearest to the cells that lie so far from each anchor, as releases."""
        to = anchor + offset
        there = self.size(to[:, 0])
        return self.encode(np.rint(to * size / there) * there)

    def shifts(self, anchor: Index, size: Array, rows: Index) -> NDArray[np.bool_]:
        """Whether the anchor's columns end on the way to a cell so many rows off: n x m."""
        return np.asarray(size[:, -1:] != self.width(anchor[:, :1] + rows))

    @staticmethod
    def shared(here: Array, there: Array) -> Array:
        """How many cells of size `there` may lie at one offset: more than one where columns are narrower."""
        here, there = here[:, -1], there[:, -1]
        return np.where(here == there, 1.0, np.floor(here / there) + 1)

    @property
    def most_shared(self) -> float:
        """From any anchor."""
        return 1.0 if self.axes == 1 else float(np.floor(1 / np.cos(np.radians(POLE))) + 2)

    def packed(self, anchor: Index) -> Index:
        """Each anchor as a release."""
        return self.encode(anchor * self.size(anchor[:, 0]))

    def places(self, anchor: Index) -> Array:
        """Latitude and longitude, or the level, of each anchor."""
        at = anchor * self.size(anchor[:, 0])
        return at if self.axes == 1 else np.minimum(np.maximum((at + 180) % _AROUND - 180, -_ENDS), _ENDS)
