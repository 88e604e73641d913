"""The protocol-free gateway: readings in, outcomes out, exactly one release per (stream, step).

Every call of `process` is one transaction: all its releases are durable before any of them is returned. Which
readings are released is settled first, from steps alone; then the streams are advanced together, one numpy step per
round (several readings of one stream take several rounds).
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from veilstream.errors import InputError
from veilstream.gateway.outcome import Message, Outcome, Processed, Status
from veilstream.gateway.space import Plan, Space, Time, advance
from veilstream.gateway.stats import Stats
from veilstream.gateway.wire import Reading, Refused, Release, decode
from veilstream.release import BLIND, SecureUniforms, Uniforms
from veilstream.store import Batch, Store, StoreError, Stream

MAX_CACHED = 20_000  # streams held in memory
MEMORY_LOG = 64  # steps per stream that a store in memory keeps
PRUNE_EVERY = 100_000  # releases
AHEAD_OF_CLOCK, AHEAD_OF_LAST = 1, 1_000_000  # default --max-ahead with and without a period
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

    def process(self, readings: Sequence[Reading | Refused], compose: Compose | None = None) -> Processed:
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
        outcomes: list[Outcome] = [Outcome(r) if isinstance(r, Refused) else None for r in readings]  # type: ignore[misc]
        queues: dict[Key, list[int]] = {}
        for i, r in enumerate(readings):
            if isinstance(r, Reading):
                queues.setdefault((r.space, r.stream), []).append(i)
        symbols = self._encode(readings, queues)
        batch, n_new = Batch(), 0
        plans: dict[str, list[Plan]] = {name: [] for name in self.spaces}
        repeats: list[tuple[int, int]] = []
        for key, waiting in queues.items():
            s = self._stream(key)
            fresh: dict[int, int] = {}  # step -> which reading decides it
            last, held = s.last_step, False
            for i in waiting:
                r = readings[i]
                assert isinstance(r, Reading)
                if r.step in fresh:
                    repeats.append((i, fresh[r.step]))
                    continue
                done = self._closed(s, r, last)
                if done is None and s.id is None and self.stats.streams + n_new >= self.max_streams:
                    done = Outcome(Refused.too_many_streams)
                if done is None and self.clock:
                    self._hold(s, r, int(symbols[i]))
                    done = Outcome(Status.waiting)
                    held = True
                if done is not None:
                    outcomes[i] = done
                    continue
                fresh[r.step] = i
                last = r.step
            if fresh or held:
                n_new += s.id is None
                self._cache[key] = s
                batch.streams.append(s)
                if fresh:
                    steps: list[Time] = [(readings[i].step, readings[i].t) for i in fresh.values()]  # type: ignore[union-attr]
                    plans[key[0]].append(Plan(s, list(fresh.values()), steps))
        for name, plan in plans.items():
            if plan:
                advance(self.spaces[name], plan, symbols, self._uniforms, outcomes, batch, self.clock)
        for i, first in repeats:
            outcomes[i] = Outcome(Status.repeated, outcomes[first].release, outcomes[first].message)
        return outcomes, batch

    def _encode(self, readings: Sequence[Reading | Refused], queues: dict[Key, list[int]]) -> np.ndarray:
        """The true symbol of every reading; BLIND where there is none."""
        symbols = np.full(len(readings), BLIND)
        for name, space in self.spaces.items():
            where = [i for key, waiting in queues.items() if key[0] == name for i in waiting]
            if where:
                symbols[where] = space.encode([readings[i].point for i in where])  # type: ignore[union-attr]
        return symbols

    def _closed(self, s: Stream, r: Reading, last: int | None) -> Outcome | None:
        """The outcome of a reading whose step needs no draw: released before, closed, or too far ahead."""
        if last is not None and r.step <= last:
            found = self.store.find(s, r.step)
            if found is None:
                return Outcome(Refused.late)
            return Outcome(Status.repeated, None if found[0] is None else decode(found[0]), found[0])
        if self.spaces[r.space].grid.period_s is not None:
            now = self.current_step(r.space)
            ahead = 0 if self.clock else AHEAD_OF_CLOCK if self.max_ahead is None else self.max_ahead
            if r.step > now + ahead:
                return Outcome(Refused.ahead)
            if self.clock and r.step < now:
                return Outcome(Refused.late)
        elif last is not None and r.step > last + (AHEAD_OF_LAST if self.max_ahead is None else self.max_ahead):
            return Outcome(Refused.ahead)
        return None

    def current_step(self, space: str) -> int:
        at = self.spaces[space].grid.step(self.now())
        assert at is not None
        return at[0]

    def _stream(self, key: Key) -> Stream:
        s = self._cache.get(key)
        return s if s is not None else self.store.load(*key) or Stream(*key)

    def _hold(self, s: Stream, r: Reading, symbol: int) -> None:
        """Under a clock the first reading of a step waits for its tick."""
        if s.pending_step != r.step:
            s.pending_step, s.pending_symbol = r.step, symbol
            s.faults += symbol == BLIND

    # --- the clock -------------------------------------------------------------------------------------

    def tick(self, space: str, step: int, compose: Callable[[str, Release], Message] | None = None) -> Processed:
        """The release of `step` for every stream of the space, whether a reading came or not."""
        S, after, done = self.spaces[space], 0, Processed([], [])
        while True:
            with self._lock, self.stats.commit_time():
                try:
                    found = self.store.streams(after)
                    streams = [self._cache.setdefault((s.space, s.name), s) for s in found if s.space == space]
                    streams = [s for s in streams if s.last_step is None or s.last_step < step]
                    symbols = np.array([self._clocked(S, s, step) for s in streams], dtype=np.int64)
                    outcomes: list[Outcome] = [None] * len(streams)  # type: ignore[list-item]
                    batch = Batch(streams=streams)
                    plans = [Plan(s, [i], [(step, S.grid.time(step))]) for i, s in enumerate(streams)]
                    if plans:
                        advance(S, plans, symbols, self._uniforms, outcomes, batch, self.clock)
                    if compose is not None:
                        batch.outbox = [compose(space, o.release) for o in outcomes if o.release is not None]
                    ids = self._commit(batch)
                except StoreError:
                    self._forget()
                    raise
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

    # --- the store -------------------------------------------------------------------------------------

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
        if self.keep is not None and self._since_prune >= PRUNE_EVERY:
            self.prune()

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
