"""JSON: one object per line, as the gateway reads and writes them, or one array of such objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from veilstream.data.columns import guess_layout
from veilstream.data.readers.json_stream import elements
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.table import TextTable, typed
from veilstream.errors import InputError

BATCH = 200_000
HEAD = 8192
_EXAMPLE = """{"stream": "alice", "t": 1704096010, "lat": -47.112233, "lon": -125.445566}
{"stream": "alice", "t": 1704096004, "lat": -47.223344, "lon": -125.556677}
{"stream": "alice", "t": 1704096015, "lat": -47.334455, "lon": -125.667788}
"""


def read_jsonl(path: Path, name: str, options: ReadOptions) -> Table:
    with path.open(encoding="utf-8-sig") as stream:
        if stream.read(HEAD).lstrip().startswith("["):
            return read_array(path, name, options)
    batches = list(_batches(path, name))
    if not batches:
        raise InputError(f"{name}: empty; expected one JSON object per line")
    frame = pl.concat(batches, how="diagonal")
    layout = guess_layout([c for c in frame.columns if c != "__row"], options.columns, f"{name} line 1")
    return typed(TextTable(frame.lazy(), layout, name, 1, lambda line, column: _field(path, line, column)), options)


def read_array(path: Path, name: str, options: ReadOptions) -> Table:
    rows: list[dict[str, object]] = []
    for number, (_, record) in enumerate(elements(path, name)):
        if not isinstance(record, dict):
            raise InputError(f"{name} entry {number + 1}: expected a JSON object, found a {type(record).__name__}")
        rows.append(_texts(record) | {"__row": number})
    if not rows:
        raise InputError(f"{name}: an empty array; expected JSON objects in it")
    frame = _text_frame(rows)
    layout = guess_layout([c for c in frame.columns if c != "__row"], options.columns, f"{name} entry 1")

    def field(entry: int, column: str) -> str:
        return str(rows[entry - 1].get(column, ""))

    return typed(TextTable(frame.lazy(), layout, name, 1, field, "entry"), options)


def _texts(record: dict[str, object]) -> dict[str, object]:
    return {k: None if v is None else str(v) for k, v in record.items() if k != "__row"}


def _batches(path: Path, name: str) -> Iterator[pl.DataFrame]:
    rows: list[dict[str, object]] = []
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                raise InputError(f"{name} line {number + 1}: not JSON") from None
            if not isinstance(record, dict):
                raise InputError(f"{name} line {number + 1}: expected a JSON object, found a {type(record).__name__}")
            rows.append(_texts(record) | {"__row": number})
            if len(rows) == BATCH:
                yield _text_frame(rows)
                rows = []
    if rows:
        yield _text_frame(rows)


def _text_frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return frame.with_columns(pl.col("__row").cast(pl.UInt32))


def _field(path: Path, line: int, column: str) -> str:
    """One field, read again only to word an error."""
    with path.open(encoding="utf-8-sig") as lines:
        text = next((text for i, text in enumerate(lines, 1) if i == line), "{}")
    return str(json.loads(text).get(column, ""))


READER = Reader(
    "JSON lines",
    (".jsonl", ".ndjson", ".json"),
    read_jsonl,
    lambda text: text.startswith(("{", "[")),
    _EXAMPLE,
    rank=1,
)
