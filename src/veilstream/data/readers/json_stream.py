"""The elements of a large JSON array, one by one: of the file itself, or of what stands under a key of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from veilstream.errors import InputError

CHUNK = 1 << 20  # characters
MOST = 64 << 20  # of one element
_SPACE = " \t\n\r"


class _Text:
    """A text that is read as far as it is needed."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self.stream, self.name = stream, name
        self.buffer, self.at, self.done = "", 0, False
        self.decode = json.JSONDecoder(parse_constant=lambda _: None).raw_decode

    def more(self) -> bool:
        chunk = self.stream.read(max(CHUNK, len(self.buffer) - self.at))
        self.buffer, self.at, self.done = self.buffer[self.at :] + chunk, 0, not chunk
        return not self.done

    def peek(self) -> str:
        """The next character that is no space; "" at the end."""
        while True:
            while self.at < len(self.buffer) and self.buffer[self.at] in _SPACE:
                self.at += 1
            if self.at < len(self.buffer):
                return self.buffer[self.at]
            if not self.more():
                return ""

    def take(self, *known: str) -> str:
        found = self.peek()
        if found not in known or not found:
            raise self.fault()
        self.at += 1
        return found

    def value(self) -> Any:
        self.peek()
        while True:
            try:
                found, end = self.decode(self.buffer, self.at)
                if end < len(self.buffer) or self.done:
                    self.at = end
                    return found
            except (ValueError, RecursionError):
                if self.done or len(self.buffer) - self.at > MOST:
                    raise self.fault() from None
            self.more()

    def fault(self) -> InputError:
        return InputError(f"{self.name}: not JSON, or cut off")


def elements(path: Path, name: str, *keys: str) -> Iterator[tuple[str, Any]]:
    """(key, element) of the array in a file, with "" for the key; or of the arrays under these keys of its object."""
    with path.open(encoding="utf-8-sig") as stream:
        text = _Text(stream, name)
        if text.peek() == "[":
            yield from (("", element) for element in _array(text))
        else:
            yield from _members(text, keys)
        if text.peek():
            raise text.fault()


def _members(text: _Text, keys: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    text.take("{")
    if text.peek() == "}":
        text.take("}")
        return
    while True:
        key = text.value()
        text.take(":")
        if text.peek() == "[":
            for element in _array(text):
                if key in keys:
                    yield key, element
        else:
            text.value()
        if text.take(",", "}") == "}":
            return


def _array(text: _Text) -> Iterator[Any]:
    text.take("[")
    if text.peek() == "]":
        text.take("]")
        return
    while True:
        yield text.value()
        if text.take(",", "]") == "]":
            return


def at(found: Any, *keys: str) -> Any:
    """The value under these keys of nested objects; None where one of them is absent."""
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def text_of(found: Any) -> str | None:
    """A number or text as text; None for anything else."""
    return str(found) if isinstance(found, str | int | float) and not isinstance(found, bool) else None
