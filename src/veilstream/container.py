"""The bytes of a .veil file: safetensors, checked before it is trusted."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
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
TYPES = {"F64": 8, "I64": 8, "F32": 4}
_FOREIGN = {b"PK": "a zip archive", b"\x1f\x8b": "a gzip archive", b"\x80\x04": "a pickle", b"\x80\x05": "a pickle"}


def pack(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Deterministic: equal input, equal bytes."""
    description = json.dumps(meta, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return save_tensors({name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}, {KEY: description})


def write(path: Path, data: bytes) -> None:
    """In one move, so that no half file is ever seen, and readable by its owner only.

    The file it is made in was not there before: nobody can have put a link in its place.
    """
    spool = path.with_name(f".{path.name}.{os.getpid()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        spool.unlink(missing_ok=True)  # left by a run that was killed
        with open(os.open(spool, flags, 0o600), "wb") as out:
            out.write(data)
        spool.replace(path)
    except OSError:
        spool.unlink(missing_ok=True)
        raise


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
    header = _header(data, name)
    _check_sizes(header, data, name)
    try:
        meta = json.loads(header["__metadata__"][KEY])
        arrays = load_tensors(data)
    except (KeyError, TypeError, json.JSONDecodeError, RecursionError):
        raise InputError(f"{name}: no veilstream description in it; not a .veil file") from None
    except (SafetensorError, ValueError):
        raise InputError(f"{name}: damaged (its arrays do not fit its header)") from None
    if not isinstance(meta, dict):
        raise InputError(f"{name}: no veilstream description in it; not a .veil file")
    return meta, {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in arrays.items()}


def _header(data: bytes, name: str) -> dict[str, Any]:
    foreign = _FOREIGN.get(data[:2])
    if foreign and data[8:9] != b"{":  # the length of a good header may begin with the same two bytes
        raise InputError(f"{name}: {foreign}, not a .veil file; it was not opened")
    if len(data) < 10:
        raise InputError(f"{name}: {'empty' if not data else 'truncated'}; not a .veil file")
    length = int.from_bytes(data[:8], "little")
    if data[8:9] != b"{":
        raise InputError(f"{name}: not a .veil file")
    if length > MAX_HEADER:
        raise InputError(f"{name}: its header claims {length:,} bytes; at most {MAX_HEADER:,}")
    if 8 + length > len(data):
        raise InputError(f"{name}: truncated (the header alone needs {8 + length:,} bytes, found {len(data):,})")
    try:
        header = json.loads(data[8 : 8 + length])
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise InputError(f"{name}: damaged header; not a .veil file") from None
    if not isinstance(header, dict):
        raise InputError(f"{name}: damaged header; not a .veil file")
    return header | {"__length__": length}


def _check_sizes(header: dict[str, Any], data: bytes, name: str) -> None:
    """Every array's type is known, its shape fits its bytes, and the bytes fill the file exactly."""
    end = 0
    for key, entry in header.items():
        if key in ("__metadata__", "__length__"):
            continue
        try:
            width, shape, (start, stop) = TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
            fits = all(isinstance(n, int) and n >= 0 for n in shape) and stop - start == width * math.prod(shape)
        except (KeyError, TypeError, ValueError):
            fits = False
        if not fits:
            raise InputError(f"{name}: the array {str(key)[:40]!r} has a type or shape that does not fit its bytes")
        end = max(end, stop)
    present = len(data) - 8 - header["__length__"]
    if present < end:
        raise InputError(f"{name}: truncated ({end:,} bytes of arrays announced, {present:,} found)")
    if present > end:
        raise InputError(f"{name}: {present - end:,} bytes too many at the end; damaged or altered")
