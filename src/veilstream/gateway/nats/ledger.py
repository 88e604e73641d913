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

The log is also the outbox: it holds all releases of the last commit and the `keep` before, and a worker commits a
stream again only after what it committed before was published.
"""

from base64 import b64decode
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

from veilstream.errors import InputError
from veilstream.gateway.nats.layout import NO_KEY
from veilstream.gateway.nats.link import Link, Rejected, Request, Unavailable, read
from veilstream.gateway.nats.names import Names
from veilstream.gateway.settle import Key
from veilstream.gateway.store import Batch, Binding, Stream

SCHEMA = 1
KEEP = 32  # releases of a stream that the log keeps
MOST = 256  # releases of a stream in one commit
MAX_CACHED = 50_000


@dataclass
class Entry(Stream):
    revision: int = 0  # of the key; 0: there is none. `id` is None for a stream that is not yet there
    log: list[tuple[int, bytes | None]] = field(default_factory=list)  # step, message (None: silent)


class _Record(msgspec.Struct, array_like=True):
    """What a key holds."""

    schema: int
    policy: str
    chain: str
    last_step: int | None
    total: float
    memory: bytes | None
    belief: bytes | None
    private_state: int
    private_pending_step: int | None
    private_pending_symbol: int
    private_faults: int
    log: list[tuple[int, bytes | None]]


_decoder = msgspec.msgpack.Decoder(_Record)
_encoder = msgspec.msgpack.Encoder()


def encode(e: Entry, binding: Binding) -> bytes:
    record = _Record(
        SCHEMA,
        binding.policy,
        binding.chain,
        e.last_step,
        e.total,
        e.memory,
        e.belief,
        e.state,
        e.pending_step,
        e.pending_symbol,
        e.faults,
        e.log,
    )
    return _encoder.encode(record)


def decode(key: Key, revision: int, data: bytes, binding: Binding) -> Entry:
    """The stream as it goes on under `binding`: another policy starts with a fresh memory but keeps steps and meter."""
    if not data:  # deleted by hand: a stream that starts anew
        return Entry(*key, revision=revision)
    try:
        r = _decoder.decode(data)
    except msgspec.MsgspecError:
        raise InputError(f"the memory of a stream of {key[0]!r} is not veilstream's; take another --prefix") from None
    if r.schema != SCHEMA:
        raise InputError(f"the memory has schema {r.schema}, this version reads {SCHEMA}")
    e = Entry(*key, id=revision, revision=revision, last_step=r.last_step, total=r.total, faults=r.private_faults)
    e.log = r.log
    if r.policy == binding.policy:
        e.memory = r.memory
    if r.chain == binding.chain:
        e.belief, e.state = r.belief, r.private_state
        e.pending_step, e.pending_symbol = r.private_pending_step, r.private_pending_symbol
    return e


class Ledger:
    """A stream is used by one partition's task at a time."""

    def __init__(self, link: Link, names: Names, bindings: dict[str, Binding], keep: int | None = None) -> None:
        self._link, self._names, self._bindings = link, names, bindings
        self.keep = KEEP if keep is None else max(1, keep)
        self._cache: OrderedDict[Key, Entry] = OrderedDict()
        self.conflicts = 0  # writes that were refused or had no answer

    async def take(self, keys: Collection[Key]) -> dict[Key, Entry]:
        """These streams, from the cache or the leader, without those that cannot be read now.

        They are out of the cache: whatever happens to them, only a commit that held (or `put_back`) returns them.
        """
        out = {k: self._cache.pop(k) for k in keys if k in self._cache}
        missing = [k for k in keys if k not in out]
        call = f"$JS.API.STREAM.MSG.GET.{self._names.memory}"
        requests: list[Request] = [
            (call, msgspec.json.encode({"last_by_subj": self._names.key(*k)}), None) for k in missing
        ]
        for key, answer in zip(missing, await self._link.ask(requests), strict=True):
            try:
                found = read(answer)["message"]
            except Rejected as error:
                if error.err_code == NO_KEY:
                    out[key] = Entry(*key)
            except Unavailable:
                continue
            else:
                out[key] = decode(key, found["seq"], b64decode(found.get("data", "")), self._bindings[key[0]])
        return out

    def put_back(self, entry: Entry) -> None:
        """An entry that was looked at and not changed."""
        self._cache[entry.space, entry.name] = entry

    def find(self, entry: Stream, step: int) -> tuple[bytes | None] | None:
        """As `Store.find`."""
        assert isinstance(entry, Entry)
        return next(((message,) for at, message in reversed(entry.log) if at == step), None)

    async def commit(self, batch: Batch) -> set[Key]:
        """Write every stream of the batch; the keys whose write did not hold, or of which nothing is known."""
        entries = [s for s in batch.streams if isinstance(s, Entry)]
        for s, step, _, message in batch.releases:
            assert isinstance(s, Entry)
            s.log.append((step, message))
        new: dict[int, int] = {}
        for s, *_ in batch.releases:
            new[id(s)] = new.get(id(s), 0) + 1
        requests: list[Request] = []
        for e in entries:
            e.log = e.log[-(self.keep + new.get(id(e), 0)) :]
            headers = {"Nats-Expected-Last-Subject-Sequence": str(e.revision)}
            value = encode(e, self._bindings[e.space])
            requests.append((self._names.key(e.space, e.name), value, headers))
        failed = set()
        for e, answer in zip(entries, await self._link.ask(requests), strict=True):
            try:
                e.revision = e.id = read(answer)["seq"]
            except (Unavailable, Rejected):
                failed.add((e.space, e.name))
            else:
                self.put_back(e)
        self.conflicts += len(failed)
        while len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        return failed
