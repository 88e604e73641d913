"""Records of texts, one by one from a tree (JSON, XML, a database) -> Table, held in columns as they come.

Large JSON and XML are read as they come, with no tree in memory. Entities of XML are refused, and a document type
skipped: of Apple's, some versions are broken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, TextIO
from xml.parsers import expat

import polars as pl

from veilstream.data.columns import Layout, listing
from veilstream.data.readers.reader import ReadOptions, Table
from veilstream.data.readers.table import TextTable, typed
from veilstream.data.readers.times import OWN
from veilstream.errors import InputError

BATCH = 200_000
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
    frames = [pl.DataFrame(batch, schema=schema, orient="row") for batch in batches(records)]
    if all(frame[layout.time].is_null().all() for frame in frames):
        raise InputError(f"{name}: {none}")
    frame = pl.concat(frames)
    text = TextTable((frame if numbered else frame.with_row_index("__row")).lazy(), layout, name, 1, row)
    table = typed(text, options)
    style = replace(table.style, kind="aware") if table.style.kind == "number" else table.style  # programs mean dates
    return replace(table, style=style, traced=False)  # no column: the format itself tells traces apart


def reads(
    records: Callable[[Path, str], Iterable[Record]], none: str, layout: Layout = PLACES, **how: Any
) -> Callable[[Path, str, ReadOptions], Table]:
    """The reader of a format whose files are records and nothing else; how: as `table_of` takes it."""
    return lambda path, name, options: table_of(records(path, name), layout, name, options, none, **how)


def batches(rows: Iterable[Any]) -> Iterator[list[Any]]:
    rows = iter(rows)
    while batch := list(islice(rows, BATCH)):
        yield batch


def utc(number: Any, per_second: float = 1.0) -> str | None:
    """Seconds (or smaller units) since 1970 as a stamp; as it is where it is no number."""
    try:
        return datetime.fromtimestamp(float(number) / per_second, UTC).isoformat(timespec="microseconds")
    except (TypeError, ValueError, OverflowError, OSError):
        return None if number is None else str(number)


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


# --- JSON: the elements of a large array, of the file itself or under a key of it -------------------------

CHUNK = 1 << 20  # characters of JSON, bytes of XML
MOST = 64 << 20  # of one element
_SPACE = re.compile(r"[ \t\n\r]*")


class _Json:
    """A text that is read as far as it is needed."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self.stream, self.name = stream, name
        self.buffer, self.at, self.done = "", 0, False
        self.decode = json.JSONDecoder(parse_constant=lambda _: None).raw_decode

    def more(self) -> bool:
        chunk = self.stream.read(max(CHUNK, len(self.buffer) - self.at))
        self.buffer, self.at, self.done = self.buffer[self.at :] + chunk, 0, not chunk
        return not self.done

    def peek(self) -> str:
        """The next character that is no space; "" at the end."""
        while (space := _SPACE.match(self.buffer, self.at)) and (at := space.end()) == len(self.buffer):
            self.at = at
            if not self.more():
                return ""
        self.at = at
        return self.buffer[at]

    def take(self, *known: str) -> str:
        if (found := self.peek()) not in known:
            raise self.fault()
        self.at += 1
        return found

    def value(self) -> Any:
        self.peek()
        while True:
            try:
                found, end = self.decode(self.buffer, self.at)
                if end < len(self.buffer) or self.done:
                    self.at = end
                    return found
            except (ValueError, RecursionError):
                if self.done or len(self.buffer) - self.at > MOST:
                    raise self.fault() from None
            self.more()

    def parts(self, first: str, last: str) -> Iterator[None]:
        """Between these brackets: before each part, which the caller takes."""
        self.take(first)
        if self.peek() == last:
            self.take(last)
            return
        yield
        while self.take(",", last) != last:
            yield

    def fault(self) -> InputError:
        return InputError(f"{self.name}: not JSON, or cut off")


def elements(path: Path, name: str, *keys: str) -> Iterator[tuple[str, Any]]:
    """(key, element) of the array in a file, with "" for the key; or of the arrays under these keys of its object."""
    with path.open(encoding="utf-8-sig") as stream:
        text = _Json(stream, name)
        if text.peek() == "[":
            yield from (("", text.value()) for _ in text.parts("[", "]"))
        else:
            for _ in text.parts("{", "}"):
                key = text.value()
                text.take(":")
                if text.peek() == "[":
                    items = ((key, text.value()) for _ in text.parts("[", "]"))
                    yield from (item for item in items if key in keys)
                else:
                    text.value()
        if text.peek():
            raise text.fault()


def at(found: Any, *keys: str) -> Any:
    """The value under these keys of nested objects; None where one of them is absent."""
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def text_of(found: Any) -> str | None:
    """A number or text as text; None for anything else."""
    return str(found) if isinstance(found, str | int | float) and not isinstance(found, bool) else None


# --- XML: elements as they come ---------------------------------------------------------------------------

_DOCTYPE = re.compile(rb"<!DOCTYPE\s+[\w:.-]+\s*(?:\[.*?\]\s*)?>", re.DOTALL)
# no control characters may stand in XML; Apple writes some
_CONTROL = bytes(c for c in range(32) if c not in b"\t\n\r")
Event = tuple[str, dict[str, str] | None, str, int]


def events(path: Path, name: str, what: str) -> Iterator[Event]:
    """(tag, attributes, "", line) where an element begins, (tag, None, text in it, line) where it ends.

    Tags are without their name space.
    """
    parser = expat.ParserCreate("utf-8", " ")
    text, found = list[str](), list[Event]()

    def begins(tag: str, attributes: dict[str, str]) -> None:
        text.clear()
        found.append((tag.rpartition(" ")[2], attributes, "", parser.CurrentLineNumber))

    def ends(tag: str) -> None:
        found.append((tag.rpartition(" ")[2], None, "".join(text), parser.CurrentLineNumber))

    def refuse(*_: Any) -> None:
        raise InputError(f"{name}: {what} has no entities, and its document type stands at the beginning; refused")

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = begins, ends, text.append
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        with path.open("rb") as stream:
            chunk = stream.read(CHUNK).removeprefix(b"\xef\xbb\xbf")
            if b"<!DOCTYPE" in chunk:  # taken out; its lines stay
                if b"<!ENTITY" in chunk:
                    refuse()
                chunk = _DOCTYPE.sub(lambda found: b"\n" * found[0].count(b"\n"), chunk, count=1)
            while chunk:
                parser.Parse(chunk.translate(None, _CONTROL), False)
                yield from found
                found.clear()
                chunk = stream.read(CHUNK)
        parser.Parse(b"", True)
        yield from found
    except expat.ExpatError as problem:
        raise InputError(f"{name} line {problem.lineno}: not readable as {what}") from None
