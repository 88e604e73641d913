"""What a gateway must not forget: per-stream state, a log of releases, an outbox.

One transaction commits the new state of the streams, their releases and what is to be published, before anyone sees a
release, durably (`database.py`). One process at a time writes it (`place.py`); its owner may look meanwhile
(`owner.py`), nobody else (mode 0600).

What is read back is what was written, or it is refused (every row has a checksum): a stream that cannot be read is
never taken for a new one.

The only true data is in the column `private` of `streams` (`records.Private`), and in the tables `private_*`: what
could not be handled, as reason, length and hash, and under a clock what became of readings.
"""

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from veilstream.gateway.database import MEMORY, Database
from veilstream.gateway.records import (
    FORWARD,
    KNOWN,
    STREAM,
    WRITE_STREAM,
    Batch,
    Binding,
    StoreError,
    Stream,
    checksum,
    tomb,
)
from veilstream.units import counted

PAGE = 4096  # streams read at once
MAIL = 1000  # outbox entries read at once
AUDIENCE = "finer"  # begins a key: the space whose releases an audience's are made from
NOT_BEHIND = f"space NOT IN (SELECT substr(key, {len(AUDIENCE) + 2}) FROM meta WHERE key GLOB '{AUDIENCE} *')"
OF = "space = ?", f"? = '' AND {NOT_BEHIND}"
MOST_UNHANDLED = 10_000  # messages of which something is kept
PROBE_BYTES = 1 << 18  # as a large commit


class Rows:
    """What can be read of a store; raises where a row is not what was written."""

    def __init__(self, read: Callable[..., list[Any]], damaged: Callable[[str], StoreError]) -> None:
        self.read, self.damaged = read, damaged

    def rows(self, table: str, query: str, values: Sequence[object] = ()) -> list[Any]:
        """Whole rows of the table, their checksums last, which the result lacks."""
        found = self.read(query, values)
        if any(checksum(*row[:-1]) != row[-1] for row in found):
            raise self.damaged(table)
        return [row[:-1] for row in found]

    def select_streams(self, query: str, values: Sequence[object] = ()) -> list[Stream]:
        try:
            return [Stream.of(row) for row in self.rows("streams", f"SELECT {STREAM} FROM streams {query}", values)]
        except msgspec.MsgspecError:
            raise self.damaged("streams") from None

    def find(self, stream: Stream, step: int | None) -> tuple[bytes | None] | None:
        """The release of a step as a 1-tuple (None inside: silent), or None if the log has none."""
        rows = self.releases("releases r WHERE stream = ? AND step = ?", (stream.id, step))
        return (rows[0],) if rows else None

    def before(self, stream: Stream, step: int) -> int | None:
        """The last step before this one that the log has a release of."""
        query = "SELECT step FROM releases WHERE stream = ? AND step < ? ORDER BY step DESC LIMIT 1"
        return next((int(found) for (found,) in self.read(query, (stream.id, step))), None)

    def releases(self, query: str, values: Sequence[object]) -> list[bytes | None]:
        rows = self.rows("releases", f"SELECT r.step, r.stream, r.total, r.message, r.checksum FROM {query}", values)
        return [row[3] for row in rows]


