"""How long advice takes: a walk over a city in cells of 500 m, CPU seconds."""

import time
import warnings

import numpy as np

import veilstream as vs
from veilstream.data.readings import from_arrays
from veilstream.errors import Caution

STEPS = 6000
WIDTHS = (8, 24)  # cells: some 70 states, and some 600


def measured(width: int) -> dict[str, float]:
    """A walk of so many cells across; least gain: of an adversary who sees releases, over one who sees none."""
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.integers(-1, 2, (STEPS, 2)), 0)
    around = np.abs((walk + width) % (2 * width) - width) % width + rng.uniform(0.2, 0.8, walk.shape)
    places = np.array([40, 116]) + np.array([0.0045, 0.006]) * around
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)  # thin data
        model = vs.fit(from_arrays(300.0 * np.arange(STEPS), places, "km"), grid_m=500, cycle="none")
        start = time.process_time()
        rows = vs.advise(model)
    took = time.process_time() - start
    gain = min(row.hit_rate - row.hit_rate_blind for row in rows)
    return {"states": float(len(model.states)), "cpu_s": took, "rows": float(len(rows)), "least gain": gain}


def run() -> dict[str, dict[str, float]]:
    return {f"{width} x {width} cells": measured(width) for width in WIDTHS}
