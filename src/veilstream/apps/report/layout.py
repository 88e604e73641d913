"""Where things lie: places on a plane, and the proved bound along the axis of distortion. Numpy only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilstream.data.states import StateSpace
from veilstream.model.lattice import KM_PER_DEGREE

if TYPE_CHECKING:
    from veilstream.solvers.solution import Solution

CROWD = 0.6  # share of the places that may make a crowd


def east_north_km(states: StateSpace, points: StateSpace | None = None) -> NDArray[np.float64]:
    """Places (or points among them) in km east and north of the states' median, n x 2."""
    centre = np.median(states.coordinates, axis=0)
    north, east = (((points or states).coordinates - centre) * KM_PER_DEGREE).T
    return np.stack([east * np.cos(np.radians(centre[0])), north], axis=1)


def crowd(places: NDArray[np.float64], law: NDArray[np.float64]) -> NDArray[np.bool_] | None:
    """The places in the crowded middle, if most are there and it is a small part of the map.

    law: the share of time of each. The middle is moved, where it must be, so that the most visited place is among them.
    """
    for middle in (np.zeros(2), places[law.argmax()]):
        far = np.abs(places - middle).max(1)
        reach = np.quantile(far, CROWD)
        near = far <= reach * 1.2
        if near[law.argmax()] and near.sum() >= 4 and 4 * reach < np.ptp(places, axis=0).max():
            return np.asarray(near)
    return None


def lower_curve(solutions: list[Solution], distortion: NDArray[np.float64]) -> NDArray[np.float64]:
    """max(0, max over weights of bound - weight * distortion): what the proved bounds say together."""
    lines = [s.lower_bound - s.weight * distortion for s in solutions if s.lower_bound is not None]
    return np.asarray(np.maximum(np.max(lines, axis=0), 0))
