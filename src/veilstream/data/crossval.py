"""Cross-validation: held-out log-loss of a fitted chain, and what is chosen by it: its order, and how it is smoothed.

    loss = - (1/N) sum_t log2 P(x_{t+1} | history),  on data the chain was not fitted to

A chain that knows the truth reaches the entropy rate; the rest is what fitting cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilstream.data.card import transition_counts
from veilstream.data.readings import Account
from veilstream.data.states import StateSpace
from veilstream.errors import InputError
from veilstream.model.chain import SMOOTHING, MarkovChain
from veilstream.model.histories import TrueStates

FOLDS = 5
MIN_BLOCKS = 50
DENSE = 1 << 22  # tables up to this size are counted directly
Sequences = Sequence[NDArray[np.int64]]
Pseudo = float | NDArray[np.float64]  # one number for every transition, or n x n
Smoothing = Pseudo | Callable[[Sequences], NDArray[np.float64]]  # or made from the runs fitted


def losses(
    chain: MarkovChain, sequences: Sequences, first: Sequence[int] | NDArray[np.integer] | None = None
) -> list[NDArray[np.float64]]:
    """-log2 of the probability of every transition, one array per sequence.

    first: the public number of each sequence's first step, for a chain with a clock.
    """
    found, states = [], TrueStates.of(chain)
    P = np.stack([chain.at(phase).transition for phase in range(chain.phases)])
    for sequence, step in zip(sequences, np.zeros(len(sequences), int) if first is None else first, strict=True):
        z = states.along(sequence)
        phase = chain.phase(int(step) + np.arange(len(z) - 1))
        with np.errstate(divide="ignore"):
            found.append(-np.log2(P[phase, z[:-1], z[1:]]))
    return found


@dataclass(frozen=True)
class CrossValidation:
    """Held-out loss of one order: bits per step, and per block for paired comparisons."""

    order: int
    loss: float
    loss_se: float
    per_block: NDArray[np.float64]  # summed bits of each block
    weights: NDArray[np.float64]  # transitions of each block

    @classmethod
    def of(cls, order: int, bits: NDArray[np.float64], block: NDArray[np.int64]) -> CrossValidation:
        """From the bits of every transition, and the block of each."""
        per_block, weights = np.bincount(block, bits).astype(float), np.bincount(block).astype(float)
        return cls(order, *_mean(per_block, weights), per_block, weights)

    def gain_over(self, other: CrossValidation) -> tuple[float, float]:
        """Bits per step less than another's on the same blocks, and the standard error, paired by block."""
        return _mean(other.per_block - self.per_block, self.weights)


def _mean(sums: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float, float]:
    """Per unit of weight, with its standard error over blocks."""
    mean = sums.sum() / weights.sum()
    return float(mean), float(np.sqrt(((sums - mean * weights) ** 2).sum()) / weights.sum())


