"""`veil solve`: from a model to a release policy."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilstream.apps.cli.common import grouped
from veilstream.apps.cli.meaning import Meaning
from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.apps.cli.headline import Guess
    from veilstream.data.utility import Utility
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

  veil solve builtin:grid4x4-q2 --weight 1 --method a2c --option width=128 --option steps=1000000

  veil solve builtin:grid2x3-toy --avg 0.6 --pairs --method a2c --option mode=paper --option width=64
"""

LATER = (
    "later data was kept out of the fit; its bits are an upper bound on what releases reveal of such data, whatever "
    "its law: the chain is only a guess there (95 % intervals over whole traces or weeks)"
)
NO_LATER = "model only: the model file holds no later data, so nothing here is checked on later data"


@grouped
def solve(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file, or builtin:NAME.")],
    meaning: Meaning,
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
    max_bits: Annotated[
        float | None,
        typer.Option(help="Under --feedback: never leak more than this per step, even if the limit fails.", min=0),
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
    seed: Annotated[int, typer.Option(help="For random starts and estimates.", min=0)] = 0,
    option: Annotated[
        list[str] | None, typer.Option(help="Of the method, as in steps=1000000, memory_gb=4 or dtype=float32.")
    ] = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find the release policy that leaks least for the utility asked for."""
    from dataclasses import replace

    from veilstream.apps.cli.common import in_flags, options_of, print_json, progress_bar
    from veilstream.apps.cli.headline import Guess
    from veilstream.apps.verbs.report import check_writable
    from veilstream.control.held_out import FIGURES
    from veilstream.data.limits import quantile_of
    from veilstream.solvers import Level
    from veilstream.solvers.api import solve as run

    if out is not None:
        check_writable(out, "policy.veil")
    if max_bits is not None and feedback is None:
        raise InputError("--max-bits bounds the rungs of --feedback: give that too, or --budget for a plain policy")
    options = options_of(option)
    with progress_bar("solving", quiet=json_out) as progress:
        solution = run(
            model,
            method,
            window,
            certify,
            seed,
            progress,
            avg=avg,
            max=at_most,
            weight=weight,
            budget=budget,
            feedback=feedback,
            max_bits=max_bits,
            distortion=meaning.distortion,
            show=meaning.show,
            keep_total=keep_total,
            pairs=pairs,
            certify_seconds=seconds,
            **options,
        )
    solution = replace(solution, warnings=[in_flags(line) for line in solution.warnings])
    asked = solution.asked
    guess = Guess.of(asked.utility.chain, solution.policy, seed)
    result = asked.to_json(solution) | ({} if guess is None else guess.to_json())
    if asked.model is not None:
        result.setdefault("held_out", {"traces": 0, "level": str(Level.MODEL_ONLY)} | dict.fromkeys(FIGURES))
    if out is not None:
        solution.save(out, shlex.join(["veil", *sys.argv[1:]]))
        result["policy"] = str(out)
    if json_out:
        print_json(result)
    else:
        print_solution(solution, asked.utility, quantile_of(at_most)[1], guess, out)


def print_solution(
    solution: "Solution",
    source: "Utility",
    quantile: float,
    guess: "Guess | None",
    out: Path | None,
) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from veilstream.apps.cli.common import print_limits
    from veilstream.apps.cli.headline import bits_of, felt_of, headline

    console = Console(highlight=False)
    tried, later = solution.record, solution.held_out
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    for fact in solution.facts():
        table.add_row(fact.label, fact.text, fact.note)
    said = solution.problem.constraint.told(source.unit)
    print_limits(console, solution.limits)
    console.print(f"[bold]{escape(solution.problem.chain.name)}[/], {said}, {solution.method}")
    where = "" if tried is None else "on your recorded data "
    console.print(headline(guess, felt_of(solution), bits_of(solution), source.unit, source.thing, where))
    console.print(table)
    console.print(f"[dim]{solution.status}; {solution.seconds:.1f} s[/]")
    if later is not None:
        console.print(f"[dim]{LATER}[/]", soft_wrap=True)
    elif source.fitted and not solution.of_guess:
        console.print(f"[dim]{NO_LATER}[/]", soft_wrap=True)
    if quantile < 1 and solution.problem.worst is not None:
        console.print(f"the limit at every step is for {quantile:.4g} of the readings of each state")
    if solution.ladder is not None:
        model = solution.asked.model
        each = "" if model is None else model.recording.stretch(solution.ladder.ladder.feedback.every)
        for line in solution.ladder.words(source.unit, each):
            console.print(line, soft_wrap=True)
    for warning in solution.warnings:
        console.print(f"[yellow]![/] {warning}", soft_wrap=True)
    if out is not None:
        console.print(f"policy written to [bold]{escape(str(out))}[/]")
