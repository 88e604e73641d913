"""The folder of a fleet: one fleet at a time, one folder per user, what is done is found again.

out/.lock                           held while a fleet runs; the system frees it when the process ends, however
out/users/NAME/model.veil, policy.veil, curve.csv, audit.json
out/users/NAME/done.json            written last: digest of the task, hashes of the files, the row of the summary
out/users/NAME.stale                of an earlier run, of a user who failed in the last one
out/fleet.json, out/index.html      the summary
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from veilstream.container import write
from veilstream.errors import InputError

DONE = "done.json"
LONGEST_NAME = 60


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """The folder, for this process alone."""
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise InputError(f"{folder}: cannot be written ({fault.strerror})") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"{folder}: another fleet is writing here; wait for it to end, or choose another -o"
            ) from None
        yield
    finally:
        os.close(lock)


def places(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """A folder for every user, whatever her name holds; two names never share one."""
    return {name: folder / "users" / _safe(name) for name in names}


def _safe(name: str) -> str:
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in name)[:LONGEST_NAME]
    if plain == name and plain:
        return name
    return f"{plain}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"  # ~ is in no plain name


def put(place: Path, files: dict[str, bytes], row: dict[str, Any], digest: str) -> None:
    """A user's files; done.json last, so that a half-written user counts as not there."""
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        (place / DONE).unlink(missing_ok=True)
    except OSError as fault:
        raise InputError(f"{place}: cannot be written ({fault.strerror})") from None
    for name, data in files.items():
        write(place / name, data)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    mark = {"digest": digest, "files": hashes, "row": row}
    write(place / DONE, json.dumps(mark, indent=1, ensure_ascii=False, allow_nan=False).encode())


def kept(place: Path, digest: str) -> dict[str, Any] | None:
    """The row of an earlier run, if it was the same task and its files are as they were."""
    try:
        mark = json.loads((place / DONE).read_text(encoding="utf-8"))
        if mark["digest"] != digest:
            return None
        for name, sha256 in mark["files"].items():
            if hashlib.sha256((place / Path(name).name).read_bytes()).hexdigest() != sha256:
                return None
        return dict(mark["row"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def set_aside(place: Path) -> None:
    """What an earlier run made of a user who now fails goes to NAME.stale: it must not be taken for today's policy."""
    if place.is_dir():
        stale = place.with_name(f"{place.name}.stale")  # a dot is in no user's folder name
        shutil.rmtree(stale, ignore_errors=True)
        place.rename(stale)
