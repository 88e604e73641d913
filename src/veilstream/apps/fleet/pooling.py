"""A person with little data, helped by others: her chain is drawn towards people who move like her.

    P(x' | x) = (C(x, x') + k Q(x, x')) / (C(x) + k)            k: strength, in observed transitions per row
    Q  = transitions of the others, each weighted by w(v)
    w(v) ~ P(her steps | chain of v)^t                          t: likeness; 0: all alike, the whole population

k and t are chosen by held-out likelihood: every other person is cut to as few steps as she has, helped by the rest in
the same way, and scored on the steps that were cut off. What is best for them on average is taken for her. t is lowered
where the weights would amount to fewer than LEAST_HELPERS people: her model must not be the portrait of one other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.model.chain import SMOOTHING
from veilstream.model.information import Array, normalised

STRENGTHS = np.array([0, 0.3, 1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 500, 1e3, 1e4, 1e6])  # the last: Q alone
LIKENESS = np.array([0, 0.03, 0.1, 0.3, 1.0])
PIECES = 3  # stretches that each of the others is cut to
MOST_JUDGES = 40  # people on whom a choice is scored
LEAST_HELPERS = 3.0  # 1 / sum w^2
HALVINGS = 30
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Prior:
    """What others say about one person: pseudo-counts for the fit, how they were chosen, and what that is worth."""

    pseudo: Array  # k Q, n x n
    strength: float  # k
    likeness: float  # t
    helpers: float  # people the weights amount to, 1 / sum w^2
    held_out: dict[str, float]  # mean loss of others cut to as few steps, bits per step: own, population, pooled

    def to_json(self) -> dict[str, Any]:
        told = {"strength": self.strength, "likeness": self.likeness, "helpers": round(self.helpers, 2)}
        return {**told, "held_out_bits": self.held_out}


class Pool:
    """People on one state space of n states; `sequences` holds the runs of each."""

    def __init__(self, sequences: Sequence[Sequence[Ints]], n: int, smoothing: float = SMOOTHING) -> None:
        self.n, self.smoothing = n, smoothing
        self.pairs = [_pairs(runs, n) for runs in sequences]  # transitions of each, in time order
        self.counts = np.array([_counted(p, n) for p in self.pairs])  # people x n x n
        self._tables: dict[int, tuple[Ints, Array]] = {}

    def __len__(self) -> int:
        return len(self.pairs)

    @cached_property
    def _logs(self) -> Array:
        return np.log(normalised(self.counts + self.smoothing)).reshape(len(self), -1)

    def weights(self, own: Array, others: Ints, likeness: float) -> Array:
        """How much each of the others counts for someone with these transition counts; they sum to 1."""
        fit = self._logs[others] @ own.ravel()
        fit -= fit.max()
        for halvings in range(HALVINGS + 1):
            w = np.exp(likeness * 0.5**halvings * fit)
            w /= w.sum()
            if 1 / (w**2).sum() >= min(LEAST_HELPERS, 0.999 * len(others)):
                return w
        return np.full(len(others), 1 / len(others))

    def population(self, own: Array, others: Ints, likeness: float) -> Array:
        """Q, n x n, every entry positive."""
        w = self.weights(own, others, likeness) * len(others)
        return normalised(np.tensordot(w, self.counts[others], 1) + self.smoothing)

    def prior(self, who: int) -> Prior:
        """For one of the people, from all the others."""
        others = np.delete(np.arange(len(self)), who)
        judges, losses = self._table(_size(len(self.pairs[who])))
        mean = losses[judges != who].mean(0) if (judges != who).any() else losses.mean(0)
        t, k = np.unravel_index(int(mean.argmin()), mean.shape)
        own, strength, likeness = self.counts[who], float(STRENGTHS[k]), float(LIKENESS[t])
        w = self.weights(own, others, likeness)
        held_out = {"own": mean[0, 0], "population": mean[0, -1], "pooled": mean[t, k]}
        pseudo = strength * self.population(own, others, likeness)
        return Prior(pseudo, strength, likeness, float(1 / (w**2).sum()), {a: float(b) for a, b in held_out.items()})

    def _table(self, size: int) -> tuple[Ints, Array]:
        """Who was cut to about `size` transitions, and the held-out loss of each:  judges x likeness x strength."""
        if size not in self._tables:
            lengths = np.array([len(p) for p in self.pairs])
            judges = np.flatnonzero(lengths >= 2 * size)
            if len(judges) < 2:  # too few have that many: as many as leave half to be scored on
                judges = np.flatnonzero(lengths >= 2)
            judges = judges[np.linspace(0, len(judges) - 1, min(len(judges), MOST_JUDGES)).round().astype(int)]
            losses = [self._judge(int(v), min(size, lengths[v] // 2)) for v in judges]
            flat = np.zeros((1, len(LIKENESS), len(STRENGTHS)))  # nobody to ask: the first choice of all
            self._tables[size] = (judges, np.array(losses)) if losses else (np.array([-1]), flat)
        return self._tables[size]

    def _judge(self, who: int, size: int) -> Array:
        """Loss on the rest, after seeing a stretch of `size` transitions:  likeness x strength, mean over stretches."""
        pairs, others = self.pairs[who], np.delete(np.arange(len(self)), who)
        found = np.zeros((len(LIKENESS), len(STRENGTHS)))
        for i in range(PIECES):
            start = int((len(pairs) - size) * (i + 0.5) / PIECES)
            own = _counted(pairs[start : start + size], self.n)
            rest = self.counts[who] - own
            for j, likeness in enumerate(LIKENESS):
                Q = self.population(own, others, likeness)
                P = normalised(own + self.smoothing + STRENGTHS[:, None, None] * Q)
                found[j] -= (rest * np.log2(P)).sum((1, 2)) / rest.sum()
        return found / PIECES


def _pairs(runs: Sequence[Ints], n: int) -> Ints:
    parts = [np.asarray(s[:-1], np.int64) * n + np.asarray(s[1:], np.int64) for s in runs if len(s) > 1]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _counted(pairs: Ints, n: int) -> Array:
    return np.bincount(pairs, minlength=n * n).reshape(n, n).astype(float)


def _size(transitions: int) -> int:
    """The nearest power of two, so that people with about as much data share a table."""
    return 1 << round(math.log2(max(transitions, 1)))
