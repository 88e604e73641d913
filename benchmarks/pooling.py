"""What others are worth to someone with little data: held-out loss of her own chain, of theirs, and of both.

Every household of $VEIL_DATA in turn is cut to a stretch of a few steps, at several places of its record; the rest of
it is held out. States are 8 common bins.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.records import NONE, meters
from veilstream.apps.fleet.pooling import Pool
from veilstream.data.card import transition_counts
from veilstream.data.fitting import fit_model
from veilstream.data.spec import FitSpec
from veilstream.model.chain import SMOOTHING
from veilstream.model.information import Array, normalised

SEEN, PLACES, BINS = (10, 50, 200), (0.2, 0.5, 0.8), 8
WHO = "seen"
TABLE = {
    "own chain": "{own:.2f}",
    "population": "{population:.2f}",
    "pooled": "{pooled:.2f}",
    "pooled better than both": "{better:.0%} of {cuts}",
}
Runs = Sequence[Sequence[NDArray[np.int64]]]  # of everybody


def losses(runs: Runs, n: int, who: int, steps: int, place: float) -> list[float]:
    """Bits per held-out step of her own chain, of the population and of both, where she is cut to `steps` of a run."""
    longest = max(runs[who], key=len)
    start = int(place * max(len(longest) - steps, 0))
    pool = Pool([r if v != who else [longest[start : start + steps]] for v, r in enumerate(runs)], n)
    own: Array = pool.counts[who]
    rest = transition_counts(runs[who], n) - own
    population = pool.population(own, np.delete(np.arange(len(runs)), who), 0.0)
    chains = normalised(own + SMOOTHING), population, normalised(own + SMOOTHING + pool.prior(who).pseudo)
    return [float(-(rest * np.log2(P)).sum() / rest.sum()) for P in chains]


def run() -> dict[str, dict[str, float | str]]:
    readings = meters()
    if readings is None:
        return NONE
    model = fit_model(readings, FitSpec(n_states=BINS, hold_out=0.0, cycle="none"))
    streams = range(len(readings.streams))
    runs = [[s for s, u in zip(model.runs.sequences, model.runs.streams, strict=True) if u == v] for v in streams]
    found: dict[str, dict[str, float | str]] = {}
    for steps in SEEN:
        cuts = np.array([losses(runs, len(model.states), who, steps, at) for who in streams for at in PLACES])
        own, population, pooled = cuts.T
        found[f"{steps} steps"] = {
            "own": own.mean(), "population": population.mean(), "pooled": pooled.mean(),
            "better": float(((pooled < own) & (pooled < population)).mean()), "cuts": len(cuts),
        }  # fmt: skip
    return found
