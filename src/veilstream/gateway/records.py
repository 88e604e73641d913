"""What became of a reading, what is kept of a stream, what one commit changes, and the tables of a store on a disk."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, NamedTuple
from zlib import crc32

import msgspec

from veilstream.errors import InputError
from veilstream.gateway.wire import Refusal, Release

Key = tuple[str, str]  # space, stream
Outgoing = tuple[str, str, bytes]  # the name of its stream, topic, payload
OutFormat = Literal["auto", "plain", "owntracks"]  # auto: OwnTracks for OwnTracks
FORWARD = "#"  # the topic of what is not for a broker: nobody can publish to it


class StoreError(InputError):
    """The store cannot be read or written; nothing was released."""


# --- what became of a reading -----------------------------------------------------------------------------------


class Status(Enum):
    released = "released"
    repeated = "the same release again"
    waiting = "accepted; the release comes with the clock"


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """`release` is None when the step is silent or still waits for the clock; `message` is the release as JSON."""

    status: Status | Refusal
    release: Release | None = None
    message: bytes | None = None
    blind: bool = False  # drawn without looking at the reading: the stream is at its ceiling
    coarser: "dict[str, list[Outcome]] | None" = None  # what audiences get with it: of its step, or late ones of others

    def of(self, audience: str) -> "Sequence[Outcome]":
        """What an audience gets with this reading, in the order of its steps; "": this."""
        return (self.coarser or {}).get(audience, ()) if audience else (self,)


class Receipt(NamedTuple):
    """What one transaction made durable."""

    outcomes: list[Outcome]
    outbox: list[tuple[int, Outgoing]]  # ids of what waits to be published


# --- what is kept -----------------------------------------------------------------------------------------------

_encode = msgspec.msgpack.Encoder().encode


class Private(msgspec.Struct, array_like=True):
    """What is kept of true data."""

    state: int = -1  # the last true one, for order m > 1 or a clock; -1 for none
    pending_step: int | None = None  # a reading that waits for its tick
    pending_symbol: int = -1
    faults: int = 0  # readings that were no numbers
    excess: float = 0.0  # error over the limit so far, where feedback keeps it
    mark: float = 0.0  # the same at the last boundary
    pending_point: bytes | None = None  # the waiting reading itself, where feedback needs it
    drift: bytes | None = None  # how its readings go with the model, as `drift.Watched` packs it


_private = msgspec.msgpack.Decoder(Private).decode


class Stream(msgspec.Struct, array_like=True):
    """One stream as the store keeps it. `memory` and `belief` are array bytes; None: as at the start."""

    space: str
    name: str
    id: int | None = None
    last_step: int | None = None
    total: float = 0.0
    memory: bytes | None = None
    belief: bytes | None = None
    private: Private = msgspec.field(default_factory=Private)

    @property
    def key(self) -> Key:
        return self.space, self.name

    def row(self, serial: int) -> tuple[object, ...]:
        """As a store on a disk has it, but for the checksum."""
        state = self.last_step, self.total, self.memory, self.belief, _encode(self.private)
        return self.id, self.space, self.name, *state, serial

    @classmethod
    def of(cls, row: Sequence[Any]) -> "Stream":
        id, space, name, last_step, total, memory, belief, private, *_ = row
        return cls(space, name, id, last_step, total, memory, belief, _private(private))

    def rebind(self, old: "Binding", new: "Binding") -> None:
        """Go on under another policy: steps and meter stay, memory starts afresh, beliefs too if the chain changed."""
        mine = self.private
        if old.policy != new.policy:
            self.memory, mine.excess, mine.mark, mine.drift = None, 0.0, 0.0, None
        if old.chain != new.chain:
            self.belief, mine.state, mine.pending_step, mine.pending_symbol = None, -1, None, -1


Told = tuple[Stream, bytes | None]  # a stream, and the message of a release


@dataclass
class Batch:
    """What one transaction writes."""

    streams: list[Stream] = field(default_factory=list)
    releases: list[tuple[Stream, int, float, bytes | None]] = field(default_factory=list)  # step, total, message
    outbox: list[Outgoing] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)  # private: what became of readings, by reason
    told: "list[Told]" = field(default_factory=list)  # what is shown with it: to a late audience older ones


@dataclass(frozen=True)
class Binding:
    """The policy a space runs, and the chain its beliefs are about, by their hashes."""

    policy: str
    chain: str


# --- on a disk --------------------------------------------------------------------------------------------------

SCHEMA = 7
STREAM = "id, space, name, last_step, total, memory, belief, private, serial, checksum"
TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE spaces (name TEXT PRIMARY KEY, policy TEXT NOT NULL, chain TEXT NOT NULL,
                     checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE streams (id INTEGER PRIMARY KEY, space TEXT NOT NULL, name TEXT NOT NULL, last_step INTEGER,
                      total REAL NOT NULL, memory BLOB, belief BLOB, private BLOB NOT NULL,
                      serial INTEGER NOT NULL, checksum INTEGER NOT NULL, UNIQUE (space, name));
CREATE TABLE releases (step INTEGER NOT NULL, stream INTEGER NOT NULL, total REAL NOT NULL, message BLOB,
                       checksum INTEGER NOT NULL, PRIMARY KEY (step, stream)) WITHOUT ROWID;
CREATE TABLE outbox (id INTEGER PRIMARY KEY, stream TEXT NOT NULL, topic TEXT NOT NULL, payload BLOB NOT NULL,
                     checksum INTEGER NOT NULL);
CREATE TABLE private_unhandled (id INTEGER PRIMARY KEY, reason TEXT NOT NULL, length INTEGER NOT NULL,
                                sha256 TEXT NOT NULL);
CREATE TABLE private_counts (reason TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE probe (filling BLOB)
"""
KNOWN = "substr(name, 1, 1) <> char(1)"  # not forgotten: see `tomb`
WRITE_STREAM = "INSERT INTO streams VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET " + ", ".join(
    f"{k} = excluded.{k}" for k in STREAM.split(", ")[1:]
)


def checksum(*row: object) -> int:
    """Of what a row says, kept beside it: a flipped bit is a line, never another state."""
    return crc32(_encode(row))


def tomb(store: str, space: str, name: str) -> str:
    """The name of a stream that is forgotten: found by who knows its name, and no name that a stream can have."""
    return "\x01" + hashlib.sha256("\0".join((store, space, name)).encode()).hexdigest()
