"""`veil plan`: what machines a deployment needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from veilstream.apps.plan.needs import Load, Needs

EXAMPLES = """
Examples:

  veil plan --users 1000000 --rate 12/h

  veil plan --users 20000 --rate 2/h --policy meter.veil --cores 4

  veil plan --users 500 --rate 1/min --no-nats --json
"""


def plan(
    users: Annotated[int, typer.Option(help="Streams that release.", min=1)],
    rate: Annotated[str, typer.Option(help="Readings per user: 12/h, 1/min, 0.2/s; a bare number is per hour.")],
    policy: Annotated[Path | None, typer.Option(help="Measure with this policy (default: 16 states).")] = None,
    cores: Annotated[int, typer.Option(help="Cores of one machine.", min=1)] = 8,
    peak: Annotated[float, typer.Option(help="The busiest second against the mean one.")] = 3.0,
    refit: Annotated[str, typer.Option(help="How often every model is made anew.")] = "30d",
    within: Annotated[str, typer.Option(help="In which time all of them are.")] = "8h",
    keep: Annotated[str, typer.Option(help="How long releases are kept.")] = "30d",
    nats: Annotated[bool, typer.Option("--nats/--no-nats", help="Measure NATS where nats-server is installed.")] = True,
    json_out: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure this machine for some seconds and say what machines so many users need, assumptions written out."""
    from dataclasses import asdict

    from veilstream.apps.cli.common import in_flags, print_json, progress_bar
    from veilstream.apps.plan.needs import Load, assumptions, needs, parse_rate
    from veilstream.apps.plan.rates import measure
    from veilstream.errors import InputError
    from veilstream.units import parse_duration

    load = Load(
        users,
        parse_rate(rate),
        peak,
        parse_duration(refit, "--refit") / 86400,
        parse_duration(within, "--within") / 3600,
        cores,
        parse_duration(keep, "--keep") / 86400,
    )
    if policy is not None and not policy.is_file():
        raise InputError(f"no policy file {str(policy)!r}; make one with veil solve MODEL --avg 1km -o FILE")
    with progress_bar("measuring", quiet=json_out) as progress:
        rates = measure(policy, nats, progress)
    found = needs(load, rates)
    assumed = [in_flags(line) for line in assumptions(load, rates)]
    if json_out:
        print_json(
            {
                "load": {**asdict(load), "mean_per_s": load.mean_per_s, "peak_per_s": load.peak_per_s},
                "rates": asdict(rates),
                "needs": {**asdict(found), "advice": found.advice},
                "assumptions": assumed,
            }
        )
        return
    show(load, found, assumed)


def show(load: Load, found: Needs, assumed: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    from veilstream.units import counted

    console = Console(highlight=False)
    table = Table("for", "needs", "disk", box=None)
    each = f"{counted(found.gateways, 'machine')}, one gateway each"
    table.add_row("releasing, a store per gateway", each, f"{found.gateway_disk_gb:,.1f} GB each")
    if found.workers is not None:
        table.add_row(
            "releasing, on NATS",
            f"{counted(found.nats_machines or 0, 'machine')} of {load.cores} cores: "
            f"{counted(found.workers, 'worker')}, {found.clusters:,} x 3 nodes of {found.node_cores} cores",
            f"{found.nats_disk_gb:,.1f} GB a node",
        )
    table.add_row(
        "fitting and solving",
        f"{counted(found.refit_machines, 'machine')} of {load.cores} cores for "
        f"{load.within_h:g} h ({found.refit_core_h:,.1f} core hours every {load.refit_d:g} days)",
        "",
    )
    console.print(f"[bold]{counted(load.users, 'user')}, {load.peak_per_s:,.0f} readings/s at the peak[/]")
    console.print(table)
    console.print(f"{found.advice}\n")
    console.print("This assumes:")
    for line in assumed:
        console.print(f"  - {line}", soft_wrap=True)
