"""`--distortion` and `--show`: what a limit is about and what is released, alike for every verb that solves."""

from dataclasses import dataclass
from typing import Annotated

from veilstream.apps.cli.options import Flags
from veilstream.data.spec import option

GROUP = "What matters"


@dataclass(frozen=True)
class Meaning:
    """As `solve`, `curve` and `advise` take them."""

    distortion: str = option(
        "felt",
        "felt: the error from readings to releases; states: that between states, as in the paper. And its measure: "
        "absolute, squared, zero-one, or a FILE.csv of costs with names (inf: never).",
        GROUP,
    )
    show: str | None = option(
        None, "Release points of a public grid this far apart, or states. [default: 250m; round levels]", GROUP
    )


Matters = Annotated[Meaning, Flags("distortion", "show")]
