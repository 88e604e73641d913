"""GeoLife .plt: six header lines, then lat,lon,0,altitude_feet,days,date,time; times are GMT. Altitude is not used."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from veilstream.data.columns import form
from veilstream.data.readers.reader import RANGES, SKIP, Reader, ReadOptions, Table, outside
from veilstream.errors import InputError

HEADER_LINES = 6
TRAJECTORY = "trajectory"  # GeoLife keeps a user's files in a folder of this name
_COLUMNS = ["lat", "lon", "zero", "altitude_ft", "days", "date", "time"]
_EXAMPLE = """Geolife trajectory
WGS 84
Altitude is in Feet
Reserved 3
0,2,255,My Track,0,0,2,8421376
0
-47.112233,-125.445566,0,492,39744.12,2008-10-23,02:53:10
-47.223344,-125.556677,0,492,39744.12,2008-10-23,02:53:04
-47.334455,-125.667788,0,492,39744.12,2008-10-23,02:53:15
"""


def read_plt(path: Path, name: str, options: ReadOptions) -> Table:
    with path.open(encoding="utf-8", errors="replace") as lines:
        top = lines.readline(200).strip()
    if "geolife" not in top.lower():
        raise InputError(f"{name} line 1: a .plt file starts with 'Geolife trajectory', found {form(top)}")
    raw = _rows(path, name)
    stamp = pl.concat_str("date", pl.lit(" "), "time").str.to_datetime(
        "%Y-%m-%d %H:%M:%S", time_unit="us", strict=False
    )
    frame = raw.select(
        pl.col("lat").str.strip_chars().cast(pl.Float64, strict=False),
        pl.col("lon").str.strip_chars().cast(pl.Float64, strict=False),
        stamp.dt.epoch("us").alias("t"),
    )
    faults = frame.select(
        (pl.col("lat").is_null() | pl.col("lat").is_nan()).alias("lat"),
        (pl.col("lon").is_null() | pl.col("lon").is_nan()).alias("lon"),
        pl.col("t").is_null().alias("time"),
        (pl.col("lat").abs() > RANGES["lat"]).fill_null(False).alias("range lat"),
        (pl.col("lon").abs() > RANGES["lon"]).fill_null(False).alias("range lon"),
    )
    bad = faults.select(pl.any_horizontal(pl.all())).to_series()
    if bad.any() and not options.skip_bad:
        row = int(bad.arg_true()[0])
        fault = next(c for c in faults.columns if faults[c][row])
        where = f"{name} line {row + HEADER_LINES + 1}"
        raise InputError(f"{where}: {_fault(fault, raw.row(row, named=True))}; {SKIP}")
    return Table(frame.filter(~bad), "position", "km", bad=int(bad.sum()))


def _rows(path: Path, name: str) -> pl.DataFrame:
    """The lines under the header, as text."""
    try:
        raw = pl.read_csv(path, skip_lines=HEADER_LINES, has_header=False, infer_schema=False, new_columns=_COLUMNS)
    except pl.exceptions.NoDataError:
        raise InputError(f"{name}: no points under the six header lines") from None
    except pl.exceptions.PolarsError:
        raise InputError(f"{name}: lines after the header must have 7 fields (lat,lon,0,feet,days,date,time)") from None
    if raw.width < len(_COLUMNS):
        raise InputError(f"{name} line 7: {raw.width} fields where a .plt file has 7")
    return raw


def _fault(fault: str, row: dict[str, str | None]) -> str:
    if fault.startswith("range "):
        return outside(fault.removeprefix("range "))
    if fault == "time":
        stamp = f"{row['date']} {row['time']}"
        return f"the time is unreadable, found {form(stamp)}"
    return f"{fault} is unreadable, found {form(row[fault] or '')}"


def user_folder(path: Path, alone: bool) -> str:
    parent = path.absolute().parent
    return parent.parent.name if parent.name.lower() == TRAJECTORY else parent.name


READER = Reader("GeoLife", (".plt",), read_plt, lambda text: text.lower().startswith("geolife"), _EXAMPLE, user_folder)
