"""`veil solve`: from a model to a release policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilstream.apps.cli.options import Answer, Flags, Options, keywords
from veilstream.apps.cli.output import command_line, print_limits, print_warnings
from veilstream.apps.specs import Meaning
from veilstream.apps.verbs.flags import in_flags
from veilstream.errors import InputError
from veilstream.shown import Progress
from veilstream.units import off

if TYPE_CHECKING:
    from veilstream.audit.measures import Guess
    from veilstream.solvers.solution import Solution

EXAMPLES = """
Examples:

  veil solve builtin:grid4x4-q2 --weight 1

  veil solve me.veil --avg 1km --certify -o policy.veil

  veil solve me.veil --max 'stop 0=5km,*=3km' -o policy.veil

  veil solve me.veil --avg 2km --show 1km -o policy.veil        coarser public points; --show states for none

  veil solve me.veil --avg 1km --feedback day -o policy.veil

  veil solve meter.veil --budget 0.1 --json

  veil solve glucose.veil --distortion hypo.csv --avg 0.2 -o policy.veil     costs with names; inf: never shown so

  veil solve me.veil --distortion zero-one --avg 20%                       wrong at one step in five at most

  veil solve meter.veil --avg 0.1kWh --keep-total -o policy.veil             a year's energy adds up in the mean

  veil solve ann.veil --avg 1km -o policy.veil              ann.veil from veil start: no history yet

  veil solve builtin:grid4x4-q2 --weight 1 --method a2c --option width=128 --option updates=1000

  veil solve builtin:grid2x3-toy --avg 0.6 --pairs --method a2c --option mode=paper --option width=64
