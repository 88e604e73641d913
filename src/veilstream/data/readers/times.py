"""Time stamps as text -> microseconds UTC. The style is read off the first stamp and then required of all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from veilstream.data.columns import form
from veilstream.errors import InputError

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_ZONE = r"(Z|z|[+-]\d{2}:?\d{2})$"
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}([T ])\d{2}:\d{2}(:\d{2}([.,]\d+)?)?")
_DAY_FIRST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})( )(\d{1,2}:\d{2})(:\d{2})?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
OWN = "own"  # as a time zone: every stamp's own offset is trusted, however many there are
STEP_LIMIT = 1e8  # numbers below this are steps, not seconds since 1970


@dataclass(frozen=True)
class TimeStyle:
    """How the stamps of one file are written."""

    kind: str  # "number", "aware" or "naive"
    format: str = ""
    scale: float = 1.0  # microseconds per unit, for numbers
    stepped: bool = False
    zone: str = "UTC"  # for naive stamps


def check_zone(tz: str | None) -> None:
    if tz in (None, OWN):
        return
    try:
        ZoneInfo(str(tz))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InputError(f"unknown time zone {tz!r}; give one like Europe/London or UTC") from None


def time_style(sample: str, tz: str | None, time_format: str | None, where: str) -> TimeStyle:
    """The style of the file whose first stamp is `sample`."""
    zone = tz if tz not in (None, OWN) else "UTC"
    text = sample.strip()
    if time_format is not None:
        kind = "aware" if "%z" in time_format else "naive"
        return TimeStyle(kind, time_format, zone=str(zone))
    if _NUMBER.fullmatch(text):
        return _number_style(abs(float(text)))
    body = re.sub(_ZONE, "", text)
    aware = body != text
    if match := _DATED.fullmatch(body.rstrip()):
        pattern = f"%Y-%m-%d{match[1]}%H:%M" + (":%S%.f" if match[2] else "")
        gap = " " if body.endswith(" ") else ""
        return TimeStyle("aware", pattern + gap + "%#z") if aware else TimeStyle("naive", pattern, zone=str(zone))
    if _DATE.fullmatch(text):
        return TimeStyle("naive", "%Y-%m-%d", zone=str(zone))
    if match := _DAY_FIRST.fullmatch(text):
        mark, clock = match[2], "%H:%M" + (":%S" if match[7] else "")
        first, second = (f"%d{mark}%m{mark}%Y {clock}", f"%m{mark}%d{mark}%Y {clock}")
        raise InputError(
            f"{where}: cannot tell day from month in {form(sample)}; say `time_format='{first}'`, or "
            f"`time_format='{second}'`"
        )
    raise InputError(
        f"{where}: cannot read the time {form(sample)}; use ISO 8601 (2013-01-01T00:30:00Z), seconds since 1970, "
        "or tell the format with `time_format`"
    )


def _number_style(size: float) -> TimeStyle:
    """Seconds, milliseconds, microseconds or nanoseconds since 1970 by size; small numbers are steps."""
    if size < STEP_LIMIT:
        return TimeStyle("number", scale=1e6, stepped=True)
    for limit, scale in ((1e11, 1e6), (1e14, 1e3), (1e17, 1.0)):
        if size < limit:
            return TimeStyle("number", scale=scale)
    return TimeStyle("number", scale=1e-3)


def time_expr(column: str, style: TimeStyle) -> pl.Expr:
    """Text column -> i64 microseconds UTC; null where it does not fit the style."""
    text = pl.col(column).str.strip_chars()
    if style.kind == "number":
        number = text.cast(pl.Float64, strict=False)
        whole = text.cast(pl.Int64, strict=False)  # exact where the stamp is an integer
        exact = whole * int(style.scale) if style.scale >= 1 else whole // int(1 / style.scale)
        return pl.coalesce(exact, (number * style.scale).round(0).cast(pl.Int64, strict=False))
    if style.kind == "aware":
        stamp = text.str.to_datetime(style.format, time_unit="us", time_zone="UTC", strict=False)
        return stamp.dt.epoch("us")
    stamp = text.str.to_datetime(style.format, time_unit="us", strict=False)
    if style.zone != "UTC":
        stamp = stamp.dt.replace_time_zone(style.zone, ambiguous="earliest", non_existent="null")
        stamp = stamp.dt.convert_time_zone("UTC")
    return stamp.dt.epoch("us")


def zone_expr(column: str) -> pl.Expr:
    """The offset written at the end of a stamp, as text; null if there is none."""
    return pl.col(column).str.strip_chars().str.extract(_ZONE, 1)


def has_zone(text: str) -> bool:
    return _DATED.match(text.strip()) is not None and re.search(_ZONE, text.strip()) is not None


def lacks_zone(text: str) -> bool:
    return _DATED.fullmatch(text.strip()) is not None


def offset_minutes(zone: str) -> int:
    """ "+05:30" -> 330."""
    if zone in ("Z", "z"):
        return 0
    digits = zone[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:])
    return -minutes if zone[0] == "-" else minutes


def offsets_fit_one_place(zones: list[str]) -> bool:
    """One offset, or two an hour apart (summer time)."""
    offsets = sorted({offset_minutes(z) for z in zones})
    return len(offsets) == 1 or (len(offsets) == 2 and offsets[1] - offsets[0] == 60)
