"""Tables of text -> typed frames: numbers and times, every bad field named with file and line."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from veilstream.data.columns import LIKE_A_READING, NONE, Layout, Split, check_one_person, form, listing
from veilstream.data.readers.reader import RANGES, SKIP, ReadOptions, Table
from veilstream.data.readers.times import (
    OWN,
    TimeStyle,
    day_month_formats,
    has_zone,
    offsets_fit_one_place,
    set_back,
    time_expr,
    time_style,
    zone_expr,
)
from veilstream.data.readings import Entry
from veilstream.data.states import MAX_NAME, name_code
from veilstream.errors import InputError

BEYOND = "__beyond"  # column: a word stood for the number
MOST_NAMES, LOOK = 256, 100  # that values may be; rows looked at first
MANY_ROWS, MANY = 20, 10  # more bad rows than this, and than one in so many, are another format


@dataclass(frozen=True)
class TextTable:
    """Rows whose fields are all text, counted in a column __row."""

    rows: pl.LazyFrame
    layout: Layout
    name: str
    first_line: int  # of row 0 in the file
    row: str = "line"  # what a row is called
    notes: tuple[Entry, ...] = ()  # what the account is to say of it

    def line(self, row: int) -> int:
        return row + self.first_line

    def field(self, row: int, column: str) -> str:
        """One field, read again only to word an error."""
        return str(self.rows.filter(pl.col("__row") == row).select(column).collect().item() or "")


def typed(table: TextTable, options: ReadOptions) -> Table:
    """Text columns -> numbers and times, checked; in long form, missing readings counted and left out."""
    layout, style, names = table.layout, _style(table, options), _names(table)
    frame = table.rows.select("__row", *_expressions(layout, style, names)).collect(engine="streaming")
    rows = frame.height
    if style.kind == "aware" and options.tz is None:
        _check_zones(frame, table)
    frame, bad, whose = _without_bad(frame, table, style, options.skip_bad)
    aside = () if options.columns.get("stream") == NONE else _aside(table)
    notes = table.notes + _beyond(frame, layout)
    if style.kind == "naive":
        frame, notes = set_back(frame, style, options.tz is None, notes)
    long, traced = _long(frame, layout), layout.trace is not None
    missing = rows * max(1, len(layout.wide)) - long.height - bad
    kind, codes = "name" if names else layout.kind, {code: name for name, code in names.items()}
    return Table(long, kind, style, layout.unit, missing, bad, whose, traced, aside, notes, codes)


def _names(table: TextTable) -> dict[str, float]:
    """The code of every name, where the value is one of a few names and never a number; else nothing."""
    column = table.layout.value
    if column is None:
        return {}
    rows = table.rows.filter(_given(column)).select(pl.col(column).str.strip_chars())
    number = pl.col(column).cast(pl.Float64, strict=False).is_not_null().any()
    if rows.head(LOOK).select(number).collect().item():  # most tables end here
        return {}
    counts = rows.select(
        pl.len().alias("rows"),
        pl.col(column).str.contains(LIKE_A_READING).any().alias("read"),
        number.alias("number"),
        pl.col(column).n_unique().alias("names"),
        pl.col(column).str.len_chars().max().alias("length"),
    )
    found = counts.collect(engine="streaming").row(0, named=True)
    few = 2 <= found["names"] <= min(MOST_NAMES, max(2, found["rows"] // 2))
    if found["read"] or found["number"] or not few or found["length"] > MAX_NAME:
        return {}
    every = rows.unique().collect().to_series().sort().to_list()
    return {name: name_code(name) for name in every} if all(map(str.isprintable, every)) else {}


def _aside(table: TextTable) -> tuple[str, ...]:
    """Columns of a few texts that nobody named, where none says whose the readings are. One that does is an error."""
    layout, time = table.layout, table.layout.time
    others = [c for c in table.rows.collect_schema().names() if c not in layout.used and c != "__row"]
    if layout.stream or layout.wide or not others:
        return ()
    rows = table.rows.filter(_given(time))
    counts = [pl.len().alias("rows"), pl.col(time).n_unique().alias("times")]
    counts += [pl.struct(time, c).n_unique().alias(f"pairs:{c}") for c in others]
    counts += [pl.col(c).n_unique().alias(f"values:{c}") for c in others]
    counts += [pl.col(c).cast(pl.Float64, strict=False).is_not_null().any().alias(f"number:{c}") for c in others]
    found = rows.select(counts).collect(engine="streaming").row(0, named=True)
    splits = [Split(c, found["rows"], found["times"], found[f"pairs:{c}"], found[f"values:{c}"]) for c in others]
    check_one_person(splits, f"{table.name} line 1")
    return tuple(s.column for s in splits if s.few and not found[f"number:{s.column}"])


def _style(table: TextTable, options: ReadOptions) -> TimeStyle:
    time = table.layout.time
    first = table.rows.select(time).filter(_given(time)).head(1).collect()
    if first.height == 0:
        raise InputError(f"{table.name}: no rows of data under the header; it needs at least two readings")
    where = f"{table.name} {table.row} {table.first_line}"
    sample = str(first.item())
    told = options.time_format or _day_or_month(table, sample)
    return time_style(sample, options.tz, told, where)


def _day_or_month(table: TextTable, sample: str) -> str | None:
    """The format of stamps like 13/01/2024 10:00: that which more of them have; None where there is no telling.

    With dots between them the day is first everywhere.
    """
    formats = day_month_formats(sample)
    if formats is None:
        return None
    text = pl.col(table.layout.time).str.strip_chars()
    read = [text.str.to_datetime(f, strict=False).count().alias(f) for f in formats]
    day, month = table.rows.select(read).collect(engine="streaming").row(0)
    return formats[0] if day > month or "." in sample.split()[0] else formats[1] if month > day else None


def _expressions(layout: Layout, style: TimeStyle, names: dict[str, float]) -> list[pl.Expr]:
    """t, t_missing, zone or t_late, and for every column c of numbers n:c and bad:c; stream and trace."""
    found = [time_expr(layout.time, style).alias("t"), (~_given(layout.time)).alias("t_missing")]
    if style.repeats:
        found.append(time_expr(layout.time, style, "latest").alias("t_late"))
    if style.kind == "aware":
        found.append(zone_expr(layout.time).cast(pl.Categorical).alias("zone"))
    for column in layout.numbers:
        text = pl.col(column).str.strip_chars()
        number = _codes(text, names) if names else text.cast(pl.Float64, strict=False)
        if layout.words and not names:
            word = _codes(text.str.to_lowercase(), layout.words)
            found.append(word.is_not_null().alias(BEYOND))
            number = pl.coalesce(word, number)
        bad = (number.is_null() & _given(column)) | number.is_infinite()
        found += [number.fill_nan(None).alias(f"n:{column}"), bad.alias(f"bad:{column}")]
    for role, key in (("stream", layout.stream), ("trace", layout.trace)):
        if key:
            found.append(pl.col(key).fill_null("").cast(pl.Categorical).alias(role))
    return found


def _beyond(frame: pl.DataFrame, layout: Layout) -> tuple[Entry, ...]:
    """The account's entry about words that stand for a number."""
    n = int(frame[BEYOND].sum()) if BEYOND in frame.columns else 0
    low, high = (f"{layout.words[word]:g}" for word in ("low", "high")) if n else ("", "")
    note = f"readings 'Low' or 'High', beyond what the sensor measures: read as {low} and {high} {layout.unit}"
    return (Entry("beyond", n, note),) if n else ()


