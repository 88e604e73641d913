"""What `veil fit` prints: the account of the data, the model, and what to know about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from veilstream.errors import InputError
from veilstream.units import counted, format_duration

if TYPE_CHECKING:
    from pathlib import Path

    from veilstream.data.model import FittedModel

UNTOLD = "the value (no unit given: --unit)"


def show(model: FittedModel, result: dict[str, Any]) -> None:
    console = Console(highlight=False)
    console.print(_account(model.chain.name, result["account"]))
    console.print(_summary(model, result))
    if len(model.orders) > 1:
        console.print(_orders(model))
    if model.gap_choices:
        console.print(_gaps(model))
    for note in result["notes"]:
        console.print(f"[yellow]![/] {escape(note)}", soft_wrap=True)
    if "model" in result:
        console.print(f"model written to [bold]{escape(str(result['model']))}[/]")
    else:
        console.print("[dim]nothing written; -o model.veil keeps the model[/]")
    if "plot" in result:
        console.print(f"picture written to [bold]{escape(str(result['plot']))}[/]")


def _account(name: str, entries: list[dict[str, Any]]) -> Table:
    table = Table(title=f"What happened to the data: {escape(name)}", title_justify="left", box=None)
    table.add_column("step")
    table.add_column("count", justify="right")
    table.add_column("", overflow="fold")
    for entry in entries:
        table.add_row(entry["step"], f"{entry['count']:,}", escape(entry["note"]))
    return table


def _summary(model: FittedModel, result: dict[str, Any]) -> Table:
    card, d, unit = model.card, model.distances, model.states.unit
    table = Table(title="The model", title_justify="left", box=None, show_header=False)
    table.add_column("", style="dim")
    table.add_column("", overflow="fold")
    far = f" {unit}" if unit else ""
    rows_min, rows_mid = card.row_counts.min(), _median(card.row_counts)
    blind = escape(model.states.names[d.blind_state])
    period = format_duration(model.period_s) if model.period_s else "steps without a clock"
    rows = [
        ("data", f"{counted(model.streams, 'stream')}, {counted(model.traces, 'trace')}, {model.points:,} points"),
        ("steps", f"{model.runs.steps:,} of {period} in {counted(len(model.runs.sequences), 'run')}"),
        (
            "states",
            f"{len(model.states)} {model.states.kind}, "
            + ("right or wrong" if model.states.kind == "names" else f"distances in {unit or UNTOLD}"),
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
    for row in rows:
        table.add_row(*row)
    return table


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


def _median(values: Any) -> float:
    return float(sorted(values)[len(values) // 2])


def _orders(model: FittedModel) -> Table:
    table = Table(title="Order by held-out log-loss", title_justify="left", box=None)
    for name in ("order", "bits per step", "±", ""):
        table.add_column(name, justify="right")
    for cv in model.orders:
        table.add_row(
            str(cv.order), f"{cv.loss:.4f}", f"{cv.loss_se:.4f}", "chosen" if cv.order == model.chain.order else ""
        )
    return table


def _gaps(model: FittedModel) -> Table:
    table = Table(title="Ways with gaps, on the same states (order 1, bits per step)", title_justify="left", box=None)
    table.add_column("gaps")
    for name in ("transitions", "entropy in the counts", "entropy rate", ""):
        table.add_column(name, justify="right")
    for c in model.gap_choices:
        table.add_row(
            c.name, f"{c.transitions:,}", f"{c.entropy_data:.4f}", f"{c.entropy_rate:.4f}", "chosen" if c.chosen else ""
        )
    return table


def draw(model: FittedModel, path: Path) -> None:
    from veilstream.apps.report.plots import save_figure

    if not path.parent.is_dir():
        raise InputError(f"{path}: the picture cannot be written (no such folder)")
    save_figure(model.plot(), path, dpi=120)
