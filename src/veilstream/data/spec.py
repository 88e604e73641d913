"""FitSpec: every choice of a fit, said once. `vs.fit`, the command line and the docs are made from its fields.

A field carries its help, its group, its flag where that has another name, and the unit that a text is read in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from veilstream.data.recording import Recording
from veilstream.errors import InputError

DATA, STATES, CHAIN = "Data", "States", "Chain"


def _option(default: Any, help: str, group: str, flag: str | None = None, unit: str | None = None) -> Any:
    """flag: where it is not the name of the field; unit: of a number that may be written with another, as in 2km."""
    return field(default=default, metadata={"help": help, "group": group, "flag": flag, "unit": unit})


@dataclass(frozen=True, kw_only=True)
class FitSpec:
    """How data is read and recorded, what the states are, what the chain is. None: as the data asks for."""

    # how the data is read
    columns: str | Mapping[str, str] | None = _option(
        None, "Which column is what, as in time=ts,lat=y,lon=x,stream=id.", DATA
    )
    unit: str | None = _option(None, "Unit of the values, as in kWh; guessed from the column's name.", DATA)
    tz: str | None = _option(None, "Time zone of stamps that have none (default UTC); own: trust mixed offsets.", DATA)
    time_format: str | None = _option(None, "Format of the stamps, as in '%d/%m/%Y %H:%M'.", DATA)
    skip_bad: bool = _option(False, "Drop and count rows that cannot be read.", DATA)
    # how readings become steps
    period_s: float | None = _option(
        None, "Length of a step (default 5min; values: their median distance).", DATA, "period", "s"
    )
    bin: Literal["first", "mean", "sum"] = _option(
        "first", "Reading of a step: first (what a gateway has), mean, or sum.", DATA
    )
    gaps: Literal["split", "bridge"] = _option(
        "split", "split: a new run at a long gap; bridge: close over it (study only).", DATA
    )
    max_gap_s: float | None = _option(
        None, "Longest gap inside a run (default 60min; values: one step).", DATA, "max-gap", "s"
    )
    fill: Literal["hold", "close"] | None = _option(
        None, "Missing steps inside a run: hold the last state, or close over (study only).", DATA
    )
    max_speed_kmh: float = _option(
        1000.0, "A point faster than this from both neighbours is dropped.", DATA, "max-speed", "km/h"
    )
    # what the states are
    noise: Literal["nearest", "drop"] = _option(
        "nearest", "Points that are no stop: nearest, or drop (study only).", STATES
    )
    eps_m: float = _option(200.0, "DBSCAN radius.", STATES, "eps", "m")
    min_samples: int = _option(8, "Steps that make a stop.", STATES)
    n_states: int | None = _option(
        None, "Wanted number: the radius is searched; for values, bins of equal counts (default 8).", STATES, "states"
    )
    cells_m: float | None = _option(
        None,
        "Width of the cells beside stops, where readings are far from every stop (default: the resolution); 0: stops "
        "alone.",
        STATES,
        "cells",
        "m",
    )
    resolution_m: float | None = _option(
        None, "95 % of readings are to be this near to their state (default 1km).", STATES, "resolution", "m"
    )
    grid_m: float | None = _option(None, "Square cells of this size instead of stops.", STATES, "grid", "m")
    width: float | None = _option(None, "Bins of this width, as in 0.1kWh.", STATES)
    edges: Sequence[float] | None = _option(None, "Bins between these values, as in 70,180.", STATES)
    places: str | os.PathLike[str] | None = _option(  # noqa: RUF009
        None, "CSV of named places: name,lat,lon.", STATES
    )
    names: Mapping[str, str] | None = _option(
        None, "Another name for a state, as in 'stop 4=home'; may be given again.", STATES, "name"
    )
    # what the chain is
    order: int | Literal["auto"] = _option(1, "Order of the chain, or auto: by held-out log-loss.", CHAIN)
    max_order: int = _option(3, "Highest order that auto tries.", CHAIN)
    smoothing: float | Literal["moves"] | None = _option(
        None,
        "Pseudo-counts per transition (default 0.001), or moves: by distance, the strength chosen by held-out log-loss "
        "(default for cells and bins where it gains).",
        CHAIN,
    )
    hold_out: float | None = _option(
        None,
        "Latest share of traces or weeks kept out of the fit to check promises on, as in 0.2, or none; auto: a third, "
        "where that is at least ten.",
        CHAIN,
    )
    cycle: Literal["auto", "none", "day", "week"] = _option(
        "auto",
        "The hour of the day, which everybody knows: day, week (weekends apart), none, or auto: where held-out "
        "log-loss gains by it.",
        CHAIN,
    )
    zone: str | None = _option(
        None, "Whose hours, as in Europe/London, summer time included (default: `tz`, else the record's clock).", CHAIN
    )
    seed: int = _option(0, "Of the folds.", CHAIN)

    def __post_init__(self) -> None:
        if self.order != "auto" and not (isinstance(self.order, int) and self.order >= 1):
            raise InputError(f"`order` must be a number from 1 or auto, found {self.order!r}")
        if self.edges is not None and (self.width is not None or self.n_states is not None):
            raise InputError("`edges` says where bins begin: leave out `width` and `n_states`")

    @property
    def reading(self) -> dict[str, Any]:
        """How to read, as `readings_of` takes it."""
        return {name: getattr(self, name) for name in ("columns", "tz", "time_format", "unit", "skip_bad")}

    @property
    def recording(self) -> Recording:
        """How readings become steps, with the checks of a Recording."""
        own = {f.name for f in fields(self)}
        return Recording(**{f.name: getattr(self, f.name) for f in fields(Recording) if f.name in own})
