"""`veil start`: a policy that works anywhere, without history or with it."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from veilstream.apps.cli.options import Answer, Flags
from veilstream.apps.cli.output import command_line
from veilstream.apps.specs import StartSpec
from veilstream.shown import Progress

EXAMPLES = """
veil start --avg 1km -o me.veil && veil serve me.veil --mqtt mqtt://localhost      a phone, wherever it goes
veil start --max 500m -o me.veil                          never farther off than that, by car, train or plane
veil start --avg 200m --max 1km -o me.veil
veil start --avg 0.2kWh --period 30min -o meter.veil      a meter, whatever it will read
veil start me.veil --avg 1km --feedback day -o policy.veil      her places enter; the mean is kept wherever she goes
"""


def start(
    model: Annotated[Path | None, typer.Argument(help="A model of veil fit, whose places enter.")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The policy file to write.")] = None,
    *,
    spec: Annotated[StartSpec, Flags("avg", "max", "feedback", "period", "stay", "jump")],
    progress: Progress | None,
) -> Answer:
    """Make a policy that works wherever the phone is: from a limit alone, or with the places of a model.

    What it promises holds for anybody: a limit at every step, a mean kept by --feedback, and the bits that its meter
    counts. Without them the mean error rests on the model's record or on a public guess at how people move, which is
    said beside it.
    """
    from veilstream.solvers.start import start as made

    found = replace(made(model=model, progress=progress or False, **vars(spec)), command=command_line())
    written = {} if out is None else {"policy": str(out), "sha256": found.save(out).sha256}

    def show() -> None:
        line, rows = found.about()
        print(line)
        for label, text in rows:
            print(f"  {label:<20}{text}" if label else text)
        print("nothing written; -o policy.veil keeps the policy" if out is None else f"policy written to {out}")

    return Answer({**found.to_json(), **written}, show)
