"""From a DataFrame or files to a model in one call: what `veil fit` runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from veilstream.data.reader_options import READING
from veilstream.errors import InputError
from veilstream.model.chain import SMOOTHING
from veilstream.shown import Progress, caution, watching

if TYPE_CHECKING:
    from veilstream.data.model import FittedModel


def fit(
    data: Any,
    *,
    stream: str | None = None,
    columns: str | Mapping[str, str] | None = None,
    unit: str | None = None,
    tz: str | None = None,
    time_format: str | None = None,
    skip_bad: bool = False,
    period_s: float | None = None,
    bin: Literal["first", "mean", "sum"] = "first",
    gaps: Literal["split", "bridge"] = "split",
    max_gap_s: float | None = None,
    fill: Literal["hold", "close"] | None = None,
    noise: Literal["nearest", "drop"] = "nearest",
    max_speed_kmh: float = 1000.0,
    n_states: int | None = None,
    eps_m: float = 200.0,
    min_samples: int = 8,
    grid_m: float | None = None,
    cells_m: float | None = None,
    resolution_m: float | None = None,
    places: str | os.PathLike[str] | None = None,
    width: float | None = None,
    edges: Sequence[float] | None = None,
    names: Mapping[str, str] | None = None,
    order: int | Literal["auto"] = 1,
    max_order: int = 3,
    smoothing: float | Literal["moves"] | None = None,
    hold_out: float | None = None,
    cycle: Literal["auto", "none", "day", "week"] = "auto",
    zone: str | None = None,
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> FittedModel:
    """Learn states and a Markov chain from readings, as `veil fit` does: the same model, without flags.

    data is a DataFrame of pandas or polars (or a mapping of columns), or what `veil fit` reads: a path, a folder, a
    glob, or a list of them. A table has a column (or, with pandas, an index) of times and either latitude and longitude
    or a value; which is which is guessed by name, or told: `columns={"time": "ts", "lat": "y", "lon": "x"}`. A column
    that tells people apart is a `stream`; `stream="ann"` takes one of them, or names the one there is.

        >>> import veilstream as vs
        >>> from veilstream.data.synthetic import city
        >>> person = city(1500)                        # made up: a fix every five minutes
        >>> lat, lon = person.points.T
        >>> model = vs.fit({"time": person.t_s, "lat": lat, "lon": lon})
        >>> model
        <FittedModel stream: 9 stops and cells, steps of 5 min, order 1, 0.29 bits per step>
        >>> solution = vs.solve(model, avg="500m")     # and on: vs.audit, vs.report, vs.release
        >>> round(solution.record.felt, 2)
        0.5

    The data
        unit            of the values, as in "kWh"; guessed from the column's name
        tz              zone of times that have none (default: UTC)
        time_format     of times that are texts in no common form
        skip_bad        drop and count rows that cannot be read, instead of saying so and stopping
        period_s        length of a step; 300 for positions; for values the median distance of readings, made round
        bin             the reading of a step: its first (all a gateway has), or mean or sum (study only)
        gaps, max_gap_s a new run after a gap longer than this, or bridge: close over it (study only)
        fill            missing steps inside a run: hold the last state, or close over them (study only)
        max_speed_kmh   a position faster than this from both its neighbours is dropped

    The states
        n_states        this many; otherwise as many as the data asks for
        eps_m, min_samples    what a stop is: this many steps within this distance
        cells_m, resolution_m width of cells where readings are far from every stop, and how near is near; 0: stops only
        grid_m          square cells instead of stops
        places          a CSV file of named places: name,lat,lon
        width, edges    bins of values: this wide, or between these
        noise           readings that are no stop: nearest, or drop (study only)
        names           other names for states: {"stop 4": "home"}

    The chain
        order           of the chain, or "auto": by held-out loss, up to max_order
        smoothing       pseudo-counts per transition, or "moves": by the distance of a move
        hold_out        latest share of traces or weeks kept out of the fit to check promises on; None: a third, 0: none
        cycle, zone     the hour of the day, which everybody knows anyway: day, week, none, or auto; and whose hours

    Returns a `FittedModel`: `.states`, `.chain`, `.account` (what was done to the data), `.notes`, `.plot()`,
    `.save("me.veil")`. It holds the readings and is as private as they are.
    """
    try:
        from veilstream.data.fitting import FitOptions, fit_model
        from veilstream.data.frames import as_text, of_stream, readings_of
    except ModuleNotFoundError as missing:
        raise InputError(
            f"reading data needs {missing.name}; install it with: pip install 'veilstream[data]'"
        ) from None
    from veilstream.data.recording import Recording

    if order != "auto" and not (isinstance(order, int) and order >= 1):
        raise InputError(f"`order` must be a number from 1 or auto, found {order!r}")
    if edges is not None and (width is not None or n_states is not None):
        raise InputError("`edges` says where bins begin: leave out `width` and `n_states`")
    with watching("reading", progress) as tell:

        def files(done: int, of: int) -> None:
            if tell:
                tell(done / of, f"file {done} of {of}")

        way = {"columns": columns, "tz": tz, "time_format": time_format, "unit": unit, "skip_bad": skip_bad}
        readings = readings_of(data, files, **way)
    readings = of_stream(readings, stream)
    recording = Recording(
        period_s=period_s,
        bin=bin,
        gaps=gaps,
        max_gap_s=max_gap_s,
        fill=fill,
        noise=noise,
        eps_m=eps_m,
        min_samples=min_samples,
        max_speed_kmh=max_speed_kmh,
    )
    options = FitOptions(
        recording,
        n_states=n_states,
        grid_m=grid_m,
        width=width,
        edges=None if edges is None else tuple(edges),
        places=None if places is None else os.fspath(places),
        cells_m=cells_m,
        resolution_m=resolution_m,
        names=tuple((names or {}).items()),
        order=None if order == "auto" else order,
        max_order=max_order,
        smoothing=SMOOTHING if smoothing is None or smoothing == "moves" else smoothing,
        moves=None if smoothing is None else smoothing == "moves",
        hold_out=hold_out,
        cycle=cycle,
        zone=zone or (None if tz == "own" else tz),
        seed=seed,
    )
    told = dict(zip(READING, (as_text(columns), tz, time_format, unit), strict=True))
    with watching("fitting", progress) as tell:
        model = fit_model(readings, options, progress=tell or (lambda done, what: None))
    caution(model.notes)
    return replace(model, reading={k: v for k, v in told.items() if v})
