"""Checksums of a store's rows, beside them: a flipped bit is a line, never another state."""

import hashlib
import struct
from typing import Any
from zlib import crc32

_NONE = -(1 << 63)
_STATE = struct.Struct("<qdqqqqddq").pack


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
