"""A table with types (parquet, feather, a DataFrame) -> Table, by the same guesses and checks as one of text.

typed(text_of_frame(frame.lazy(), "a.parquet", options), options)
"""

from __future__ import annotations

import polars as pl

from veilstream.data.columns import goes_by, guess_layout
from veilstream.data.readers.reader import ReadOptions, Table
from veilstream.data.readers.table import TextTable, typed
from veilstream.errors import InputError

_LOCAL = "%Y-%m-%dT%H:%M:%S%.6f"
_ZULU = f"{_LOCAL}Z"
MOST_COLUMNS = 5_000
INDEX = "__index_level_0__"  # what pandas calls an index without a name


def check_width(columns: int, name: str) -> None:
    """Files with very many columns take their reader hours."""
    if columns > MOST_COLUMNS:
        raise InputError(f"{name}: {columns:,} columns; at most {MOST_COLUMNS:,} are read; write a row per reading")


def table_of_frame(rows: pl.LazyFrame, name: str, options: ReadOptions) -> Table:
    """The readings in these rows."""
    return typed(text_of_frame(rows, name, options), options)


def text_of_frame(rows: pl.LazyFrame, name: str, options: ReadOptions, first: int = 1) -> TextTable:
    """The rows as text; a column of times is the time where none has its name. first: what the first row is called."""
    schema = rows.collect_schema()
    texts = as_texts(schema)
    columns = dict(options.columns)
    if "time" not in columns and not any(goes_by("time", c) for c in texts):
        stamps = [c for c, dtype in schema.items() if dtype in (pl.Datetime, pl.Date)]
        columns |= {"time": stamps[0]} if len(stamps) == 1 else {}
    header = [c for c in texts if c != INDEX or columns.get("time") == INDEX]
    layout = guess_layout(header, columns, name)
    as_text = rows.select(texts[c] for c in header).with_row_index("__row")
    return TextTable(as_text, layout, name, first, "row")


def as_texts(schema: pl.Schema) -> dict[str, pl.Expr]:
    """Every column that can be read, as text."""
    return {c: text for c, dtype in schema.items() if (text := _text(c, dtype)) is not None}


def _text(column: str, dtype: pl.DataType) -> pl.Expr | None:
    """The column as text that is read back alike; None for what is no single thing."""
    one = pl.col(column)
    if isinstance(dtype, pl.Datetime):
        return one.dt.convert_time_zone("UTC").dt.to_string(_ZULU) if dtype.time_zone else one.dt.to_string(_LOCAL)
    if dtype.is_nested() or dtype in (pl.Binary, pl.Object, pl.Duration, pl.Time):
        return None
    return one.cast(pl.String)
