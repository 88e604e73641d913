"""Which column is what: guessed by its name, or as the user says. The standard library only, as gateways use it too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from veilstream.errors import InputError

LONGEST = 40  # characters of a file in an error line
LONGEST_NAME = 200  # of a column that is looked at
EVERY = "*"  # as a value: every column that is nothing else is one, of a stream of its own
NONE = "-"  # as a column: there is none, whatever the names look like


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# the names that columns of each role go by
ROLES = {
    "time": _words(
        """
        time t timestamp datetime date_time date/time ts tst date tstp utc time_utc device_timestamp
        device_time reading_time local_time hour_start read_at
        """
    ),
    "lat": _words("lat latitude y"),
    "lon": _words("lon lng long longitude x"),
    "value": _words(
        """
        value val reading v energy power consumption usage glucose glucose_value sensor_glucose
        historic_glucose sgv
        """
    ),
    "stream": _words(
        """
        stream user user_id userid id device device_id meter household lclid tid person who patient
        patient_id subject subject_id participant participant_id uid username meter_id household_id vehicle
        vehicle_id imei
        """
    ),
    "trace": _words("trace trip track trajectory trip_id track_id trace_id trajectory_id segment"),
}
NAMED = ("zone", "place", "room", "activity", "state")  # columns whose values are names, where there are no numbers
_UNIT = re.compile(
    r"(?:^|[\s_(\[/]+|(?<=[^a-z])|(?=kwh|mwh))(kwh|wh|mwh|kw|w|mg/dl|mmol/l|bpm)(?:/hh)?"
    r"(?:[\s_(]*per half hour[\s)]*)?[)\]]?$",
    re.IGNORECASE,
)
_ASIDE = re.compile(r"\s*[(\[][^()\[\]]*[)\]]\s*$")  # "Timestamp (YYYY-MM-DDThh:mm:ss)"
LIKE_A_READING = r"^\s*[+-]?[.,]?\d|\d[.,]\d|\d{5}"  # what no name looks like
_READING = re.compile(LIKE_A_READING)
_UNIT_NAMES = {
    "kwh": "kWh", "wh": "Wh", "mwh": "MWh", "kw": "kW", "w": "W", "mg/dl": "mg/dL", "mmol/l": "mmol/L", "bpm": "bpm",
}  # fmt: skip

BEYOND: dict[str, dict[str, float]] = {
    "mg/dL": {"low": 39.0, "high": 401.0},
    "mmol/L": {"low": 2.1, "high": 22.3},
}  # what Dexcom writes instead of a number below 40 and above 400 mg/dL; other sensors' words have other limits


@dataclass(frozen=True)
class Layout:
    """The columns of one table. `wide` lists value columns, one per stream, when there is one column each."""

    time: str
    lat: str | None = None
    lon: str | None = None
    value: str | None = None
    stream: str | None = None
    trace: str | None = None
    wide: tuple[str, ...] = ()
    unit: str = ""

    @property
    def kind(self) -> str:
        return "position" if self.lat else "value"

    @property
    def words(self) -> dict[str, float]:
        """Words among the values, in small letters, that stand for a number."""
        return BEYOND.get(self.unit, {})

    def meant(self, value: object) -> object:
        """The number where the value is such a word, the value itself elsewhere."""
        words = self.words
        return words.get(value.strip().lower(), value) if words and isinstance(value, str) else value

    @property
    def used(self) -> set[str | None]:
        return {self.time, self.lat, self.lon, self.value, self.stream, self.trace, *self.wide}

    @property
    def numbers(self) -> dict[str, str]:
        """Column -> role, of the columns that hold numbers; no role in a wide table."""
        if self.wide:
            return dict.fromkeys(self.wide, "")
        roles = {self.lat: "lat", self.lon: "lon", self.value: "value"}
        return {column: role for column, role in roles.items() if column}


def form(text: str) -> str:
    """A field of a file as an error line may show it: every digit as 0, for it may be part of a true value."""
    return repr(re.sub(r"\d", "0", text[:LONGEST]))


def parse_columns(told: str | Mapping[str, str] | None) -> dict[str, str]:
    """ "time=ts,lat=y" -> {"time": "ts", "lat": "y"}; a mapping as it is, its roles checked."""
    if not isinstance(told, Mapping):
        told = dict(text.partition("=")[::2] for text in (told or "").split(",") if text.strip())
    columns = {role.strip(): column.strip() for role, column in told.items()}
    for role, column in columns.items():
        if role not in ROLES or not column:
            raise InputError(f"`columns` {role}={column}: write role=column with a role of {', '.join(ROLES)}")
    return columns


def guess_layout(header: list[str], columns: Mapping[str, str], where: str) -> Layout:
    """The layout of a table with these column names; what `columns` says wins."""
    every = columns.get("value") == EVERY and EVERY not in header
    named = {role: column for role, column in columns.items() if not (every and role == "value")}
    found, free = _by_name(header, named, where)
    if "lat" in found and "lon" in found:
        return Layout(found["time"], found["lat"], found["lon"], stream=found.get("stream"), trace=found.get("trace"))
    if ("lat" in found or "lon" in found) and ("lat" in columns or "lon" in columns or "value" not in found):
        _refuse_half(found, header, where)
    if every:
        found.pop("value", None)
    elif "value" not in found:
        found |= _likely_value(free)
    if "value" in found:
        value, stream, trace = found["value"], found.get("stream"), found.get("trace")
        return Layout(found["time"], value=value, stream=stream, trace=trace, unit=guess_unit(value))
    return _wide_layout(header, found, every, where)


def _likely_value(free: list[str]) -> dict[str, str]:
    """The one column with a unit in its name, or the only one, of a name that names are under."""
    likely = [c for c in free if guess_unit(c)] or [c for c in free if len(free) == 1 and _plain(c) in NAMED]
    return {"value": likely[0]} if len(likely) == 1 else {}


def _refuse_half(found: Mapping[str, str], header: list[str], where: str) -> None:
    missing = "lon" if "lat" in found else "lat"
    raise InputError(f"{where}: no {missing} column among {listing(header)}; name it with `columns='{missing}=COLUMN'`")


def _by_name(header: list[str], columns: Mapping[str, str], where: str) -> tuple[dict[str, str], list[str]]:
    """The column of every role, said or of a name that is known for it, and the columns that have none."""
    absent = {role for role, column in columns.items() if column == NONE and column not in header}
    found = {role: column for role, column in columns.items() if role not in absent}
    for role, column in found.items():
        if column not in header:
            raise InputError(f"{where}: no column {column!r} for {role}; the columns are {listing(header)}")
    free = [c for c in header if c not in found.values()]
    for role in [r for r in ROLES if r not in found and r not in absent]:
        guess = next((c for name in ROLES[role] for c in free if name in (_plain(c), _bare(c))), None)
        if guess is not None:
            found[role] = guess
            free.remove(guess)
    if "time" not in found:
        raise InputError(f"{where}: no time column among {listing(header)}; name it with `columns='time=COLUMN'`")
    return found, free


def _wide_layout(header: list[str], found: Mapping[str, str], every: bool, where: str) -> Layout:
    """A table whose values have no name that is known: a column for each stream, or the only one beside a stream's."""
    time, stream, trace = found["time"], found.get("stream"), found.get("trace")
    wide = tuple(c for c in header if c not in (time, stream, trace))
    if not wide or (stream is not None and wide == ("",)):  # a column without a name is no value
        raise InputError(
            f"{where}: a reading needs lat and lon, or a value; there is {listing(header)} only: name it with "
            "`columns='value=COLUMN'`"
        )
    if stream is None:
        if not (len(wide) == 1 or every or _alike(wide)):
            raise InputError(
                f"{where}: is each of {listing(list(wide))} a stream of its own, or which is the value? say "
                f"`columns='value=*'` for the first, `columns='value={listing([wide[0]])}'` for one"
            )
        return Layout(time, trace=trace, wide=wide)
    if len(wide) > 1:
        raise InputError(f"{where}: which of {listing(list(wide))} is the value? name it with `columns='value=COLUMN'`")
    return Layout(time, value=wide[0], stream=stream, trace=trace)


