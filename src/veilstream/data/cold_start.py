"""A model without anybody's data: states that are told, and a public kernel of moves.

    P(x,x') = (1 - u) (stay [x = x'] + (1 - stay) M(x,x')) + u/n
    M(x,x') ~ area(x') exp(-distance(x,x')/jump)        for x' != x, what is below e^-CUT of the nearest left out

It is a guess at how anyone moves, no more: it shapes the policy, and no promise rests on it. What a policy
made of it leaks is counted at its worst case (`control.accountant`), whatever the data is.

Cells lie on the public grid of `find`. Where they would be more than MOST, cells farther from the middle are wider: the
width doubles with the distance, so that a town is fine in the middle and its surroundings are there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.data.clusters import METRES_PER_DEGREE, given_places, lattice, lattice_centres
from veilstream.data.states import StateSpace
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.distortion import haversine
from veilstream.units import format_duration, parse_quantity

MOST = 1000  # states: a limit is met within minutes
CUT = 4.0  # in lengths
WIDEST = 8  # times the finest cells, at the most
FARTHEST_M = 2_000_000.0
_LEVELS = re.compile(r"\s*(\S+?)\s*:\s*(\S+?)\s*:\s*(\S+)\s*")


@dataclass(frozen=True)
class Kernel:
    """How anyone may move in one step; public."""

    stay: float  # share of steps that stay
    jump: float  # typical distance of a move, in the states' unit
    anywhere: float  # share of steps that may go anywhere at all

    def __post_init__(self) -> None:
        if not 0 <= self.stay < 1:
            raise InputError(f"a share of {self.stay:.3g} of all steps stays: `stay` must be 0s or longer")
        if not self.jump > 0:
            raise InputError(f"`jump` must be larger than zero, found {self.jump:g}")
        if not 0 < self.anywhere < 1:
            raise InputError(f"`anywhere` must be a share between 0 and 1, found {self.anywhere:g}")

    @classmethod
    def of(cls, period_s: float, stay_s: float, jump: float, anywhere: float) -> Kernel:
        """stay_s: how long a stay lasts on average."""
        return cls(1 - period_s / max(stay_s, period_s), jump, anywhere)

    def chain(self, states: StateSpace, area: NDArray[np.float64] | None = None, name: str = "start") -> MarkovChain:
        n = len(states)
        others = states.distances() + np.diag(np.full(n, np.inf))
        near = (others.min(1, keepdims=True) - others) / self.jump
        M = np.where(near >= -CUT, np.exp(near), 0) * (1.0 if area is None else area)
        M /= M.sum(1, keepdims=True)
        P = (1 - self.stay) * M
        P[np.arange(n), np.arange(n)] = self.stay
        return MarkovChain((1 - self.anywhere) * P + self.anywhere / n, name=name)

    def words(self, unit: str, period_s: float) -> str:
        length = format_duration(round(period_s / (1 - self.stay)))
        return (
            f"a stay lasts {length} on average, a move within a step of {format_duration(period_s)} goes "
            f"{self.jump:.3g} {unit}, and {self.anywhere:.2%} of steps go anywhere"
        )


@dataclass(frozen=True, eq=False)
class Ground:
    """States that were told, how large each is, and how they were laid out."""

    states: StateSpace
    area: NDArray[np.float64] | None
    note: str
    within: float  # a reading is at most this far from its state, in their unit; 0: not known

    @property
    def uneven(self) -> bool:
        return self.area is not None and bool(self.area.min() < self.area.max())

    def figures(self) -> dict[str, Any]:
        return {"states": len(self.states), "kind": self.states.kind, "unit": self.states.unit, "note": self.note}


# --- a grid around a place -----------------------------------------------------------------------------------


def around(text: str) -> tuple[float, float]:
    """Latitude and longitude, as 48.137,11.575."""
    try:
        lat, lon = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"`around` takes latitude and longitude, as 48.137,11.575, found {text[:40]!r}") from None
    if not (abs(lat) <= 85 and abs(lon) <= 180):
        raise InputError("`around` must be within latitude -85..85 and longitude -180..180")
    return lat, lon


def grid_around(middle: tuple[float, float], radius_m: float, grid_m: float, most: int = MOST) -> Ground:
    """Cells within the radius: all of this width, or wider with the distance where that would be more than `most`."""
    if not grid_m < radius_m <= FARTHEST_M:
        raise InputError(f"`radius` must be more than `grid_m` and at most {FARTHEST_M / 1000:g} km")
    if _count(radius_m, radius_m, grid_m) <= 2 * most:
        cells = _ring(middle, 0.0, radius_m, grid_m)
        if len(cells) <= most:
            return _ground(cells, np.full(len(cells), grid_m), f"cells of {_km(grid_m)} within {_km(radius_m)}")
    inner = _finest(radius_m, grid_m, most)
    if inner * WIDEST < radius_m:
        least = _least_grid(radius_m, most)
        raise InputError(
            f"cells of {_km(grid_m)} cannot cover {_km(radius_m)}, not even with cells up to {WIDEST} times as wide "
            f"farther out: at most {most} states go. The finest that goes is `grid_m={math.ceil(least)}m`; or make "
            "`radius` smaller"
        )
    rings = _rings(inner, radius_m, grid_m)
    parts = [(_ring(middle, low, high, width), width) for low, high, width in rings]
    cells = np.concatenate([found for found, _ in parts])
    widths = np.concatenate([np.full(len(found), width) for found, width in parts])
    told = ", ".join(f"{_km(width)} within {_km(high)}" for _, high, width in rings)
    return _ground(cells, widths, f"cells of {told}: wider with the distance, since at most {most} states go")


def _km(metres: float) -> str:
    return f"{metres:.3g} m" if metres < 1000 else f"{metres / 1000:.3g} km"


def _rings(inner_m: float, radius_m: float, grid_m: float) -> list[tuple[float, float, float]]:
    """(from, to, width): the width doubles where the distance does."""
    out, low, high, width = [], 0.0, inner_m, grid_m
    while low < radius_m:
        out.append((low, min(high, radius_m), width))
        low, high, width = high, 2 * high, 2 * width
    return out


def _count(inner_m: float, radius_m: float, grid_m: float) -> float:
    """Cells of the rings, by their area."""
    return sum(math.pi * (high**2 - low**2) / width**2 for low, high, width in _rings(inner_m, radius_m, grid_m))


def _finest(radius_m: float, grid_m: float, most: int) -> float:
    """The farthest that the finest cells can go."""
    return _last(lambda inner: _count(inner, radius_m, grid_m) <= 0.97 * most, grid_m, radius_m)


def _least_grid(radius_m: float, most: int) -> float:
    """The finest grid that can cover the radius."""
    return 1 / _last(lambda lines: _finest(radius_m, 1 / lines, most) * WIDEST >= radius_m, 1 / radius_m, 1.0)


def _last(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The largest number at which something holds that holds at the least of them."""
    for _ in range(60):
        mid = (low + high) / 2
        low, high = (mid, high) if holds(mid) else (low, mid)
    return low


