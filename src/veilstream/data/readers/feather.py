"""Feather (Arrow IPC file): a table with types, as parquet is. Version 1, of before 2020, is said to be that."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from veilstream.data.readers.apart import FEATHER, survives
from veilstream.data.readers.frame import check_width, table_of_frame
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.errors import InputError

OLD = b"FEA1"


def read_feather(path: Path, name: str, options: ReadOptions) -> Table:
    with path.open("rb") as stream:
        if stream.read(4) == OLD:
            raise InputError(f"{name}: Feather version 1; write it again as version 2, or as parquet")
        if not survives(path):
            raise InputError(f"{name}: not readable as Feather, damaged")
        stream.seek(0)
        check_width(len(pl.read_ipc_schema(stream)), name)
        stream.seek(0)
        frame = pl.read_ipc(stream)
    return table_of_frame(frame.lazy(), name, options)


READER = Reader("Feather", (".feather", ".arrow"), read_feather, lambda text: False, magic=(FEATHER, OLD))
