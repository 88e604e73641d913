"""What a release costs: how far it is from what was true, in the unit that the limit is said in.

    absolute    |reading - y|, km on a map                               km, kWh, ...
    squared     its square: one large error is worse than two small      km², kWh², ...
    zero-one    whether y lies at another state than the reading         % of steps
    FILE.csv    a table, true states by rows, the state y lies at by columns; inf: must never be shown

A release that is a public point stands for the state it lies at (`StateSpace.encode`).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.data.states import StateSpace
from veilstream.errors import InputError
from veilstream.model.information import Array

MEASURES = ("absolute", "squared", "zero-one")
TABLE, SIGNED = "table", "signed"
PERCENT = 100.0
MOST_LETTERS = 20  # of a unit


@dataclass(frozen=True, eq=False)
class Cost:
    """d(reading, y) for the readings of these states and what is shown instead."""

    states: StateSpace
    shown: StateSpace  # the states, or public points
    measure: str = "absolute"  # one of MEASURES, TABLE, or SIGNED: y - reading of values, which adds up
    table: Array | None = None  # of TABLE: |X| x |Y|, inf where forbidden
    table_unit: str = ""

    def __post_init__(self) -> None:
        if self.measure not in (*MEASURES, TABLE, SIGNED) or (self.measure == TABLE) != (self.table is not None):
            raise InputError(
                f"`distortion` must be {', '.join(MEASURES)} or a table of costs, found {self.measure[:20]!r}"
            )

    @classmethod
    def of(cls, states: StateSpace, shown: StateSpace, measure: str) -> Cost:
        """measure: one of MEASURES, or the file of a table between states."""
        if measure in MEASURES:
            return cls(states, shown, measure)
        table, unit = read_table(measure, states.names)
        return cls(states, shown, TABLE, table[:, states.encode(shown.coordinates)], unit)

    @property
    def unit(self) -> str:
        """Unit of the costs; "" where they have none."""
        base = self.states.unit
        square = f"({base})²" if "/" in base else f"{base}²" if base else ""
        return {"squared": square, "zero-one": "%", TABLE: self.table_unit}.get(self.measure, self.states.unit)

    @property
    def forbidden(self) -> NDArray[np.bool_] | None:
        """Which releases each state must never show, |X| x |Y|; None: there are none."""
        return None if self.table is None or np.isfinite(self.table).all() else np.isinf(self.table)

    @property
    def lies_at(self) -> NDArray[np.int64]:
        """The state at which each release lies; of a zone's name a state of that zone."""
        if self.states.is_map and not self.shown.is_map and self.table is not None:
            return np.asarray(self.table.argmin(0))
        return self.states.encode(self.shown.coordinates)

    @cached_property
    def by_state(self) -> Array | None:
        """|X| x |Y| costs that depend on the state of a reading alone; what is forbidden is the dearest that is not."""
        if self.measure == "zero-one":
            return np.asarray(PERCENT * (np.arange(len(self.states))[:, None] != self.lies_at))
        if self.table is None:
            return None
        finite = np.isfinite(self.table)
        return np.where(finite, self.table, self.table[finite].max(initial=0.0))

    def distances_from(self, readings: ArrayLike) -> Array:
        """len(readings) x |Y|."""
        if self.by_state is not None:
            return np.asarray(self.by_state[self.states.encode(readings)])
        if self.measure == SIGNED:
            return np.asarray(self.shown.coordinates[:, 0] - np.asarray(readings, dtype=float).reshape(-1, 1))
        far = self.shown.distances_from(readings)
        return far if self.measure == "absolute" else np.asarray(far**2)

    def distance_to(self, readings: ArrayLike, releases: NDArray[np.int64]) -> Array:
        """From each reading to one release each: `distances_from` at these."""
        if self.by_state is not None:
            return np.asarray(self.by_state[self.states.encode(readings), releases])
        far = self.shown.distance_to(readings, releases)
        return far if self.measure == "absolute" else np.asarray(far**2)


def read_table(path: str | Path, names: tuple[str, ...]) -> tuple[Array, str]:
    """A table with a name for every row and column, in any order; and its unit, from the corner."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if any(map(str.strip, row))]
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        raise InputError(f"{path}: the table of `distortion` cannot be read ({type(fault).__name__})") from None
    if not rows or len(rows) - 1 != len(names) or any(len(row) != len(names) + 1 for row in rows):
        raise InputError(
            f"{path}: a table of `distortion` has a row and a column for each of the {len(names)} states, their names "
            "first"
        )
    across, down = rows[0][1:], [row[0] for row in rows[1:]]
    for what, found in (("column", across), ("row", down)):
        if missing := [name for name in names if name not in found]:
            raise InputError(f"{path}: no {what} is called {missing[0]!r}; the states are {', '.join(names)}")
    table = np.empty((len(names), len(names)))
    for row in rows[1:]:
        for name, text in zip(across, row[1:], strict=True):
            try:
                value = float(text)
            except ValueError:
                value = np.nan
            if not value >= 0:
                costs = f"{row[0]!r} shown as {name!r} costs {text[:20]!r}"
                raise InputError(f"{path}: {costs}; it must be a number >= 0, or inf for never")
            table[names.index(row[0]), names.index(name)] = value
    if len(rows[0][0]) > MOST_LETTERS or not rows[0][0].isprintable():
        raise InputError(f"{path}: the corner of the table is its unit, at most {MOST_LETTERS} letters")
    return table, rows[0][0]
