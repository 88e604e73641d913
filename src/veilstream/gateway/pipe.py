"""`veil release`: readings on stdin, releases on stdout, CSV or JSON lines, in constant memory.

Whatever has arrived is released together in one transaction and written out at once, so that the same command serves
a file and `tail -f`.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Literal

from veilstream.errors import InputError
from veilstream.gateway.core import Core
from veilstream.gateway.intake import Found, Parcel, handle
from veilstream.gateway.outcome import Outcome
from veilstream.gateway.wire import MAX_BYTES, Grid, Refusal, parse, point, reading, together

CHUNK = 1 << 16
DEFAULT_STREAM = "stream"  # for input that tells no streams apart
Format = Literal["auto", "csv", "jsonl"]
ALIASES = {
    "t": ("t", "time", "timestamp", "tst"),
    "value": ("value",),
    "lat": ("lat", "latitude"),
    "lon": ("lon", "lng", "longitude"),
}


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


class JsonLines:
    """One JSON object (or array of them) per line, in and out."""

    header = b""

    def __init__(self, grid: Grid, key: str | None) -> None:
        if key not in (None, "stream"):
            raise InputError('`key` names a CSV column; JSON lines carry their stream as "stream"')
        self.grid = grid

    def read(self, line: bytes | bytearray) -> Found:
        return parse(line, self.grid)

    def write(self, outcomes: list[Outcome]) -> bytes:
        return b"".join(o.message + b"\n" for o in outcomes if o.message is not None)


class Csv:
    """A header, then one reading per line (no line breaks inside quotes)."""

    def __init__(self, grid: Grid, key: str | None, header: bytes) -> None:
        self.grid = grid
        names = [n.strip().lower() for n in _fields(header) or []]
        at = {what: next((names.index(n) for n in known if n in names), None) for what, known in ALIASES.items()}
        self.stream = names.index(k) if (k := (key or "stream").lower()) in names else None
        self.at = at
        if at["t"] is None or (at["value"] is None and (at["lat"] is None or at["lon"] is None)):
            raise InputError("the CSV header must name stream, t, and value or lat,lon")  # it may be data: not shown
        if key is not None and self.stream is None:
            raise InputError(f"the CSV header has no column {key!r}")
        self.map = at["lat"] is not None and at["value"] is None
        self.width = len(names)
        self.header = b"stream,t,released,lat,lon,leaked_bits\n" if self.map else b"stream,t,released,leaked_bits\n"

    def read(self, line: bytes | bytearray) -> Found:
        cells = _fields(line)
        if cells is None or len(cells) != self.width:
            return [Refusal.unreadable]
        value, lat, lon = (None if (i := self.at[k]) is None else cells[i] for k in ("value", "lat", "lon"))
        name = DEFAULT_STREAM if self.stream is None else cells[self.stream]
        return [reading(name, cells[self.at["t"] or 0], point(value, lat, lon), self.grid)]

    def write(self, outcomes: list[Outcome]) -> bytes:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        for r in (o.release for o in outcomes if o.release is not None):
            place = [r.lat, r.lon] if self.map else []
            writer.writerow([r.stream, r.t, r.released, *place, r.leaked_bits])
        return out.getvalue().encode()


def run(core: Core, source: BinaryIO, sink: BinaryIO, form: Format = "auto", key: str | None = None) -> None:
    """Release everything in `source`. Counts are in `core.stats`."""
    grid = core.spaces[""].grid
    codec: JsonLines | Csv | None = None

    def work(parcels: Sequence[Parcel]) -> None:
        readings, places = together([parcel.found for parcel in parcels])
        outcomes = core.process(readings).outcomes
        for parcel, at in zip(parcels, places, strict=True):
            parcel.outcomes = outcomes[at.start : at.stop]

    for lines in lines_of(source):
        parcels: list[Parcel] = []
        for line in lines:
            if line is None:
                parcels.append(Parcel(b"", Refusal.too_large))
                continue
            line = line.rstrip(b"\r")
            if not line.strip():
                continue
            if codec is None:
                is_json = form == "jsonl" or (form == "auto" and line.lstrip()[:1] in (b"{", b"["))
                codec = JsonLines(grid, key) if is_json else Csv(grid, key, line.removeprefix(b"\xef\xbb\xbf"))
                sink.write(codec.header)
                if not is_json:
                    continue
            parcels.append(Parcel.of(core, line, codec.read, None))
        handle(core, parcels, work)
        if codec is not None:
            sink.write(codec.write([o for parcel in parcels for o in parcel.outcomes or ()]))
        sink.flush()


def _fields(line: bytes | bytearray) -> list[str] | None:
    try:
        return next(csv.reader([line.decode()], strict=True), None)
    except (UnicodeDecodeError, csv.Error):
        return None
