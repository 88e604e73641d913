"""Parquet: a table with types, long or wide, as one in CSV is. Polars reads it; nothing else need be installed."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from veilstream.data.readers.apart import PARQUET, survives
from veilstream.data.readers.frame import check_width, table_of_frame
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.errors import InputError

LONGEST_FOOTER = 4 << 20


def read_parquet(path: Path, name: str, options: ReadOptions) -> Table:
    with path.open("rb") as stream:
        stream.seek(-8, 2)
        footer = int.from_bytes(stream.read(4), "little")
    if footer > LONGEST_FOOTER:
        raise InputError(f"{name}: a description of {footer:,} bytes, of very many columns, or damaged; write it anew")
    if not survives(path):
        raise InputError(f"{name}: not readable as Parquet, damaged")
    check_width(len(pl.read_parquet_schema(path)), name)
    return table_of_frame(pl.scan_parquet(path, glob=False), name, options)


READER = Reader("Parquet", (".parquet",), read_parquet, lambda text: False, magic=(PARQUET,))
