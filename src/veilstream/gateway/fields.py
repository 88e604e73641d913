"""Which field of a message is what, where it has names of its own: told, as fitted, or by names that `veil fit` knows.

The names of its fields decide, never what is in them.
"""

from collections.abc import Mapping
from functools import lru_cache

from veilstream.data.columns import Layout, goes_by, guess_layout, guess_unit
from veilstream.errors import InputError

MOST_FIELDS, LONGEST = 64, 100  # of a message whose names are looked at
Columns = Mapping[str, str]  # role -> field


def layout_of(names: tuple[str, ...], columns: Columns) -> Layout | None:
    """None where that cannot be told, or only by elimination: a battery's level is not the reading."""
    if len(names) > MOST_FIELDS or any(len(name) > LONGEST for name in names):
        return None
    return _layout(names, tuple(columns.items()))


@lru_cache(maxsize=256)
def _layout(names: tuple[str, ...], columns: tuple[tuple[str, str], ...]) -> Layout | None:
    told = {role: field for role, field in columns if field in names}
    try:
        found = guess_layout(list(names), told, "a message")
    except InputError:
        return None
    sure = found.value is None or found.value == told.get("value") or goes_by("value", found.value)
    return found if not found.wide and (sure or guess_unit(found.value or "")) else None
