"""What a learner is given: the last m releases at every step, and the true symbol it has to guess."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilstream.audit.traces import Ints, Traces
from veilstream.errors import InputError
from veilstream.model.information import Array


@dataclass(frozen=True, eq=False)
class Windows:
    """Distinct windows with N(window, x): how often each symbol was the truth after it."""

    windows: Ints  # K x m, oldest release first
    counts: Array  # K x symbols


@dataclass(frozen=True, eq=False)
class Examples:
    """Every scored step of some traces, copies included."""

    windows: Ints  # N x m
    x: Ints  # N
    trace: Ints  # N
    step: Ints  # N: a number for each step of each trace; the same in all copies

    def only(self, keep: NDArray[np.bool_]) -> "Examples":
        return Examples(self.windows[keep], self.x[keep], self.trace[keep], self.step[keep])

    def table(self, n_symbols: int) -> Windows:
        """The same examples as counts."""
        distinct, row = np.unique(self.windows, axis=0, return_inverse=True)
        counts = np.bincount(row.ravel() * n_symbols + self.x, minlength=len(distinct) * n_symbols)
        return Windows(distinct, counts.reshape(-1, n_symbols).astype(float))


def examples(traces: Traces, x: Ints, seen: Ints, lookback: int, start: int, current: bool = False) -> Examples:
    """Windows of `seen` (releases, or the truth itself) before each step t >= start, with the truth x_t.

    current: the window ends with the release of step t itself, else with that of step t - 1.
    """
    if lookback < 1:
        raise InputError(f"look-back must be at least 1, found {lookback}")
    first = lookback - current
    if start < first:
        raise InputError(f"scoring from step {start} leaves no {lookback} releases to look back on")
    longest = int(traces.lengths.max())
    if longest <= start:
        raise InputError(
            f"every trace is too short to look back {lookback} steps: the longest has {longest}, "
            f"at least {start + 1} are needed"
        )
    t = np.arange(start, x.shape[1])
    windows = np.stack([seen[:, t - lookback + k + current] for k in range(lookback)], -1)  # streams x steps x m
    mask = traces.mask[:, t]
    step = traces.origin[:, None] * x.shape[1] + t
    return Examples(windows[mask], x[:, t][mask], np.repeat(traces.origin, mask.sum(1)), step[mask])
