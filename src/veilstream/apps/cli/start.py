"""`veil start`: a model for somebody of whom there is no history yet."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from veilstream.errors import InputError
from veilstream.units import format_duration, parse_duration, parse_length_m, parse_quantity

EXAMPLES = """
Examples:

  veil start --grid 500m --around 48.137,11.575 --radius 20km -o ann.veil       a town, not the home

  veil solve ann.veil --avg 1km -o policy.veil && veil serve policy.veil --http 8080

  veil start --places towns.csv -o ann.veil                                     name,lat,lon

  veil start --levels 0:5:0.5kW --period 15min -o meter.veil

  veil refit ann.veil two-weeks.csv -o ann-2.veil                               when there is a history
"""
SPEED_KMH = 20.0  # of a move, doors and lights included
SHARE = 0.25  # of the range of levels that a move goes
STAY = "1h"
PERIOD, LEVEL_PERIOD = "5min", "30min"


def start(
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The model file to write.")] = None,
    grid: Annotated[
        str | None, typer.Option(help="Width of a cell, as in 500m; wider farther out if too many.")
    ] = None,
    around: Annotated[str | None, typer.Option(metavar="LAT,LON", help="The middle of the cells: a town.")] = None,
    radius: Annotated[str | None, typer.Option(help="How far they reach, as in 20km.")] = None,
    places: Annotated[
        str | None, typer.Option(help="CSV of places (name,lat,lon), or NAME=LAT,LON;NAME=LAT,LON.")
    ] = None,
    levels: Annotated[str | None, typer.Option(metavar="FROM:TO:STEP", help="Of a value, as in 0:5:0.5kW.")] = None,
    period: Annotated[str | None, typer.Option(help="Length of a step (default 5min; levels: 30min).")] = None,
    stay: Annotated[str, typer.Option(help="How long anyone stays on average before the next move.")] = STAY,
    jump: Annotated[
        str | None,
        typer.Option(help="How far a move goes in a step (default: 20 km/h; levels: a quarter of the range)."),
    ] = None,
    anywhere: Annotated[float, typer.Option(help="Share of steps that may go anywhere.")] = 0.001,
    json_out: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make a model without any data: told states and a public guess at how anyone moves. Serve it today.

    Nothing private goes into it and nothing is promised from the guess: bits are counted at their worst case, whatever
    the data is. veil refit takes over when there are two weeks of readings; steps and meter go on.
    """
    from veilstream.apps.cli.common import in_flags, print_json
    from veilstream.artefact import provenance, save
    from veilstream.data.cold_start import Kernel
    from veilstream.data.recording import Recording
    from veilstream.solvers.warnings import GUESS

    ground = _ground(grid, around, radius, places, levels)
    states = ground.states
    period_s = parse_duration(period or (PERIOD if states.is_map else LEVEL_PERIOD), "--period")
    kernel = Kernel.of(period_s, parse_duration(stay, "--stay"), _jump(jump, states, period_s), anywhere)
    chain = kernel.chain(states, ground.area, "start" if out is None else out.stem)
    words = kernel.words(states.unit or "units", period_s)
    told = {"stay": kernel.stay, "jump": kernel.jump, "anywhere": kernel.anywhere, "kernel": words}
    notes = [in_flags(GUESS)]
    if ground.within:
        notes.append(
            f"limits are about distances from the middle of a state, and a reading is up to {ground.within:.2g} "
            f"{states.unit} from it".rstrip()
            + (" (more where cells are wider)" if ground.uneven else "")
        )
    result: dict[str, Any] = {"chain": chain.name, **ground.figures(), "period_s": period_s}
    result |= {"entropy_rate": chain.entropy_rate, "start": told, "level": "model only", "meter": "capacity"}
    result["notes"] = notes
    if out is not None:
        made = provenance(shlex.join(["veil", *sys.argv[1:]]), start=told)
        artefact = save(out, None, chain=chain, states=states, recording=Recording(period_s=period_s), provenance=made)
        result |= {"model": str(out), "sha256": artefact.sha256}
    if json_out:
        print_json(result)
        return
    print(f"states: {len(states)}, {ground.note}")
    print(f"public kernel: {words}")
    rate = f"{chain.entropy_rate:.3f} bits a step if nothing were hidden (model only)"
    print(f"steps of {format_duration(period_s)}; {rate}")
    for note in notes:
        print(f"! {note}")
    print("nothing written; -o model.veil keeps the model" if out is None else f"model written to {out}")


def _ground(grid: str | None, around: str | None, radius: str | None, places: str | None, levels: str | None) -> "Any":
    from veilstream.data import cold_start as of

    cells = {"--grid": grid, "--around": around, "--radius": radius}
    given = [any(v is not None for v in cells.values()), places is not None, levels is not None]
    if sum(given) != 1:
        raise InputError(
            "say where: --grid 500m --around LAT,LON --radius 20km, or --places FILE, or --levels 0:5:0.5kW"
        )
    if places is not None:
        return of.places(places)
    if levels is not None:
        return of.levels(levels)
    missing = [flag for flag, text in cells.items() if text is None]
    if missing or grid is None or around is None or radius is None:
        raise InputError(f"a grid needs --grid, --around and --radius; {missing[0]} is missing")
    middle = of.around(around)
    return of.grid_around(middle, parse_length_m(radius, "--radius"), parse_length_m(grid, "--grid"))


def _jump(text: str | None, states: Any, period_s: float) -> float:
    if text is not None:
        return parse_quantity(text, states.unit, "--jump")
    if states.is_map:
        return SPEED_KMH * period_s / 3600
    return SHARE * float(states.coordinates[-1, 0] - states.coordinates[0, 0])
