"""`veil strip`: a model without the readings behind it."""

from pathlib import Path
from typing import Annotated

import typer

from veilstream.apps.cli.options import Answer
from veilstream.errors import InputError

EXAMPLES = """
veil strip me.veil -o me-stripped.veil              states and chain stay, no reading does
veil strip me.veil -o me.veil                       in place
"""


def strip(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file, as veil fit -o writes it.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The file to write.")],
) -> Answer:
    """Take the recorded readings out of a model: those it was fitted to, and those that were held out.

    Limits are then about distances between states, and nothing is checked on later data.
    """
    from veilstream.artefact import load, save

    if not Path(model).is_file():
        raise InputError(f"no model file {model!r}; make one with veil fit")
    had = load(model)
    if had.policy is not None:
        raise InputError(f"{model} is a policy's file: there are no readings in it")
    made = save(out, chain=had.chain, states=had.states, recording=had.recording, provenance=had.provenance)
    gone = {k: 0 if part is None else len(part) for k, part in (("record", had.record), ("held_out", had.held_out))}
    words = f"{gone['record']:,} fitted and {gone['held_out']:,} held-out readings taken out; written to {out}"
    return Answer({"model": str(out), "sha256": made.sha256, "removed": gone}, lambda: print(words))
