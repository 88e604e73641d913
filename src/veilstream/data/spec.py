"""FitSpec: every choice of a fit, said once. `vs.fit`, the command line and the docs are made from its fields. A part
of it is the Recording, which a gateway knows too: the standard library only.

A field carries its help, its group, its flag where that has another name, the unit that a text is read in ("2km" where
metres are meant), and words that stand for a value. So texts will do wherever a number is meant.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields, replace
from textwrap import indent, wrap
from typing import Any, Literal, TypeVar

from veilstream.errors import InputError
from veilstream.units import format_duration, parse_duration, parse_quantity

DATA, STATES, CHAIN = "Data", "States", "Chain"
OWN_UNIT = "own"  # as a unit: that of the readings, known when they are read
# how data is read, as a model's file remembers it, so that the other verbs read alike. What may be dropped is not
# remembered: that is for whoever releases to say.
READING = ("columns", "tz", "time_format", "unit")
RESOLUTION_M = 1000.0
T = TypeVar("T")


def option(
    default: Any,
    help: str,
    group: str,
    flag: str | None = None,
    unit: str | None = None,
    words: Mapping[str, Any] | None = None,
) -> Any:
    """A field of a spec. flag: where it is not the name of the field, "" for none; unit: of numbers given as text."""
    return field(
        default=default,
        metadata={"help": help, "group": group, "flag": flag, "unit": unit, "words": words or {}},
    )


def parsed(f: Field[Any], value: Any) -> Any:
    """The value of a field, read where it is a text with a unit or a word that stands for a value."""
    words, unit = f.metadata["words"], f.metadata["unit"]
    if not isinstance(value, str) or unit in (None, OWN_UNIT):
        return value
    if value in words:
        return words[value]
    number = parse_quantity(value, unit, f"`{f.name}`")
    if unit and number <= 0:
        raise InputError(f"`{f.name}` {value!r} must be larger than zero")
    return int(number) if "int" in str(f.type) and number == int(number) else number


def described(spec: type) -> str:
    """The fields of a spec and their help, for the documentation of whoever takes them."""
    groups: dict[str, list[str]] = {}
    for f in fields(spec):
        if "help" in f.metadata and f.metadata["flag"] != "":
            first, *rest = wrap(f.metadata["help"], 96)
            own = [f"    {f.name:<15} {first}", *(indent(line, " " * 20) for line in rest)]
            groups.setdefault(f.metadata["group"], []).extend(own)
    return "\n\n".join("\n".join([group, *lines]) for group, lines in groups.items())


def documented(verb: Callable[..., T], spec: type) -> Callable[..., T]:
    """The verb, with the fields of its spec in its documentation."""
    verb.__doc__ = (verb.__doc__ or "").replace("    CHOICES", indent(described(spec), "    "))
    return verb


CHOICES: dict[str, tuple[str | None, ...]] = {
    "bin": ("first", "mean", "sum"),
    "gaps": ("split", "bridge"),
    "fill": (None, "hold", "close"),
    "noise": ("nearest", "drop"),
}
STRETCHES = {"day": "1d", "week": "7d", "month": "30d"}


@dataclass(frozen=True)
class Recording:
    """How time-stamped readings become steps, and steps runs of symbols. A value, kept in the model's file.

        step = floor((t - epoch_s) / period_s)

    Fit, audit, report and fleet are given the same Recording, so they give the same symbols; what of it no gateway can
    do online is computed from it. Fields that are None take the default for the kind of data, as `steps.resolve` knows
    it; without a period times are step numbers.

    CHOICES

        >>> import veilstream as vs
        >>> vs.Recording(period_s=300).steps_in("day", "feedback")
        288
        >>> vs.Recording(bin="mean").study_only
        ("`bin='mean'`: a step has the mean of its readings, not the first",)
    """

    period_s: float | None = option(
        None, "Length of a step (default 5min; values: their median distance).", DATA, "period", "s"
    )
    epoch_s: float = option(0.0, "When step 0 begins, seconds since 1970.", DATA, "")
    bin: Literal["first", "mean", "sum"] = option(
        "first", "Reading of a step: first (what a gateway has), mean, or sum.", DATA
    )
    gaps: Literal["split", "bridge"] = option(
        "split", "split: a new run at a long gap; bridge: close over it (study only).", DATA
    )
    max_gap_s: float | None = option(
        None, "Longest gap inside a run (default 60min; values: one step).", DATA, "max-gap", "s"
    )
    fill: Literal["hold", "close"] | None = option(
        None, "Missing steps inside a run: hold the last state, or close over (study only).", DATA
    )
    noise: Literal["nearest", "drop"] = option(
        "nearest", "Points that are no stop: nearest, or drop (study only).", STATES
    )
    eps_m: float = option(200.0, "DBSCAN radius.", STATES, "eps", "m")
    min_samples: int = option(8, "Number of steps that make a stop.", STATES)
    max_speed_kmh: float = option(
        1000.0, "A point faster than this from both neighbours is dropped.", DATA, "max-speed", "km/h"
    )

    def __post_init__(self) -> None:
        for f in fields(Recording):
            value = getattr(self, f.name)
            if f.name in CHOICES:
                if value not in CHOICES[f.name]:
                    known = ", ".join(filter(None, CHOICES[f.name]))
                    raise InputError(f"`{f.name}` must be one of {known}, found {str(value)[:20]!r}")
            elif f.name == "min_samples":
                if not isinstance(value, int) or value < 1:
                    raise InputError(f"`min_samples` must be at least 1, found {str(value)[:20]}")
            elif value is not None or f.default is not None:
                positive, name = (True, f"`{f.name}`") if f.name != "epoch_s" else (False, f.name)  # which has no flag
                if not isinstance(value, int | float) or not math.isfinite(value) or (positive and value <= 0):
                    raise InputError(f"{name} must be a {'positive ' * positive}number, found {str(value)[:20]!r}")
                value = float(value)
            object.__setattr__(self, f.name, value)

    @property
    def step_s(self) -> float:
        """Seconds in a step; 1 where steps are numbers."""
        return self.period_s or 1.0

    @property
    def holds(self) -> bool:
        """Whether missing steps inside a run repeat the last known state; by default not where others are left out."""
        if self.gaps == "bridge":
            return False
        return self.fill == "hold" or (self.fill is None and self.noise == "nearest")

    @property
    def study_only(self) -> tuple[str, ...]:
        """Reasons why no gateway can record like this online; empty if one can."""
        reasons = {
            "`noise='drop'`: steps that are no stop were left out": self.noise == "drop",
            "`gaps='bridge'`: the trace was closed over gaps": self.gaps == "bridge",
            "`fill='close'`: missing steps were left out": not self.holds and self.gaps != "bridge",
            "`bin='mean'`: a step has the mean of its readings, not the first": self.bin == "mean",
            "`bin='sum'`: a step has the sum of its readings, not the first": self.bin == "sum",
        }
        return tuple(reason for reason, holds in reasons.items() if holds)

    def steps_in(self, stretch: str, what: str) -> int:
        """Steps in a stretch of time (day, week, month, 6h); a number of steps where times are step numbers."""
        if self.period_s is None:
            if not stretch.isdecimal() or int(stretch) < 1:
                raise InputError(f"{what} must be a number of steps, since this model counts steps; found {stretch!r}")
            return int(stretch)
        if stretch not in STRETCHES and not any(c.isdigit() for c in stretch):
            raise InputError(f"{what} must be {', '.join(STRETCHES)}, or a time like 6h, found {stretch[:20]!r}")
        steps = parse_duration(STRETCHES.get(stretch, stretch), what) / self.period_s
        if steps < 1:
            raise InputError(f"{what} {stretch} is shorter than a step of {format_duration(self.period_s)}")
        return round(steps)

    def stretch(self, steps: int) -> str:
        """So many steps as a stretch of time, in words: day, week, 6 h; nothing where times are step numbers."""
        if self.period_s is None:
            return ""
        seconds = steps * self.period_s
        names = {parse_duration(text): name for name, text in STRETCHES.items()}
        return names.get(seconds, format_duration(seconds))

    def export(self) -> dict[str, Any]:
        return asdict(self)


documented(Recording, Recording)


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """Whose readings, and how a table of them is read."""

    stream: str | None = option(None, "Use this stream of the data only.", DATA)
    columns: str | Mapping[str, str] | None = option(
        None, "Which column is what, as in time=ts,lat=y,lon=x,stream=id.", DATA
    )
    skip_bad: bool = option(False, "Drop and count rows that cannot be read.", DATA)


def remembered(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """How the data behind a file was read; a file may say anything."""
    said = provenance.get("reading")
    known = said if isinstance(said, dict) else {}
    return {k: known[k] for k in READING if isinstance(known.get(k), str) and known[k]}


@dataclass(frozen=True, kw_only=True)
class FitSpec(Recording, DataSpec):
    """How data is read and recorded, what the states are, what the chain is. None: as the data asks for."""

    unit: str | None = option(None, "Unit of the values, as in kWh; guessed from the column's name.", DATA)
    tz: str | None = option(None, "Time zone of stamps that have none (default UTC); own: trust mixed offsets.", DATA)
    time_format: str | None = option(None, "Format of the stamps, as in '%d/%m/%Y %H:%M'.", DATA)
    # what the states are
    n_states: int | None = option(
        None,
        "Number of states: the radius is searched for it; for values, bins of equal counts (default 8).",
        STATES,
        "states",
    )
    cells_m: float | None = option(
        None,
        "Width of the cells beside stops, where readings are far from every stop (default: the resolution); none: "
        "stops alone.",
        STATES,
        "cells",
        "m",
        {"none": 0.0},
    )
    resolution_m: float | None = option(
        None, "95 % of readings are to be this near to their state (default 1km).", STATES, "resolution", "m"
    )
    grid_m: float | None = option(None, "Square cells of this size instead of stops.", STATES, "grid", "m")
    width: float | str | None = option(None, "Bins of this width, as in 0.1kWh.", STATES, unit=OWN_UNIT)
    edges: Sequence[float] | str | None = option(
        None, "Bins between these values, as in 70,180.", STATES, unit=OWN_UNIT
    )
    places: str | os.PathLike[str] | None = option(  # noqa: RUF009
        None, "CSV of named places: name,lat,lon.", STATES
    )
    names: Mapping[str, str] | Sequence[str] = option(
        (), "Another name for a state, as in 'stop 4=home'; may be given again.", STATES, "name"
    )
    # what the chain is
    order: int | Literal["auto"] = option(
        1, "Order of the chain, or auto: by held-out log-loss.", CHAIN, unit="", words={"auto": "auto"}
    )
    max_order: int = option(3, "Highest order that auto tries.", CHAIN)
    smoothing: float | Literal["moves"] | None = option(
        None,
        "Pseudo-counts per transition (default 0.001), or moves: by distance, the strength chosen by held-out log-loss "
        "(default for cells and bins where it gains).",
        CHAIN,
        unit="",
        words={"moves": "moves"},
    )
    hold_out: float | None = option(
        None,
        "Latest share of traces or weeks kept out of the fit to check promises on, as in 0.2, or none; auto: a third, "
        "where that is at least ten.",
        CHAIN,
        unit="",
        words={"auto": None, "none": 0.0},
    )
    cycle: Literal["auto", "none", "day", "week"] = option(
        "auto",
        "The hour of the day, which everybody knows: day, week (weekends apart), none, or auto: where held-out "
        "log-loss gains by it.",
        CHAIN,
    )
    zone: str | None = option(
        None, "Time zone of these hours, as in Europe/London (default: `tz`, else the record's clock).", CHAIN
    )
    seed: int = option(0, "Seed of the folds.", CHAIN)

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, parsed(f, getattr(self, f.name)))
        super().__post_init__()
        object.__setattr__(self, "names", self.renamings)
        for name, least in (("n_states", 1), ("max_order", 1), ("seed", 0)):
            if (value := getattr(self, name)) is not None and value < least:
                raise InputError(f"`{name}` must be at least {least}, found {value}")
        if self.order != "auto" and not (isinstance(self.order, int) and self.order >= 1):
            raise InputError(f"`order` must be a number from 1 or auto, found {self.order!r}")
        if self.edges is not None and (self.width is not None or self.n_states is not None):
            raise InputError("`edges` says where bins begin: leave out `width` and `n_states`")

    @classmethod
    def of(cls, recording: Recording, **options: Any) -> FitSpec:
        """With steps as they were recorded before."""
        return cls(**recording.export(), **options)

    def in_unit(self, unit: str) -> FitSpec:
        """With bins that were given as texts in the unit of the readings."""
        edges = self.edges.split(",") if isinstance(self.edges, str) else self.edges
        return replace(
            self,
            width=None if self.width is None else parse_quantity(self.width, unit, "`width`"),
            edges=None if edges is None else tuple(parse_quantity(e, unit, "`edges`") for e in edges),
        )

    @property
    def reading(self) -> dict[str, Any]:
        """How to read, as `readings_of` takes it."""
        return {name: getattr(self, name) for name in (*READING, "skip_bad")}

    @property
    def recording(self) -> Recording:
        """How readings become steps, alone."""
        return Recording(**{f.name: getattr(self, f.name) for f in fields(Recording)})

    @property
    def renamings(self) -> dict[str, str]:
        """The names that states have, and those that they get."""
        return dict(self.names) if isinstance(self.names, Mapping) else dict(map(_renaming, self.names))

    @property
    def covering(self) -> tuple[float, float] | None:
        """Resolution and width of cells beside stops, in metres; None where stops are alone."""
        alone = self.noise == "drop" or self.n_states is not None
        if self.cells_m == 0 or (self.cells_m is None and alone):
            return None
        resolution_m = self.resolution_m or self.cells_m or RESOLUTION_M
        return resolution_m, self.cells_m or resolution_m


def _renaming(pair: str) -> tuple[str, str]:
    """A state and its new name, of 'stop 4=home'."""
    old, _, new = (part.strip() for part in pair.rpartition("="))
    if not (old and new):
        raise InputError(f"`names` takes a state and its new name, as in 'stop 4=home', found {pair!r}")
    return old, new
