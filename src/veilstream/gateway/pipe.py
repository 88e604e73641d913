"""`veil release`: readings on stdin, releases on stdout, CSV or JSON lines, in constant memory.

Whatever has arrived is released together in one transaction and written out at once, so that the same command serves
a file and `tail -f`. Columns are guessed by the names that `veil fit` knows.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO, Literal

import numpy as np

from veilstream.data.columns import NONE, Layout, Split, check_one_person, guess_layout
from veilstream.data.states import apart_km, name_code
from veilstream.errors import InputError
from veilstream.gateway.core import Core, Found, Message, handle
from veilstream.gateway.gpx import gpx
from veilstream.gateway.records import Outcome, Status
from veilstream.gateway.wire import (
    LAST_SECOND,
    LONGEST_INTEGER,
    MAX_BYTES,
    Grid,
    Point,
    Reading,
    Refusal,
    Release,
    number,
    parse,
    point,
    reading,
)

CHUNK = 1 << 16
BOM = b"\xef\xbb\xbf"
REMEMBERED = 1 << 16  # streams written to, and steps of earlier runs written again
DEFAULT_STREAM = "stream"  # for input that tells no streams apart
PLAIN = {"stream", "t", "tst", "value", "lat", "lon", "_type"}  # names of the gateway's own messages
Format = Literal["csv", "jsonl", "gpx"]
Read = Callable[[bytes | bytearray], Found]  # the readings of a line


def lines_of(source: BinaryIO, limit: int = MAX_BYTES) -> Iterator[list[bytes | None]]:
    """Lines as they come, those of one read together; None for a line beyond the limit, which is never held whole."""
    rest, lost = b"", False
    while chunk := source.read1(CHUNK) if hasattr(source, "read1") else source.read(CHUNK):
        *complete, rest = (rest + chunk).split(b"\n")
        lines: list[bytes | None] = list(complete)
        if lines and lost:
            lines[0], lost = None, False
        if len(rest) > limit:
            rest, lost = b"", True
        if lines:
            yield lines
    if rest or lost:
        yield [None if lost else rest]


# --- in --------------------------------------------------------------------------------------------------


def of_table(header: bytes, rest: Sequence[bytes | None], grid: Grid, columns: Mapping[str, str]) -> Read:
    """A header, then one reading per line (no line breaks inside quotes)."""
    names = _fields(header) or []
    layout = guess_layout(names, columns, "the CSV header")
    if not (layout.stream or layout.wide or columns.get("stream") == NONE):
        rows = [cells for line in rest if line and (cells := _fields(line)) and len(cells) == len(names)]
        check_one_person(_splits(names, layout, rows), "the CSV header")

    def read(line: bytes | bytearray) -> Found:
        cells = _fields(line)
        if cells is None or len(cells) != len(names):
            return [Refusal.unreadable]
        row = dict(zip(reversed(names), reversed(cells), strict=True))  # of two columns of one name the first
        return _readings(row, layout, grid)

    return read


def of_objects(layout: Layout, grid: Grid) -> Read:
    """One JSON object per line, with names of its own."""

    def read(line: bytes | bytearray) -> Found:
        found = _object(line)
        return [Refusal.unreadable] if found is None else _readings(found, layout, grid)

    return read


def _readings(cells: Mapping[str, Any], layout: Layout, grid: Grid) -> Found:
    t = cells.get(layout.time)
    if isinstance(t, bool) or not isinstance(t, int | float | str | None):
        return [Refusal.time]
    if layout.wide:
        return [_reading(t, cells.get(name), None, None, name, grid) for name in layout.wide]
    value, lat, lon = (None if c is None else cells.get(c, "") for c in (layout.value, layout.lat, layout.lon))
    name = DEFAULT_STREAM if layout.stream is None else cells.get(layout.stream)
    whose = name if name is None or isinstance(name, str) else str(name)
    return [_reading(t, layout.meant(value), lat, lon, whose, grid)]


def _reading(
    t: int | float | str | None, value: object, lat: object, lon: object, name: str | None, grid: Grid
) -> Reading | Refusal:
    if grid.period_s is not None and abs(number(t)) >= LAST_SECOND:
        t = number(t) / 1000
    return reading(name, t, point(value, lat, lon, grid.names), grid)


def _splits(names: Sequence[str], layout: Layout, rows: Sequence[Sequence[str]]) -> Iterator[Split]:
    times = [row[names.index(layout.time)] for row in rows]
    for i, name in enumerate(names):
        if name not in layout.used:
            values = [row[i] for row in rows]
            pairs = set(zip(times, values, strict=True))
            yield Split(name, len(rows), len(set(times)), len(pairs), len(set(values)))


def _fields(line: bytes | bytearray) -> list[str] | None:
    try:
        text = line.decode()
        return (
            text.split(",") if text.isprintable() and '"' not in text else next(csv.reader([text], strict=True), None)
        )
    except (UnicodeDecodeError, csv.Error):
        return None


def _object(line: bytes | bytearray) -> dict[str, Any] | None:
    try:
        found = json.loads(line, parse_int=_integer)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _integer(digits: str) -> int | float:
    """Of any length: Python's own is refused from some thousand digits on."""
    return int(digits) if len(digits) < LONGEST_INTEGER else float(digits)


