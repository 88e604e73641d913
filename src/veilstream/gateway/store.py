"""What a gateway must not forget: per-stream state, a log of releases, an outbox. SQLite, durable.

One transaction commits the new state of the streams, their releases and what is to be published, before anyone sees a
release. WAL with synchronous=FULL: what was committed survives `kill -9` and power loss. The file is opened by one
process at a time (exclusive lock) and is readable by its owner only (mode 0600).

The only true data is in the columns `private_*` of `streams`: the last true state (kept for order m > 1 or a clock
only, else -1), a reading that waits for its tick, and how many readings were no numbers.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from veilstream.errors import InputError

SCHEMA = 1
MEMORY = ":memory:"
LOCK_WAIT_S = 1.0
PAGE = 4096  # streams read at once
MAIL = 1000  # outbox entries read at once
TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE spaces (name TEXT PRIMARY KEY, policy TEXT NOT NULL, chain TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE streams (id INTEGER PRIMARY KEY, space TEXT NOT NULL, name TEXT NOT NULL, last_step INTEGER,
                      total REAL NOT NULL, memory BLOB, belief BLOB, private_state INTEGER NOT NULL,
                      private_pending_step INTEGER, private_pending_symbol INTEGER NOT NULL,
                      private_faults INTEGER NOT NULL, UNIQUE (space, name));
CREATE TABLE releases (step INTEGER NOT NULL, stream INTEGER NOT NULL, total REAL NOT NULL, message BLOB,
                       PRIMARY KEY (step, stream)) WITHOUT ROWID;
CREATE TABLE outbox (id INTEGER PRIMARY KEY, topic TEXT NOT NULL, payload BLOB NOT NULL);
"""
_STREAM = (
    "SELECT space, name, id, last_step, total, memory, belief, "
    "private_state, private_pending_step, private_pending_symbol, private_faults FROM streams "
)
_UPDATE = (
    "UPDATE streams SET last_step = ?, total = ?, memory = ?, belief = ?, private_state = ?, "
    "private_pending_step = ?, private_pending_symbol = ?, private_faults = ? WHERE id = ?"
)
Key = tuple[str, str]  # space, stream


class StoreError(InputError):
    """The store cannot be read or written; nothing was released."""


@dataclass(slots=True)
class Stream:
    """One stream as the store keeps it. `memory` and `belief` are array bytes; None: as at the start."""

    space: str
    name: str
    id: int | None = None
    last_step: int | None = None
    total: float = 0.0
    memory: bytes | None = None
    belief: bytes | None = None
    state: int = -1  # private: the last true state, -1 for none
    pending_step: int | None = None  # private: a reading that waits for its tick
    pending_symbol: int = -1
    faults: int = 0  # private: readings that were no numbers

    @property
    def key(self) -> Key:
        return self.space, self.name


state_of = attrgetter("last_step", "total", "memory", "belief", "state", "pending_step", "pending_symbol", "faults")


@dataclass
class Batch:
    """What one transaction writes."""

    streams: list[Stream] = field(default_factory=list)
    releases: list[tuple[Stream, int, float, bytes | None]] = field(default_factory=list)  # step, total, message
    outbox: list[tuple[str, bytes]] = field(default_factory=list)  # topic, payload


@dataclass(frozen=True)
class Binding:
    """The policy a space runs, and the chain its beliefs are about, by their hashes."""

    policy: str
    chain: str


