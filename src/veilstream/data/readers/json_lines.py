"""JSON: one object per line, as the gateway reads and writes them, or one array of such objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from veilstream.data.columns import guess_layout
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.records import batches, elements
from veilstream.data.readers.table import TextTable, typed
from veilstream.errors import InputError

HEAD = 8192


def read_jsonl(path: Path, name: str, options: ReadOptions) -> Table:
    with path.open(encoding="utf-8-sig") as stream:
        array = stream.read(HEAD).lstrip().startswith("[")
    row = "entry" if array else "line"
    objects = enumerate(element for _, element in elements(path, name)) if array else _lines(path, name)
    texts = (_texts(number, found, f"{name} {row} {number + 1}") for number, found in objects)
    frames = [pl.DataFrame(batch, infer_schema_length=None) for batch in batches(texts)]
    if not frames:
        raise InputError(f"{name}: empty; expected JSON objects, one per line or in an array")
    frame = pl.concat(frames, how="diagonal_relaxed").with_columns(pl.col("__row").cast(pl.UInt32))
    layout = guess_layout([c for c in frame.columns if c != "__row"], options.columns, f"{name} {row} 1")
    return typed(TextTable(frame.lazy(), layout, name, 1, row), options)


def _lines(path: Path, name: str) -> Iterator[tuple[int, Any]]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines):
            if line.strip():
                try:
                    yield number, json.loads(line)
                except (ValueError, RecursionError):
                    raise InputError(f"{name} line {number + 1}: not JSON") from None


def _texts(number: int, found: Any, where: str) -> dict[str, object]:
    """The fields of an object as text, with its number."""
    if not isinstance(found, dict):
        raise InputError(f"{where}: expected a JSON object, found a {type(found).__name__}")
    return {k: None if v is None else str(v) for k, v in found.items()} | {"__row": number}


READER = Reader(
    "JSON lines",
    (".jsonl", ".ndjson", ".json"),
    read_jsonl,
    lambda text: text.startswith(("{", "[")),
    rank=1,
)