def is_json(line: bytes) -> bool:
    return line.removeprefix(BOM).lstrip()[:1] in (b"{", b"[")


def guess(line: bytes, rest: Sequence[bytes | None], grid: Grid, columns: Mapping[str, str]) -> tuple[Format, Read]:
    """The format of input that begins with this line, and how to read its lines; that of a table is no reading."""
    line = line.removeprefix(BOM)
    if not is_json(line):
        return "csv", of_table(line, rest, grid, columns)
    names = set(_object(line) or ())
    own = {"t", "stream"} <= names and ("value" in names or {"lat", "lon"} <= names)
    if not columns and (own or not names - PLAIN):
        return "jsonl", partial(parse, grid=grid)
    try:
        return "jsonl", of_objects(guess_layout(sorted(names), columns, "the first JSON line"), grid)
    except InputError:
        if columns:
            raise
        return "jsonl", partial(parse, grid=grid)  # one bad message costs one message


# --- out -------------------------------------------------------------------------------------------------


class Sink:
    """Releases as lines, one a step or one a reading, and what they came to. PRIVATE: the error is about true readings.

    `begin` says how lines are written.
    """

    form: Format = "jsonl"

    def __init__(self, core: Core, out: BinaryIO, per_reading: bool = False, audience: str = "") -> None:
        """audience: whose releases are written; "": the finest."""
        self.core, self.out, self.per_reading, self.audience = core, out, per_reading, audience
        self.states, self.climbs = core.spaces[""].states, core.spaces[""].rule is not None
        self.late = core.spaces[audience].delay > 0  # what is written is not of the reading it comes with
        points = core.spaces[audience].points
        self.map = points is not None and points.is_map
        self.bits_before = core.store.total_bits(audience)  # of all streams, when the run began
        self.steps = 0  # written, each once
        self._far, self._measured = 0.0, 0  # from readings to releases, in all
        self._since: dict[str, int] = {}  # first step of each stream drawn in this run, all of these are written
        self._earlier: dict[tuple[str, int], None] = {}  # steps of earlier runs that are written

    def begin(self, form: Format) -> None:
        self.form, self._track = form, list[Release]()
        if form == "gpx" and (not self.map or self.core.spaces[""].grid.period_s is None):
            raise InputError("gpx is for places with times: this policy releases others; take csv or jsonl")
        if form == "csv":
            place = "lat,lon," if self.map else ""
            self.out.write(f"stream,t,released,{place}leaked_bits{',rung' * self.climbs}\n".encode())

    @property
    def felt(self) -> float | None:
        """Mean distance from reading to release, in the states' unit; None where no reading has one."""
        return self._far / self._measured if self._measured else None

    def write(self, messages: Sequence[Message]) -> None:
        """What became of one batch, which is committed."""
        told, new = [], []
        for message in messages:
            if isinstance(message.found, Refusal):
                continue
            for given, outcome in zip(message.found, message.outcomes or (), strict=False):
                got = [o for o in outcome.of(self.audience) if o.release is not None]
                if isinstance(given, Refusal) or not got:
                    continue
                first = self._is_new(given, got[0].status is Status.released)
                if first:
                    new += [(None if self.late else given.point, o.release) for o in got if o.release is not None]
                if first or self.per_reading:
                    told += got
        self._count(new)
        self.out.write(self._lines(told))
        self.out.flush()

    def _count(self, steps: Sequence[tuple[Point, Release]]) -> None:
        """Steps, each by the reading that decided it; one that cannot be read has no distance."""
        self.steps += len(steps)
        if self.states is None:
            return
        if self.map:
            pairs = [(*p, r.lat, r.lon) for p, r in steps if isinstance(p, tuple)]
            at = np.array(pairs, dtype=float).reshape(-1, 4)
            far = apart_km(at[:, :2], at[:, 2:])
        else:
            values = [(p, _level(r.released)) for p, r in steps if isinstance(p, float)]
            far = np.abs(np.subtract(*np.array(values, dtype=float).reshape(-1, 2).T))
            far = np.minimum(far, 1.0) if self.states.kind == "names" else far
        far = far[np.isfinite(far)]
        self._far += float(far.sum())
        self._measured += len(far)

    def _is_new(self, given: Reading, drawn: bool) -> bool:
        """Whether its step was not written yet: it was just drawn, or an earlier run drew it and nobody asked since.

        Steps of a stream are drawn in rising order, so the first one of this run says which those are.
        """
        stream, step = given.stream, given.step
        since = self._since.get(stream)
        if drawn:
            if since is None:
                _remember(self._since, stream, step)
            return True
        if (since is not None and step >= since) or (stream, step) in self._earlier:
            return False
        _remember(self._earlier, (stream, step), None)
        return True

    def end(self) -> None:
        """What can be written once everything is known."""
        if self.form == "gpx":
            self.out.write(gpx(self._track))
            self.out.flush()

    def _lines(self, outcomes: list[Outcome]) -> bytes:
        if self.form == "gpx":
            self._track += [o.release for o in outcomes if o.release is not None]
            return b""
        if self.form != "csv":
            return b"".join(o.message + b"\n" for o in outcomes if o.message is not None)
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        for r in (o.release for o in outcomes if o.release is not None):
            place = [r.lat, r.lon] if self.map else []
            writer.writerow([no_formula(r.stream), r.t, r.released, *place, r.leaked_bits, *[r.rung] * self.climbs])
        return out.getvalue().encode()


