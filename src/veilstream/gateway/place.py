"""The files of a store: who owns them, how many commits they hold, and whether they are still the ones it wrote.

owner     a lock on the file itself, so that a link or a mount gives it a second name and not a second owner; log and
          count lie beside the file, not beside a link to it. Whoever dies lets go of it
count     the number of commits, in a small file, written after each of them: a write-ahead log that vanished, or an
          old copy put back, has fewer
place     device and inode of the file and of its log: one that was deleted or replaced while in use
mark      a number in the file's first page that only grows (`database.py`), and how the log begins: one that was
          written over
"""

import fcntl
import os
import stat
import struct
import sys
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from veilstream.gateway.records import StoreError

_COUNT = struct.Struct("<12sqI")
_MARK_AT, _MARK = 60, struct.Struct(">i4xi")  # SQLite's user_version and application_id, as in the file
_LOG_HEAD = 32  # of SQLite's log: its salts are other ones whenever it begins anew
_OWNER = 0x4000_0200, 1  # in the page that SQLite keeps for locks and never writes, behind its own
_READERS = 0x4000_0002, 510  # SQLite's own: whoever closes a file as the last one locks it all


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
                folder = os.open(os.path.dirname(self._path), os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)

    def close(self) -> None:
        os.close(self._fd)


class Place:
    """The file of one store, ours for as long as this is open; made if there is none."""

    def __init__(self, name: str) -> None:
        """name: as it was told, for messages."""
        self.path = os.path.realpath(name)
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            line = f"cannot open the store {name}: {error.strerror}; `store=FILE` puts it elsewhere"
            raise StoreError(line) from None
        self._log = -1
        self._were = {self.path: os.fstat(self._fd)}
        try:
            check_private(name, self.path)
            _lock(self._fd, fcntl.F_WRLCK, *_OWNER)
        except BlockingIOError:
            self.close()
            raise StoreError(in_use(name)) from None
        except OSError as error:
            self.close()
            line = f"the store {name} cannot be locked: {error.strerror}; `store=FILE` puts it on a local disk"
            raise StoreError(line) from None
        except StoreError:
            self.close()
            raise

    def watch_log(self) -> None:
        self._log = os.open(self.path + "-wal", os.O_RDONLY | os.O_CLOEXEC)
        self._were[self.path + "-wal"] = os.fstat(self._log)

    def log(self) -> tuple[bytes, int]:
        """How the log begins, and how long it is."""
        return os.pread(self._log, _LOG_HEAD, 0), os.fstat(self._log).st_size

    def goes_on(self, was: tuple[bytes, int]) -> bool:
        """Whether it is the log that it was: another one begins otherwise, and an older copy is shorter."""
        head, length = self.log()
        return head == was[0] and length >= was[1]

    def left(self) -> str | None:
        """The file that was deleted or replaced."""
        return next((path for path, was in self._were.items() if not _is(path, was)), None)

    def mark(self) -> tuple[int, int]:
        """The mark of the file itself, whatever its log says, and whose it is."""
        data = os.pread(self._fd, _MARK.size, _MARK_AT)
        return _MARK.unpack(data) if len(data) == _MARK.size else (0, 0)

    def keep_log(self) -> None:
        """Who closes the database now leaves its log as it is, and does not write it into the file."""
        with suppress(OSError):
            _lock(self._fd, fcntl.F_RDLCK, *_READERS)

    def close(self) -> None:
        os.close(self._fd)
        if self._log >= 0:
            os.close(self._log)


def _lock(fd: int, kind: int, at: int, n: int) -> None:
    if sys.platform == "linux":  # of this open file: no other one of this process can let go of it
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, at, n, 0))
    else:
        fcntl.lockf(fd, (fcntl.LOCK_EX if kind == fcntl.F_WRLCK else fcntl.LOCK_SH) | fcntl.LOCK_NB, n, at)


def _is(path: str, was: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), was)
    except OSError:
        return False


def is_owned(path: str) -> bool:
    """Whether a process has the file for its own, under whatever name."""
    if sys.platform != "linux":
        return False
    with open(path, "rb") as file:
        told = struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, *_OWNER, 0)
        return bool(struct.unpack("hhqqi", fcntl.fcntl(file, fcntl.F_OFD_GETLK, told))[0] != fcntl.F_UNLCK)


def in_use(name: str) -> str:
    return f"the store {name} is in use by another process; two gateways must not share one"


def check_private(name: str, path: str) -> None:
    """For its owner alone, and without a second name: SQLite would keep another log beside that one."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise StoreError(f"cannot read the store {name}: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"the store {name} is not an ordinary file; `store=FILE` puts it elsewhere")
    if found.st_mode & 0o077:
        raise StoreError(f"the store {name} is open to other users; run: chmod 600 {Path(path).name}")
    if found.st_nlink > 1:
        raise StoreError(
            f"the store {name} has {found.st_nlink} names (hard links), and its log is beside one of them alone: "
            "remove the others, or make them copies while no gateway runs"
        )
