"""Recorded streams in one ragged table, a row a step: as they come, encoded, cut into runs, kept with a model. PRIVATE.

A limit is about the readings, not about the middle of their state. Given the state a release does not look at the
reading, so for the mean over the readings i of state x

    d(x,y) = mean_i distance(reading_i, y)

is exact, and a limit at every step must hold for the farthest of them (or a stated quantile). numpy only.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.control.replay import Replay
from veilstream.data.cost import Cost
from veilstream.data.states import StateSpace
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.histories import TrueStates

MOST_STEPS = 100_000  # kept of a record, the latest
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Rows of several streams; a record has them in order of stream and step, with a state each."""

    stream: NDArray[np.integer]  # n
    step: NDArray[np.integer]  # n
    points: NDArray[np.float64]  # n x 2 (latitude, longitude), or n x 1
    symbols: Ints | None = None  # n: the state of each
    trace: NDArray[np.integer] | None = None  # n: while a model is fitted
    units: Ints | None = None  # n: the trace or week of each, where they are resampled; numbered in order of time
    unit: str = "traces"  # or weeks

    def __post_init__(self) -> None:
        if self.points.ndim != 2 or any(len(c) != len(self) for c in self.columns.values()):
            raise InputError("the record does not have one stream, step, reading and state in every row")

    def __len__(self) -> int:
        return len(self.step)

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns that are present, by name."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "unit"}
        return {name: column for name, column in own.items() if column is not None}

    @property
    def states(self) -> Ints:
        """The state of every row, once it is known."""
        assert self.symbols is not None
        return self.symbols

    @property
    def n_units(self) -> int:
        """Traces or weeks, up to the last."""
        return 0 if self.units is None else int(self.units.max(initial=-1)) + 1

    @property
    def n_streams(self) -> int:
        return len(np.unique(self.stream))

    def take(self, rows: NDArray[Any]) -> Trajectories:
        """A table of these rows alone."""
        return replace(self, **{name: column[rows] for name, column in self.columns.items()})

    # --- a record ----------------------------------------------------------------------------------------

    def recorded(self) -> Trajectories:
        """A record made of these rows: in order, one row a step (the first reading decides), the latest MOST_STEPS."""
        rows = self.take(np.lexsort((self.step, self.stream)))
        new = np.ones(len(rows), bool)
        new[1:] = (np.diff(rows.step) != 0) | (np.diff(rows.stream) != 0)
        rows = rows.take(new)
        if len(rows) > MOST_STEPS:
            rows = rows.take(np.sort(np.argsort(rows.step, kind="stable")[-MOST_STEPS:]))
        stream, step = (column.astype(np.int64) for column in (rows.stream, rows.step))
        return replace(rows, stream=stream, step=step, points=rows.points.astype(float), trace=None).checked()

    def checked(self) -> Trajectories:
        """Raises unless these rows are a record."""
        if self.symbols is None or not len(self):
            raise InputError("the record does not have one stream, step, reading and state in every row")
        if (self.symbols < 0).any() or not np.isfinite(self.points).all():
            raise InputError("the record has a reading that is not a number, or a state that is none")
        if (np.lexsort((self.step, self.stream)) != np.arange(len(self))).any():
            raise InputError("the record is not in order of stream and step")
        return self

    def fits(self, states: StateSpace) -> bool:
        """Whether every row is a reading of one of these states."""
        return bool(self.states.max() < len(states)) and self.points.shape[1] == states.coordinates.shape[1]

    def felt(
        self, states: StateSpace, quantile: float = 1.0, cost: Cost | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and largest (or quantile) distance from the readings of each state to each release, n x |Y|.

        cost: of releases, the distance to the states by default. A state without readings stands for itself.
        """
        shown = cost or states
        mean = shown.distances_from(states.coordinates)
        most = mean.copy()
        order = np.argsort(self.states, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(self.states[order])) + 1):
            far = shown.distances_from(self.points[own])
            x = self.states[own[0]]
            mean[x], most[x] = far.mean(0), np.quantile(far, quantile, axis=0, method="higher")
        return mean, most

    def replay(self, cost: StateSpace | Cost, chain: MarkovChain) -> Replay:
        """The streams as a gateway would meet them; cost: of releases, or the places they are at."""
        find, states = TrueStates.of(chain), self.states
        if find.following is not None:  # a gap is a new start
            cuts = np.flatnonzero((np.diff(self.stream) != 0) | (np.diff(self.step) != 1)) + 1
            states = np.concatenate([find.along(run) for run in np.split(states, cuts)])
        stream, step = (np.asarray(column, np.int64) for column in (self.stream, self.step))
        return Replay(stream, step, states, cost.distances_from(self.points), self.units, self.unit)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"unit": self.unit}, {name: column for name, column in self.columns.items() if name != "trace"}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Trajectories:
        names = ("stream", "step", "symbols", *(["units"] if "units" in arrays else []))
        whole = {k: np.asarray(arrays[k]) for k in names}
        if any(v.dtype != np.int64 or v.ndim != 1 for v in whole.values()):
            raise InputError("the record's streams, steps and states must be whole numbers")
        unit = "weeks" if meta.get("unit") == "weeks" else "traces"
        return cls(points=np.asarray(arrays["points"], float), unit=unit, **whole).checked()


@dataclass(frozen=True, eq=False)
class Runs:
    """Sequences of symbols, one per run of consecutive steps, and the stream each belongs to."""

    sequences: list[Ints]
    streams: NDArray[np.integer]
    source: Trajectories
    rows: Ints  # over all sequences: the row of `source` behind each symbol, -1 where it was filled

    @property
    def steps(self) -> int:
        return len(self.rows)

    @property
    def transitions(self) -> int:
        return self.steps - len(self.sequences)

    @property
    def symbols(self) -> Ints:
        """The symbol of every row of `source`."""
        return self.source.states if len(self.source) else np.zeros(0, np.int64)

    @property
    def ends(self) -> Ints:
        """Where each sequence ends, all of them joined."""
        return np.cumsum([len(s) for s in self.sequences], dtype=np.int64)

    @property
    def first(self) -> Ints:
        """The public number of the first step of every sequence."""
        starts = np.concatenate([[0], self.ends[:-1]]).astype(np.int64)[: len(self.sequences)]
        return np.asarray(self.source.step[self.rows[starts]], np.int64)

    @property
    def points(self) -> list[NDArray[np.float64]]:
        """The reading behind every symbol, run by run; nan where a step was filled and there is none."""
        raw = np.where(self.rows[:, None] >= 0, self.source.points[self.rows], np.nan)
        return np.split(raw, self.ends[:-1])
