"""`veil solve`: from a model to a release policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilstream.apps.cli.options import Answer, Flags, Options, keywords
from veilstream.apps.cli.output import Terminal, command_line
from veilstream.apps.specs import ASKED, SolveSpec
from veilstream.errors import InputError
from veilstream.shown import Progress
from veilstream.units import off

if TYPE_CHECKING:
    from veilstream.audit.measures import Guess
    from veilstream.solvers.solution import Solution

EXAMPLES = """
veil solve builtin:grid4x4-q2 --weight 1
veil solve me.veil --avg 1km --certify -o policy.veil
veil solve me.veil --max 'stop 0=5km,*=3km' -o policy.veil
veil solve me.veil --avg 2km --show 1km -o policy.veil        coarser public points; --show states for none
veil solve me.veil --avg 1km --feedback day -o policy.veil
veil solve meter.veil --budget 0.1 --json
veil solve me.veil --avg 1km --behind family.veil -o public.veil      coarser, from the family's releases
veil solve glucose.veil --distortion hypo.csv --avg 0.2 -o policy.veil     costs with names; inf: never shown so
veil solve me.veil --distortion zero-one --avg 20%                       wrong at one step in five at most
veil solve meter.veil --avg 0.1kWh --keep-total -o policy.veil             a year's energy adds up in the mean
veil solve builtin:grid4x4-q2 --weight 1 --method a2c --option width=128 --option updates=1000
veil solve builtin:grid2x3-toy --avg 0.6 --option pairs=true --method a2c --option mode=paper --option width=64
"""

FLAGS = Flags(
    *("distortion", "show", "avg", "max", "budget", "feedback", "keep_total", "behind"),
    *("method", "window", "certify", "seconds"),
)
LATER = (
    "later data was kept out of the fit; its bits are an upper bound on what releases reveal of such data, whatever "
    "its law: the chain is only a guess there (95 % intervals over whole traces or weeks)"
)
MOST_STATES = 512  # beyond, the adversary's beliefs take longer than the solution
NO_LATER = "model only: the model file holds no later data, so nothing here is checked on later data"


def solve(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file, or builtin:NAME.")],
    spec: Annotated[SolveSpec, FLAGS],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The policy file to write.")] = None,
    weight: Annotated[
        float | None, typer.Option("--weight", "--lambda", help="Bits per unit of distortion.", rich_help_panel=ASKED)
    ] = None,
    option: Annotated[
        Options,
        typer.Option(
            help="seed=1; pairs=true: a release may look at the last true state too, as in the paper; max-bits=0.1: "
            "under --feedback never leak more than this per step; epsilon=2: no release is e^2 times likelier for one "
            "state than for another; or of the method, as in steps=1000000, memory-gb=4 or dtype=float32."
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
    if "max_bits" in more and spec.feedback is None:
        raise InputError("`max_bits` bounds the rungs of --feedback: give that too, or --budget for a plain policy")
    solution = run(model, weight=weight, progress=progress, **vars(spec), **more)
    chain, guess = solution.problem.chain, None
    if len(chain) <= MOST_STATES and solution.behind is None:  # what it looks at are no states of hers
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
    from rich.table import Table

    to, asked, source = Terminal(), solution.asked, solution.asked.utility
    to.limits(solution.limits)
    name, said = solution.problem.chain.name, solution.problem.constraint.told(source.unit)
    to.say("[bold]{}[/], {}, {}", name, said, solution.method)
    to.say("{}", headline(solution, guess))
    table = Table(box=None, show_header=False, pad_edge=False)
    for column in ({"style": "bold"}, {"justify": "right"}, {"style": "dim"}):
        table.add_column(**column)  # type: ignore[arg-type]
    for fact in solution.facts():
        table.add_row(fact.label, fact.text, fact.note)
    to.console.print(table)
    to.say("[dim]{}; {} s[/]", solution.status, f"{solution.seconds:.1f}")
    if solution.held_out is not None or source.fitted:
        to.say("[dim]{}[/]", NO_LATER if solution.held_out is None else LATER, whole=True)
    if asked.quantile < 1 and solution.problem.worst is not None:
        to.say(f"the limit at every step is for {asked.quantile:.4g} of the readings of each state")
    if solution.ladder is not None:
        each = "" if asked.model is None else asked.model.recording.stretch(solution.ladder.ladder.feedback.every)
        for line in solution.ladder.words(source.unit, each):
            to.say("{}", line, whole=True)
    to.warn(solution.warnings)
    if out is not None:
        to.say("policy written to [bold]{}[/]", out)


def headline(solution: Solution, guess: Guess | None) -> str:
    """One sentence for someone who has never heard of bits: on the recorded data where there is some."""
    record, source = solution.record, solution.asked.utility
    where = "" if record is None else "on your recorded data "
    felt, bits = (solution.distortion, solution.leakage) if record is None else (record.error, record.bits)
    said = f"{where}a release has {off(f'{felt:.3g}', source.unit)}, and reveals {max(bits, 0.0):.3f} bits per step."
    who = "" if guess is None else f"Under the fitted chain {guess.words(source.thing)}; "
    return (said[0].upper() + said[1:]) if not who else who + said
