"""CSV with a header: long (a row per reading) or wide (a column per stream)."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import polars as pl

from veilstream.data.columns import Layout, form, guess_layout, has_time
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.table import TextTable, typed
from veilstream.errors import InputError

_EXAMPLE = """stream,time,lat,lon
alice,2024-01-01T08:00:10Z,-47.112233,-125.445566
alice,2024-01-01T08:00:04Z,-47.223344,-125.556677
alice,2024-01-01T08:00:15Z,-47.334455,-125.667788
"""


ABOVE = 5  # lines that may stand above the header: a title, who made the file


def read_csv(path: Path, name: str, options: ReadOptions) -> Table:
    above, header = table_header(path, name)
    layout = guess_layout(header, options.columns, f"{name} line {above + 1}")
    rows = pl.scan_csv(path, infer_schema=False, row_index_name="__row", encoding="utf8", skip_lines=above)
    table = TextTable(rows, layout, name, above + 2, lambda line, column: _field(path, header, line, column))
    try:
        return typed(table, options)
    except pl.exceptions.PolarsError:
        raise InputError(_ragged(path, name, above, len(header)) or f"{name}: not a CSV table") from None


def layout_of(path: Path, name: str, columns: Mapping[str, str]) -> Layout:
    """Which column is what."""
    above, header = table_header(path, name)
    return guess_layout(header, columns, f"{name} line {above + 1}")


def table_header(path: Path, name: str) -> tuple[int, list[str]]:
    """How many lines stand above the names of the columns, and these: the first line, unless only a later one names a
    time."""
    with path.open(encoding="utf-8-sig", newline="") as lines:
        found = list(islice(csv.reader(lines), ABOVE + 1))
    if not found or not found[0]:
        raise InputError(f"{name} line 1: no header; the first line must name the columns, as in stream,time,lat,lon")
    above = next((i for i, fields in enumerate(found) if has_time(fields)), 0)
    header = found[above]
    if len(set(header)) < len(header):
        double = next(c for c in header if header.count(c) > 1)
        raise InputError(f"{name} line {above + 1}: two columns are called {form(double)}; give each its own name")
    return above, header


def _field(path: Path, header: list[str], line: int, column: str) -> str:
    """One field, read again only to word an error."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        text = next((text for i, text in enumerate(lines, 1) if i == line), "")
    fields = next(csv.reader([text.rstrip("\r\n")]), [])
    return fields[header.index(column)] if header.index(column) < len(fields) else ""


def _ragged(path: Path, name: str, above: int, width: int) -> str | None:
    """The first row with more fields than the header, as an error line."""
    with path.open(encoding="utf-8-sig", newline="", errors="replace") as lines:
        for number, fields in enumerate(csv.reader(lines), 1):
            if number > above and len(fields) > width:
                return f"{name} line {number}: {len(fields)} fields where the header names {width}; correct the line"
    return None


READER = Reader("CSV", (".csv", ".tsv"), read_csv, lambda text: not text.startswith("<"), _EXAMPLE, rank=2)
