"""Whether a person still is who the model says: one rule, for later data and for what a gateway keeps of its streams.

    loss   mean of -log2 P(x_{t+1} | x_t) under the policy's chain, against the loss on data held out when it was fitted
    felt   mean distance from reading to release, against what was found when it was solved

Somebody has changed where the difference is larger than both intervals (95 %, over whole traces or weeks) together.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import hypot, sqrt
from typing import Any, NamedTuple

from veilstream.model.interval import Z95, Interval, number_in
from veilstream.units import off


class Same(StrEnum):
    """Whether the person still is who the model says."""

    YES = "still the person of the model"
    NO = "changed"
    UNKNOWN = "too little later data to say"


@dataclass(frozen=True)
class Drift:
    """Later data against what was known when the policy was made."""

    loss: Interval  # bits per step
    loss_fitted: Interval | None
    felt: Interval
    felt_claimed: float | None
    enough: bool  # traces or weeks to say something

    @property
    def same(self) -> Same:
        return Same.UNKNOWN if not self.enough else Same.NO if self.moved or self.farther else Same.YES

    @property
    def moved(self) -> bool:
        """Whether she moves in ways that the chain knows less well than it did."""
        return self.loss_fitted is not None and exceeds(self.loss, self.loss_fitted)

    @property
    def farther(self) -> bool:
        return self.felt_claimed is not None and self.felt.low > self.felt_claimed

    def found(self, unit: str) -> str:
        """What has changed, in words."""
        out = []
        if self.moved and self.loss_fitted is not None:
            out.append(
                f"the chain foresees a step to {span(self.loss)} bits, {span(self.loss_fitted)} when it was fitted"
            )
        if self.farther and self.felt_claimed is not None:
            out.append(f"releases have {off(span(self.felt), unit, '')}, {self.felt_claimed:.3g} when it was solved")
        return ", and ".join(out)

    def to_json(self) -> dict[str, Any]:
        fitted = None if self.loss_fitted is None else self.loss_fitted.to_json()
        return {
            "same": str(self.same),
            "loss": self.loss.to_json(),
            "loss_fitted": fitted,
            "raw_distortion": self.felt.to_json(),
            "raw_distortion_claimed": self.felt_claimed,
        }


def exceeds(now: Interval, before: Interval) -> bool:
    return now.value - before.value > hypot(now.value - now.low, before.high - before.value)


def span(figure: Interval) -> str:
    """With its interval, where there is one: a single week has none."""
    only = figure.low == figure.value == figure.high
    return f"{figure.value:.3g}" if only else f"{figure.value:.3g} [{figure.low:.3g}, {figure.high:.3g}]"


def claimed_felt(provenance: Mapping[str, Any]) -> float | None:
    """What a policy's file says of its error on the recorded data."""
    said = provenance.get("solution")
    return number_in(said.get("raw_distortion")) if isinstance(said, Mapping) else None


def closed(
    gone: float, n: float, s: float, units: float, N: float, S: float, NN: float, NS: float, SS: float
) -> tuple[float, float, float, float, float, float, float, float]:
    """The values of `Sums` when the trace or week is over (gone = 1.0) or goes on (0.0): one as quick as the other."""
    a, b = gone * n, gone * s
    return n - a, s - b, units + (a > 0), N + a, S + b, NN + a * n, NS + a * s, SS + b * s


class Sums(NamedTuple):
    """All that an interval needs of the values of any number of traces or weeks: of each its count n and its sum s.

    value = R = sum s / sum n;    half width = 1.96 sqrt(sum (s - R n)^2) / sum n

    That is the linear part of the bootstrap over whole traces or weeks that `interval.ratio_interval` draws.
    """

    n: float = 0.0  # of the trace or week under way
    s: float = 0.0
    units: float = 0.0  # that are over, and had any
    N: float = 0.0  # over these: sums of n, s, n^2, n s and s^2
    S: float = 0.0
    NN: float = 0.0
    NS: float = 0.0
    SS: float = 0.0

    def closed(self) -> "Sums":
        """The trace or week is over."""
        return Sums(*closed(1.0, *self))

    @property
    def of(self) -> int:
        """How many traces or weeks, the one under way included."""
        return int(self.closed().units)

    @property
    def steps(self) -> int:
        return int(self.N + self.n)

    @property
    def interval(self) -> Interval | None:
        """None: nothing was counted."""
        _, _, units, N, S, NN, NS, SS = self.closed()
        if not N:
            return None
        R = S / N
        wide = Z95 * sqrt(max(SS - 2 * R * NS + R * R * NN, 0.0)) / N if units > 1 else 0.0
        return Interval(R, max(R - wide, 0.0), R + wide)  # of bits and distances, which are never negative
