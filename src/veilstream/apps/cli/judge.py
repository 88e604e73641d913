"""`veil judge`: what mechanisms of others reveal."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from veilstream.apps.cli.options import Answer, Flags
from veilstream.audit.spec import JudgeSpec
from veilstream.data.spec import FitSpec
from veilstream.errors import InputError
from veilstream.shown import Progress

EXAMPLES = """
veil judge me.veil                                  every mechanism that fits, beside ours at equal error
veil judge my-tracks/ grid=2km android-coarse       fitted first; two mechanisms, one at a setting of its own
veil judge true.csv released.csv                    what any program showed, by adversaries who learn from other traces
veil judge meters.csv --option stream=MAC000002 -o judge.html
veil judge builtin:grid4x4-q2 hold=2 --json
"""
FEW = 3  # mechanisms that are also told in sentences


def judge(
    data: Annotated[
        str, typer.Argument(metavar="MODEL_OR_DATA", help="A model file, builtin:NAME, or what veil fit reads.")
    ],
    against: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RELEASED | MECHANISM...]",
            help="What a program showed of that data, or mechanisms by name: grid=2km. [default: all that fit]",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The page to write.")] = None,
    *,
    fit: Annotated[FitSpec, Flags(rest="stream, period=10min, columns, states")],
    spec: Annotated[JudgeSpec, Flags(rest="certify_seconds, streams, steps, folds, seed")],
    progress: Progress | None,
) -> Answer:
    """Show what mechanisms reveal of a whole trace, each beside the best of the same error."""
    from veilstream.apps.cli.output import Terminal
    from veilstream.apps.verbs.judge import judge as run
    from veilstream.audit.tables import JUDGED, judged
    from veilstream.container import check_writable, write

    given = against or []
    files = [text for text in given if _is_file(text)]
    if files and len(given) > 1:
        raise InputError(f"one released file, or mechanisms by name; found {len(given)} arguments after the data")
    if out is not None:
        check_writable(out, "judge.html")
    names = [*spec.mechanism, *(() if files else given)]
    found = run(data, *files, fit=fit, spec=replace(spec, mechanism=names), progress=progress or False)
    told = found.to_json()
    if out is not None:
        from veilstream.apps.report.judged import page

        write(out, page(found).encode())
        told["page"] = str(out)

    def show() -> None:
        """The table, and of a few a sentence each."""
        screen, sheet = Terminal(), judged(found)
        screen.table([cells for cells, _ in sheet.rows], sheet.head, sheet.title)
        screen.say("\n[bold]{}[/]", found.headline)
        screen.say("{}", found.words if len(found.rows) <= FEW else "")
        screen.warn(found.warnings)
        if out is not None:
            screen.say("page written to [bold]{}[/]; open it in a browser", out)
        screen.say("[dim]{} {} s[/]", JUDGED, f"{found.seconds:.0f}")

    return Answer(told, show)


def _is_file(text: str) -> bool:
    """A mechanism's name is none, whatever lies in this folder; a file that is not there is one all the same."""
    from veilstream.audit.mechanisms import MECHANISMS

    name = text.partition("=")[0]
    return name not in MECHANISMS and (Path(text).exists() or Path(name).suffix != "" or "/" in name)
