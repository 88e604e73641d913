"""Packed files: `.gz` of anything that is read, and zips as exports come in. Unpacked into a folder that goes again."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import IO

from veilstream.data.readers import ENDINGS, READERS
from veilstream.errors import InputError
from veilstream.units import printable

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


def parts_of(path: Path, name: str, folder: Path) -> list[Part]:
    """The file itself, or what is packed in it."""
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
        if head.startswith(GZIP):
            own = path.with_suffix("") if path.suffix.lower() == ".gz" else path
            with gzip.open(path) as stream:
                return [Part(_spooled(stream, own, path.stat().st_size, name, folder), name, own)]
        if head == ZIP:
            with zipfile.ZipFile(path) as archive:
                return _members(archive, path, name, folder)
    except (gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError):
        raise InputError(f"{name} line 1: a binary file; packed, and damaged or locked: unpack it first") from None
    except OSError as problem:
        raise InputError(f"{name}: cannot be read ({problem.strerror})") from None
    return [Part(path, name, path)]


def _members(archive: zipfile.ZipFile, path: Path, name: str, folder: Path) -> list[Part]:
    """Where a format says what of its zips is read, that; else everything that may be."""
    files = [info for info in archive.infolist() if not info.is_dir()]
    wanted = [info for info in files if _named(info.filename, [glob for r in READERS for glob in r.inside])]
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
        parts += [Part(p.path, p.name, path if len(wanted) == 1 else own) for p in parts_of(spooled, shown, inner)]
    return parts


def _named(inner: str, globs: Sequence[str]) -> bool:
    return any(fnmatch(inner.lower(), glob.lower()) for glob in globs)


def _spooled(stream: IO[bytes] | gzip.GzipFile, own: Path, packed: int, name: str, folder: Path) -> Path:
    spool, most = folder / f"unpacked{own.suffix}", max(SMALL, DENSEST * packed)
    folder.mkdir(parents=True, exist_ok=True)
    with spool.open("wb") as out:
        while chunk := stream.read(CHUNK):
            if out.tell() + len(chunk) > most:
                raise InputError(f"{name}: unpacks to more than {DENSEST} times its size; unpack it first")
            out.write(chunk)
    return spool
