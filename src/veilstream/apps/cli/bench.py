"""`veil bench`: how fast it is, as ratios in one run."""

from typing import Annotated

import typer

from veilstream.errors import InputError

GROUPS = ["core", "large", "cycle", "data", "gateway", "nats", "fleet", "deep"]
ASKED = ["survive", "feedback", "felt"]  # only when named: they need recorded data
EXAMPLES = """
Examples:

  veil bench

  veil bench core --json

  veil bench large --full

  VEIL_DATA=data veil bench felt --table              as the documentation prints it

  VEIL_DATA=data veil bench survive                   promises of the earlier part on the later part of real records
"""


def bench(
    groups: Annotated[
        list[str] | None, typer.Argument(help=f"Which: {', '.join(GROUPS)}; all unless told. Or {' or '.join(ASKED)}.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="What takes longer, too: large up to 4,096 states, cycle on every household.")
    ] = False,
    table: Annotated[
        bool, typer.Option("--table", help="cycle, felt and feedback as the tables of the documentation.")
    ] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """The benchmarks, as ratios against the plainest program that does the same."""
    from importlib import import_module
    from inspect import signature

    from rich.console import Console

    from veilstream.apps.bench.table import in_table, markdown
    from veilstream.apps.cli.common import print_json

    unknown = [g for g in groups or [] if g not in [*GROUPS, *ASKED]]
    if unknown:
        raise InputError(f"unknown benchmark {unknown[0]!r}; known: {', '.join([*GROUPS, *ASKED])}")
    results, console = {}, Console(highlight=False)
    for group in groups or GROUPS:
        module = import_module(f"veilstream.apps.bench.{group}")
        run, columns = module.run, getattr(module, "TABLE", {}) if table else {}
        results[group] = run(full=True) if full and "full" in signature(run).parameters else run()
        if json_out:
            continue
        if columns:
            print(markdown(results[group], columns))
            results[group] = {k: row for k, row in results[group].items() if not in_table(row, columns)}
        for name, figures in results[group].items():
            console.print(f"[bold]{group} {name}[/]")
            for what, value in figures.items():
                console.print(f"  {what:32} {value:,.4g}" if isinstance(value, int | float) else f"  {what:32} {value}")
    if json_out:
        print_json(results)
    if any(f.get("verdict", "ok") != "ok" for found in results.values() for f in found.values()):
        raise typer.Exit(1)
