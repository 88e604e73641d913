"""Time stamps as text -> microseconds UTC. The style is read off the first stamp and then required of all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from veilstream.data.columns import form
from veilstream.data.readings import Entry
from veilstream.errors import InputError

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_ZONE = r"(Z|z|[+-]\d{2}(?::?\d{2})?)$"
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}([T ])\d{2}:\d{2}(:\d{2}([.,]\d+)?)?")
_DAY_FIRST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})(,? )(\d{1,2}:\d{2})(:\d{2})?( [AP]M)?")
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

    @property
    def repeats(self) -> bool:
        """Whether an hour may come twice: stamps of a local clock."""
        return self.kind == "naive" and self.zone != "UTC"


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
    if formats := day_month_formats(text):
        first, second = formats
        raise InputError(
            f"{where}: cannot tell day from month in {form(sample)}; say `time_format='{first}'`, or "
            f"`time_format='{second}'`"
        )
    raise InputError(
        f"{where}: cannot read the time {form(sample)}; use ISO 8601 (2013-01-01T00:30:00Z), seconds since 1970, "
        "or give the format with `time_format`"
    )


def day_month_formats(sample: str) -> tuple[str, str] | None:
    """The format of a stamp like 03/04/2024 10:00 with the day first, and with the month first; None for others."""
    match = _DAY_FIRST.fullmatch(sample.strip())
    if match is None:
        return None
    half, mark = match[8] is not None, match[2]
    clock = ("%I" if half else "%H") + ":%M" + (":%S" if match[7] else "") + (" %p" if half else "")
    return f"%d{mark}%m{mark}%Y{match[5]}{clock}", f"%m{mark}%d{mark}%Y{match[5]}{clock}"


def _number_style(size: float) -> TimeStyle:
    """Seconds, milliseconds, microseconds or nanoseconds since 1970 by size; small numbers are steps."""
    if size < STEP_LIMIT:
        return TimeStyle("number", scale=1e6, stepped=True)
    for limit, scale in ((1e11, 1e6), (1e14, 1e3), (1e17, 1.0)):
        if size < limit:
            return TimeStyle("number", scale=scale)
    return TimeStyle("number", scale=1e-3)


def time_expr(column: str, style: TimeStyle, repeated: Literal["earliest", "latest"] = "earliest") -> pl.Expr:
    """Text column -> i64 microseconds UTC; null where it does not fit the style. repeated: which of two equal hours."""
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
        stamp = stamp.dt.replace_time_zone(style.zone, ambiguous=repeated, non_existent="null")
        stamp = stamp.dt.convert_time_zone("UTC")
    return stamp.dt.epoch("us")


def zone_expr(column: str) -> pl.Expr:
    """The offset written at the end of a stamp, as text; null if there is none."""
    return pl.col(column).str.strip_chars().str.extract(_ZONE, 1)


def has_zone(text: str) -> bool | None:
    """Whether a stamp has an offset; None where it is no stamp like 2024-01-01 10:00."""
    body = re.sub(_ZONE, "", text.strip())
    return body != text.strip() if _DATED.fullmatch(body.rstrip()) else None


def offset_minutes(zone: str) -> int:
    """ "+05:30" -> 330."""
    if zone in ("Z", "z"):
        return 0
    digits = zone[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:] or 0)
    return -minutes if zone[0] == "-" else minutes


def offsets_fit_one_place(zones: list[str]) -> bool:
    """One offset, or two an hour apart (summer time)."""
    offsets = sorted({offset_minutes(z) for z in zones})
    return len(offsets) == 1 or (len(offsets) == 2 and offsets[1] - offsets[0] == 60)


# --- the hour that comes twice ----------------------------------------------------------------------------

_HALF_HOUR, _HOUR, _DAY = 1_800_000_000, 3_600_000_000, 86_400_000_000  # microseconds


def set_back(
    frame: pl.DataFrame, style: TimeStyle, guessed: bool, notes: tuple[Entry, ...]
) -> tuple[pl.DataFrame, tuple[Entry, ...]]:
    """Local stamps of the hour that autumn repeats, told apart by their order; what cannot be told is said.

    frame: t, and t_late where a stamp may be an hour later. In each stream the second round begins where stamps go back
    by half an hour or more, or (hourly readings) where one comes again. guessed: nobody told the zone, and it is UTC.
    """
    own = ["stream"] if "stream" in frame.columns else []
    back = pl.col("t").shift() - pl.col("t")
    if not style.repeats:
        gone = back.is_between(_HALF_HOUR, _HOUR) | (back == 0)
        stamp = pl.from_epoch("t", time_unit="us")
        autumn_night = stamp.dt.month().is_in([10, 11]) & (stamp.dt.weekday() == 7) & (stamp.dt.hour() < 3)
        again = frame.filter((gone.over(own) if own else gone) & autumn_night).height if guessed else 0
        said = "stamps that come again on a night when clocks are set back; if a local clock wrote them, say its `tz`"
        return frame, (*notes, Entry("clock change", again, said)) if again else notes
    twice = frame.filter(pl.col("t") != pl.col("t_late"))
    if not twice.height:
        return frame.drop("t_late"), notes
    steps = frame.select(pl.col("t").diff().sign().sum()).item() or 0
    newest_first = steps < 0
    night = [*own, "night"]
    twice = (twice.reverse() if newest_first else twice).with_columns((pl.col("t") // _DAY).alias("night"))
    begins = (back >= _HALF_HOUR) | ((back == 0) & (pl.col("t").n_unique() == 1))
    twice = twice.with_columns(begins.fill_null(False).cast(pl.Int8).cum_max().over(night).alias("second"))
    whole = twice.with_columns(pl.col("second").max().over(night).alias("told"))
    late = whole.filter(pl.col("second") == 1)["__row"]
    untold = whole.filter(pl.col("told") == 0).height
    if late.len():
        said = "stamps of the hour that comes twice in autumn, the second time recognised by their order"
        notes = (*notes, Entry("clock change", late.len(), said))
    if untold:
        said = "stamps of the hour that comes twice in autumn, once in the file: taken for the first time"
        notes = (*notes, Entry("clock change", untold, said))
    is_late = pl.col("__row").is_in(late.implode())
    return frame.with_columns(pl.when(is_late).then("t_late").otherwise("t").alias("t")).drop("t_late"), notes
