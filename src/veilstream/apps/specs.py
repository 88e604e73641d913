"""Choices of solve, start, report and release, said once: Python, the command line and the docs are made from them."""

from dataclasses import dataclass

from veilstream.data.spec import DataSpec, option
from veilstream.errors import InputError
from veilstream.gateway.spec import StoreSpec

DEPTHS, FORMATS = ("quick", "full", "none"), ("auto", "csv", "jsonl", "gpx")
PAGE, OUTPUT, MATTERS = "What is on the page", "Output", "What matters"
ASKED, HOW, GUESS = "What is asked", "How it is solved", "The guess without a history"


@dataclass(frozen=True)
class Meaning:
    """What a limit is about and what is released, alike for `solve`, `curve` and `advise`."""

    distortion: str = option(
        "felt",
        "felt: the error from readings to releases; states: from states to releases, as in the paper. Or a measure: "
        "absolute, squared, zero-one, or a FILE.csv of costs by name (inf: never shown so).",
        MATTERS,
    )
    show: str | None = option(
        None,
        "Release points of a public grid this far apart, states, or the names of zones in a FILE.csv. [default: 250m; "
        "round levels]",
        MATTERS,
    )


@dataclass(frozen=True, kw_only=True)
class SolveSpec(Meaning):
    """What is asked of a policy, and how it is found; the limits are texts, read by the units of the model."""

    avg: str | None = option(
        None, "Mean distortion at most, as in 2km, or 25%: of what revealing nothing costs.", ASKED
    )
    max: str | None = option(None, "At every step at most, as in 5km, 500m@99% or 'stop 0=5km,*=3km'.", ASKED)
    budget: float | None = option(None, "Bits per step at most; the distortion is minimised.", ASKED)
    feedback: str | None = option(
        None, "Correct the mean by a public move every day, week, month or 6h; for long records, not few traces.", ASKED
    )
    keep_total: bool = option(False, "Values: releases add up to the readings in the mean (a bill).", ASKED)
    behind: str | None = option(
        None, "A finer policy of this model: releases are made from its releases, for one more audience.", ASKED
    )
    method: str | None = option(
        None,
        "causal-ba, myopic, belief-greedy, planar-laplace, ... [default: causal-ba]",
        HOW,
    )
    window: int | None = option(None, "Releases it remembers; else a memory made to measure.", HOW)
    certify: bool = option(False, "Prove how close to the best possible it is.", HOW)
    certify_seconds: float = option(30.0, "Time for the certificate.", HOW, "seconds")


@dataclass(frozen=True, kw_only=True)
class StartSpec:
    """What is asked of a policy that works anywhere."""

    avg: str | None = option(None, "Mean error at most, as in 1km or 0.2kWh.", ASKED)
    max: str | None = option(None, "Error at most at every step, as in 500m: kept for anybody, anywhere.", ASKED)
    feedback: str | None = option(
        None, "Keep the mean whatever comes, by a public move every day, week, 6h, ...", ASKED
    )
    period: str | None = option(None, "Length of a step (default 5min; values: 30min).", ASKED)
    stay: str = option("1h", "How long anyone stays on average before the next move.", GUESS)
    jump: str | None = option(None, "How far a move goes in a step (default: 20 km/h; values: 4 x the limit).", GUESS)


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

    format: str = option("auto", "Format of the output: csv, jsonl, gpx (at the end), or auto (as the input).", OUTPUT)
    per_reading: bool = option(False, "Write a line for every reading, not one for every step.", OUTPUT)
    seed: int | None = option(None, "Seed, for tests only: noise that can be repeated protects nobody.", OUTPUT)

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InputError(f"unknown format {self.format!r}; known: {', '.join(FORMATS)}")
