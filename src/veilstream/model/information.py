"""Entropy, divergence and mutual information, in bits.

Every logarithm of the package goes through `xlog2`, so that 0 log 0 = 0 is said once.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]
UNTHREADED, LEAST_ROWS = 1 << 18, 64  # multiplications that OpenBLAS does in one thread; rows worth a call
FEW_ROWS, LARGE = 4, 50_000  # rows, and numbers in a matrix that is large


def normalised(x: Array) -> Array:
    """x / sum x, along the last axis."""
    law: Array = x / x.sum(-1, keepdims=True)
    return law


def rows_times(b: Array, P: Array, out: Array | None = None) -> Array:
    """b P of many rows, in parts so small that BLAS wakes no threads: on a busy machine they wait for one another.

    A few rows of a large P one by one: as a matrix two of 576 take six times as long as one.
    """
    if b.ndim == 2 and 1 < len(b) <= FEW_ROWS and P.ndim == 2 and P.size >= LARGE:
        return np.stack([row @ P for row in b], out=out)
    most = UNTHREADED // P.size
    if b.ndim != 2 or len(b) <= most or most < LEAST_ROWS:
        return np.asarray(np.matmul(b, P, out=out))
    out = np.empty((len(b), P.shape[1])) if out is None else out
    for i in range(0, len(b), most):
        np.matmul(b[i : i + most], P, out=out[i : i + most])
    return out


def dot(x: Array, y: Array) -> Array:
    """sum_i x_i y_i, along the last axis."""
    sums: Array = np.einsum("...i,...i->...", x, y)
    return sums


def xlog2(x: ArrayLike, y: ArrayLike) -> Array:
    """x log2 y elementwise, and 0 wherever x = 0 (whatever y is there)."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    with np.errstate(divide="ignore"):
        bits: Array = x * np.log2(np.where(x != 0, y, 1))
    return bits


def entropy(p: ArrayLike, axis: int = -1) -> Array:
    """H(p) = -sum p log2 p, along `axis`."""
    p = np.asarray(p, float)
    bits: Array = -xlog2(p, p).sum(axis)
    return bits


def binary_entropy(p: ArrayLike) -> Array:
    """h(p) = -p log2 p - (1-p) log2 (1-p)."""
    p = np.asarray(p, float)
    return entropy(np.stack([p, 1 - p], -1))


def divergence(p: ArrayLike, q: ArrayLike, axis: int = -1) -> Array:
    """D(p||q) = sum p log2 p/q, along `axis`; infinite where p > 0 = q."""
    bits: Array = (xlog2(p, p) - xlog2(p, q)).sum(axis)
    return bits


def mutual_information(joint: ArrayLike) -> Array:
    """I(X;Y) = H(X) + H(Y) - H(X,Y) of joint[..., x, y]."""
    m = np.asarray(joint, float)
    return entropy(m.sum(-1)) + entropy(m.sum(-2)) - entropy(m.reshape(*m.shape[:-2], -1))
