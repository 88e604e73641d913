"""`veil start`: a policy for somebody of whom there is no history yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from veilstream.apps.cli.options import Answer
from veilstream.apps.cli.output import command_line
from veilstream.shown import Progress

EXAMPLES = """
Examples:

  veil start --avg 1km -o me.veil && veil serve me.veil --mqtt mqtt://localhost      a phone, wherever it goes

  veil start --max 500m -o me.veil                          never farther off than that, by car, train or plane

  veil start --avg 200m --max 1km -o me.veil

  veil start --avg 0.2kWh --period 30min -o meter.veil      a meter, whatever it will read
"""


def start(
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The policy file to write.")] = None,
    avg: Annotated[str | None, typer.Option(help="Mean error, as in 1km or 0.2kWh: a guess so far.")] = None,
    max: Annotated[str | None, typer.Option(help="Error at every step, as in 500m: kept whoever it is.")] = None,
    period: Annotated[str | None, typer.Option(help="Length of a step (default 5min; values: 30min).")] = None,
    stay: Annotated[str, typer.Option(help="The guess: how long anyone stays on average before the next move.")] = "1h",
    jump: Annotated[
        str | None,
        typer.Option(help="The guess: how far a move goes in a step (default: 20 km/h; values: four limits)."),
    ] = None,
    *,
    progress: Progress | None,
) -> Answer:
    """Make a policy without any data, from a limit alone: it works wherever the phone is. Serve it at once.

    Nothing private goes into it. What it promises holds for anybody: a limit at every step, and the bits that its meter
    counts. The mean error rests on a public guess at how anyone moves, and says so.
    """
    from veilstream.solvers.start import start as made

    found = replace(
        made(avg, max, period=period, stay=stay, jump=jump, progress=progress or False), command=command_line()
    )
    written = {} if out is None else {"policy": str(out), "sha256": found.save(out).sha256}

    def show() -> None:
        line, rows = found.about()
        print(line)
        for label, text in rows:
            print(f"  {label:<20}{text}")
        print("nothing written; -o policy.veil keeps the policy" if out is None else f"policy written to {out}")

    return Answer({**found.to_json(), **written}, show)
