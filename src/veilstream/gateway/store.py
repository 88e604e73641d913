"""What a gateway must not forget: per-stream state, a log of releases, an outbox.

One transaction commits the new state of the streams, their releases and what is to be published, before anyone sees a
release, durably (`database.py`). One process at a time writes it (`place.py`); its owner may look meanwhile
(`inspect.py`), nobody else (mode 0600).

What is read back is what was written, or it is refused (`integrity.py`): a stream that cannot be read is never
taken for a new one.

The only true data is in the columns `private_*` of `streams`: the last true state (kept for order m > 1 or a clock
only, else -1), a reading that waits for its tick, how many readings were no numbers, and under feedback how far the
felt distance is over its limit, and how its readings go with the model (`drift.py`: sums, and the last true state); and
in the tables `private_*`: what could not be handled, as reason, length and hash, and under a clock what became of
readings.
"""

import hashlib
import os
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from veilstream.gateway import integrity as seal
from veilstream.gateway.database import MEMORY, Database
from veilstream.gateway.records import FORWARD, Batch, Binding, StoreError, Stream, state_of
from veilstream.gateway.schema import KNOWN, NEW_STREAM, SELECT_STREAM, UPDATE_STREAM
from veilstream.units import counted

PAGE = 4096  # streams read at once
MAIL = 1000  # outbox entries read at once
MOST_UNHANDLED = 10_000  # messages of which something is kept
PROBE_BYTES = 1 << 18  # as a large commit
DAMAGED = (TypeError, ValueError, AttributeError, OverflowError, struct.error)  # of a row that is not as it was


