"""`vs.release`: a table of readings to a table of releases, through the gateway's own core."""

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.apps.specs import ReleaseSpec
from veilstream.audit.source import check_kind
from veilstream.control.uniforms import uniforms
from veilstream.data.columns import Layout
from veilstream.data.fit import read_as_fitted, read_by
from veilstream.data.frames import NAME, FrameTemplate, is_table, of_stream, tabled
from veilstream.data.readers.times import TimeStyle
from veilstream.data.readings import MICROSECONDS, Readings
from veilstream.data.spec import DataSpec, documented
from veilstream.errors import InputError
from veilstream.gateway import pipe
from veilstream.gateway.core import Core
from veilstream.gateway.records import Outcome
from veilstream.gateway.scheduler import Serving
from veilstream.gateway.space import Space
from veilstream.gateway.wire import Reading, Refusal, Release, reading
from veilstream.solvers.api import artefact_of

BATCH = 4096
AGAIN = (
    "nothing is remembered: a second call draws again, and two draws of one step leak more; give store='FILE.db', or "
    "store=False to say that you know"
)


def release(policy: Any, data: Any, *, spec: ReleaseSpec | None = None, **options: Any) -> Any:
    """What may be shown instead of these readings: a DataFrame in, a DataFrame of the same make out.

    policy is a `Solution`, an `Artefact` or the path of a policy file, data what `fit` takes. One row comes out for
    every step that has a reading, in order of time: the time of the step (not of the reading), its stream where the
    table tells streams apart, the release under the names that the readings had, and `leaked_bits`, the public meter of
    the stream so far. No other column passes. Draws come from the operating system's secure generator.

        >>> import tempfile, veilstream as vs
        >>> from veilstream.data.synthetic import household
        >>> home = household(600)
        >>> df = {"time": home.t_s.astype(int), "kWh": home.points[:, 0]}
        >>> solution = vs.solve(vs.fit(df, n_states=3), avg="0.2kWh")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     shared = vs.release(solution, df, store=f"{folder}/home.db")
        ...     again = vs.release(solution, df, store=f"{folder}/home.db")
        >>> list(shared), len(shared["kWh"])
        (['time', 'kWh', 'leaked_bits'], 600)
        >>> again == shared                            # one draw per step, ever: the store remembers
        True

    **A second call draws again and leaks again, unless a store is given.** Two independent draws of one step let
    whoever sees both average the noise away, and no meter counts it. `store` is the file that remembers (SQLite, mode
    0600), the same that `veil release` and `veil serve` keep: a step that it knows gets the release it had, a step
    before the last one that it does not know is refused, and `leaked_bits` goes on counting. Unless told it lies beside
    the policy file (POLICY.db); a policy that is no file has none, which is warned of, and store=False says that you
    know. A step is known by its stream and its number: give every copy of the data the same store and the same name (a
    table without a column of streams is called "stream" by default, a file by its own name).

    It is a step of a scikit-learn pipeline as `FunctionTransformer(partial(vs.release, solution, store="home.db"))`.

    spec holds the choices below, as a `ReleaseSpec`; those given by name win over it. All else of the reading is as
    that of the model. A table that does not tell streams apart takes `stream` for its name. `format` and `per_reading`
    are for the command line.

    CHOICES
    """
    if is_table(policy):
        raise InputError("the policy comes first, then the data: release(solution, df)")
    if options.get("store") is True:
        raise InputError("`store` is the path of a file, or False")
    silent = options.get("store") is False
    spec = replace(spec or ReleaseSpec(), **options | ({"store": None, "no_store": True} if silent else {}))
    artefact = artefact_of(policy, "no policy file {!r}; make one with veil solve MODEL -o policy.veil")
    space = Space(artefact, spec.ceiling, spec.meter, spec.force)
    readings, shape = _read(data, space, spec)
    check_fits(readings, space)
    if spec.seed is not None:
        warnings.warn("a seed makes the noise repeatable; whoever knows it can remove it", stacklevel=2)
    if spec.store is None and not spec.no_store and not isinstance(policy, str | os.PathLike):
        warnings.warn(AGAIN, stacklevel=2)
        spec, silent = replace(spec, no_store=True), True
    say = partial(warnings.warn, stacklevel=3)
    opened = spec.open_store(policy, {"": space}, (lambda line: None) if silent else say)
    draws = None if spec.seed is None else uniforms(spec.seed)
    with closing(Core({"": space}, opened, Serving(max_ahead=spec.max_ahead), uniforms=draws)) as core:
        found, refused = releases(core, readings)
    if refused:
        reasons = "; ".join(f"{n:,} {why.name} ({why.value})" for why, n in refused.items())
        warnings.warn(f"refused {refused.total():,} readings of {NAME}: {reasons}", stacklevel=2)
    return shape.filled(*columns(found, space, shape.layout))


