"""Finding the states: stops by DBSCAN, grid cells, value bins, given places."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.data.states import MAX_STATES, StateSpace
from veilstream.errors import InputError
from veilstream.model.distortion import EARTH_RADIUS_KM
from veilstream.units import counted

LEAST_BINS, MOST_BINS, NEAR = 8, 24, 0.1  # of values, where nothing is asked
FULL_DBSCAN = 10_000  # above this many points DBSCAN runs on cells: its memory grows with the square
CELL_M = 10.0
QUICK_SEARCH = 2_000  # the same, while the radius is searched
SEARCH_M = (20.0, 5_000.0)
SEARCH_FACTOR = 1.04
SEARCH_STEPS = 90
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


def find_stops(points: NDArray[np.float64], eps_m: float, min_samples: int, n_states: int | None = None) -> Stops:
    """Stops are DBSCAN clusters (haversine); a stop's place is the mean of its points.

    With `n_states` the radius is searched: the one nearest to eps_m that gives that many.
    """
    return stops_of(points, *stop_labels(points, eps_m, min_samples, n_states), min_samples=min_samples)


def stop_labels(
    points: NDArray[np.float64], eps_m: float, min_samples: int, n_states: int | None = None
) -> tuple[NDArray[np.int64], float, str]:
    """The stop of every point (-1: none), numbered as the data first visits them; the radius, and how it was found."""
    cells, weight, cell_of = _cells(points)
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


def stops_of(
    points: NDArray[np.float64], labels: NDArray[np.int64], eps_m: float, note: str, min_samples: int
) -> Stops:
    """A state space of these stops, two at least."""
    centres = stop_places(points, labels)
    n = len(centres)
    if n < 2:
        raise InputError(
            f"{counted(n, 'stop')} found with radius {eps_m:g} m and at least {min_samples} points; "
            "a chain needs 2: change `eps_m` or `min_samples`, or use `grid_m`"
        )
    names = tuple(f"stop {k}" for k in range(n))
    return Stops(StateSpace("stops", centres, names, "km"), labels, eps_m, note)


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


def _cells(points: NDArray[np.float64], at_most: int | None = None) -> Cells:
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
    quick, full = _cells(points, QUICK_SEARCH), _cells(points)
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
    return StateSpace("grid", lattice_centres(cells, cell_m), names, "km")


def lattice_centres(cells: NDArray[np.int64], cell_m: float) -> NDArray[np.float64]:
    """The middle of each (row, column) of the grid."""
    lat = (cells[:, 0] + 0.5) * cell_m / METRES_PER_DEGREE
    lon = (cells[:, 1] + 0.5) * cell_m / (METRES_PER_DEGREE * np.maximum(np.cos(np.radians(lat)), 1e-6))
    return np.stack([np.clip(lat, -90, 90), np.clip(lon, -180, 180)], axis=1)


def value_bins(
    values: ArrayLike, n_states: int = 8, width: float | None = None, unit: str = "", edges: ArrayLike | None = None
) -> tuple[StateSpace, str]:
    """Bins of equal counts, of equal width, or with given inner edges; a bin's level is the mean of its values.

    Equal values never fall into two bins, so ties (many zeros) can give fewer bins than asked: the note says so.
    """
    values = np.asarray(values, dtype=float).ravel()
    inner, note = _inner_edges(values, n_states, width, unit, edges)
    if edges is None:
        inner = _without_empty(inner, values)
    if not len(inner):
        raise InputError(f"all readings fall into one bin ({note}); a chain needs 2")
    if edges is None and width is None and len(inner) + 1 < n_states:
        note += f", {len(inner) + 1} after joining equal values"
    state = np.searchsorted(inner, values, side="right")
    counts = np.bincount(state, minlength=len(inner) + 1)
    sums = np.bincount(state, values, minlength=len(counts))
    middle = np.concatenate([inner[:1], (inner[:-1] + inner[1:]) / 2, inner[-1:]])
    level = np.where(counts > 0, sums / np.maximum(counts, 1), middle)
    return StateSpace("bins", level[:, None], _bin_names(inner, unit), unit, inner), note


def fitting_bins(values: ArrayLike, unit: str = "") -> tuple[StateSpace, str]:
    """As few bins as keep readings near their level: their edges by k-means, their number raised until

        mean |reading - level| <= NEAR * mean |reading - median|

    so that a limit of a quarter of what revealing nothing costs is well within reach. Bins of equal counts leave the
    large readings, which cost most, to one wide bin.
    """
    values = np.sort(np.asarray(values, dtype=float).ravel())
    spread = np.abs(values - np.median(values)).mean()
    for n in range(LEAST_BINS, MOST_BINS + 1):
        states, _ = value_bins(values, unit=unit, edges=_k_means_edges(values, n))
        away = np.abs(values - states.coordinates[states.encode(values), 0]).mean()
        if away <= NEAR * spread:
            break
    return states, f"bins by k-means; a reading is {away:.3g} {unit} from its level on average".replace("  ", " ")


def _k_means_edges(ordered: NDArray[np.float64], n: int, rounds: int = 50) -> NDArray[np.float64]:
    """Inner edges half-way between n centres, each the mean of the readings nearest to it; none between equals."""
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    centres = np.unique(np.quantile(ordered, (np.arange(n) + 0.5) / n))
    for _ in range(rounds):
        cuts = np.searchsorted(ordered, (centres[1:] + centres[:-1]) / 2)
        ends = np.unique(np.concatenate([[0], cuts, [len(ordered)]]))
        centres = np.unique(np.diff(sums[ends]) / np.diff(ends))
    return (centres[1:] + centres[:-1]) / 2


def _inner_edges(
    values: NDArray[np.float64], n_states: int, width: float | None, unit: str, edges: ArrayLike | None
) -> tuple[NDArray[np.float64], str]:
    """The edges between bins, and how they were found."""
    if edges is not None:
        return np.asarray(edges, float), "given edges"
    if width is not None:
        low, high = np.floor(values.min() / width), np.floor(values.max() / width)
        if high - low > MAX_STATES:
            raise InputError(
                f"`width={width:g}` gives {high - low + 1:,.0f} bins; at most {MAX_STATES}: make it larger"
            )
        return np.arange(low + 1, high + 1) * width, f"bins {width:g} {unit} wide".rstrip()
    if n_states < 2:
        raise InputError(f"`n_states={n_states}`: a chain needs at least 2 bins")
    return _equal_counts(np.sort(values), n_states), f"{n_states} bins of equal counts"


def _without_empty(inner: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """An empty bin joins the one below."""
    counts = np.bincount(np.searchsorted(inner, values, side="right"), minlength=len(inner) + 1)
    return inner[counts[1:] > 0] if counts[0] else inner[np.flatnonzero(counts)[0] :]


def _bin_names(inner: NDArray[np.float64], unit: str) -> tuple[str, ...]:
    label = unit and f" {unit}"
    between = [f"{a:.4g}-{b:.4g}{label}" for a, b in pairwise(inner)]
    names = [f"< {inner[0]:.4g}{label}", *between, f">= {inner[-1]:.4g}{label}"]
    if len(set(names)) < len(names):
        names = [f"bin {k}" for k in range(len(names))]
    return tuple(names)


def _equal_counts(rest: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Inner edges: each bin takes its share of what is left, and all values equal to its last."""
    edges: list[float] = []
    for left in range(n, 1, -1):
        last = rest[-(-len(rest) // left) - 1]
        rest = rest[np.searchsorted(rest, last, side="right") :]
        if not len(rest):
            break
        edges.append(float(rest[0]))
    return np.array(edges)


def given_places(source: str | os.PathLike[str]) -> StateSpace:
    """A CSV of named zones: name,lat,lon."""
    text, places = os.fspath(source), dict[str, tuple[float, float]]()
    for where, name, at in _rows(text):
        if name in places:
            raise InputError(f"{where}: the place {name[:40]!r} is there twice; give each its own name")
        try:
            lat, lon = (float(number) for number in at)
        except (TypeError, ValueError):
            raise InputError(f"{where}: lat and lon must be numbers") from None
        if not (abs(lat) <= 90 and abs(lon) <= 180):
            raise InputError(f"{where}: latitude must be within -90..90, longitude within -180..180")
        places[name] = lat, lon
    if len(places) < 2:
        raise InputError(f"{text[:80]}: {counted(len(places), 'place')}; a chain needs at least 2")
    return StateSpace("places", np.array(list(places.values())), tuple(places), "km")


def _rows(path: str) -> Iterator[tuple[str, str, list[str]]]:
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            header = [h.strip().lower() for h in reader.fieldnames or []]
            if not {"name", "lat", "lon"} <= set(header):
                raise InputError(f"{path} line 1: the header must hold name,lat,lon; found {','.join(header)[:60]!r}")
            reader.fieldnames = header
            for row in reader:
                yield f"{path} line {reader.line_num}", (row["name"] or "").strip(), [row["lat"], row["lon"]]
    except UnicodeDecodeError:
        raise InputError(f"{path}: a binary file; places are a CSV with name,lat,lon") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read ({problem.strerror})") from None
