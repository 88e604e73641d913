"""The move kernel: what is thought of a move before it is seen, by how far it goes and how often its target is entered.

    s(x,x') = weight ((1 - u) K(x,x') + u/n)                                  pseudo-counts, each row sums to `weight`
    K(x,x)  = (stays(x) + 10 q) / (steps(x) + 10)               q the share of steps that stay in states of its kind
    K(x,x') ~ exp(-distance(x,x')/length) (entries(x') + 0.3)   for x' != x

Where states are many and visits few, most of a row is what was thought before; thought of as uniform, it is noise.
Weight and length are those with the least held-out log-loss. The distance between two levels of a value is the number
of levels from one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilstream.data.card import transition_counts
from veilstream.data.crossval import Sequences, Smoothing, blocks_of, cross_validate
from veilstream.data.readings import Account
from veilstream.data.states import StateSpace

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
    kind: NDArray[np.int64]  # n: 0 or 1
    length: float
    weight: float

    def __call__(self, sequences: Sequences) -> NDArray[np.float64]:
        return self.weight * kernel(self.nearness, self.kind, transition_counts(sequences, len(self.nearness)))


@dataclass(frozen=True, eq=False)
class MoveChoice:
    """The best kernel, and its held-out log-loss beside that of uniform smoothing, bits per step."""

    kernel: MoveKernel
    loss: float
    uniform: float

    @property
    def gains(self) -> bool:
        return self.uniform - self.loss > GAIN


def smoothing_of(
    sequences: Sequences,
    states: StateSpace,
    stops: int,
    uniform: float,
    moves: bool | None,
    seed: int,
    account: Account,
) -> Smoothing:
    """`uniform` pseudo-counts, or the move kernel where it was asked for or gains, with a line in the account.

    stops: so many states, the first, are where people stay. moves: asked for, refused, or (None) cells and bins only.
    """
    if moves is False or (moves is None and states.kind in ("stops", "places", "names")):
        return uniform
    choice = choose_moves(sequences, states, uniform, seed, (np.arange(len(states)) >= stops).astype(np.int64))
    if choice is None or not (moves or choice.gains):
        return uniform
    found, unit = choice.kernel, states.unit if states.is_map else "levels"
    account.add(
        "unseen moves",
        int((transition_counts(sequences, len(states)) == 0).sum()),
        f"smoothed by distance: {found.weight:g} pseudo-counts a row, length {found.length:.2g} {unit}, by held-out "
        f"log-loss ({choice.loss:.2f} bits per step; {choice.uniform:.2f} with {uniform:g} for each)",
    )
    return found


def kernel(nearness: NDArray[np.float64], kind: NDArray[np.int64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """(1 - u) K + u/n from the transitions that were seen."""
    n, stays, steps = len(counts), counts.diagonal(), counts.sum(1)
    alike = np.bincount(kind, stays) / np.maximum(np.bincount(kind, steps), 1.0)
    stay = (stays + ALIKE * alike[kind]) / (steps + ALIKE)
    K = nearness * (counts.sum(0) - stays + UNSEEN)
    K *= ((1 - stay) / K.sum(1))[:, None]
    K[np.arange(n), np.arange(n)] = stay
    return np.asarray((1 - UNIFORM) * K + UNIFORM / n)


def choose_moves(
    sequences: Sequences, states: StateSpace, smoothing: float, seed: int = 0, kind: NDArray[np.int64] | None = None
) -> MoveChoice | None:
    """Weight and length by held-out log-loss of order 1; None where nothing can be held out.

    kind: 0 for stops, 1 for cells, which people stay at unlike; None: all alike.
    Every fold is predicted from the others alone: their counts, their stays, their entries.
    """
    n = len(states)
    if len(blocks_of(sequences)) < 2 or n < 2:
        return None
    kind, distance = np.zeros(n, np.int64) if kind is None else kind, _apart(states)
    scale = float(np.median((distance + np.diag(np.full(n, np.inf))).min(1))) or 1.0
    near = {length: _nearness(distance, length) for length in (scale * k for k in LENGTHS)}
    kernels = [MoveKernel(near[length], kind, length, weight) for length in near for weight in WEIGHTS]
    losses = [cross_validate(sequences, n, smoothing=one, seed=seed).loss for one in kernels]
    uniform = cross_validate(sequences, n, smoothing=smoothing, seed=seed).loss
    return MoveChoice(kernels[int(np.argmin(losses))], min(losses), uniform)


def _apart(states: StateSpace) -> NDArray[np.float64]:
    level = np.arange(len(states))
    return states.distances() if states.is_map else np.abs(level[:, None] - level).astype(float)


def _nearness(distance: NDArray[np.float64], length: float) -> NDArray[np.float64]:
    """exp(-distance/length), the nearest other state being 1; 0 for the state itself."""
    others = distance + np.diag(np.full(len(distance), np.inf))
    return np.asarray(np.exp((others.min(1, keepdims=True) - others) / length))
