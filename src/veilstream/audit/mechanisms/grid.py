"""Coordinates snapped to a grid: what rounding latitudes and longitudes, or a coarse map, does."""

import numpy as np

from veilstream.audit.mechanisms.mechanism import MAP, Emulation, Made, places_of, showing
from veilstream.data.utility import Utility
from veilstream.model.information import Array
from veilstream.model.lattice import KM_PER_DEGREE


def snapped(places: Array, cell_km: float) -> Array:
    """The nearest node of a grid of cells so wide, rows first: the width of a column is that of its row.

    As AOSP's LocationFudger does it: latitude to a multiple, then longitude to a multiple at that latitude.
    """
    lat = np.round(places[..., 0] * KM_PER_DEGREE / cell_km) * cell_km / KM_PER_DEGREE
    width = cell_km / (KM_PER_DEGREE * np.maximum(np.cos(np.radians(lat)), 1e-6))
    return np.clip(np.stack([lat, np.round(places[..., 1] / width) * width], -1), [-90, -180], [90, 180])


def make(utility: Utility, cell_km: float) -> Made:
    return showing(utility, snapped(places_of(utility).coordinates, cell_km)[None])


MECHANISM = Emulation(
    "grid",
    "shows the nearest node of a public grid",
    "rounded coordinates; two decimals of a degree are 1.1 km",
    MAP,
    make,
    "the width of a cell",
    (1.0, 5.0),
    "km",
)
