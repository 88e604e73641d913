"""SOURCE... -> Readings: a file, a glob, a folder or "-"; the format by ending, then by content."""

from __future__ import annotations

import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from veilstream.data.columns import parse_columns
from veilstream.data.readings import VALUE_COLUMNS, Account, Readings, hash_files
from veilstream.data.tables import Options, Table, read_csv, read_jsonl
from veilstream.data.times import check_zone
from veilstream.data.tracks import read_gpx, read_plt
from veilstream.errors import InputError

ENDINGS = {".plt": "plt", ".gpx": "gpx", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
Progress = Callable[[int, int], None]


def read(
    sources: Sequence[str],
    *,
    columns: str | None = None,
    tz: str | None = None,
    time_format: str | None = None,
    unit: str | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> Readings:
    """All readings of the sources, in one table, with the account of the reading."""
    check_zone(tz)
    options = Options(parse_columns(columns), tz, time_format, skip_bad)
    with tempfile.TemporaryDirectory(prefix="veil-") as folder:
        files = expand(sources, Path(folder))
        tables = []
        for i, (path, name) in enumerate(files):
            tables.append((name, path, _read_one(path, name, options)))
            if progress:
                progress(i + 1, len(files))
        return _join(tables, unit, hash_files([p for p, _ in files]))


def expand(sources: Sequence[str], folder: Path) -> list[tuple[Path, str]]:
    """The files behind the sources, each once, with the name to show; stdin is spooled into `folder`."""
    if not sources:
        raise InputError("no source given; name a file, a folder, a glob or - for standard input")
    found: dict[str, tuple[Path, str]] = {}
    for source in sources:
        for path, name in _expand_one(source, folder):
            found.setdefault(os.path.realpath(path), (path, name))
    return list(found.values())


def _expand_one(source: str, folder: Path) -> list[tuple[Path, str]]:
    if source == "-":
        spool = folder / "stdin"
        with spool.open("wb") as out:
            shutil.copyfileobj(sys.stdin.buffer, out)
        return [(spool, "stdin")]
    path = Path(source).expanduser()
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())
        if not files:
            raise InputError(f"{source}: a folder without traces; it must hold {', '.join(sorted(ENDINGS))} files")
        return [(p, str(p)) for p in files]
    if path.is_file():
        return [(path, source)]
    matches = sorted(glob.glob(str(path), recursive=True))
    if not matches:
        hint = " (the pattern matches nothing)" if "*" in source else ""
        raise InputError(f"{source}: no such file or folder{hint}")
    return [pair for match in matches for pair in _expand_one(match, folder)]


def _read_one(path: Path, name: str, options: Options) -> Table:
    kind = sniff(path, name)
    if kind == "plt":
        return read_plt(path, name, options.skip_bad)
    if kind == "gpx":
        return read_gpx(path, name, options.skip_bad)
    return read_jsonl(path, name, options) if kind == "jsonl" else read_csv(path, name, options)


def sniff(path: Path, name: str) -> str:
    """The format of a file; empty and binary files end here."""
    try:
        with path.open("rb") as stream:
            head = stream.read(8192)
    except OSError as problem:
        raise InputError(f"{name}: cannot be read ({problem.strerror})") from None
    if not head.strip():
        raise InputError(f"{name}: empty file")
    try:
        # a multi-byte character may be cut at the end of the block
        text = head.decode("utf-8-sig") if len(head) < 8192 else head[:-4].decode("utf-8-sig", errors="strict")
    except UnicodeDecodeError as problem:
        if problem.start < len(head) - 8:
            raise InputError(_binary(name, head)) from None
        text = head[: problem.start].decode("utf-8-sig")
    if "\0" in text:
        raise InputError(_binary(name, head))
    start = text.lstrip()
    if kind := ENDINGS.get(path.suffix.lower()):
        return kind
    if start.lower().startswith("geolife"):
        return "plt"
    if start.startswith("<"):
        return "gpx"
    return "jsonl" if start.startswith("{") else "csv"


def _binary(name: str, head: bytes) -> str:
    packed = head[:2] in (b"PK", b"\x1f\x8b")
    hint = "unpack it first" if packed else "expected text: .plt, .gpx, .csv or .jsonl in UTF-8"
    return f"{name} line 1: a binary file; {hint}"


def stream_name(path: Path, name: str, alone: bool) -> str:
    """GeoLife: the user's folder. Several tracks in a folder are one person; a file alone has its own name."""
    if name == "stdin":
        return name
    parent = path.absolute().parent
    if path.suffix.lower() == ".plt":
        return parent.parent.name if parent.name.lower() == "trajectory" else parent.name
    return path.stem if alone or path.suffix.lower() != ".gpx" else parent.name


def _join(tables: list[tuple[str, Path, Table]], unit: str | None, sha256: str) -> Readings:
    """One frame with stream and trace as codes."""
    kinds = {table.kind for _, _, table in tables}
    if len(kinds) > 1:
        first, odd = tables[0], next(t for t in tables if t[2].kind != tables[0][2].kind)
        raise InputError(f"{odd[0]}: {first[0]} holds {first[2].kind}s, this one {odd[2].kind}s; fit them apart")
    kind = kinds.pop()
    units = {table.unit for _, _, table in tables} - {""}
    if len(units) > 1 and unit is None:
        raise InputError(f"the files are in different units ({', '.join(sorted(units))}); convert them, or say --unit")
    frames = []
    for number, (name, path, table) in enumerate(tables):
        own = pl.lit(stream_name(path, name, len(tables) == 1))
        has = table.frame.columns
        stream = pl.col("stream").cast(pl.String) if "stream" in has else own
        trace = pl.col("trace").cast(pl.String) if "trace" in has else pl.lit("")
        frames.append(
            table.frame.select(
                stream.cast(pl.Categorical).alias("stream"),
                trace.cast(pl.Categorical).alias("part"),
                pl.lit(number, dtype=pl.UInt32).alias("file"),
                "t",
                *VALUE_COLUMNS[kind],
            )
        )
    frame = pl.concat(frames)
    names = frame["stream"].unique(maintain_order=True).cast(pl.String).to_list()
    keys = frame.select("stream", "file", "part").unique(maintain_order=True)
    keys = keys.with_columns(
        pl.col("stream").cast(pl.String).replace_strict(names, range(len(names)), return_dtype=pl.UInt32).alias("code"),
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("trace"),
    )
    if len(keys) == 1:
        coded = frame.with_columns(pl.lit(0, dtype=pl.UInt32).alias("code"), pl.lit(0, dtype=pl.UInt32).alias("trace"))
    else:
        coded = frame.join(keys, on=["stream", "file", "part"], how="left", maintain_order="left")
    coded = coded.select(pl.col("code").alias("stream"), "trace", "t", *VALUE_COLUMNS[kind])
    unit = "km" if kind == "position" else (unit if unit is not None else next(iter(units), ""))
    files = tuple(name for name, _, _ in tables)
    bad = tuple(dict.fromkeys(s for _, _, table in tables for s in table.bad_streams))
    readings = Readings(coded, tuple(names), kind, unit, Account(), _stepped(tables), files, sha256, bad)
    _account(readings, [table for _, _, table in tables])
    return readings


def _stepped(tables: list[tuple[str, Path, Table]]) -> bool:
    if len({table.stepped for _, _, table in tables}) > 1:
        odd = next(name for name, _, table in tables if table.stepped)
        raise InputError(f"{odd}: its times are step numbers, those of the other files are dates; fit them apart")
    return tables[0][2].stepped


def _account(readings: Readings, tables: list[Table]) -> None:
    missing, bad = sum(t.missing for t in tables), sum(t.bad for t in tables)
    account = readings.account
    total = readings.frame.height + missing + bad
    found = f"{len(tables)} files, {len(readings.streams)} streams, {readings.n_traces} traces"
    account.add("read", total, f"readings in {found}")
    if bad:
        account.add("unreadable", bad, "rows dropped because --skip-bad was given")
    if missing:
        account.add("missing", missing, "readings with an empty value or time left out")
    zones = {t.naive_zone for t in tables if t.naive_zone}
    if zones:
        note = f"stamps without a zone were read as {zones.pop()} (--tz changes it)"
        account.add("time zone", readings.frame.height, note)
