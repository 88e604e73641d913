"""`veil fit`: from files to a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from veilstream.apps.cli.options import Answer, Flags
from veilstream.apps.cli.output import Terminal, command_line
from veilstream.data.spec import FitSpec
from veilstream.errors import InputError, need
from veilstream.shown import Progress, within

if TYPE_CHECKING:
    from veilstream.data.model import FittedModel
    from veilstream.data.readings import Readings
    from veilstream.data.synthetic import Source

SYNTHETIC = "synthetic:"
EXAMPLES = """
veil fit geolife/016 -o me.veil --plot me.png
veil fit meter.csv --unit kWh --states 6 -o meter.veil
veil fit people.csv -o 'out/{stream}.veil'         one model per stream
veil fit export.zip --columns value=HeartRate -o heart.veil       one of many series; the error lists them all
veil fit meter.csv --unit kWh --zone Europe/London -o meter.veil      the hour of the day is known to everybody
veil fit glucose.csv --unit mg/dL --edges 70,180 -o glucose.veil
veil fit geolife/016 --resolution 500m --name 'stop 4=home' -o me.veil
veil fit geolife/016 --option gaps=bridge --option noise=drop --option bin=mean      the paper's way, for study only
veil fit meter.csv --unit kWh --hold-out none -o meter.veil    every reading is fitted, none checked on
veil fit synthetic:city -o city.veil                           invented, as is synthetic:household
"""
FLAGS = Flags(
    *("stream", "columns", "unit", "tz", "skip_bad", "period", "eps", "states", "resolution", "grid", "width", "edges"),
    *("places", "name", "order", "hold_out", "cycle", "zone"),
    rest="bin, gaps, noise, cells, min_samples, time_format, max_gap, fill, max_speed, max_order, smoothing, seed",
)


class NamesFormats(typer.core.TyperCommand):
    """A command whose help lists the formats that are read; this loads polars, so only the help does it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        try:
            from veilstream.data.readers import READERS
        except ImportError:
            known = "those of veilstream[data]"
        else:
            known = ", ".join(f"{reader.name} ({' '.join(reader.endings)})" for reader in READERS)
        for param in self.params:
            if param.name == "sources":
                param.help = f"File, folder, glob or - (standard input): {known}."  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


COMMAND = NamesFormats


def fit(
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE...", help="File, folder, glob or - (standard input), in a known format."),
    ] = None,
    out: Annotated[
        str | None, typer.Option("-o", "--out", help="The model file to write; {stream} in it makes one per stream.")
    ] = None,
    plot: Annotated[str | None, typer.Option(help="Write a picture: map of states and flows, transitions.")] = None,
    *,
    spec: Annotated[FitSpec, FLAGS],
    progress: Progress | None,
) -> Answer:
    """Learn states and a Markov chain from time series, and say what was done to the data."""
    readings, truth = _read(sources or [], spec, progress)
    if truth is not None and truth.states.edges is not None and spec.n_states is None and spec.edges is None:
        spec = replace(spec, edges=tuple(truth.states.edges))
    if spec.stream is not None:
        readings, spec = readings.only(spec.stream), replace(spec, stream=None)
    each = "{stream}" in f"{out or ''}{plot or ''}"
    jobs = [(readings.only(s), _in_name(out, s), _in_name(plot, s)) for s in readings.streams] if each else []
    found, fault = list[tuple["FittedModel", dict[str, Any]]](), None
    try:
        for i, (own, path, picture) in enumerate(jobs or [(readings, out, plot)]):
            name = own.streams[0] if len(own.streams) == 1 else ""
            many = max(len(jobs), 1)
            tell = within(progress, i / many, (i + 1) / many, f"{name}, " if name else "")
            found.append(_one(own, spec, path, picture, truth, tell))
    except InputError as one:  # what was written is said, whatever became of the rest
        fault = one
    results = [result for _, result in found]

    def show_all() -> None:
        for model, result in found:
            show(model, result)

    return Answer(results[0] if len(results) == 1 else {"models": results}, show_all, fault=fault)


