"""Readings and releases as bytes: plain JSON, OwnTracks JSON.

    in    {"stream","t","value"} or {"stream","t","lat","lon"}, or OwnTracks {"_type":"location","tst","lat","lon"},
          as it is or encrypted; an array of them is a batch; fields with other names are found by these: as told, as
          fitted, or as `veil fit` knows them. Names decide, never what is in them
    out   {"stream","t","released","leaked_bits"}, with "lat","lon" where there is a map and "rung" where feedback
          keeps the limit; OwnTracks for OwnTracks

What is wrong with size, JSON, UTF-8, stream or t is a refusal. What is wrong with the value itself is none: the point
becomes None and the release a draw that does not look. Outputs are built field by field, never from the input.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache

import msgspec

from veilstream.data.columns import Layout, goes_by, guess_layout, guess_unit
from veilstream.data.states import name_code
from veilstream.errors import InputError

MAX_BYTES = 1 << 20
MAX_READINGS = 10_000  # of one message
MAX_NAME = 200
MAX_STEP = 2**53
MAX_SECONDS = 1e15
LAST_SECOND = 1e11  # the year 5138; a larger number is of milliseconds
LONGEST_INTEGER, LONGEST_NUMBER = 30, 64  # characters
MOST_FIELDS, LONGEST_FIELD = 64, 100  # of a message whose names are looked at
Columns = Mapping[str, str]  # role -> field
Point = float | tuple[float, float] | None
Opens = Callable[[str], bytes | None]  # what an encrypted OwnTracks message holds; None if no key opens it


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


_NULL = b"null"
_NOTHING = msgspec.Raw(_NULL)


class _Wire(msgspec.Struct):
    """What is private is not looked at here: a reading is as quick to take apart whatever its value is."""

    stream: str | None = None
    t: int | float | str | None = None
    value: msgspec.Raw = _NOTHING
    lat: msgspec.Raw = _NOTHING
    lon: msgspec.Raw = _NOTHING
    tst: int | float | None = None
    data: msgspec.Raw = _NOTHING
    type: str | None = msgspec.field(name="_type", default=None)


_decoder = msgspec.json.Decoder(_Wire | list[_Wire])
_items = msgspec.json.Decoder(list[msgspec.Raw])
_one = msgspec.json.Decoder(_Wire)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_time = msgspec.json.Decoder(int | float | str | None)
_name = msgspec.json.Decoder(str | int | float | None)
_text = msgspec.json.Decoder(str)
# what is JSON up to a NaN or Infinity outside of texts, or to the end
_UP_TO_CONSTANT = re.compile(
    rb'([^"NI-]*+(?:(?:"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|-(?!NaN|Infinity)|N(?!aN)|I(?!nfinity))[^"NI-]*+)*+)'
    rb"(?:-?(?:NaN|Infinity)|\Z)",
    re.DOTALL,
)
_TO_NUMBER = re.compile(rb'(?:"?+\s*+([+-]?+(?:\d++\.?+\d*+|\.\d++)(?:[eE][+-]?+\d++)?+)\s*+"?+\Z)?+')  # or to nothing
encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Release).decode


class Grid(msgspec.Struct, frozen=True):
    """step = floor((t - epoch) / period); without a period t is the step itself."""

    period_s: float | None = None
    epoch_s: float = 0.0
    names: bool = False  # whether readings are names (zones), which stand for numbers from here on

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
    columns: Columns | None = None,
    opens: Opens | None = None,
) -> "list[Reading | Refusal] | Refusal":
    """The readings of one message. stream: the topic's, if the transport has one; columns: names of its fields."""
    if len(data) > limit:
        return Refusal.too_large
    data = _without_constants(data)
    try:
        found = _decoded(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return Refusal.unreadable
    many: Sequence[_Wire | Refusal] = found if isinstance(found, list) else [found]
    if len(many) > MAX_READINGS:
        return Refusal.too_many_readings
    if columns or any(_lacks(w, stream) for w in many):
        many = _named(data, many, grid, stream, columns or {})
    return [_reading(_opened(w, opens), grid, stream, space) for w in many]


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
    return _number(str(value).encode("utf-8", "replace"))


def name_point(value: object) -> float:
    """The number that stands for a name, or NaN for what is none."""
    name = str(value)
    is_name = isinstance(value, str) & (len(name.strip()) > 0) & (len(name) <= MAX_NAME)
    return (math.nan, name_code(name[:MAX_NAME]))[is_name]


def point(value: object, lat: object, lon: object, names: bool = False) -> Point:
    if names:
        return name_point(value)
    if value is None and (lat is not None or lon is not None):
        return number(lat), number(lon)
    return number(value)


def _opened(w: _Wire | Refusal, opens: Opens | None) -> _Wire | Refusal:
    """The message itself, or the one message that it holds encrypted."""
    if isinstance(w, Refusal) or w.type != "encrypted":
        return w
    try:
        plain = None if opens is None else opens(_text.decode(w.data))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        plain = None
    return Refusal.sealed if plain is None else _wire(msgspec.Raw(bytes(_without_constants(plain))))


def _reading(w: _Wire | Refusal, grid: Grid, stream: str | None, space: str) -> Reading | Refusal:
    if isinstance(w, Refusal):
        return w
    if w.type is not None and w.type != "location":
        return Refusal.not_a_location
    name = stream if stream is not None else w.stream
    if stream is not None and w.stream is not None and w.stream != stream:
        return Refusal.stream
    t = w.tst if w.type is not None or w.t is None else w.t  # OwnTracks' t says what triggered the message
    found = reading(name, t, _point(w, grid.names), grid, space)
    if isinstance(found, Reading):
        found.owntracks = w.type is not None
    return found


def _lacks(w: "_Wire | Refusal", stream: str | None) -> bool:
    """Whether it has no field of one of our names where one is needed; what is in them does not matter."""
    if not isinstance(w, _Wire) or w.type is not None:
        return False
    nowhere = w.value is _NOTHING and (w.lat is _NOTHING or w.lon is _NOTHING)
    return nowhere or (w.t is None and w.tst is None) or (stream is None and w.stream is None)


def _named(
    data: bytes | bytearray, many: "Sequence[_Wire | Refusal]", grid: Grid, stream: str | None, columns: Columns
) -> "Sequence[_Wire | Refusal]":
    """The same message, by the names of its fields where they are not ours."""
    rows = _items.decode(data) if data.lstrip().startswith(b"[") else [msgspec.Raw(bytes(data))]
    return [_by_name(w, row, grid, stream, columns) for w, row in zip(many, rows, strict=True)]


def layout_of(names: tuple[str, ...], columns: Columns) -> Layout | None:
    """Which field is what; None where that cannot be told, or only by elimination: a battery's level is no reading."""
    if len(names) > MOST_FIELDS or any(len(name) > LONGEST_FIELD for name in names):
        return None
    return _layout(names, tuple(columns.items()))


@lru_cache(maxsize=256)
def _layout(names: tuple[str, ...], columns: tuple[tuple[str, str], ...]) -> Layout | None:
    given = {role: field for role, field in columns if field in names}
    try:
        found = guess_layout(list(names), given, "a message")
    except InputError:
        return None
    sure = found.value is None or found.value == given.get("value") or goes_by("value", found.value)
    return found if not found.wide and (sure or guess_unit(found.value or "")) else None


def _by_name(
    w: "_Wire | Refusal", item: msgspec.Raw, grid: Grid, stream: str | None, columns: Columns
) -> "_Wire | Refusal":
    if isinstance(w, _Wire) and w.type is not None:
        return w
    try:
        row = _fields.decode(item)
        layout = layout_of(tuple(sorted(row)), columns)
        if layout is None:
            return w
        t = _time.decode(row[layout.time])
        name = None if layout.stream is None or layout.stream not in row else _name.decode(row[layout.stream])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return w
    if layout.time != "t" and grid.period_s is not None and abs(number(t)) >= LAST_SECOND:
        t = number(t) / 1000
    if stream is not None and layout.stream != "stream":
        name = None  # the topic says whose it is; another field may number the device
    value, lat, lon = (row[f] if f else _NOTHING for f in (layout.value, layout.lat, layout.lon))
    return _Wire(None if name is None else str(name), t, value, lat, lon)


def _point(w: _Wire, names: bool = False) -> Point:
    """Which fields there are is seen; what is in them takes one way."""
    if names:
        return _named_point(w.value)
    if w.lat is _NOTHING and w.lon is _NOTHING:
        return _number(w.value)
    if w.value is _NOTHING:
        return _number(w.lat), _number(w.lon)
    return (_number(w.value), (_number(w.lat), _number(w.lon)))[bytes(w.value) == _NULL]


def _named_point(json: msgspec.Raw) -> float:
    """Of a text; NaN for anything else."""
    text = bytes(json)
    try:
        return name_point(_text.decode((b'""', text)[text[:1] == b'"']))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return math.nan


def _number(json: msgspec.Raw | bytes) -> float:
    """Of a number, or of a text that is one; NaN for anything else. One way for all: no branch, and nothing raised."""
    text = bytes(json)
    found = _TO_NUMBER.match(text[: LONGEST_NUMBER * (len(text) < LONGEST_NUMBER)])
    assert found is not None  # it may be empty
    x = float(found.groups(b"nan")[0])
    return (math.nan, x)[math.isfinite(x)]


def _without_constants(data: bytes | bytearray) -> bytes:
    """NaN and Infinity, which devices write and JSON does not know, as texts that are no numbers either.

    One way whether there are any or not: a blank ends the last stretch, and the end is found a second time.
    """
    return b'""'.join(_UP_TO_CONSTANT.findall(data + b" "))[:-2]


def _decoded(data: bytes | bytearray) -> "_Wire | list[_Wire] | list[_Wire | Refusal]":
    """An array in which something is no reading is taken one by one."""
    try:
        found: _Wire | list[_Wire] = _decoder.decode(data)
    except msgspec.ValidationError:
        return [_wire(item) for item in _items.decode(data)]
    return found


def _wire(item: msgspec.Raw) -> _Wire | Refusal:
    try:
        return _one.decode(item)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return Refusal.unreadable


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
