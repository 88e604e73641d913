"""Distances between true and released symbols, as |X| x |Y| matrices.

Each takes the places of the true symbols and, where releases live elsewhere, those of the released ones.
"""

import numpy as np
from numpy.typing import ArrayLike

from veilstream.model.information import Array

EARTH_RADIUS_KM = 6371.0088


def _pair(x: ArrayLike, y: ArrayLike | None) -> tuple[Array, Array]:
    x = np.atleast_2d(np.asarray(x, float).T).T
    y = x if y is None else np.atleast_2d(np.asarray(y, float).T).T
    return x[:, None, :], y[None, :, :]


def manhattan(x: ArrayLike, y: ArrayLike | None = None) -> Array:
    """sum_i |x_i - y_i|, points as rows."""
    x, y = _pair(x, y)
    return np.asarray(np.abs(x - y).sum(-1))


def euclidean(x: ArrayLike, y: ArrayLike | None = None) -> Array:
    """sqrt sum_i (x_i - y_i)^2, points as rows."""
    x, y = _pair(x, y)
    return np.asarray(np.sqrt(((x - y) ** 2).sum(-1)))


def absolute(x: ArrayLike, y: ArrayLike | None = None) -> Array:
    """|x - y| of scalars."""
    return manhattan(x, y)


def haversine(x: ArrayLike, y: ArrayLike | None = None) -> Array:
    """Great-circle distance in km; rows are (latitude, longitude) in degrees."""
    x, y = (np.radians(p) for p in _pair(x, y))
    half = np.sin((x - y) / 2) ** 2
    h = half[..., 0] + np.cos(x[..., 0]) * np.cos(y[..., 0]) * half[..., 1]
    return np.asarray(2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.clip(h, 0, 1))))


def hamming(n: int, m: int | None = None) -> Array:
    """1 where the symbols differ, 0 where they agree."""
    return 1.0 - np.eye(n, m)


def grid_points(rows: int, columns: int) -> Array:
    """(row, column) of the cells of a grid, numbered along the rows."""
    return np.stack(np.divmod(np.arange(rows * columns), columns), -1).astype(float)