def _codes(text: pl.Expr, names: dict[str, float]) -> pl.Expr:
    return text.replace_strict(list(names), list(names.values()), default=None, return_dtype=pl.Float64)


def _without_bad(
    frame: pl.DataFrame, table: TextTable, style: TimeStyle, skip: bool
) -> tuple[pl.DataFrame, int, tuple[str, ...]]:
    """Without the readings that cannot be read: how many, and whose where a key or a column tells. Raises at the first
    one unless the user asked to skip them."""
    layout, bad, whose = table.layout, [], list[str]()
    faults = [(pl.col("t").is_null() & ~pl.col("t_missing"), layout.time, "time")]
    for column, role in layout.numbers.items():
        faults.append((pl.col(f"bad:{column}"), column, "number"))
        if role in RANGES:
            faults.append((pl.col(f"n:{column}").abs() > RANGES[role], column, role))
    fields = 0  # of wide tables, one a reading
    for test, column, what in faults:
        found = frame.filter(test.fill_null(False))["__row"]
        if found.len() and not skip:
            row = int(found.min())  # type: ignore[arg-type]
            text = table.field(row, column)
            advice = _advice(column, what, text, found.len(), frame.height)
            raise InputError(f"{table.name} {table.row} {table.line(row)}: {_fault(column, what, text, style, advice)}")
        if not found.len():
            continue
        if layout.wide and what == "number":
            is_bad, number = test.fill_null(False), f"n:{column}"
            frame = frame.with_columns(pl.when(is_bad).then(None).otherwise(pl.col(number)).alias(number))
            fields, whose = fields + found.len(), [*whose, column]
        else:
            bad.append(found)
    if bad:
        rows = pl.concat(bad).unique()
        is_bad = pl.col("__row").is_in(rows.implode())
        if layout.stream:
            whose += frame.filter(is_bad)["stream"].unique(maintain_order=True).cast(pl.String).to_list()
        fields, whose = fields + rows.len() * max(1, len(layout.wide)), [*whose, *layout.wide]
        frame = frame.filter(~is_bad)
    return frame, fields, tuple(dict.fromkeys(whose))


