"""Planar Laplace noise (geo-indistinguishability), fresh for each reading, remapped, or kept for each place.

    density ~ e^(-epsilon r):  r ~ Gamma(2, 1/epsilon), mean 2/epsilon;  every direction alike

Andres, Bordenabe, Chatzikokolakis and Palamidessi (CCS 2013), as in Location Guard's laplace.js; the noisy point is
moved to the nearest point that the model releases, as theirs to the nearest of a grid. Remapped (Chatzikokolakis,
ElSalamouny and Palamidessi, PoPETs 2017): to the point that is best given the noisy one. Cached: the noise of a place
is drawn once. (Location Guard keeps a noisy position for 10 to 60 minutes wherever its user goes, then draws anew.)
"""

import numpy as np

from veilstream.audit.mechanisms.android_coarse import moved
from veilstream.audit.mechanisms.mechanism import (
    DRAWS,
    MAP,
    Emulation,
    Made,
    distances_to,
    law_of,
    on_states,
    places_of,
    releases_of,
)
from veilstream.data.utility import Utility
from veilstream.model.information import Array, normalised

POINTS = 16_384  # equally likely ones that stand for the density
ANGLE, GOLDEN = 2 * np.pi, np.pi * (3 - np.sqrt(5))  # a turn; that of a sunflower, whose seeds lie evenly


def plane(radius_km: Array, angle: Array) -> Array:
    """(east, north)."""
    return np.stack([radius_km * np.cos(angle), radius_km * np.sin(angle)], -1)


def channel(utility: Utility, mean_km: float) -> Array:
    """a(y|x): the share of the noise that ends nearest to y; where that is less than points can tell, what it cannot be
    less than: a(y|x) >= a(y|x') e^(-epsilon d(x,x'))."""
    from scipy.stats import gamma

    shown, places = releases_of(utility), places_of(utility).coordinates
    i = np.arange(POINTS)
    noise = plane(gamma.ppf((i + 0.5) / POINTS, 2, scale=mean_km / 2), GOLDEN * i)
    at = [shown.encode(moved(place, noise)) for place in places]
    a = np.stack([np.bincount(found, minlength=len(shown)) for found in at]) / len(noise)
    least = np.exp(-2 / mean_km * places_of(utility).distances())[..., None] * a  # x, x', y
    return normalised(np.maximum(a, least.max(1)))


def fresh(utility: Utility, mean_km: float) -> Made:
    return Made([on_states(utility, channel(utility, mean_km))], utility.distortion)


def remapped(utility: Utility, mean_km: float) -> Made:
    a = channel(utility, mean_km)
    best = ((law_of(utility)[:, None] * a).T @ distances_to(utility, releases_of(utility).coordinates)).argmin(1)
    return Made([on_states(utility, a @ np.eye(a.shape[1])[best])], utility.distortion)


def cached(utility: Utility, mean_km: float) -> Made:
    rng, n = np.random.default_rng(0), len(places_of(utility))
    noise = plane(rng.gamma(2, mean_km / 2, (DRAWS, n)), ANGLE * rng.random((DRAWS, n)))
    shown = releases_of(utility)
    at = shown.encode(moved(places_of(utility).coordinates, noise).reshape(-1, 2)).reshape(DRAWS, n)
    return Made([on_states(utility, a) for a in np.eye(len(shown))[at]], utility.distortion)


KEPT = "noise that lasts for a place, against averaging: Fawaz and Shin, CCS 2014"
MECHANISMS = [
    Emulation(name, what, source, MAP, make, "the mean length of the noise, 2 / epsilon", (0.5, 2.0), "km")
    for name, what, source, make in (
        ("laplace", "adds fresh planar Laplace noise to each position", "Andres et al., CCS 2013", fresh),
        ("laplace-cached", "adds planar Laplace noise that is drawn once for a place", KEPT, cached),
        (
            "laplace-remapped",
            "planar Laplace, then the best point given the noisy one",
            "Chatzikokolakis et al., PoPETs 2017",
            remapped,
        ),
    )
]
