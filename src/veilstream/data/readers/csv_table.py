"""CSV with a header: long (a row per reading) or wide (a column per stream); semicolons and decimal commas too. And
smart meters read at their P1 port (DSMR): what was taken from the grid, tariffs together, in kWh.

    HomeWizard      time, Import T1 kWh, Import T2 kWh, ...           registers that count on: differences are read
    DSMR-reader     timestamp, electricity_delivered_1, _2, ...       the same
                    hour_start, electricity1, electricity2, ...       what an hour took

Told another column (`columns='value=...'`), a meter's is a CSV like others.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

import polars as pl

from veilstream.data.columns import Layout, form, goes_by, guess_layout, has_time, listing
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.table import TextTable, typed
from veilstream.data.readings import Entry
from veilstream.errors import InputError

MARKS = (",", ";", "\t", "|")
_COMMA = r"^\s*[+-]?[\d.]*,\d+\s*$"
ABOVE = 5  # lines that may stand above the header: a title, who made the file


def read_csv(path: Path, name: str, options: ReadOptions) -> Table:
    try:
        return typed(text_table(path, name, options.columns), options)
    except pl.exceptions.PolarsError:
        raise InputError(_ragged(path, name, options.columns) or f"{name}: not a CSV table") from None


def text_table(path: Path, name: str, columns: Mapping[str, str], layout: Layout | None = None) -> TextTable:
    """The table as it is written; layout: which column is what, where that is known."""
    above, header, mark = table_header(path, name, columns)
    layout = layout or guess_layout(header, columns, f"{name} line {above + 1}")
    rows = pl.scan_csv(
        path, infer_schema=False, row_index_name="__row", encoding="utf8", skip_lines=above, separator=mark
    )
    notes: tuple[Entry, ...] = ()
    commas = _decimal_commas(rows, list(layout.numbers)) if mark != "," else []
    if commas:
        dotted = (pl.col(c).str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True) for c in commas)
        rows = rows.with_columns(dotted)
        notes = (Entry("decimal commas", len(commas), f"columns of numbers like 0,5: {listing(commas)}"),)
    return TextTable(rows, layout, name, above + 2, notes=notes)


def _decimal_commas(rows: pl.LazyFrame, columns: list[str]) -> list[str]:
    """Columns in which some number has one comma, and nothing but digits after it."""
    found = [pl.col(c).str.contains(_COMMA).any().alias(c) for c in columns]
    any_of = rows.select(found).collect(engine="streaming").row(0, named=True) if columns else {}
    return [c for c in columns if any_of[c]]


def layout_of(path: Path, name: str, columns: Mapping[str, str]) -> Layout:
    """Which column is what."""
    above, header, _ = table_header(path, name, columns)
    return guess_layout(header, columns, f"{name} line {above + 1}")


def table_header(path: Path, name: str, columns: Mapping[str, str]) -> tuple[int, list[str], str]:
    """How many lines stand above the names of the columns, these, and what stands between them: the first line, unless
    only a later one names a time; a comma, unless another mark finds more names and one of a time among them."""

    def timed(header: list[str]) -> bool:
        return has_time(header) or columns.get("time") in header

    with path.open(encoding="utf-8-sig", newline="") as lines:
        top = list(islice(lines, ABOVE + 1))
    best: tuple[int, list[str], str] | None = None
    for mark in MARKS:
        found = list(csv.reader(top, delimiter=mark))
        above = next((i for i, fields in enumerate(found) if timed(fields)), 0)
        header = found[above] if found else []
        if best is None or (timed(header) and (len(header) > len(best[1]) or not timed(best[1]))):
            best = above, header, mark
    assert best is not None
    above, header, mark = best
    if not header:
        raise InputError(f"{name} line 1: no header; the first line must name the columns, as in stream,time,lat,lon")
    if len(set(header)) < len(header):
        double = next(c for c in header if header.count(c) > 1)
        raise InputError(f"{name} line {above + 1}: two columns are called {form(double)}; give each its own name")
    return best


def _ragged(path: Path, name: str, columns: Mapping[str, str]) -> str | None:
    """The first row with more fields than the header, as an error line."""
    above, header, mark = table_header(path, name, columns)
    width = len(header)
    with path.open(encoding="utf-8-sig", newline="", errors="replace") as lines:
        for number, fields in enumerate(csv.reader(lines, delimiter=mark), 1):
            if number > above and len(fields) > width:
                return f"{name} line {number}: {len(fields)} fields where the header names {width}; correct the line"
    return None


# --- smart meters --------------------------------------------------------------------------------------


DIGITS = 6  # of a difference of two registers
_REGISTER = re.compile(r"import(?:[ _]t[12])?(?:[ _]kwh)?|electricity_delivered_[12]", re.IGNORECASE)
_TAKEN = re.compile(r"electricity[12]", re.IGNORECASE)


def read_p1(path: Path, name: str, options: ReadOptions) -> Table:
    if "value" in options.columns:
        return read_csv(path, name, options)
    _, header, _ = table_header(path, name, options.columns)
    registers = [c for c in header if _REGISTER.fullmatch(c.strip())]
    columns = tuple(registers or [c for c in header if _TAKEN.fullmatch(c.strip())])
    time = options.columns.get("time") or next((c for c in header if goes_by("time", c)), "")
    if time not in header or not columns:
        return read_csv(path, name, options)
    table = typed(text_table(path, name, options.columns, Layout(time, wide=columns)), options)
    both = table.frame.group_by("t", maintain_order=True).agg(pl.col("value").sum())
    if registers:
        whole = table.frame.group_by("t").agg(pl.len()).filter(pl.col("len") == len(columns)).select("t")
        both = both.join(whole, on="t", how="semi").sort("t").with_columns(pl.col("value").diff().round(DIGITS))
        both = both.filter(pl.col("value") >= 0)  # the first has none before it; a new meter starts again
        said = Entry("registers", both.height, f"differences of {' + '.join(columns)}, which count on")
        table = replace(table, notes=(*table.notes, said))
    return replace(table, frame=both, unit="kWh")


def _takes(text: str) -> bool:
    first = re.split(r"[,;\t]", text.partition("\n")[0].strip().replace('"', ""))
    known = [c for c in first if _REGISTER.fullmatch(c.strip()) or _TAKEN.fullmatch(c.strip())]
    return has_time(first) and bool(known)


READER = Reader("CSV", (".csv", ".tsv"), read_csv, lambda text: not text.startswith("<"), rank=2)
READERS = (READER, Reader("P1 (DSMR)", (".csv",), read_p1, _takes))
