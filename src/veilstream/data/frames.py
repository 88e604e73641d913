"""A table in memory as readings, and releases as a table of the same make: pandas, polars, or a mapping of columns.

Neither library is needed for the other's tables. From here on a table in memory is as one of parquet: which
column is what, time zones, whose readings they are, what is missing, all by the same rules.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veilstream.data.columns import Layout, has_time
from veilstream.data.readers.columnar import text_of_frame
from veilstream.data.readers.reader import ReadOptions
from veilstream.data.readers.table import typed
from veilstream.data.readers.times import TimeStyle
from veilstream.data.readings import Readings
from veilstream.data.sources import File, joined, read
from veilstream.errors import InputError
from veilstream.shown import Progress

NAME = "the DataFrame"
STREAM = "stream"  # whose readings they are, where the table does not say
ISO_UTC = "%Y-%m-%dT%H:%M:%S%.fZ"


def readings_of(data: Any, progress: Progress | None = None, **told: Any) -> Readings:
    """Readings of a table, of one path or several, or given as they are. told: fields of `ReadOptions`."""
    if isinstance(data, Readings):
        return data
    if is_table(data):
        return tabled(data, **told)[0]
    if isinstance(data, str | os.PathLike):
        data = [data]
    if not isinstance(data, Sequence) or not all(isinstance(d, str | os.PathLike) for d in data):
        raise InputError(f"data must be a DataFrame, a path or a list of paths, found a {type(data).__name__}")
    return read([os.fspath(d) for d in data], progress, **told)


def of_stream(readings: Readings, stream: str | None) -> Readings:
    """The readings of one stream; those of a table without a column of streams, under this name."""
    if stream is None:
        return readings
    if readings.files == (NAME,) and readings.streams == (STREAM,):
        return replace(readings, streams=(stream,))
    return readings.only(stream)


def is_table(data: Any) -> bool:
    if isinstance(data, Readings):  # read already
        return False
    return isinstance(data, Mapping) or hasattr(type(data), "columns") or hasattr(type(data), "to_frame")


def as_text(columns: str | Mapping[str, str] | None) -> str | None:
    """{"time": "ts"} as files remember it: "time=ts"."""
    return columns if not isinstance(columns, Mapping) else ",".join(f"{r}={c}" for r, c in columns.items())


def tabled(data: Any, **how: Any) -> tuple[Readings, FrameTemplate]:
    """The readings of a table, and what it takes to make another one like it; how: fields of `ReadOptions`."""
    options = ReadOptions.of(**how)
    frame, index = _with_index(data, options.columns)
    names = [str(c) for c in frame] if isinstance(frame, Mapping) else [str(c) for c in frame.columns]
    given = {n: frame[c] for n, c in zip(names, frame if isinstance(frame, Mapping) else frame.columns, strict=True)}
    if len(given) < len(names):
        raise InputError(f"{NAME}: two columns have one name; give each its own")
    text = text_of_frame(pl.DataFrame({n: _series(given[n]) for n in names}).lazy(), NAME, options, first=0)
    found, layout = typed(text, options), text.layout
    digest = hashlib.sha256(found.frame.write_csv().encode()).hexdigest()
    readings = joined([File(NAME, STREAM, found)], options.unit, digest)
    dtype = getattr(given[layout.time], "dtype", None)
    return readings, FrameTemplate(type(data), layout, index, found.style, dtype)


def _with_index(data: Any, named: Mapping[str, str]) -> tuple[Any, str | None]:
    """The table with its index among the columns where that holds what they lack, and the name of the index then."""
    if hasattr(data, "collect") and not hasattr(data, "get_column"):  # a LazyFrame
        data = data.collect()
    data = data.to_frame() if hasattr(data, "to_frame") and not hasattr(data, "columns") else data
    index = None if isinstance(data, Mapping) or not hasattr(data, "reset_index") else getattr(data, "index", None)
    if index is None:
        return data, None
    if getattr(index, "nlevels", 1) > 1:
        return data.reset_index(), None
    names, dated = [str(c) for c in data.columns], index.dtype.kind == "M" or hasattr(index, "tz")
    has_its_time = "time" not in named and has_time(names) and index.name is None
    if has_its_time if dated else index.name is None or str(index.name) in names:
        return data, None
    name = "time" if index.name is None else str(index.name)
    timed = dated or has_time([name]) or named.get("time") == name
    return data.rename_axis(name).reset_index(), name if timed else None


def _series(column: Any) -> pl.Series:
    """A column with its type; objects as texts, null where there is nothing."""
    if isinstance(column, pl.Series):
        return column
    tz = getattr(getattr(column, "dtype", None), "tz", None)
    if tz is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    values = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
    if values.dtype.kind == "M":
        found = pl.Series(values.astype("datetime64[us]"))
        return found if tz is None else found.dt.replace_time_zone("UTC")
    if values.dtype.kind not in "OUS":
        return pl.Series(values)
    return pl.Series([None if v is None or v != v else str(v) for v in values.tolist()], dtype=pl.String)


@dataclass(frozen=True)
class FrameTemplate:
    """How a table was made: the type of it, its columns, where its times stand and how they are written."""

    make: type
    layout: Layout
    index: str | None  # the name of the index that holds the times
    style: TimeStyle
    dtype: Any  # of the column of times

    def filled(self, stream: Sequence[str], t_us: NDArray[np.int64], columns: Mapping[str, Any]) -> Any:
        """A table of the same make: times and streams as they were called, and these columns."""
        whose = self.layout.stream or ("stream" if self.layout.wide else None)
        parts = {self.layout.time: t_us} | ({} if whose is None else {whose: list(stream)}) | dict(columns)
        module = self.make.__module__.partition(".")[0]
        if module == "polars":
            return pl.DataFrame(parts | {self.layout.time: self._times(t_us)})
        if issubclass(self.make, Mapping):
            return {k: v.tolist() if hasattr(v, "tolist") else v for k, v in parts.items()} | {
                self.layout.time: self._times(t_us).to_list()
            }
        import pandas as pd  # the table is one, so it is there

        parts[self.layout.time] = self._pandas_times(pd, t_us)
        frame = pd.DataFrame(parts)
        return frame if self.index is None else frame.set_index(self.index)

    def _times(self, t_us: NDArray[np.int64]) -> pl.Series:
        """Grid times, written as the times of the table were."""
        t = pl.Series(np.asarray(t_us, np.int64))
        if isinstance(self.dtype, pl.Datetime):
            aware = t.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
            zone = self.dtype.time_zone or self.style.zone
            local = aware.dt.convert_time_zone(zone)
            return (local if self.dtype.time_zone else local.dt.replace_time_zone(None)).cast(self.dtype)
        if self.style.kind == "number":
            scale = self.style.scale
            whole = t // int(scale) if scale >= 1 else t * int(1 / scale)
            exact = scale < 1 or bool((t % int(scale) == 0).all())
            return whole if exact else t / scale
        return t.cast(pl.Datetime("us")).dt.strftime(ISO_UTC)

    def _pandas_times(self, pd: Any, t_us: NDArray[np.int64]) -> Any:
        kind = getattr(self.dtype, "kind", "O")
        if kind != "M":
            return self._times(t_us).to_numpy() if self.style.kind == "number" else self._times(t_us).to_list()
        aware = pd.Series(np.asarray(t_us).astype("datetime64[us]")).dt.tz_localize("UTC")
        zone = getattr(self.dtype, "tz", None)
        if zone is not None:
            return aware.dt.tz_convert(zone).astype(self.dtype)
        return aware.dt.tz_convert(self.style.zone).dt.tz_localize(None).astype(self.dtype)
