"""`veil fit`: from files to a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from veilstream.apps.cli.options import Answer, Flags
from veilstream.apps.cli.output import command_line, print_warnings
from veilstream.apps.verbs.flags import in_flags
from veilstream.data.spec import FitSpec
from veilstream.errors import InputError
from veilstream.shown import Progress
from veilstream.units import counted, format_duration

if TYPE_CHECKING:
    from rich.table import Table

    from veilstream.data.model import FittedModel
    from veilstream.data.readings import Readings
    from veilstream.data.synthetic import Source

SYNTHETIC = "synthetic:"
EXAMPLES = """
Examples:

  veil fit geolife/016 -o me.veil --plot me.png

  veil fit meter.csv --unit kWh --states 6 -o meter.veil

  veil fit people.csv -o 'out/{stream}.veil'         one model per stream

  veil fit export.zip --columns value=HeartRate -o heart.veil       of many series, one: the message lists them

  veil fit meter.csv --unit kWh --zone Europe/London -o meter.veil      what the hour reveals is no secret

  veil fit glucose.csv --unit mg/dL --edges 70,180 -o glucose.veil

  veil fit geolife/016 --resolution 500m --name 'stop 4=home' -o me.veil

  veil fit geolife/016 --option gaps=bridge --option noise=drop --option bin=mean      the paper's way, for study only

  veil fit meter.csv --unit kWh --hold-out none -o meter.veil    every reading is fitted, none checked on

  veil fit synthetic:city -o city.veil                           invented, as is synthetic:household