def _advice(column: str, what: str, text: str, bad: int, rows: int) -> str:
    """To drop rows helps against a few bad ones, not against another format, and not where a word is a value."""
    if bad > max(MANY_ROWS, rows // MANY):
        told = "`time_format`" if what == "time" else "`columns`"
        return f"so it is in {bad:,} of {rows:,} rows: convert the file, or say what it holds with {told}"
    if what == "number" and text.strip().isalpha():
        return "write the number it stands for; `skip_bad=True` drops such rows, and what they said is lost"
    return SKIP


def _fault(column: str, what: str, text: str, style: TimeStyle, advice: str) -> str:
    if what == "number":
        return f"column {listing([column])!r} must be a number, found {form(text)}; {advice}"
    if what in RANGES:
        return f"{what} is outside -{RANGES[what]:g}..{RANGES[what]:g} degrees; {advice}"
    stamp = form(text)
    if style.kind == "naive" and has_zone(text) is True:
        return f"mixed time zones: {stamp} has one, earlier stamps have none; write all in one form"
    if style.kind == "aware" and has_zone(text) is False:
        return f"mixed time zones: {stamp} has none, earlier stamps have one; write all in one form"
    return f"the time {stamp} is not like the first one (or does not exist in {style.zone}); {advice}"


def _check_zones(frame: pl.DataFrame, table: TextTable) -> None:
    zones = [str(z) for z in frame["zone"].unique().drop_nulls().to_list()]
    if len(zones) < 2 or offsets_fit_one_place(zones):
        return
    first = str(frame["zone"].drop_nulls()[0])
    row = next(
        int(frame.filter(pl.col("zone").cast(pl.String) == z)["__row"].min())  # type: ignore[arg-type]
        for z in sorted(zones, key=lambda z: offsets_fit_one_place([first, z]))
        if z != first
    )
    raise InputError(
        f"{table.name} {table.row} {table.line(row)}: mixed time zones: {', '.join(sorted(zones))}; "
        f"if every stamp's own offset is right, say `tz='{OWN}'`"
    )


def _long(frame: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """A row for every reading that has a value and a time."""
    keys = [c for c in ("stream", "trace") if c in frame.columns]
    frame = frame.select("t", *keys, *(pl.col(f"n:{c}").alias(role or c) for c, role in layout.numbers.items()))
    if layout.wide:
        frame = frame.unpivot(index=["t", *keys], variable_name="stream", value_name="value")
        keys = ["stream", *keys]
    frame = frame.drop_nulls([c for c in frame.columns if c not in keys])
    return frame.with_columns(pl.col(k).cast(pl.String).cast(pl.Categorical) for k in keys)


def _given(column: str) -> pl.Expr:
    return (pl.col(column).str.strip_chars().str.len_bytes() > 0).fill_null(False)
