"""What a reader is: from one file to a Table, or one line that says why not.

Every reader keeps these promises (tests/data/test_reader_promises.py): whatever is in the file, it is read or refused
with an InputError of one line that names the file; and no value of the file stands in that line, only its form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from veilstream.data.columns import parse_columns
from veilstream.data.readers.times import TimeStyle, check_zone
from veilstream.data.readings import Entry

RANGES = {"lat": 90.0, "lon": 180.0}
SKIP = "correct it, or drop and count such rows with `skip_bad=True`"


@dataclass(frozen=True)
class ReadOptions:
    """How to read: which column is what, zone and format of times, unit of values, what to do with bad rows."""

    columns: Mapping[str, str] = field(default_factory=dict)
    tz: str | None = None
    time_format: str | None = None
    unit: str | None = None
    skip_bad: bool = False

    @classmethod
    def of(cls, columns: str | Mapping[str, str] | None = None, **how: Any) -> ReadOptions:
        """With columns as text too, "time=ts,lat=y"; roles and zone are checked."""
        check_zone(how.get("tz"))
        return cls(parse_columns(columns), **how)


@dataclass(frozen=True)
class Table:
    """One file, read.

    frame    columns t (microseconds UTC), lat and lon or value, and where the file tells them apart stream and trace
    """

    frame: pl.DataFrame
    kind: str  # position, value, or name: a number for each name, see `names`
    style: TimeStyle  # how its times were written
    unit: str = ""
    missing: int = 0
    bad: int = 0
    bad_streams: tuple[str, ...] = ()  # whose rows were dropped, in a long table with a key
    traced: bool = False  # a column tells traces apart
    aside: tuple[str, ...] = ()  # columns left aside whose few values might tell people apart
    notes: tuple[Entry, ...] = ()  # what else the account is to say
    names: Mapping[float, str] = field(default_factory=dict)  # of kind name: what stands behind each number


@dataclass(frozen=True)
class Reader:
    """One format.

    read     (path, name to show, options) -> Table
    takes    whether a text that begins like this is of this format
    stream   (path, whether it is the only file) -> whose readings they are, where the file does not say
    rank     readers that take much are asked after those that take little: 0, then 1, ...
    magic    what a file begins with that is no text
    inside   where in a zip its files are; such a zip holds nothing else that is read
    """

    name: str
    endings: tuple[str, ...]
    read: Callable[[Path, str, ReadOptions], Table]
    takes: Callable[[str], bool] = lambda text: False
    stream: Callable[[Path, bool], str] = lambda path, alone: path.stem
    rank: int = 0
    magic: tuple[bytes, ...] = ()
    inside: tuple[str, ...] = ()