def _ring(middle: tuple[float, float], low_m: float, high_m: float, width_m: float) -> NDArray[np.float64]:
    """Centres of the public grid's cells of this width, at such distances from the middle."""
    lat, lon = middle
    reach = (high_m + width_m) / METRES_PER_DEGREE
    narrow, wide = (math.cos(math.radians(min(abs(lat) + d, 89.0))) for d in (reach, -min(abs(lat), reach)))
    half = width_m / 2 / METRES_PER_DEGREE  # so near to each other that some point is in every cell
    lats, lons = (
        np.arange(lat - reach, lat + reach, half),
        np.arange(lon - reach / narrow, lon + reach / narrow, half / wide),
    )
    points = np.stack(np.meshgrid(lats, lons, indexing="ij"), -1).reshape(-1, 2)
    centres = lattice_centres(np.unique(lattice(points, width_m), axis=0), width_m)
    away = 1000 * haversine(centres, np.array([middle]))[:, 0]
    return centres[(away >= low_m) & (away < high_m)]


def _ground(cells: NDArray[np.float64], widths: NDArray[np.float64], note: str) -> Ground:
    if len(cells) < 2:
        raise InputError("one cell only; a chain needs 2: make `grid_m` smaller or `radius` larger")
    order = np.lexsort((cells[:, 1], cells[:, 0]))
    cells, widths = cells[order], widths[order]
    names = tuple(f"cell {lat:.4f} {lon:.4f}" for lat, lon in cells)
    if len(set(names)) < len(names):
        names = tuple(f"cell {k}" for k in range(len(cells)))
    return Ground(StateSpace("grid", cells, names, "km"), widths**2, note, float(widths.min()) / 1000 / math.sqrt(2))


# --- places and levels ---------------------------------------------------------------------------------------


def places(text: str) -> Ground:
    """Named zones, as `given_places` takes them."""
    states = given_places(text)
    _few(len(states))
    return Ground(states, None, f"places of {text}" if Path(text).is_file() else "places given", 0.0)


def levels(text: str) -> Ground:
    """From, to and how far apart, as 0:5:0.5kW; a reading belongs to the nearest."""
    match = _LEVELS.fullmatch(text)
    unit = "" if match is None else re.sub(r"^[+-]?[\d.]*(?:[eE][+-]?\d+)?", "", match[3])
    if match is None:
        raise InputError(f"`levels` takes FROM:TO:STEP with a unit, as 0:5:0.5kW, found {text[:40]!r}")
    low, high, step = (parse_quantity(part, unit, "`levels`") for part in match.groups())
    if not (step > 0 and high > low):
        raise InputError(f"`levels` must rise, as 0:5:0.5kW, found {text[:40]!r}")
    n = math.floor((high - low) / step + 1e-9) + 1
    if n < 2:
        raise InputError("one level only; a chain needs 2: make the step of `levels` smaller")
    _few(n)
    at = np.round(low + step * np.arange(n), 12)
    names = tuple(f"{v:.6g}{unit and ' ' + unit}" for v in at)
    states = StateSpace("bins", at[:, None], names, unit, (at[1:] + at[:-1]) / 2)
    return Ground(states, None, f"{n} levels, {step:g}{unit and ' ' + unit} apart", step / 2)


def _few(n: int) -> None:
    if n > MOST:
        raise InputError(f"{n:,} states; at most {MOST} go: take fewer places or a larger step")
