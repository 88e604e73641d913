"""The chains of the paper (Erdemir, Dragotti, Gündüz) and grids of local moves, by name.

Its grid formulas divide by d(x, x) = 0; read 1/d as 1/max(d, 1).
"""

import re
from collections.abc import Callable
from difflib import get_close_matches

import numpy as np

from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.distortion import grid_points, hamming, manhattan
from veilstream.model.information import Array, normalised
from veilstream.model.problem import Constraint, Problem

TOY = np.array([
    [0.11, 0.64, 0.05, 0.11, 0.05, 0.04],
    [0.10, 0.10, 0.60, 0.05, 0.10, 0.05],
    [0.05, 0.11, 0.11, 0.04, 0.05, 0.64],
    [0.11, 0.05, 0.04, 0.11, 0.64, 0.05],
    [0.05, 0.10, 0.05, 0.10, 0.10, 0.60],
    [0.04, 0.05, 0.11, 0.05, 0.11, 0.64],
])  # fmt: skip


def grid_q0(rows: int, columns: int) -> Array:
    """Every cell equally likely: no memory at all."""
    return np.full((rows * columns,) * 2, 1 / (rows * columns))


def grid_q1(rows: int, columns: int) -> Array:
    """Nearer cells likelier: weight r_d / d with r_0 = 1, r_d = 1 + longest distance - d (the paper's 7 - d)."""
    d = manhattan(grid_points(rows, columns))
    weight = np.where(d == 0, 1, 1 + d.max() - d) / np.maximum(d, 1)
    return normalised(weight)


def grid_q2(rows: int, columns: int) -> Array:
    """A preferred path along each row, then down its last column, ending in the last cell; r_1 = 6 on it, 1 off it."""
    n = rows * columns
    d = manhattan(grid_points(rows, columns))
    u = np.ones((n, n))
    for x in range(n):
        ahead = x + 1 if (x + 1) % columns else x + columns
        u[x, min(ahead, n - 1)] = d.max()
    weight = u / np.maximum(d, 1)
    return normalised(weight)


def grid_local(rows: int, columns: int) -> Array:
    """Stay, or one step to a neighbour, drifting round the centre; every fifth cell is a stop where one lingers."""
    at = grid_points(rows, columns)
    across = at - at.mean(0)
    tangent = across[:, ::-1] * [1, -1] / np.maximum(np.hypot(*across.T), 1)[:, None]
    linger = (7 * at[:, 0] + 3 * at[:, 1]) % 5 == 0
    weight = np.diag(np.where(linger, 6.0, 1.0))
    for step in ([0, 1], [0, -1], [1, 0], [-1, 0]):
        to = at + step
        inside = np.flatnonzero(((to >= 0) & (to < [rows, columns])).all(1))
        weight[inside, (to[inside] @ [columns, 1]).astype(int)] = np.exp2(tangent[inside] @ step)
    return normalised(weight)


def binary(flip: float = 0.1) -> Array:
    """The symmetric chain on two states."""
    return np.array([[1 - flip, flip], [flip, 1 - flip]])


GRIDS: dict[str, Callable[[int, int], Array]] = {"q0": grid_q0, "q1": grid_q1, "q2": grid_q2, "local": grid_local}
NAMES = ["grid4x4-q0", "grid4x4-q1", "grid4x4-q2", "grid32x32-local", "grid2x3-toy", "binary"]


def builtin(name: str, flip: float = 0.1) -> MarkovChain:
    """A chain by name: grid4x4-q0, -q1, -q2 (any size: grid16x16-q1), grid32x32-local, grid2x3-toy, binary.

    >>> import veilstream as vs
    >>> chain = vs.builtin("grid4x4-q2")
    >>> len(chain), round(chain.entropy_rate, 3)
    (16, 3.012)
    """
    return _lookup(name, flip)[0]


def builtin_problem(name: str, constraint: Constraint, flip: float = 0.1) -> Problem:
    """The chain with its distortion: Manhattan on grids, Hamming for `binary`.

    >>> import veilstream as vs
    >>> vs.builtin_problem("grid2x3-toy", vs.Instantaneous(1)).distortion.shape
    (6, 6)
    """
    chain, distortion = _lookup(name, flip)
    return Problem(chain, distortion, constraint)


def _lookup(name: str, flip: float) -> tuple[MarkovChain, Array]:
    if name == "binary":
        return MarkovChain(binary(flip), name=name), hamming(2)
    if name == "grid2x3-toy":
        return MarkovChain(TOY, name=name), manhattan(grid_points(2, 3))
    size = re.fullmatch(r"grid([1-9]\d?)x([1-9]\d?)-(q[012]|local)", name)
    if not size:
        near = get_close_matches(name, NAMES, 1)
        hint = f"did you mean {near[0]}?" if near else "known: " + ", ".join(NAMES)
        raise InputError(f"unknown builtin chain {name!r}; {hint}")
    rows, columns = int(size[1]), int(size[2])
    return MarkovChain(GRIDS[size[3]](rows, columns), name=name), manhattan(grid_points(rows, columns))
