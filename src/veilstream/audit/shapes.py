"""Measures of a whole trace that an attack has guessed, one number a trace.

Hausdorff   the farthest that a place of one is from the nearest of the other (RAoPT's measure; its Euclidean one is
            the mean error of `figures`)
recall      share of the two most visited places that are among the two most visited of the guess, or so near: home
            and work, as attacks on points of interest are scored
"""

import numpy as np
from numpy.typing import NDArray

from veilstream.audit.traces import Ints
from veilstream.model.information import Array

ANCHORS = 2  # home and work


def visits(path: Ints, mask: NDArray[np.bool_], n: int) -> Ints:
    """Steps at each state, streams x n."""
    rows = np.broadcast_to(np.arange(len(path))[:, None], path.shape)
    return np.bincount((rows * n + path)[mask], minlength=len(path) * n).reshape(len(path), n)


def hausdorff(distances: Array, true: Ints, guessed: Ints) -> Array:
    """max of both ways: max over the places of one of min over those of the other. Both are visits."""
    ways = []
    for one, other in ((true, guessed), (guessed, true)):
        nearest = np.where(other[:, None] > 0, distances, np.inf).min(-1)  # streams x n
        ways.append(np.where(one > 0, nearest, 0).max(1))
    return np.asarray(np.maximum(*ways))


def recall(distances: Array, true: Ints, guessed: Ints, near: float) -> Array:
    """Of the most visited places of each trace, as many as it has: the share that is found."""
    found = np.zeros((2, *true.shape), bool)
    for most, counts in zip(found, (true, guessed), strict=True):
        np.put_along_axis(most, np.argsort(-counts, 1, kind="stable")[:, :ANCHORS], True, 1)
        most &= counts > 0
    here, said = found
    reached = (here & (np.where(said[:, None], distances, np.inf).min(-1) <= near)).sum(1)
    return np.asarray(reached / here.sum(1))
