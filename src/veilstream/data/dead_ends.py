"""Dead ends of traces that were cut at gaps, and the moves that lead out of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from veilstream.data.card import Sequences, transition_counts


def link_dead_ends(sequences: Sequences, streams: NDArray[np.integer], n: int) -> list[NDArray[np.int64]]:
    """Transitions to add so that no set of states is entered and never left.

    Cut at gaps, a trace may end for good in a state, and the fitted chain would stay there for ever: its long-run
    law would be an artefact. Where a run ends in such a dead end, the person was seen next at the start of the
    stream's next run (after the last run: its first), and that move is added as a run of two steps.
    """
    links: list[NDArray[np.int64]] = []
    C = transition_counts(sequences, n)
    visited = np.flatnonzero((C.sum(0) + C.sum(1)) > 0)
    following = _next_run(streams)
    for _ in range(n):
        components, label = connected_components(csr_array(C[np.ix_(visited, visited)] > 0), connection="strong")
        if components <= 1:
            break
        of = np.full(n, -1)
        of[visited] = label
        i, j = np.nonzero(C)
        dead = set(range(components)) - {int(of[a]) for a, b in zip(i, j, strict=True) if of[a] != of[b]}
        new = [
            np.array([s[-1], sequences[k][0]])
            for s, k in zip(sequences, following, strict=True)
            if int(of[s[-1]]) in dead and of[sequences[k][0]] != of[s[-1]]
        ]
        if not new:
            break
        links += new
        C += transition_counts(new, n)
    return links


def _next_run(streams: NDArray[np.integer]) -> NDArray[np.int64]:
    """Index of the run that follows each one in its stream; the last is followed by the first."""
    following = np.empty(len(streams), np.int64)
    for stream in np.unique(streams):
        own = np.flatnonzero(streams == stream)
        following[own] = np.roll(own, -1)
    return following
