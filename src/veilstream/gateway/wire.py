"""Readings and releases as bytes: plain JSON, OwnTracks JSON.

    in    {"stream","t","value"} or {"stream","t","lat","lon"}, or OwnTracks {"_type":"location","tst","lat","lon"},
          as it is or encrypted; an array of them is a batch
    out   {"stream","t","released","leaked_bits"}, with "lat","lon" where there is a map and "rung" where feedback
          keeps the limit; OwnTracks for OwnTracks

What is wrong with size, JSON, UTF-8, stream or t is a refusal. What is wrong with the value itself is none: the point
becomes None and the release a draw that does not look. Outputs are built field by field, never from the input.
"""

import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import msgspec

MAX_BYTES = 1 << 20
MAX_READINGS = 10_000  # of one message
MAX_NAME = 200
MAX_STEP = 2**53
MAX_SECONDS = 1e15
LONGEST_INTEGER, LONGEST_NUMBER = 30, 300  # characters
Point = float | tuple[float, float] | None
Opens = Callable[[object], bytes | None]  # what an encrypted OwnTracks message holds; None if no key opens it


class Refusal(Enum):
    """Why a reading got no release; the value is the line for the user. None of these looks at the private value."""

    unreadable = "not a reading: JSON with stream, t, and value or lat and lon is needed"
    too_large = "larger than the limit for one message"
    time = "t must be a time (seconds since 1970 or ISO 8601), or an integer step where the policy has no period"
    stream = f"stream must be 1 to {MAX_NAME} printable characters and agree with the topic"
    late = "this step is closed: a later one was released, and it is not in the log"
    ahead = "this step lies further ahead than max_ahead allows"
    not_a_location = "an OwnTracks message that is no location; these are not passed on"
    sealed = "an encrypted OwnTracks message, and no key here opens it (`owntracks_key`)"
    too_many_streams = "the limit on the number of streams is reached (max_streams)"
    too_many_readings = "more readings in one message than the limit"
    unhandled = "this message could not be handled"
    memory = "what is kept of this stream is not what a gateway wrote; it is refused until somebody looks"


class Reading(msgspec.Struct, gc=False):
    stream: str
    step: int
    t: int | float | str  # the step's grid time, as it will be released
    point: Point  # private
    owntracks: bool = False
    space: str = ""


class Release(msgspec.Struct, omit_defaults=True, gc=False):
    stream: str
    t: int | float | str
    released: int | float | str | None
    lat: float | None = None
    lon: float | None = None
    leaked_bits: float = msgspec.field(default=-1.0)  # always there: -1 is never a total
    rung: int | None = None  # of a ladder


class _Wire(msgspec.Struct):
    stream: str | None = None
    t: int | float | str | None = None
    value: Any = None
    lat: Any = None
    lon: Any = None
    tst: int | float | None = None
    data: Any = None
    type: str | None = msgspec.field(name="_type", default=None)


_decoder = msgspec.json.Decoder(_Wire | list[_Wire])
encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Release).decode


class Grid(msgspec.Struct, frozen=True):
    """step = floor((t - epoch) / period); without a period t is the step itself."""

    period_s: float | None = None
    epoch_s: float = 0.0

    def step(self, t: int | float | str | None) -> tuple[int, int | float | str] | None:
        """(step, its grid time in the manner of t), or None if t is no time."""
        if self.period_s is None and type(t) is int and -MAX_STEP < t < MAX_STEP:
            return t, t
        moment = _moment(t)
        if moment is None:
            return None
        seconds, iso = moment
        if self.period_s is None:
            step = int(seconds)
            return (step, step) if step == seconds and not iso and abs(step) < MAX_STEP else None
        position = (seconds - self.epoch_s) / self.period_s
        step = round(position)  # a grid time is its own step, whatever floating point says
        if not math.isclose(position, step, rel_tol=1e-14, abs_tol=1e-9):
            step = math.floor(position)
        if abs(step) >= MAX_STEP:
            return None
        try:
            return step, self.time(step, iso)
        except (ValueError, OverflowError):  # no year from 1 to 9999
            return None

    def time(self, step: int, iso: bool = False) -> int | float | str:
        if self.period_s is None:
            return step
        seconds = self.epoch_s + step * self.period_s
        if iso:
            return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
        return int(seconds) if seconds == int(seconds) else seconds


