"""`veil refit`: the model of somebody who has changed, made anew from new readings."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from veilstream.apps.cli.options import Answer, Flags
from veilstream.apps.cli.output import command_line
from veilstream.data.spec import FitSpec
from veilstream.errors import InputError, need
from veilstream.shown import Progress

EXAMPLES = """
veil refit me.veil new-tracks/ -o me-2.veil         the same states and steps, the chain from the new readings
veil solve me-2.veil --avg 500m -o policy.veil      over the old policy: its store keeps steps and meter
veil refit meter.veil 2014.csv -o meter-2014.veil --json
"""


def refit(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The model file (or policy file) to start from.")],
    sources: Annotated[list[str], typer.Argument(metavar="NEW...", help="New readings, as in veil fit.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The model file to write.")],
    *,
    spec: Annotated[FitSpec, Flags("stream", "hold_out", "skip_bad")],
    progress: Progress | None,
) -> Answer:
    """Fit a model anew when the person has changed (veil audit says so): states, steps and names stay as they are.

    The old chain counts for as many transitions a row as held-out log-loss says. A policy solved from it over the
    old policy's file goes on with that file's store: no step is drawn twice, and the meter goes on counting.
    """
    from veilstream.data.fit import read_as_fitted
    from veilstream.data.spec import remembered
    from veilstream.solvers.api import artefact_of

    need("polars", "data")
    from veilstream.apps.cli.fit import show
    from veilstream.audit.source import check_kind
    from veilstream.data.fitting import refit_model

    before = artefact_of(old, "no model file {!r}; make one with veil fit")
    if before.states is None:
        before.answer()
        raise InputError(f"{old} has no states, so no reading can be assigned to one; make a model with veil fit")
    readings = read_as_fitted(before.provenance, sources, spec)
    check_kind(readings, before.states)
    made = refit_model(before, readings, spec.hold_out)
    model = made.model
    artefact = replace(model, reading=remembered(before.provenance)).save(out, command_line(), refit_of=before.sha256)
    result = {"chain": model.chain.name, **model.to_json()}
    result |= {"strength": made.strength, "refit_of": before.sha256, "model": str(out), "sha256": artefact.sha256}

    def answer() -> None:
        show(model, result)
        print(
            f"the old chain counts for {made.strength:g} transitions a row; solve it into the old policy's file, and "
            "the store beside that keeps steps and meter (on NATS: start one worker with --option rebind=true)"
        )

    return Answer(result, answer)
