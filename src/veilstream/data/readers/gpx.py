"""GPX tracks. Every segment is a trace of its own; points without a time are counted as missing."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import polars as pl

from veilstream.data.columns import form
from veilstream.data.readers.reader import RANGES, Reader, ReadOptions, Table, outside
from veilstream.errors import InputError
from veilstream.units import counted

_POINT = re.compile(r"<(?:\w+:)?trkpt\b[^>]*>")
_LAT_LON = {"lat": re.compile(r"""\blat\s*=\s*["']([^"']*)"""), "lon": re.compile(r"""\blon\s*=\s*["']([^"']*)""")}
_EXAMPLE = """<?xml version="1.0"?>
<gpx version="1.1" creator="veilstream">
<trk><trkseg>
<trkpt lat="-47.112233" lon="-125.445566"><time>2024-01-01T08:00:10Z</time></trkpt>
<trkpt lat="-47.223344" lon="-125.556677"><time>2024-01-01T08:00:04Z</time></trkpt>
<trkpt lat="-47.334455" lon="-125.667788"><time>2024-01-01T08:00:15Z</time></trkpt>
</trkseg></trk>
</gpx>
"""


def read_gpx(path: Path, name: str, options: ReadOptions) -> Table:
    import gpxpy

    text = path.read_text(encoding="utf-8-sig")
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InputError(f"{name}: a GPX file has no document type or entities; refused")
    _check_points(text, name)
    try:
        gpx = gpxpy.parse(text)
    except (gpxpy.gpx.GPXException, ValueError) as problem:
        line = re.search(r"line \d+", str(problem))  # no more of it: it may quote the file
        raise InputError(f"{name}: not readable as GPX{f' ({line[0]})' if line else ''}") from None
    rows, missing = [], 0
    for segment_number, segment in enumerate(s for track in gpx.tracks for s in track.segments):
        for point in segment.points:
            if point.time is None:
                missing += 1
                continue
            stamp = point.time if point.time.tzinfo else point.time.replace(tzinfo=dt.UTC)
            rows.append((str(segment_number), round(stamp.timestamp() * 1e6), point.latitude, point.longitude))
    if not rows:
        found = f"{counted(missing, 'point')} without a time" if missing else "no track points"
        raise InputError(f"{name}: {found}; a trace needs <trkpt> elements with <time>")
    schema = {"trace": pl.String, "t": pl.Int64, "lat": pl.Float64, "lon": pl.Float64}
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_columns(pl.col("trace").cast(pl.Categorical))
    return Table(frame, "position", "km", missing=missing)


def _check_points(text: str, name: str) -> None:
    """Latitude and longitude of every point, checked here because the parser gives no line numbers."""
    for point in _POINT.finditer(text):
        for role, pattern in _LAT_LON.items():
            match = pattern.search(point[0])
            fault = _fault(role, match[1] if match else "")
            if fault:
                line = text.count("\n", 0, point.start()) + 1
                raise InputError(f"{name} line {line}: {fault}")


def _fault(role: str, text: str) -> str:
    """What is wrong with a coordinate; nothing if it is good."""
    try:
        return "" if abs(float(text)) <= RANGES[role] else outside(role)
    except ValueError:
        return f"{role} must be a number, found {form(text)}"


def track_folder(path: Path, alone: bool) -> str:
    """Several tracks in a folder are one person; a file alone has its own name."""
    return path.stem if alone else path.absolute().parent.name


READER = Reader("GPX", (".gpx",), read_gpx, lambda text: "<gpx" in text, _EXAMPLE, track_folder)
