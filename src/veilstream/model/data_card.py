"""What is known of the data behind a model: the card in its provenance, as `veil fit` writes it; a file may lack it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilstream.model.interval import Z95, Interval

PER_STATE = 10  # independent visits a state below which a model is thin


@dataclass(frozen=True)
class DataCard:
    """What there was to learn from."""

    states: int
    effective_sample: float  # independent visits
    steps: int = 0
    no_stop: float = 0.0  # share of steps that are at no stop
    raw_p95: float | None = None  # 95 % of readings lie within this of their state
    held_out_bits: float | None = None
    held_out_se: float | None = None
    later_bits: float | None = None  # log-loss on what was held out, with its interval
    later_low: float | None = None
    later_high: float | None = None
    last_step: int | None = None  # that was fitted

    @classmethod
    def of(cls, provenance: Mapping[str, Any]) -> "DataCard | None":
        """From a file, which may say anything."""
        said = provenance.get("card")
        if not isinstance(said, dict):
            return None
        known = {k: said.get(k) for k in cls.__dataclass_fields__}
        numbers = {k: v for k, v in known.items() if isinstance(v, int | float) and np.isfinite(v)}
        return cls(**numbers) if {"states", "effective_sample"} <= set(numbers) else None  # type: ignore[arg-type]

    @property
    def loss(self) -> Interval | None:
        """Bits per step of data that was not fitted: held out, or else by folds."""
        if self.later_bits is not None and self.later_low is not None and self.later_high is not None:
            return Interval(self.later_bits, self.later_low, self.later_high)
        if self.held_out_bits is None:
            return None
        wide = Z95 * (self.held_out_se or 0.0)
        return Interval(self.held_out_bits, self.held_out_bits - wide, self.held_out_bits + wide)

    @property
    def thin(self) -> bool:
        return self.effective_sample < PER_STATE * self.states
