"""Real records to try promises on: geolife/USER, tracks/FILE and the households of smartmeter/*.csv in $VEIL_DATA."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veilstream.data.readings import Readings

NONE: dict[str, dict[str, float | str]] = {
    "data": {"note": "none: name a folder with geolife/, tracks/ or smartmeter/ in VEIL_DATA"}
}


def everybody() -> "Iterator[tuple[str, Readings]]":
    """People by their folder, then households by their column."""
    yield from people()
    yield from households()


def people() -> "Iterator[tuple[str, Readings]]":
    from veilstream.data.sources import read

    for user in sorted(p for p in _folder().glob("geolife/*") if p.is_dir()):
        yield user.name, read([str(user)])
    for track in sorted(_folder().glob("tracks/*")):  # of any other collection: what veil fit reads, one of each user
        yield track.stem, read([str(track)])


def households() -> "Iterator[tuple[str, Readings]]":
    if (readings := meters()) is not None:
        yield from ((name, readings.only(name)) for name in readings.streams)


def meters() -> "Readings | None":
    """All households, each a stream."""
    from veilstream.data.sources import read

    tables = sorted(_folder().glob("smartmeter/*.csv"))
    return read([str(t) for t in tables], columns="value=*", unit="kWh") if tables else None


def _folder() -> Path:
    return Path(os.environ.get("VEIL_DATA", "data"))
