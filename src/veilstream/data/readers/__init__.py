"""Readers: one file a format, or a family of them. A new one is a file in this folder with a READER (or several
READERS) in it, and a sample in the tests."""

from importlib import import_module
from pkgutil import iter_modules

from veilstream.data.readers.reader import Reader


def _found() -> tuple[Reader, ...]:
    modules = [vars(import_module(f"{__name__}.{found.name}")) for found in iter_modules(__path__)]
    readers = [r for own in modules for r in own.get("READERS", [own["READER"]] if "READER" in own else [])]
    return tuple(sorted(readers, key=lambda reader: (reader.rank, reader.name)))


READERS = _found()  # in the order in which they are asked: those that take anything last
ENDINGS = {ending for reader in READERS for ending in reader.endings}
