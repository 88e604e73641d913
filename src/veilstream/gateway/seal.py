"""How a store notices that it is not what it was: checksums of rows, a count of commits, the file's own place.

rows      CRC-32 over what a row says, beside it: a flipped bit is a line, never another state
count     the number of commits, in a small file beside the store, written after each of them: a write-ahead log
          that vanished, or an old copy put back, has fewer. Who writes the store has this file locked
place     device and inode of the file and of its log: one that was deleted or replaced while in use
"""

import fcntl
import hashlib
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from veilstream.gateway.kept import StoreError

_NONE = -(1 << 63)
_STATE = struct.Struct("<qdqqqqddq").pack
_COUNT = struct.Struct("<12sqI")


def of_stream(space: str, name: str, state: tuple[Any, ...], serial: int) -> int:
    """state: as `store.state_of` gives it."""
    last, total, memory, belief, z, waiting, symbol, faults, excess, mark, point, drift = state
    since, due = _NONE if last is None else last, _NONE if waiting is None else waiting
    numbers = _STATE(since, total, z, due, symbol, faults, excess, mark, serial)
    parts = f"{space}\0{name}".encode(), numbers, memory or b"", belief or b"", point or b"", drift or b""
    return crc32(b"".join(parts))


def of_release(step: int, stream: int, total: float, message: bytes | None) -> int:
    """The total is for people who look into the store: nothing reads it."""
    return crc32(message or b"", (step ^ (stream << 20)) & 0xFFFFFFFF)


def of_mail(topic: str, payload: bytes) -> int:
    return crc32(payload, crc32(topic.encode()))


def of_space(name: str, policy: str, chain: str) -> int:
    return crc32(f"{name}\0{policy}\0{chain}".encode())


def tomb(store: str, space: str, name: str) -> str:
    """The name of a stream that is forgotten: found by who knows its name, and no name that a stream can have."""
    return "\x01" + hashlib.sha256("\0".join((store, space, name)).encode()).hexdigest()


class Count:
    """The number of commits of one store, outside of it. Survives the process; never ahead of the store."""

    def __init__(self, path: str) -> None:
        self._path, self._fd = path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def lock(self) -> None:
        """For as long as it is open; raises BlockingIOError while another process has it."""
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def read(self) -> tuple[str, int] | None:
        """Whose it is, and how many; None where it says nothing."""
        data = os.pread(self._fd, _COUNT.size, 0)
        if len(data) != _COUNT.size:
            return None
        name, n, check = _COUNT.unpack(data)
        return (name.decode("ascii", "replace"), n) if check == crc32(data[:-4]) else None

    def write(self, name: str, n: int, lasting: bool = False) -> None:
        """lasting: on the disk when this returns. Once is enough: an older count is a count too, none at all is not."""
        data = _COUNT.pack(name.encode(), n, 0)[:-4]
        os.pwrite(self._fd, data + struct.pack("<I", crc32(data)), 0)
        if lasting:
            os.fsync(self._fd)
            with suppress(OSError):  # not every file system can
                folder = os.open(os.path.dirname(os.path.abspath(self._path)), os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)

    def close(self) -> None:
        os.close(self._fd)


class Place:
    """Where a file lies; `left` once it is not there any more."""

    def __init__(self, *paths: str) -> None:
        self._at = [(path, self._of(path)) for path in paths]

    @staticmethod
    def _of(path: str) -> tuple[int, int] | None:
        try:
            found = os.stat(path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def left(self) -> str | None:
        """The file that was deleted or replaced."""
        for path, at in self._at:
            if self._of(path) != at:
                return path
        return None


def make_private(path: str) -> None:
    """Create the file for its owner only; SQLite gives its companions the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreError(f"cannot open the store {path}: {error.strerror}; `store=FILE` puts it elsewhere") from None
    check_private(path)


def check_private(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise StoreError(f"cannot read the store {path}: {error.strerror}") from None
    if mode & 0o077:
        raise StoreError(f"the store {path} is open to other users; run: chmod 600 {Path(path).name}")
