"""Google's location histories. A visit is a reading every half hour, so that a night at home is no gap.

Takeout     `Records.json` (every fix), or the monthly files of Semantic Location History (visits and trips);
            coordinates are in ten-millionths of a degree
Timeline    as a phone exports it: `semanticSegments` (Android), or an array of segments (iOS)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from veilstream.data.readers.reader import Reader
from veilstream.data.readers.records import Record, at, elements, listed, moment, reads, text_of, utc

HALF_HOUR_S, LONGEST_STAY_S = 1800.0, 90 * 86_400.0  # of a visit
_PLACE = re.compile(r"(?:geo:)?([^,°]*)°?,([^,°;?]*)°?(?:[;?].*)?", re.DOTALL)  # geo:LAT,LON or LAT°, LON°
_MARKS = re.compile(r'"(?:timelinePath|semanticSegments|topCandidate|activitySegment)"')
Place = tuple[str | None, str | None]


def _stay(start: object, end: object, place: Place) -> Iterator[Record]:
    """Readings of a visit: at its start, every half hour while it lasts, and at its end."""
    yield moment(start), *place
    try:
        first, last = (datetime.fromisoformat(str(text).strip()) for text in (start, end))
    except ValueError:
        return
    if first.tzinfo is None or last.tzinfo is None:
        return
    seconds = min((last - first).total_seconds(), LONGEST_STAY_S)
    for k in range(1, int(seconds / HALF_HOUR_S) + 1):
        yield moment(str(start), k * HALF_HOUR_S), *place
    if seconds > 0 and seconds % HALF_HOUR_S:
        yield moment(end), *place


# --- Takeout ----------------------------------------------------------------------------------------------


def _takeout(path: Path, name: str) -> Iterator[Record]:
    for key, entry in elements(path, name, "locations", "timelineObjects"):
        if key == "locations":
            yield moment(_stamp(entry, "timestamp")), *_e7(entry)
        else:
            yield from _semantic(entry)


def _semantic(entry: Any) -> Iterator[Record]:
    visit, trip = at(entry, "placeVisit"), at(entry, "activitySegment")
    if visit is not None:
        start, end = (_stamp(at(visit, "duration"), key) for key in ("startTimestamp", "endTimestamp"))
        yield from _stay(start, end, _e7(at(visit, "location")))
    for end in ("start", "end"):
        where = at(trip, f"{end}Location")
        if where is not None:
            yield moment(_stamp(at(trip, "duration"), f"{end}Timestamp")), *_e7(where)
    for point in listed(at(trip, "simplifiedRawPath", "points")):
        yield moment(_stamp(point, "timestamp")), *_e7(point, "latE7", "lngE7")


def _e7(where: Any, lat: str = "latitudeE7", lon: str = "longitudeE7") -> Place:
    """Degrees from ten-millionths of them; as they are where they are no numbers."""
    found = at(where, lat), at(where, lon)
    lat_lon = [f"{e7 / 1e7:.7f}" if type(e7) is int else None if e7 is None else str(e7) for e7 in found]
    return lat_lon[0], lat_lon[1]


def _stamp(entry: Any, key: str) -> object:
    """Text, or in older files milliseconds, written out here as a text too."""
    old = at(entry, f"{key}Ms")
    return at(entry, key) if old is None else utc(old, 1e3)


def whole_history(path: Path, alone: bool) -> str:
    """The months are one person's."""
    return path.stem if alone else "location history"


# --- Timeline ---------------------------------------------------------------------------------------------


def _timeline(path: Path, name: str) -> Iterator[Record]:
    for _, segment in elements(path, name, "semanticSegments"):
        start, end = at(segment, "startTime"), at(segment, "endTime")
        for point in listed(at(segment, "timelinePath")):
            yield _along(start, point), *_place(at(point, "point"))
        visit = at(segment, "visit")
        if visit is not None and str(at(visit, "hierarchyLevel") or 0) == "0":  # else inside another one
            yield from _stay(start, end, _place(at(visit, "topCandidate", "placeLocation")))
        for moved, when in (("start", start), ("end", end)):
            where = at(segment, "activity", moved)
            if where is not None:
                yield moment(when), *_place(where)


def _along(start: object, point: Any) -> str | None:
    """When a point of a path was: its own stamp, or minutes after the segment began."""
    offset = text_of(at(point, "durationMinutesOffsetFromStartTime"))
    try:
        minutes = float(offset or 0)
    except ValueError:
        return offset
    own = at(point, "time")
    return moment(start, 60 * minutes) if own is None else moment(own)


def _place(where: object) -> Place:
    text = at(where, "latLng") if isinstance(where, dict) else where
    found = _PLACE.fullmatch(text.strip()) if isinstance(text, str) else None
    return (found[1], found[2]) if found else (text_of(text), text_of(text))


READERS = (
    Reader(
        "Google Takeout",
        (".json",),
        reads(_takeout, "no locations or timelineObjects with a time in it"),
        lambda text: text.startswith("{") and ('"timelineObjects"' in text or ('"locations"' in text and "E7" in text)),
        whole_history,
        inside=("*/Records.json", "*/20??/20??_*.json"),
    ),
    Reader(
        "Google Timeline",
        (".json",),
        reads(_timeline, "no segment with a timelinePath, a visit or an activity in it"),
        lambda text: text.startswith(("{", "[")) and "timelineObjects" not in text and _MARKS.search(text) is not None,
    ),
)
