"""SOURCE... -> Readings: a file, a glob, a folder or "-"; the format by ending, then by content.

Packed files: `.gz` of anything that is read, and zips as exports come in. Unpacked into a folder that goes again.
"""

from __future__ import annotations

import csv
import glob
import gzip
import os
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

import polars as pl

from veilstream.data.readers import ENDINGS, READERS
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readings import VALUE_COLUMNS, Account, Readings, hash_files
from veilstream.errors import InputError
from veilstream.shown import Progress
from veilstream.units import counted, printable

STDIN = "stdin"
LOOSE = {".json", ".xml", ".db", ".sqlite"}  # endings that much else has; a database is read when it is named
HEAD = 8192  # bytes looked at to tell the format
Scratch = Callable[[], Path]


@dataclass(frozen=True)
class File:
    """A file that was read, the name to show, and what its readings are called where it does not say."""

    name: str
    stream: str
    table: Table


def read(sources: Sequence[str], progress: Progress | None = None, **how: Any) -> Readings:
    """All readings of the sources, in one table, with the account of the reading; how: fields of `ReadOptions`."""
    options = ReadOptions.of(**how)
    with scratch() as spool:
        found = expand(sources, spool)
        files = []
        for i, (path, name) in enumerate(found):
            with scratch() as unpacked:
                parts = parts_of(path, name, unpacked)
                alone = len(found) == len(parts) == 1
                for part in parts:
                    reader = reader_of(part.path, part.name)
                    stream = name if name == STDIN else reader.stream(part.called, alone)
                    files.append(File(part.name, stream, _read_one(reader, part.path, part.name, options)))
            if progress:
                progress((i + 1) / len(found), f"file {i + 1} of {len(found)}")
        return joined(files, options.unit, hash_files([p for p, _ in found]))


@contextmanager
def scratch() -> Iterator[Scratch]:
    """A folder that is made when it is first asked for, and goes again."""
    with ExitStack() as stack:
        yield cache(lambda: Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="veil-"))))


def expand(sources: Sequence[str], spool: Scratch) -> list[tuple[Path, str]]:
    """The files behind the sources, each once, with the name to show; stdin is spooled."""
    if not sources:
        raise InputError("no SOURCE given; name a file, a folder, a glob, or - for standard input")
    found: dict[str, tuple[Path, str]] = {}
    for source in sources:
        for path, name in _expand_one(source, spool):
            found.setdefault(os.path.realpath(path), (path, name))
    return list(found.values())


def _expand_one(source: str, spool: Scratch) -> list[tuple[Path, str]]:
    if source == "-":
        read = spool() / STDIN
        with read.open("wb") as out:
            shutil.copyfileobj(sys.stdin.buffer, out)
        return [(read, STDIN)]
    path = Path(source).expanduser()
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if in_folder(p))
        if not files:
            raise InputError(f"{source}: a folder without traces; it must hold {', '.join(sorted(ENDINGS))} files")
        return [(p, str(p)) for p in files]
    if path.is_file():
        return [(path, source)]
    matches = sorted(glob.glob(str(path), recursive=True))
    if not matches:
        hint = " (the pattern matches nothing)" if "*" in source else ""
        raise InputError(f"{source}: no such file or folder{hint}")
    return [pair for match in matches for pair in _expand_one(match, spool)]


def in_folder(path: Path) -> bool:
    """Whether a file of a folder is read: by its ending; where much else has the same, by its beginning too."""
    if ending(path) not in ENDINGS or not path.is_file():
        return False
    if ending(path) not in LOOSE:
        return True
    try:
        reader = reader_of(path, path.name)
    except InputError:
        return False
    return not (reader.rank or reader.magic)


def reader_of(path: Path, name: str) -> Reader:
    """Who reads a file; empty, binary and unknown files end here."""
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD)
    except OSError as problem:
        raise InputError(f"{name}: cannot be read ({problem.strerror})") from None
    if not head.strip():
        raise InputError(f"{name}: empty file")
    binary = next((r for r in READERS if r.magic and head.startswith(r.magic)), None)
    return binary or _reader_of_text(_text(head, name), path.suffix.lower(), name)


def _text(head: bytes, name: str) -> str:
    """How a file begins, as text."""
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        if len(head) < HEAD or problem.start < len(head) - 8:  # else a character is cut at the end of the block
            raise InputError(_binary(name, head)) from None
        text = head[: problem.start].decode("utf-8-sig")
    if "\0" in text:
        raise InputError(_binary(name, head))
    return text.lstrip()


