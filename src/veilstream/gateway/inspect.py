"""The owner's look at the streams of a store, also while a gateway writes it. PRIVATE: not to be passed on.

It reads and never writes: another reader of SQLite's log, in a snapshot of its own. Whoever may not read the file is
refused by the system.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veilstream.control.drift import Drift
from veilstream.control.held_out import LEAST_UNITS
from veilstream.control.limit_check import LimitCheck
from veilstream.gateway import integrity as seal
from veilstream.gateway.claims import CLAIMS, Claims
from veilstream.gateway.drift import Watched
from veilstream.gateway.place import check_private, is_owned
from veilstream.gateway.records import StoreError, Stream
from veilstream.gateway.schema import SCHEMA, SELECT_STREAM
from veilstream.gateway.store import DAMAGED
from veilstream.gateway.wire import Release, decode
from veilstream.units import off

MAGIC = b"SQLite format 3\0"
WAIT_S = 5.0


@dataclass(frozen=True)
class StreamStatus:
    """One stream, as its owner may see it."""

    stream: Stream
    about: Claims | None  # None: no gateway of this version has opened it since
    last: Release | None  # the release of its last step; None: silent, or not in the log any more

    @property
    def kept(self) -> Watched:
        return Watched.of(self.stream.drift)

    @property
    def drift(self) -> Drift | None:
        """None: nothing to compare, because no two readings followed each other yet or none was released."""
        kept, about = self.kept, self.about
        loss, felt = kept.loss.interval, kept.felt.interval
        if loss is None or felt is None or about is None:
            return None
        enough = min(kept.loss.of, kept.felt.of) >= LEAST_UNITS
        return Drift(loss, about.loss_fitted, felt, about.felt_claimed, enough)

    @property
    def outside(self) -> bool:
        """Whether readings must lie outside the map: releases are farther off, ever or this week, than inside it.

        A reading far outside counts no farther than `space.WILD` times the map, so that its error is at least that.
        """
        felt, most = self.kept.felt, None if self.about is None else self.about.farthest
        so_far = felt.interval
        if most is None or so_far is None:
            return False
        return so_far.value > most or felt.s > most * felt.n

    @property
    def limit(self) -> LimitCheck | None:
        """The limit on the mean, and whether the readings so far show it kept."""
        about, felt = self.about, self.kept.felt
        if about is None or about.limit is None:
            return None
        unit = about.unit or "units"
        asked = off(f"at most {about.limit:.4g}", unit)
        return LimitCheck(asked, about.limit, unit, felt.interval, felt.of, about.drift_unit)

    @property
    def t(self) -> int | float | str | None:
        """When its last step began."""
        last = self.stream.last_step
        if self.last is not None:
            return self.last.t
        return None if last is None or self.about is None else self.about.grid.time(last)

    def to_json(self) -> dict[str, Any]:
        s, about, kept, drift = self.stream, self.about, self.kept, self.drift
        felt = kept.felt.interval
        return {
            "space": s.space,
            "stream": s.name,
            "last_step": s.last_step,
            "t": self.t,
            "leaked_bits": s.total,
            "ceiling_bits": None if about is None else about.ceiling,
            "rung": None if self.last is None else self.last.rung,
            "rungs": None if about is None else about.rungs,
            "felt": None if felt is None else felt.to_json(),
            "felt_steps": kept.felt.steps,
            "limit": None if about is None else about.limit,
            "limit_verdict": None if self.limit is None else self.limit.verdict,
            "outside_map": self.outside,
            "unit": "" if about is None else about.unit,
            "unreadable": s.faults,
            "transitions": kept.loss.steps,
            "units": kept.loss.of,
            "drift_unit": None if about is None else about.drift_unit,
            "drift": None if drift is None else drift.to_json(),
        }


def is_store(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise StoreError(f"cannot read the store {path}: {error.strerror}") from None


def look(path: Path) -> Iterator[StreamStatus]:
    """Every stream of the store, in order of space and name."""
    real = path.resolve()  # its log is beside the file, not beside a link to it
    check_private(str(path), str(real))
    idle = "" if Path(f"{real}-wal").exists() else "&immutable=1"  # nobody writes, and no file is made to read it
    if idle and is_owned(str(real)):
        raise StoreError(f"the store {path} is in use under another name, and its log is there: look at it by that one")
    try:
        uri = f"{real.as_uri()}?mode=ro{idle}"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=WAIT_S)) as db:
            db.execute("BEGIN")
            yield from _views(db, path)
    except (sqlite3.Error, UnicodeDecodeError):
        raise StoreError(f"the store {path} cannot be read: it is no store, or damaged") from None


def _views(db: sqlite3.Connection, path: Path) -> Iterator[StreamStatus]:
    meta = dict(db.execute("SELECT key, value FROM meta"))
    if meta.get("schema") != str(SCHEMA):
        raise StoreError(
            f"{path} was written by another version (schema {str(meta.get('schema'))[:10]}, this one reads {SCHEMA})"
        )
    found: dict[str, Claims | None] = {}
    query = "SELECT step, stream, total, message, checksum FROM releases WHERE stream = ? AND step = ?"
    for space, name, number, *state, serial, checksum in db.execute(SELECT_STREAM + "ORDER BY space, name"):
        try:
            whole = seal.of_stream(space, name, tuple(state), serial) == checksum
            row = db.execute(query, (number, state[0])).fetchone()
            whole = whole and (row is None or seal.of_release(*row[:-1]) == row[-1])
        except DAMAGED:
            whole = False
        if not whole:
            raise StoreError(f"the store {path} is damaged (table streams or releases)")
        if space not in found:
            found[space] = Claims.read(meta.get(f"{CLAIMS} {space}", ""))
        last = None if row is None or row[3] is None else decode(row[3])
        yield StreamStatus(Stream(space, name, number, *state), found[space], last)
