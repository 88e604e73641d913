"""Windows of the last m releases: examples of them for a learner, and the best anyone can do who sees no more.

For a window policy the joint law of (last m releases, z_t) follows from the stationary law of its own window by m - w
more steps that forget nothing:

    J(s.y, z') = sum_z J(s, z) a(y | z, last w of s) P(z, z')

The least cross-entropy with look-back m is then H(X_t | last m releases), and that of any other predictor q is
sum J log 1/q: an LSTM can approach the first and never pass it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilstream.audit.bayes import by_symbol
from veilstream.audit.traces import Ints, Traces
from veilstream.control.controller import controller_of
from veilstream.control.policy import Policy
from veilstream.control.stationary import LongRun
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, Index, entropy

MAX_CELLS = 1 << 24  # (window, state) pairs held at once


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
        """Counts of these examples: each distinct window with how often each symbol followed."""
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


def window_law(chain: MarkovChain, policy: Policy, lookback: int, current: bool = False) -> Array | None:
    """P(last `lookback` releases, x_t), |Y|^m x symbols, oldest release first in base |Y|; None if too large to list,
    or where a public clock says more than releases do.

    current: the window ends with y_t, the release of the very step that is guessed; else with y_{t-1}.
    """
    found, Y = controller_of(policy), policy.n_outputs
    if found is None or chain.phases > 1 or found.places > 1:
        return None
    S = found.n_memories
    if S * Y**lookback * len(chain) > MAX_CELLS:
        return None
    [law] = LongRun(chain, found).laws  # of (own memory, state); then of (own memory and releases since, state)
    memory, releases = np.arange(S), np.zeros(S, dtype=np.int64)
    for k in range(lookback):
        joint = law[:, None] * found.channel(memory).swapaxes(1, 2)  # with the release that follows
        law = (joint if current and k == lookback - 1 else joint @ chain.transition).reshape(-1, len(chain))
        y = np.tile(np.arange(Y), len(memory))
        memory, releases = found.update(np.repeat(memory, Y), y), np.repeat(releases, Y) * Y + y
        alike, which = np.unique(memory * Y**lookback + releases, return_inverse=True)
        memory, releases = np.divmod(alike, Y**lookback)
        law = summed(law, which, len(alike))
    return by_symbol(chain, summed(law, releases, Y**lookback))


def summed(law: Array, groups: Index, n: int) -> Array:
    """Rows added up by group, n of them."""
    found = np.zeros((n, law.shape[1]))
    np.add.at(found, groups, law)
    return found


def least_cross_entropy(law: Array) -> float:
    """H(X_t | window) in bits."""
    return float(entropy(law.ravel()) - entropy(law.sum(1)))
