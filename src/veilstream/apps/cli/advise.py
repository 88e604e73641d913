"""`veil advise`: a few operating points in human words, with the command for each."""

import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilstream.apps.cli.common import grouped
from veilstream.apps.cli.meaning import Meaning
from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.apps.cli.headline import Guess
    from veilstream.data.utility import Utility
    from veilstream.solvers.solution import Progress, Solution

EXAMPLES = """
Examples:

  veil advise me.veil

  veil advise meter.veil --json

  veil advise me.veil --show 1km --distortion zero-one

  veil advise builtin:grid4x4-q2
"""
SHARES = (0.75, 0.5, 0.25, 0.1)  # of the way from the least distance there is to that of revealing nothing
CLOCKED = 16  # points of the curve of a chain with a clock
SAME = 0.01  # of all there is to hide, or to be off by, within which two points are one
SMALL = {"km": ("m", 1000.0), "kWh": ("Wh", 1000.0)}  # units for numbers below 1


@dataclass(frozen=True)
class Advice:
    """One operating point."""

    limit: str
    guess: "Guess | None"
    felt: float
    bits: float
    level: str
    command: str

    def to_json(self) -> dict[str, Any]:
        own = {"limit": self.limit, "felt": self.felt, "bits": self.bits, "level": self.level, "command": self.command}
        return own | ({} if self.guess is None else self.guess.to_json())


@grouped
def advise(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file, or builtin:NAME.")],
    meaning: Meaning,
    seed: Annotated[int, typer.Option(help="For random starts and estimates.", min=0)] = 0,
    json_out: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Three to five operating points: how often an adversary is right, how far off it is felt, bits, the command."""
    from veilstream.apps.cli.common import print_json, progress_bar
    from veilstream.apps.report.content import asked_words
    from veilstream.solvers.comfort import about_data

    source, artefact = meaning.read(model)
    known = {} if artefact is None else artefact.provenance
    with progress_bar("advising", quiet=json_out) as progress:
        rows = points(source, [model, *asked_words(meaning.asked)], known, seed, progress)
    if not rows:
        raise InputError(f"{model}: there is nothing to choose; no limit is both useful and hides something")
    warnings = about_data(known)
    if json_out:
        nothing = {"felt": source.by_the_hour, "unit": source.unit, "truth_bits": source.truth}
        print_json({"chain": source.chain.name, **nothing, "points": [r.to_json() for r in rows], "warnings": warnings})
    else:
        show(source, rows, warnings)


def points(
    source: "Utility", asked: list[str], provenance: dict[str, Any], seed: int, progress: "Progress | None"
) -> list[Advice]:
    """At shares of the distance that revealing nothing costs, above what nobody can avoid; each once.

    asked: the model, and the flags that say what matters.
    """
    from veilstream.apps.cli.headline import Guess, bits_of, felt_of
    from veilstream.core.problem import Average
    from veilstream.solvers.comfort import level
    from veilstream.solvers.solution import Level

    found: list[Advice] = []
    blind, truth, free = source.by_the_hour, source.chain.entropy_rate, source.problem(Average(weight=1.0))
    least = float(free.chain.stationary @ free.distortion.min(1))
    if source.course is not None:
        least = source.course.least(free.allowed)
    targets = [least + share * (blind - least) for share in SHARES]
    offers = at_limits if source.chain.phases == 1 else on_curve
    for text, s in offers(source, targets, seed, progress):
        felt, bits = felt_of(s), bits_of(s)
        if any(abs(felt - r.felt) < SAME * blind and abs(bits - r.bits) < SAME * truth for r in found):
            continue
        command = shlex.join(["veil", "solve", *asked, "--avg", text, "-o", "policy.veil"])
        guess = Guess.of(source.chain, s.policy, seed)
        sure = s.level if s.record is None else Level.ESTIMATED  # felt is exact, bits on the record are not
        found.append(Advice(text, guess, felt, bits, str(level(sure, provenance)), command))
    return found


def at_limits(
    source: "Utility", targets: list[float], seed: int, progress: "Progress | None"
) -> "Iterator[tuple[str, Solution]]":
    """The limit as it is typed, and the policy for it."""
    from veilstream.core.problem import Average
    from veilstream.solvers import solve
    from veilstream.units import parse_quantity

    for i, target in enumerate(targets):
        if progress:
            progress(i / len(targets), f"{SHARES[i]:.0%} of what revealing nothing costs")
        text = rounded(target, source.unit)
        try:
            problem = source.problem(Average(limit=parse_quantity(text, source.unit)))
            yield text, solve(problem, window=max(1, source.chain.order), seed=seed, course=source.course)
        except InputError:  # nobody can be this accurate
            continue


def on_curve(
    source: "Utility", targets: list[float], seed: int, progress: "Progress | None"
) -> "Iterator[tuple[str, Solution]]":
    """Points of the curve next to the targets: around a clock meeting a limit takes twenty weights, and minutes."""
    from veilstream.apps.cli.headline import felt_of
    from veilstream.core.problem import Average
    from veilstream.solvers import curve, default_weights

    free, course = source.problem(Average(weight=1.0)), source.course
    found = curve(free, default_weights(free, CLOCKED), window=1, seed=seed, progress=progress)
    far = [s.distortion if course is None else course.felt(s.policy) for s in found]
    for target in targets:
        s = found[min(range(len(found)), key=lambda i: abs(far[i] - target))]
        s = s if course is None else replace(s, record=course.whole(s.policy, source.chain))
        yield rounded(felt_of(s), source.unit), s


def rounded(value: float, unit: str) -> str:
    """Two digits with the unit: 0.4213 km is 420m."""
    name, factor = SMALL.get(unit, (unit, 1.0)) if value < 1 else (unit, 1.0)
    value *= factor
    digits = 1 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{round(value, digits):g}{name}"


def _two(value: float) -> str:
    """Two digits, as limits have."""
    return f"{value:.0f}" if value >= 100 else f"{float(f'{value:.2g}'):g}"


def show(source: "Utility", rows: list[Advice], warnings: list[str]) -> None:
    from rich.console import Console
    from rich.markup import escape

    from veilstream.units import off

    console = Console(highlight=False, soft_wrap=True)
    thing = source.thing
    told = rows[0].guess
    without = "" if told is None else f"names the {thing} in {told.blind:.0%} of steps, and "
    truth = f"The truth would reveal {source.truth:.3f} bits per step."
    best = "one best guess" if source.chain.phases == 1 else "best guess for the hour"
    console.print(
        f"[bold]{escape(source.chain.name)}[/]: without any release an adversary {without}the {best} is "
        f"{off(f'{source.by_the_hour:.3g}', source.unit)}. {truth}"
    )
    lines = [(f"{thing} named", "felt", "bits per step", "command")]
    for r in rows:
        named = "" if r.guess is None else f"{r.guess.right:.0%} of steps"
        lines.append((named, off(_two(r.felt), source.unit, ""), f"{r.bits:.3f}", r.command))
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    for *cells, command in lines:  # no table: a command must not be cut, however narrow the terminal
        print("  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)), "", command)
    about = "on the recorded streams, starts and gaps included" if source.course is not None else "in the long run"
    console.print(
        f"[dim]felt and bits {about} ({rows[0].level}); named: estimated on data drawn from the chain; "
        "a policy that remembers more, as veil solve finds it, may tell a little less[/]"
    )
    for warning in warnings:
        console.print(f"[yellow]![/] {escape(warning)}", soft_wrap=True)
