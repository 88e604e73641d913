"""ReportSpec and ReleaseSpec: every choice, said once. Python, the command line and the docs are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from veilstream.data.spec import DataSpec, option
from veilstream.errors import InputError
from veilstream.gateway.spec import StoreSpec

DEPTHS, FORMATS = ("quick", "full", "none"), ("auto", "csv", "jsonl")
PAGE, OUTPUT, MATTERS = "What is on the page", "Output", "What matters"


@dataclass(frozen=True)
class Meaning:
    """What a limit is about and what is released, alike for `solve`, `curve` and `advise`."""

    distortion: str = option(
        "felt",
        "felt: the error from readings to releases; states: that between states, as in the paper. And its measure: "
        "absolute, squared, zero-one, or a FILE.csv of costs with names (inf: never).",
        MATTERS,
    )
    show: str | None = option(
        None, "Release points of a public grid this far apart, or states. [default: 250m; round levels]", MATTERS
    )


@dataclass(frozen=True, kw_only=True)
class ReportSpec(DataSpec):
    """A page with recorded traces is PRIVATE; one whose traces are drawn from the chain may be shared."""

    shareable: bool = option(False, "Draw the traces from the chain; show no recorded one.", PAGE)
    audit: str = option("quick", "quick: exact adversaries; full: learned ones too, minutes (needs JAX); none.", PAGE)
    points: int = option(16, "Number of policies on the curve.", PAGE)
    seconds: float = option(20.0, "Seconds of work on the certificates of the curve, in all.", PAGE)
    seed: int = option(0, "Seed of the example and the audit.", PAGE)

    def __post_init__(self) -> None:
        if self.audit not in DEPTHS:
            raise InputError(f"`audit` must be one of {', '.join(DEPTHS)}, found {self.audit!r}")
        if not (3 <= self.points <= 60 and self.seconds >= 0):
            raise InputError(
                f"`points` must be from 3 to 60 and `seconds` at least 0, found {self.points}, {self.seconds}"
            )


@dataclass(frozen=True, kw_only=True)
class ReleaseSpec(DataSpec, StoreSpec):
    """How readings are read, what a release rests on, and how it is written."""

    format: str = option("auto", "Format of the output: csv, jsonl, or auto (as the input).", OUTPUT)
    per_reading: bool = option(False, "Write a line for every reading, not one for every step.", OUTPUT)
    seed: int | None = option(None, "Seed, for tests only: noise that can be repeated protects nobody.", OUTPUT)

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InputError(f"unknown format {self.format!r}; known: {', '.join(FORMATS)}")
