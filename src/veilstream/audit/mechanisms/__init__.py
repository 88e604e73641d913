"""Mechanisms that people use, each emulated from its public description. One file each: the folder is the list."""

from importlib import import_module
from pkgutil import iter_modules

from veilstream.audit.mechanisms.mechanism import Emulation


def _found() -> dict[str, Emulation]:
    modules = [vars(import_module(f"{__name__}.{found.name}")) for found in iter_modules(__path__)]
    found = [m for own in modules for m in own.get("MECHANISMS", [own["MECHANISM"]] if "MECHANISM" in own else [])]
    return {m.name: m for m in sorted(found, key=lambda m: m.name)}


MECHANISMS = _found()
