"""OwnTracks recorder, `rec/USER/DEVICE/2024-01.rec`: a stamp, a kind and a message, with tabs between them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from veilstream.data.readers.reader import Reader
from veilstream.data.readers.records import Record, reads, text_of
from veilstream.errors import InputError

_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\t[^\t]*\t(.*)")
_NONE = "no location in it; messages that are encrypted are read where the recorder has the key, and writes them plain"


def _records(path: Path, name: str) -> Iterator[Record]:
    """A record for every line; an empty one for what is no location (waypoints, transitions, wills)."""
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            found = _LINE.fullmatch(line.rstrip("\r\n"))
            try:
                message = json.loads(found[1]) if found else {} if not line.strip() else None
            except (ValueError, RecursionError):
                message = None
            if not isinstance(message, dict):
                raise InputError(
                    f"{name} line {number}: expected a stamp, a kind and a JSON message, with tabs between"
                )
            located = message.get("_type") == "location"
            yield [text_of(message.get(key)) if located else None for key in ("tst", "lat", "lon")]


def user_and_device(path: Path, alone: bool) -> str:
    """rec/USER/DEVICE/2024-01.rec"""
    device = path.absolute().parent
    return f"{device.parent.name}/{device.name}" if device.parent.parent.name == "rec" else path.stem


READER = Reader(
    "OwnTracks recorder",
    (".rec",),
    reads(_records, _NONE, row="line"),
    lambda text: _LINE.match(text) is not None,
    user_and_device,
)
