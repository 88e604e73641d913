"""Approximate location of Android: an offset that hardly drifts, then a grid.

LocationFudger.java of AOSP (com.android.server.location.fudger): each axis is moved by a Gaussian offset of a quarter
of the accuracy, then snapped to a grid as wide as the accuracy (2 km), latitude first. Once an hour
offset <- sqrt(1 - 0.03^2) offset + 0.03 new: it takes 2,200 hours to forget. So an offset is drawn and kept here. A
degree is 111.0 km there, 111.2 here. Newer versions can snap to the middle of an S2 cell instead, larger where few
people live: that needs their map of people and is not emulated.
"""

import numpy as np

from veilstream.audit.mechanisms.grid import snapped
from veilstream.audit.mechanisms.mechanism import DRAWS, MAP, Emulation, Made, places_of, showing
from veilstream.data.utility import Utility
from veilstream.model.information import Array
from veilstream.model.lattice import KM_PER_DEGREE

OF_ACCURACY = 0.25  # standard deviation of the offset


def moved(places: Array, east_north_km: Array) -> Array:
    """Places moved by so many km."""
    lat = places[..., 0] + east_north_km[..., 1] / KM_PER_DEGREE
    width = KM_PER_DEGREE * np.maximum(np.cos(np.radians(places[..., 0])), 1e-6)
    lon = places[..., 1] + east_north_km[..., 0] / width
    return np.clip(np.stack([lat, lon], -1), [-90, -180], [90, 180])


def make(utility: Utility, accuracy_km: float) -> Made:
    offsets = np.random.default_rng(0).normal(scale=OF_ACCURACY * accuracy_km, size=(DRAWS, 1, 2))
    return showing(utility, snapped(moved(places_of(utility).coordinates, offsets), accuracy_km))


MECHANISM = Emulation(
    "android-coarse",
    "moves every place by one offset that drifts over months, then snaps to a grid",
    "AOSP LocationFudger: offset of accuracy / 4, grid of the accuracy, 2 km by default",
    MAP,
    make,
    "the accuracy",
    (2.0,),
    "km",
)
