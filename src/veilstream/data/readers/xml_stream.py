"""Elements of a large XML file as they come, with no tree in memory. Entities are refused, and a document type skipped:
of Apple's, some versions are broken."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.parsers import expat

from veilstream.errors import InputError

CHUNK = 1 << 20
_DOCTYPE = re.compile(rb"<!DOCTYPE\s+[\w:.-]+\s*(?:\[.*?\]\s*)?>", re.DOTALL)
# no control characters may stand in XML; Apple writes some
_CONTROL = bytes(c for c in range(32) if c not in b"\t\n\r")

Start = Callable[[str, dict[str, str]], None]


def fed(
    path: Path, name: str, what: str, start: Start, end: Callable[[str, str], None] | None = None
) -> Iterator[None]:
    """Calls start(tag, attributes) and end(tag, text in it) of every element; tags without their name space.

    A step for every part of the file, so that what was found so far can be taken.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    text: list[str] = []

    def begins(tag: str, attributes: dict[str, str]) -> None:
        text.clear()
        start(tag.rpartition(" ")[2], attributes)

    parser.StartElementHandler = begins
    if end is not None:
        ends = end
        parser.CharacterDataHandler = text.append
        parser.EndElementHandler = lambda tag: ends(tag.rpartition(" ")[2], "".join(text))
    parser.StartDoctypeDeclHandler = lambda *_: _refuse(name, what)
    parser.EntityDeclHandler = lambda *_: _refuse(name, what)
    try:
        for chunk in _chunks(path, name, what):
            parser.Parse(chunk, False)
            yield
        parser.Parse(b"", True)
    except expat.ExpatError as problem:
        raise InputError(f"{name} line {problem.lineno}: not readable as {what}") from None


def feed(path: Path, name: str, what: str, start: Start, end: Callable[[str, str], None] | None = None) -> None:
    """The whole file at once."""
    for _ in fed(path, name, what, start, end):
        pass


def _chunks(path: Path, name: str, what: str) -> Iterator[bytes]:
    """The file without its document type, whose lines stay."""
    with path.open("rb") as stream:
        first = stream.read(CHUNK).removeprefix(b"\xef\xbb\xbf")
        if b"<!DOCTYPE" in first:
            if b"<!ENTITY" in first:
                _refuse(name, what)
            first = _DOCTYPE.sub(lambda found: b"\n" * found[0].count(b"\n"), first, count=1)
        yield first.translate(None, _CONTROL)
        while chunk := stream.read(CHUNK):
            yield chunk.translate(None, _CONTROL)


def _refuse(name: str, what: str) -> None:
    raise InputError(f"{name}: {what} has no entities, and its document type stands at the beginning; refused")