"""
FLAGS = Flags(
    *("columns", "unit", "tz", "skip_bad", "period", "eps", "states", "resolution", "grid", "width", "edges", "places"),
    *("name", "order", "hold_out", "cycle", "zone"),
    rest="bin, gaps, noise, cells, min_samples, time_format, max_gap, fill, max_speed, max_order, smoothing, seed",
)


class NamesFormats(typer.core.TyperCommand):
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


COMMAND = NamesFormats


def fit(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE...", help="File, folder, glob or - (standard input), in a format that is known."
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option("-o", "--out", help="The model file to write; {stream} in it makes one per stream.")
    ] = None,
    plot: Annotated[str | None, typer.Option(help="Write a picture: map of states and flows, transitions.")] = None,
    stream: Annotated[str | None, typer.Option(help="Fit this stream only.")] = None,
    *,
    spec: Annotated[FitSpec, FLAGS],
    progress: Progress | None,
) -> Answer:
    """Learn states and a Markov chain from time series, and say what was done to the data."""
    names = [name for name in sources or [] if name.startswith(SYNTHETIC)]
    if names and len(sources or []) > 1:
        raise InputError(f"{names[0]} stands alone: give no other source")
    if names:
        readings, truth = _synthetic(names[0], spec.seed)
        if truth.states.edges is not None and spec.n_states is None and spec.edges is None:
            spec = replace(spec, edges=tuple(truth.states.edges))
    else:
        readings, truth = _read(sources or [], spec, progress), None
    if stream is not None:
        readings = readings.only(stream)
    each = "{stream}" in f"{out or ''}{plot or ''}"
    jobs = [(readings.only(s), _in_name(out, s), _in_name(plot, s)) for s in readings.streams] if each else []
    found, fault = list[tuple["FittedModel", dict[str, Any]]](), None
    try:
        for i, (own, path, picture) in enumerate(jobs or [(readings, out, plot)]):
            name = own.streams[0] if len(own.streams) == 1 else ""
            tell = _part(progress, i, max(len(jobs), 1), name)
            found.append(_one(own, spec, path, picture, truth, tell))
    except InputError as one:  # what was written is said, whatever became of the rest
        fault = one
    results = [result for _, result in found]
    told = results[0] if len(results) == 1 else {"models": results}

    def show_all() -> None:
        for model, result in found:
            show(model, result)

    return Answer(told, show_all, fault=fault)


def _read(sources: list[str], spec: FitSpec, progress: Progress | None) -> Readings:
    try:
        from veilstream.data.sources import read
    except ImportError as missing:
        raise InputError(
            f"reading data needs {missing.name}; install it with: pip install 'veilstream[data]'"
        ) from None

    def tell(done: int, files: int) -> None:
        if progress:
            progress(done / files, f"file {done} of {files}")

    return read(sources, **spec.reading, progress=tell)


def _synthetic(text: str, seed: int) -> tuple[Readings, Source]:
    """synthetic:city, or synthetic:city:5000 of so many steps."""
    from veilstream.data.readings import from_arrays
    from veilstream.data.synthetic import synthetic

    name, _, steps = text.removeprefix(SYNTHETIC).partition(":")
    if not (steps or "0").isdecimal():
        raise InputError(f"{text}: steps are a whole number, as in synthetic:city:5000")
    source = synthetic(name, int(steps or 20_000), seed)
    return from_arrays(source.t_s, source.points, source.unit, f"synthetic {name}"), source


def _part(progress: Progress | None, i: int, of: int, name: str) -> Progress:
    """Progress of the i-th of these models, as that of all of them."""

    def tell(done: float, what: str) -> None:
        if progress:
            progress((i + done) / of, f"{name}, {what}" if name else what)

    return tell


def _one(
    readings: Readings, spec: FitSpec, out: str | None, plot: str | None, truth: Source | None, progress: Progress
) -> tuple[FittedModel, dict[str, Any]]:
    """Fit, write and draw one model; returns it with its JSON."""
    from veilstream.data.fit import fit as run
    from veilstream.solvers.warnings import about_data

    model = run(readings, spec=spec, progress=progress)
    result = {"chain": model.chain.name, **model.to_json(), "data_sha256": readings.sha256}
    result["notes"] = [*result["notes"], *about_data({"card": model.figures()})]
    result = in_words(result)
    if truth is not None:
        result["truth"] = truth_report(model, truth)
    if out is not None:
        artefact = model.save(out, command_line())
        result |= {"model": out, "sha256": artefact.sha256}
    if plot is not None:
        from veilstream.apps.report.plots import save_figure

        if not Path(plot).parent.is_dir():
            raise InputError(f"{plot}: the picture cannot be written (no such folder)")
        save_figure(model.plot(), Path(plot), dpi=120)
        result["plot"] = plot
    return model, result


def in_words(result: dict[str, Any]) -> dict[str, Any]:
    """The same in the words of the command line."""
    said = {key: [in_flags(line) for line in result[key]] for key in ("study_only", "notes")}
    return result | said | {"account": [{**one, "note": in_flags(one["note"])} for one in result["account"]]}


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
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    account = [(e["step"], f"{e['count']:,}", e["note"]) for e in result["account"]]
    console.print(_table(f"What happened to the data: {model.chain.name}", ("step", "count", ""), account))
    console.print(_table("The model", (), _summary(model, result)))
    if len(model.orders) > 1:
        chosen = model.chain.order
        rows = [
            (f"{cv.order}", f"{cv.loss:.4f}", f"{cv.loss_se:.4f}", _mark(cv.order == chosen)) for cv in model.orders
        ]
        console.print(_table("Order by held-out log-loss", ("order", "bits per step", "±", ""), rows))
    if model.gap_choices:
        heads = ("gaps", "transitions", "entropy in the counts", "entropy rate", "")
        ways = [
            (c.name, f"{c.transitions:,}", f"{c.entropy_data:.4f}", f"{c.entropy_rate:.4f}", _mark(c.chosen))
            for c in model.gap_choices
        ]
        console.print(_table("Ways with gaps, on the same states (order 1, bits per step)", heads, ways))
    print_warnings(console, result["notes"])
    if "model" in result:
        console.print(f"model written to [bold]{escape(str(result['model']))}[/]")
    else:
        console.print("[dim]nothing written; -o model.veil keeps the model[/]")
    if "plot" in result:
        console.print(f"picture written to [bold]{escape(str(result['plot']))}[/]")


def _mark(chosen: bool) -> str:
    return "chosen" if chosen else ""


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The last column may be long; what lies between it and the first are figures."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left", box=None, show_header=bool(heads))
    for i, name in enumerate(heads or ("", "")):
        table.add_column(name, justify="right" if 0 < i < len(heads) - 1 else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row), style=None)
    return table


def _summary(model: FittedModel, result: dict[str, Any]) -> list[tuple[str, str]]:
    card, d, unit = model.card, model.distances, model.states.unit
    far = f" {unit}" if unit else ""
    rows_min, rows_mid = card.row_counts.min(), float(sorted(card.row_counts)[len(card.row_counts) // 2])
    blind = model.states.names[d.blind_state]
    period = format_duration(model.period_s) if model.period_s else "steps without a clock"
    rows = [
        ("data", f"{counted(model.streams, 'stream')}, {counted(model.traces, 'trace')}, {model.points:,} points"),
        ("steps", f"{model.runs.steps:,} of {period} in {counted(len(model.runs.sequences), 'run')}"),
        (
            "states",
            f"{len(model.states)} {model.states.kind}, "
            + (
                "right or wrong"
                if model.states.kind == "names"
                else f"distances in {unit or 'the value (no unit given: --unit)'}"
            ),
        ),
        ("chain", f"order {model.chain.order}, {len(model.chain)} rows, {model.runs.transitions:,} transitions"),
        ("entropy rate", f"{card.entropy_rate:.4f} bits per step"),
        ("  in the counts", f"{card.entropy_data:.4f} bits per step (order 1, weighted by visits, no smoothing)"),
        ("held-out log-loss", _held_out(model)),
        ("later part", _later(model)),
        ("self-transition", f"{card.self_transition:.1%} of steps stay, {card.moves:,} moves"),
        ("effective sample", f"{card.effective_sample:,.0f} independent visits"),
        ("transitions per row", f"{rows_min:,.0f} at least, {rows_mid:,.0f} in the middle"),
        (
            "raw reading to its state",
            f"{d.raw_mean:.3g}{far} mean, {d.raw_median:.3g} median, {d.raw_p95:.3g} for 95 %",
        ),
        (
            f"always releasing {blind}",
            f"leaks nothing, costs {d.blind_state_to_state:.3g}{far} from state to state, "
            f"{d.blind_raw_to_state:.3g}{far} from the raw reading",
        ),
    ]
    if model.cycle.clock is not None:
        rows.insert(4, ("clock", f"{model.cycle.clock}; held-out log-loss without it {model.cycle.plain:.4f}"))
    if model.within_resolution is not None:
        near = f"{model.within_resolution:.1%} of steps within {model.resolution_m / 1000:g} km of their state"
        rows.insert(-1, ("resolution", near))
    if "truth" in result:
        truth = result["truth"]
        error = f", largest error of a transition {truth['max_error']:.4f}" if "max_error" in truth else ""
        rows.append(("truth", f"{truth['states']} states, entropy rate {truth['entropy_rate']:.4f}{error}"))
    return rows


def _held_out(model: FittedModel) -> str:
    if model.held_out is None:
        return "too few runs to hold any out"
    cv = model.held_out
    more = cv.loss - model.card.entropy_rate
    return f"{cv.loss:.4f} ± {cv.loss_se:.4f} bits per step, by folds ({more:+.4f} to the entropy rate)"


def _later(model: FittedModel) -> str:
    if model.later is None:
        return "none held out: solve will speak of the model only"
    later = model.later
    loss = f"log-loss {later.loss.value:.4f} [{later.loss.low:.4f}, {later.loss.high:.4f}]"
    return (
        f"the latest {later.units} {later.record.unit}, {len(later.record):,} steps, held out but in the model file "
        f"(veil strip takes them out); {loss}"
    )
