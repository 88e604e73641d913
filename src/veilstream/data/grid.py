"""States that cover life: stops, and cells of a square grid for the readings that are at none.

A reading farther than the resolution from every stop belongs to a cell of a grid with a public origin (latitude and
longitude 0). A cell that holds fewer than `least` of them joins its neighbours in a cell twice as wide, and so on; what
is left in the end goes to the nearest state, as every reading does. `least` is the largest number, up to what makes a
stop, with which a stated share of all readings is within the resolution of its state, their mean well within it, and
none farther than twice: the fewest states, so that a chain can be learned. Where readings hover about stops and even
every cell is too few, they begin nearer to stops and are narrower.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from veilstream.data.clusters import Stops, cell_numbers, stop_labels, stop_places, stops_of
from veilstream.data.states import StateSpace
from veilstream.errors import InputError
from veilstream.units import counted

SHARE = 0.95  # of readings within the resolution of their state
MEAN = 0.35  # of the resolution: from a reading to its state, so that a limit of half the resolution can be kept
FARTHEST = 2.0  # the same, of any reading: a limit at every step is about these
NARROWER = 0.75, 4  # factor, and times at most
LEAST = tuple(int(k * 2**j) for j in range(12) for k in (2, 3))  # readings a cell may be asked to hold, 1 besides
MOST = 1024  # states, where cells can be made larger
WIDEST_M = 4e7
SAMPLE = 20_000  # readings at no stop on which the share is measured


def stops_and_cells(
    points: NDArray[np.float64],
    resolution_m: float,
    cells_m: float,
    eps_m: float,
    min_samples: int,
    n_stops: int | None = None,
) -> Stops:
    """Stops as `find_stops` finds them (here one or none will do) and cells; stops alone where no reading is far."""
    labels, eps_m, note = stop_labels(points, eps_m, min_samples, n_stops)
    places = stop_places(points, labels)
    at_stop, radius = _away_m(points, places), f"{resolution_m:g} m"
    for part in (NARROWER[0] ** k for k in range(NARROWER[1] + 1)):
        beside = _Beside(points, places, at_stop, resolution_m, part * resolution_m, part * cells_m)
        if beside.covers(1):
            break
    away, cells_m = beside.away, beside.cells_m
    if not len(away):
        note += f"; every reading within {beside.radius_m:g} m of a stop"
        return stops_of(points, labels, eps_m, note, min_samples)
    ladder = (1, *(k for k in LEAST if k <= len(away)))
    few = bisect_left(ladder, True, key=lambda k: len(beside.states(k)) <= MOST)
    near = bisect_left(ladder, True, key=lambda k: k > min_samples or not beside.covers(k)) - 1
    least = ladder[min(max(few, near), len(ladder) - 1)]
    states = beside.states(least)
    number = np.arange(len(states))
    states = states[(number < len(places)) | np.isin(number, _space(states, len(places)).encode(away))]
    n_cells = len(states) - len(places)
    stops, wide = counted(len(places), "stop"), counted(n_cells, "cell")
    if len(states) < 2:
        raise InputError(f"{stops} and {wide} of {cells_m:g} m found; a chain needs 2 states; make `cells_m` smaller")
    far = _away_m(points, states)
    note += (
        f"; {stops}, and {wide} for the {counted(len(away), 'reading')} farther than {beside.radius_m:g} m from every "
        f"stop: {cells_m:g} m wide{'' if least == 1 else f', wider where one would hold fewer than {least} readings'} "
        f"(so that {SHARE:.0%} of readings are within {radius} of their state, {MEAN * resolution_m:g} m in the mean: "
        f"{float((far <= resolution_m).mean()):.1%} are, {float(far.mean()):.0f} m)"
    )
    return Stops(_space(states, len(places)), labels, eps_m, note)


@dataclass(frozen=True, eq=False)
class _Beside:
    """Stops, and cells for the readings farther than a radius from every one of them."""

    points: NDArray[np.float64]
    places: NDArray[np.float64]
    at_stop: NDArray[np.float64]  # metres from each reading to the nearest stop
    resolution_m: float
    radius_m: float
    cells_m: float

    @cached_property
    def away(self) -> NDArray[np.float64]:
        return self.points[self.at_stop > self.radius_m]

    def states(self, least: int) -> NDArray[np.float64]:
        return np.concatenate([self.places, cells(self.away, self.cells_m, least)])

    def covers(self, least: int) -> bool:
        """Whether readings are as near to their state as is asked, where a cell holds at least so many."""
        sample, n = self.away[:: -(-len(self.away) // SAMPLE) or 1], len(self.points)
        far = _away_m(sample, self.states(least)) if len(sample) else np.zeros(1)
        mean = (float(self.at_stop[self.at_stop <= self.radius_m].sum()) + float(far.mean()) * len(self.away)) / n
        few = float((far > self.resolution_m).mean()) * len(self.away) <= (1 - SHARE) * n
        return few and mean <= MEAN * self.resolution_m and float(far.max()) <= FARTHEST * self.resolution_m


def cells(points: NDArray[np.float64], cells_m: float, least: int) -> NDArray[np.float64]:
    """The mean of the readings of each cell that holds at least `least`, in order of appearance; see above."""
    left, first, means = np.arange(len(points)), list[int](), list[NDArray[np.float64]]()
    while len(left) >= least and cells_m <= WIDEST_M:
        _, at, cell, count = np.unique(
            cell_numbers(points[left], cells_m), return_index=True, return_inverse=True, return_counts=True
        )
        full = count >= least
        sums = np.stack([np.bincount(cell, points[left, k]) for k in (0, 1)], axis=1)
        first += left[at[full]].tolist()
        means += list(sums[full] / count[full, None])
        left, cells_m = left[~full[cell]], 2 * cells_m
    return np.array([means[k] for k in np.argsort(first)]).reshape(-1, 2)


def _space(states: NDArray[np.float64], stops: int) -> StateSpace:
    names = [f"{'stop' if k < stops else 'cell'} {k}" for k in range(len(states))]
    return StateSpace("stops and cells", states, tuple(names), "km")


def _away_m(points: NDArray[np.float64], places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Metres from each point to the nearest of these places."""
    if not len(places):
        return np.full(len(points), np.inf)
    space = _space(places, len(places))
    return 1000 * space.distance_to(points, space.encode(points))
