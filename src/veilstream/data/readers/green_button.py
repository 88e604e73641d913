"""Green Button (ESPI XML): IntervalReadings of a meter, scaled as its ReadingType says. Times are seconds since 1970.

A file with several meters or directions has a stream for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from veilstream.data.columns import Layout
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.records import events, table_of
from veilstream.errors import InputError

UOM = {"72": "Wh", "38": "W", "42": "m³", "119": "ft³", "169": "therm"}
LARGEST = 12  # powers of ten that a reading may be scaled by
_METER = re.compile(r"UsagePoint/([^/]+)/MeterReading/([^/]+)/IntervalBlock")


def read_espi(path: Path, name: str, options: ReadOptions) -> Table:
    scales = set[tuple[str, str]]()
    found = list(_readings(path, name, scales))
    if len(scales) > 1:
        raise InputError(
            f"{name}: {len(scales)} types of readings (ReadingType) with different units in it; export them apart"
        )
    power, uom = scales.pop() if scales else ("0", "")
    if not re.fullmatch(r"-?\d{1,2}", power) or abs(int(power)) > LARGEST:
        raise InputError(f"{name}: a powerOfTenMultiplier must be a whole number from -{LARGEST} to {LARGEST}")
    by = f"e{power}" if int(power) else ""  # of ten, as text
    records = ((start, value and value + by, meter) for start, value, meter in found)
    layout = Layout("time", value="value", stream="stream")
    table = table_of(records, layout, name, options, "no IntervalReading with a timePeriod in it")
    if table.frame["stream"].n_unique() == 1:
        table = replace(table, frame=table.frame.drop("stream"))
    return replace(table, unit=UOM.get(uom, ""))


def _readings(path: Path, name: str, scales: set[tuple[str, str]]) -> Iterator[tuple[str | None, str | None, str]]:
    """(start, value, meter) of every reading; into `scales` go the power of ten and the unit of every type."""
    meter, power, uom = "", "0", ""
    own: dict[str, str] | None = None  # of the IntervalReading under way
    for tag, attributes, text, _ in events(path, name, "Green Button"):
        if attributes is not None:
            if tag == "IntervalReading":
                own = {}
            elif tag == "entry":
                meter = ""
            elif tag == "ReadingType":
                power, uom = "0", ""
            elif tag == "link" and (found := _METER.search(attributes.get("href", ""))):
                meter = f"{found[1]}/{found[2]}"
        elif own is not None and tag == "IntervalReading":
            yield own.get("start"), own.get("value"), meter
            own = None
        elif own is not None:
            own[tag] = text.strip()
        elif tag == "powerOfTenMultiplier":
            power = text.strip()
        elif tag == "uom":
            uom = text.strip()
        elif tag == "ReadingType":
            scales.add((power, uom))


READER = Reader(
    "Green Button",
    (".xml",),
    read_espi,
    lambda text: text.startswith("<") and ("naesb.org/espi" in text or "www.w3.org/2005/Atom" in text),
)
