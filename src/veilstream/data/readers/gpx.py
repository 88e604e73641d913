"""GPX tracks. Every segment is a trace of its own; points without a time are counted as missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from veilstream.data.columns import Layout
from veilstream.data.readers.reader import Reader
from veilstream.data.readers.records import Record, events, moment, reads

_NONE = "no track points with a time; a trace needs <trkpt> elements with <time>"
_LAYOUT = Layout("time", lat="lat", lon="lon", trace="trace")


def _points(path: Path, name: str) -> Iterator[Record]:
    segment, line, time, place = 0, 0, None, None
    for tag, attributes, text, at in events(path, name, "GPX"):
        if tag == "trkseg" and attributes is not None:
            segment += 1
        elif tag == "trkpt" and attributes is not None:
            line, time, place = at, None, (attributes.get("lat"), attributes.get("lon"))
        elif tag == "time" and attributes is None:
            time = moment(text.strip() or None)
        elif tag == "trkpt" and place is not None:
            yield time, *place, str(segment), line - 1


def track_folder(path: Path, alone: bool) -> str:
    """Several tracks in a folder are one person; a file alone has its own name."""
    return path.stem if alone else path.absolute().parent.name


READER = Reader(
    "GPX",
    (".gpx",),
    reads(_points, _NONE, _LAYOUT, row="line", numbered=True),
    lambda text: "<gpx" in text,
    track_folder,
)
