"""`python -m reproduce`: the paper's figures and tables, next to its own numbers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilstream.apps.cli import alone, main

if TYPE_CHECKING:
    from reproduce.item import Ran

EXAMPLES = """
python -m reproduce -o out/paper
python -m reproduce -o out/paper --geolife data/geolife --meters data/households.csv
python -m reproduce -o out/paper --only fig-idc,toy
python -m reproduce -o out/paper --full        (days; after a cut the same line goes on)
"""


def paper(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for figures, tables and index.html.")] = Path(
        "out/paper"
    ),
    geolife: Annotated[Path | None, typer.Option(help="GeoLife's folder, for what needs it.")] = None,
    meters: Annotated[
        Path | None, typer.Option(help="CSV of meter readings, one column a household, for what goes beyond the paper.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="These items only, separated by commas.")] = None,
    seconds: Annotated[float, typer.Option(help="Time for the certificate of a point.", min=0.0)] = 3.0,
    full: Annotated[bool, typer.Option("--full", help="The paper's budgets, a2c at every point: days.")] = False,
    workers: Annotated[int | None, typer.Option(help="Items at once; as many as cores, up to 4.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="For random starts, examples and estimates.", min=0)] = 0,
    json_out: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make the paper's figures and say where our numbers agree; a run that was interrupted goes on where it was."""
    from veilstream.apps.cli.output import print_json, progress_bar
    from veilstream.errors import need

    need("matplotlib", "plot")
    from reproduce.item import Budget
    from reproduce.run import chosen, run
    from reproduce.together import cores

    def tell(outcome: Ran) -> None:
        if json_out:
            return
        found = outcome.finding
        print(f"{outcome.item.name:16} {outcome.state}" + (f"; agrees: {found.agrees}. {found.ours}" if found else ""))

    budget = Budget.full(seed) if full else Budget(certify_s=seconds, seed=seed)
    with progress_bar("paper", quiet=json_out) as progress:
        outcomes = run(out, chosen(only), budget, geolife, progress, tell, meters, workers or cores())
    if json_out:
        made = [
            {"item": o.item.name, "state": o.state, **({} if o.finding is None else o.finding.__dict__)}
            for o in outcomes
        ]
        print_json({"index": str(out / "index.html"), "items": made})
        return
    print(f"look at {out / 'index.html'}")


if __name__ == "__main__":
    main(alone(paper, sys.modules[__name__], "paper"))
