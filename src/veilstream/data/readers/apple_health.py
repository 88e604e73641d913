"""Apple Health, `export.xml` (also in `export.zip`): one type of record, such as HeartRate, BloodGlucose, StepCount.

Read as a stream: such files have gigabytes. What Apple calls categories (sleep) are names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.records import VALUES, Record, chosen, events, table_of
from veilstream.errors import InputError

FIRST = ("HeartRate", "BloodGlucose", "StepCount")
UNITS = {"count/min": "bpm", "count": ""}
_TYPE = re.compile(r"HK(?:Quantity|Category|Data)Type(?:Identifier)?")
_CATEGORY = re.compile(r"HKCategoryValue(?:SleepAnalysis)?")
_MOLAR = re.compile(r"mmol<[^>]*>/L")


def read_health(path: Path, name: str, options: ReadOptions) -> Table:
    told, units = options.columns.get("value"), set[str]()
    kinds = Counter(kind for kind, _ in _records(path, name))
    kind = chosen(kinds, None if told is None else _TYPE.sub("", told), name, "type of record", FIRST)

    def records() -> Iterator[Record]:
        for own, attributes in _records(path, name):
            if own == kind:
                units.add(attributes.get("unit", ""))
                yield attributes.get("startDate"), _CATEGORY.sub("", attributes.get("value", ""))

    table = table_of(records(), VALUES, name, options, "no record of this type with a startDate in it")
    if len(units) > 1:
        raise InputError(f"{name}: its records of this type are in {len(units)} different units; convert it first")
    unit = _MOLAR.sub("mmol/L", units.pop())
    return replace(table, unit=UNITS.get(unit, unit))


def _records(path: Path, name: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The type of every Record element, and its attributes."""
    for tag, attributes, *_ in events(path, name, "Apple Health"):
        if tag == "Record" and attributes is not None:
            yield _TYPE.sub("", attributes.get("type", "")), attributes


READER = Reader(
    "Apple Health",
    (".xml",),
    read_health,
    lambda text: text.startswith("<") and "HealthData" in text,
    lambda path, alone: "health" if path.stem.lower().startswith("export") else path.stem,
    inside=("*apple_health_export/export.xml",),
)
