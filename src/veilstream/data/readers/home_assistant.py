"""Home Assistant, the CSV of its history page: `entity_id,state,last_changed`, one entity of it.

Numbers are values, other states (home, Work) are names; `unknown` and `unavailable` are missing.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.records import VALUES, Record, chosen, moment, table_of
from veilstream.errors import InputError

HEADER = ["entity_id", "state", "last_changed"]
NOTHING = ("", "unknown", "unavailable", "None")


def read_history(path: Path, name: str, options: ReadOptions) -> Table:
    found = Counter(row[0] for row in _rows(path, name) if row[0])
    entity = chosen(found, options.columns.get("value"), name, "entity")
    records = (_record(row) for row in _rows(path, name) if row[0] == entity)
    return table_of(records, VALUES, name, options, "no reading with a time in it")


def _rows(path: Path, name: str) -> Iterator[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        for number, row in enumerate(csv.reader(lines), 1):
            if number > 1 and row:
                if len(row) != len(HEADER):
                    raise InputError(f"{name} line {number}: {len(row)} fields where the header names {len(HEADER)}")
                yield row


def _record(row: list[str]) -> Record:
    return moment(row[2].strip() or None), state(row[1])


def state(text: str | None) -> str | None:
    """The state of an entity; None where it is unknown or unavailable."""
    return None if text is None or text.strip() in NOTHING else text


READER = Reader(
    "Home Assistant history",
    (".csv",),
    read_history,
    lambda text: text.replace('"', "").startswith(",".join(HEADER)),
)