def _reader_of_text(text: str, suffix: str, name: str) -> Reader:
    """By ending: the one that takes it, or that is alone or takes whatever has this ending. Then by content alone."""
    own = [reader for reader in READERS if suffix in reader.endings and not reader.magic]
    takes = [reader for reader in (*own, *READERS) if not reader.magic and reader.takes(text)]
    if takes and takes[0] in own:
        return takes[0]
    general = own if len(own) == 1 else [reader for reader in own if reader.rank]
    if general or takes:
        return (general or takes)[0]
    kind = "XML" if text.startswith("<") else "text"
    raise InputError(f"{name}: {kind} of no format that is known: {', '.join(r.name for r in READERS)}")


def _binary(name: str, head: bytes) -> str:
    packed = head[:2] in (b"PK", b"\x1f\x8b")
    hint = "unpack it first" if packed else f"expected text in UTF-8: {', '.join(sorted(ENDINGS))}"
    return f"{name} line 1: a binary file; {hint}"


def _read_one(reader: Reader, path: Path, name: str, options: ReadOptions) -> Table:
    """Read one file; a fault of a library becomes a line without the library's text, which may quote the file."""
    try:
        return reader.read(path, name, options)
    except UnicodeError:
        raise InputError(f"{name}: not UTF-8 text{_first_bad_line(path)}") from None
    except (csv.Error, pl.exceptions.PolarsError):
        raise InputError(f"{name}: not readable as {reader.name}") from None
    except OSError as problem:
        raise InputError(f"{name}: cannot be read ({problem.strerror or 'damaged'})") from None
    except pl.exceptions.PanicException:  # of a damaged file with types; no Exception
        raise InputError(f"{name}: not readable as {reader.name}, damaged") from None


def _first_bad_line(path: Path) -> str:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f" in line {number}"
    return ""


def joined(files: Sequence[File], unit: str | None, sha256: str) -> Readings:
    """One frame with stream and trace as codes."""
    kind = _one_kind(files)
    units = {file.table.unit for file in files} - {""}
    if len(units) > 1 and unit is None:
        raise InputError(f"the files are in different units ({', '.join(sorted(units))}); convert them, or say `unit`")
    unit = "km" if kind == "position" else (unit if unit is not None else next(iter(units), ""))
    frame, streams = _coded(files, kind)
    tables = [file.table for file in files]
    return Readings(
        frame,
        streams,
        kind,
        unit,
        _account(tables, frame.height, len(streams)),
        tables[0].style.stepped,
        tuple(file.name for file in files),
        sha256,
        tuple(dict.fromkeys(s for table in tables for s in table.bad_streams)),
        tables[0].style.kind != "number",
        all(table.traced for table in tables),
        tuple(dict.fromkeys(n for table in tables for n in table.names.values())),
    )


def _one_kind(files: Sequence[File]) -> str:
    """Positions or values, at times or at step numbers: all files the same."""
    first = files[0]
    for file in files:
        if file.table.kind != first.table.kind:
            kinds = f"{first.name} holds {first.table.kind}s, this one {file.table.kind}s"
            raise InputError(f"{file.name}: {kinds}; fit them apart")
    if len({file.table.style.stepped for file in files}) > 1:
        odd = next(file.name for file in files if file.table.style.stepped)
        raise InputError(f"{odd}: its times are step numbers, those of the other files are dates; fit them apart")
    return first.table.kind


def _coded(files: Sequence[File], kind: str) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """All rows with stream and trace as codes, and the names of the streams."""
    frames = []
    for number, file in enumerate(files):
        has = file.table.frame.columns
        stream = pl.col("stream").cast(pl.String) if "stream" in has else pl.lit(file.stream)
        trace = pl.col("trace").cast(pl.String) if "trace" in has else pl.lit("")
        frames.append(
            file.table.frame.select(
                stream.cast(pl.Categorical).alias("stream"),
                trace.cast(pl.Categorical).alias("part"),
                pl.lit(number, dtype=pl.UInt32).alias("file"),
                "t",
                *VALUE_COLUMNS[kind],
            )
        )
    frame, keys = pl.concat(frames), ["stream", "file", "part"]
    traces = frame.select(keys).unique(maintain_order=True).with_row_index("trace")
    streams = traces.select("stream").unique(maintain_order=True).with_row_index("code")
    codes = traces.join(streams, on="stream")
    one = len(codes) == 1  # as of most files: many rows need not be looked up
    coded = frame.join(codes, how="cross") if one else frame.join(codes, on=keys, how="left", maintain_order="left")
    names = tuple(streams["stream"].cast(pl.String).to_list())
    return coded.select(pl.col("code").alias("stream"), "trace", "t", *VALUE_COLUMNS[kind]), names


