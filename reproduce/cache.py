"""What has been computed, point by point, one small file each: an interrupted item goes on where it was.

The name of a file is a hash of its key, which is everything the figures depend on: problem, method, options, seed,
version. What a file holds are figures; beside those of a training its policy stands (.policy), for the items that share
it. Never a trace.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import veilstream
from veilstream import container
from veilstream.errors import InputError

FOLDER = "cache"


def place(folder: Path, key: dict[str, Any], ending: str = "json") -> Path:
    """Where the figures of this key are, or will be."""
    return folder / FOLDER / f"{hashlib.sha256(_text(key).encode()).hexdigest()[:24]}.{ending}"


def kept(folder: Path, key: dict[str, Any], compute: Callable[[], Any]) -> Any:
    """The figures of this key: read if they are there, else computed and written."""
    path = place(folder, key)
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["key"] == json.loads(_text(key)):
            return told["figures"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not there, or damaged: computed anew
    figures = compute()
    write(path, json.dumps({"key": json.loads(_text(key)), "figures": figures}) + "\n")
    return json.loads(json.dumps(figures))  # the same whether computed or read


def ready(path: Path) -> Path:
    """The path, its folder made if need be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path.parent}: cannot be written ({error.strerror})") from None
    return path


def write(path: Path, text: str) -> None:
    """Beside its place and then moved there: a cut leaves the old file or the new one, never half of it."""
    ready(path)
    try:
        container.write(path, text.encode())
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None


def _text(key: dict[str, Any]) -> str:
    return json.dumps({"veilstream": veilstream.__version__, **key}, sort_keys=True)
