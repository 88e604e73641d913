"""Finding the states of values: bins."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.data.states import MAX_STATES, StateSpace
from veilstream.errors import InputError

LEAST_BINS, MOST_BINS, NEAR = 8, 24, 0.1  # where nothing is asked


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
