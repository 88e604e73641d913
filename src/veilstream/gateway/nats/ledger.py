"""Memory and release log of every stream, in a JetStream key-value bucket, by compare-and-set.

One key holds everything of one stream that must change together: last step, meter, policy memory, belief, the private
columns, and the last releases as they were sent. One write that names the revision it follows is one commit, so two
workers that both believe a stream is theirs cannot both release a step.

    refused write    somebody else was first: the draw is thrown away (nobody saw it), the key is read again
    no answer        the write may have happened, or may yet happen. The key is read again; if our draw is in its log
                     it is the release, else a new draw follows the revision just read. Should the old write arrive
                     after all, one of the two is refused, since both name the same revision
    stale read       harmless. What a past revision says of a step is true for ever (released with this, or closed),
                     and a draw that follows it is refused
    not sealed       an empty, foreign or old value, or one of another stream (`integrity.py`): the stream is
                     refused. Never is it taken for a new one, which would be drawn again; nor does it end the worker

The log is also the outbox: it holds all releases of the last commit and the `keep` before, and a worker commits a
stream again only after what it committed before was published.
"""

import logging
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from veilstream.gateway.nats.client import Link, Rejected, Request
from veilstream.gateway.nats.integrity import Seal
from veilstream.gateway.nats.layout import NO_KEY
from veilstream.gateway.nats.names import Names
from veilstream.gateway.records import Batch, Binding, Key, Stream

log = logging.getLogger("veilstream.nats")
SCHEMA = 5
NONE = Binding("", "")
KEEP = 32  # releases of a stream that the log keeps
MOST = 256  # releases of a stream in one commit
MAX_CACHED = 50_000
MAX_TOLD = 1000  # refused streams that are logged
Log = list[tuple[int, bytes | None]]  # step, message (None: silent)


@dataclass
class Record:
    """A stream with its key: `stream.id` is None for one that is not yet there."""

    stream: Stream
    revision: int = 0  # of the key; 0: there is none
    log: Log = field(default_factory=list)
    binding: Binding = NONE  # what its memory and belief are good for


_decoder = msgspec.msgpack.Decoder(tuple[int, str, str, Stream, Log])  # schema, policy, chain, stream, log
_encoder = msgspec.msgpack.Encoder()


def encode(record: Record) -> bytes:
    return _encoder.encode((SCHEMA, record.binding.policy, record.binding.chain, record.stream, record.log))


def decode(key: Key, revision: int, body: bytes, binding: Binding | None) -> Record | None:
    """The stream as it goes on under `binding`: another policy starts with a fresh memory but keeps steps and meter.

    None if this version cannot read it.
    """
    try:
        schema, policy, chain, s, log = _decoder.decode(body)
    except msgspec.MsgspecError:
        return None
    if schema != SCHEMA or s.key != key:
        return None
    s.id, old = revision, Binding(policy, chain)
    s.rebind(old, binding or old)
    return Record(s, revision, log, binding or old)


@dataclass(frozen=True)
class Loan:
    """Streams out of the ledger's cache: whatever happens to them, only a commit that holds returns them."""

    records: dict[Key, Record]
    refused: frozenset[Key]  # there is something, and it is not ours

    def stream(self, key: Key) -> Stream:
        return self.records[key].stream

    def forgotten(self, stream: Stream) -> bool:
        """Whether nothing but its last step and its bits is there: a clock does not tick for it."""
        empty = stream.memory is None and stream.private.pending_step is None and not self.records[stream.key].log
        return empty and stream.last_step is not None

    def find(self, stream: Stream, step: int) -> tuple[bytes | None] | None:
        """As `Store.find`."""
        log = self.records[stream.key].log
        return next(((message,) for at, message in reversed(log) if at == step), None)


class Ledger:
    """A stream is used by one partition's task at a time."""

    def __init__(
        self, link: Link, names: Names, seal: Seal, bindings: Mapping[str, Binding], keep: int | None = None
    ) -> None:
        """bindings: of the spaces that are served; streams of others stay as they are."""
        self._link, self._names, self.seal, self._bindings = link, names, seal, bindings
        self.keep = KEEP if keep is None else max(1, keep)
        self._cache: OrderedDict[Key, Record] = OrderedDict()
        self.conflicts = 0  # writes that were refused or had no answer
        self._told: set[Key] = set()

    async def lend(self, keys: Collection[Key]) -> Loan:
        """These streams, from the cache or the leader, without those that cannot be read now, or are refused."""
        records = {k: self._cache.pop(k) for k in keys if k in self._cache}
        missing = [k for k in keys if k not in records]
        call = f"$JS.API.STREAM.MSG.GET.{self._names.memory}"
        requests: list[Request] = [
            (call, msgspec.json.encode({"last_by_subj": self._names.key(*k)}), None) for k in missing
        ]
        refused = set[Key]()
        for key, answer in zip(missing, await self._link.ask(requests), strict=True):
            if isinstance(answer, dict):
                record = self._read(key, answer["message"])
                if record is None:
                    refused.add(key)
                else:
                    records[key] = record
            elif isinstance(answer, Rejected) and answer.err_code == NO_KEY:
                records[key] = Record(Stream(*key), binding=self._bindings.get(key[0], NONE))
        return Loan(records, frozenset(refused))

    def _read(self, key: Key, found: dict[str, Any]) -> Record | None:
        revision, body = found["seq"], self.seal.recorded(self._names.key(*key), found)
        record = None if body is None else decode(key, revision, body, self._bindings.get(key[0]))
        if record is None and key not in self._told and len(self._told) < MAX_TOLD:
            self._told.add(key)
            unsealed = "not sealed by us, or old" if found.get("data") else "empty"
            why = unsealed if body is None else "this version cannot read it"
            log.error("memory_refused", extra={"space": key[0], "stream": key[1], "revision": revision, "reason": why})
        return record

    async def commit(self, loan: Loan, batch: Batch) -> set[Key]:
        """Write every stream of the batch; the keys whose write did not hold, or of which nothing is known.

        All others are what the bucket holds, and go back into the cache.
        """
        changed = [loan.records[s.key] for s in batch.streams]
        for r in changed:
            r.log = r.log[-self.keep :]
        for s, step, _, message in batch.releases:
            loan.records[s.key].log.append((step, message))
        requests: list[Request] = []
        for r in changed:
            requests.append(self.seal.record(self._names.key(*r.stream.key), encode(r), r.revision))
        failed = set()
        for r, answer in zip(changed, await self._link.ask(requests), strict=True):
            if isinstance(answer, dict):
                r.revision = r.stream.id = answer["seq"]
            else:
                failed.add(r.stream.key)
        self.conflicts += len(failed)
        self._cache.update((key, r) for key, r in loan.records.items() if key not in failed)
        while len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        return failed
