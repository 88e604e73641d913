"""From a DataFrame or files to a model in one call: what `veil fit` runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from veilstream.data.spec import READING, DataSpec, FitSpec, documented, remembered
from veilstream.errors import InputError, need
from veilstream.shown import Progress, caution, watching

if TYPE_CHECKING:
    from veilstream.data.model import FittedModel
    from veilstream.data.readings import Readings

T = TypeVar("T")


def fit(
    data: Any,
    *,
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
        >>> round(solution.record.error, 2)
        0.5

    spec holds the choices below, as a `FitSpec`; those given by name win over it. Numbers may be texts with a unit.

    CHOICES

    Returns a `FittedModel`: `.states`, `.chain`, `.account` (what was done to the data), `.notes`, `.plot()`,
    `.save("me.veil")`. It holds the readings and is as private as they are.
    """
    need("polars", "data")
    from veilstream.data.fitting import fit_model
    from veilstream.data.frames import as_text, of_stream, readings_of

    spec = replace(spec or FitSpec(), **options)
    with watching("reading", progress) as tell:
        readings = readings_of(data, tell, **spec.reading)
    readings = of_stream(readings, spec.stream)
    told = spec.reading | {"columns": as_text(spec.columns)}
    with watching("fitting", progress) as tell:
        model = fit_model(readings, spec, progress=tell or (lambda done, what: None))
    caution(model.notes)
    return replace(model, reading={k: told[k] for k in READING if told[k]})


documented(fit, FitSpec)


# --- for the other verbs ----------------------------------------------------------------------------------


def read_as_fitted(provenance: Mapping[str, Any], data: Any, spec: DataSpec) -> Readings:
    """Readings of the data, by the options that the file remembers unless the spec has others; by the defaults where
    those do not fit."""
    need("polars", "data")
    from veilstream.data.frames import of_stream, readings_of

    told = {"columns": spec.columns, "skip_bad": spec.skip_bad}
    return of_stream(read_by(readings_of, data, provenance, told), spec.stream)


def read_by(read: Callable[..., T], data: Any, provenance: Mapping[str, Any], told: Mapping[str, Any]) -> T:
    """Apply any reader as `read_as_fitted` does."""
    told = {k: v for k, v in told.items() if v}
    try:
        return read(data, **(remembered(provenance) | told))
    except InputError as fault:
        if not remembered(provenance).keys() - told.keys():
            raise
        try:
            return read(data, **told)
        except InputError:
            if ": no column " in str(fault):  # another file, with names of its own: what is wrong with it is the second
                raise
            raise fault from None
