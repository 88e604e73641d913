"""Laplace noise on each reading of a meter, shown as the nearest level that the model releases."""

import numpy as np

from veilstream.audit.mechanisms.mechanism import VALUE, VALUES, Emulation, Made, on_states, places_of, releases_of
from veilstream.data.utility import Utility


def make(utility: Utility, scale: float) -> Made:
    from scipy.stats import laplace

    shown, levels = releases_of(utility), places_of(utility).coordinates[:, 0]
    order = np.argsort(shown.coordinates[:, 0])
    level = shown.coordinates[order, 0]
    below = laplace.cdf((level[1:] + level[:-1]) / 2, loc=levels[:, None], scale=scale)
    a = np.empty((len(levels), len(level)))
    a[:, order] = np.diff(below, prepend=0.0, append=1.0)
    return Made([on_states(utility, a)], utility.distortion)


MECHANISM = Emulation(
    "noise",
    "adds fresh Laplace noise to each reading",
    "the Laplace mechanism of Dwork et al. (2006) on single readings, as for meters in Acs and Castelluccia (2011)",
    VALUES,
    make,
    "the scale of the noise",
    (0.5,),
    VALUE,
    of_blind=True,
)