def _remember(where: dict[Any, Any], key: Any, value: Any) -> None:
    where[key] = value
    if len(where) > REMEMBERED:
        del where[next(iter(where))]


def no_formula(name: str) -> str:
    """A name as a cell: what a spreadsheet would take for a formula is quoted, as spreadsheets do."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@")) else name


def _level(released: int | float | str | None) -> float:
    """What was released as the number that a reading is; names have one too."""
    return name_code(released) if isinstance(released, str) else np.nan if released is None else released


def run(
    core: Core,
    source: BinaryIO,
    out: BinaryIO,
    form: Literal["auto"] | Format = "auto",
    columns: Mapping[str, str] | None = None,
    per_reading: bool = False,
    audience: str = "",
) -> Sink:
    """Release everything in `source`. Counts are in `core.stats`."""
    sink, read = Sink(core, out, per_reading, audience), None
    for lines in lines_of(source):
        messages: list[Message] = []
        for i, line in enumerate(lines):
            if line is None:
                messages.append(Message(b"", Refusal.too_large))
                continue
            line = line.rstrip(b"\r")
            if not line or line.isspace():
                continue
            if read is None:
                if not (is_json(line) or b"," in line):
                    messages.append(Message(line, Refusal.unreadable))  # neither header nor JSON: it costs itself alone
                    continue
                found, read = guess(line, lines[i + 1 :], core.spaces[""].grid, columns or {})
                sink.begin(found if form == "auto" else form)
                if found == "csv":
                    continue
            messages.append(Message.of(core, line, read, None))
        handle(core, messages)
        if read is not None:
            sink.write(messages)
    sink.end()
    return sink


def settled(core: Core, readings: list[Reading | Refusal]) -> Message:
    """What became of readings that came from no message; committed."""
    message = Message(b"", readings)
    handle(core, [message])
    return message
