"""`veil fit`: from files to a model."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from veilstream.errors import InputError
from veilstream.units import parse_duration, parse_length_m, parse_quantity

if TYPE_CHECKING:
    from veilstream.data.model import FittedModel
    from veilstream.data.readings import Readings
    from veilstream.data.synthetic import Source
    from veilstream.solvers.solution import Progress

DATA, STATES, CHAIN, OUT = "Data", "States", "Chain", "Output"
EXAMPLES = """
Examples:

  veil fit geolife/016 -o me.veil --plot me.png

  veil fit meter.csv --unit kWh --states 6 -o meter.veil

  veil fit people.csv -o 'out/{stream}.veil'         one model per stream

  veil fit export.zip --columns value=HeartRate -o heart.veil       of many series, one: the message lists them

  veil fit meter.csv --unit kWh --zone Europe/London -o meter.veil      what the hour reveals is no secret

  veil fit glucose.csv --unit mg/dL --edges 70,180 -o glucose.veil

  veil fit geolife/016 --resolution 500m --name 'stop 4=home' -o me.veil

  veil fit geolife/016 --gaps bridge --noise drop --bin mean      the paper's way, for study only

  veil fit meter.csv --unit kWh --hold-out none -o meter.veil    every reading is fitted, none checked on

  veil fit --synthetic city -o city.veil
