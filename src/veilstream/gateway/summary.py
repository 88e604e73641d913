"""What a run of `veil release` came to, for the owner of the data alone: the error of its releases."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veilstream.data.states import StateSpace, apart_km, name_code
from veilstream.gateway.wire import Point, Release


@dataclass
class Summary:
    """PRIVATE: the mean distance is about true readings."""

    states: StateSpace | None
    bits_before: float  # of all streams, when the run began
    steps: int = 0  # written, each once
    _far: float = 0.0
    _measured: int = 0

    def count(self, steps: Sequence[tuple[Point, Release]]) -> None:
        """Steps, each by the reading that decided it; one that cannot be read has no distance."""
        self.steps += len(steps)
        if self.states is None:
            return
        if self.states.is_map:
            pairs = [(*p, r.lat, r.lon) for p, r in steps if isinstance(p, tuple)]
            at = np.array(pairs, dtype=float).reshape(-1, 4)
            far = apart_km(at[:, :2], at[:, 2:])
        else:
            values = [(p, _level(r.released)) for p, r in steps if isinstance(p, float)]
            far = np.abs(np.subtract(*np.array(values, dtype=float).reshape(-1, 2).T))
            far = np.minimum(far, 1.0) if self.states.kind == "names" else far
        far = far[np.isfinite(far)]
        self._far += float(far.sum())
        self._measured += len(far)

    @property
    def felt(self) -> float | None:
        """Mean distance from reading to release, in the states' unit; None where no reading has one."""
        return self._far / self._measured if self._measured else None


def _level(released: int | float | str | None) -> float:
    """What was released as the number that a reading is; names have one too."""
    return name_code(released) if isinstance(released, str) else np.nan if released is None else released
