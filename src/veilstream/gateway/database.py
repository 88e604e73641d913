"""The SQLite file of a store: one process owns it, commits are durable, and what others do to it is noticed.

WAL with synchronous=FULL: what was committed survives `kill -9` and power loss. Every commit has a number (`serial`),
and so has every start; the count beside the file says the last one, so that lost commits are noticed.

SQLite keeps what is new in a log and now and then writes it into the file; then the log begins anew. It does not know
whether the two belong together. So each log says in its first commit which mark the file has that it follows, and gives
the next one, which gets into the file with the rest of the log: a file with an earlier mark is an old copy.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from zlib import crc32

from veilstream.gateway.place import Count, Place, in_use
from veilstream.gateway.records import SCHEMA, TABLES, StoreError

MEMORY = ":memory:"
LOCK_WAIT_S = 1.0
ANEW = "or begin anew with another `store` and treat the streams as new people"


class Database:
    """Not for several threads at once: the gateway's core holds a lock."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(path)  # as it was told
        self.serial = 0  # of the last commit
        self._gone: str | None = None  # why it cannot be used any more
        self._count: Count | None = None
        self._has = 0, 0  # the mark that the file had at the last look, and whose
        self._log: tuple[bytes, int] | None = None  # its log, as we left it
        self._marks: tuple[tuple[int, int], ...] = ()  # those that it may have; the last is the log's
        self._place = None if self.path == MEMORY else Place(self.path)
        try:
            with self.errors():
                at = self.path if self._place is None else self._place.path
                self.db = sqlite3.connect(at, isolation_level=None, check_same_thread=False, timeout=LOCK_WAIT_S)
                self.db.execute("PRAGMA journal_mode = WAL")
                self.db.execute("PRAGMA synchronous = FULL")
                self.db.execute("PRAGMA cache_size = -500")  # KiB; the usual 2 MB kept a gateway above 60 MB, no slower
                self.db.execute("PRAGMA secure_delete = ON")  # pruned rows and old private states are overwritten
            with self.transaction():
                self._identify()
                self._check_whole()
            if self._place is not None:
                self._begin(self._place)
        except BaseException:
            self.abandon()
            raise

    # --- opening -------------------------------------------------------------------------------------------

    def _identify(self) -> None:
        """The store's own name; its tables are made if the file is new."""
        db = self.db
        self._new = not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
        if self._new:
            if db.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise StoreError(f"{self.path} is an SQLite file but not a veilstream store")
            for statement in TABLES.split(";"):
                db.execute(statement)
            made = str(SCHEMA), os.urandom(6).hex()
            db.execute("INSERT INTO meta VALUES ('schema', ?), ('id', ?), ('closed', '0')", made)
        self.meta = dict(db.execute("SELECT key, value FROM meta"))  # as it was when it was opened
        schema = self.meta.get("schema")
        if schema != str(SCHEMA):
            raise StoreError(f"{self.path} has schema {schema}, this version reads {SCHEMA}")
        self.id = str(self.meta.get("id", ""))
        if not self.id.isalnum():
            raise self.damaged("meta")

    def _check_whole(self) -> None:
        """No stream may be missing: it would be taken for a new one. No commit: its steps would be drawn again."""
        for table in ("streams", "spaces"):
            if self.db.execute(f"PRAGMA integrity_check({table})").fetchone() != ("ok",):
                raise self.damaged(table)
        try:
            last = self.db.execute("SELECT max(serial) FROM streams").fetchone()[0] or 0
            opened, follows = (int(self.meta.get(key, 0)) for key in ("opened", "follows"))
            self.serial = max(last, opened)
        except (TypeError, ValueError):
            raise self.damaged("streams") from None
        if self._place is None:
            return
        try:
            self._count = Count(self._place.path + "-count")
            self._count.lock()
        except BlockingIOError:
            raise StoreError(in_use(self.path)) from None
        except OSError as error:
            raise StoreError(f"cannot open the store's count {self.path}-count: {error.strerror}") from None
        found = self._count.read()
        closed = self.meta.get("closed") == str(self.serial)
        if found is None:
            lost = not closed
        else:  # one that is older than the last start is that of another place
            lost = found[0] != self.id or found[1] > self.serial or (not closed and found[1] < opened)
        mark, whose = self._place.mark()
        if lost or (follows and (mark < follows or whose != self._own)):
            raise StoreError(
                f"the store {self.path} has lost commits (its -wal or -count file is gone, or it is an old copy): "
                f"their steps would be drawn a second time. Put all its files back as they were, {ANEW}"
            )
        self.serial += 1
        self.db.executemany(
            "INSERT OR REPLACE INTO meta VALUES (?, ?)", [("opened", str(self.serial)), ("closed", str(self.serial))]
        )
        self.db.execute(f"PRAGMA application_id = {self._own}")
        self._next_mark()

    @property
    def _own(self) -> int:
        return crc32(self.id.encode()) & 0x7FFF_FFFF

    def _begin(self, place: Place) -> None:
        """The count first, for who is killed in between; then the file says it is in use: no log vanishes unseen."""
        assert self._count is not None
        with self.errors():
            self._count.write(self.id, self.serial, lasting=True)
            self.db.execute("DELETE FROM meta WHERE key = 'closed'")
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._marks = (place.mark(),)
        with self.transaction():
            self._next_mark()  # so that there is a log
        with self.errors():
            place.watch_log()
            self._log = place.log()

    # --- use -----------------------------------------------------------------------------------------------

    def read(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        with self.errors():
            found = self.db.execute(query, values).fetchall()
            self._look()
        return found

    @contextmanager
    def commit(self, counted: bool = True) -> Iterator[int]:
        """A durable transaction, and the number for its rows; if they carry it, it counts before anyone hears of it."""
        with self.transaction():
            if self._marks and self._has == self._marks[-1]:
                self._next_mark()
            yield self.serial + 1
        self.serial += counted
        if self._count is not None:
            with self.errors():
                self._count.write(self.id, self.serial)

    def write(self, query: str, rows: Sequence[Sequence[object]], then: str | None = None) -> None:
        """What is not worth a wait for the disk."""
        with self.errors():
            self.db.execute("PRAGMA synchronous = NORMAL")
        try:
            with self.transaction():
                self.db.executemany(query, rows)
                if then is not None:
                    self.db.execute(then)
        finally:
            with suppress(sqlite3.Error):
                self.db.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Nothing is written into a file that is not the one we left, and nothing holds that is not in the file."""
        marks = self._marks
        with self.errors():
            self.db.execute("BEGIN IMMEDIATE")
            try:
                self._look()
                yield
                self.db.execute("COMMIT")
            finally:
                if self.db.in_transaction:
                    self._marks = marks
                    self.db.execute("ROLLBACK")
                self._leave_log()
            self._look()

    def rewrite(self) -> None:
        """No byte of what was deleted stays in the file or in its log."""
        with self.errors():
            self.db.execute("PRAGMA temp_store = MEMORY")
            self.db.execute("VACUUM")
            busy = self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            self._leave_log()
        if busy:
            raise StoreError(f"the log of {self.path} could not be emptied; run it again when nobody reads the file")

    def _next_mark(self) -> None:
        """A log that begins: which mark of the file it follows, and its own."""
        if self._place is None:
            return
        has = self._has = self._place.mark()
        new = self.db.execute("PRAGMA user_version").fetchone()[0] + 1
        self.db.execute("INSERT OR REPLACE INTO meta VALUES ('follows', ?)", (str(has[0]),))
        self.db.execute(f"PRAGMA user_version = {new}")
        self._marks = has, (new, self._own)

    def _leave_log(self) -> None:
        """What others find of it is ours up to here."""
        if self._place is not None and self._log is not None and self._gone is None:
            self._log = self._place.log()

    def _look(self) -> None:
        """Raises unless the files are those that we wrote last."""
        if self._place is None:
            return
        self._has = self._place.mark()
        if (left := self._place.left()) is not None:
            self._gone = f"{left} was deleted or replaced while in use; nothing is released any more"
        elif (self._marks and self._has not in self._marks) or (self._log and not self._place.goes_on(self._log)):
            self._gone = (
                f"{self._place.path} or its log was written over while in use; nothing is released any more. Stop the "
                f"gateway, put all its files back as they were, {ANEW}"
            )
        if self._gone is not None:
            raise StoreError(self._gone)

    @contextmanager
    def errors(self) -> Iterator[None]:
        if self._gone is not None:
            raise StoreError(self._gone)
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # SQLite's own word may quote what was flipped
            says = "".join(c if c.isprintable() else " " for c in str(error))
            line = f"the store {self.path} cannot be used: {' '.join(says.split())}"
            raise StoreError(in_use(self.path) if "locked" in says else line) from None

    def damaged(self, table: str) -> StoreError:
        return StoreError(
            f"the store {self.path} is damaged (table {table}); nothing is released from it. Put back a copy made "
            f"while no gateway ran, with all its files, {ANEW}"
        )

    # --- the end -------------------------------------------------------------------------------------------

    def close(self) -> None:
        try:
            if self._gone is None:
                with self.transaction():
                    self.db.execute("INSERT OR REPLACE INTO meta VALUES ('closed', ?)", (str(self.serial),))
                self.db.close()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """As if it had been killed: a log that may not belong to the file is not written into it."""
        if self._place is not None:
            self._place.keep_log()
        with suppress(sqlite3.Error, AttributeError):  # it may not be open yet
            self.db.close()
        for held in (self._count, self._place):
            if held is not None:
                held.close()
        self._count = self._place = None
