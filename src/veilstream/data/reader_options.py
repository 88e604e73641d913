"""Data read as that behind a model or policy was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from veilstream.data.spec import READING, DataSpec
from veilstream.errors import InputError, need

if TYPE_CHECKING:
    from veilstream.data.readings import Readings

T = TypeVar("T")


def remembered(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """How the data behind a file was read; a file may say anything."""
    said = provenance.get("reading")
    known = said if isinstance(said, dict) else {}
    return {k: known[k] for k in READING if isinstance(known.get(k), str) and known[k]}


def read_as_fitted(provenance: Mapping[str, Any], data: Any, spec: DataSpec) -> Readings:
    """Data read as that behind the file was, but for what is told; in the common way where that does not fit."""
    need("polars", "data")
    from veilstream.data.frames import of_stream, readings_of

    told = {"columns": spec.columns, "skip_bad": spec.skip_bad}
    return of_stream(read_by(readings_of, data, provenance, told), spec.stream)


def read_by(read: Callable[..., T], data: Any, provenance: Mapping[str, Any], told: Mapping[str, Any]) -> T:
    """The same with any way to read."""
    told = {k: v for k, v in told.items() if v}
    try:
        return read(data, **(remembered(provenance) | told))
    except InputError as fault:
        if not remembered(provenance).keys() - told.keys():
            raise
        try:
            return read(data, **told)
        except InputError:
            if ": no column " in str(fault):  # another file, with names of its own: what is wrong with it is the second
                raise
            raise fault from None
