"""`python -m benchmarks`: how fast it is, as ratios in one run."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilstream.apps.cli import alone, main
from veilstream.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.results import Change

GROUPS = ["core", "limits", "advise", "large", "cycle", "data", "gateway", "nats", "fleet", "deep"]
ASKED = [
    "survive",
    "anywhere",
    "feedback",
    "felt",
    "total",
    "pooling",
    "certificates",
    "policies",
    "judge",
    "epsilon",
    "audiences",
    "lateness",
]  # when named: minutes, most on recorded data
EXAMPLES = """
python -m benchmarks
python -m benchmarks core limits --compare benchmarks/results.json     what got worse since that file was written
python -m benchmarks core -o ""                                   keep no file
python -m benchmarks large --full
VEIL_DATA=data python -m benchmarks felt --table                  as the documentation prints it
VEIL_DATA=data python -m benchmarks survive                       promises on the later part of real records
"""


def bench(
    groups: Annotated[
        list[str] | None, typer.Argument(help=f"Which: {', '.join(GROUPS)}; all unless told. Or {' or '.join(ASKED)}.")
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="What takes longer, too: large up to 4,096 states, limits of 1,024, cycle on every household.",
        ),
    ] = False,
    out: Annotated[
        str, typer.Option("--out", "-o", help="Where the figures are kept, with facts of the machine; '' keeps none.")
    ] = "benchmarks/results.json",
    compare: Annotated[
        Path | None,
        typer.Option("--compare", help="A file of earlier figures: say which got worse, exit with 1 if any did."),
    ] = None,
    table: Annotated[
        bool,
        typer.Option(
            "--table",
            help="survive, cycle, felt, total, feedback, pooling, certificates, audiences, lateness: as the "
            "documentation prints them.",
        ),
    ] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """The benchmarks, as ratios against the plainest program that does the same."""
    from importlib import import_module
    from inspect import signature

    from rich.console import Console

    from benchmarks import results as file
    from benchmarks.table import in_table, markdown
    from veilstream.apps.cli.output import print_json

    unknown = [g for g in groups or [] if g not in [*GROUPS, *ASKED]]
    if unknown:
        raise InputError(f"unknown benchmark {unknown[0]!r}; known: {', '.join([*GROUPS, *ASKED])}")
    earlier = None if compare is None else file.read(compare)  # before anything is written: it may be the same file
    facts, found, console = file.machine(), {}, Console(highlight=False)
    for group in groups or GROUPS:
        module = import_module(f"benchmarks.{group}")
        run, columns = module.run, getattr(module, "TABLE", {}) if table else {}
        rows = found[group] = run(full=True) if full and "full" in signature(run).parameters else run()
        if out:
            file.kept(Path(out), found, facts)
        if json_out:
            continue
        if columns:
            print(markdown(rows, columns, module.WHO))
            rows = {k: row for k, row in rows.items() if not in_table(row, columns)}
        for name, figures in rows.items():
            console.print(f"[bold]{group} {name}[/]")
            for what, value in figures.items():
                console.print(f"  {what:32} {value:,.4g}" if isinstance(value, int | float) else f"  {what:32} {value}")
    changed = [] if earlier is None else list(file.changes(earlier["results"], found))
    if json_out:
        told = [{"figure": c.name, "before": c.before, "after": c.after, "worse": c.worse} for c in changed]
        print_json(found if earlier is None else {**found, "changes": told})
    elif earlier is not None:
        _print_changes(console, changed, earlier["machine"] | {"load_at_start": 0} == facts | {"load_at_start": 0})
    failed = any(f.get("verdict", "ok") != "ok" for part in found.values() for f in part.values())
    if failed or any(c.worse for c in changed):
        raise typer.Exit(1)


def _print_changes(console: "Console", changed: "list[Change]", same_machine: bool) -> None:
    if not same_machine:
        console.print("! another machine or other versions: compare ratios, not seconds")
    worse = [c for c in changed if c.worse]
    for c in sorted(worse, key=lambda c: -abs(c.times - 1)):
        console.print(f"worse: {c.name}  {c.before:,.4g} -> {c.after:,.4g}  ({c.times:.2f} times)")
    console.print(f"{len(worse)} of {len(changed)} figures got worse" if changed else "no figure is in both")


if __name__ == "__main__":
    main(alone(bench, sys.modules[__name__], "bench"))
