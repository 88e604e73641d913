"""Finding the states of positions: stops by DBSCAN, and cells of a square grid for the readings that are at none; or
grid cells alone, or given places.

A reading farther than the resolution from every stop belongs to a cell of a grid with a public origin (latitude and
longitude 0). A cell that holds fewer than `least` of them joins its neighbours in a cell twice as wide, and so on; what
is left in the end goes to the nearest state, as every reading does. `least` is the largest number, up to what makes a
stop, with which a stated share of all readings is within the resolution of its state, their mean well within it, and
none farther than twice: the fewest states, so that a chain can be learned. Where readings hover about stops and even
every cell is too few, they begin nearer to stops and are narrower.
"""

from __future__ import annotations

import csv
import os
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilstream.data.states import MAX_STATES, StateSpace
from veilstream.errors import InputError
from veilstream.model.distortion import EARTH_RADIUS_KM
from veilstream.units import counted

FULL_DBSCAN = 10_000  # above this many points DBSCAN runs on cells: its memory grows with the square
CELL_M = 10.0
QUICK_SEARCH = 2_000  # the same, while the radius is searched
SEARCH_M = (20.0, 5_000.0)
SEARCH_FACTOR = 1.04
SEARCH_STEPS = 90
SHARE = 0.95  # of readings within the resolution of their state
MEAN = 0.35  # of the resolution: from a reading to its state, so that a limit of half the resolution can be kept
FARTHEST = 2.0  # the same, of any reading: a limit at every step is about these
NARROWER = 0.75, 4  # factor, and times at most
LEAST = tuple(int(k * 2**j) for j in range(12) for k in (2, 3))  # readings a cell may be asked to hold, 1 besides
MOST = 1024  # states, where cells can be made larger
WIDEST_M = 4e7
SAMPLE = 20_000  # readings at no stop on which the share is measured
METRES_PER_DEGREE = np.pi / 180 * EARTH_RADIUS_KM * 1000

Cells = tuple[NDArray[np.float64], NDArray[np.float64] | None, NDArray[np.int64]]  # places, weights, cell of each point


@dataclass(frozen=True)
class Stops:
    """DBSCAN's answer: states, the label of every point (-1: no stop), and how it was found."""

    states: StateSpace
    labels: NDArray[np.int64]
    eps_m: float
    note: str

    @property
    def number(self) -> int:
        """How many stops; there may be other states."""
        return int(self.labels.max(initial=-1)) + 1


def find_stops(
    points: NDArray[np.float64],
    eps_m: float,
    min_samples: int,
    n_states: int | None = None,
    covering: tuple[float, float] | None = None,
) -> Stops:
    """Stops are DBSCAN clusters (haversine); a stop's place is the mean of its points.

    n_states: the radius is searched, the one nearest to eps_m that gives so many stops. covering: the resolution and
    the width of cells, metres; with it cells stand beside the stops (of which one or none will do), where readings are
    far.
    """
    labels, eps_m, note = stop_labels(points, eps_m, min_samples, n_states)
    places = stop_places(points, labels)
    n, beside = len(places), None if covering is None else _beside(points, places, *covering)
    if beside is not None and len(beside.away):
        states, said = beside.found(min_samples)
        names = (f"{'stop' if k < n else 'cell'} {k}" for k in range(len(states)))
        return Stops(StateSpace("stops and cells", states, tuple(names), "km"), labels, eps_m, f"{note}; {said}")
    note += "" if beside is None else f"; every reading within {beside.radius_m:g} m of a stop"
    if n < 2:
        raise InputError(
            f"{counted(n, 'stop')} found with radius {eps_m:g} m and at least {min_samples} points; "
            "a chain needs 2: change `eps_m` or `min_samples`, or use `grid_m`"
        )
    return Stops(StateSpace("stops", places, tuple(f"stop {k}" for k in range(n)), "km"), labels, eps_m, note)


def stop_labels(
    points: NDArray[np.float64], eps_m: float, min_samples: int, n_states: int | None = None
) -> tuple[NDArray[np.int64], float, str]:
    """The stop of every point (-1: none), numbered as the data first visits them; the radius, and how it was found."""
    cells, weight, cell_of = _thinned(points)
    note = f"DBSCAN on {len(points):,} points"
    if len(cells) < len(points):
        note = f"DBSCAN on {len(cells):,} cells of {CELL_M:g} m holding {len(points):,} points"
    if n_states is not None:
        eps_m = _search(points, min_samples, n_states, eps_m)
        note += f"; radius {eps_m:.0f} m found for {n_states} stops"
    return _by_appearance(_dbscan(cells, weight, eps_m, min_samples)[cell_of]), eps_m, note


