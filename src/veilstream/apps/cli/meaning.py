"""`--distortion` and `--show`: what a limit is about and what is released, alike for every verb that solves."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Option

if TYPE_CHECKING:
    from veilstream.artefact import Artefact
    from veilstream.data.utility import Utility


@dataclass(frozen=True)
class Meaning:
    PANEL: ClassVar = "What matters"
    distortion: Annotated[
        str,
        Option(
            help="felt: the error from readings to releases; states: that between states, as in the paper. And its "
            "measure: absolute, squared, zero-one, or a FILE.csv of costs with names (inf: never)."
        ),
    ] = "felt"
    show: Annotated[
        str | None,
        Option(help="Release points of a public grid this far apart, or states. [default: 250m; round levels]"),
    ] = None

    def read(self, model: str, quantile: float = 1.0, pairs: bool = False) -> "tuple[Utility, Artefact | None]":
        from veilstream.apps.cli.common import read_model

        return read_model(model, self.distortion, quantile, self.show, pairs)

    @property
    def asked(self) -> dict[str, str]:
        """As a policy's file says it."""
        return {"distortion": self.distortion} | ({} if self.show is None else {"show": self.show})
