"""Learned reconstruction: from windows of releases to places, learned from the other half of the traces.

    score_t(x) = law(x) + sum over k = -REACH..REACH of W_k(y_t+k, x)
    W          = argmin of sum_t |[x_t = x] - score_t(x)|^2 + RIDGE |W|^2

What RAoPT (Buchholz et al., ACSAC 2022) does with a recurrent network: it knows neither chain nor mechanism, but pairs
of true and released traces. Here a linear map, and the guess is the place with the least expected distance.
"""

import numpy as np

from veilstream.audit.attacks.attack import Attack, Evidence, nearest
from veilstream.audit.traces import Ints

REACH, RIDGE = 2, 1.0


def guess(seen: Evidence) -> Ints:
    from scipy.sparse import csr_array

    mask, (rows, steps) = seen.traces.mask, seen.traces.y.shape
    x, n, Y = seen.chain.symbols[seen.traces.z][mask], len(seen.distances), seen.felt.shape[1] + 1
    y = np.full((rows, steps + 2 * REACH), Y - 1)  # a symbol more: nothing before the first step and after the last
    y[:, REACH:-REACH][mask] = seen.traces.y[mask]
    width = 2 * REACH + 1
    at = np.stack([k * Y + y[:, k : k + steps][mask] for k in range(width)], 1)
    F = csr_array((np.ones(at.size), at.ravel(), width * np.arange(len(at) + 1)), shape=(len(at), width * Y))
    half = np.broadcast_to(seen.traces.origin[:, None] % 2, mask.shape)[mask]
    found = np.zeros(mask.shape, np.int64)
    flat = np.zeros(len(at), np.int64)
    for own in (0, 1):
        known, asked = half != own, half == own
        law = (np.bincount(x[known], minlength=n) + 1 / n) / (known.sum() + 1)
        truth = np.eye(n)[x[known]] - law
        W = np.linalg.solve((F[known].T @ F[known]).toarray() + RIDGE * np.eye(width * Y), F[known].T @ truth)
        flat[asked] = nearest(law + F[asked] @ W, seen.distances)
    found[mask] = flat
    return found


ATTACK = Attack("reconstruction", "a linear map from windows of releases, learned from other traces", guess)