def stop_places(points: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean of the points of each stop."""
    return np.array([_mean_place(points[labels == k]) for k in range(labels.max(initial=-1) + 1)]).reshape(-1, 2)


def _by_appearance(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Clusters renumbered in the order in which the data first visits them; -1 stays."""
    clusters, first = np.unique(labels, return_index=True)
    first, clusters = first[clusters >= 0], clusters[clusters >= 0]
    number = np.full(len(clusters) + 1, -1, np.int64)  # the last entry serves -1
    number[clusters[np.argsort(first)]] = np.arange(len(clusters))
    return number[labels]


def _mean_place(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean latitude and longitude; longitudes are unwrapped at the date line."""
    lat, lon = points.T
    if np.ptp(lon) <= 180:
        return np.array([lat.mean(), lon.mean()])
    return np.array([lat.mean(), (np.mod(lon, 360).mean() + 180) % 360 - 180])


def _dbscan(
    points: NDArray[np.float64], weight: NDArray[np.float64] | None, eps_m: float, min_samples: int
) -> NDArray[np.int64]:
    from sklearn.cluster import DBSCAN

    model = DBSCAN(
        eps=eps_m / 1000 / EARTH_RADIUS_KM, min_samples=min_samples, metric="haversine", algorithm="ball_tree"
    )
    return np.asarray(model.fit(np.radians(points), sample_weight=weight).labels_, np.int64)


def _thinned(points: NDArray[np.float64], at_most: int | None = None) -> Cells:
    """The points themselves, or above `at_most` (FULL_DBSCAN) their mean per 10 m cell with the count as weight."""
    if len(points) <= (FULL_DBSCAN if at_most is None else at_most):
        return points, None, np.arange(len(points))
    _, cell_of, counts = np.unique(cell_numbers(points, CELL_M), return_inverse=True, return_counts=True)
    means = np.stack([np.bincount(cell_of, points[:, k]) / counts for k in (0, 1)], axis=1)
    return means, counts.astype(float), cell_of


def cell_numbers(points: NDArray[np.float64], cell_m: float) -> NDArray[np.int64]:
    """A number for the cell of each point."""
    row, column = lattice(points, cell_m).T
    return np.asarray(row * (1 << 32) + column)


def lattice(points: NDArray[np.float64], cell_m: float) -> NDArray[np.int64]:
    """Row and column of each point in cells of cell_m metres; columns are as wide at each row's own latitude."""
    row = np.floor(points[:, 0] * METRES_PER_DEGREE / cell_m)
    width = np.maximum(np.cos(np.radians((row + 0.5) * cell_m / METRES_PER_DEGREE)), 1e-6)
    column = np.floor(points[:, 1] * METRES_PER_DEGREE * width / cell_m)
    return np.stack([row, column], axis=1).astype(np.int64)


def _search(points: NDArray[np.float64], min_samples: int, wanted: int, eps_m: float) -> float:
    """The radius nearest to eps_m that gives `wanted` stops, by steps of 4 % up and down.

    Many points are looked through as cells, and what is found is tried again as it will be used.
    """
    if wanted < 2:
        raise InputError(f"`n_states={wanted}`: a chain needs at least 2")
    quick, full = _thinned(points, QUICK_SEARCH), _thinned(points)
    met: dict[int, float] = {}
    for k in sorted(range(-SEARCH_STEPS, SEARCH_STEPS + 1), key=abs):
        radius = eps_m * SEARCH_FACTOR**k
        if k and not SEARCH_M[0] <= radius <= SEARCH_M[1]:
            continue
        n = _count(full if k == 0 else quick, radius, min_samples)
        if k and n == wanted and len(quick[0]) < len(full[0]):
            n = _count(full, radius, min_samples)
        if n == wanted:
            return radius
        met.setdefault(n, radius)
    near = sorted(met, key=lambda n: (abs(n - wanted), n))[:2]
    have = ", ".join(f"{met[n]:.0f} m gives {n}" for n in near)
    raise InputError(f"no radius gives {wanted} stops with `min_samples={min_samples}` ({have}); ask for one of these")


def _count(cells: Cells, radius_m: float, min_samples: int) -> int:
    return int(_dbscan(cells[0], cells[1], radius_m, min_samples).max(initial=-1)) + 1


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
        far = _nearest(sample, self.states(least))[1] if len(sample) else np.zeros(1)
        mean = (float(self.at_stop[self.at_stop <= self.radius_m].sum()) + float(far.mean()) * len(self.away)) / n
        few = float((far > self.resolution_m).mean()) * len(self.away) <= (1 - SHARE) * n
        return few and mean <= MEAN * self.resolution_m and float(far.max()) <= FARTHEST * self.resolution_m

    def found(self, min_samples: int) -> tuple[NDArray[np.float64], str]:
        """The fewest states that cover, and how they were found."""
        n, cells_m, resolution_m = len(self.places), self.cells_m, self.resolution_m
        ladder = (1, *(k for k in LEAST if k <= len(self.away)))
        few = bisect_left(ladder, True, key=lambda k: len(self.states(k)) <= MOST)
        near = bisect_left(ladder, True, key=lambda k: k > min_samples or not self.covers(k)) - 1
        least = ladder[min(max(few, near), len(ladder) - 1)]
        states = self.states(least)
        states = states[(np.arange(len(states)) < n) | np.isin(np.arange(len(states)), _nearest(self.away, states)[0])]
        stops, wide = counted(n, "stop"), counted(len(states) - n, "cell")
        if len(states) < 2:
            raise InputError(
                f"{stops} and {wide} of {cells_m:g} m found; a chain needs 2 states; make `cells_m` smaller"
            )
        far = _nearest(self.points, states)[1]
        wider = "" if least == 1 else f", wider where one would hold fewer than {least} readings"
        return states, (
            f"{stops}, and {wide} for the {counted(len(self.away), 'reading')} farther than {self.radius_m:g} m from "
            f"every stop: {cells_m:g} m wide{wider} (so that {SHARE:.0%} of readings are within {resolution_m:g} m of "
            f"their state, {MEAN * resolution_m:g} m in the mean: {float((far <= resolution_m).mean()):.1%} are, "
            f"{float(far.mean()):.0f} m)"
        )


def _beside(points: NDArray[np.float64], places: NDArray[np.float64], resolution_m: float, cells_m: float) -> _Beside:
    """With a radius and cells as wide as asked, or narrower where even every such cell is too few."""
    at_stop = _nearest(points, places)[1]
    for part in (NARROWER[0] ** k for k in range(NARROWER[1] + 1)):
        beside = _Beside(points, places, at_stop, resolution_m, part * resolution_m, part * cells_m)
        if beside.covers(1):
            break
    return beside


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


def _nearest(points: NDArray[np.float64], places: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Which of these places is nearest to each point, and how far it is, metres."""
    if not len(places):
        return np.zeros(len(points), np.int64), np.full(len(points), np.inf)
    space = StateSpace("grid", places, tuple(map(str, range(len(places)))), "km")
    state = space.encode(points)
    return state, 1000 * space.distance_to(points, state)


# --- without stops ------------------------------------------------------------------------------------------


def grid_cells(points: NDArray[np.float64], cell_m: float) -> StateSpace:
    """The visited cells of a square grid, at their centres."""
    cells = np.unique(lattice(points, cell_m), axis=0)
    if len(cells) > MAX_STATES:
        raise InputError(f"`grid_m={cell_m:g}` gives {len(cells):,} cells; at most {MAX_STATES}: make the cells larger")
    if len(cells) < 2:
        raise InputError(
            f"`grid_m={cell_m:g}` puts everything into one cell; a chain needs 2 states: make the cells smaller"
        )
    names = tuple(f"cell {r} {c}" for r, c in cells - cells.min(0))
    lat = (cells[:, 0] + 0.5) * cell_m / METRES_PER_DEGREE
    lon = (cells[:, 1] + 0.5) * cell_m / (METRES_PER_DEGREE * np.maximum(np.cos(np.radians(lat)), 1e-6))
    centres = np.stack([np.clip(lat, -90, 90), np.clip(lon, -180, 180)], axis=1)
    return StateSpace("grid", centres, names, "km")


def given_places(source: str | os.PathLike[str]) -> StateSpace:
    """A CSV of named zones: name,lat,lon."""
    path, places = os.fspath(source), dict[str, tuple[float, float]]()
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            reader.fieldnames = header = [h.strip().lower() for h in reader.fieldnames or []]
            rows = [(reader.line_num, row) for row in reader]
    except UnicodeDecodeError:
        raise InputError(f"{path}: a binary file; places are a CSV with name,lat,lon") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read ({problem.strerror})") from None
    if not {"name", "lat", "lon"} <= set(header):
        raise InputError(f"{path} line 1: the header must hold name,lat,lon; found {','.join(header)[:60]!r}")
    for line, row in rows:
        where, name = f"{path} line {line}", (row["name"] or "").strip()
        if name in places:
            raise InputError(f"{where}: the place {name[:40]!r} is there twice; give each its own name")
        try:
            lat, lon = float(row["lat"]), float(row["lon"])
        except (TypeError, ValueError):
            raise InputError(f"{where}: lat and lon must be numbers") from None
        if not (abs(lat) <= 90 and abs(lon) <= 180):
            raise InputError(f"{where}: latitude must be within -90..90, longitude within -180..180")
        places[name] = lat, lon
    if len(places) < 2:
        raise InputError(f"{path[:80]}: {counted(len(places), 'place')}; a chain needs at least 2")
    return StateSpace("places", np.array(list(places.values())), tuple(places), "km")
