"""What a gateway must not forget: per-stream state, a log of releases, an outbox. SQLite, durable.

One transaction commits the new state of the streams, their releases and what is to be published, before anyone sees a
release. WAL with synchronous=FULL: what was committed survives `kill -9` and power loss. One process at a time writes
it (it holds a lock on the count beside it); its owner may look meanwhile (`look.py`), nobody else (mode 0600).

What is read back is what was written, or it is refused (`seal.py`): a stream that cannot be read is never taken for a
new one.

The only true data is in the columns `private_*` of `streams`: the last true state (kept for order m > 1 or a clock
only, else -1), a reading that waits for its tick, how many readings were no numbers, and under feedback how far the
felt distance is over its limit, and how its readings go with the model (`drift.py`: sums, and the last true state); and
in the tables `private_*`: what could not be handled, as reason, length and hash, and under a clock what became of
readings.
"""

import hashlib
import os
import sqlite3
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import Any

from veilstream.gateway import seal
from veilstream.gateway.kept import FORWARD, Batch, Binding, StoreError, Stream, state_of
from veilstream.gateway.schema import KNOWN, NEW_STREAM, SCHEMA, SELECT_STREAM, TABLES, UPDATE_STREAM, UPGRADES
from veilstream.units import counted

MEMORY = ":memory:"
LOCK_WAIT_S = 1.0
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
        self._gone: str | None = None  # why it cannot be used any more
        self._count: seal.Count | None = None
        self._place = seal.Place()
        self._back = False  # whether readings have come again for a forgotten stream
        if self.durable:
            seal.make_private(self.path)
        with self._errors():
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=LOCK_WAIT_S)
        try:
            with self._errors():
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.execute("PRAGMA secure_delete = ON")  # pruned rows and old private states are overwritten
            with self._transaction():
                self.id = self._identify()
                self._check_whole()
                self._check_served(bindings, idle)
                # spaces whose policy is not the one of the last run
                self.changed = {name for name, binding in bindings.items() if self._bind(name, binding)}
                self._next_id = 1 + (self._db.execute("SELECT max(id) FROM outbox").fetchone()[0] or 0)
            if self.durable:
                self._open_place()
        except BaseException:
            self._abandon()
            raise

    # --- what it is ------------------------------------------------------------------------------------

    def _identify(self) -> str:
        """The store's own name; its tables are made if the file is new."""
        db = self._db
        self._new = not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
        if self._new:
            if db.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise StoreError(f"{self.path} is an SQLite file but not a veilstream store")
            for statement in TABLES.split(";"):
                db.execute(statement)
            made = str(SCHEMA), os.urandom(6).hex()
            db.execute("INSERT INTO meta VALUES ('schema', ?), ('id', ?), ('closed', '0')", made)
        found = dict(db.execute("SELECT key, value FROM meta"))
        if found.get("schema") in UPGRADES:
            db.execute(UPGRADES[found["schema"]])
            db.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (str(SCHEMA),))
        elif found.get("schema") != str(SCHEMA):
            raise StoreError(f"{self.path} has schema {found.get('schema')}, this version reads {SCHEMA}")
        self._closed_at, self.has_forgotten = found.get("closed"), "forgotten" in found
        if not str(found.get("id", "")).isalnum():
            raise self._damaged("meta")
        return str(found["id"])

    def _check_whole(self) -> None:
        """No stream may be missing: it would be taken for a new one. No commit: its steps would be drawn again."""
        for table in ("streams", "spaces"):
            if self._db.execute(f"PRAGMA integrity_check({table})").fetchone() != ("ok",):
                raise self._damaged(table)
        self._serial = self._db.execute("SELECT max(serial) FROM streams").fetchone()[0] or 0
        if not isinstance(self._serial, int):
            raise self._damaged("streams")
        if not self.durable:
            return
        try:
            self._count = seal.Count(self.path + "-count")
            self._count.lock()
        except BlockingIOError:
            raise StoreError(_line(self.path, "locked")) from None
        except OSError as error:
            raise StoreError(f"cannot open the store's count {self.path}-count: {error.strerror}") from None
        found = self._count.read()
        if found is None:
            lost = not self._new and self._closed_at != str(self._serial)
        else:
            lost = found[0] != self.id or found[1] > self._serial
        if lost:
            raise StoreError(
                f"the store {self.path} has lost commits (its -wal or -count file is gone, or it is an old copy): "
                "their steps would be drawn a second time. Put all its files back as they were, or begin anew with "
                "another `store` and treat the streams as new people"
            )

    def _check_served(self, bindings: Mapping[str, Binding], idle: Collection[str] | None) -> None:
        for (name,) in self._db.execute("SELECT name FROM spaces ORDER BY name").fetchall():
            if idle is not None and name not in bindings and name not in idle:
                n = self._db.execute("SELECT count(*) FROM streams WHERE space = ?", (name,)).fetchone()[0]
                if n:
                    raise StoreError(
                        f"the store {self.path} holds {counted(n, 'stream')} of the space {name!r}, which is not "
                        "served: under another name their steps would be drawn a second time. Give its route this "
                        f"name ('IN OUT POLICY {name}'), leave them alone with `idle={name}`, or take another `store`"
                    )

    def _bind(self, space: str, new: Binding) -> bool:
        """A changed policy keeps steps and meter; its memory starts afresh, beliefs too if the chain changed."""
        row = self._db.execute("SELECT policy, chain, checksum FROM spaces WHERE name = ?", (space,)).fetchone()
        if row is not None and self._unsealed(seal.of_space, space, *row):
            raise self._damaged("spaces")
        if row is not None and Binding(*row[:2]) == new:
            return False
        values = space, new.policy, new.chain
        self._db.execute("INSERT OR REPLACE INTO spaces VALUES (?, ?, ?, ?)", (*values, seal.of_space(*values)))
        if row is None:
            return False
        after = 0
        while found := self.streams(after):
            after = found[-1].id or 0
            changed = [s for s in found if s.space == space]
            for s in changed:
                s.memory, s.excess, s.mark, s.drift = None, 0.0, 0.0, None
                if row[1] != new.chain:
                    s.belief, s.state, s.pending_step, s.pending_symbol = None, -1, None, -1
            self._update(changed)
        return True

    def _open_place(self) -> None:
        """The count first, for who is killed in between; then the file says it is in use: no log vanishes unseen."""
        assert self._count is not None
        with self._errors():
            self._count.write(self.id, self._serial, lasting=True)
            self._db.execute("DELETE FROM meta WHERE key = 'closed'")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._db.execute("UPDATE meta SET value = value WHERE key = 'id'")  # so that there is a log
        self._place = seal.Place(self.path, self.path + "-wal")

    # --- reading -------------------------------------------------------------------------------------

    def load(self, space: str, name: str) -> Stream | None:
        query = SELECT_STREAM + "WHERE space = ? AND name = ?"
        if found := self._streams(query, (space, name)):
            return found[0]
        # a forgotten stream goes on from where it was: its steps stay closed, its bits count on
        for s in self._streams(query, (space, seal.tomb(self.id, space, name))) if self.has_forgotten else ():
            s.name, self._back = name, True
            return s
        return None

    def streams(self, after: int = 0, limit: int = PAGE) -> list[Stream]:
        """Streams with an id beyond `after`, in order of id, without those that are forgotten."""
        return self._streams(SELECT_STREAM + f"WHERE id > ? AND {KNOWN} ORDER BY id LIMIT ?", (after, limit))

    def _streams(self, query: str, values: Sequence[object]) -> list[Stream]:
        found = []
        for space, name, number, *state, serial, checksum in self._read(query, values):
            if self._unsealed(seal.of_stream, space, name, state, serial, checksum):
                raise self._damaged("streams")
            found.append(Stream(space, name, number, *state))
        return found

    def count_streams(self) -> int:
        return int(self._read(f"SELECT count(*) FROM streams WHERE {KNOWN}")[0][0])

    def total_bits(self) -> float:
        """What all streams together have leaked."""
        return float(self._read("SELECT total(total) FROM streams")[0][0])

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
        rows = self._read(f"SELECT r.step, r.stream, r.total, r.message, r.checksum FROM {query}", values)
        if any(self._unsealed(seal.of_release, *row) for row in rows):
            raise self._damaged("releases")
        return [row[3] for row in rows]

    def unsent(self, after: int = 0, limit: int = MAIL, forward: bool = False) -> list[tuple[int, str, bytes]]:
        """Committed and not yet confirmed: (id, topic, payload) with an id beyond `after`, to a broker or forward."""
        query = "SELECT id, topic, payload, checksum FROM outbox WHERE id > ? AND (substr(topic, 1, 1) = ?) = ? "
        rows = self._read(query + "ORDER BY id LIMIT ?", (after, FORWARD, forward, limit))
        if any(self._unsealed(seal.of_mail, *row[1:]) for row in rows):
            raise self._damaged("outbox")
        return [row[:3] for row in rows]

    def _read(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        with self._errors():
            return self._db.execute(query, values).fetchall()

    @staticmethod
    def _unsealed(checksum: Callable[..., int], *row: Any) -> bool:
        """Whether a row, its checksum last, is not what was written."""
        try:
            return bool(checksum(*row[:-1]) != row[-1])
        except DAMAGED:
            return True

    def _damaged(self, table: str) -> StoreError:
        return StoreError(
            f"the store {self.path} is damaged (table {table}); nothing is released from it. Put back a copy made "
            "while no gateway ran, with all its files, or begin anew with another `store` and treat the streams as new "
            "people"
        )

    # --- writing -------------------------------------------------------------------------------------

    def commit(self, batch: Batch) -> list[int]:
        """All of it, durably, or none; ids of the outbox entries. New streams get their id."""
        new = [s for s in batch.streams if s.id is None]
        ids = range(self._next_id, self._next_id + len(batch.outbox))
        db = self._db
        try:
            with self._transaction():
                for s in new:
                    s.id = db.execute(NEW_STREAM, s.key).lastrowid
                for s in batch.streams if self._back else ():
                    db.execute("UPDATE streams SET name = ? WHERE id = ? AND name <> ?", (s.name, s.id, s.name))
                self._update(batch.streams)
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
            self._settle(self._serial + bool(batch.streams))  # their rows carry it; mail alone would not be missed
        except BaseException:
            for s in new:
                s.id = None
            raise
        self._next_id = ids.stop
        return list(ids)

    def _update(self, streams: Sequence[Stream]) -> None:
        serial, rows = self._serial + 1, []
        for s in streams:
            state = state_of(s)
            rows.append((*state, serial, seal.of_stream(s.space, s.name, state, serial), s.id))
        self._db.executemany(UPDATE_STREAM, rows)

    def _add_counts(self, counts: Mapping[str, int]) -> None:
        query = "INSERT INTO private_counts VALUES (?, ?) ON CONFLICT (reason) DO UPDATE SET n = n + excluded.n"
        self._db.executemany(query, sorted(counts.items()))

    def _settle(self, serial: int) -> None:
        """After a commit, before anyone hears of it: it is in the file that everyone else would open."""
        self._serial = serial
        if self._count is not None:
            try:
                self._count.write(self.id, self._serial)
            except OSError as error:
                raise StoreError(f"the store {self.path} cannot be used: {error.strerror}") from None
        left = self._place.left()
        if left is not None:
            self._gone = f"{left} was deleted or replaced while in use; nothing is released any more"
            raise StoreError(self._gone)

    def confirm(self, ids: Iterable[int]) -> None:
        """These outbox entries have arrived. Not worth a wait for the disk: at worst they are sent again."""
        self._write("DELETE FROM outbox WHERE id BETWEEN ? AND ?", _ranges(ids))

    def set_aside(self, reason: str, data: bytes | bytearray) -> None:
        """What is kept of a message that could not be handled."""
        row = reason, len(data), hashlib.sha256(data).hexdigest()
        self._write("INSERT INTO private_unhandled VALUES (NULL, ?, ?, ?)", [row])
        query = "DELETE FROM private_unhandled WHERE id <= (SELECT max(id) FROM private_unhandled) - ?"
        self._write(query, [(MOST_UNHANDLED,)])

    def probe(self) -> None:
        """Raises unless the store can be written, as much as a large commit writes."""
        self._write("INSERT INTO probe VALUES (zeroblob(?))", [(PROBE_BYTES,)], "DELETE FROM probe")

    def filter_of(self, space: str, new: str) -> str:
        """The filter that named the streams of a space; `new` from now on, if there are none yet."""
        found = self._read("SELECT value FROM meta WHERE key = ?", (f"filter {space}",))
        if not found:
            self.note(f"filter {space}", new)
        return str(found[0][0]) if found else new

    def note(self, key: str, value: str) -> None:
        """What is to be known of the store beside its streams."""
        self._write("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(key, value)])

    def prune(self, keep: int) -> None:
        """Forget releases more than `keep` steps old; their steps stay closed."""
        newest = self._read("SELECT max(last_step) FROM streams")[0][0]
        query = (
            "DELETE FROM releases WHERE step <= ? AND step <= "
            "(SELECT last_step - ? FROM streams WHERE streams.id = releases.stream)"
        )
        if newest is not None:
            self._write(query, [(newest - keep, keep)])

    def _write(self, query: str, rows: Sequence[Sequence[object]], then: str | None = None) -> None:
        with self._errors():
            self._db.execute("PRAGMA synchronous = NORMAL")
        try:
            with self._transaction():
                self._db.executemany(query, rows)
                if then is not None:
                    self._db.execute(then)
        finally:
            with suppress(sqlite3.Error):
                self._db.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors():
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        if self._gone is not None:
            raise StoreError(self._gone)
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # SQLite's own word may quote what was flipped
            raise StoreError(_line(self.path, error)) from None

    def close(self) -> None:
        try:
            if self.durable and self._gone is None:
                with self._transaction():
                    self._db.execute("INSERT OR REPLACE INTO meta VALUES ('closed', ?)", (str(self._serial),))
        finally:
            self._abandon()

    def _abandon(self) -> None:
        with suppress(sqlite3.Error):
            self._db.close()
        if self._count is not None:
            self._count.close()
            self._count = None


def _ranges(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of successive numbers, as (first, last)."""
    out: list[tuple[int, int]] = []
    for i in sorted(ids):
        out[-1:] = [(out[-1][0], i)] if out and out[-1][1] == i - 1 else [*out[-1:], (i, i)]
    return out


def _line(path: str, error: Exception | str) -> str:
    if "locked" in str(error):
        return f"the store {path} is in use by another process; two gateways must not share one"
    says = "".join(c if c.isprintable() else " " for c in str(error))
    return f"the store {path} cannot be used: {' '.join(says.split())}"
