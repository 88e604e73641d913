"""Google Takeout, location history: `Records.json` (every fix), or the monthly files of Semantic Location History
(visits and trips). Coordinates are in ten-millionths of a degree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from veilstream.data.readers.json_stream import at, elements
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.records import PLACES, Record, degrees, moment, stay, table_of, utc


def read_takeout(path: Path, name: str, options: ReadOptions) -> Table:
    found = elements(path, name, "locations", "timelineObjects")
    records = (record for key, entry in found for record in (_fix(entry) if key == "locations" else _semantic(entry)))
    return table_of(records, PLACES, name, options, "no locations or timelineObjects with a time in it")


def _fix(entry: Any) -> Iterator[Record]:
    yield _when(entry, "timestamp"), degrees(at(entry, "latitudeE7")), degrees(at(entry, "longitudeE7"))


def _semantic(entry: Any) -> Iterator[Record]:
    visit, trip = at(entry, "placeVisit"), at(entry, "activitySegment")
    if visit is not None:
        where, lasts = at(visit, "location"), at(visit, "duration")
        lat, lon = degrees(at(where, "latitudeE7")), degrees(at(where, "longitudeE7"))
        yield from stay(_stamp(lasts, "startTimestamp"), _stamp(lasts, "endTimestamp"), lat, lon)
    for end, stamp in (("startLocation", "startTimestamp"), ("endLocation", "endTimestamp")):
        where = at(trip, end)
        if where is not None:
            when = _when(at(trip, "duration"), stamp)
            yield when, degrees(at(where, "latitudeE7")), degrees(at(where, "longitudeE7"))
    path = at(trip, "simplifiedRawPath", "points")
    for point in path if isinstance(path, list) else ():
        yield _when(point, "timestamp"), degrees(at(point, "latE7")), degrees(at(point, "lngE7"))


def _stamp(entry: Any, key: str) -> object:
    """Text, or in older files milliseconds, written out here as a text too."""
    old = at(entry, f"{key}Ms")
    if old is None:
        return at(entry, key)
    try:
        return utc(int(old) / 1000)
    except (TypeError, ValueError, OverflowError, OSError):
        return str(old)


def _when(entry: Any, key: str) -> str | None:
    return moment(_stamp(entry, key))


def whole_history(path: Path, alone: bool) -> str:
    """The months are one person's."""
    return path.stem if alone else "location history"


READER = Reader(
    "Google Takeout",
    (".json",),
    read_takeout,
    lambda text: text.startswith("{") and ('"timelineObjects"' in text or ('"locations"' in text and "E7" in text)),
    whole_history,
    inside=("*/Records.json", "*/20??/20??_*.json"),
)
