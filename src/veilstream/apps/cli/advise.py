"""`veil advise`: a few operating points in human words, with the command for each."""

from typing import Annotated

import typer

from veilstream.apps.cli.options import Answer, Flags
from veilstream.apps.cli.output import Terminal
from veilstream.apps.specs import Meaning
from veilstream.shown import Progress
from veilstream.units import off

EXAMPLES = """
veil advise me.veil
veil advise meter.veil --json
veil advise me.veil --show 1km --distortion zero-one
veil advise builtin:grid4x4-q2
"""


def advise(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file, or builtin:NAME.")],
    meaning: Annotated[Meaning, Flags("distortion", "show")],
    *,
    progress: Progress | None,
) -> Answer:
    """Three to five operating points: how often an adversary is right, the error, the bits, the command."""
    from veilstream.apps.verbs.advise import advised

    source, rows, warnings = advised(model, meaning.distortion, meaning.show, progress=progress)
    nothing = {"felt": source.by_the_hour, "unit": source.unit, "truth_bits": source.truth}

    def show() -> None:
        out = Terminal()
        best = "one best guess" if source.chain.phases == 1 else "best guess for the hour"
        out.say(
            f"[bold]{{}}[/]: without any release an adversary identifies the {source.thing} in "
            f"{rows[0].hit_rate_blind:.0%} of steps, and the {best} has {{}}. "
            f"The truth would reveal {source.truth:.3f} bits per step.",
            *(source.chain.name, off(f"{source.by_the_hour:.3g}", source.unit)),
            whole=True,
        )
        unit = "% of steps" if source.unit == "%" else source.unit or "units"
        lines = [(f"{source.thing} identified", "error", "bits per step", "command")]
        lines += [(f"{r.hit_rate:.0%} of steps", f"{_two(r.felt)} {unit}", f"{r.bits:.3f}", r.command) for r in rows]
        widths = [max(len(line[i]) for line in lines) for i in range(3)]
        for *cells, command in lines:  # no table: a command must not be cut, however narrow the terminal
            print("  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)), "", command)
        about = "on your recorded data, starts and gaps included" if source.replay is not None else "in the long run"
        out.say(
            "[dim]error and bits {} ({}); identified: estimated on data drawn from the chain; found quickly: the "
            "policy that veil solve finds reveals a little less[/]",
            *(about, rows[0].level),
            whole=True,
        )
        out.warn(warnings)

    told = {"chain": source.chain.name, **nothing, "points": [vars(r) for r in rows], "warnings": warnings}
    return Answer(told, show)


def _two(value: float) -> str:
    """Two digits, as limits have."""
    return f"{value:.0f}" if value >= 100 else f"{float(f'{value:.2g}'):g}"