class Store:
    """Not for several threads at once: the gateway's core holds a lock."""

    def __init__(
        self, path: str | os.PathLike[str], bindings: Mapping[str, Binding], idle: Collection[str] | None = ()
    ) -> None:
        """idle: spaces it holds that are not served this time; None: whatever it holds."""
        self.path = str(path)
        self.durable = self.path != MEMORY
        self.file = Database(path)
        self.id, self.has_forgotten = self.file.id, "forgotten" in self.file.meta
        self._back = False  # whether readings have come again for a forgotten stream
        try:
            with self.file.commit(counted=False) as serial:
                self._check_served(bindings, idle)
                # spaces whose policy is not the one of the last run
                self.changed = {name for name, binding in bindings.items() if self._bind(name, binding, serial)}
                self._next_id = 1 + (self.file.db.execute("SELECT max(id) FROM outbox").fetchone()[0] or 0)
        except BaseException:
            self.file.close()
            raise

    # --- what it is ------------------------------------------------------------------------------------

    def _check_served(self, bindings: Mapping[str, Binding], idle: Collection[str] | None) -> None:
        for name in self.spaces():
            if idle is not None and name not in bindings and name not in idle:
                n = self.file.db.execute("SELECT count(*) FROM streams WHERE space = ?", (name,)).fetchone()[0]
                if n:
                    raise StoreError(
                        f"the store {self.path} holds {counted(n, 'stream')} of the space {name!r}, which is not "
                        "served: under another name their steps would be drawn a second time. Give its route this "
                        f"name ('IN OUT POLICY {name}'), leave them alone with `idle={name}`, or take another `store`"
                    )

    def _bind(self, space: str, new: Binding, serial: int) -> bool:
        """A changed policy keeps steps and meter; its memory starts afresh, beliefs too if the chain changed."""
        row = self.file.db.execute("SELECT policy, chain, checksum FROM spaces WHERE name = ?", (space,)).fetchone()
        if row is not None and self._unsealed(seal.of_space, space, *row):
            raise self.file.damaged("spaces")
        if row is not None and Binding(*row[:2]) == new:
            return False
        values = space, new.policy, new.chain
        self.file.db.execute("INSERT OR REPLACE INTO spaces VALUES (?, ?, ?, ?)", (*values, seal.of_space(*values)))
        if row is None:
            return False
        after = 0
        while found := self.streams(after):
            after = found[-1].id or 0
            changed = [s for s in found if s.space == space]
            for s in changed:
                s.rebind(Binding(*row[:2]), new)
            self._update(changed, serial)
        return True

    # --- reading -------------------------------------------------------------------------------------

    def spaces(self) -> list[str]:
        return [name for (name,) in self.file.read("SELECT name FROM spaces ORDER BY name")]

    def load(self, space: str, name: str) -> Stream | None:
        found = self.named(space, name)
        if found is None and self.has_forgotten:  # it goes on from where it was: steps stay closed, bits count on
            found = self.named(space, seal.tomb(self.id, space, name))
            if found is not None:
                found.name, self._back = name, True
        return found

    def named(self, space: str, name: str) -> Stream | None:
        return next(iter(self._streams(SELECT_STREAM + "WHERE space = ? AND name = ?", (space, name))), None)

    def streams(self, after: int = 0, limit: int = PAGE) -> list[Stream]:
        """Streams with an id beyond `after`, in order of id, without those that are forgotten."""
        return self._streams(SELECT_STREAM + f"WHERE id > ? AND {KNOWN} ORDER BY id LIMIT ?", (after, limit))

    def _streams(self, query: str, values: Sequence[object]) -> list[Stream]:
        found = []
        for space, name, number, *state, serial, checksum in self.file.read(query, values):
            if self._unsealed(seal.of_stream, space, name, state, serial, checksum):
                raise self.file.damaged("streams")
            found.append(Stream(space, name, number, *state))
        return found

    def count_streams(self) -> int:
        return int(self.file.read(f"SELECT count(*) FROM streams WHERE {KNOWN}")[0][0])

    def total_bits(self) -> float:
        """What all streams together have leaked."""
        return float(self.file.read("SELECT total(total) FROM streams")[0][0])

    def find(self, stream: Stream, step: int) -> tuple[bytes | None] | None:
        """The release of a step as a 1-tuple (None inside: silent), or None if the log has none."""
        rows = self._releases("releases r WHERE stream = ? AND step = ?", (stream.id, step))
        return (rows[0],) if rows else None

    def latest(self, limit: int) -> list[bytes]:
        """The last message of the streams that were made last."""
        query = (
            "streams s JOIN releases r ON r.stream = s.id AND r.step = s.last_step "
            "WHERE r.message IS NOT NULL ORDER BY s.id DESC LIMIT ?"
        )
        return [message for message in self._releases(query, (limit,)) if message is not None]

    def _releases(self, query: str, values: Sequence[object]) -> list[bytes | None]:
        rows = self.file.read(f"SELECT r.step, r.stream, r.total, r.message, r.checksum FROM {query}", values)
        if any(self._unsealed(seal.of_release, *row) for row in rows):
            raise self.file.damaged("releases")
        return [row[3] for row in rows]

    def unsent(self, after: int = 0, limit: int = MAIL, forward: bool = False) -> list[tuple[int, str, bytes]]:
        """Committed and not yet confirmed: (id, topic, payload) with an id beyond `after`, to a broker or forward."""
        query = "SELECT id, topic, payload, checksum FROM outbox WHERE id > ? AND (substr(topic, 1, 1) = ?) = ? "
        rows = self.file.read(query + "ORDER BY id LIMIT ?", (after, FORWARD, forward, limit))
        if any(self._unsealed(seal.of_mail, *row[1:]) for row in rows):
            raise self.file.damaged("outbox")
        return [row[:3] for row in rows]

    @staticmethod
    def _unsealed(checksum: Callable[..., int], *row: Any) -> bool:
        """Whether a row, its checksum last, is not what was written."""
        try:
            return bool(checksum(*row[:-1]) != row[-1])
        except DAMAGED:
            return True

    # --- writing -------------------------------------------------------------------------------------

    def commit(self, batch: Batch) -> list[int]:
        """All of it, durably, or none; ids of the outbox entries. New streams get their id."""
        new = [s for s in batch.streams if s.id is None]
        ids = range(self._next_id, self._next_id + len(batch.outbox))
        db = self.file.db
        try:  # rows of streams carry the number; mail alone would not be missed
            with self.file.commit(counted=bool(batch.streams)) as serial:
                for s in new:
                    s.id = db.execute(NEW_STREAM, s.key).lastrowid
                for s in batch.streams if self._back else ():
                    db.execute("UPDATE streams SET name = ? WHERE id = ? AND name <> ?", (s.name, s.id, s.name))
                self._update(batch.streams, serial)
                rows = [(step, s.id, total, message) for s, step, total, message in batch.releases]
                rows.sort(key=itemgetter(0, 1))
                # a second release of a step breaks the primary key: the whole transaction falls
                sealed = [(*row, seal.of_release(*row)) for row in rows]  # type: ignore[arg-type]  # they have ids now
                db.executemany("INSERT INTO releases VALUES (?, ?, ?, ?, ?)", sealed)
                if batch.outbox:
                    mail = [(i, *m, seal.of_mail(*m)) for i, m in zip(ids, batch.outbox, strict=True)]
                    db.executemany("INSERT INTO outbox VALUES (?, ?, ?, ?)", mail)
                if batch.counts:
                    self._add_counts(batch.counts)
        except BaseException:
            for s in new:
                s.id = None
            raise
        self._next_id = ids.stop
        return list(ids)

    def _update(self, streams: Sequence[Stream], serial: int) -> None:
        rows = []
        for s in streams:
            state = state_of(s)
            rows.append((*state, serial, seal.of_stream(s.space, s.name, state, serial), s.id))
        self.file.db.executemany(UPDATE_STREAM, rows)

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
        found = self.file.read("SELECT value FROM meta WHERE key = ?", (f"filter {space}",))
        if not found:
            self.note(f"filter {space}", new)
        return str(found[0][0]) if found else new

    def note(self, key: str, value: str) -> None:
        """What is to be known of the store beside its streams."""
        self.file.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(key, value)])

    def prune(self, keep: int) -> None:
        """Forget releases more than `keep` steps old; their steps stay closed."""
        newest = self.file.read("SELECT max(last_step) FROM streams")[0][0]
        query = (
            "DELETE FROM releases WHERE step <= ? AND step <= "
            "(SELECT last_step - ? FROM streams WHERE streams.id = releases.stream)"
        )
        if newest is not None:
            self.file.write(query, [(newest - keep, keep)])

    def bury(self, s: Stream, mail: Sequence[int]) -> int:
        """All that is kept of a stream goes, this mail too, but for its last step and its bits: how many releases."""
        grave = Stream(s.space, seal.tomb(self.id, s.space, s.name), s.id, s.last_step, s.total)
        with self.file.commit() as serial:
            db = self.file.db
            db.execute("UPDATE streams SET name = ? WHERE id = ?", (grave.name, s.id))
            self._update([grave], serial)
            gone = db.execute("DELETE FROM releases WHERE stream = ?", (s.id,)).rowcount
            db.executemany("DELETE FROM outbox WHERE id = ?", [(i,) for i in mail])
            db.execute("DELETE FROM private_unhandled")  # nobody knows whose they are; a hash of little can be guessed
            db.execute("INSERT OR REPLACE INTO meta VALUES ('forgotten', '1')")
        self.has_forgotten = True
        return gone

    def close(self) -> None:
        self.file.close()


def _ranges(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of successive numbers, as (first, last)."""
    out: list[tuple[int, int]] = []
    for i in sorted(ids):
        out[-1:] = [(out[-1][0], i)] if out and out[-1][1] == i - 1 else [*out[-1:], (i, i)]
    return out
