"""Averages: the mean of the last k readings, shown every k-th step as the nearest level that the model releases, and
held in between. What it looks at is the last k states."""

import numpy as np

from veilstream.audit.mechanisms.hold import held, whole
from veilstream.audit.mechanisms.mechanism import VALUES, Emulation, Made, places_of, releases_of
from veilstream.data.utility import Utility
from veilstream.errors import InputError

MOST = 700  # histories that are followed


def make(utility: Utility, steps: float) -> Made:
    k, levels = whole("mean", steps), places_of(utility).coordinates[:, 0]
    if utility.chain.histories is not None or utility.chain.phases > 1 or len(levels) ** k > MOST:
        raise InputError(
            f"mechanism mean: {len(levels)} levels over {k} steps are too many histories to follow, or the chain has a "
            "clock or an order of its own; fit with `cycle='none'`, `order=1` and fewer states"
        )
    chain = utility.chain.lift(k)
    histories = [(x,) for x in chain.symbols] if chain.histories is None else chain.histories
    shown = np.abs(releases_of(utility).coordinates[:, 0] - np.array([[levels[list(h)].mean()] for h in histories]))
    fresh = np.eye(shown.shape[1])[shown.argmin(1)]
    return Made([held(fresh, k)], utility.distortion, chain)


MECHANISM = Emulation(
    "mean",
    "shows the mean of the last k readings at every k-th step and holds it in between",
    "coarser intervals for smart meters: Eibl and Engel, IEEE Transactions on Smart Grid 2015",
    VALUES,
    make,
    "the steps that are averaged",
    (2.0,),
    "",
    whole=True,
)
