"""OwnTracks recorder, `rec/USER/DEVICE/2024-01.rec`: a stamp, a kind and a message, with tabs between them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from veilstream.data.readers.json_stream import text_of
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.records import PLACES, Record, table_of
from veilstream.errors import InputError

_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\t[^\t]*\t(.*)")
_NONE = "no location in it; messages that are encrypted are read where the recorder has the key, and writes them plain"


def read_rec(path: Path, name: str, options: ReadOptions) -> Table:
    with path.open(encoding="utf-8-sig") as lines:
        return table_of(_records(lines, name), PLACES, name, options, _NONE, "line")


def _records(lines: Iterable[str], name: str) -> Iterator[Record]:
    """A record for every line; an empty one for what is no location (waypoints, transitions, wills)."""
    for number, line in enumerate(lines, 1):
        found = _LINE.fullmatch(line.rstrip("\r\n"))
        try:
            message = json.loads(found[1]) if found else {} if not line.strip() else None
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise InputError(f"{name} line {number}: expected a stamp, a kind and a JSON message, with tabs between")
        located = message.get("_type") == "location"
        yield tuple(text_of(message.get(key)) if located else None for key in ("tst", "lat", "lon"))


def user_and_device(path: Path, alone: bool) -> str:
    """rec/USER/DEVICE/2024-01.rec"""
    device = path.absolute().parent
    return f"{device.parent.name}/{device.name}" if device.parent.parent.name == "rec" else path.stem


READER = Reader("OwnTracks recorder", (".rec",), read_rec, lambda text: _LINE.match(text) is not None, user_and_device)
