"""`veil fleet`: one policy per user."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilstream.errors import InputError
from veilstream.units import counted

if TYPE_CHECKING:
    from veilstream.apps.fleet.summary import Summary

WHERE, LIMITS, DATA, MODEL = "Where it runs", "What is asked", "Data", "Model"
SHOWN = 8  # names in one line
EXAMPLES = """
Examples:

  veil fleet geolife/ -o out/                               one policy per user folder

  veil fleet geolife/ meters.csv --unit kWh --avg 25% -o out/

  veil fleet geolife/ meters.csv --unit kWh --avg 1km --avg 0.1kWh -o out/

  veil fleet meters.csv -o out/ --engine joblib --workers 8

  veil fleet meters.csv -o out/ --engine dask --scheduler tcp://10.0.0.1:8786
"""


def fleet(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Folders of users, tables with a key or a column per user, tracks."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write; what is done there is kept.")],
    engine: Annotated[
        str, typer.Option(help="serial, joblib (local processes) or dask.", rich_help_panel=WHERE)
    ] = "serial",
    workers: Annotated[
        int | None, typer.Option(help="Processes; as many as there are cores.", rich_help_panel=WHERE)
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(help="Address of a dask scheduler; without it a local cluster is started.", rich_help_panel=WHERE),
    ] = None,
    avg: Annotated[
        list[str] | None,
        typer.Option(
            help="Mean distortion at most: 1km, 0.1kWh (once per unit), or a share of what revealing nothing costs "
            "(default 25%).",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    at_most: Annotated[
        list[str] | None,
        typer.Option("--max", help="Distortion at every step at most; once per unit.", rich_help_panel=LIMITS),
    ] = None,
    weight: Annotated[
        float | None, typer.Option("--weight", "--lambda", help="Bits per unit of distortion.", rich_help_panel=LIMITS)
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Bits per step at most.", rich_help_panel=LIMITS)] = None,
    feedback: Annotated[
        str | None,
        typer.Option(
            help="Correct --avg by a public move every day, week, month or 6h; for long records, not few traces.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    keep_total: Annotated[
        bool | None,
        typer.Option(
            "--keep-total/--no-keep-total",
            help="Releases add up to the readings in the mean (a bill); on for energy, kWh per step.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    apart: Annotated[
        list[str] | None,
        typer.Option("--show", help="Points to release, as in veil solve; once per unit.", rich_help_panel=LIMITS),
    ] = None,
    method: Annotated[str, typer.Option(help="causal-ba, myopic, ...", rich_help_panel=LIMITS)] = "causal-ba",
    window: Annotated[
        int | None,
        typer.Option(help="Releases a policy remembers; else what pays.", rich_help_panel=LIMITS),
    ] = None,
    points: Annotated[int, typer.Option(help="Weights on each curve.", min=2, max=200, rich_help_panel=LIMITS)] = 12,
    certify: Annotated[
        float, typer.Option(help="Seconds of proof per user; 0: none.", min=0, rich_help_panel=LIMITS)
    ] = 5.0,
    audit: Annotated[str, typer.Option(help="quick (exact adversaries) or none.", rich_help_panel=LIMITS)] = "quick",
    pool: Annotated[
        str,
        typer.Option(
            help="auto: users of one source help each other if they share states; off.", rich_help_panel=MODEL
        ),
    ] = "auto",
    period: Annotated[str | None, typer.Option(help="Length of a step, as in veil fit.", rich_help_panel=MODEL)] = None,
    states: Annotated[
        int | None, typer.Option(help="States: bins of values, or stops searched for.", min=1, rich_help_panel=MODEL)
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(help="Square cells of this size instead of stops; shared.", rich_help_panel=MODEL),
    ] = None,
    width: Annotated[float | None, typer.Option(help="Bins of this width.", rich_help_panel=MODEL)] = None,
    places: Annotated[
        str | None, typer.Option(help="CSV of named places: name,lat,lon; can be shared.", rich_help_panel=MODEL)
    ] = None,
    eps: Annotated[str, typer.Option(help="DBSCAN radius.", rich_help_panel=MODEL)] = "200m",
    min_samples: Annotated[int, typer.Option(help="Steps that make a stop.", rich_help_panel=MODEL)] = 8,
    order: Annotated[str, typer.Option(help="Order of the chains, or auto.", rich_help_panel=MODEL)] = "1",
    cycle: Annotated[
        str,
        typer.Option(help="The hour of the day: auto, day, week or none, as in veil fit.", rich_help_panel=MODEL),
    ] = "none",
    zone: Annotated[str | None, typer.Option(help="Whose hours, as in Europe/London.", rich_help_panel=MODEL)] = None,
    hold_out: Annotated[
        str,
        typer.Option(help="Latest share of each record kept out of the fit, as in veil fit.", rich_help_panel=MODEL),
    ] = "auto",
    columns: Annotated[
        str | None, typer.Option(help="Which column is what, as in veil fit.", rich_help_panel=DATA)
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Unit of the values, as in kWh.", rich_help_panel=DATA)] = None,
    tz: Annotated[str | None, typer.Option(help="Time zone of stamps that have none.", rich_help_panel=DATA)] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Drop and count rows that cannot be read.", rich_help_panel=DATA)
    ] = False,
    seed: Annotated[int, typer.Option(help="Each user's own seed follows from it and her name.", min=0)] = 0,
    json_out: Annotated[bool, typer.Option("--json", help="Print the content of fleet.json.")] = False,
) -> None:
    """One model, policy, curve and audit per user, and a page over all of them. Exit code 1: some failed."""
    from importlib.util import find_spec

    from veilstream.apps.cli.common import print_json, progress_bar

    for library in ("polars", "sklearn"):
        if find_spec(library) is None:  # looked for only: the second takes a second to import
            raise InputError(f"this needs {library}: pip install 'veilstream[fleet]'")
    from veilstream.apps.fleet.run import Plan, run_fleet
    from veilstream.apps.fleet.settings import Settings
    from veilstream.data.spec import FitSpec

    audit = "none" if audit == "off" else audit  # what it was called
    for what, value, known in (("--pool", pool, ("auto", "off")), ("--audit", audit, ("quick", "none"))):
        if value not in known:
            raise InputError(f"{what} must be {' or '.join(known)}, found {value!r}")
    fit = FitSpec(
        period_s=period,  # type: ignore[arg-type]  # texts are read by their units
        eps_m=eps,  # type: ignore[arg-type]
        min_samples=min_samples,
        n_states=states,
        grid_m=grid,  # type: ignore[arg-type]
        width=width,
        places=places,
        order=order,  # type: ignore[arg-type]
        cycle=cycle,  # type: ignore[arg-type]
        zone=zone,
        tz=tz,
        hold_out=hold_out,  # type: ignore[arg-type]
    )
    asked = Settings(
        tuple(avg or ()),
        tuple(at_most or ()),
        weight,
        budget,
        method,
        window,
        points,
        certify,
        audit == "quick",
        feedback,
        tuple(apart or ()),
        keep_total,
    )
    reading = {"columns": columns, "unit": unit, "tz": tz, "skip_bad": skip_bad}
    plan = Plan(engine, workers, scheduler, pool == "auto", seed, fit, asked, reading)
    before = signal.signal(signal.SIGTERM, _interrupt)  # as Ctrl-C: workers end, what is done is told
    try:
        with progress_bar("fleet", quiet=json_out) as progress:
            summary = run_fleet(sources, out, plan, progress)
    finally:
        signal.signal(signal.SIGTERM, before)
    if json_out:
        print_json(summary.to_json())
    else:
        show(summary, out)
    if not summary.whole:
        raise typer.Exit(1)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def show(summary: Summary, out: Path) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from veilstream.apps.cli.common import COLOURS, print_whole
    from veilstream.control.drift import span
    from veilstream.model.interval import Interval
    from veilstream.solvers.solution import Level

    console, told = Console(highlight=False), summary.to_json()
    rows = []
    for r in told["rows"]:
        low = "" if r["leakage_lower"] is None else f"{r['leakage_lower']:.4f}"
        verdict = "" if not r.get("audit") else "as claimed" if r["audit"]["stands"] else "[red]contradicted[/]"
        limit = r.get("limit_verdict")
        kept = "" if limit is None else f"[{COLOURS[limit]}]{limit}[/]"
        later = [span(seen) for c in r.get("limits", ()) if (seen := Interval.read(c["later"]))]
        far, bits = f"({r['distortion']:.3g}) {r['unit']}", f"({r['leakage']:.4f})"
        if r["raw_distortion"] is not None:
            far, bits = f"{r['raw_distortion']:.3g} {far}", f"{max(r['raw_leakage'], 0.0):.4f} {bits}"
        steps = f"{r['steps']:,}" + (f", by {r['cycle']['kind']}" if r["cycle"] else "")
        truth = f"{r['raw_truth'] or r['entropy_rate']:.3f}"
        rows.append((escape(r["user"]), kept, ", ".join(later), steps, far, bits, low, truth, verdict))
    heads = (
        "user", "limit", "on later data", "steps", "error (long run)", "bits (long run)", "at least", "truth", "audit",
    )  # fmt: skip
    used = [i for i in range(len(heads)) if any(row[i] for row in rows)]
    table = Table(box=None)
    for i in used:
        table.add_column(heads[i], justify="right" if i else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(row[i] for i in used))
    if told["limit_words"]:
        worst = next(v for v, n in told["limit_verdicts"].items() if n)
        console.print(told["limit_words"], style=COLOURS[worst], soft_wrap=True)
    print_whole(table)
    for said, users in (
        ("thin data, figures are true of the model only", [r for r in told["rows"] if r["level"] == Level.MODEL_ONLY]),
        ("default limit raised, it cannot be kept", [r for r in told["rows"] if r.get("limit_raised")]),
    ):
        names = [r["user"] for r in users]
        some = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        if names:
            console.print(f"[yellow]![/] {said}: {escape(some)}", soft_wrap=True)
    if totals := [r["total"] for r in told["rows"] if r.get("total")]:
        before = [100 * t["off_without"] for t in totals]
        console.print(
            f"totals kept for {counted(len(totals), 'user')}: releases add up to the readings in the mean, within "
            f"{max(abs(t['off']) for t in totals):.2%} ({min(before):+.1f} to {max(before):+.1f} % without; "
            "--no-keep-total)",
            soft_wrap=True,
        )
    for note in told["notes"]:
        console.print(f"[dim]{escape(note)}[/]", soft_wrap=True)
    for name, line in told["failed"].items():
        console.print(f"[red]failed[/] [bold]{escape(name)}[/]: {escape(line)}", soft_wrap=True)
    kept = f", {told['kept']} of them kept" if told["kept"] else ""
    console.print(
        f"{counted(told['users'], 'user')} done{kept}, {len(told['failed'])} failed; {told['seconds']:.0f} s "
        f"({told['engine']}); "
        f"summary in [bold]{escape(str(out / 'index.html'))}[/]",
        soft_wrap=True,
    )
