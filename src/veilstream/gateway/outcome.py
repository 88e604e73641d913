"""What became of a reading."""

from enum import Enum
from typing import Literal, NamedTuple

import msgspec

from veilstream.gateway.wire import Refusal, Release

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


Message = tuple[str, bytes]  # topic, payload


class Receipt(NamedTuple):
    """What one transaction made durable."""

    outcomes: list[Outcome]
    outbox: list[tuple[int, Message]]  # ids of what waits to be published