class Store(Rows):
    """Not for several threads at once: the gateway's core holds a lock."""

    def __init__(
        self, path: str | os.PathLike[str], bindings: Mapping[str, Binding], idle: Collection[str] | None = ()
    ) -> None:
        """idle: spaces it holds that are not served this time; None: whatever it holds."""
        self.path = str(path)
        self.durable = self.path != MEMORY
        self.file = Database(path)
        super().__init__(self.file.read, self.file.damaged)
        self.id, self.has_forgotten = self.file.id, "forgotten" in self.file.meta
        try:
            with self.file.commit(counted=False) as serial:
                self._check_served(bindings, idle)
                # spaces whose policy is not the one of the last run
                self.changed = {name for name, binding in bindings.items() if self._bind(name, binding, serial)}
                self._next_id, self._next_stream = (
                    1 + (self.file.db.execute(f"SELECT max(id) FROM {table}").fetchone()[0] or 0)
                    for table in ("outbox", "streams")
                )
        except BaseException:
            self.file.close()
            raise

    # --- what it is ------------------------------------------------------------------------------------

    def _check_served(self, bindings: Mapping[str, Binding], idle: Collection[str] | None) -> None:
        for name in self.spaces():
            if idle is not None and name not in bindings and name not in idle and not self._is_audience(name):
                n = self.file.db.execute("SELECT count(*) FROM streams WHERE space = ?", (name,)).fetchone()[0]
                if n:
                    raise StoreError(
                        f"the store {self.path} holds {counted(n, 'stream')} of the space {name!r}, which is not "
                        "served: under another name their steps would be drawn a second time. Give its route this "
                        f"name ('IN OUT POLICY {name}'), leave them alone with `idle={name}`, or take another `store`"
                    )

    def is_behind(self, name: str, finer: str | None) -> None:
        """Whose releases those of a space are made from; None: it looks at readings."""
        if finer is not None:
            self.note(f"{AUDIENCE} {name}", finer)
        elif self._is_audience(name):  # it was one once
            self.file.write("DELETE FROM meta WHERE key = ?", [(f"{AUDIENCE} {name}",)])

    def _is_audience(self, name: str) -> bool:
        """Nothing is drawn for it but from a finer release of the same step, and that is drawn once."""
        return bool(self.read("SELECT 1 FROM meta WHERE key = ?", (f"{AUDIENCE} {name}",)))

    def _bind(self, space: str, new: Binding, serial: int) -> bool:
        """A changed policy keeps steps and meter; its memory starts afresh, beliefs too if the chain changed."""
        query = "SELECT name, policy, chain, checksum FROM spaces WHERE name = ?"
        old = next((Binding(*row[1:]) for row in self.rows("spaces", query, (space,))), None)
        if old == new:
            return False
        values = space, new.policy, new.chain
        self.file.db.execute("INSERT OR REPLACE INTO spaces VALUES (?, ?, ?, ?)", (*values, checksum(*values)))
        if old is None:
            return False
        after = 0
        while found := self.streams(after):
            after = found[-1].id or 0
            changed = [s for s in found if s.space == space]
            for s in changed:
                s.rebind(old, new)
            self._write(changed, serial)
        return True

    # --- reading -------------------------------------------------------------------------------------

    def spaces(self) -> list[str]:
        return [name for (name,) in self.read("SELECT name FROM spaces ORDER BY name")]

    def load(self, space: str, name: str) -> Stream | None:
        found = self.named(space, name)
        if found is None and self.has_forgotten:  # it goes on from where it was: steps stay closed, bits count on
            found = self.named(space, tomb(self.id, space, name))
            if found is not None:
                found.name = name
        return found

    def named(self, space: str, name: str) -> Stream | None:
        return next(iter(self.select_streams("WHERE space = ? AND name = ?", (space, name))), None)

    def streams(self, after: int = 0, limit: int = PAGE) -> list[Stream]:
        """Streams with an id beyond `after`, in order of id, without those that are forgotten."""
        return self.select_streams(f"WHERE id > ? AND {KNOWN} ORDER BY id LIMIT ?", (after, limit))

    # audience: of that one alone; "": of all that look at readings, which are what anybody can learn

    def count_streams(self, audience: str = "") -> int:
        query = f"SELECT count(*) FROM streams WHERE {KNOWN} AND {OF[not audience]}"
        return int(self.read(query, (audience,))[0][0])

    def total_bits(self, audience: str = "") -> float:
        """What all streams together have leaked."""
        return float(self.read(f"SELECT total(total) FROM streams WHERE {OF[not audience]}", (audience,))[0][0])

    def latest(self, limit: int, audience: str = "", delay: int = 0) -> list[bytes]:
        """The last message that is told of the streams that were made last: so many steps before their last."""
        last = "s.last_step"
        if delay:
            last = "(SELECT max(step) FROM releases WHERE stream = s.id AND step <= s.last_step - ?)"
        query = (
            f"streams s JOIN releases r ON r.stream = s.id AND r.step = {last} "
            f"WHERE r.message IS NOT NULL AND {OF[not audience]} ORDER BY s.id DESC LIMIT ?"
        )
        values = (delay, audience, limit) if delay else (audience, limit)
        return [message for message in self.releases(query, values) if message is not None]

    def unsent(self, after: int = 0, limit: int = MAIL, forward: bool = False) -> list[tuple[int, str, bytes]]:
        """What is not yet confirmed, with ids beyond `after`: id, topic (the stream of what is forwarded), payload."""
        query = "SELECT * FROM outbox WHERE id > ? AND (topic = ?) = ? ORDER BY id LIMIT ?"
        rows = self.rows("outbox", query, (after, FORWARD, forward, limit))
        return [(i, stream if forward else topic, payload) for i, stream, topic, payload in rows]

    # --- writing -------------------------------------------------------------------------------------

    def commit(self, batch: Batch) -> list[int]:
        """All of it, durably, or none; ids of the outbox entries. New streams get their id."""
        new = [s for s in batch.streams if s.id is None]
        for i, s in enumerate(new, self._next_stream):
            s.id = i
        ids = range(self._next_id, self._next_id + len(batch.outbox))
        db = self.file.db
        try:  # rows of streams carry the number; mail alone would not be missed
            with self.file.commit(counted=bool(batch.streams)) as serial:
                self._write(batch.streams, serial)
                rows = [(step, s.id, total, message) for s, step, total, message in batch.releases]
                rows.sort(key=itemgetter(0, 1))
                # a second release of a step breaks the primary key: the whole transaction falls
                db.executemany("INSERT INTO releases VALUES (?, ?, ?, ?, ?)", [(*row, checksum(*row)) for row in rows])
                if batch.outbox:
                    mail = [(i, *m, checksum(i, *m)) for i, m in zip(ids, batch.outbox, strict=True)]
                    db.executemany("INSERT INTO outbox VALUES (?, ?, ?, ?, ?)", mail)
                if batch.counts:
                    self._add_counts(batch.counts)
        except BaseException:
            for s in new:
                s.id = None
            raise
        self._next_id, self._next_stream = ids.stop, self._next_stream + len(new)
        return list(ids)

    def _write(self, streams: Sequence[Stream], serial: int) -> None:
        self.file.db.executemany(WRITE_STREAM, [(*row, checksum(*row)) for s in streams for row in [s.row(serial)]])

    def _add_counts(self, counts: Mapping[str, int]) -> None:
        query = "INSERT INTO private_counts VALUES (?, ?) ON CONFLICT (reason) DO UPDATE SET n = n + excluded.n"
        self.file.db.executemany(query, sorted(counts.items()))

    def confirm(self, ids: Iterable[int]) -> None:
        """These outbox entries have arrived. Not worth a wait for the disk: at worst they are sent again."""
        self.file.write("DELETE FROM outbox WHERE id BETWEEN ? AND ?", _ranges(ids))

    def set_aside(self, reason: str, data: bytes | bytearray) -> None:
        """What is kept of a message that could not be handled."""
        row = reason, len(data), hashlib.sha256(data).hexdigest()
        self.file.write("INSERT INTO private_unhandled VALUES (NULL, ?, ?, ?)", [row])
        query = "DELETE FROM private_unhandled WHERE id <= (SELECT max(id) FROM private_unhandled) - ?"
        self.file.write(query, [(MOST_UNHANDLED,)])

    def probe(self) -> None:
        """Raises unless the store can be written, as much as a large commit writes."""
        self.file.write("INSERT INTO probe VALUES (zeroblob(?))", [(PROBE_BYTES,)], "DELETE FROM probe")

    def filter_of(self, space: str, new: str) -> str:
        """The filter that named the streams of a space; `new` from now on, if there are none yet."""
        found = self.read("SELECT value FROM meta WHERE key = ?", (f"filter {space}",))
        if not found:
            self.note(f"filter {space}", new)
        return str(found[0][0]) if found else new

    def note(self, key: str, value: str) -> None:
        """What is to be known of the store beside its streams."""
        self.file.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(key, value)])

    def prune(self, keep: int) -> None:
        """Forget releases more than `keep` steps old; their steps stay closed."""
        newest = self.read("SELECT max(last_step) FROM streams")[0][0]
        query = (
            "DELETE FROM releases WHERE step <= ? AND step <= "
            "(SELECT last_step - ? FROM streams WHERE streams.id = releases.stream)"
        )
        if newest is not None:
            self.file.write(query, [(newest - keep, keep)])

    def bury(self, s: Stream) -> tuple[int, int]:
        """All that is kept of a stream goes but for its last step and bits: how many releases, and unsent messages."""
        grave = Stream(s.space, tomb(self.id, s.space, s.name), s.id, s.last_step, s.total)
        with self.file.commit() as serial:
            db = self.file.db
            self._write([grave], serial)
            gone = db.execute("DELETE FROM releases WHERE stream = ?", (s.id,)).rowcount
            unsent = db.execute("DELETE FROM outbox WHERE stream = ?", (s.name,)).rowcount
            db.execute("DELETE FROM private_unhandled")  # nobody knows whose they are; a hash of little can be guessed
            db.execute("INSERT OR REPLACE INTO meta VALUES ('forgotten', '1')")
        self.has_forgotten = True
        return gone, unsent

    def close(self) -> None:
        self.file.close()


def _ranges(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of successive numbers, as (first, last)."""
    out: list[tuple[int, int]] = []
    for i in sorted(ids):
        out[-1:] = [(out[-1][0], i)] if out and out[-1][1] == i - 1 else [*out[-1:], (i, i)]
    return out
