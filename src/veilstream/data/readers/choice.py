"""Files that hold many series: which of them is read, told as a column is."""

from __future__ import annotations

from collections.abc import Mapping

from veilstream.data.columns import listing
from veilstream.errors import InputError

SHOWN = 12


def chosen(found: Mapping[str, int], told: str | None, name: str, what: str, first: tuple[str, ...] = ()) -> str:
    """The series that was told, or the only one; found: how many readings each has; first: named before others."""
    order = sorted(found, key=lambda series: (series not in first, -found[series], series))
    if told is None and len(found) == 1:
        return order[0]
    if told is not None and told in found:
        return told
    if not found:
        raise InputError(f"{name}: no {what} in it")
    others = "" if len(order) <= SHOWN else f" and {len(order) - SHOWN} more"
    known = f"{listing(order[:SHOWN], SHOWN)}{others}"
    if told is not None:
        raise InputError(f"{name}: no column {told!r} for value; there is {what}: {known}")
    raise InputError(f"{name}: which {what}? say `columns='value={listing(order[:1])}'`; there is {known}")
