"""A mean with its 95 % interval, by resampling what is independent: whole traces or weeks, never steps."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from veilstream.model.information import Array

RESAMPLES = 2000
Z95 = 1.96


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> "Interval":
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    def to_json(self) -> dict[str, float | None]:
        return {k: finite(v) for k, v in asdict(self).items()}

    @classmethod
    def read(cls, said: Any) -> "Interval | None":
        """What `to_json` wrote, from a file, which may say anything."""
        told = [said.get(k) for k in ("value", "low", "high")] if isinstance(said, Mapping) else []
        numbers = [v for v in map(number_in, told) if v is not None]
        return cls(*numbers) if len(numbers) == 3 else None


def number_in(said: Any) -> float | None:
    """A finite number, where a file, which may say anything, has one."""
    return float(said) if isinstance(said, int | float) and np.isfinite(said) else None


def finite(value: float) -> float | None:
    """JSON has no infinity."""
    return float(value) if np.isfinite(value) else None


def ratio_interval(sums: Array, counts: Array, seed: int = 0) -> Interval:
    """sum / count with a bootstrap over traces: traces, not steps, are what is independent."""
    kept = counts > 0
    sums, counts = sums[kept], counts[kept]
    value = float(sums.sum() / counts.sum())
    if not np.isfinite(value) or len(sums) < 2:
        return Interval(value, value, value)
    pick = np.random.default_rng(seed).integers(len(sums), size=(RESAMPLES, len(sums)))
    low, high = np.quantile(sums[pick].sum(1) / counts[pick].sum(1), [0.025, 0.975])
    return Interval(value, float(low), float(high))
