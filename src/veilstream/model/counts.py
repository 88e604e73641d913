"""Transition counts of recorded sequences, and the chains on histories made of them (`MarkovChain.fit`)."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from veilstream.errors import InputError
from veilstream.model.information import Array

History = tuple[int, ...]  # newest symbol first


def fitted(
    sequences: Iterable[Sequence[int] | NDArray[np.integer]], n_states: int | None, order: int, smoothing: float | Array
) -> tuple[Array, Array, list[History]]:
    """Transition probabilities, the counts behind them, and the contexts that they lead from and to."""
    data, n = checked_sequences(sequences, n_states)
    if order < 1:
        raise InputError(f"order must be at least 1, found {order}")
    pseudo = np.asarray(smoothing, dtype=float)
    if pseudo.shape not in ((), (n, n)) or not (pseudo >= 0).all() or not np.isfinite(pseudo).all():
        raise InputError(f"`smoothing` must be a number >= 0, or {n} x {n} of them, found {smoothing}")
    seen = context_counts(data, n, order)
    contexts = sorted({c for c, _ in seen} | {(x,) for x in range(n)}, key=lambda c: (len(c), c))
    index = {c: i for i, c in enumerate(contexts)}
    follow = np.zeros((len(contexts), n))
    for (c, x), count in seen.items():
        follow[index[c], x] = count
    P, counts = np.zeros((2, len(contexts), len(contexts)))
    smoothed = follow + np.broadcast_to(pseudo, (n, n))[[c[0] for c in contexts]]
    if not smoothed.sum(1).all():
        raise InputError("a state is never left in the data: use smoothing > 0")
    smoothed /= smoothed.sum(1, keepdims=True)
    for c, i in index.items():
        for x in range(n):
            new = (x, *c)[:order]
            while new not in index:
                new = new[:-1]
            P[i, index[new]] += smoothed[i, x]
            counts[i, index[new]] += follow[i, x]
    return P, counts, contexts


def checked_sequences(
    sequences: Iterable[Sequence[int] | NDArray[np.integer]], n_states: int | None
) -> tuple[list[NDArray[np.int64]], int]:
    """The non-empty sequences, and the number of symbols: those found, unless it is given."""
    data = [s for s in (np.asarray(s, dtype=int).ravel() for s in sequences) if s.size]
    if not data:
        raise InputError("no data: fit needs at least one non-empty sequence")
    low, high = min(s.min() for s in data), max(s.max() for s in data)
    n = int(high) + 1 if n_states is None else n_states
    if low < 0 or high >= n:
        raise InputError(f"symbols must lie in 0..{n - 1}, found {low if low < 0 else high}")
    return data, n


def check_histories(histories: Sequence[tuple[int, ...]]) -> None:
    """Every symbol that occurs must begin some history: whatever is read next, there is a state for it."""
    if len(set(histories)) != len(histories) or not all(h and min(h) >= 0 for h in histories):
        raise InputError("histories must be different, of one symbol or more, and symbols are counted from 0")
    newest = {h[0] for h in histories}
    missing = set(range(max(map(max, histories)) + 1)) - newest
    if missing:
        raise InputError(f"no history begins with the symbol {min(missing)}; every symbol needs one")


def context_counts(data: Sequence[NDArray[np.int64]], n: int, order: int) -> dict[tuple[tuple[int, ...], int], int]:
    """N(c, x'): how often x' followed the history c, newest symbol first, for histories of 1 to `order` symbols."""
    flat = np.concatenate(data)
    place = np.concatenate([np.arange(len(s)) for s in data])  # symbols before each one in its sequence
    code = np.zeros(len(flat), dtype=np.int64)  # of the m symbols before each one, renumbered to stay small
    found: dict[tuple[tuple[int, ...], int], int] = {}
    for m in range(1, order + 1):
        at = np.flatnonzero(place >= m)
        code[at] = np.unique(code[at] * n + flat[at - m], return_inverse=True)[1]
        _, first, counts = np.unique(code[at] * n + flat[at], return_index=True, return_counts=True)
        for t, count in zip(at[first].tolist(), counts.tolist(), strict=True):
            found[tuple(flat[t - m : t][::-1].tolist()), int(flat[t])] = count
    return found
