"""GPS tracks: GeoLife .plt and GPX."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import polars as pl

from veilstream.data.tables import RANGES, Table
from veilstream.errors import InputError

PLT_HEADER_LINES = 6
_PLT_COLUMNS = ["lat", "lon", "zero", "altitude_ft", "days", "date", "time"]
_POINT = re.compile(r"<(?:\w+:)?trkpt\b[^>]*>")
_LAT_LON = {"lat": re.compile(r"""\blat\s*=\s*["']([^"']*)"""), "lon": re.compile(r"""\blon\s*=\s*["']([^"']*)""")}


def read_plt(path: Path, name: str, skip_bad: bool = False) -> Table:
    """Six header lines, then lat,lon,0,altitude_feet,days,date,time; times are GMT. The altitude is not used."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        top = lines.readline().strip()
    if "geolife" not in top.lower():
        raise InputError(f"{name} line 1: a .plt file starts with 'Geolife trajectory', found {top[:40]!r}")
    try:
        raw = pl.read_csv(
            path, skip_lines=PLT_HEADER_LINES, has_header=False, infer_schema=False, new_columns=_PLT_COLUMNS
        )
    except pl.exceptions.NoDataError:
        raise InputError(f"{name}: no points under the six header lines") from None
    except pl.exceptions.PolarsError:
        raise InputError(f"{name}: lines after the header must have 7 fields (lat,lon,0,feet,days,date,time)") from None
    if raw.width < len(_PLT_COLUMNS):
        raise InputError(f"{name} line 7: {raw.width} fields where a .plt file has 7")
    stamp = pl.concat_str("date", pl.lit(" "), "time").str.to_datetime(
        "%Y-%m-%d %H:%M:%S", time_unit="us", strict=False
    )
    frame = raw.select(
        pl.col("lat").str.strip_chars().cast(pl.Float64, strict=False),
        pl.col("lon").str.strip_chars().cast(pl.Float64, strict=False),
        stamp.dt.epoch("us").alias("t"),
    )
    bad = frame.select(
        (pl.col("lat").is_null() | pl.col("lat").is_nan()).alias("lat"),
        (pl.col("lon").is_null() | pl.col("lon").is_nan()).alias("lon"),
        pl.col("t").is_null().alias("time"),
        (pl.col("lat").abs() > RANGES["lat"]).fill_null(False).alias("range lat"),
        (pl.col("lon").abs() > RANGES["lon"]).fill_null(False).alias("range lon"),
    )
    any_bad = bad.select(pl.any_horizontal(pl.all())).to_series()
    if any_bad.any() and not skip_bad:
        row = int(any_bad.arg_true()[0])
        fault = next(c for c in bad.columns if bad[c][row])
        role = fault.removeprefix("range ")
        text = raw[role][row] if role != "time" else f"{raw['date'][row]} {raw['time'][row]}"
        must = f"outside -{RANGES[role]:g}..{RANGES[role]:g} degrees" if "range" in fault else "unreadable"
        raise InputError(
            f"{name} line {row + PLT_HEADER_LINES + 1}: {role} {text!s} is {must}; "
            "correct it, or drop and count such rows with --skip-bad"
        )
    return Table(frame.filter(~any_bad), "position", "km", bad=int(any_bad.sum()))


def read_gpx(path: Path, name: str, skip_bad: bool = False) -> Table:
    """Every track segment is a trace of its own; points without a time are counted as missing."""
    import gpxpy

    text = path.read_text(encoding="utf-8-sig", errors="replace")
    if "<!DOCTYPE" in text[:4096] or "<!ENTITY" in text[:4096]:
        raise InputError(f"{name}: a GPX file has no document type or entities; refused")
    _check_points(text, name)
    try:
        gpx = gpxpy.parse(text)
    except (gpxpy.gpx.GPXException, ValueError) as problem:
        raise InputError(f"{name}: not readable as GPX ({str(problem).splitlines()[0][:100]})") from None
    rows, missing = [], 0
    for segment_number, segment in enumerate(s for track in gpx.tracks for s in track.segments):
        for point in segment.points:
            if point.time is None:
                missing += 1
                continue
            stamp = point.time if point.time.tzinfo else point.time.replace(tzinfo=dt.UTC)
            rows.append((str(segment_number), round(stamp.timestamp() * 1e6), point.latitude, point.longitude))
    if not rows:
        found = f"{missing} points without a time" if missing else "no track points"
        raise InputError(f"{name}: {found}; a trace needs <trkpt> elements with <time>")
    schema = {"trace": pl.String, "t": pl.Int64, "lat": pl.Float64, "lon": pl.Float64}
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_columns(pl.col("trace").cast(pl.Categorical))
    return Table(frame, "position", "km", missing=missing)


def _check_points(text: str, name: str) -> None:
    """Latitude and longitude of every point, checked here because the parser gives no line numbers."""
    for point in _POINT.finditer(text):
        for role, pattern in _LAT_LON.items():
            match = pattern.search(point[0])
            found = match[1] if match else ""
            try:
                good = abs(float(found)) <= RANGES[role]
            except ValueError:
                good = False
            if not good:
                line = text.count("\n", 0, point.start()) + 1
                limit = RANGES[role]
                raise InputError(
                    f"{name} line {line}: {role} {found!r} is not a number in -{limit:g}..{limit:g} degrees"
                )
