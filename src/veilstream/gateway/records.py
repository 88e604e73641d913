"""What is kept of a stream, whatever keeps it, what one commit changes, and the tables of a store on a disk."""

import hashlib
from dataclasses import dataclass, field
from operator import attrgetter
from zlib import crc32

import msgspec

from veilstream.errors import InputError

Key = tuple[str, str]  # space, stream
FORWARD = "#"  # the topic of what is not for a broker: nobody can publish to it


class StoreError(InputError):
    """The store cannot be read or written; nothing was released."""


class Stream(msgspec.Struct, array_like=True):
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
    excess: float = 0.0  # private: error over the limit so far, where feedback keeps it
    mark: float = 0.0  # private: the same at the last boundary
    pending_point: bytes | None = None  # private: the waiting reading itself, where feedback needs it
    drift: bytes | None = None  # private: how its readings go with the model, as `drift.Watched` packs it

    @property
    def key(self) -> Key:
        return self.space, self.name

    def rebind(self, old: "Binding", new: "Binding") -> None:
        """Go on under another policy: steps and meter stay, memory starts afresh, beliefs too if the chain changed."""
        if old.policy != new.policy:
            self.memory, self.excess, self.mark, self.drift = None, 0.0, 0.0, None
        if old.chain != new.chain:
            self.belief, self.state, self.pending_step, self.pending_symbol = None, -1, None, -1


@dataclass
class Batch:
    """What one transaction writes."""

    streams: list[Stream] = field(default_factory=list)
    releases: list[tuple[Stream, int, float, bytes | None]] = field(default_factory=list)  # step, total, message
    outbox: list[tuple[str, str, bytes]] = field(default_factory=list)  # name of its stream, topic, payload
    counts: dict[str, int] = field(default_factory=dict)  # private: what became of readings, by reason


@dataclass(frozen=True)
class Binding:
    """The policy a space runs, and the chain its beliefs are about, by their hashes."""

    policy: str
    chain: str


# --- on a disk --------------------------------------------------------------------------------------------------

SCHEMA = 6
_COLUMNS = {  # of a stream's state, in the order of its fields; what is private is called so
    "last_step": "INTEGER",
    "total": "REAL NOT NULL DEFAULT 0",
    "memory": "BLOB",
    "belief": "BLOB",
    "private_state": "INTEGER NOT NULL DEFAULT -1",
    "private_pending_step": "INTEGER",
    "private_pending_symbol": "INTEGER NOT NULL DEFAULT -1",
    "private_faults": "INTEGER NOT NULL DEFAULT 0",
    "private_excess": "REAL NOT NULL DEFAULT 0",
    "private_mark": "REAL NOT NULL DEFAULT 0",
    "private_pending_point": "BLOB",
    "private_drift": "BLOB",
}
state_of = attrgetter(*(column.removeprefix("private_") for column in _COLUMNS))
TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE spaces (name TEXT PRIMARY KEY, policy TEXT NOT NULL, chain TEXT NOT NULL,
                     checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE streams (id INTEGER PRIMARY KEY, space TEXT NOT NULL, name TEXT NOT NULL,
                      {", ".join(f"{column} {kind}" for column, kind in _COLUMNS.items())},
                      serial INTEGER NOT NULL DEFAULT 0, checksum INTEGER, UNIQUE (space, name));
CREATE TABLE releases (step INTEGER NOT NULL, stream INTEGER NOT NULL, total REAL NOT NULL, message BLOB,
                       checksum INTEGER NOT NULL, PRIMARY KEY (step, stream)) WITHOUT ROWID;
CREATE TABLE outbox (id INTEGER PRIMARY KEY, stream TEXT NOT NULL, topic TEXT NOT NULL, payload BLOB NOT NULL,
                     checksum INTEGER NOT NULL);
CREATE TABLE private_unhandled (id INTEGER PRIMARY KEY, reason TEXT NOT NULL, length INTEGER NOT NULL,
                                sha256 TEXT NOT NULL);
CREATE TABLE private_counts (reason TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE probe (filling BLOB)
"""
SELECT_STREAM = f"SELECT space, name, id, {', '.join(_COLUMNS)}, serial, checksum FROM streams "
UPDATE_STREAM = f"UPDATE streams SET {' = ?, '.join(_COLUMNS)} = ?, serial = ?, checksum = ? WHERE id = ?"
KNOWN = "substr(name, 1, 1) <> char(1)"  # not forgotten: see `tomb`
_encode = msgspec.msgpack.Encoder().encode


def checksum(*row: object) -> int:
    """Of what a row says, kept beside it: a flipped bit is a line, never another state."""
    return crc32(_encode(row))


def tomb(store: str, space: str, name: str) -> str:
    """The name of a stream that is forgotten: found by who knows its name, and no name that a stream can have."""
    return "\x01" + hashlib.sha256("\0".join((store, space, name)).encode()).hexdigest()
