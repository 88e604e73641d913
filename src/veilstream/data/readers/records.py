"""Records of texts, one by one from a tree (JSON, XML, a database) -> Table, held in columns as they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice

import polars as pl

from veilstream.data.columns import Layout, listing
from veilstream.data.readers.reader import ReadOptions, Table
from veilstream.data.readers.table import TextTable, typed
from veilstream.data.readers.times import OWN
from veilstream.errors import InputError

BATCH = 200_000
HALF_HOUR_S, LONGEST_STAY_S = 1800.0, 90 * 86_400.0  # of a visit
SHOWN = 12  # series of a file that a message names
Record = Sequence[str | int | None]  # texts, and the number of its row where records are `numbered`


PLACES = Layout("time", lat="lat", lon="lon")
VALUES = Layout("time", value="value")


def table_of(
    records: Iterable[Record],
    layout: Layout,
    name: str,
    options: ReadOptions,
    none: str,
    row: str = "entry",
    numbered: bool = False,
) -> Table:
    """The readings of these records, whose fields are time, place or value, stream and trace of the layout.

    none: what to say where no record has a time. row: what a record is called. numbered: each ends with its own number
    from 0, of a line. Every stamp's own offset is right in what programs write.
    """
    options = replace(options, tz=options.tz or OWN, time_format=None)
    columns = [c for c in (layout.time, layout.lat, layout.lon, layout.value, layout.stream, layout.trace) if c]
    schema = dict.fromkeys(columns, pl.String()) | ({"__row": pl.UInt32()} if numbered else {})
    frames, rows = [], iter(records)
    while batch := list(islice(rows, BATCH)):
        frames.append(pl.DataFrame(batch, schema=schema, orient="row"))
    if all(frame[layout.time].is_null().all() for frame in frames):
        raise InputError(f"{name}: {none}")
    frame = pl.concat(frames)
    text = TextTable((frame if numbered else frame.with_row_index("__row")).lazy(), layout, name, 1, row)
    return replace(typed(text, options), iso=True, traced=False)  # no column: the format itself tells traces apart


def utc(seconds: float) -> str:
    """Seconds since 1970 as a stamp."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def moment(text: object, later_s: float = 0.0) -> str | None:
    """A stamp with its offset in UTC, so much later; as it is where it is none."""
    if not isinstance(text, str):
        return None if text is None else str(text)
    try:
        stamp = datetime.fromisoformat(text.strip())
        later = stamp if stamp.tzinfo is None else (stamp + timedelta(seconds=later_s)).astimezone(UTC)
        return text if stamp.tzinfo is None else later.isoformat(timespec="microseconds")
    except (ValueError, OverflowError):
        return text


def degrees(e7: object) -> str | None:
    """Degrees from ten-millionths of them; as it is where it is no number."""
    if isinstance(e7, int) and not isinstance(e7, bool):
        return f"{e7 / 1e7:.7f}"
    return None if e7 is None else str(e7)


def stay(start: object, end: object, lat: str | None, lon: str | None) -> Iterator[Record]:
    """Readings of a visit: at its start, every half hour while it lasts, and at its end."""
    yield moment(start), lat, lon
    try:
        first, last = (datetime.fromisoformat(str(text).strip()) for text in (start, end))
    except ValueError:
        return
    if first.tzinfo is None or last.tzinfo is None:
        return
    seconds = min((last - first).total_seconds(), LONGEST_STAY_S)
    for k in range(1, int(seconds / HALF_HOUR_S) + 1):
        yield moment(str(start), k * HALF_HOUR_S), lat, lon
    if seconds > 0 and seconds % HALF_HOUR_S:
        yield moment(end), lat, lon


def chosen(found: Mapping[str, int], told: str | None, name: str, what: str, first: tuple[str, ...] = ()) -> str:
    """The series that was asked for, or the only one; found: how many readings each has; first: named before others."""
    order = sorted(found, key=lambda series: (series not in first, -found[series], series))
    if told is None and len(found) == 1:
        return order[0]
    if told is not None and told in found:
        return told
    if not found:
        raise InputError(f"{name}: no {what} in it")
    others = "" if len(order) <= SHOWN else f" and {len(order) - SHOWN} more"
    known = f"{listing(order[:SHOWN], SHOWN)}{others}"
    if told is not None:
        raise InputError(f"{name}: no column {told!r} for value; there is {what}: {known}")
    raise InputError(f"{name}: which {what}? say `columns='value={listing(order[:1])}'`; there is {known}")
