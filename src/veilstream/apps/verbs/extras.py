"""Libraries that are extras."""

from importlib import import_module
from types import ModuleType

from veilstream.errors import InputError


def need(module: str, extra: str, otherwise: str = "") -> ModuleType:
    """An optional library, or a line saying how to install it (and what to do without it)."""
    try:
        return import_module(module)
    except ImportError:
        raise InputError(f"this needs {module.split('.')[0]}: pip install 'veilstream[{extra}]'{otherwise}") from None
