"""From a DataFrame or files to a model in one call: what `veil fit` runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from veilstream.data.spec import READING, FitSpec, documented
from veilstream.errors import need
from veilstream.shown import Progress, caution, watching

if TYPE_CHECKING:
    from veilstream.data.model import FittedModel


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
        >>> round(solution.record.felt, 2)
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
