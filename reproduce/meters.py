"""Meter readings, one household a column, fitted each by itself: half hours as they come, bins of equal counts."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veilstream.data.model import FittedModel
    from veilstream.data.readings import Readings

BINS = 8


@lru_cache(maxsize=1)
def readings(meters: Path) -> Readings:
    from veilstream.data.sources import read

    return read([str(meters)], columns="value=*", unit="kWh")


def household(meters: Path, name: str, bins: int = BINS, order: int = 1) -> FittedModel:
    from veilstream.data.fitting import fit_model
    from veilstream.data.spec import FitSpec

    return fit_model(readings(meters).only(name), FitSpec(n_states=bins, order=order, hold_out=0.0, cycle="none"))
