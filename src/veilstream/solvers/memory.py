"""Finite memories of past releases: s' = next(s, y), made finer where forgetting costs most.

What a memory loses in a step is the sum over pairs (s,y) of p(s,y) D( b_sy || b_s' ): b_sy is the belief after
memory s and release y, b_s' the average belief of all pairs that lead to s'. A state is split by sorting these pairs
into two groups by relative entropy (2-means), wherever that saves most; both halves behave as the old state did.
"""

import heapq

import numpy as np
from numpy.typing import NDArray

from veilstream.model.information import Array

LEAST_GAIN = 1e-10  # nats; a split that saves less is not made


def divergence_to(b: Array, centre: Array) -> Array:
    """D(b||centre) in nats for every row of b; large instead of infinite where the centre lacks support."""
    return np.asarray((b * np.log(np.where(b > 0, b, 1) / np.maximum(centre, 1e-100))).sum(-1))


def beliefs(P: Array, m: Array) -> tuple[Array, Array]:
    """p(s,y) and b_sy(z') under the occupancies m(s,y,z)."""
    flow = m @ P
    p = flow.sum(-1)
    return p, flow / np.maximum(p, 1e-300)[..., None]


def attained(P: Array, cost: Array, next: NDArray[np.int64], m: Array, steps: int = 200) -> float:
    """Leakage + cost, in nats, of the mechanism a_s(y|z) = m(s,y|z) that has this memory; cost: Y x Z.

    I(Z;Y|S) + E C after `steps` steps from the law in m: exact once that law has settled.
    """
    a = m / np.maximum(m.sum(1, keepdims=True), 1e-300)
    law = m.sum(1) / m.sum()
    for _ in range(steps if len(next) > 1 else 0):
        flow = (law[:, None] * a) @ P
        law = np.zeros_like(law)
        np.add.at(law, next, flow)
    m = law[:, None] * a
    r = m.sum(2, keepdims=True) / np.maximum(law.sum(1), 1e-300)[:, None, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        bits = np.log(a / r) + cost
    return float((m * np.where(m > 0, bits, 0)).sum())


def split(
    P: Array, next: NDArray[np.int64], m: Array, n_states: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """A memory of up to n_states states: where each comes from, the new table, each one's probability."""
    p, b = beliefs(P, m)
    p, b, to = p.ravel(), b.reshape(p.size, -1), next.ravel().copy()
    parent = list(range(len(next)))
    candidates: list[tuple[float, int, NDArray[np.int64]]] = []

    def consider(s: int) -> None:
        pairs = np.flatnonzero(to == s)
        second, gain = two_groups(b[pairs], p[pairs])
        if gain > LEAST_GAIN:
            heapq.heappush(candidates, (-gain, s, pairs[second]))

    for s in range(len(next)):
        consider(s)
    while candidates and len(parent) < n_states:
        _, s, moved = heapq.heappop(candidates)
        to[moved] = len(parent)
        parent.append(parent[s])
        consider(s)
        consider(len(parent) - 1)
    weight = np.bincount(to, p, minlength=len(parent)).astype(float)
    origin = np.array(parent)
    return origin, to.reshape(next.shape)[origin], weight


def two_groups(b: Array, p: Array) -> tuple[NDArray[np.bool_], float]:
    """2-means by relative entropy of the rows of b, weights p: who is in the second group, the nats saved."""

    def centre(group: NDArray[np.bool_]) -> Array:
        return np.asarray(p[group] @ b[group] / max(p[group].sum(), 1e-300))

    everyone = np.ones(len(p), dtype=bool)
    apart = divergence_to(b, centre(everyone))
    second = divergence_to(b, b[(p * apart).argmax()]) < apart if len(p) > 1 else ~everyone
    for _ in range(10):
        if second.all() or not second.any():
            return second, 0.0
        d1, d2 = divergence_to(b, centre(~second)), divergence_to(b, centre(second))
        before, second = second, d2 < d1
        if (second == before).all():
            break
    if second.all() or not second.any():
        return second, 0.0
    left = np.where(second, divergence_to(b, centre(second)), divergence_to(b, centre(~second)))
    return second, float(p @ (apart - left))