# --- whose readings they are ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """How a column that nobody named divides the readings: counts of rows, and of different times and values."""

    column: str
    rows: int
    times: int  # different ones
    pairs: int  # of a time and a value of the column, different ones
    values: int  # of the column, different ones

    @property
    def few(self) -> bool:
        """Values that come again and again: a name, a kind, not a measurement."""
        return 1 < self.values <= max(2, self.rows // 10)

    @property
    def tells_apart(self) -> bool:
        """One time stands in several rows, once for each value of the column: these are several people's."""
        double = self.rows - self.times
        return self.few and double >= max(2, self.rows // 20) and self.rows - self.pairs <= double // 20


def check_one_person(splits: Iterable[Split], where: str) -> None:
    """Raises where a column that nobody named tells people apart: they are never merged without a word."""
    for split in splits:
        if split.tells_apart:
            name = listing([split.column])
            raise InputError(
                f"{where}: column {name} tells {split.values} streams apart that have readings at the same times; say "
                f"`columns='stream={name}'`, or `columns='stream={NONE}'` if all of it is one stream's"
            )


def guess_unit(column: str) -> str:
    """ "KWH/hh (per half hour)" -> "kWh"; "" if the name says nothing."""
    match = _UNIT.search(column) if len(column) <= LONGEST_NAME else None
    return _UNIT_NAMES[match[1].lower()] if match else ""


def _alike(names: Iterable[str]) -> bool:
    """Whether names differ by a number (MAC000003, meter 2), or all have a unit: a column for each of many streams."""
    names = list(names)
    stems = {re.sub(r"\d+", "0", name) for name in names}
    return (len(stems) == 1 and "0" in stems.pop()) or all(map(guess_unit, names))


def listing(header: list[str], most: int = 8) -> str:
    """The names of the columns; of what may be readings (a file without a header, a quote left open) the form only."""
    names = [form(c) if _READING.search(c) or not c.isprintable() else c[:LONGEST] for c in header[:most]]
    return ", ".join(names) + (", ..." if len(header) > most else "")


def _bare(column: str) -> str:
    """The column's name without a unit or brackets at its end: "Historic Glucose mg/dL" is historic_glucose."""
    if len(column) > LONGEST_NAME:
        return ""
    bare = _ASIDE.sub("", column)
    return _plain(_UNIT.sub("", bare) if bare == column else bare)


def has_time(header: list[str]) -> bool:
    """Whether one of these names is that of a time, as that of a table has, and what stands above one has not."""
    return any(goes_by("time", column) for column in header)


def goes_by(role: str, column: str) -> bool:
    """Whether a column has a name that is known for the role."""
    return _plain(column) in ROLES[role] or _bare(column) in ROLES[role]


def _plain(column: str) -> str:
    return column.strip().lower().replace(" ", "_").replace("-", "_")
