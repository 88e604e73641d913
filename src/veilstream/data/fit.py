"""From a DataFrame or files to a model in one call: what `veil fit` runs."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from veilstream.data.reader_options import READING
from veilstream.data.spec import FitSpec
from veilstream.errors import InputError
from veilstream.model.chain import SMOOTHING
from veilstream.shown import Progress, caution, watching

if TYPE_CHECKING:
    from veilstream.data.model import FittedModel


def fit(
    data: Any,
    *,
    stream: str | None = None,
    spec: FitSpec | None = None,
    progress: Progress | bool | None = None,
    **options: Any,
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

    spec holds the choices below, as a `FitSpec`; those given by name win over it.

    The data
        columns         which column is what
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
    spec = replace(spec or FitSpec(), **options)
    with watching("reading", progress) as tell:

        def files(done: int, of: int) -> None:
            if tell:
                tell(done / of, f"file {done} of {of}")

        readings = readings_of(data, files, **spec.reading)
    readings = of_stream(readings, stream)
    choices = FitOptions(
        spec.recording,
        n_states=spec.n_states,
        grid_m=spec.grid_m,
        width=spec.width,
        edges=None if spec.edges is None else tuple(spec.edges),
        places=None if spec.places is None else os.fspath(spec.places),
        cells_m=spec.cells_m,
        resolution_m=spec.resolution_m,
        names=tuple((spec.names or {}).items()),
        order=None if spec.order == "auto" else spec.order,
        max_order=spec.max_order,
        smoothing=SMOOTHING if spec.smoothing is None or spec.smoothing == "moves" else spec.smoothing,
        moves=None if spec.smoothing is None else spec.smoothing == "moves",
        hold_out=spec.hold_out,
        cycle=spec.cycle,
        zone=spec.zone or (None if spec.tz == "own" else spec.tz),
        seed=spec.seed,
    )
    told = dict(zip(READING, (as_text(spec.columns), spec.tz, spec.time_format, spec.unit), strict=True))
    with watching("fitting", progress) as tell:
        model = fit_model(readings, choices, progress=tell or (lambda done, what: None))
    caution(model.notes)
    return replace(model, reading={k: v for k, v in told.items() if v})