documented(release, ReleaseSpec)


def _read(data: Any, space: Space, spec: DataSpec) -> tuple[Readings, FrameTemplate]:
    if is_table(data):
        told = {"columns": spec.columns, "skip_bad": spec.skip_bad}
        readings, shape = read_by(tabled, data, space.provenance, told)
        return of_stream(readings, spec.stream), shape
    readings = read_as_fitted(space.provenance, data, spec)
    return readings, as_polars(readings)


def as_polars(readings: Readings) -> FrameTemplate:
    """How releases of files are given."""
    import polars as pl

    places = {"lat": "lat", "lon": "lon"} if readings.kind == "position" else {"value": "value"}
    layout = Layout("time", stream="stream", **places)  # type: ignore[arg-type]  # columns of numbers
    style = TimeStyle("number", scale=1e6, stepped=True) if readings.stepped else TimeStyle("aware")
    dtype = pl.Int64() if readings.stepped else pl.Datetime("us", "UTC")
    return FrameTemplate(pl.DataFrame, layout, None, style, dtype)


def check_fits(readings: Readings, space: Space) -> None:
    """Raises unless the readings are of the policy's kind and unit, and have times where it has."""
    check_kind(readings, space.states)
    if readings.stepped != (space.grid.period_s is None):
        own, other = ("step numbers", "times") if readings.stepped else ("times", "step numbers")
        raise InputError(f"{readings.where}: its times are {own}, those of the policy {other}")


def batches(readings: Readings, space: Space) -> Iterator[list[Reading | Refusal]]:
    """The readings in order of time, as a gateway takes them."""
    frame = readings.frame.sort("t", maintain_order=True)
    iso = readings.iso and space.grid.period_s is not None
    for part in frame.iter_slices(BATCH):
        found: list[Reading | Refusal] = []
        for code, t, *at in part.select("stream", "t", *readings.columns).iter_rows():
            seconds = t // MICROSECONDS if t % MICROSECONDS == 0 else t / MICROSECONDS
            point = at[0] if len(at) == 1 else (at[0], at[1])
            one = reading(readings.streams[code], seconds, point, space.grid)
            if iso and isinstance(one, Reading):
                one.t = space.grid.time(one.step, iso=True)
            found.append(one)
        yield found


def releases(core: Core, readings: Readings) -> tuple[list[tuple[int, Release]], Counter[Refusal]]:
    """All of them through the core, committed: every step of a stream with its release, and what was refused."""
    found: dict[tuple[str, int], Release] = {}  # by the first reading of a step, in order of time
    refused: Counter[Refusal] = Counter()
    for batch in batches(readings, core.spaces[""]):
        outcomes = pipe.settled(core, batch).outcomes or [Outcome(Refusal.unhandled)] * len(batch)
        for given, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome.status, Refusal):
                refused[outcome.status] += 1
            elif outcome.release is not None and isinstance(given, Reading):
                found.setdefault((given.stream, given.step), outcome.release)
    return [(step, release) for (_, step), release in found.items()], refused


def columns(
    found: list[tuple[int, Release]], space: Space, layout: Layout
) -> tuple[list[str], NDArray[np.int64], dict[str, Any]]:
    """Streams, grid times in microseconds, and what is released: nothing of a reading but its stream and step."""
    shown = [r for _, r in found]
    t_us = [round(float(space.grid.time(step)) * MICROSECONDS) for step, _ in found]
    if space.points is not None and space.points.is_map:
        out: dict[str, list[Any]] = {
            layout.lat or "lat": [r.lat for r in shown],
            layout.lon or "lon": [r.lon for r in shown],
        }
    else:
        out = {layout.value or "value": [r.released for r in shown]}
    out["leaked_bits"] = [r.leaked_bits for r in shown]
    if space.rule is not None:
        out["rung"] = [r.rung for r in shown]
    return [r.stream for r in shown], np.array(t_us, np.int64), {k: np.array(v) for k, v in out.items()}
