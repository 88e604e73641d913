"""What became of a reading."""

from enum import Enum
from typing import Literal, NamedTuple

import msgspec

from veilstream.gateway.wire import Refused, Release, as_owntracks, encode

OutFormat = Literal["auto", "plain", "owntracks"]  # auto: OwnTracks for OwnTracks


class Status(Enum):
    released = "released"
    repeated = "the same release again"
    waiting = "accepted; the release comes with the clock"


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """`release` is None when the step is silent or still waits for the clock; `message` is the release as JSON."""

    status: Status | Refused
    release: Release | None = None
    message: bytes | None = None


Message = tuple[str, bytes]  # topic, payload


class Processed(NamedTuple):
    outcomes: list[Outcome]
    outbox: list[tuple[int, Message]]  # ids of what waits to be published


def body(form: OutFormat, asked: bool, release: Release, message: bytes | None = None) -> bytes:
    """A release as it is sent; `asked`: its reading was OwnTracks. `message`: it as plain JSON, if that is at hand."""
    if release.lat is not None and (form == "owntracks" or (form == "auto" and asked)):
        return as_owntracks(release)
    return encode(release) if message is None else message
