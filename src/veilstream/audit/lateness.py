"""What releases up to k steps ago say about now.

    I(X_t; Y^{t-k}) = E D(b P^k || pi)            b = P(x_{t-k} | y^{t-k}), the filter of whoever sees them

with pi the stationary law of X_t, and the mean over releases that are drawn. It falls with k along every stream.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from veilstream.audit.measures import per_trace
from veilstream.audit.traces import Traces
from veilstream.data.spec import Recording
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, divergence
from veilstream.model.interval import Interval, ratio_interval

STEPS = (0, 1, 2, 5, 10, 20, 50, 100)
TIMES = {"15 min": 900, "1 h": 3600, "3 h": 3 * 3600, "6 h": 6 * 3600, "1 day": 86_400, "2 days": 2 * 86_400}


def latenesses(recording: Recording) -> Mapping[str, int]:
    """Delays to look at, by what they are called, in steps."""
    if recording.period_s is None:
        return {f"{k} steps": k for k in STEPS}
    times = {name: round(s / recording.period_s) for name, s in TIMES.items() if s >= 2 * recording.period_s}
    return {"none": 0, "1 step": 1} | times


def about_now(chain: MarkovChain, belief: Array, traces: Traces, delays: Sequence[int], start: int) -> list[Interval]:
    """Bits for each delay, on releases drawn from the chain; belief: at every release; start: from this step on."""
    mask = traces.mask & (np.arange(traces.z.shape[1]) >= start)
    step = (traces.first[:, None] + np.arange(traces.z.shape[1]))[mask]
    b, found = belief[mask], []
    for k in delays:
        bits = np.zeros(mask.shape)
        bits[mask] = divergence(chain.later(b, k, step), chain.initial_at(step + k))
        found.append(ratio_interval(*per_trace(bits, traces, mask)))
    return found
