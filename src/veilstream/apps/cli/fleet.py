"""`veil fleet`: one policy per user."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilstream.apps.cli.options import Answer, Flags
from veilstream.apps.cli.output import COLOURS, Terminal
from veilstream.apps.fleet.spec import FleetSpec
from veilstream.data.spec import FitSpec
from veilstream.errors import InputError
from veilstream.shown import Progress
from veilstream.units import counted

if TYPE_CHECKING:
    from veilstream.apps.fleet.summary import Summary

SHOWN = 8  # names in one line
TERMINAL = ("limit", "later: error", "error", "bits", "of the truth", "long run: error", "long run: bits", "at least",
            "steps", "audit")  # fmt: skip
EXAMPLES = """
veil fleet geolife/ -o out/                               one policy per user folder
veil fleet geolife/ meters.csv --unit kWh --avg 25% -o out/
veil fleet geolife/ meters.csv --unit kWh --avg 1km --avg 0.1kWh -o out/
veil fleet meters.csv -o out/ --engine joblib --workers 8
veil fleet meters.csv -o out/ --engine dask --option scheduler=tcp://10.0.0.1:8786
veil fleet meters.csv -o out/ --option states=6 --option certify=0
"""


def fleet(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Folders of users, tables with a key or a column per user, tracks."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write; what is done there is kept.")],
    spec: Annotated[
        FleetSpec,
        Flags(
            *("engine", "workers", "avg", "max", "weight"),
            rest="scheduler, budget, show, feedback, keep_total, method, window, points, certify, audit, pool, seed",
        ),
    ],
    fit: Annotated[
        FitSpec, Flags("columns", "unit", "skip_bad", rest="period, states and whatever veil fit takes", cycle="none")
    ],
    *,
    progress: Progress | None,
) -> Answer:
    """One model, policy, curve and audit per user, and a page over all of them. Exit code 1: some failed."""
    from importlib.util import find_spec

    for library in ("polars", "sklearn"):
        if find_spec(library) is None:  # looked for only: the second takes a second to import
            raise InputError(f"this needs {library}: pip install 'veilstream[fleet]'")
    from veilstream.apps.fleet.run import run_fleet

    before = signal.signal(signal.SIGTERM, _interrupt)  # as Ctrl-C: workers end, what is done is written
    try:
        summary = run_fleet(sources, out, replace(spec, fit=fit), progress)
    finally:
        signal.signal(signal.SIGTERM, before)
    return Answer(summary.to_json(), lambda: show(summary, out), summary.whole)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def show(summary: Summary, out: Path) -> None:
    from veilstream.apps.fleet.summary import table_of
    from veilstream.solvers.solution import Level

    to, told = Terminal(), summary.to_json()
    columns = table_of(told["rows"], TERMINAL)
    if "limit" in columns:
        columns["limit"] = [(r.get("limit_verdict") or "", None) for r in told["rows"]]
    rows = zip([r["user"] for r in told["rows"]], *([text for text, _ in c] for c in columns.values()), strict=True)
    if told["limit_words"]:
        worst = next(v for v, n in told["limit_verdicts"].items() if n)
        to.say("{}", told["limit_words"], style=COLOURS[worst], whole=True)
    to.table(rows, ["user", *columns])
    thin = [r["user"] for r in told["rows"] if r["level"] == Level.MODEL_ONLY]
    raised = [r["user"] for r in told["rows"] if r.get("limit_raised")]
    to.warn(_some("thin data, figures are true of the model only", thin))
    to.warn(_some("default limit raised, it cannot be kept", raised))
    for line in _totals([r["total"] for r in told["rows"] if r.get("total")]):
        to.say("{}", line, whole=True)
    for note in told["notes"]:
        to.say("[dim]{}[/]", note, whole=True)
    for name, line in told["failed"].items():
        to.say("[red]failed[/] [bold]{}[/]: {}", name, line, whole=True)
    kept = f", {told['kept']} of them kept" if told["kept"] else ""
    to.say(
        f"{counted(told['users'], 'user')} done{kept}, {len(told['failed'])} failed; {told['seconds']:.0f} s "
        f"({told['engine']}); summary in [bold]{{}}[/]",
        out / "index.html",
        whole=True,
    )


def _some(said: str, names: list[str]) -> list[str]:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return [f"{said}: {', '.join(names[:SHOWN])}{more}"] if names else []


def _totals(kept: list[dict[str, float]]) -> list[str]:
    if not kept:
        return []
    before = [100 * one["off_without"] for one in kept]
    return [
        f"totals kept for {counted(len(kept), 'user')}: releases add up to the readings in the mean, within "
        f"{max(abs(one['off']) for one in kept):.2%} ({min(before):+.1f} to {max(before):+.1f} % without; --option "
        "keep-total=false)"
    ]
