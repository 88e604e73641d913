"""Quantities with units, read in one place: "5min", "200m", "2km", "0.2kWh", "120km/h"."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from veilstream.errors import InputError

# One family per line: every unit as a multiple of the first.
_FAMILIES: tuple[dict[str, float], ...] = (
    {"s": 1, "sec": 1, "min": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400, "ms": 1e-3},
    {"m": 1, "km": 1000, "cm": 0.01, "ft": 0.3048, "mi": 1609.344},
    {"Wh": 1, "kWh": 1000, "MWh": 1e6, "J": 1 / 3600, "kJ": 1 / 3.6, "MJ": 1000 / 3.6},
    {"W": 1, "kW": 1000, "MW": 1e6},
    {"km/h": 1, "kmh": 1, "m/s": 3.6, "mph": 1.609344},
)
SMALLER = {"km": "m", "kWh": "Wh", "MWh": "kWh", "kW": "W", "MW": "kW", "h": "min"}  # what a bare number may have meant
_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S*)\s*")


def _family(unit: str) -> dict[str, float] | None:
    return next((family for family in _FAMILIES if unit in family), None)


def parse_quantity(text: str | float, unit: str, what: str = "quantity") -> float:
    """A number in `unit`. A bare number is already in `unit`; "500m" in km is 0.5.

    Raises InputError, one line, when there is no number or the units do not convert.
    """
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        example = f"0.5{unit}" if unit else "0.5"
        raise InputError(f"{what} {str(text)!r} is not a number with a unit; write it like {example}")
    number, given = float(match[1]), match[2]
    if not math.isfinite(number):
        raise InputError(f"{what} {str(text)!r} is not a finite number")
    if unit.endswith("²"):
        given = re.sub(r"(\^?2|²)$", "²", given)
    if not given or given == unit:
        return number
    if unit.endswith("²") and given.endswith("²") and given[:-1] in (_family(unit[:-1]) or ()):
        return number * convert(1.0, given[:-1], unit[:-1]) ** 2
    if not unit:
        raise InputError(
            f"{what} {str(text)!r} has the unit {given!r} but the model has none; "
            f"give a bare number, or fit again with `unit='{given}'`"
        )
    family = _family(unit)
    if family is None or given not in family:
        known = f"one of {', '.join(sorted(family))}" if family else repr(unit)
        raise InputError(f"{what} {str(text)!r} has the unit {given!r}; it must be {known}")
    return convert(number, given, unit)


def convert(number: float, unit: str, to: str) -> float:
    """A number of one unit in another of its family."""
    family = _family(unit)
    if family is None or to not in family:
        raise InputError(f"{unit!r} cannot be converted into {to!r}")
    return number * family[unit] / family[to]


def parse_duration(text: str | float, what: str = "duration") -> float:
    """Seconds; "5min" is 300."""
    seconds = parse_quantity(text, "s", what)
    if seconds <= 0:
        raise InputError(f"{what} {str(text)!r} must be longer than zero")
    return seconds


def parse_length_m(text: str | float, what: str = "length") -> float:
    """Metres; "2km" is 2000."""
    metres = parse_quantity(text, "m", what)
    if metres <= 0:
        raise InputError(f"{what} {str(text)!r} must be larger than zero")
    return metres


def format_duration(seconds: float) -> str:
    """300 -> "5 min"; exact multiples only, otherwise seconds."""
    for name, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {name}"
    return f"{seconds:g} s"


def adds_up(unit: str) -> bool:
    """Whether readings in this unit are summed: energy per interval, of which a bill is made."""
    return unit in _FAMILIES[2]


def counted(number: int, what: str) -> str:
    """1 -> "1 user"; 2000 -> "2,000 users"."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def off(amount: str, unit: str, each: str = " on average") -> str:
    """An error in words: "an error of 0.5 km on average"; where wrong steps are counted, "an error in 5 % of steps"."""
    return f"an error in {amount} % of steps" if unit == "%" else f"an error of {amount} {unit or 'units'}{each}"


def noun(unit: str) -> str:
    """What a state is, in a word, by the unit of its readings."""
    return {"km": "place", "": "state"}.get(unit, "level")


def few(names: Sequence[str], most: int) -> str:
    """The first of these names, and dots where there are more."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def printable(text: str) -> str:
    """A text from a file or a device as a line may show it: nothing that moves a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)
