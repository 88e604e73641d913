"""What the owner of a store may do: look at its streams, PRIVATE, and forget a person.

A look reads and never writes, also while a gateway does: another reader of SQLite's log, in a snapshot of its own.
Whoever may not read the file is refused by the system.

Of a stream that is forgotten a row stays, under a hash of its name: the number of its last step and its bits. Without
these a step that was released would be drawn a second time, and the meter would start from nothing: both tell more, not
less. A reading of a later step, should one come, goes on from there, with a fresh memory. Deleted rows are overwritten
(secure_delete), the file is written anew (VACUUM) and its log emptied, so that no byte of what was there is left in the
files. What the disk beneath still holds is the disk's.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from veilstream.control.drift import Drift, claimed_felt
from veilstream.control.limit_check import LEAST_UNITS, LimitCheck
from veilstream.gateway.drift import Watched
from veilstream.gateway.place import check_private, is_owned
from veilstream.gateway.records import SCHEMA, StoreError, Stream, tomb
from veilstream.gateway.space import Space
from veilstream.gateway.store import Rows, Store
from veilstream.gateway.wire import Grid, Release, decode
from veilstream.model.data_card import DataCard
from veilstream.model.interval import Interval
from veilstream.units import off

MAGIC = b"SQLite format 3\0"
WAIT_S = 5.0
CLAIMS = "about"  # begins their key in the store, before the name of the space


class Claims(msgspec.Struct, frozen=True):
    """What a gateway has promised of a space's streams, kept in the store; None: the policy's file does not say."""

    grid: Grid
    unit: str  # of distances; "" where they have none
    drift_unit: str  # what intervals are over: weeks, or runs of steps
    ceiling: float | None = None  # bits
    limit: float | None = None  # on the mean distance
    rungs: int | None = None  # of a ladder
    felt_claimed: float | None = None
    loss_fitted: Interval | None = None
    farthest: float | None = None  # that a release can be off where every reading lies at a state

    @classmethod
    def of(cls, space: Space) -> "Claims":
        rule, card = space.rule, DataCard.of(space.provenance)
        return cls(
            grid=space.grid,
            unit=space.encoder.unit,
            drift_unit=space.watch.unit,
            ceiling=space.ceiling,
            limit=space.encoder.limit,
            rungs=None if rule is None else rule.rungs,
            felt_claimed=claimed_felt(space.provenance),
            loss_fitted=None if card is None else card.loss,
            farthest=space.encoder.farthest,
        )

    @classmethod
    def read(cls, text: str) -> "Claims | None":
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError:
            return None


@dataclass(frozen=True)
class StreamStatus:
    """One stream, as its owner may see it."""

    stream: Stream
    about: Claims | None  # None: no gateway of this version has opened it since
    last: Release | None  # the release of its last step; None: silent, or not in the log any more

    @property
    def kept(self) -> Watched:
        return Watched.of(self.stream.private.drift)

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

        A reading far outside counts no farther than `encoder.WILD` times the map, so that its error is at least that.
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
            "unreadable": s.private.faults,
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
    lost = StoreError(f"the store {path} cannot be read: it is no store, or damaged")
    try:
        uri = f"{real.as_uri()}?mode=ro{idle}"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=WAIT_S)) as db:
            db.execute("BEGIN")
            rows = Rows(lambda query, values: db.execute(query, values).fetchall(), lambda _: lost)
            yield from _views(rows, path)
    except (sqlite3.Error, UnicodeDecodeError):
        raise lost from None


def _views(rows: Rows, path: Path) -> Iterator[StreamStatus]:
    meta = dict(rows.read("SELECT key, value FROM meta", ()))
    if meta.get("schema") != str(SCHEMA):
        raise StoreError(
            f"{path} was written by another version (schema {str(meta.get('schema'))[:10]}, this one reads {SCHEMA})"
        )
    claims = {key: Claims.read(text) for key, text in meta.items() if key.startswith(CLAIMS)}
    for stream in rows.select_streams("ORDER BY space, name"):
        (message,) = rows.find(stream, stream.last_step) or (None,)
        last = None if message is None else decode(message)
        yield StreamStatus(stream, claims.get(f"{CLAIMS} {stream.space}"), last)


# --- forgetting ---------------------------------------------------------------------------------------------

REMAINS = (
    "what was released before is with whoever received it: nobody can take it back",
    "a hash of the name, its last step and its bits stay in the store, so that no step is drawn a second time and the "
    "meter is not reset; whoever has the store can try whether a name was in it",
    "a reading for a later step would go on from there: stop the device, or its stream begins again",
    "copies and backups of the store, what a broker retains, and files made of her readings (models, policies, "
    "reports) are not touched: delete them",
)


@dataclass(frozen=True)
class Forgotten:
    """What was there of one stream; counts alone."""

    space: str
    last_step: int | None
    leaked_bits: float
    releases: int  # in the log
    unsent: int  # in the outbox
    private: bool  # whether a true state or reading was kept
    before: bool  # it had been forgotten already

    @classmethod
    def of(cls, s: Stream, releases: int, unsent: int, before: bool) -> "Forgotten":
        mine = s.private
        private = mine.state != -1 or mine.pending_step is not None or mine.pending_point is not None or mine.faults > 0
        return cls(s.space, s.last_step, s.total, releases, unsent, private, before)

    def to_json(self) -> dict[str, Any]:
        return {k: getattr(self, k) for k in self.__dataclass_fields__}


def forget(store: Store, name: str) -> list[Forgotten]:
    """The stream of this name is forgotten in every space of the store, which must be open for nobody else."""
    found = [gone for space in store.spaces() if (gone := _forget(store, space, name)) is not None]
    if found and store.durable:
        store.file.rewrite()
    return found


def _forget(store: Store, space: str, name: str) -> Forgotten | None:
    s = store.named(space, name)
    if s is None:
        old = store.named(space, tomb(store.id, space, name))
        return None if old is None else Forgotten.of(old, 0, 0, True)
    return Forgotten.of(s, *store.bury(s), False)
