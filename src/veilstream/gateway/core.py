"""The protocol-free gateway: readings in, outcomes out, exactly one release per (stream, step).

Every call of `process` is one transaction: all its releases are durable before any of them is returned. How readings
become outcomes is `scheduler.py`; here is the store, the cache and the lock.

Readings come in messages: as many as may be are one transaction (`handle`), and one that fails costs itself alone. What
fails for a reason nobody thought of is tried again without looking at its values, so that a failure which a value
brings about is a draw that does not look, like every fault of value. What fails even then is refused. Of both the store
keeps, privately, reason, length and hash; never the text.
"""

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, Protocol

import msgspec

from veilstream.control.uniforms import Uniforms
from veilstream.gateway.owner import CLAIMS, Claims
from veilstream.gateway.records import Batch, Key, Outcome, Outgoing, Receipt, StoreError, Stream, Told
from veilstream.gateway.scheduler import Scheduler, Serving
from veilstream.gateway.space import Space
from veilstream.gateway.stats import Stats
from veilstream.gateway.store import MAIL, Store
from veilstream.gateway.wire import Reading, Refusal, decode, encode

log = logging.getLogger("veilstream.intake")
AT_ONCE = 2_000  # readings after which a transaction takes no further message
MAX_CACHED = 20_000  # streams held in memory
MEMORY_LOG = 64  # steps per stream that a store in memory keeps
PRUNE_EVERY = 100_000  # releases
Compose = Callable[[list[Outcome]], list[Outgoing]]  # what goes into the outbox with these outcomes
Found = list[Reading | Refusal] | Refusal


class Outlet(Protocol):
    """Somewhere releases go beside the transport of their readings."""

    def compose(self, told: Sequence[Told]) -> list[Outgoing]:
        """What goes into the outbox with these releases; a function of them alone."""
        ...

    def wake(self) -> None:
        """It is there now."""
        ...


