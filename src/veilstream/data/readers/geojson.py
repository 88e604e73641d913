"""GeoJSON: points with a time among their properties, or lines with a time for every point (`coordTimes`, `times`).

Every line is a trace of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from veilstream.data.columns import ROLES, Layout
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.records import MOST, Record, at, elements, listed, moment, table_of, text_of
from veilstream.errors import InputError

_LINE_TIMES = ("coordTimes", "times", "timestamps")
_WHO = tuple(name for name in ROLES["stream"] if name not in ("id", "uid"))  # those number the features
_FEATURE = re.compile(r'"type"\s*:\s*"(?:Feature|FeatureCollection)"')
_NO_TIME = (
    "no feature has a time; a point needs one among its properties (`columns='time=PROPERTY'`), a line coordTimes with "
    "one for every point"
)


def read_geojson(path: Path, name: str, options: ReadOptions) -> Table:
    layout, who = Layout("time", lat="lat", lon="lon", stream="stream", trace="trace"), path.stem
    records = (r for i, found in enumerate(_features(path, name)) for r in _records(found, i, options.columns, who))
    table = table_of(records, layout, name, options, _NO_TIME)
    if table.frame["stream"].unique().to_list() == [who]:
        return replace(table, frame=table.frame.drop("stream"))
    return table


def _features(path: Path, name: str) -> Iterator[Any]:
    with path.open(encoding="utf-8-sig") as stream:
        small = stream.read(MOST) if path.stat().st_size < MOST else ""
    if small and '"FeatureCollection"' not in small:
        try:
            yield json.loads(small)
        except (ValueError, RecursionError):
            raise InputError(f"{name}: not JSON, or cut off") from None
        return
    yield from (feature for _, feature in elements(path, name, "features"))


def _records(feature: Any, number: int, columns: Mapping[str, str], who: str) -> Iterator[Record]:
    """A point is part of one trace; a line is a trace."""
    properties, geometry = at(feature, "properties"), at(feature, "geometry")
    known = properties if isinstance(properties, dict) else {}
    stream = text_of(_one(known, columns.get("stream"), _WHO)) or who
    where, kind = at(geometry, "coordinates"), at(geometry, "type")
    if kind == "Point":
        yield moment(_one(known, columns.get("time"), ROLES["time"])), *_place(where), stream, ""
        return
    times = _one(known, columns.get("time"), _LINE_TIMES) or at(known, "coordinateProperties", "times")
    lines = {"LineString": [(where, times)], "MultiLineString": _pairs(where, times)}.get(str(kind), [])
    for part, (line, stamps) in enumerate(lines):
        for place, stamp in _pairs(line, stamps):
            yield moment(stamp), *_place(place), stream, f"{number} {part}"


def _pairs(one: Any, other: Any) -> list[tuple[Any, Any]]:
    """One by one; None where the other has nothing."""
    return list(zip_longest(listed(one), listed(other)[: len(listed(one))]))


def _place(where: Any) -> tuple[str | None, str | None]:
    if isinstance(where, list) and len(where) >= 2:
        return text_of(where[1]), text_of(where[0])
    return text_of(where), text_of(where)


def _one(known: Mapping[str, Any], told: str | None, names: tuple[str, ...]) -> Any:
    """The property that was asked for, or the first that has one of these names."""
    if told is not None:
        return known.get(told)
    return next((value for name in names for key, value in known.items() if key.lower() == name.lower()), None)


READER = Reader(
    "GeoJSON",
    (".geojson", ".json"),
    read_geojson,
    lambda text: text.startswith("{") and _FEATURE.search(text) is not None,
)