def parse(
    data: bytes | bytearray,
    grid: Grid,
    stream: str | None = None,
    space: str = "",
    limit: int = MAX_BYTES,
    opens: Opens | None = None,
) -> "list[Reading | Refusal] | Refusal":
    """The readings of one message. `stream` is the topic's, if the transport has one."""
    if len(data) > limit:
        return Refusal.too_large
    found = _decoded(data)
    if found is None:
        return Refusal.unreadable
    many = [found] if isinstance(found, _Wire) else found
    if len(many) > MAX_READINGS:
        return Refusal.too_many_readings
    return [_reading(_opened(w, opens), grid, stream, space) for w in many]


def together(messages: "Sequence[list[Reading | Refusal] | Refusal]") -> "tuple[list[Reading | Refusal], list[range]]":
    """The readings of several messages in one list, and the places of each message's in it."""
    readings: list[Reading | Refusal] = []
    places = []
    for found in messages:
        start = len(readings)
        readings += [found] if isinstance(found, Refusal) else found
        places.append(range(start, len(readings)))
    return readings, places


def reading(
    name: str | None, t: int | float | str | None, point: Point, grid: Grid, space: str = ""
) -> Reading | Refusal:
    """A reading from its parts, for transports that are not JSON."""
    if name is None or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        return Refusal.stream
    at = grid.step(t)
    if at is None:
        return Refusal.time
    return Reading(name, at[0], at[1], point, False, space)


def number(value: object) -> float:
    """A finite number, or NaN for whatever is none."""
    if isinstance(value, bool):
        return math.nan
    try:
        x = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return x if math.isfinite(x) else math.nan


def point(value: object, lat: object, lon: object) -> Point:
    if value is None and (lat is not None or lon is not None):
        return number(lat), number(lon)
    return number(value)


def _decoded(data: bytes | bytearray) -> "_Wire | Sequence[_Wire | None] | None":
    try:
        found: _Wire | list[_Wire] = _decoder.decode(data)
        return found
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return _leniently(data)


def _opened(w: _Wire | None, opens: Opens | None) -> _Wire | Refusal:
    """The message itself, or the one message that it holds encrypted."""
    if w is None or w.type != "encrypted":
        return Refusal.unreadable if w is None else w
    plain = None if opens is None else opens(w.data)
    if plain is None:
        return Refusal.sealed
    found = _decoded(plain)
    return found if isinstance(found, _Wire) else Refusal.unreadable


def _reading(w: _Wire | Refusal, grid: Grid, stream: str | None, space: str) -> Reading | Refusal:
    if isinstance(w, Refusal):
        return w
    if w.type is not None and w.type != "location":
        return Refusal.not_a_location
    name = stream if stream is not None else w.stream
    if stream is not None and w.stream is not None and w.stream != stream:
        return Refusal.stream
    t = w.tst if w.type is not None or w.t is None else w.t  # OwnTracks' t says what triggered the message
    found = reading(name, t, point(w.value, w.lat, w.lon), grid, space)
    if isinstance(found, Reading):
        found.owntracks = w.type is not None
    return found


def _leniently(data: bytes | bytearray) -> "_Wire | list[_Wire | None] | None":
    """JSON as many devices write it: NaN, Infinity and numbers beyond all range are faults of value, not of syntax."""
    try:
        loose = json.loads(data.decode(), parse_int=lambda s: int(s) if len(s) < LONGEST_NUMBER else math.nan)
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        return None
    return [_wire(item) for item in loose] if isinstance(loose, list) else _wire(loose)


def _wire(loose: Any) -> _Wire | None:
    try:
        return msgspec.convert(loose, _Wire)
    except msgspec.ValidationError:
        return None


def _moment(t: int | float | str | None) -> tuple[int | float, bool] | None:
    """Seconds since 1970 and whether they were written as ISO 8601; None for what is no time."""
    try:
        if isinstance(t, str):
            digits = t.strip().lstrip("+-")
            if not digits.replace(".", "", 1).isdecimal():
                moment = datetime.fromisoformat(t.strip())
                return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp(), True
            t = int(t) if digits.isdecimal() and len(t) < LONGEST_INTEGER else float(t)
    except (ValueError, OverflowError):
        return None
    if t is None or isinstance(t, bool) or (isinstance(t, float) and not math.isfinite(t)) or abs(t) > MAX_SECONDS:
        return None
    return t, False
