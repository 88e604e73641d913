"""The protocol-free gateway: readings in, outcomes out, exactly one release per (stream, step).

Every call of `process` is one transaction: all its releases are durable before any of them is returned. How readings
become outcomes is `settle.py`; here is the store, the cache and the lock.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from veilstream.core.release import Uniforms
from veilstream.gateway.outcome import Message, Outcome, Processed
from veilstream.gateway.settle import Key, Settler
from veilstream.gateway.space import Space
from veilstream.gateway.stats import Stats
from veilstream.gateway.store import Batch, Store, StoreError, Stream
from veilstream.gateway.wire import Reading, Refused, Release, decode

MAX_CACHED = 20_000  # streams held in memory
MEMORY_LOG = 64  # steps per stream that a store in memory keeps
PRUNE_EVERY = 100_000  # releases
Compose = Callable[[list[Outcome]], list[Message]]


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
        self.settler = Settler(spaces, max_ahead=max_ahead, clock=clock, uniforms=uniforms, now=now)
        self.spaces, self.store, self.clock, self.now = self.settler.spaces, store, clock, now
        self.max_streams, self.current_step = max_streams, self.settler.current_step
        self.keep = keep if store.durable else min(keep or MEMORY_LOG, MEMORY_LOG)
        for stream in store.streams(limit=1):  # the meter is the same for all of them
            if stream.space in spaces:
                spaces[stream.space].check(stream)
        self.stats = Stats(store.count_streams(), [decode(m) for m in store.latest(Stats.RECENT)])
        self._cache: OrderedDict[Key, Stream] = OrderedDict()
        self._lock = threading.RLock()
        self._since_prune = 0

    # --- readings --------------------------------------------------------------------------------------

    def process(self, readings: Sequence[Reading | Refused], compose: Compose | None = None) -> Processed:
        """One outcome per reading, all committed; `compose` says what to put into the outbox with them."""
        with self._lock, self.stats.commit_time():
            try:
                room = self.max_streams - self.stats.streams
                outcomes, batch = self.settler.settle(readings, self._stream, self.store.find, room)
                for s in batch.streams:
                    self._cache[s.space, s.name] = s
                if compose is not None:
                    batch.outbox = compose(outcomes)
                ids = self._commit(batch)
            except StoreError:
                self._forget()
                raise
            self._committed(outcomes, batch)
            return Processed(outcomes, list(zip(ids, batch.outbox, strict=True)))

    def _stream(self, key: Key) -> Stream:
        s = self._cache.get(key)
        return s if s is not None else self.store.load(*key) or Stream(*key)

    # --- the clock -------------------------------------------------------------------------------------

    def tick(self, space: str, step: int, compose: Callable[[str, Release], Message] | None = None) -> Processed:
        """The release of `step` for every stream of the space, whether a reading came or not."""
        after, done = 0, Processed([], [])
        while True:
            with self._lock, self.stats.commit_time():
                try:
                    found = self.store.streams(after)
                    streams = [self._cache.setdefault((s.space, s.name), s) for s in found if s.space == space]
                    streams = [s for s in streams if s.last_step is None or s.last_step < step]
                    outcomes, batch = self.settler.tick(space, step, streams)
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