class Store:
    """Not for several threads at once: the gateway's core holds a lock."""

    def __init__(self, path: str | os.PathLike[str], bindings: dict[str, Binding]) -> None:
        self.path = str(path)
        self.durable = self.path != MEMORY
        if self.durable:
            _make_private(self.path)
        with self._errors():
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=LOCK_WAIT_S)
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA secure_delete = ON")  # pruned rows and old private states are overwritten
        with self._transaction():
            self.id = self._identify()
            # spaces whose policy is not the one of the last run
            self.changed = {name for name, binding in bindings.items() if self._bind(name, binding)}
            self._next_id = 1 + (self._db.execute("SELECT max(id) FROM outbox").fetchone()[0] or 0)

    def _identify(self) -> str:
        """The store's own name; its tables are made if the file is new."""
        db = self._db
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
            if db.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise StoreError(f"{self.path} is an SQLite file but not a veilstream store")
            for statement in TABLES.split(";"):
                db.execute(statement)
            db.execute("INSERT INTO meta VALUES ('schema', ?), ('id', ?)", (str(SCHEMA), os.urandom(6).hex()))
        found = dict(db.execute("SELECT key, value FROM meta"))
        if found["schema"] != str(SCHEMA):
            raise StoreError(f"{self.path} has schema {found['schema']}, this version reads {SCHEMA}")
        return str(found["id"])

    def _bind(self, space: str, new: Binding) -> bool:
        """A changed policy keeps steps and meter; its memory starts afresh, beliefs too if the chain changed."""
        row = self._db.execute("SELECT policy, chain FROM spaces WHERE name = ?", (space,)).fetchone()
        self._db.execute("INSERT OR REPLACE INTO spaces VALUES (?, ?, ?)", (space, new.policy, new.chain))
        if row is None or Binding(*row) == new:
            return False
        self._db.execute("UPDATE streams SET memory = NULL WHERE space = ?", (space,))
        if row[1] != new.chain:
            self._db.execute("UPDATE streams SET belief = NULL WHERE space = ?", (space,))
            self._db.execute(
                "UPDATE streams SET private_state = -1, private_pending_step = NULL, private_pending_symbol = -1 "
                "WHERE space = ?",
                (space,),
            )
        return True

    # --- reading -------------------------------------------------------------------------------------

    def load(self, space: str, name: str) -> Stream | None:
        rows = self._read(_STREAM + "WHERE space = ? AND name = ?", (space, name))
        return Stream(*rows[0]) if rows else None

    def streams(self, after: int = 0, limit: int = PAGE) -> list[Stream]:
        """Streams with an id beyond `after`, in order of id."""
        return [Stream(*row) for row in self._read(_STREAM + "WHERE id > ? ORDER BY id LIMIT ?", (after, limit))]

    def count_streams(self) -> int:
        return int(self._read("SELECT count(*) FROM streams")[0][0])

    def total_bits(self) -> float:
        """What all streams together have leaked."""
        return float(self._read("SELECT total(total) FROM streams")[0][0])

    def find(self, stream: Stream, step: int) -> tuple[bytes | None] | None:
        """The release of a step as a 1-tuple (None inside: silent), or None if the log has none."""
        rows = self._read("SELECT message FROM releases WHERE stream = ? AND step = ?", (stream.id, step))
        return rows[0] if rows else None

    def latest(self, limit: int) -> list[bytes]:
        """The last message of the streams that were made last."""
        query = (
            "SELECT r.message FROM streams s JOIN releases r ON r.stream = s.id AND r.step = s.last_step "
            "WHERE r.message IS NOT NULL ORDER BY s.id DESC LIMIT ?"
        )
        return [row[0] for row in self._read(query, (limit,))]

    def unsent(self, after: int = 0, limit: int = MAIL) -> list[tuple[int, str, bytes]]:
        """Committed and not yet confirmed: (id, topic, payload) with an id beyond `after`."""
        return self._read("SELECT id, topic, payload FROM outbox WHERE id > ? ORDER BY id LIMIT ?", (after, limit))

    def _read(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        with self._errors():
            return self._db.execute(query, values).fetchall()

    # --- writing -------------------------------------------------------------------------------------

    def commit(self, batch: Batch) -> list[int]:
        """All of it, durably, or none; ids of the outbox entries. New streams get their id."""
        new = [s for s in batch.streams if s.id is None]
        ids = range(self._next_id, self._next_id + len(batch.outbox))
        db = self._db
        try:
            with self._transaction():
                for s in new:
                    insert = "INSERT INTO streams VALUES (NULL, ?, ?, NULL, 0, NULL, NULL, -1, NULL, -1, 0)"
                    s.id = db.execute(insert, s.key).lastrowid
                db.executemany(_UPDATE, [(*state_of(s), s.id) for s in batch.streams])
                rows = [(step, s.id, total, message) for s, step, total, message in batch.releases]
                # a second release of a step breaks the primary key: the whole transaction falls
                db.executemany("INSERT INTO releases VALUES (?, ?, ?, ?)", sorted(rows, key=itemgetter(0, 1)))
                mail = [(i, topic, payload) for i, (topic, payload) in zip(ids, batch.outbox, strict=True)]
                db.executemany("INSERT INTO outbox VALUES (?, ?, ?)", mail)
        except StoreError:
            for s in new:
                s.id = None
            raise
        self._next_id = ids.stop
        return list(ids)

    def confirm(self, ids: Iterable[int]) -> None:
        """These outbox entries have arrived. Not worth a wait for the disk: at worst they are sent again."""
        self._write("DELETE FROM outbox WHERE id BETWEEN ? AND ?", _ranges(ids))

    def probe(self) -> None:
        """Raises unless the store can be written."""
        self._write("UPDATE meta SET value = value WHERE key = ?", [("id",)])

    def prune(self, keep: int) -> None:
        """Forget releases more than `keep` steps old; their steps stay closed."""
        newest = self._read("SELECT max(last_step) FROM streams")[0][0]
        query = (
            "DELETE FROM releases WHERE step <= ? AND step <= "
            "(SELECT last_step - ? FROM streams WHERE streams.id = releases.stream)"
        )
        if newest is not None:
            self._write(query, [(newest - keep, keep)])

    def _write(self, query: str, rows: Sequence[Sequence[object]]) -> None:
        with self._errors():
            self._db.execute("PRAGMA synchronous = NORMAL")
        try:
            with self._transaction():
                self._db.executemany(query, rows)
        finally:
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
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(_line(self.path, error)) from None

    def close(self) -> None:
        with self._errors():
            self._db.close()


def _ranges(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of successive numbers, as (first, last)."""
    out: list[tuple[int, int]] = []
    for i in sorted(ids):
        out[-1:] = [(out[-1][0], i)] if out and out[-1][1] == i - 1 else [*out[-1:], (i, i)]
    return out


def _make_private(path: str) -> None:
    """Create the file for its owner only; SQLite gives its companions the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreError(f"cannot open the store {path}: {error.strerror}; `store=FILE` puts it elsewhere") from None
    if os.stat(path).st_mode & 0o077:
        raise StoreError(f"the store {path} is open to other users; run: chmod 600 {Path(path).name}")


def _line(path: str, error: sqlite3.Error) -> str:
    if "locked" in str(error):
        return f"the store {path} is in use by another process; two gateways must not share one"
    return f"the store {path} cannot be used: {error}"
