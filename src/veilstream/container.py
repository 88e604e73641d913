"""The bytes of a .veil file: safetensors, checked before it is trusted."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from veilstream.errors import InputError

KEY = "veil"
MAX_FILE = 1 << 30
MAX_HEADER = 8 << 20
TYPES = (np.float64, np.int64, np.float32)
_FOREIGN = {b"PK": "a zip archive", b"\x1f\x8b": "a gzip archive", b"\x80\x04": "a pickle", b"\x80\x05": "a pickle"}


def pack(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Deterministic: equal input, equal bytes."""
    description = json.dumps(meta, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return save_tensors({name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}, {KEY: description})


def write(path: Path, data: bytes) -> None:
    """In one move, so that no half file is ever seen, and readable by its owner only; its folder is made.

    The file it is made in was not there before: nobody can have put a link in its place.
    """
    check_writable(path)
    spool = path.with_name(f".{path.name}.{os.getpid()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        spool.unlink(missing_ok=True)  # left by a run that was killed
        with open(os.open(spool, flags, 0o600), "wb") as out:
            out.write(data)
        spool.replace(path)
    except OSError as problem:
        with suppress(OSError):
            spool.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written ({problem.strerror})") from None


def check_writable(path: Path, example: str = "me.veil") -> None:
    """Raises where a file has nowhere to go; its folder is made. For whoever works long before there is one."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file, as in {path / example}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(f"{path}: cannot be written ({problem.strerror})") from None
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: cannot be written (no permission in {path.parent})")


def unpack(path: Path, name: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Description and arrays. No array is made before its size is known to be in the file."""
    if not path.exists():
        raise InputError(f"{name}: no such file")
    if not path.is_file():
        raise InputError(f"{name}: not a file")
    size = path.stat().st_size
    if size > MAX_FILE:
        raise InputError(f"{name}: {size / 2**20:,.0f} MB; a .veil file has at most {MAX_FILE >> 20:,} MB")
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise InputError(f"{name}: cannot be read ({problem.strerror})") from None
    length = int.from_bytes(data[:8], "little")
    if data[8:9] != b"{":  # as the header of every good file begins
        foreign = _FOREIGN.get(data[:2], "empty" if not data else "truncated" if len(data) < 9 else "")
        said = f"{foreign}, not a .veil file" if foreign else "not a .veil file; veil fit makes one of data"
        raise InputError(f"{name}: {said}; it was not opened")
    if length > MAX_HEADER:
        raise InputError(f"{name}: its header claims {length:,} bytes; at most {MAX_HEADER:,}")
    try:
        arrays = load_tensors(data)  # type, shape and place of every array against the bytes that are there
        meta = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][KEY])
    except (SafetensorError, RecursionError, UnicodeDecodeError):
        raise InputError(f"{name}: damaged or truncated (its arrays do not fit its header)") from None
    except (KeyError, TypeError, ValueError):
        meta = None
    if not isinstance(meta, dict) or any(v.dtype not in TYPES for v in arrays.values()):
        raise InputError(f"{name}: no veilstream description in it; not a .veil file")
    return meta, {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in arrays.items()}