"""

LATER = (
    "later data was kept out of the fit; its bits are an upper bound on what releases reveal of such data, whatever "
    "its law: the chain is only a guess there (95 % intervals over whole traces or weeks)"
)
MOST_STATES = 512  # beyond, the adversary's beliefs take longer than the solution
NO_LATER = "model only: the model file holds no later data, so nothing here is checked on later data"


def solve(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file, or builtin:NAME.")],
    meaning: Annotated[Meaning, Flags("distortion", "show")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The policy file to write.")] = None,
    avg: Annotated[
        str | None, typer.Option(help="Mean distortion at most, as in 2km, or 25%: of what revealing nothing costs.")
    ] = None,
    at_most: Annotated[
        str | None, typer.Option("--max", help="At every step at most, as in 5km, 500m@99% or 'stop 0=5km,*=3km'.")
    ] = None,
    weight: Annotated[float | None, typer.Option("--weight", "--lambda", help="Bits per unit of distortion.")] = None,
    budget: Annotated[float | None, typer.Option(help="Bits per step at most; the distortion is minimised.")] = None,
    feedback: Annotated[
        str | None,
        typer.Option(
            help="Correct --avg by a public move every day, week, month or 6h; for long records, not few traces."
        ),
    ] = None,
    keep_total: Annotated[
        bool, typer.Option("--keep-total", help="Values: releases add up to the readings in the mean (a bill).")
    ] = False,
    method: Annotated[
        str | None,
        typer.Option(
            help="causal-ba, myopic, belief-greedy, planar-laplace, held (quick), ... "
            "[default: causal-ba; held for large models of veil start]"
        ),
    ] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Let a release look at the last true state too: the paper's form.")
    ] = False,
    window: Annotated[int | None, typer.Option(help="Releases it remembers; else a memory made to measure.")] = None,
    certify: Annotated[bool, typer.Option("--certify", help="Prove how close to the best possible it is.")] = False,
    seconds: Annotated[float, typer.Option(help="Time for the certificate.")] = 30.0,
    option: Annotated[
        Options,
        typer.Option(
            help="seed=1; max-bits=0.1: under --feedback never leak more than this per step; or of the method, as in "
            "steps=1000000, memory-gb=4 or dtype=float32."
        ),
    ] = None,
    *,
    progress: Progress | None,
) -> Answer:
    """Find the release policy that leaks least for the utility asked for."""
    from veilstream.audit.measures import Guess
    from veilstream.container import check_writable
    from veilstream.control.limit_check import FIGURES
    from veilstream.solvers import Level
    from veilstream.solvers.api import solve as run

    more = keywords(option)
    if out is not None:
        check_writable(out, "policy.veil")
    if not isinstance(more.get("max_bits", 0.0), int | float) or more.get("max_bits", 0.0) < 0:
        raise InputError(f"`max_bits` must be a number >= 0, found {more['max_bits']}")
    if "max_bits" in more and feedback is None:
        raise InputError("`max_bits` bounds the rungs of --feedback: give that too, or --budget for a plain policy")
    limits = {"avg": avg, "max": at_most, "weight": weight, "budget": budget, "feedback": feedback}
    about = {"distortion": meaning.distortion, "show": meaning.show, "keep_total": keep_total, "pairs": pairs}
    how = {"method": method, "window": window, "certify": certify, "certify_seconds": seconds, "progress": progress}
    solution = run(model, **limits, **about, **how, **more)  # type: ignore[arg-type]  # texts are read by their units
    solution = replace(solution, warnings=[in_flags(line) for line in solution.warnings])
    chain, guess = solution.problem.chain, None
    if len(chain) <= MOST_STATES:
        guess = Guess.of(chain, solution.policy, int(more.get("seed", 0)))
    result = solution.asked.to_json(solution) | ({} if guess is None else guess.to_json())
    if solution.asked.model is not None:
        result.setdefault("held_out", {"traces": 0, "level": str(Level.MODEL_ONLY)} | dict.fromkeys(FIGURES))
    if out is not None:
        solution.save(out, command_line())
        result["policy"] = str(out)
    return Answer(result, lambda: show(solution, guess, out))


def show(solution: Solution, guess: Guess | None, out: Path | None) -> None:
    """Limits, the headline, every fact, what stands beside them."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    asked, source = solution.asked, solution.asked.utility
    print_limits(console, solution.limits)
    said = solution.problem.constraint.told(source.unit)
    console.print(f"[bold]{escape(solution.problem.chain.name)}[/], {said}, {solution.method}")
    console.print(headline(solution, guess))
    table = Table(box=None, show_header=False, pad_edge=False)
    for column in ({"style": "bold"}, {"justify": "right"}, {"style": "dim"}):
        table.add_column(**column)  # type: ignore[arg-type]
    for fact in solution.facts():
        table.add_row(fact.label, fact.text, fact.note)
    console.print(table)
    console.print(f"[dim]{solution.status}; {solution.seconds:.1f} s[/]")
    if solution.held_out is not None:
        console.print(f"[dim]{LATER}[/]", soft_wrap=True)
    elif source.fitted:
        console.print(f"[dim]{NO_LATER}[/]", soft_wrap=True)
    if asked.quantile < 1 and solution.problem.worst is not None:
        console.print(f"the limit at every step is for {asked.quantile:.4g} of the readings of each state")
    if solution.ladder is not None:
        each = "" if asked.model is None else asked.model.recording.stretch(solution.ladder.ladder.feedback.every)
        for line in solution.ladder.words(source.unit, each):
            console.print(line, soft_wrap=True)
    print_warnings(console, solution.warnings)
    if out is not None:
        console.print(f"policy written to [bold]{escape(str(out))}[/]")


def headline(solution: Solution, guess: Guess | None) -> str:
    """One sentence for someone who has never heard of bits: on the recorded data where there is some."""
    record, source = solution.record, solution.asked.utility
    where = "" if record is None else "on your recorded data "
    felt, bits = (solution.distortion, solution.leakage) if record is None else (record.error, record.bits)
    said = f"{where}a release has {off(f'{felt:.3g}', source.unit)}, and reveals {max(bits, 0.0):.3f} bits per step."
    who = "" if guess is None else f"Under the fitted chain {guess.words(source.thing)}; "
    return (said[0].upper() + said[1:]) if not who else who + said