class Core:
    def __init__(
        self,
        spaces: Mapping[str, Space],
        store: Store,
        serving: Serving = Serving(),  # noqa: B008  # frozen
        *,
        uniforms: Uniforms | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.scheduler = Scheduler(spaces, serving, uniforms, now)
        self.spaces, self.store, self.serving = self.scheduler.spaces, store, serving
        self.keep = serving.keep if store.durable else min(serving.keep or MEMORY_LOG, MEMORY_LOG)
        if self.keep is not None:
            self.keep = max(self.keep, *(space.delay for space in spaces.values()))  # not yet told
        try:
            for name, space in spaces.items():
                store.note(f"{CLAIMS} {name}", encode(Claims.of(space)).decode())
                store.is_behind(name, space.finer)
            for stream in store.streams(limit=1):  # the meter is the same for all of them
                if stream.space in spaces:
                    spaces[stream.space].check(stream)
            self.streams = store.count_streams()
            watched = {"": 0} | {name: space.delay for name, space in spaces.items() if space.finer is not None}
            recent = {name: [decode(m) for m in store.latest(Stats.RECENT, name, k)] for name, k in watched.items()}
        except BaseException:
            store.close()
            raise
        self.stats = Stats(self.streams, recent.pop(""), serving.clock)
        # what each audience may see: its releases and counts, no finer ones
        self.audiences = {k: Stats(store.count_streams(k), found, serving.clock) for k, found in recent.items()}
        self.failing = False  # the last write did not hold
        self.outlets: list[Outlet] = []
        self._cache: OrderedDict[Key, Stream] = OrderedDict()
        self._lock = threading.RLock()
        self._since_prune = 0

    # --- readings --------------------------------------------------------------------------------------

    def process(self, readings: Sequence[Reading | Refusal], compose: Compose | None = None) -> Receipt:
        """One outcome per reading, all committed."""
        with self._transaction(shown=not self.serving.clock):
            room = self.serving.max_streams - self.streams
            find, before = self.store.find, self.store.before
            outcomes, batch = self.scheduler.decide(readings, self._stream, find, room, before)
            for s in batch.streams:
                self._cache[s.key] = s
            return self._commit(outcomes, batch, compose)

    def _stream(self, key: Key) -> Stream:
        s = self._cache.get(key)
        return s if s is not None else self.store.load(*key) or Stream(*key)

    def tick(self, space: str, step: int) -> list[Outcome]:
        """Under a clock: the release of `step` for every stream of the space, whether a reading came or not."""
        after, done = 0, list[Outcome]()
        while True:
            with self._transaction():
                found = self.store.streams(after)
                streams = [self._cache.setdefault(s.key, s) for s in found if s.space == space]
                due = [s for s in streams if s.last_step is None or s.last_step < step]
                outcomes, batch = self.scheduler.tick(space, step, due, self._stream, self.store.find)
                batch.counts = self.stats.take_private() if due else {}
                done += self._commit(outcomes, batch, None).outcomes
                self.stats.streams = self.streams
            if not found:
                return done
            after = found[-1].id or 0

    # --- the store -------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, shown: bool = True) -> Iterator[None]:
        """shown: whether anyone may know that it took place; under a clock nobody may know that a reading came."""
        with self._lock, self.stats.commit_time():
            try:
                yield
            except BaseException as error:  # what was drawn was seen by nobody; the store knows what holds
                self._cache.clear()
                self.stats.store_errors += isinstance(error, StoreError)
                self.failing |= shown and isinstance(error, StoreError)
                raise
            self.failing &= not shown

    def _commit(self, outcomes: list[Outcome], batch: Batch, compose: Compose | None) -> Receipt:
        own = [] if compose is None else compose(outcomes)
        batch.outbox = own + [mail for outlet in self.outlets for mail in outlet.compose(batch.told)]
        new = Counter(s.space for s in batch.streams if s.id is None)
        ids = self.store.commit(batch) if batch.streams or batch.outbox else []
        self.streams += sum(n for name, n in new.items() if name not in self.audiences)
        if not self.serving.clock:
            self.stats.streams = self.streams
        self.stats.count(outcomes)
        for name, stats in self.audiences.items():
            stats.streams += new[name]
            stats.count([mine for o in outcomes for mine in o.of(name)])
        while len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        self._since_prune += len(batch.releases)
        if self._since_prune >= PRUNE_EVERY:
            self.prune()
        for outlet in self.outlets if len(ids) > len(own) else ():
            outlet.wake()
        return Receipt(outcomes, list(zip(ids, own, strict=False)))

    def prune(self) -> None:
        """Forget what the log need not keep."""
        if self.keep is not None:
            with self._lock:
                self.store.prune(self.keep)
                self._since_prune = 0

    def unsent(self, after: int = 0, forward: bool = False, limit: int = MAIL) -> list[tuple[int, str, bytes]]:
        with self._lock:
            return self.store.unsent(after, limit, forward)

    def confirm(self, ids: Sequence[int]) -> None:
        with self._lock:
            self.store.confirm(ids)

    def set_aside(self, reason: str, data: bytes | bytearray) -> None:
        """Keep, privately, what may be kept of a message that could not be handled."""
        with self._lock:
            self.store.set_aside(reason, data)

    def probe(self) -> None:
        """Raises StoreError unless the store can be written."""
        with self._lock:
            self.failing = True
            self.store.probe()
            self.failing = False

    def close(self) -> None:
        with self._lock:
            self.store.close()


# --- messages ----------------------------------------------------------------------------------------------


class Message(msgspec.Struct):
    """One message: its bytes, its readings, what became of them, and what its transport must remember of it."""

    data: bytes | bytearray
    found: Found
    note: Any = None
    outcomes: list[Outcome] | None = None

    @property
    def readings(self) -> list[Reading | Refusal]:
        """Its readings; one that could not be read at all counts as one, refused."""
        return self.found if isinstance(self.found, list) else [self.found]

    @classmethod
    def of(
        cls, core: Core, data: bytes | bytearray, read: Callable[[bytes | bytearray], Found], note: Any
    ) -> "Message":
        try:
            return cls(data, read(data), note)
        except Exception as error:  # whatever a message holds, the process lives on
            core.set_aside(type(error).__name__, data)
            _tell(error)
            return cls(data, Refusal.unhandled, note)


def transactions(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """As many as one transaction takes: those after them need not be in memory yet."""
    part, n = list[Message](), 0
    for message in messages:
        part.append(message)
        n += len(message.readings)
        if n >= AT_ONCE:
            yield part
            part, n = [], 0
    if part:
        yield part


def process(core: Core, messages: Sequence[Message], compose: Compose | None = None) -> Receipt:
    """One transaction for all of them; their outcomes are set once it is committed."""
    receipt = core.process([r for message in messages for r in message.readings], compose)
    outcomes = iter(receipt.outcomes)
    for message in messages:
        message.outcomes = list(islice(outcomes, len(message.readings)))
    return receipt


def handle(core: Core, messages: Sequence[Message], work: Callable[[Sequence[Message]], object] | None = None) -> None:
    """`work` (by default `process`) on all of them; messages that cannot be handled have no outcomes in the end."""
    for part in transactions(messages):
        _handle(core, part, work or partial(process, core))


def _handle(core: Core, part: Sequence[Message], work: Callable[[Sequence[Message]], object]) -> None:
    try:
        work(part)
    except (StoreError, ConnectionError):
        raise
    except Exception as error:  # whatever a message holds, the process lives on
        if len(part) > 1:
            for message in part:
                _handle(core, [message], work)
            return
        (message,) = part
        core.set_aside(type(error).__name__, message.data)
        if not _blinded(message):
            _refuse(core, error)
            return
        try:
            work(part)
        except (StoreError, ConnectionError):
            raise
        except Exception as again:
            message.outcomes = None
            _refuse(core, again)


def _blinded(message: Message) -> bool:
    """Take the values out of it; whether it had any."""
    had = False
    for r in message.readings:
        if isinstance(r, Reading) and r.point is not None:
            r.point, had = None, True
    return had


def _refuse(core: Core, error: Exception) -> None:
    core.stats.refused[Refusal.unhandled.name] += 1
    _tell(error)


def _tell(error: Exception) -> None:
    log.error("message_unhandled", extra={"reason": type(error).__name__, "at": place_of(error)})


def place_of(error: BaseException) -> str:
    """Where it was raised; never what it says, which may quote a value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