def _account(tables: list[Table], rows: int, streams: int) -> Account:
    missing, bad, account = sum(t.missing for t in tables), sum(t.bad for t in tables), Account()
    found = f"{counted(len(tables), 'file')}, {counted(streams, 'stream')}"
    account.add("read", rows + missing + bad, f"readings in {found}")
    if bad:
        account.add("unreadable", bad, "rows that cannot be read, dropped as asked")
    if missing:
        account.add("missing", missing, "readings with an empty value or time left out")
    notes = [entry for t in tables for entry in t.notes]
    for step, note in dict.fromkeys((entry.step, entry.note) for entry in notes):
        account.add(step, sum(entry.count for entry in notes if (entry.step, entry.note) == (step, note)), note)
    aside = dict.fromkeys(c for t in tables for c in t.aside)
    if aside:
        note = f"left aside: {', '.join(aside)}; if one tells people apart, say `columns='stream={next(iter(aside))}'`"
        account.add("other columns", len(aside), note)
    zones = {t.style.zone for t in tables if t.style.kind == "naive"}
    if zones:
        account.add("time zone", rows, f"stamps without a zone were read as {zones.pop()} (`tz` changes it)")
    return account


# --- packed files: .gz of anything that is read, and zips as exports come in ---------------------------


GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
SMALL, DENSEST = 64 << 20, 200  # bytes that may come out of anything; beyond, so many for one that is packed
CHUNK = 1 << 20


@dataclass(frozen=True)
class Part:
    """A file to read, the name to show, and the file whose name says whose it is."""

    path: Path
    name: str
    called: Path


def ending(path: Path) -> str:
    """The ending of the file's name, or of the name of the file packed in it."""
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def parts_of(path: Path, name: str, unpacked: Scratch) -> list[Part]:
    """The file itself, or what is packed in it."""
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
        if head.startswith(GZIP):
            own = path.with_suffix("") if path.suffix.lower() == ".gz" else path
            with gzip.open(path) as stream:
                return [Part(_spooled(stream, own, path.stat().st_size, name, unpacked()), name, own)]
        if head == ZIP:
            with zipfile.ZipFile(path) as archive:
                return _members(archive, path, name, unpacked())
    except (gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError):
        raise InputError(f"{name} line 1: a binary file; packed, and damaged or locked: unpack it first") from None
    except OSError as problem:
        raise InputError(f"{name}: cannot be read ({problem.strerror})") from None
    return [Part(path, name, path)]


def _members(archive: zipfile.ZipFile, path: Path, name: str, folder: Path) -> list[Part]:
    """Where a format says what of its zips is read, that; else everything that may be."""
    files = [info for info in archive.infolist() if not info.is_dir()]
    globs = [glob.lower() for reader in READERS for glob in reader.inside]
    wanted = [info for info in files if any(fnmatch(info.filename.lower(), glob) for glob in globs)]
    wanted = wanted or [info for info in files if ending(Path(info.filename)) in ENDINGS]
    if not wanted:
        raise InputError(f"{name} line 1: a binary file; a zip in which nothing can be read: unpack it first")
    parts = []
    for number, info in enumerate(wanted):
        shown = f"{name}:{printable(PurePosixPath(info.filename).name)[:80]}"
        inner = folder / str(number)
        inner.mkdir(parents=True, exist_ok=True)
        with archive.open(info) as stream:
            own = path.with_suffix("") / (PurePosixPath(info.filename).name or "x")
            spooled = _spooled(stream, own, info.compress_size, shown, inner)
        parts += [
            Part(p.path, p.name, path if len(wanted) == 1 else own)
            for p in parts_of(spooled, shown, partial(Path, inner))
        ]
    return parts


def _spooled(stream: IO[bytes] | gzip.GzipFile, own: Path, packed: int, name: str, folder: Path) -> Path:
    spool, most = folder / f"unpacked{own.suffix}", max(SMALL, DENSEST * packed)
    folder.mkdir(parents=True, exist_ok=True)
    with spool.open("wb") as out:
        while chunk := stream.read(CHUNK):
            if out.tell() + len(chunk) > most:
                raise InputError(f"{name}: unpacks to more than {DENSEST} times its size; unpack it first")
            out.write(chunk)
    return spool
