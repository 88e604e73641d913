"""Elements of a large XML file as they come, with no tree in memory. Entities are refused, and a document type skipped:
of Apple's, some versions are broken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from veilstream.errors import InputError

CHUNK = 1 << 20
_DOCTYPE = re.compile(rb"<!DOCTYPE\s+[\w:.-]+\s*(?:\[.*?\]\s*)?>", re.DOTALL)
# no control characters may stand in XML; Apple writes some
_CONTROL = bytes(c for c in range(32) if c not in b"\t\n\r")

Event = tuple[str, dict[str, str] | None, str, int]


def events(path: Path, name: str, what: str) -> Iterator[Event]:
    """(tag, attributes, "", line) where an element begins, (tag, None, text in it, line) where it ends.

    Tags are without their name space.
    """
    parser = expat.ParserCreate("utf-8", " ")
    text, found = list[str](), list[Event]()

    def begins(tag: str, attributes: dict[str, str]) -> None:
        text.clear()
        found.append((tag.rpartition(" ")[2], attributes, "", parser.CurrentLineNumber))

    def ends(tag: str) -> None:
        found.append((tag.rpartition(" ")[2], None, "".join(text), parser.CurrentLineNumber))

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = begins, ends, text.append
    parser.StartDoctypeDeclHandler = lambda *_: _refuse(name, what)
    parser.EntityDeclHandler = lambda *_: _refuse(name, what)
    try:
        for chunk in _chunks(path, name, what):
            parser.Parse(chunk, False)
            yield from found
            found.clear()
        parser.Parse(b"", True)
        yield from found
    except expat.ExpatError as problem:
        raise InputError(f"{name} line {problem.lineno}: not readable as {what}") from None


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