def _read(sources: list[str], spec: FitSpec, progress: Progress | None) -> tuple[Readings, Source | None]:
    """The readings, and where they come from if that is known."""
    made = [name for name in sources if name.startswith(SYNTHETIC)]
    if not made:
        need("polars", "data")
        from veilstream.data.sources import read

        return read(sources, progress, **spec.reading), None
    from veilstream.data.readings import from_arrays
    from veilstream.data.synthetic import synthetic

    if len(sources) > 1:
        raise InputError(f"{made[0]} stands alone: give no other source")
    name, _, steps = made[0].removeprefix(SYNTHETIC).partition(":")  # synthetic:city, or synthetic:city:5000 of so many
    if not (steps or "0").isdecimal():
        raise InputError(f"{made[0]}: steps are a whole number, as in synthetic:city:5000")
    source = synthetic(name, int(steps or 20_000), spec.seed)
    return from_arrays(source.t_s, source.points, source.unit, f"synthetic {name}"), source


def _one(
    readings: Readings, spec: FitSpec, out: str | None, plot: str | None, truth: Source | None, progress: Progress
) -> tuple[FittedModel, dict[str, Any]]:
    """Fit, write and draw one model; returns it with its JSON."""
    from veilstream.data.fit import fit as run
    from veilstream.solvers.warnings import about_data

    model = run(readings, spec=spec, progress=progress)
    result = {"chain": model.chain.name, **model.to_json(), "data_sha256": readings.sha256}
    result["notes"] = [*result["notes"], *about_data({"card": model.figures()})]
    if truth is not None:
        result["truth"] = truth_report(model, truth)
    if out is not None:
        result |= {"model": out, "sha256": model.save(out, command_line()).sha256}
    if plot is not None:
        from veilstream.apps.report.plots import save_figure

        if not Path(plot).parent.is_dir():
            raise InputError(f"{plot}: the picture cannot be written (no such folder)")
        save_figure(model.plot(), Path(plot), dpi=120)
        result["plot"] = plot
    return model, result


def truth_report(model: FittedModel, source: Source) -> dict[str, Any]:
    """How far the fit is from the chain that made the data, where its states can be told apart."""
    import numpy as np

    report: dict[str, Any] = {"entropy_rate": source.chain.entropy_rate, "states": len(source.states)}
    match = model.states.encode(source.states.coordinates)  # true state -> fitted state
    if model.chain.order == 1 and len(set(match.tolist())) == len(match) == len(model.states):
        error = np.abs(model.chain.transition[np.ix_(match, match)] - source.chain.transition)
        report |= {"max_error": float(error.max()), "mean_error": float(error.mean())}
    return report


def _in_name(path: str | None, stream: str) -> str | None:
    """The path with the stream in it, as part of a file name."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in stream).lstrip(".") or "stream"
    if path is None or "{stream}" in path:
        return path and path.replace("{stream}", safe)
    plain = Path(path)
    return str(plain.with_name(f"{plain.stem}-{safe}{plain.suffix}"))


# --- what it prints --------------------------------------------------------------------------------------


def show(model: FittedModel, result: dict[str, Any]) -> None:
    """The account of the data, the model, and what to know about it."""
    out, rows = Terminal(), model.facts()
    if "truth" in result:
        truth = result["truth"]
        error = f", largest error of a transition {truth['max_error']:.4f}" if "max_error" in truth else ""
        rows.append(("truth", f"{truth['states']} states, entropy rate {truth['entropy_rate']:.4f}{error}"))
    account = [(e["step"], f"{e['count']:,}", e["note"]) for e in result["account"]]
    out.table(account, ("step", "count", ""), f"What happened to the data: {model.chain.name}", folds=1)
    out.table(rows, ("", ""), "The model", folds=1)
    out.warn(result["notes"])
    written = (
        "model written to [bold]{}[/]"
        if "model" in result
        else "[dim]nothing written; -o model.veil keeps the model[/]"
    )
    out.say(written, result.get("model"))
    if "plot" in result:
        out.say("picture written to [bold]{}[/]", result["plot"])