def blocks_of(sequences: Sequences, at_least: int = MIN_BLOCKS) -> list[NDArray[np.int64]]:
    """The sequences with a transition, cut further until there are enough of them."""
    usable = [np.asarray(s) for s in sequences if len(s) > 1]
    total = sum(len(s) for s in usable)
    size = max(2, -(-total // at_least))
    return [b for s in usable for b in np.array_split(s, max(1, round(len(s) / size))) if len(b) > 1]


def fold_of(blocks: Sequences, folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of each block."""
    return np.random.default_rng(seed).permutation(len(blocks)) % min(folds, len(blocks))


def pseudo_counts(smoothing: Smoothing, fitted: Sequences) -> Pseudo:
    """Pseudo-counts that are added to the counts of the runs being fitted; they may depend on these runs alone."""
    return smoothing(fitted) if callable(smoothing) else smoothing


def cross_validate(
    sequences: Sequences,
    n_states: int,
    order: int = 1,
    smoothing: Smoothing = SMOOTHING,
    folds: int = FOLDS,
    seed: int = 0,
) -> CrossValidation:
    """Fit on all folds but one, score the one; whole blocks stay together."""
    blocks = blocks_of(sequences)
    if len(blocks) < 2:
        raise InputError(f"cross-validation needs at least 2 runs with a transition, found {len(blocks)}")
    fold = fold_of(blocks, folds, seed)
    bits, of = [], []
    for k in np.unique(fold):
        train = [b for b, f in zip(blocks, fold, strict=True) if f != k]
        test = np.flatnonzero(fold == k)
        pseudo = pseudo_counts(smoothing, train)
        bits.append(held_out_losses(train, [blocks[i] for i in test], n_states, order, pseudo))
        of.append(np.repeat(test, [len(blocks[i]) - 1 for i in test]))
    return CrossValidation.of(order, np.concatenate(bits), np.concatenate(of))


def held_out_losses(
    train: Sequences, test: Sequences, n: int, order: int, smoothing: float | NDArray[np.float64]
) -> NDArray[np.float64]:
    """`losses` of the chain fitted on `train`, of every transition of `test`, without building that chain.

    A history is the number x_{t-1} + n x_{t-2} + ...; the longest one seen in `train` predicts, else the
    pseudo-counts alone.
    """
    last = np.concatenate([s[:-1] for s in test]).astype(np.int64)
    next_test = np.concatenate([s[1:] for s in test]).astype(np.int64)
    next_train = np.concatenate([s[1:] for s in train]).astype(np.int64)
    pseudo = np.broadcast_to(np.asarray(smoothing, float), (n, n))
    own, row = pseudo[last, next_test], pseudo.sum(1)[last]
    bits = np.log2(np.divide(row, own, out=np.full(len(last), float(n)), where=own > 0))
    open_ = np.ones(len(bits), bool)
    for m in range(order, 0, -1):
        history, seen = _histories(train, n, m), _histories(test, n, m)
        known = history >= 0
        total = _occurrences(history[known], seen, n**m)
        pairs = np.where(seen >= 0, seen * n + next_test, -1)
        count = _occurrences(history[known] * n + next_train[known], pairs, n ** (m + 1))
        take = open_ & (total > 0)
        bits[take] = -np.log2((count[take] + own[take]) / (total[take] + row[take]))
        open_ &= ~take
    found: NDArray[np.float64] = bits
    return found


def _histories(sequences: Sequences, n: int, m: int) -> NDArray[np.int64]:
    """The m symbols before every transition as one number, -1 where there are fewer."""
    lengths = np.array([len(s) for s in sequences])
    joined, starts = np.concatenate(sequences).astype(np.int64), np.cumsum(lengths) - lengths
    age = np.arange(len(joined)) - np.repeat(starts, lengths)  # symbols before each in its sequence
    code = np.full(len(joined), -1, np.int64)
    code[m - 1 :] = sum(joined[m - 1 - k : len(joined) - k] * n**k for k in range(m))
    code[age < m - 1] = -1
    last = np.zeros(len(joined), bool)
    last[starts + lengths - 1] = True
    return code[~last]


def _occurrences(keys: NDArray[np.int64], wanted: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """How often each wanted key is among the keys, all below `size`; 0 for -1."""
    if size <= DENSE:
        return np.where(wanted >= 0, np.bincount(keys, minlength=size)[wanted], 0)
    found, counts = np.unique(keys, return_counts=True)
    if not len(found):
        return np.zeros(len(wanted), np.int64)
    at = np.minimum(np.searchsorted(found, wanted), len(found) - 1)
    return np.where(found[at] == wanted, counts[at], 0)


def select_order(
    sequences: Sequences, n_states: int, max_order: int, smoothing: Smoothing = SMOOTHING, seed: int = 0
) -> tuple[int, list[CrossValidation]]:
    """The smallest order whose held-out loss is within one standard error (paired by block) of the best."""
    tried = [cross_validate(sequences, n_states, m, smoothing, seed=seed) for m in range(1, max_order + 1)]
    best = min(tried, key=lambda cv: cv.loss)
    for cv in tried:
        gain, se = best.gain_over(cv)
        if gain <= se:
            return cv.order, tried
    return best.order, tried


# --- the move kernel -----------------------------------------------------------------------------------
#
# What is thought of a move before it is seen, by how far it goes and how often its target is entered.
#
#     s(x,x') = weight ((1 - u) K(x,x') + u/n)                                  pseudo-counts, each row sums to `weight`
#     K(x,x)  = (stays(x) + 10 q) / (steps(x) + 10)               q the share of steps that stay in states of its kind
#     K(x,x') ~ exp(-distance(x,x')/length) (entries(x') + 0.3)   for x' != x
#
# Where states are many and visits few, most of a row is what was thought before; thought of as uniform, it is noise.
# Weight and length are those with the least held-out log-loss. The distance between two levels of a value is the number
# of levels from one to the other.


UNIFORM = 0.03  # u
ALIKE = 10.0  # steps that the stays of a state's kind are worth
UNSEEN = 0.3  # entries that a state never entered is taken to have
WEIGHTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # more gains little and pulls the long-run law away from the visits
LENGTHS = (0.5, 0.7, 1.0, 1.5, 2.5, 4.0)  # times the median distance from a state to the next one
GAIN = 0.01  # bits a step below which uniform smoothing stays


@dataclass(frozen=True, eq=False)
class MoveKernel:
    """The kernel for these states; called with runs it gives the pseudo-counts that these runs alone speak for."""

    nearness: NDArray[np.float64]  # n x n: exp(-distance/length) up to a factor a row, 0 for the state itself
    kind: NDArray[np.int64]  # n: 0 for stops, 1 for cells, which people stay at unlike
    length: float
    weight: float

    def __call__(self, sequences: Sequences) -> NDArray[np.float64]:
        counts, n = transition_counts(sequences, len(self.kind)), len(self.kind)
        stays, steps = counts.diagonal(), counts.sum(1)
        alike = np.bincount(self.kind, stays) / np.maximum(np.bincount(self.kind, steps), 1.0)
        stay = (stays + ALIKE * alike[self.kind]) / (steps + ALIKE)
        K = self.nearness * (counts.sum(0) - stays + UNSEEN)
        K *= ((1 - stay) / K.sum(1))[:, None]
        K[np.arange(n), np.arange(n)] = stay
        return np.asarray(self.weight * ((1 - UNIFORM) * K + UNIFORM / n))


def smoothing_of(
    sequences: Sequences,
    states: StateSpace,
    stops: int,
    asked: float | str | None,
    seed: int,
    account: Account,
) -> Smoothing:
    """The pseudo-counts that were asked for, or the move kernel where it was ("moves") or gains (None, of cells and
    bins), with a line in the account. stops: so many states, the first, are where people stay."""
    uniform = asked if isinstance(asked, float | int) else SMOOTHING
    if asked == uniform or (asked is None and states.kind in ("stops", "places", "names")):
        return uniform
    if len(blocks_of(sequences)) < 2 or len(states) < 2:
        return uniform  # nothing can be held out
    found, loss = choose_moves(sequences, states, stops, seed)
    plain = cross_validate(sequences, len(states), smoothing=uniform, seed=seed).loss
    if not (asked or plain - loss > GAIN):
        return uniform
    unit = states.unit if states.is_map else "levels"
    account.add(
        "unseen moves",
        int((transition_counts(sequences, len(states)) == 0).sum()),
        f"smoothed by distance: {found.weight:g} pseudo-counts a row, length {found.length:.2g} {unit}, by held-out "
        f"log-loss ({loss:.2f} bits per step; {plain:.2f} with {uniform:g} for each)",
    )
    return found


def choose_moves(sequences: Sequences, states: StateSpace, stops: int, seed: int = 0) -> tuple[MoveKernel, float]:
    """The kernel with the least held-out log-loss of order 1, and that, bits per step.

    Every fold is predicted from the others alone: their counts, their stays, their entries.
    """
    level, n = np.arange(len(states)), len(states)
    distance = states.distances() if states.is_map else np.abs(level[:, None] - level).astype(float)
    others, kind = distance + np.diag(np.full(n, np.inf)), (level >= stops).astype(np.int64)
    nearest = others.min(1, keepdims=True)  # of which the nearness is 1, so that a row far from all has a law
    kernels = []
    for length in (k * (float(np.median(nearest)) or 1.0) for k in LENGTHS):
        near = np.exp((nearest - others) / length)
        kernels += [MoveKernel(near, kind, length, weight) for weight in WEIGHTS]
    losses = [cross_validate(sequences, n, smoothing=one, seed=seed).loss for one in kernels]
    return kernels[int(np.argmin(losses))], min(losses)
