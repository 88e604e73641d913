"""ReportSpec: every choice of a report, said once. `vs.report`, the command line and the docs are made from it."""

from __future__ import annotations

from dataclasses import dataclass

from veilstream.data.spec import DataSpec, option
from veilstream.errors import InputError

DEPTHS = ("quick", "full", "none")
PAGE = "What is on the page"


@dataclass(frozen=True, kw_only=True)
class ReportSpec(DataSpec):
    """A page with recorded traces is PRIVATE; one whose traces are drawn from the chain may be shared."""

    shareable: bool = option(False, "Draw the traces from the chain; show no recorded one.", PAGE)
    audit: str = option("quick", "quick: exact adversaries; full: learned ones too, minutes (needs JAX); none.", PAGE)
    points: int = option(16, "Weights on the curve.", PAGE)
    seconds: float = option(20.0, "Of work on its certificates, in all.", PAGE)
    seed: int = option(0, "Of the example and the audit.", PAGE)

    def __post_init__(self) -> None:
        if self.audit not in DEPTHS:
            raise InputError(f"`audit` must be one of {', '.join(DEPTHS)}, found {self.audit!r}")
        if not (3 <= self.points <= 60 and self.seconds >= 0):
            raise InputError(
                f"`points` must be from 3 to 60 and `seconds` at least 0, found {self.points}, {self.seconds}"
            )
