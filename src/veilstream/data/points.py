"""Public release points: what is released on a map or of a value, where that is not the states themselves.

A grid that everybody has, whoever fits a model: its origin is 0, its lines are multiples of 10^-digits degrees (or of a
round step), and only the points nearest to states are used, so no release is the middle of somebody's home. In order of
their place, so that not even their numbers tell which state is which.

    latitudes    k i 10^-digits,        k 10^-digits degrees the multiple nearest to the spacing asked for
    longitudes   k' j 10^-digits,       k' the same on the circle of that latitude
    values       the coarsest decimals that tell levels apart, or i step
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilstream.data.states import StateSpace, apart_km
from veilstream.errors import InputError
from veilstream.model.distortion import EARTH_RADIUS_KM
from veilstream.units import parse_quantity

SHOW = "250m"  # apart, on a map
STATES = "states"
OWN_CENTRE_KM = 1e-3  # a point this near to the centre of a state is that centre
FINEST_M, COARSEST_M = 1.0, 100_000.0
EQUATOR_M = np.pi / 180 * EARTH_RADIUS_KM * 1000  # in a degree
OF_GAP = 0.1  # a level is rounded to at most this share of the distance to the next
FINER = 4  # digits beyond which no round number is looked for
ROUND = (5, 2, 1)


def points_of(states: StateSpace, show: str | None = None) -> StateSpace | None:
    """What is released, one point a state; None: the states. show: how far apart (SHOW, round levels), or "states".

    Two points a state made solving 2-3 times slower and saved 0.0-0.6 % of the bits (user 016, three households).
    """
    if show == STATES or (states.kind == "names" and show is None):
        return None
    if states.kind == "names":
        raise InputError(f"`show` is for places and values; names are shown as they are, found {show!r}")
    if not states.is_map:
        return _round(states) if show is None else _every(states, show)
    metres = 1000 * parse_quantity(show or SHOW, "km", "`show`")
    if not FINEST_M <= metres <= COARSEST_M:
        raise InputError(f"`show` must be 1m to 100km, or {STATES}, found {show!r}")
    near, digits = nearest_points(states.coordinates, metres)
    names = tuple(f"{lat:.{digits}f} {lon:.{digits}f}" for lat, lon in near)
    return StateSpace("grid", near, names, states.unit)


def described(points: StateSpace | None) -> str:
    """A phrase for what is released: states, grid points or round levels."""
    if points is None:
        return "states, by their own centre"
    if points.kind == "names":
        return "names of zones"
    return "points of a public grid" if points.is_map else "round levels"


# --- maps ------------------------------------------------------------------------------------------------


def nearest_points(places: NDArray[np.float64], spacing_m: float) -> tuple[NDArray[np.float64], int]:
    """The point of the grid nearest to each place, each once, by latitude; and the digits they are written with."""
    degrees = spacing_m / EQUATOR_M
    digits = max(0, int(np.ceil(-np.log10(degrees))))
    found: set[tuple[float, float]] = set()
    for place in places:
        around = np.array(_around(place, degrees, digits))
        away = apart_km(np.tile(place, (len(around), 1)), around)
        lat, lon = around[np.where(away < OWN_CENTRE_KM, np.inf, away).argmin()]
        found.add((float(lat), float(lon)))
    return np.array(sorted(found)), digits


def _around(place: NDArray[np.float64], degrees: float, digits: int) -> list[tuple[float, float]]:
    """Points of the grid on the lines about a place, two each way, the nearest among them."""
    out = []
    unit = 10.0**-digits
    k = max(1, round(degrees / unit))
    for i in _lines(place[0], k * unit, 90):
        lat = round(i * k * unit, digits) + 0.0  # never -0
        k_lon = max(1, round(degrees / unit / max(np.cos(np.radians(lat)), degrees / 180)))
        out += [(lat, round(j * k_lon * unit, digits) + 0.0) for j in _lines(place[1], k_lon * unit, 180)]
    return out


def _lines(at: float, step: float, most: float) -> list[int]:
    """Multiples of the step about a coordinate, inside -most..most."""
    here, last = int(np.floor(at / step)), int(most / step + 1e-9)
    return sorted({min(max(i, -last), last) for i in range(here - 1, here + 3)})


# --- values ----------------------------------------------------------------------------------------------


def _every(states: StateSpace, show: str) -> StateSpace:
    """The multiples of a given step that are nearest to the levels."""
    step = parse_quantity(show, states.unit, "`show`")
    if step <= 0:
        raise InputError(f"`show` must be larger than zero, or {STATES}, found {show!r}")
    return _levels(np.unique(_multiples(states.coordinates[:, 0], step)), states.unit)


def _round(states: StateSpace) -> StateSpace | None:
    """Every level to the coarsest of 1, 2, 5, 10, ... that is at most OF_GAP of the distance to the next one, and
    leaves it in its own bin."""
    level = states.coordinates[:, 0]
    gaps = np.diff(level)
    gap = np.minimum(np.append(gaps, np.inf), np.insert(gaps, 0, np.inf)) if len(level) > 1 else np.abs(level)
    at = level.copy()
    for x, size in enumerate(OF_GAP * gap):
        if not size > 0:
            return None
        power = int(np.floor(np.log10(size)))
        steps = [m * 10.0**p for p in range(power, power - FINER, -1) for m in ROUND if m * 10.0**p <= size]
        near = [v for v in (float(_multiples(level[x], step)) for step in steps) if states.encode(v)[0] == x]
        if not near:
            return None  # on the very edge of its bin
        at[x] = near[0]
    return _levels(at, states.unit)


def _multiples(level: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """The nearest multiples, as decimals with no digits to spare."""
    return np.round(np.floor(level / step + 0.5) * step, max(0, 3 - int(np.floor(np.log10(step)))))


def _levels(at: NDArray[np.float64], unit: str) -> StateSpace:
    return StateSpace("bins", at[:, None], tuple(f"{v:.12g}" for v in at), unit, (at[1:] + at[:-1]) / 2)
