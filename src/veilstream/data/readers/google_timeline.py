"""Google Timeline as a phone exports it: `semanticSegments` (Android), or an array of segments (iOS).

A segment is a path of points or a visit. A visit is a reading every half hour, so that a night at home is no gap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from veilstream.data.readers.json_stream import at, elements, text_of
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.records import PLACES, Record, moment, stay, table_of

_PLACE = re.compile(r"(?:geo:)?([^,°]*)°?,([^,°;?]*)°?(?:[;?].*)?", re.DOTALL)  # geo:LAT,LON or LAT°, LON°
_MARKS = re.compile(r'"(?:timelinePath|semanticSegments|topCandidate|activitySegment)"')


def read_timeline(path: Path, name: str, options: ReadOptions) -> Table:
    segments = (segment for _, segment in elements(path, name, "semanticSegments"))
    records = (record for segment in segments for record in _records(segment))
    return table_of(records, PLACES, name, options, "no segment with a timelinePath, a visit or an activity in it")


def _records(segment: Any) -> Iterator[Record]:
    start, end, path = at(segment, "startTime"), at(segment, "endTime"), at(segment, "timelinePath")
    for point in path if isinstance(path, list) else ():
        yield _moment(start, point), *_place(at(point, "point"))
    visit = at(segment, "visit")
    if visit is not None and str(at(visit, "hierarchyLevel") or 0) == "0":  # else inside another one
        where = at(visit, "topCandidate", "placeLocation")
        yield from stay(start, end, *_place(at(where, "latLng") if isinstance(where, dict) else where))
    for moved, when in (("start", start), ("end", end)):
        where = at(segment, "activity", moved)
        if where is not None:
            yield moment(when), *_place(at(where, "latLng") if isinstance(where, dict) else where)


def _moment(start: object, point: Any) -> str | None:
    """When a point of a path was: its own stamp, or minutes after the segment began."""
    offset = text_of(at(point, "durationMinutesOffsetFromStartTime"))
    try:
        minutes = float(offset or 0)
    except ValueError:
        return offset
    own = at(point, "time")
    return moment(start, 60 * minutes) if own is None else moment(own)


def _place(text: object) -> tuple[str | None, str | None]:
    found = _PLACE.fullmatch(text.strip()) if isinstance(text, str) else None
    return (found[1], found[2]) if found else (text_of(text), text_of(text))


def _takes(text: str) -> bool:
    return text.startswith(("{", "[")) and "timelineObjects" not in text and _MARKS.search(text) is not None


READER = Reader("Google Timeline", (".json",), read_timeline, _takes)
