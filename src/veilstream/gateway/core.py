"""The protocol-free gateway: readings in, outcomes out, exactly one release per (stream, step).

Every call of `process` is one transaction: all its releases are durable before any of them is returned. Streams are
advanced together, one numpy step per round; several readings of one stream take several rounds.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

from veilstream.errors import InputError
from veilstream.gateway.space import Space
from veilstream.gateway.stats import Stats
from veilstream.gateway.wire import Reading, Refused, Release, decode, encode
from veilstream.release import BLIND, SILENT, SecureUniforms, Uniforms
from veilstream.store import Batch, Store, StoreError, Stream

MAX_CACHED = 20_000  # streams held in memory
MEMORY_LOG = 64  # steps per stream that a store in memory keeps
AHEAD_OF_CLOCK, AHEAD_OF_LAST = 1, 1_000_000  # default --max-ahead with and without a period


class Status(Enum):
    released = "released"
    repeated = "the same release again"
    waiting = "accepted; the release comes with the clock"


class Outcome(NamedTuple):
    """What became of a reading. `release` is None when the step is silent or still waits for the clock."""

    status: Status | Refused
    release: Release | None = None

    @property
    def refused(self) -> bool:
        return isinstance(self.status, Refused)


Message = tuple[str, bytes]  # topic, payload
Compose = Callable[[list[Outcome]], list[Message]]
Key = tuple[str, str]  # space, stream


class Core:
    def __init__(
        self,
        spaces: Mapping[str, Space],
        store: Store,
        *,
        max_ahead: int | None = None,
        clock: bool = False,
        max_streams: int = 1_000_000,
        keep: int | None = None,
        uniforms: Uniforms | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        if clock and any(S.grid.period_s is None for S in spaces.values()):
            raise InputError("--clock needs a policy with a period (fit with --period)")
        self.spaces, self.store, self.clock, self.now = dict(spaces), store, clock, now
        self.max_ahead, self.max_streams = max_ahead, max_streams
        self.keep = keep if store.durable else min(keep or MEMORY_LOG, MEMORY_LOG)
        self.stats = Stats(store.count_streams(), [decode(m) for m in store.latest(Stats.RECENT)])
        self._uniforms = uniforms or SecureUniforms()
        self._cache: OrderedDict[Key, Stream] = OrderedDict()
        self._lock = threading.RLock()
        self._since_prune = 0

    # --- readings --------------------------------------------------------------------------------------

    def process(self, readings: Sequence[Reading | Refused], compose: Compose | None = None) -> "Processed":
        """One outcome per reading, all committed; `compose` says what to put into the outbox with them."""
        with self._lock, self.stats.commit_time():
            try:
                outcomes, batch = self._settle(readings)
                if compose is not None:
                    batch.outbox = compose(outcomes)
                ids = self._commit(batch)
            except StoreError:
                self._forget()
                raise
            self._committed(outcomes, batch)
            return Processed(outcomes, list(zip(ids, batch.outbox, strict=True)))

    def _settle(self, readings: Sequence[Reading | Refused]) -> tuple[list[Outcome], Batch]:
        outcomes: list[Outcome] = [None] * len(readings)  # type: ignore[list-item]
        queues: dict[Key, deque[int]] = {}
        for i, r in enumerate(readings):
            if isinstance(r, Refused):
                outcomes[i] = Outcome(r)
            else:
                queues.setdefault((r.space, r.stream), deque()).append(i)
        symbols = self._encode(readings)
        batch, touched, fresh, n_new = Batch(), {}, {}, 0
        while queues:
            chosen: dict[str, list[tuple[int, Stream]]] = {}
            for key in list(queues):
                waiting, s = queues[key], self._stream(key)
                while waiting:
                    i = waiting.popleft()
                    r = readings[i]
                    assert isinstance(r, Reading)
                    done = self._closed(s, r, fresh)
                    if done is None and s.id is None and id(s) not in touched:
                        done = self._new_stream(key, s, n_new)
                        n_new += done is None
                    if done is None and self.clock:
                        done = self._hold(s, r, int(symbols[i]))
                        touched[id(s)] = s
                    if done is None:
                        chosen.setdefault(r.space, []).append((i, s))
                        touched[id(s)] = s
                        break
                    outcomes[i] = done
                if not waiting:
                    del queues[key]
            for space, picked in chosen.items():
                where = [i for i, _ in picked]
                steps = [(s, readings[i].step, readings[i].t) for i, s in picked]  # type: ignore[union-attr]
                for i, release, (s, step, _) in zip(
                    where, self._advance(space, steps, symbols[where], batch), steps, strict=True
                ):
                    outcomes[i] = fresh[id(s), step] = Outcome(Status.released, release)
        batch.streams = list(touched.values())
        return outcomes, batch

    def _encode(self, readings: Sequence[Reading | Refused]) -> np.ndarray:
        symbols = np.full(len(readings), BLIND)
        by_space: dict[str, list[int]] = {}
        for i, r in enumerate(readings):
            if isinstance(r, Reading):
                by_space.setdefault(r.space, []).append(i)
        for space, where in by_space.items():
            symbols[where] = self.spaces[space].encode([readings[i].point for i in where])  # type: ignore[union-attr]
        return symbols

    def _closed(self, s: Stream, r: Reading, fresh: dict[tuple[int, int], Outcome]) -> Outcome | None:
        """The outcome of a reading whose step needs no draw: released before, closed, or too far ahead."""
        if s.last_step is not None and r.step <= s.last_step:
            if (id(s), r.step) in fresh:
                return Outcome(Status.repeated, fresh[id(s), r.step].release)
            found = self.store.find(s, r.step)
            if found is None:
                return Outcome(Refused.late)
            return Outcome(Status.repeated, None if found[0] is None else decode(found[0]))
        limit = self.latest_step(r.space, s)
        if limit is not None and r.step > limit:
            return Outcome(Refused.ahead)
        if self.clock and r.step < self.current_step(r.space):
            return Outcome(Refused.late)
        return None

    def latest_step(self, space: str, s: Stream) -> int | None:
        """The last step that is accepted now."""
        if self.spaces[space].grid.period_s is not None:
            ahead = 0 if self.clock else AHEAD_OF_CLOCK if self.max_ahead is None else self.max_ahead
            return self.current_step(space) + ahead
        if s.last_step is None:
            return None
        return s.last_step + (AHEAD_OF_LAST if self.max_ahead is None else self.max_ahead)

    def current_step(self, space: str) -> int:
        at = self.spaces[space].grid.step(self.now())
        assert at is not None
        return at[0]

    def _stream(self, key: Key) -> Stream:
        s = self._cache.get(key)
        if s is None:
            s = self.store.load(*key) or Stream(*key)
            if s.id is not None:
                self._cache[key] = s
        return s

    def _new_stream(self, key: Key, s: Stream, n_new: int) -> Outcome | None:
        if self.stats.streams + n_new >= self.max_streams:
            return Outcome(Refused.too_many_streams)
        self._cache[key] = s
        return None

    def _hold(self, s: Stream, r: Reading, symbol: int) -> Outcome:
        """Under a clock the first reading of a step waits for its tick."""
        if s.pending_step != r.step:
            s.pending_step, s.pending_symbol = r.step, symbol
            s.faults += symbol == BLIND
        return Outcome(Status.waiting)

    # --- the draw --------------------------------------------------------------------------------------

    def _advance(
        self, space: str, steps: list[tuple[Stream, int, int | float | str]], x: np.ndarray, batch: Batch
    ) -> list[Release | None]:
        """One step of each of these streams, all different: (stream, step, released t), true symbols x."""
        S = self.spaces[space]
        streams = [s for s, _, _ in steps]
        now = S.unpack(streams)
        last = np.array([s.state for s in streams])
        gaps = np.array([0 if s.last_step is None else step - s.last_step - 1 for s, step, _ in steps])
        for k in np.unique(gaps[gaps > 0]).tolist():
            which = gaps == k
            skipped = S.mechanism.skip(now[which], k)
            memory, belief = now.memory.copy(), now.belief.copy()
            memory[which], belief[which] = skipped.memory, skipped.belief
            now = type(now)(memory, belief, now.total)
        z = S.mechanism.true_states(np.where(gaps > 0, BLIND, last), x)
        new, y = S.mechanism.step(now, z, self._uniforms(len(z)))
        S.pack(streams, new)
        keep_state = S.keeps_state or self.clock
        releases: list[Release | None] = []
        for (s, step, t), y_s, z_s, unread in zip(steps, y.tolist(), z.tolist(), (x == BLIND).tolist(), strict=True):
            s.last_step = step
            s.state = z_s if keep_state else BLIND
            s.faults += unread and not self.clock
            total = s.total
            release = None
            if y_s != SILENT:
                release = Release(s.name, t, *S.shown[y_s], round(total, 6))
            batch.releases.append((s, step, total, None if release is None else encode(release)))
            releases.append(release)
        return releases

    def tick(self, space: str, step: int, compose: Callable[[str, Release], Message] | None = None) -> "Processed":
        """Under a clock: the release of `step` for every stream of the space, whether a reading came or not."""
        S, after, done = self.spaces[space], 0, Processed([], [])
        while True:
            with self._lock, self.stats.commit_time():
                try:
                    found = self.store.streams(after)
                    streams = [self._cache.setdefault((s.space, s.name), s) for s in found if s.space == space]
                    streams = [s for s in streams if s.last_step is None or s.last_step < step]
                    steps = [(s, step, S.grid.time(step)) for s in streams]
                    batch = Batch(streams=streams)
                    x = np.array([self._clocked(S, s, step) for s in streams], dtype=np.int64)
                    releases = self._advance(space, steps, x, batch) if streams else []
                    if compose is not None:
                        batch.outbox = [compose(space, r) for r in releases if r is not None]
                    ids = self._commit(batch)
                except StoreError:
                    self._forget()
                    raise
                outcomes = [Outcome(Status.released, r) for r in releases]
                self._committed(outcomes, batch)
                done.outcomes.extend(outcomes)
                done.outbox.extend(zip(ids, batch.outbox, strict=True))
            if not found:
                return done
            after = found[-1].id or 0

    def _clocked(self, S: Space, s: Stream, step: int) -> int:
        """The symbol to release for: the reading that waits, else the last known one, else none."""
        if s.pending_step == step:
            return s.pending_symbol
        return int(S.symbols[s.state]) if s.state != BLIND else BLIND

    def _commit(self, batch: Batch) -> list[int]:
        new = sum(s.id is None for s in batch.streams)
        ids = self.store.commit(batch) if batch.streams or batch.outbox else []
        self.stats.streams += new
        return ids

    def _forget(self) -> None:
        """Whatever was drawn and not committed was seen by nobody; the store knows what holds."""
        self._cache.clear()
        self.stats.store_errors += 1

    def _committed(self, outcomes: list[Outcome], batch: Batch) -> None:
        self.stats.count(outcomes)
        while len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        self._since_prune += len(batch.releases)
        if self.keep is not None and self._since_prune >= 100_000:
            self.prune()

    # --- the outbox ------------------------------------------------------------------------------------

    def prune(self) -> None:
        if self.keep is not None:
            with self._lock:
                self.store.prune(self.keep)
                self._since_prune = 0

    def unsent(self, after: int = 0) -> list[tuple[int, str, bytes]]:
        with self._lock:
            return self.store.unsent(after)

    def confirm(self, ids: Sequence[int]) -> None:
        with self._lock:
            self.store.confirm(ids)

    def probe(self) -> None:
        """Raises StoreError unless the store can be written."""
        with self._lock:
            self.store.probe()

    def close(self) -> None:
        with self._lock:
            self.store.close()


class Processed(NamedTuple):
    outcomes: list[Outcome]
    outbox: list[tuple[int, Message]]  # ids of what waits to be published
