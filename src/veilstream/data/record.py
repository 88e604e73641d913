"""A person's own readings, one a step, kept with her model: what limits are about. PRIVATE, like the model.

The distance she feels is from where she was to what was released, not from the middle of her state. Given the state a
release does not look at the reading, so for the mean over the readings i of state x

    d(x,y) = mean_i distance(reading_i, y)

is exact, and a limit at every step must hold for the farthest of them (or a stated quantile). numpy only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.control.replay import Course
from veilstream.data.states import StateSpace
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.histories import TrueStates


class Far(Protocol):
    """Whatever knows how far every release is from a reading: a `StateSpace`, a `Cost`."""

    def distances_from(self, readings: ArrayLike) -> NDArray[np.float64]: ...

    def distance_to(self, readings: ArrayLike, releases: NDArray[np.int64], /) -> NDArray[np.float64]: ...


MOST_STEPS = 100_000  # kept of a record, the latest


@dataclass(frozen=True, eq=False)
class Record:
    """Rows in order of stream and step."""

    stream: NDArray[np.int64]  # n
    step: NDArray[np.int64]  # n
    points: NDArray[np.float64]  # n x 2 (latitude, longitude), or n x 1
    symbols: NDArray[np.int64]  # n: the state of each
    units: NDArray[np.int64] | None = None  # n: the trace or week of each, where they are resampled
    unit: str = "traces"

    def __post_init__(self) -> None:
        n = len(self.step)
        if n == 0 or self.points.ndim != 2 or {len(self.stream), len(self.points), len(self.symbols)} != {n}:
            raise InputError("the record does not have one stream, step, reading and state in every row")
        if (self.symbols < 0).any() or not np.isfinite(self.points).all():
            raise InputError("the record has a reading that is not a number, or a state that is none")
        if (np.lexsort((self.step, self.stream)) != np.arange(n)).any():
            raise InputError("the record is not in order of stream and step")
        if self.units is not None and len(self.units) != n:
            raise InputError("the record does not have a trace or week in every row")

    @classmethod
    def of(
        cls,
        stream: NDArray[np.integer],
        step: NDArray[np.integer],
        points: NDArray[np.float64],
        symbols: NDArray[np.int64],
        units: NDArray[np.int64] | None = None,
        unit: str = "traces",
    ) -> Record:
        """In order, one row a step (the first reading decides), the latest MOST_STEPS of them."""
        order = np.lexsort((step, stream))
        stream, step = np.asarray(stream, np.int64)[order], np.asarray(step, np.int64)[order]
        new = np.ones(len(step), bool)
        new[1:] = (np.diff(step) != 0) | (np.diff(stream) != 0)
        rows = order[new]
        stream, step = stream[new], step[new]
        if len(step) > MOST_STEPS:
            late = np.sort(np.argsort(step, kind="stable")[-MOST_STEPS:])
            rows, stream, step = rows[late], stream[late], step[late]
        units = None if units is None else np.asarray(units, np.int64)[rows]
        return cls(stream, step, np.asarray(points, float)[rows], np.asarray(symbols, np.int64)[rows], units, unit)

    def __len__(self) -> int:
        return len(self.step)

    def fits(self, states: StateSpace) -> bool:
        """Whether every row is a reading of one of these states."""
        return bool(self.symbols.max() < len(states)) and self.points.shape[1] == states.coordinates.shape[1]

    @property
    def n_streams(self) -> int:
        return len(np.unique(self.stream))

    def felt(
        self, states: StateSpace, quantile: float = 1.0, cost: Far | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and largest (or quantile) distance from the readings of each state to each release, n x |Y|.

        cost: of releases, the distance to the states unless told. A state without readings stands for itself.
        """
        shown = cost or states
        mean = shown.distances_from(states.coordinates)
        most = mean.copy()
        order = np.argsort(self.symbols, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(self.symbols[order])) + 1):
            far = shown.distances_from(self.points[own])
            x = self.symbols[own[0]]
            mean[x], most[x] = far.mean(0), np.quantile(far, quantile, axis=0, method="higher")
        return mean, most

    def course(self, cost: Far, chain: MarkovChain) -> Course:
        """The streams as a gateway would meet them; cost: of releases, or the places they are at."""
        find = TrueStates.of(chain)
        cuts = np.flatnonzero(np.diff(self.stream)) + 1
        paths, gaps = [], []
        for step, x in zip(np.split(self.step, cuts), np.split(self.symbols, cuts), strict=True):
            missed = np.concatenate([[0], np.diff(step) - 1])
            last, z = np.array([-1]), np.empty(len(x), np.int64)
            for t in range(len(x)) if find.following is not None else ():
                last = find(last if not missed[t] else np.array([-1]), x[t : t + 1])
                z[t] = last[0]
            paths.append(x if find.following is None else z)
            gaps.append(missed)
        first = self.step[np.concatenate([[0], cuts])].tolist()
        units = None if self.units is None else np.split(self.units, cuts)
        distances = [cost.distances_from(p) for p in np.split(self.points, cuts)]
        return Course(paths, gaps, distances, first, units, self.unit)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        arrays = {"stream": self.stream, "step": self.step, "points": self.points, "symbols": self.symbols}
        return {"unit": self.unit}, arrays | ({} if self.units is None else {"units": self.units})

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Record:
        names = ("stream", "step", "symbols", *(["units"] if "units" in arrays else []))
        whole = {k: np.asarray(arrays[k]) for k in names}
        if any(v.dtype != np.int64 or v.ndim != 1 for v in whole.values()):
            raise InputError("the record's streams, steps and states must be whole numbers")
        unit = "weeks" if meta.get("unit") == "weeks" else "traces"
        points = np.asarray(arrays["points"], float)
        return cls(whole["stream"], whole["step"], points, whole["symbols"], whole.get("units"), unit)
