"""StateSpace: the alphabet of the chain, and the one map from a reading to a symbol.

    encode(reading) = nearest state,   the same in fit, release and audit, and defined for every finite reading

Positions are (latitude, longitude) in degrees with distances in km; values are bins with their own unit; a name (of a
zone) is a number, `name_code`, and two names are 1 apart. How the states were found (stops, grid, bins, places) is in
`find`; this file needs numpy only, as a gateway does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.errors import InputError
from veilstream.model.distortion import EARTH_RADIUS_KM, absolute, haversine
from veilstream.units import few

KINDS = ("stops", "stops and cells", "grid", "places", "bins", "names")
FLAT = ("bins", "names")  # kinds of one coordinate, which are on no map
CHUNK = 4_000_000  # distances held at once
MAX_STATES = 4096
MAX_NAME = 80


@dataclass(frozen=True, eq=False)
class StateSpace:
    """States 0..n-1 with a place each.

    kind         one of KINDS
    coordinates  n x 2 (latitude, longitude), n x 1 levels of value bins, or n x 1 rising codes of names
    names        n distinct names
    unit         of distances: "km" for positions, the value's own unit for bins
    edges        n - 1 inner edges of value bins or between codes, else None

        >>> import veilstream as vs
        >>> places = vs.StateSpace("places", [[-47.0, -125.0], [-47.0, -124.9]], ("home", "work"), "km")
        >>> places.encode([[-47.01, -124.91]]).tolist(), places.distances().round(1).tolist()
        ([1], [[0.0, 7.6], [7.6, 0.0]])
    """

    kind: str
    coordinates: NDArray[np.float64]
    names: tuple[str, ...]
    unit: str
    edges: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        coordinates = np.array(self.coordinates, dtype=float)
        if self.kind not in KINDS:
            raise InputError(f"states must be one of {', '.join(KINDS)}, found {self.kind!r}")
        width = 1 if self.kind in FLAT else 2
        if coordinates.ndim != 2 or coordinates.shape[1] != width or not len(coordinates):
            raise InputError(f"{self.kind} need n x {width} coordinates, found shape {coordinates.shape}")
        if len(coordinates) > MAX_STATES:
            raise InputError(f"{len(coordinates)} states; at most {MAX_STATES}: make cells or bins larger")
        if not np.isfinite(coordinates).all():
            raise InputError("coordinates of states must be finite numbers; found nan or infinity")
        if width == 2 and (np.abs(coordinates) > [90, 180]).any():
            raise InputError("a state lies outside latitude -90..90 or longitude -180..180")
        object.__setattr__(self, "coordinates", coordinates)
        object.__setattr__(self, "names", _checked_names(self.names, len(coordinates)))
        if self.kind in FLAT:
            edges = np.array(self.edges if self.edges is not None else [], dtype=float)
            if edges.shape != (len(coordinates) - 1,) or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
                raise InputError(
                    f"{len(coordinates)} bins need {len(coordinates) - 1} inner edges (`edges`), each above the last"
                )
            object.__setattr__(self, "edges", edges)

    def __len__(self) -> int:
        return len(self.coordinates)

    def renamed(self, names: Mapping[str, str]) -> StateSpace:
        """These states, some under another name."""
        for name in names:
            if name not in self.names:
                raise InputError(f"`name`: no state is called {name[:MAX_NAME]!r}; states: {few(self.names, 12)}")
        return replace(self, names=tuple(names.get(name, name) for name in self.names))

    @property
    def is_map(self) -> bool:
        return self.kind not in FLAT

    def encode(self, readings: ArrayLike) -> NDArray[np.int64]:
        """Nearest state of each reading: (lat, lon) rows, or values. Ties go to the lower number.

        Elementwise arithmetic only, so one reading and a million give the same answer.
        """
        points = np.asarray(readings, dtype=float)
        width = 2 if self.is_map else 1
        points = points.reshape(-1, width)
        if not np.isfinite(points).all():
            raise InputError("readings must be finite numbers; found nan or infinity")
        if self.edges is not None:
            return np.searchsorted(self.edges, points[:, 0], side="right").astype(np.int64)
        out = np.empty(len(points), np.int64)
        centres = unit_vectors(self.coordinates)
        size = max(1, CHUNK // len(self))
        for start in range(0, len(points), size):
            part = unit_vectors(points[start : start + size])
            square = sum((part[:, None, k] - centres[None, :, k]) ** 2 for k in range(3))
            out[start : start + size] = np.argmin(square, axis=1)
        return out

    def decode(self, states: ArrayLike) -> NDArray[np.float64]:
        """Coordinates (lat, lon) or level of each state."""
        return self.coordinates[np.asarray(states, dtype=np.int64)]

    def distances(self) -> NDArray[np.float64]:
        """n x n distances between states, in `unit`."""
        return self.distances_from(self.coordinates)

    def distances_from(self, readings: ArrayLike) -> NDArray[np.float64]:
        """len(readings) x n distances from raw readings to every state, in `unit`."""
        points = np.asarray(readings, dtype=float).reshape(-1, self.coordinates.shape[1])
        if self.kind == "names":
            return np.asarray(self.encode(points)[:, None] != np.arange(len(self)), float)
        return haversine(points, self.coordinates) if self.is_map else absolute(points, self.coordinates)

    def distance_to(self, readings: ArrayLike, states: ArrayLike) -> NDArray[np.float64]:
        """Distance from each raw reading to one state each, in `unit`: what a release costs in the end."""
        points = np.asarray(readings, dtype=float).reshape(-1, self.coordinates.shape[1])
        if self.kind == "names":
            return np.asarray(self.encode(points) != np.asarray(states), float)
        places = self.decode(states)
        return apart_km(points, places) if self.is_map else np.abs(points[:, 0] - places[:, 0])

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
        meta = {"kind": self.kind, "names": list(self.names), "unit": self.unit}
        arrays = {"coordinates": self.coordinates}
        if self.edges is not None:
            arrays["edges"] = self.edges
        return meta, arrays

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[np.float64]]) -> StateSpace:
        names, unit = tuple(meta["names"]), str(meta["unit"])
        return cls(str(meta["kind"]), arrays["coordinates"], names, unit, arrays.get("edges"))


def name_code(name: str) -> float:
    """The number that stands for a name wherever readings are numbers: 48 bits of its SHA-256, exact in a float."""
    return float(int.from_bytes(hashlib.sha256(name.strip().encode("utf-8", "surrogatepass")).digest()[:6], "big"))


def named(names: Sequence[str]) -> StateSpace:
    """Names as states. A name that is none of them is taken for one, always the same, as every reading has a state."""
    codes = sorted((name_code(name), name) for name in set(names))
    code = np.array([c for c, _ in codes])
    return StateSpace("names", code[:, None], tuple(name for _, name in codes), "", (code[1:] + code[:-1]) / 2)


def apart_km(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Great-circle distance from each (lat, lon) of a to that of b, km."""
    a, b = np.radians(a), np.radians(b)
    half = np.sin((a - b) / 2) ** 2
    h = half[:, 0] + np.cos(a[:, 0]) * np.cos(b[:, 0]) * half[:, 1]
    return np.asarray(2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.clip(h, 0, 1))))


def unit_vectors(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """(lat, lon) degrees -> points on the unit sphere; the chord grows with the great-circle distance."""
    phi, lam = np.radians(points[:, 0]), np.radians(points[:, 1])
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=1)


def _checked_names(names: Sequence[str], n: int) -> tuple[str, ...]:
    names = tuple(map(str, names))
    if len(names) != n or len(set(names)) != n:
        raise InputError(f"{n} states need {n} distinct names, found {len(set(names))}")
    if not all(map(str.isprintable, names)):
        raise InputError("the name of a state must be printable: no line breaks, no control characters")
    for name in names:
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise InputError(f"the state name {name[:20]!r} must be 1 to {MAX_NAME} printable characters")
    return names
