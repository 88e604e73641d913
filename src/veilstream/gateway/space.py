"""One policy at work: its mechanism, its map from readings to true symbols, and what each release looks like."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilstream.core.histories import BLIND
from veilstream.core.release import SILENT, Mechanism, MeterName, Streams, Uniforms
from veilstream.errors import InputError
from veilstream.gateway.outcome import Outcome, Status
from veilstream.gateway.store import Batch, Binding, Stream
from veilstream.gateway.wire import Grid, Point, Release, encode

if TYPE_CHECKING:
    from veilstream.artefact import Artefact

Shown = tuple[int | float, float | None, float | None]  # released, lat, lon
Time = tuple[int, int | float | str]  # a step and the t it is released with


class Space:
    def __init__(
        self, artefact: "Artefact", ceiling: float | None = None, meter: MeterName = "exact", force: bool = False
    ) -> None:
        if artefact.policy is None or artefact.problem is None:
            raise InputError("this file is a model without a policy; run `veil solve` on it first")
        if artefact.study_only and not force:
            raise InputError(f"study only, not for release: {'; '.join(artefact.study_only)} (--force to do it anyway)")
        policy, problem, self.states = artefact.policy, artefact.problem, artefact.states
        if self.states is not None and len(self.states) < max(problem.chain.n_symbols, policy.n_outputs):
            raise InputError(
                f"the policy releases {policy.n_outputs} symbols but the file describes {len(self.states)} states"
            )
        self.mechanism = Mechanism(policy, problem, ceiling, meter)
        self.grid = Grid(artefact.period_s, artefact.epoch_s)
        self.ceiling = ceiling
        self.symbols = problem.chain.symbols
        self.n_symbols = problem.chain.n_symbols
        self.keeps_state = self.mechanism.true_states.following is not None
        self.shown = [self._show(y) for y in range(policy.n_outputs)]
        self.binding = Binding(artefact.sha256, self._chain_hash(problem.chain.transition, artefact))
        one = self.mechanism.start(1)
        self._memory, self._belief = one.memory, one.belief  # what a new stream starts from
        self._start = one.memory.tobytes(), one.belief.tobytes()
        self.state_bytes = len(self._start[0]) + len(self._start[1])

    def _show(self, y: int) -> Shown:
        if self.states is None:
            return y, None, None
        place = self.states.decode(y)
        if self.states.is_map:
            return y, float(place[0]), float(place[1])
        return float(place[0]), None, None

    def _chain_hash(self, transition: NDArray[np.float64], artefact: "Artefact") -> str:
        digest = hashlib.sha256(np.ascontiguousarray(transition).tobytes())
        if artefact.states is not None:
            digest.update(artefact.states.coordinates.tobytes())
        return digest.hexdigest()

    def encode(self, points: Sequence[Point]) -> NDArray[np.int64]:
        """The true symbol of every point: the nearest state, or BLIND where nothing can be read. Total."""
        width = 2 if self.states is not None and self.states.is_map else 1
        xy = np.full((len(points), width), np.nan)
        for i, p in enumerate(points):
            if isinstance(p, tuple):
                if width == 2:
                    xy[i] = p
            elif p is not None and width == 1:
                xy[i, 0] = p
        readable = np.isfinite(xy).all(1)
        xy[~readable] = 0
        if self.states is None:
            symbols = np.clip(np.rint(xy[:, 0]), 0, self.n_symbols - 1).astype(np.int64)
        else:
            symbols = self.states.encode(xy)
        return np.where(readable, symbols, BLIND)

    def check(self, stream: Stream) -> None:
        """Raises unless the state kept of a stream is of this policy's and this meter's shape."""
        for kept, own in zip((stream.memory, stream.belief), self._start, strict=True):
            if kept is not None and len(kept) != len(own):
                raise InputError("the store was kept with another --meter; give the same one, or another --store")

    def unpack(self, streams: Sequence[Stream]) -> Streams:
        """The public state of these streams as arrays."""
        m0, b0 = self._start
        memory = bytearray().join(m0 if s.memory is None else s.memory for s in streams)
        belief = bytearray().join(b0 if s.belief is None else s.belief for s in streams)
        return Streams(
            np.frombuffer(memory, self._memory.dtype).reshape(-1, *self._memory.shape[1:]),
            np.frombuffer(belief).reshape(len(streams), *self._belief.shape[1:]),
            np.array([s.total for s in streams]),
        )

    def pack(self, streams: Sequence[Stream], new: Streams) -> None:
        """Write the arrays back."""
        m, b = len(self._start[0]), len(self._start[1])
        memory = np.ascontiguousarray(new.memory, dtype=self._memory.dtype).tobytes()
        belief = np.ascontiguousarray(new.belief).tobytes()
        for i, (s, total) in enumerate(zip(streams, new.total.tolist(), strict=True)):
            s.memory, s.belief, s.total = memory[i * m : i * m + m], belief[i * b : i * b + b], total


class Plan(NamedTuple):
    """What is to be released of one stream: which readings (their places in the batch), and the steps they decide."""

    stream: Stream
    places: list[int]
    steps: list[Time]


def advance(
    S: Space,
    plans: list[Plan],
    symbols: NDArray[np.int64],
    uniforms: Uniforms,
    outcomes: list[Outcome],
    batch: Batch,
    clock: bool,
) -> None:
    """Draw everything planned; streams with more steps stand first, so that every round is a slice."""
    plans.sort(key=lambda p: -len(p.places))
    streams = [p.stream for p in plans]
    now = S.unpack(streams)
    last = np.array([s.state for s in streams])
    lengths = np.array([len(p.places) for p in plans])
    at = np.full((len(plans), lengths[0] + 1), -1, dtype=np.int64)  # last step before the batch, then those planned
    x = np.full((len(plans), lengths[0]), BLIND)
    for i, p in enumerate(plans):
        before = p.stream.last_step
        at[i, : lengths[i] + 1] = [p.steps[0][0] - 1 if before is None else before, *(step for step, _ in p.steps)]
        x[i, : lengths[i]] = symbols[p.places]
    gaps = np.diff(at) - 1
    y, totals = np.empty_like(x), np.empty(x.shape)
    for j in range(lengths[0]):
        n = int((lengths > j).sum())
        gap = gaps[:n, j]
        for k in set(gap[gap > 0].tolist()):
            which = np.flatnonzero(gap == k)
            skipped = S.mechanism.skip(now[which], k)
            now.memory[which], now.belief[which] = skipped.memory, skipped.belief
        z = S.mechanism.true_states(np.where(gap > 0, BLIND, last[:n]), x[:n, j])
        new, y[:n, j] = S.mechanism.step(now[:n], z, uniforms(n))
        now.memory[:n], now.belief[:n], now.total[:n], last[:n] = new.memory, new.belief, new.total, z
        totals[:n, j] = new.total
    S.pack(streams, now)
    keeps = S.keeps_state or clock
    unread = np.where(np.arange(lengths[0]) < lengths[:, None], x == BLIND, False).sum(1)
    for i, p in enumerate(plans):
        s, y_p, total_p = p.stream, y[i].tolist(), totals[i].tolist()
        s.last_step = p.steps[-1][0]
        s.state = int(last[i]) if keeps else BLIND
        s.faults += 0 if clock else int(unread[i])  # under a clock a fault is counted when its reading comes in
        for place, (step, t), shown, total in zip(p.places, p.steps, y_p, total_p, strict=False):
            release = message = None
            if shown != SILENT:
                released, lat, lon = S.shown[shown]
                release = Release(s.name, t, released, lat, lon, round(total, 6))
                message = encode(release)
            batch.releases.append((s, step, total, message))
            outcomes[place] = Outcome(Status.released, release, message)
