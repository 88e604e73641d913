"""`veil start`: a model for somebody of whom there is no history yet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilstream.apps.cli.options import Answer, Options, keywords
from veilstream.apps.cli.output import command_line
from veilstream.apps.verbs.flags import in_flags
from veilstream.errors import InputError
from veilstream.units import format_duration, parse_duration, parse_length_m, parse_quantity

if TYPE_CHECKING:
    from veilstream.data.cold_start import Ground, Kernel

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
    option: Annotated[
        Options,
        typer.Option(
            help="stay=1h: how long anyone stays on average; jump=2km: how far a move goes in a step (20 km/h; "
            "levels: a quarter of the range); anywhere=0.001: share of steps that may go anywhere."
        ),
    ] = None,
) -> Answer:
    """Make a model without any data: told states and a public guess at how anyone moves. Serve it today.

    Nothing private goes into it and nothing is promised from the guess: bits are counted at their worst case, whatever
    the data is. veil refit takes over when there are two weeks of readings; steps and meter go on.
    """
    from veilstream.artefact import provenance, save
    from veilstream.data.recording import Recording
    from veilstream.solvers.warnings import GUESS

    ground = _ground(grid, around, radius, places, levels)
    states = ground.states
    period_s = parse_duration(period or (PERIOD if states.is_map else LEVEL_PERIOD), "--period")
    kernel = _kernel(ground, period_s, **keywords(option, _kernel))
    chain = kernel.chain(states, ground.area, "start" if out is None else out.stem)
    words = kernel.words(states.unit or "units", period_s)
    guess = {"stay": kernel.stay, "jump": kernel.jump, "anywhere": kernel.anywhere, "kernel": words}
    notes = [in_flags(GUESS)]
    if ground.within:
        notes.append(
            f"limits are about distances from the middle of a state, and a reading is up to {ground.within:.2g} "
            f"{states.unit} from it".rstrip()
            + (" (more where cells are wider)" if ground.uneven else "")
        )
    result: dict[str, Any] = {"chain": chain.name, **ground.figures(), "period_s": period_s}
    result |= {"entropy_rate": chain.entropy_rate, "start": guess, "level": "model only", "meter": "capacity"}
    result["notes"] = notes
    if out is not None:
        made = provenance(command_line(), start=guess)
        artefact = save(out, None, chain=chain, states=states, recording=Recording(period_s=period_s), provenance=made)
        result |= {"model": str(out), "sha256": artefact.sha256}

    def show() -> None:
        print(f"states: {len(states)}, {ground.note}")
        print(f"public kernel: {words}")
        rate = f"{chain.entropy_rate:.3f} bits a step if nothing were hidden (model only)"
        print(f"steps of {format_duration(period_s)}; {rate}")
        for note in notes:
            print(f"! {note}")
        print("nothing written; -o model.veil keeps the model" if out is None else f"model written to {out}")

    return Answer(result, show)


def _ground(grid: str | None, around: str | None, radius: str | None, places: str | None, levels: str | None) -> Ground:
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
    if grid is None or around is None or radius is None:
        missing = next(flag for flag, text in cells.items() if text is None)
        raise InputError(f"a grid needs --grid, --around and --radius; {missing} is missing")
    return of.grid_around(of.around(around), parse_length_m(radius, "--radius"), parse_length_m(grid, "--grid"))


def _kernel(
    ground: Ground, period_s: float, *, stay: str = "1h", jump: str | float | None = None, anywhere: float = 0.001
) -> Kernel:
    from veilstream.data.cold_start import Kernel

    states = ground.states
    if jump is not None:
        far = parse_quantity(jump, states.unit, "--option jump")
    elif states.is_map:
        far = SPEED_KMH * period_s / 3600
    else:
        far = SHARE * float(states.coordinates[-1, 0] - states.coordinates[0, 0])
    return Kernel.of(period_s, parse_duration(str(stay), "--option stay"), far, anywhere)
