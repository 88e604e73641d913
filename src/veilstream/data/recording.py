"""Recording: how time-stamped readings become steps, and steps runs of symbols. A value, kept in the model's file.

    step = floor((t - epoch_s) / period_s)

Fit, audit, report and fleet are given the same Recording, so they give the same symbols; what of it no gateway can do
online is computed from it. The standard library and numpy only: a gateway knows it too.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from veilstream.errors import InputError
from veilstream.units import format_duration, parse_duration

BINS = ("first", "mean", "sum")
GAPS = ("split", "bridge")
FILLS = ("hold", "close")
NOISES = ("nearest", "drop")
STRETCHES = {"day": "1d", "week": "7d", "month": "30d"}


@dataclass(frozen=True)
class Recording:
    """None takes the default for the kind of data, as `steps.resolve` knows it.

    period_s       length of a step; None where times are step numbers
    epoch_s        when step 0 begins, seconds since 1970
    bin            the reading of a step: its first (all a gateway has), or the mean or sum of its readings
    gaps           split: a new run where two steps are more than max_gap_s apart; bridge: the trace is closed over gaps
    fill           missing steps inside a run: hold the last known state (as a gateway with a clock), or close over them
    noise          steps that are no stop: nearest (given to the nearest state), or drop
    eps_m          with min_samples: what a stop is
    max_speed_kmh  a point faster than this from both its neighbours is dropped

        >>> import veilstream as vs
        >>> vs.Recording(period_s=300).steps_in("day", "feedback")
        288
        >>> vs.Recording(bin="mean").study_only
        ("`bin='mean'`: a step has the mean of its readings, not the first",)
    """

    period_s: float | None = None
    epoch_s: float = 0.0
    bin: str = "first"
    gaps: str = "split"
    max_gap_s: float | None = None
    fill: str | None = None
    noise: str = "nearest"
    eps_m: float = 200.0
    min_samples: int = 8
    max_speed_kmh: float = 1000.0  # faster than an airliner

    def __post_init__(self) -> None:
        _check_choice("`bin`", self.bin, BINS)
        _check_choice("`gaps`", self.gaps, GAPS)
        _check_choice("`noise`", self.noise, NOISES)
        if self.fill is not None:
            _check_choice("`fill`", self.fill, FILLS)
        numbers = {"epoch_s": _number("epoch_s", self.epoch_s)}
        numbers["eps_m"] = _number("`eps_m`", self.eps_m, positive=True)
        numbers["max_speed_kmh"] = _number("`max_speed_kmh`", self.max_speed_kmh, positive=True)
        if self.period_s is not None:
            numbers["period_s"] = _number("`period_s`", self.period_s, positive=True)
        if self.max_gap_s is not None:
            numbers["max_gap_s"] = _number("`max_gap_s`", self.max_gap_s, positive=True)
        for name, number in numbers.items():
            object.__setattr__(self, name, number)
        if not isinstance(self.min_samples, int) or self.min_samples < 1:
            raise InputError(f"`min_samples` must be at least 1, found {str(self.min_samples)[:20]}")

    @property
    def step_s(self) -> float:
        """Seconds in a step; 1 where steps are numbers."""
        return self.period_s or 1.0

    @property
    def holds(self) -> bool:
        """Whether missing steps inside a run repeat the last known state; by default not where others are left out."""
        if self.gaps == "bridge":
            return False
        return self.fill == "hold" or (self.fill is None and self.noise == "nearest")

    @property
    def study_only(self) -> tuple[str, ...]:
        """Reasons why no gateway can record like this online; empty if one can."""
        reasons = {
            "`noise='drop'`: steps that are no stop were left out": self.noise == "drop",
            "`gaps='bridge'`: the trace was closed over gaps": self.gaps == "bridge",
            "`fill='close'`: missing steps were left out": not self.holds and self.gaps != "bridge",
            "`bin='mean'`: a step has the mean of its readings, not the first": self.bin == "mean",
            "`bin='sum'`: a step has the sum of its readings, not the first": self.bin == "sum",
        }
        return tuple(reason for reason, holds in reasons.items() if holds)

    def steps_in(self, stretch: str, what: str) -> int:
        """Steps in a stretch of time (day, week, month, 6h); a number of steps where times are step numbers."""
        if self.period_s is None:
            if not stretch.isdecimal() or int(stretch) < 1:
                raise InputError(f"{what} must be a number of steps, since this model counts steps; found {stretch!r}")
            return int(stretch)
        if stretch not in STRETCHES and not any(c.isdigit() for c in stretch):
            raise InputError(f"{what} must be {', '.join(STRETCHES)}, or a time like 6h, found {stretch[:20]!r}")
        steps = parse_duration(STRETCHES.get(stretch, stretch), what) / self.period_s
        if steps < 1:
            raise InputError(f"{what} {stretch} is shorter than a step of {format_duration(self.period_s)}")
        return round(steps)

    def stretch(self, steps: int) -> str:
        """So many steps as a stretch of time, in words: day, week, 6 h; nothing where times are step numbers."""
        if self.period_s is None:
            return ""
        seconds = steps * self.period_s
        names = {parse_duration(text): name for name, text in STRETCHES.items()}
        return names.get(seconds, format_duration(seconds))

    def export(self) -> dict[str, Any]:
        return asdict(self)


def _check_choice(what: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{what} must be one of {', '.join(known)}, found {str(value)[:20]!r}")


def _number(what: str, value: Any, positive: bool = False) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value) or (positive and value <= 0):
        raise InputError(f"{what} must be a {'positive ' * positive}number, found {str(value)[:20]!r}")
    return float(value)
