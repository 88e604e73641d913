"""States that cover life: stops, and cells of a square grid for the readings that are at none.

A reading farther than the resolution from every stop belongs to a cell of a grid with a public origin (latitude and
longitude 0). A cell that holds fewer than `least` of them joins its neighbours in a cell twice as wide, and so on; what
is left in the end goes to the nearest state, as every reading does. `least` is the largest number, up to what makes a
stop, with which a stated share of all readings is within the resolution of its state: the fewest states, so that a
chain can be learned.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from veilstream.data.find import Stops, cell_numbers, stop_labels, stop_places, stops_of
from veilstream.data.states import StateSpace
from veilstream.errors import InputError
from veilstream.units import counted

RESOLUTION_M = 1000.0
SHARE = 0.95  # of readings within the resolution of their state
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
    away = points[_away_m(points, places) > resolution_m]
    radius = f"{resolution_m:g} m"
    if not len(away):
        note += f"; every reading within {radius} of a stop"
        return stops_of(points, labels, eps_m, note, min_samples)
    sample = away[:: -(-len(away) // SAMPLE)]

    def covers(least: int) -> bool:
        far = (_away_m(sample, _states(places, away, cells_m, least)) > resolution_m).mean()
        return float(far) * len(away) <= (1 - SHARE) * len(points)

    ladder = (1, *(k for k in LEAST if k <= len(away)))
    few = bisect_left(ladder, True, key=lambda k: len(_states(places, away, cells_m, k)) <= MOST)
    near = bisect_left(ladder, True, key=lambda k: k > min_samples or not covers(k)) - 1
    least = ladder[min(max(few, near), len(ladder) - 1)]
    states = _states(places, away, cells_m, least)
    number = np.arange(len(states))
    states = states[(number < len(places)) | np.isin(number, _space(states, len(places)).encode(away))]
    n_cells = len(states) - len(places)
    stops, wide = counted(len(places), "stop"), counted(n_cells, "cell")
    if len(states) < 2:
        raise InputError(f"{stops} and {wide} of {cells_m:g} m found; a chain needs 2 states: make `cells_m` smaller")
    share = float((_away_m(points, states) <= resolution_m).mean())
    note += (
        f"; {stops}, and {wide} for the {counted(len(away), 'reading')} farther than {radius} from every "
        f"stop: {cells_m:g} m wide, wider where one would hold fewer than {least} readings (as many as leave "
        f"{SHARE:.0%} of readings within {radius} of their state: {share:.1%} are)"
    )
    return Stops(_space(states, len(places)), labels, eps_m, note)


def _states(places: NDArray[np.float64], away: NDArray[np.float64], cells_m: float, least: int) -> NDArray[np.float64]:
    return np.concatenate([places, cells(away, cells_m, least)])


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
