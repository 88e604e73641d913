"""Records of texts, one by one from a tree (JSON, XML, a database) -> Table, held in columns as they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice

import polars as pl

from veilstream.data.columns import Layout
from veilstream.data.readers.reader import ReadOptions, Table
from veilstream.data.readers.table import TextTable, typed
from veilstream.data.readers.times import OWN
from veilstream.errors import InputError

BATCH = 200_000
HALF_HOUR_S, LONGEST_STAY_S = 1800.0, 90 * 86_400.0  # of a visit
Record = Sequence[str | None]


PLACES = Layout("time", lat="lat", lon="lon")
VALUES = Layout("time", value="value")


def table_of(
    records: Iterable[Record],
    layout: Layout,
    name: str,
    options: ReadOptions,
    none: str,
    row: str = "entry",
) -> Table:
    """The readings of these records, whose fields are time, place or value, stream and trace of the layout.

    none: what to say where no record has a time. Every stamp's own offset is right in what programs write.
    """
    options = replace(options, tz=options.tz or OWN, time_format=None)
    columns = [c for c in (layout.time, layout.lat, layout.lon, layout.value, layout.stream, layout.trace) if c]
    frames = list(_frames(iter(records), columns))
    if all(frame[layout.time].is_null().all() for frame in frames):
        raise InputError(f"{name}: {none}")
    frame = pl.concat(frames).with_row_index("__row")

    def field(entry: int, column: str) -> str:
        return str(frame[column][entry - 1])

    return replace(typed(TextTable(frame.lazy(), layout, name, 1, field, row), options), iso=True)


def _frames(records: Iterator[Record], columns: list[str]) -> Iterator[pl.DataFrame]:
    while batch := list(islice(records, BATCH)):
        yield pl.DataFrame(batch, schema=dict.fromkeys(columns, pl.String), orient="row")


def moment(text: object, later_s: float = 0.0) -> str | None:
    """A stamp with its offset as microseconds since 1970, so much later; as it is where it is none."""
    if not isinstance(text, str):
        return None if text is None else str(text)
    try:
        stamp = datetime.fromisoformat(text.strip())
        return text if stamp.tzinfo is None else str(round((stamp.timestamp() + later_s) * 1e6))
    except (ValueError, OverflowError):
        return text


def degrees(e7: object) -> str | None:
    """Degrees from ten-millionths of them; as it is where it is no number."""
    if isinstance(e7, int) and not isinstance(e7, bool):
        return f"{e7 / 1e7:.7f}"
    return None if e7 is None else str(e7)


def stay(start: object, end: object, lat: str | None, lon: str | None) -> Iterator[Record]:
    """Readings of a visit: at its start, every half hour while it lasts, and at its end."""
    first, last = moment(start), moment(end)
    yield first, lat, lon
    if first is None or last is None or not (first.isdecimal() and last.isdecimal()):
        return
    seconds = min((int(last) - int(first)) / 1e6, LONGEST_STAY_S)
    for k in range(1, int(seconds / HALF_HOUR_S) + 1):
        yield str(int(first) + round(k * HALF_HOUR_S * 1e6)), lat, lon
    if seconds > 0 and seconds % HALF_HOUR_S:
        yield last, lat, lon
