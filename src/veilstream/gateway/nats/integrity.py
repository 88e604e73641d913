"""What workers write for each other is sealed: HMAC-SHA256 under a key that nobody else has.

    value = body + HMAC(key, subject 0 body)

The subject (where workers call each other) is part of it. A record of the bucket is sealed for its key and the revision
it follows, so the memory of one stream is nothing under the name of another, and an old one put back is nothing either:
the server keeps the header that says which revision a write follows, and has compared it with the key when it took the
write.
"""

import contextlib
import hmac
import os
import re
import stat
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from veilstream.errors import InputError

TAG = 32  # bytes, as the key
FOLLOWS = "Nats-Expected-Last-Subject-Sequence"
_FOLLOWS = re.compile(rb"NATS/1\.0\r\n%b: ?(\d{1,20})\r\n\r\n" % FOLLOWS.encode())  # this header alone
_OTHERS = stat.S_IWGRP | stat.S_IRWXO  # who must not get at the key's file


@dataclass(frozen=True)
class Seal:
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key) != TAG:
            raise InputError(f"a key has {TAG} bytes, found {len(self.key)}")

    def put(self, subject: str, body: bytes) -> bytes:
        return body + self._tag(subject, body)

    def open(self, subject: str, value: bytes) -> bytes | None:
        """The body; None unless somebody with the key wrote it, for this subject."""
        body, tag = value[:-TAG], value[-TAG:]
        return body if hmac.compare_digest(tag, self._tag(subject, body)) else None

    def record(self, key: str, body: bytes, follows: int) -> tuple[str, bytes, dict[str, str]]:
        """The request that writes a key of the bucket, if its revision is still `follows`."""
        return key, self.put(f"{key} {follows}", body), {FOLLOWS: str(follows)}

    def recorded(self, key: str, message: Mapping[str, Any]) -> bytes | None:
        """The body of a key as JetStream gives it; None unless one of us wrote just this over what was there then."""
        said = _FOLLOWS.fullmatch(b64decode(message.get("hdrs", "")))
        return None if said is None else self.open(f"{key} {int(said[1])}", b64decode(message.get("data", "")))

    def _tag(self, subject: str, body: bytes) -> bytes:
        return hmac.digest(self.key, b"%b\0%b" % (subject.encode(), body), "sha256")

    @classmethod
    def of_file(cls, path: str, make: bool = True) -> "Seal":
        """The key in a file of 64 hexadecimal digits, which is made (mode 0600) or refused if it is missing."""
        if not (make or os.path.isfile(path)):
            raise InputError(f"there is no key in {path}: the memory is for who has it (`key_file=FILE`)")
        try:
            if not os.path.exists(path):
                _make(path)
            with open(path, "rb") as file:
                mode, text = os.fstat(file.fileno()).st_mode, file.read(4 * TAG)
        except OSError as error:
            raise InputError(f"the key in {path} cannot be read or made: {os.strerror(error.errno or 0)}") from None
        if mode & _OTHERS:
            raise InputError(f"the key in {path} is open to others on this machine; chmod 600 it")
        try:
            return cls(bytes.fromhex(text.decode()))
        except (ValueError, InputError):
            raise InputError(f"{path} is no key: {2 * TAG} hexadecimal digits are needed") from None


def _make(path: str) -> None:
    """All of it or nothing; whoever is first makes it."""
    part = Path(f"{path}.{os.urandom(6).hex()}")
    number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        with os.fdopen(number, "w") as file:
            file.write(os.urandom(TAG).hex() + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(part, path)
    finally:
        part.unlink()
