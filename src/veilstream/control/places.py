"""Places that a person has been to, on the lattice of a frame (`control.frame`), with what her record says of them.

    r_g(y|s)   = (1 - leave) law_g(y|s)              s a place: how releases go on from there
    r(y|s)     = back (common(y) + local_s(y)) / 2   s none: how they come back, local_s(y) ~ common(y) 2^-|y - s|/far
    cost(x, y) = lam d + worth(x, y)                 worth: what having released y costs from then on, in bits

The rest of every law is the frame's, at `fee` bits more: those of coming back.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from veilstream.errors import InputError
from veilstream.model.distortion import EARTH_RADIUS_KM
from veilstream.model.information import Array, Index
from veilstream.model.lattice import Lattice

KM = np.pi / 180 * EARTH_RADIUS_KM  # a degree
MOST_PLACES = 256
LEAST = 1e-12  # of a place in the law of coming back
SUM = 1e-9  # rows of a law may miss 1 by this


@dataclass(frozen=True, eq=False)
class Places:
    """n places; what a release among them reveals, and what it is worth."""

    points: Array  # n x axes: latitude and longitude, or values; on the lattice
    law: Array  # groups x n x n: r_g(y|s)
    worth: Array  # n x n: bits, truth x release
    common: Array  # n: a law
    leave: float  # share of releases that leave them
    back: float  # share that come back, where the last one was elsewhere
    fee: float  # bits
    far: float  # of a usual move, in the lattice's unit

    def __post_init__(self) -> None:
        n = len(self.points)
        shapes = np.shape(self.law)[1:], np.shape(self.worth), np.shape(self.common)
        if not 1 <= n <= MOST_PLACES or shapes != ((n, n), (n, n), (n,)):
            raise InputError(f"{n} places do not fit tables of shape {shapes}")
        sums = np.append(self.law.sum(-1).ravel(), self.common.sum())
        if not ((self.law > 0).all() and (self.common > 0).all() and (np.abs(sums - 1) < SUM).all()):
            raise InputError("the laws of a frame's places must be laws that call nothing impossible")
        shares = (self.leave, self.back)
        if not (all(0 < x < 1 for x in shares) and self.far > 0 and 0 <= self.fee < np.inf):
            raise InputError("a frame needs shares between 0 and 1 of leaving its places and of coming back")
        if not np.isfinite(self.worth).all() or not np.isfinite(self.points).all():
            raise InputError("a frame's places and what they are worth must be finite")

    def __len__(self) -> int:
        return len(self.points)

    def only(self, live: NDArray[np.bool_]) -> Self:
        """These places alone."""
        law = self.law[:, live][:, :, live]
        common = self.common[live]
        law = law / law.sum(-1, keepdims=True)
        return replace(
            self,
            points=self.points[live],
            law=law,
            worth=self.worth[live][:, live],
            common=common / common.sum(),
        )

    def offsets(self, lattice: Lattice, points: Array) -> Array:
        """Cells from each place to each of these points, k x n x axes, the short way around the earth."""
        if lattice.axes == 1:
            return np.asarray((points[:, None] - self.points) / lattice.spacing)
        row = (points[:, :1] - self.points[:, 0]) * (KM / lattice.spacing)
        degrees = (points[:, 1:] - self.points[:, 1] + 180) % 360 - 180
        column = degrees * (np.cos(np.radians(points[:, :1])) * (KM / lattice.spacing))
        return np.stack([row, column], -1)

    def coming(self, cells: Array, spacing: float) -> Array:
        """The law of coming back from a place so many cells away, k x n."""
        local = self.common * np.exp2(-cells * (spacing / self.far)) + LEAST
        return np.asarray(self.back / 2 * (self.common + local / local.sum(-1, keepdims=True)))

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        meta = {k: getattr(self, k) for k in ("leave", "back", "fee", "far")}
        return meta, {k: getattr(self, k) for k in ("points", "law", "worth", "common")}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        tables = [np.asarray(arrays[k], float) for k in ("points", "law", "worth", "common")]
        numbers = [float(meta[k]) for k in ("leave", "back", "fee", "far")]
        return cls(*tables, *numbers)  # type: ignore[arg-type]  # in the order of its fields


def index_of(packed: Index, y: Index) -> Index:
    """Which of the sorted `packed` places each release is; -1: none."""
    if not len(packed):
        return np.full(np.shape(y), -1)
    at = np.minimum(np.searchsorted(packed, y), len(packed) - 1)
    return np.where(packed[at] == y, at, -1)
