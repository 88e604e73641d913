"""Subjects, streams and keys, and stream names as one token of a subject.

    readings   PREFIX.in.SPACE.STREAM     from devices; kept as PREFIX.part.NUMBER.SPACE.STREAM until acknowledged
    releases   PREFIX.out.SPACE.STREAM
    memory     bucket PREFIX-memory, key SPACE.STREAM
    unhandled  PREFIX.unhandled           private: reason, length and hash of messages that could not be handled

A token keeps letters, digits, _ and -; every other byte of the name's UTF-8 becomes =XX. This is one to one: a token
that is not the token of its own text is refused, or one stream would have two keys.
"""

import re
from functools import lru_cache

from veilstream.errors import InputError

DEFAULT_SPACE = "default"
AT_HAND = 4096  # names and tokens
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_ESCAPE = re.compile(rb"=([0-9A-F]{2})")


@lru_cache(AT_HAND)
def token(text: str) -> str:
    return "".join(chr(b) if b in _PLAIN else f"={b:02X}" for b in text.encode())


@lru_cache(AT_HAND)
def text(found: str) -> str | None:
    """The name a token stands for; None if it is no token of any."""
    try:
        name = _ESCAPE.sub(lambda m: bytes([int(m[1], 16)]), found.encode()).decode()
        return name if token(name) == found else None
    except UnicodeError:
        return None


def partition_of(space: str, stream: str, partitions: int) -> int:
    """As the server's {{partition(n,1,2)}}: FNV-1a of the tokens."""
    h = 0x811C9DC5
    for byte in (token(space) + token(stream)).encode():
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return h % partitions


class Names:
    def __init__(self, prefix: str = "veil") -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", prefix):
            raise InputError(f"`prefix` takes up to 32 letters, digits, _ and -, found {prefix!r}")
        self.prefix, bucket = prefix, f"{prefix}-memory"
        self.readings, self.releases = f"{prefix}-readings", f"{prefix}-releases"
        self.memory = f"KV_{bucket}"  # the stream under the bucket
        self.meta = f"$KV.{bucket}.meta"  # one token: no stream's key has fewer than two
        self.probe = f"$KV.{bucket}.probe"  # written to see whether the bucket can be written; read by nobody
        self.unhandled, self.unhandled_subject = f"{prefix}-unhandled", f"{prefix}.unhandled"  # stream and subject

    def key(self, space: str, stream: str) -> str:
        return f"$KV.{self.prefix}-memory.{token(space)}.{token(stream)}"

    def reading(self, space: str, stream: str) -> str:
        return f"{self.prefix}.in.{token(space)}.{token(stream)}"

    def release(self, space: str, stream: str) -> str:
        return f"{self.prefix}.out.{token(space)}.{token(stream)}"

    def partition(self, number: int) -> str:
        return f"{self.prefix}.part.{number}.*.*"

    def parse(self, subject: str) -> tuple[str, str] | None:
        """Space and stream of a reading as it is stored; None if the subject names none."""
        parts = subject.split(".")
        if len(parts) != 5:
            return None
        space, stream = text(parts[3]), text(parts[4])
        return None if space is None or stream is None else (space, stream)
