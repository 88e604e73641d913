"""Privacy zones of fitness trackers: nothing is shown near home and work, and the truth elsewhere.

Who sees nothing knows that she is in a zone. The error of nothing is that of the best guess for it.
"""

import numpy as np

from veilstream.audit.mechanisms.mechanism import MAP, Emulation, Made, distances_to, law_of, on_states, places_of
from veilstream.data.utility import Utility

ZONES = 2  # the two most visited places, home and work


def make(utility: Utility, radius_km: float) -> Made:
    states, law = places_of(utility), law_of(utility)
    centres = np.argsort(-law, kind="stable")[:ZONES]
    hidden = (states.distances()[:, centres] <= radius_km).any(1)
    n = len(states)
    a = np.eye(n, n + 1)
    a[hidden] = np.eye(n + 1)[n]
    d = distances_to(utility, states.coordinates)
    best = int(((law * hidden) @ d).argmin())
    shown = np.concatenate([states.coordinates, states.coordinates[[best]]])
    return Made([on_states(utility, a)], np.concatenate([d, d[:, [best]]], 1), shown=shown)


MECHANISM = Emulation(
    "privacy-zones",
    "shows nothing within a radius of the two most visited places, the truth elsewhere",
    "Strava's and Garmin's help pages (up to 1 mile); analysed by Hassan et al., USENIX Security 2018",
    MAP,
    make,
    "the radius",
    (0.2, 1.6),
    "km",
)
