"""Green Button (ESPI XML): IntervalReadings of a meter, scaled as its ReadingType says. Times are seconds since 1970.

A file with several meters or directions has a stream for each.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from veilstream.data.columns import Layout
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.records import Record, table_of
from veilstream.data.readers.xml_stream import feed
from veilstream.errors import InputError

UOM = {"72": "Wh", "38": "W", "42": "m³", "119": "ft³", "169": "therm"}
LARGEST = 12  # powers of ten that a reading may be scaled by
_METER = re.compile(r"UsagePoint/([^/]+)/MeterReading/([^/]+)/IntervalBlock")
_EXAMPLE = """<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom">
<entry><content><ReadingType xmlns="http://naesb.org/espi">
<powerOfTenMultiplier>0</powerOfTenMultiplier><uom>72</uom></ReadingType></content></entry>
<entry><content><IntervalBlock xmlns="http://naesb.org/espi">
<interval><duration>86400</duration><start>1704096000</start></interval>
<IntervalReading><timePeriod><duration>5</duration><start>1704096010</start></timePeriod><value>101.112233</value>
</IntervalReading>
<IntervalReading><timePeriod><duration>5</duration><start>1704096004</start></timePeriod><value>102.223344</value>
</IntervalReading>
<IntervalReading><timePeriod><duration>5</duration><start>1704096015</start></timePeriod><value>103.334455</value>
</IntervalReading>
</IntervalBlock></content></entry>
</feed>
"""


class _Feed:
    """What of the elements is needed, as they come."""

    def __init__(self) -> None:
        self.records: list[list[str | None]] = []
        self.scales: set[tuple[str, str]] = set()
        self.block, self.power, self.uom = "", "0", ""
        self.start: str | None = None
        self.value: str | None = None
        self.inside = False  # an IntervalReading

    def begins(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "IntervalReading":
            self.inside, self.start, self.value = True, None, None
        elif tag == "entry":
            self.block = ""
        elif tag == "link" and (found := _METER.search(attributes.get("href", ""))):
            self.block = f"{found[1]}/{found[2]}"
        elif tag == "ReadingType":
            self.power, self.uom = "0", ""

    def ends(self, tag: str, text: str) -> None:
        if self.inside and tag in ("start", "value"):
            setattr(self, tag, text.strip())
        elif tag == "IntervalReading":
            self.inside = False
            self.records.append([self.start, self.value, self.block])
        elif tag == "powerOfTenMultiplier":
            self.power = text.strip()
        elif tag == "uom":
            self.uom = text.strip()
        elif tag == "ReadingType":
            self.scales.add((self.power, self.uom))


def read_espi(path: Path, name: str, options: ReadOptions) -> Table:
    found = _Feed()
    feed(path, name, "Green Button", found.begins, found.ends)
    if len(found.scales) > 1:
        raise InputError(
            f"{name}: {len(found.scales)} types of readings (ReadingType) with different units in it; export them apart"
        )
    power, uom = found.scales.pop() if found.scales else ("0", "")
    if not re.fullmatch(r"-?\d{1,2}", power) or abs(int(power)) > LARGEST:
        raise InputError(f"{name}: a powerOfTenMultiplier must be a whole number from -{LARGEST} to {LARGEST}")
    records: list[Record] = [(start, _scaled(value, int(power)), block) for start, value, block in found.records]
    layout = Layout("time", value="value", stream="stream")
    table = table_of(records, layout, name, options, "no IntervalReading with a timePeriod in it")
    if table.frame["stream"].n_unique() == 1:
        table = replace(table, frame=table.frame.drop("stream"))
    return replace(table, unit=UOM.get(uom, ""))


def _scaled(value: str | None, power: int) -> str | None:
    """value * 10^power, as text."""
    return value if not value or not power else f"{value}e{power}"


READER = Reader(
    "Green Button",
    (".xml",),
    read_espi,
    lambda text: text.startswith("<") and ("naesb.org/espi" in text or "www.w3.org/2005/Atom" in text),
    _EXAMPLE,
)
