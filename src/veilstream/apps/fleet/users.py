"""SOURCE... -> users: whose readings are whose. What cannot be read is named, and the rest goes on.

A folder:  each folder inside it is one user (GeoLife's user folders), and each file inside it is taken as a file.
A file:    a table has one user per key or per column, a track is one user.
"""

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from veilstream.data.columns import EVERY, Layout, parse_columns
from veilstream.data.readers import ENDINGS, csv_table
from veilstream.data.readers.geolife import TRAJECTORY
from veilstream.data.readings import Readings
from veilstream.data.sources import in_folder, read, reader_of
from veilstream.errors import InputError


@dataclass(frozen=True, eq=False)
class User:
    """One person's readings. `source`: the SOURCE they came from; only users of one source share states."""

    name: str
    source: str
    readings: Readings


Broken = tuple[str, str]  # a user, or a file of users, that could not be used, and why


def read_users(
    sources: Sequence[str], tell: Callable[[str], None] | None = None, **reading: Any
) -> tuple[list[User], list[Broken]]:
    """Everyone in the sources, under distinct names; `reading` is what `data.read` may be told."""
    users: list[User] = []
    broken: list[Broken] = []
    met: set[str] = set()
    for source in sources:
        for path in _expanded(source):
            real = os.path.realpath(path)
            if real in met:
                continue
            met.add(real)
            if tell:
                tell(path.name)
            for found in _of(path, reading):
                name, what = found
                if isinstance(what, str):
                    broken.append((name, what))
                else:
                    users.append(User(name, source, what))
    often = Counter(u.name for u in users)
    wanted = [f"{Path(u.source).stem}/{u.name}" if often[u.name] > 1 else u.name for u in users]
    taken: set[str] = set()
    users = [replace(u, name=_free(name, taken)) for u, name in zip(users, wanted, strict=True)]
    return users, [(_free(name, taken, " (unreadable)"), line) for name, line in broken]


def _free(name: str, taken: set[str], more: str = "") -> str:
    """A name that nobody has: with a number behind it, or with these words."""
    found, k = name, 2
    while found in taken:
        found, k = (found + more, k) if more else (f"{name}-{k}", k + 1)
    taken.add(found)
    return found


def _expanded(source: str) -> list[Path]:
    """Files, and folders of one user each."""
    path = Path(source).expanduser()
    if path.is_dir():
        found = _people(path)
        if not found:
            raise InputError(f"{source}: a folder without traces; it must hold {', '.join(sorted(ENDINGS))} files")
        return found
    if path.is_file():
        return [path]
    matches = sorted(glob.glob(str(path), recursive=True))
    if not matches:
        raise InputError(f"{source}: no such file or folder")
    return [p for match in matches for p in _expanded(match)]


def _people(folder: Path) -> list[Path]:
    inside = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    if folder.name.lower() == TRAJECTORY or any(p.name.lower() == TRAJECTORY for p in inside if p.is_dir()):
        return [folder]
    people = [p for p in inside if any(in_folder(f) or f.name.lower() == TRAJECTORY for f in p.rglob("*"))]
    return [*people, *(p for p in inside if in_folder(p))]


def _of(path: Path, reading: dict[str, Any]) -> Iterator[tuple[str, Readings | str]]:
    """The users of one file or of one user's folder, each with her readings or why there are none."""
    if path.is_dir():
        name = path.absolute().parent.name if path.name.lower() == TRAJECTORY else path.absolute().name
        try:
            yield name, read([str(path)], **reading)
        except InputError as own:
            yield name, str(own)
        return
    reading, layout, fault = _of_many(path, reading), None, ""
    try:
        layout = _layout(path, reading)
        readings = read([str(path)], **reading)
    except InputError as first:  # of a table, the users with a bad row or field fail, and no other
        fault = str(first)
        try:
            readings = read([str(path)], **{**reading, "skip_bad": True})
        except InputError:
            readings = None
    if readings is None or (fault and not readings.bad_streams):
        yield path.stem, fault
        return
    bad = readings.bad_streams if fault else ()
    for stream in readings.streams:
        if stream not in bad:
            yield stream, readings.only(stream)
    for stream in bad:
        yield stream, f"some readings of {stream} cannot be read; the first bad one of all: {fault}"
    for column in layout.wide if layout else ():
        if column not in (*readings.streams, *bad):
            yield column, f"{path}: the column {column} holds no readings"


def _of_many(path: Path, reading: dict[str, Any]) -> dict[str, Any]:
    """How to read a table: in a fleet, columns that nobody named are people's, one each."""
    for columns in (reading.get("columns"), ",".join(filter(None, (reading.get("columns"), f"value={EVERY}")))):
        try:
            _layout(path, {**reading, "columns": columns})
        except InputError:
            continue
        return {**reading, "columns": columns}
    return reading


def _layout(path: Path, reading: dict[str, Any]) -> Layout | None:
    """Which column is what, of a table in CSV."""
    try:
        if reader_of(path, str(path)) is not csv_table.READER:
            return None
    except InputError:  # packed; what is wrong with it, the reading tells
        return None
    return csv_table.layout_of(path, str(path), parse_columns(reading.get("columns")))
