"""The release loop of frames: what `Mechanism` is for policies that have a table."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.control.accountant import Accountant, Streams
from veilstream.control.feedback import Excess
from veilstream.control.frame import LEAST, At, Frame
from veilstream.control.frame_ladder import Framed, FrameLadder
from veilstream.control.mechanism import SILENT, moved
from veilstream.control.policy import Memory
from veilstream.errors import InputError
from veilstream.model.histories import BLIND
from veilstream.model.information import Array, Index


class OnRung(NamedTuple):
    """The streams on one rung."""

    rows: Any
    frame: Frame
    at: At


class FrameView(NamedTuple):
    """What anybody who saw the releases knows before the next one."""

    parts: list[OnRung]
    over: NDArray[np.bool_]  # beyond the ceiling: nobody looks


class FrameMechanism:
    """Frames with the meter that counts how long their releases are, in bits, and its ceiling."""

    safe: Array | None

    def __init__(self, policy: Framed, ceiling: float | None = None) -> None:
        if ceiling is not None and not ceiling >= 0:
            raise InputError(f"ceiling must be a number of bits >= 0, found {ceiling}")
        self.policy, self.ceiling = policy, ceiling
        self.frames = (policy,) if isinstance(policy, Frame) else tuple(policy.frames)
        self.dearest = np.array([frame.dearest for frame in self.frames])
        self.silent = any(np.isfinite(frame.limit) for frame in self.frames)  # where nobody looks: no limit is broken
        self.safe = np.zeros(1, bool) if self.silent else None  # what may be shown without a look: nothing
        self.meter = Accountant()  # keeps no belief; moves at what they can say

    def start(self, n: int, step: ArrayLike = 0) -> Streams:
        """n streams that begin at these public steps."""
        first = np.broadcast_to(np.asarray(step, np.int64), n).copy()
        return Streams(self.policy.start(n), np.empty((n, 0)), np.zeros(n), first)

    def skip(self, s: Streams, k: int = 1) -> Streams:
        """k steps without a release."""
        return Streams(self.policy.skip(s.memory, k), s.belief, s.total, s.step + k)

    def move(self, s: Streams, account: Excess) -> Streams:
        """The public moves of streams that passed a boundary since their last release."""
        assert isinstance(self.policy, FrameLadder)
        return moved(self.policy, self.meter, self.ceiling, s, account)

    def true_states(self, last: Index, x: Index) -> Index:
        """What the mechanism may look at: the reading."""
        return x

    def look(self, s: Streams) -> FrameView:
        most, rung = np.inf if self.ceiling is None else self.ceiling, s.memory[:, -1]
        rows: list[tuple[int, Any]] = [(0, slice(None))]
        if len(self.frames) > 1:
            rows = [(k, np.flatnonzero(rung == k)) for k in np.unique(rung).tolist()]
        parts = [OnRung(own, self.frames[k], self.frames[k].known(s.memory[own])) for k, own in rows]
        return FrameView(parts, s.total + self.dearest[rung] > most)

    def draw(self, s: Streams, view: FrameView, x: Index, u: Array) -> Index:
        """Packed releases for packed readings (BLIND: do not look). Where a rung has a limit at every step, a stream
        that does not look is silent."""
        unseen, seen = (x == BLIND) | view.over, np.maximum(x, 0)
        y = joined(view, [p.frame.draw(p.at, seen[p.rows], unseen[p.rows], u[p.rows]) for p in view.parts])
        return np.where(unseen & self.silent, SILENT, y)

    def after(self, s: Streams, view: FrameView, y: Index) -> Streams:
        """The state after these releases. Beyond the ceiling nothing is counted, since nobody looked."""
        silent, there = y == SILENT, np.maximum(y, 0)
        memory, q = self._followed(view, there)
        if silent.any():
            memory = np.where(silent[:, None], self.policy.skip(s.memory), memory)
        bits = np.where(view.over | silent, 0.0, -np.log2(np.maximum(q, LEAST)))
        return Streams(memory, s.belief, s.total + bits, s.step + 1)

    def _followed(self, view: FrameView, y: Index) -> tuple[Memory, Array]:
        found = [p.frame.follow(p.at, y[p.rows]) for p in view.parts]
        memory, q = (joined(view, [f[k] for f in found]) for k in (0, 1))
        return memory, q

    def step(self, s: Streams, x: Index, u: Array) -> tuple[Streams, Index]:
        """One step of every stream: packed readings x, uniforms u -> new state, packed releases y."""
        view = self.look(s)
        y = self.draw(s, view, x, u)
        return self.after(s, view, y), y

    def density(self, s: Streams, view: FrameView, x: Index, y: Index) -> Array:
        """log2 a(y|x)/q(y), for offline figures alone; 0 where nobody looked."""
        there, seen = np.maximum(y, 0), np.maximum(x, 0)
        a = joined(view, [p.frame.chance(p.at, seen[p.rows], there[p.rows]) for p in view.parts])
        q = self._followed(view, there)[1]
        unseen = (x == BLIND) | (y == SILENT) | view.over
        return np.where(unseen, 0.0, np.log2(np.maximum(a, LEAST) / np.maximum(q, LEAST)))


def joined(view: FrameView, found: list[NDArray[Any]]) -> NDArray[Any]:
    """What was found of every part, stream by stream."""
    if len(found) == 1:
        return found[0]
    every = np.empty((len(view.over), *found[0].shape[1:]), found[0].dtype)
    for part, own in zip(view.parts, found, strict=True):
        every[part.rows] = own
    return every
