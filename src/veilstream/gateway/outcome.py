"""What became of a reading, and the messages that its release goes out in."""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Literal, NamedTuple

import msgspec

from veilstream.gateway.wire import Refusal, Release

_bodies = msgspec.json.Decoder(list[msgspec.Raw])
OutFormat = Literal["auto", "plain", "owntracks"]  # auto: OwnTracks for OwnTracks


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


Outgoing = tuple[str, str, bytes]  # the name of its stream, topic, payload


class Receipt(NamedTuple):
    """What one transaction made durable."""

    outcomes: list[Outcome]
    outbox: list[tuple[int, Outgoing]]  # ids of what waits to be published


def joined(bodies: Sequence[bytes], limit: int) -> Iterator[bytes]:
    """Releases as messages of at most `limit` bytes: alone, or as arrays."""
    if len(bodies) < 2:
        yield from bodies
        return
    part: list[bytes] = []
    size = 2
    for body in bodies:
        if part and size + len(body) > limit:
            yield _payload(part)
            part, size = [], 2
        part.append(body)
        size += len(body) + 1
    if part:
        yield _payload(part)


def _payload(bodies: Sequence[bytes]) -> bytes:
    return bodies[0] if len(bodies) == 1 else b"[" + b",".join(bodies) + b"]"


def parted(payload: bytes, limit: int) -> list[bytes]:
    """A message as several of at most `limit` bytes, where it is one of several releases."""
    if len(payload) <= limit or not payload.startswith(b"["):
        return [payload]
    return list(joined([bytes(body) for body in _bodies.decode(payload)], limit))
