"""GeoLife .plt: six header lines, then lat,lon,0,altitude_feet,days,date,time; times are GMT. Altitude is not used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

from veilstream.data.columns import form
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.records import PLACES
from veilstream.data.readers.table import TextTable, typed
from veilstream.data.readers.times import TimeStyle
from veilstream.errors import InputError

HEADER_LINES = 6
TRAJECTORY = "trajectory"  # GeoLife keeps a user's files in a folder of this name
_COLUMNS = ["lat", "lon", "zero", "altitude_ft", "days", "date", "time"]


def read_plt(path: Path, name: str, options: ReadOptions) -> Table:
    with path.open(encoding="utf-8", errors="replace") as lines:
        top = lines.readline(200).strip()
    if "geolife" not in top.lower():
        raise InputError(f"{name} line 1: a .plt file starts with 'Geolife trajectory', found {form(top)}")
    stamp = pl.concat_str("date", pl.lit(" "), "time").alias("time")
    rows = _rows(path, name).lazy().select("__row", "lat", "lon", stamp)
    gmt = replace(options, tz="UTC", time_format="%Y-%m-%d %H:%M:%S")
    table = typed(TextTable(rows, PLACES, name, HEADER_LINES + 1), gmt)
    return replace(table, style=TimeStyle("aware"))  # GMT, whatever others take a stamp without a zone for


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
    return raw.with_row_index("__row")


def user_folder(path: Path, alone: bool) -> str:
    parent = path.absolute().parent
    return parent.parent.name if parent.name.lower() == TRAJECTORY else parent.name


READER = Reader("GeoLife", (".plt",), read_plt, lambda text: text.lower().startswith("geolife"), user_folder)