"""


class Command(typer.core.TyperCommand):
    """Its help names the formats there are; to know them takes polars, so it asks only then."""

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


def fit(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE...", help="File, folder, glob or - (standard input), in a format that is known."
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "-o", "--out", help="The model file to write; {stream} in it makes one per stream.", rich_help_panel=OUT
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a picture: map of states and flows, transitions.", rich_help_panel=OUT)
    ] = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=OUT)] = False,
    synthetic: Annotated[
        str | None, typer.Option(help="A built-in source with known truth: city or household.", rich_help_panel=DATA)
    ] = None,
    length: Annotated[
        int, typer.Option("--steps", help="Steps of the synthetic source.", rich_help_panel=DATA)
    ] = 20_000,
    seed: Annotated[int, typer.Option(help="For the synthetic source and the folds.", min=0, rich_help_panel=DATA)] = 0,
    stream: Annotated[str | None, typer.Option(help="Fit this stream only.", rich_help_panel=DATA)] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Which column is what, as in time=ts,lat=y,lon=x,stream=id.", rich_help_panel=DATA),
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Unit of the values, as in kWh.", rich_help_panel=DATA)] = None,
    tz: Annotated[
        str | None,
        typer.Option(
            help="Time zone of stamps that have none (default UTC); own: trust mixed offsets.", rich_help_panel=DATA
        ),
    ] = None,
    time_format: Annotated[
        str | None, typer.Option(help="Format of the stamps, as in '%d/%m/%Y %H:%M'.", rich_help_panel=DATA)
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Drop and count rows that cannot be read.", rich_help_panel=DATA)
    ] = False,
    max_speed: Annotated[
        str, typer.Option(help="A point faster than this from both neighbours is dropped.", rich_help_panel=DATA)
    ] = "1000km/h",
    period: Annotated[
        str | None,
        typer.Option(help="Length of a step (default 5min; values: their median distance).", rich_help_panel=DATA),
    ] = None,
    bin: Annotated[
        str, typer.Option(help="Reading of a step: first (what a gateway has), mean, or sum.", rich_help_panel=DATA)
    ] = "first",
    gaps: Annotated[
        str,
        typer.Option(help="split: a new run at a long gap; bridge: close over it (study only).", rich_help_panel=DATA),
    ] = "split",
    max_gap: Annotated[
        str | None,
        typer.Option(help="Longest gap inside a run (default 60min; values: one step).", rich_help_panel=DATA),
    ] = None,
    fill: Annotated[
        str | None,
        typer.Option(
            help="Missing steps inside a run: hold the last state, or close over (study only).", rich_help_panel=DATA
        ),
    ] = None,
    noise: Annotated[
        str, typer.Option(help="Points that are no stop: nearest, or drop (study only).", rich_help_panel=STATES)
    ] = "nearest",
    eps: Annotated[str, typer.Option(help="DBSCAN radius.", rich_help_panel=STATES)] = "200m",
    min_samples: Annotated[int, typer.Option(help="Steps that make a stop.", rich_help_panel=STATES)] = 8,
    states: Annotated[
        int | None,
        typer.Option(
            help="Wanted number: the radius is searched; for values, bins of equal counts (default 8).",
            min=1,
            rich_help_panel=STATES,
        ),
    ] = None,
    cells: Annotated[
        str | None,
        typer.Option(
            help="Width of the cells beside stops, where readings are far from every stop "
            "(default: the resolution); none: stops alone.",
            rich_help_panel=STATES,
        ),
    ] = None,
    resolution: Annotated[
        str | None,
        typer.Option(help="95 % of readings are to be this near to their state (default 1km).", rich_help_panel=STATES),
    ] = None,
    grid: Annotated[
        str | None, typer.Option(help="Square cells of this size instead of stops.", rich_help_panel=STATES)
    ] = None,
    width: Annotated[str | None, typer.Option(help="Bins of this width, as in 0.1kWh.", rich_help_panel=STATES)] = None,
    edges: Annotated[
        str | None, typer.Option(help="Bins between these values, as in 70,180.", rich_help_panel=STATES)
    ] = None,
    places: Annotated[
        str | None, typer.Option(help="CSV of named places: name,lat,lon.", rich_help_panel=STATES)
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Another name for a state, as in 'stop 4=home'; may be given again.", rich_help_panel=STATES),
    ] = None,
    order: Annotated[
        str, typer.Option(help="Order of the chain, or auto: by held-out log-loss.", rich_help_panel=CHAIN)
    ] = "1",
    max_order: Annotated[int, typer.Option(help="Highest order that auto tries.", min=1, rich_help_panel=CHAIN)] = 3,
    hold_out: Annotated[
        str,
        typer.Option(
            help="Latest share of traces or weeks kept out of the fit to check promises on, as in 0.2, or none; "
            "auto: a third, where that is at least ten.",
            rich_help_panel=CHAIN,
        ),
    ] = "auto",
    cycle: Annotated[
        str,
        typer.Option(
            help="The hour of the day, which everybody knows: day, week (weekends apart), none, or auto: where "
            "held-out log-loss gains by it.",
            rich_help_panel=CHAIN,
        ),
    ] = "auto",
    zone: Annotated[
        str | None,
        typer.Option(
            help="Whose hours, as in Europe/London, summer time included (default: that of --tz, else the record's "
            "own clock).",
            rich_help_panel=CHAIN,
        ),
    ] = None,
    smoothing: Annotated[
        str | None,
        typer.Option(
            help="Pseudo-counts per transition (default 0.001), or moves: by distance, the strength chosen by held-out "
            "log-loss (default for cells and bins where it gains).",
            rich_help_panel=CHAIN,
        ),
    ] = None,
) -> None:
    """Learn states and a Markov chain from time series, and say what was done to the data."""
    from veilstream.apps.cli.common import print_json, progress_bar, share_of

    options: dict[str, Any] = {
        "period_s": parse_duration(period, "--period") if period else None,
        "bin": bin,
        "gaps": gaps,
        "max_gap_s": parse_duration(max_gap, "--max-gap") if max_gap else None,
        "fill": fill,
        "noise": noise,
        "max_speed_kmh": parse_quantity(max_speed, "km/h", "--max-speed"),
        "n_states": states,
        "eps_m": parse_length_m(eps, "--eps"),
        "min_samples": min_samples,
        "grid_m": parse_length_m(grid, "--grid") if grid else None,
        "cells_m": 0.0 if cells == "none" else parse_length_m(cells, "--cells") if cells else None,
        "resolution_m": parse_length_m(resolution, "--resolution") if resolution else None,
        "places": places,
        "names": _names(name or []),
        "order": int(order) if order.isdecimal() and int(order) else order,
        "max_order": max_order,
        "smoothing": smoothing if smoothing in (None, "moves") else parse_quantity(smoothing, "", "--smoothing"),
        "hold_out": share_of(hold_out),
        "cycle": cycle,
        "zone": zone,
        "seed": seed,
    }
    told = {"columns": columns, "tz": tz, "time_format": time_format, "unit": unit}
    truth = None
    if synthetic is not None:
        if sources:
            raise InputError("give either sources or --synthetic, not both")
        readings, truth = _synthetic(synthetic, length, seed)
        if truth.states.edges is not None and states is None and edges is None:
            options["edges"] = tuple(truth.states.edges)
    else:
        with progress_bar("reading", json_out) as progress:
            readings = _read(sources or [], told, skip_bad, progress)
    if width is not None:
        options["width"] = parse_quantity(width, readings.unit, "--width")
    if edges is not None:
        options["edges"] = tuple(parse_quantity(e, readings.unit, "--edges") for e in edges.split(","))
    if stream is not None:
        readings = readings.only(stream)
    jobs = [(readings, out, plot)]
    if "{stream}" in f"{out or ''}{plot or ''}":
        jobs = [
            (readings.only(s), out and out.replace("{stream}", _safe(s)), _per_stream(plot, s))
            for s in readings.streams
        ]
    found: list[tuple[FittedModel, dict[str, Any]]] = []
    try:
        with progress_bar("fitting", json_out) as progress:
            for i, (own, path, picture) in enumerate(jobs):
                tell = _part(progress, i, [own.streams[0] if len(own.streams) == 1 else "" for own, _, _ in jobs])
                found.append(_one(own, told | options, path, picture, truth, tell))
    finally:  # what was written is told, whatever became of the rest
        if not json_out:
            from veilstream.apps.cli.fit_view import show

            for model, result in found:
                show(model, result)
    if json_out:
        results = [result for _, result in found]
        print_json(results[0] if len(results) == 1 else {"models": results})


def _part(progress: Progress | None, i: int, names: list[str]) -> Progress:
    """Progress of the i-th of these models, as that of all of them."""

    def tell(done: float, what: str) -> None:
        if progress:
            progress((i + done) / len(names), f"{names[i]}, {what}" if names[i] else what)

    return tell


def _one(
    readings: Readings,
    options: dict[str, Any],
    out: str | None,
    plot: Path | None,
    truth: Source | None,
    progress: Progress,
) -> tuple[FittedModel, dict[str, Any]]:
    """Fit, write and draw one model; returns it with its JSON."""
    from veilstream.apps.cli.common import in_flags
    from veilstream.data.fit import fit as run
    from veilstream.solvers.warnings import about_data

    model = run(readings, progress=progress, **options)
    result = {"chain": model.chain.name, **model.to_json(), "data_sha256": readings.sha256}
    result["notes"] = [*result["notes"], *about_data({"card": model.figures()})]
    result |= {key: [in_flags(line) for line in result[key]] for key in ("study_only", "notes")}
    result["account"] = [{**entry, "note": in_flags(entry["note"])} for entry in result["account"]]
    if truth is not None:
        result["truth"] = truth_report(model, truth)
    if out is not None:
        artefact = model.save(out, shlex.join(["veil", *sys.argv[1:]]))
        result |= {"model": out, "sha256": artefact.sha256}
    if plot is not None:
        from veilstream.apps.cli.fit_view import draw

        draw(model, plot)
        result["plot"] = str(plot)
    return model, result


def _read(sources: list[str], told: dict[str, str | None], skip_bad: bool, progress: Progress | None) -> Readings:
    try:
        from veilstream.data.sources import read
    except ImportError as missing:
        raise InputError(
            f"reading data needs {missing.name}; install it with: pip install 'veilstream[data]'"
        ) from None

    def tell(done: int, files: int) -> None:
        if progress:
            progress(done / files, f"file {done} of {files}")

    return read(sources, **told, skip_bad=skip_bad, progress=tell)


def _names(pairs: list[str]) -> dict[str, str]:
    """{found: wanted} of each --name 'stop 4=home'."""
    found = [tuple(part.strip() for part in pair.rpartition("=")[::2]) for pair in pairs]
    for pair, (old, new) in zip(pairs, found, strict=True):
        if not (old and new):
            raise InputError(f"--name takes a state and its new name, as in 'stop 4=home', found {pair!r}")
    return dict(found)  # type: ignore[arg-type]  # pairs


def _synthetic(name: str, length: int, seed: int) -> tuple[Readings, Source]:
    from veilstream.data.readings import from_arrays
    from veilstream.data.synthetic import synthetic

    source = synthetic(name, length, seed)
    return from_arrays(source.t_s, source.points, source.unit, f"synthetic {name}"), source


def truth_report(model: FittedModel, source: Source) -> dict[str, Any]:
    """How far the fit is from the chain that made the data, where its states can be told apart."""
    import numpy as np

    report: dict[str, Any] = {"entropy_rate": source.chain.entropy_rate, "states": len(source.states)}
    match = model.states.encode(source.states.coordinates)  # true state -> fitted state
    if model.chain.order == 1 and len(set(match.tolist())) == len(match) == len(model.states):
        error = np.abs(model.chain.transition[np.ix_(match, match)] - source.chain.transition)
        report |= {"max_error": float(error.max()), "mean_error": float(error.mean())}
    return report


def _safe(stream: str) -> str:
    """A stream's name as part of a file name."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in stream).lstrip(".") or "stream"


def _per_stream(plot: Path | None, stream: str) -> Path | None:
    if plot is None:
        return None
    if "{stream}" in str(plot):
        return Path(str(plot).replace("{stream}", _safe(stream)))
    return plot.with_name(f"{plot.stem}-{_safe(stream)}{plot.suffix}")
