"""The model card: statistics of a fitted chain and of the data behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilstream.model.chain import SMOOTHING, MarkovChain
from veilstream.model.information import entropy

THIN_ROW = 10  # a row with fewer observed transitions is said to be thin
Sequences = Sequence[NDArray[np.int64]]


@dataclass(frozen=True)
class ModelCard:
    """Statistics of a fitted chain and of the data behind it."""

    entropy_rate: float  # of the chain, weighted by its stationary law, bits per step
    entropy_data: float  # H(next | now) of the counts themselves, weighted by visits, bits per step
    self_transition: float  # share of steps that stay, in the data
    moves: int  # transitions to another state
    effective_sample: float  # independent visits the steps are worth, N (1 - l) / (1 + l), l the second eigenvalue
    row_counts: NDArray[np.float64]  # observed transitions behind each row
    thin_rows: int
    never_left: tuple[int, ...]  # symbols
    never_entered: tuple[int, ...]
    drift: float  # total variation between the stationary law and the visits


def describe(chain: MarkovChain, sequences: Sequences) -> ModelCard:
    """The statistics of a fitted chain."""
    n = chain.n_symbols
    C = transition_counts(sequences, n)
    total = max(C.sum(), 1.0)
    rows = C.sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        P = np.where(rows[:, None] > 0, C / rows[:, None], 0.0)
    off = C - np.diag(np.diag(C))
    visits = np.bincount(np.concatenate([np.asarray(s) for s in sequences]), minlength=n).astype(float)
    law = by_symbol(chain, chain.stationary)
    slow = np.sort(np.abs(np.linalg.eigvals((C + SMOOTHING) / (C + SMOOTHING).sum(1, keepdims=True))))
    second = min(float(slow[-2]), 1.0) if n > 1 else 0.0
    counts = rows if chain.counts is None else np.asarray(chain.counts).sum(1)
    return ModelCard(
        entropy_rate=float(chain.entropy_rate),
        entropy_data=float(rows @ entropy(P) / total),
        self_transition=float(np.trace(C) / total),
        moves=int(off.sum()),
        effective_sample=float(total * (1 - second) / (1 + second)),
        row_counts=counts,
        thin_rows=int((counts < THIN_ROW).sum()),
        never_left=tuple(map(int, np.flatnonzero(off.sum(1) == 0))),
        never_entered=tuple(map(int, np.flatnonzero(off.sum(0) == 0))),
        drift=float(np.abs(law - visits / visits.sum()).sum() / 2),
    )


def transition_counts(sequences: Sequences, n: int) -> NDArray[np.float64]:
    """C(x, x') over all sequences, n x n."""
    pairs = [np.asarray(s[:-1], np.int64) * n + s[1:] for s in sequences if len(s) > 1]
    flat = np.concatenate(pairs) if pairs else np.zeros(0, np.int64)
    return np.bincount(flat, minlength=n * n).reshape(n, n).astype(float)


def newest_symbol_chain(chain: MarkovChain) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Share of time per symbol, and P(next symbol | symbol) in the long run, whatever the order."""
    flow = by_symbol(chain, by_symbol(chain, chain.stationary[:, None] * chain.transition).T).T  # x x x'
    return by_symbol(chain, chain.stationary), flow / np.maximum(flow.sum(1, keepdims=True), 1e-300)


def commonest(chain: MarkovChain) -> NDArray[np.int64]:
    """The commonest symbol: of all steps, or at each step of a round of a public clock."""
    return np.asarray(symbol_laws(chain).argmax(1))


def symbol_laws(chain: MarkovChain) -> NDArray[np.float64]:
    """How often each symbol is met: over all steps, or at each step of a round of a public clock; rows are laws."""
    laws = [chain.stationary] if chain.phases == 1 else [chain.at(phase).initial for phase in chain.around]
    return by_symbol(chain, np.array(laws))


def by_symbol(chain: MarkovChain, belief: NDArray[np.float64]) -> NDArray[np.float64]:
    """Beliefs about histories z (last axis), added up to beliefs about their newest symbol x."""
    if chain.histories is None:
        return belief
    return belief @ np.eye(chain.n_symbols)[chain.symbols]
