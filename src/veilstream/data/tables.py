"""CSV (long and wide) and JSON lines -> typed frames, every bad field named with file and line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from veilstream.data.columns import Layout, guess_layout
from veilstream.data.times import (
    OWN,
    TimeStyle,
    has_zone,
    lacks_zone,
    offsets_fit_one_place,
    time_expr,
    time_style,
    zone_expr,
)
from veilstream.errors import InputError

JSON_BATCH = 200_000
RANGES = {"lat": 90.0, "lon": 180.0}


@dataclass
class Options:
    """What the user may tell the readers."""

    columns: dict[str, str] = field(default_factory=dict)
    tz: str | None = None
    time_format: str | None = None
    skip_bad: bool = False


@dataclass
class Table:
    """One file, read: frame with stream and trace as text, t, lat and lon or value; and what was met on the way."""

    frame: pl.DataFrame
    kind: str
    unit: str = ""
    stepped: bool = False
    naive_zone: str | None = None
    missing: int = 0
    bad: int = 0
    bad_streams: tuple[str, ...] = ()  # whose rows were dropped, in a long table with a key


def read_csv(path: Path, name: str, options: Options) -> Table:
    header = table_header(path, name)
    layout = guess_layout(header, options.columns, f"{name} line 1")
    scan = pl.scan_csv(path, infer_schema=False, row_index_name="__row", encoding="utf8")
    try:
        return _type(scan, layout, name, 2, options, _Lines(path))
    except pl.exceptions.PolarsError as problem:
        raise InputError(_ragged(path, name, len(header)) or f"{name}: not a CSV table ({_first(problem)})") from None


def read_jsonl(path: Path, name: str, options: Options) -> Table:
    batches = list(_json_batches(path, name))
    if not batches:
        raise InputError(f"{name}: empty; expected one JSON object per line")
    frame = pl.concat(batches, how="diagonal")
    layout = guess_layout([c for c in frame.columns if c != "__row"], options.columns, f"{name} line 1")
    return _type(frame.lazy(), layout, name, 1, options, _Lines(path))


def _json_batches(path: Path, name: str) -> Iterator[pl.DataFrame]:
    rows: list[dict[str, object]] = []
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (json.JSONDecodeError, RecursionError):
                raise InputError(f"{name} line {number + 1}: not JSON") from None
            if not isinstance(record, dict):
                raise InputError(f"{name} line {number + 1}: expected a JSON object, found a {type(record).__name__}")
            rows.append({k: None if v is None else str(v) for k, v in record.items()} | {"__row": number})
            if len(rows) == JSON_BATCH:
                yield _text_frame(rows)
                rows = []
    if rows:
        yield _text_frame(rows)


def _text_frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return frame.with_columns(pl.col("__row").cast(pl.UInt32))


def _type(scan: pl.LazyFrame, layout: Layout, name: str, first_line: int, options: Options, lines: _Lines) -> Table:
    """Text columns -> numbers and times, checked."""
    first = scan.select(layout.time).filter(_given(layout.time)).head(1).collect()
    if first.height == 0:
        raise InputError(f"{name}: no rows of data under the header; it needs at least two readings")
    style = time_style(str(first.item()), options.tz, options.time_format, f"{name} line {first_line}")
    numbers: dict[str, str | None] = {column: role for role, column in layout.numbers.items()}
    if layout.wide:
        numbers = dict.fromkeys(layout.wide)
    typed = [time_expr(layout.time, style).alias("t"), (~_given(layout.time)).alias("t_missing")]
    if style.kind == "aware":
        typed.append(zone_expr(layout.time).cast(pl.Categorical).alias("zone"))
    for column in numbers:
        number = pl.col(column).str.strip_chars().cast(pl.Float64, strict=False)
        bad = (number.is_null() & _given(column)) | number.is_infinite()
        typed += [number.fill_nan(None).alias(f"n:{column}"), bad.alias(f"bad:{column}")]
    for role, key in (("stream", layout.stream), ("trace", layout.trace)):
        if key:
            typed.append(pl.col(key).fill_null("").cast(pl.Categorical).alias(role))
    frame = scan.select("__row", *typed).collect(engine="streaming")
    bad_rows = _check(frame, layout, name, first_line, options, style, numbers, lines)
    whose: tuple[str, ...] = ()
    if bad_rows.len():
        is_bad = pl.col("__row").is_in(bad_rows.implode())
        if layout.stream:
            whose = tuple(frame.filter(is_bad)["stream"].unique(maintain_order=True).cast(pl.String).to_list())
        frame = frame.filter(~is_bad)
    return replace(_finish(frame, layout, style, numbers, int(bad_rows.len())), bad_streams=whose)


def _check(
    frame: pl.DataFrame,
    layout: Layout,
    name: str,
    first_line: int,
    options: Options,
    style: TimeStyle,
    numbers: dict[str, str | None],
    lines: _Lines,
) -> pl.Series:
    """Rows that cannot be read. Raises at the first one unless the user asked to skip them."""
    faults = [(pl.col("t").is_null() & ~pl.col("t_missing"), layout.time, "time")]
    for column, role in numbers.items():
        faults.append((pl.col(f"bad:{column}"), column, "number"))
        if role in RANGES:
            faults.append((pl.col(f"n:{column}").abs() > RANGES[role], column, role))
    if "zone" in frame.columns and options.tz is None:
        _check_zones(frame, name, first_line)
    rows = []
    for test, column, what in faults:
        found = frame.filter(test.fill_null(False))["__row"]
        if not found.len():
            continue
        if not options.skip_bad:
            line = int(found.min()) + first_line  # type: ignore[arg-type]
            raise InputError(_fault(f"{name} line {line}", column, what, lines.field(line, column), style))
        rows.append(found)
    return pl.concat(rows).unique() if rows else pl.Series("__row", [], dtype=pl.UInt32)


def _fault(where: str, column: str, what: str, text: str, style: TimeStyle) -> str:
    skip = "correct it, or drop and count such rows with --skip-bad"
    if what == "number":
        return f"{where}: column {column!r} must be a number, found {text!r}; {skip}"
    if what in RANGES:
        return f"{where}: {what} {text} is outside -{RANGES[what]:g}..{RANGES[what]:g} degrees; {skip}"
    if style.kind == "naive" and has_zone(text):
        return f"{where}: mixed time zones: {text!r} has one, earlier stamps have none; write all in one form"
    if style.kind == "aware" and lacks_zone(text):
        return f"{where}: mixed time zones: {text!r} has none, earlier stamps have one; write all in one form"
    return f"{where}: the time {text!r} is not like the first one (or does not exist in {style.zone}); {skip}"


def _check_zones(frame: pl.DataFrame, name: str, first_line: int) -> None:
    zones = [str(z) for z in frame["zone"].unique().drop_nulls().to_list()]
    if len(zones) < 2 or offsets_fit_one_place(zones):
        return
    first = str(frame["zone"].drop_nulls()[0])
    row = next(
        int(frame.filter(pl.col("zone").cast(pl.String) == z)["__row"].min())  # type: ignore[arg-type]
        for z in sorted(zones, key=lambda z: offsets_fit_one_place([first, z]))
        if z != first
    )
    raise InputError(
        f"{name} line {row + first_line}: mixed time zones: {', '.join(sorted(zones))}; "
        f"if every stamp's own offset is right, say --tz {OWN}"
    )


def _finish(frame: pl.DataFrame, layout: Layout, style: TimeStyle, numbers: dict[str, str | None], bad: int) -> Table:
    """Long form, missing readings counted and left out."""
    keys = [c for c in ("stream", "trace") if c in frame.columns]
    if layout.wide:
        frame = frame.select("t", *keys, *(pl.col(f"n:{c}").alias(c) for c in numbers))
        frame = frame.unpivot(index=["t", *keys], variable_name="stream", value_name="value")
        keys, columns = ["stream", *keys], ["value"]
    else:
        frame = frame.select("t", *keys, *(pl.col(f"n:{c}").alias(str(role)) for c, role in numbers.items()))
        columns = [str(r) for r in numbers.values()]
    rows = frame.height
    frame = frame.drop_nulls(["t", *columns])
    frame = frame.with_columns(pl.col(k).cast(pl.String).cast(pl.Categorical) for k in keys)
    naive = style.zone if style.kind == "naive" else None
    return Table(frame, layout.kind, layout.unit, style.stepped, naive, rows - frame.height, bad)


def _given(column: str) -> pl.Expr:
    return (pl.col(column).str.strip_chars().str.len_bytes() > 0).fill_null(False)


class _Lines:
    """Single lines of a file, read again only to word an error."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def line(self, number: int) -> str:
        with self.path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
            return next((line for i, line in enumerate(lines, 1) if i == number), "").rstrip("\r\n")

    def field(self, number: int, column: str) -> str:
        line = self.line(number)
        if line.lstrip().startswith("{"):
            return str(json.loads(line).get(column, ""))
        names = next(csv.reader([self.line(1)]), [])
        fields = next(csv.reader([line]), [])
        return fields[names.index(column)][:40] if column in names and names.index(column) < len(fields) else ""


def table_header(path: Path, name: str) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        header = next(csv.reader(lines), [])
    if not header:
        raise InputError(f"{name} line 1: no header; the first line must name the columns, as in stream,time,lat,lon")
    if len(set(header)) < len(header):
        double = next(c for c in header if header.count(c) > 1)
        raise InputError(f"{name} line 1: two columns are called {double!r}; give each its own name")
    return header


def _ragged(path: Path, name: str, width: int) -> str | None:
    """The first row with more fields than the header, as an error line."""
    with path.open(encoding="utf-8-sig", newline="", errors="replace") as lines:
        for number, fields in enumerate(csv.reader(lines), 1):
            if len(fields) > width:
                return f"{name} line {number}: {len(fields)} fields where the header names {width}; correct the line"
    return None


def _first(problem: Exception) -> str:
    return str(problem).splitlines()[0][:120]
