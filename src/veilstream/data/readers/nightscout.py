"""Nightscout: entries as its API gives them, JSON (`entries.json`) or without a header (`entries.csv`, `.tsv`): stamp,
milliseconds, glucose, direction, device. Glucose is in mg/dL whatever the site shows; 12 and less are fault codes."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.records import VALUES, Record, at, elements, moment, table_of, text_of, utc

LAST_FAULT = 12.0
_ROW = re.compile(r'"?\d{4}-\d\d-\d\dT[^",\t]*"?[,\t]\d{13}(?:\.\d+)?[,\t]')


def read_nightscout(path: Path, name: str, options: ReadOptions) -> Table:
    with path.open(encoding="utf-8-sig") as stream:
        rows = _rows(path) if _ROW.match(stream.read(200).lstrip()) else _entries(path, name)
    return replace(table_of(rows, VALUES, name, options, "no entries with a date and an sgv in it"), unit="mg/dL")


def _entries(path: Path, name: str) -> Iterator[Record]:
    for _, entry in elements(path, name, "result"):
        if at(entry, "type") in ("sgv", None) and at(entry, "sgv") is not None:
            yield _when(entry), _glucose(text_of(at(entry, "sgv")))


def _when(entry: Any) -> str | None:
    """Milliseconds, as its database exports them too; else the stamp."""
    date = at(entry, "date")
    date = at(date, "$numberLong") or at(date, "$numberDouble") if isinstance(date, dict) else date
    return moment(at(entry, "dateString")) if date is None else utc(text_of(date), 1e3)


def _rows(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        first = lines.readline()
        lines.seek(0)
        for row in csv.reader(lines, delimiter="\t" if "\t" in first else ","):
            if row:
                yield utc(row[1] if len(row) > 1 else None, 1e3), _glucose(row[2] if len(row) > 2 else None)


def _glucose(text: str | None) -> str | None:
    try:
        return None if text is None or 0 <= float(text) <= LAST_FAULT else text
    except ValueError:
        return text


READER = Reader(
    "Nightscout",
    (".json", ".csv", ".tsv"),
    read_nightscout,
    lambda text: bool(_ROW.match(text)) or (text.startswith(("[", "{")) and '"sgv"' in text and '"date' in text),
)
