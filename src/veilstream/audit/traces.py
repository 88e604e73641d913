"""True sequences and what was released of them, side by side, longest first.

Longest first means that the streams still running at step t are the first `active(t)` rows: ragged traces are batched
without padding steps that never happened.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.control.accountant import Accountant
from veilstream.control.controller import Controller
from veilstream.control.loop import replay
from veilstream.control.mechanism import Mechanism
from veilstream.control.policy import Policy
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Traces:
    """Streams of states and releases; rows may be copies, released anew, of one trace."""

    z: Ints  # streams x steps, true states of the policy's chain; 0 beyond the end
    y: Ints  # streams x steps, releases
    lengths: Ints  # streams, falling
    origin: Ints  # streams: which trace each is a copy of
    first: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # streams: public numbers of the first steps

    def __post_init__(self) -> None:
        if not len(self.first):
            object.__setattr__(self, "first", np.zeros(len(self.lengths), np.int64))

    @property
    def n_traces(self) -> int:
        return int(self.origin.max()) + 1

    @property
    def mask(self) -> NDArray[np.bool_]:
        """streams x steps: which steps happened."""
        return np.arange(self.z.shape[1]) < self.lengths[:, None]

    def active(self, t: int) -> int:
        """How many streams have a step t: the first so many rows."""
        return int((self.lengths > t).sum())

    def rows(self, first: int, last: int) -> "Traces":
        """Some streams, in their order."""
        return self._take(slice(first, last))

    def first_copies(self, n: int = 1) -> "Traces":
        """The first n copies of every trace."""
        order = np.argsort(self.origin, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - np.searchsorted(self.origin[order], self.origin[order])
        return self._take(rank < n)

    def only(self, traces: Sequence[int] | Ints) -> "Traces":
        """The streams of some traces."""
        return self._take(np.isin(self.origin, traces))

    def _take(self, which: Any) -> "Traces":
        of_streams = self.lengths[which], self.origin[which], self.first[which]
        return Traces(self.z[which], self.y[which], *of_streams)


def release(
    policy: Policy,
    paths: Sequence[Ints],
    copies: int = 1,
    seed: int | np.random.Generator = 0,
    first: Sequence[int] | Ints | None = None,
) -> Traces:
    """Every path of states released `copies` times by the policy's own loop.

    first: the public number of each path's first step, which a public clock looks at.
    Under a schedule the streams start spread evenly over its round: short traces see all of it.
    """
    if not len(paths) or copies < 1:
        raise InputError(
            f"an audit needs at least one trace and one copy of each, found {len(paths)} traces, {copies} copies"
        )
    rng = np.random.default_rng(seed)
    n = len(paths) * copies
    lengths = np.repeat([len(p) for p in paths], copies)
    order = np.argsort(-lengths, kind="stable")
    origin = np.repeat(np.arange(len(paths)), copies)[order]
    lengths = lengths[order]
    later = np.zeros(n, np.int64)
    if isinstance(policy, Controller) and policy.turn is not None:
        turns = copies if copies > 1 else n
        later = ((np.arange(n) % turns + rng.random()) * policy.places / turns).astype(np.int64)[order]
    z = np.zeros((n, int(lengths[0])), np.int64)
    for row, i in zip(z, origin, strict=True):
        row[: len(paths[i])] = paths[i]
    if z.max() >= policy.n_states or z.min() < 0:
        raise InputError(f"the traces hold state {z.max()}, the policy knows 0..{policy.n_states - 1}")
    steps = np.zeros(len(paths), np.int64) if first is None else np.asarray(first, np.int64)
    first = steps[origin] + later
    mechanism = Mechanism(policy, meter=Accountant(), sighted=True)
    y, _ = replay(mechanism, z, uniforms=rng.random, first=first, lengths=lengths)
    return Traces(z, y, lengths, origin, first)


def sampled(chain: MarkovChain, policy: Policy, steps: int, streams: int, seed: int = 0) -> Traces:
    """Data drawn from the chain itself: here the model is the truth. With a clock, streams begin all around it."""
    rng = np.random.default_rng(seed)
    first = chain.clock.spread(streams)
    return release(policy, list(chain.sample(steps, streams, rng, first)), seed=rng, first=first)
