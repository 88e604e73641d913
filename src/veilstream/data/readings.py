"""Readings: what every reader returns, and the account of everything done to them."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from veilstream.errors import InputError
from veilstream.units import few

if TYPE_CHECKING:
    import polars as pl

MICROSECONDS = 1_000_000
VALUE_COLUMNS = {"position": ["lat", "lon"], "value": ["value"], "name": ["value"]}


@dataclass(frozen=True)
class Entry:
    """One line of the account: a step, how many items it touched, and what became of them."""

    step: str
    count: int
    note: str


@dataclass
class Account:
    """Every step from file to transition, counted. Nothing is dropped without an entry."""

    entries: list[Entry] = field(default_factory=list)

    def add(self, step: str, count: int, note: str) -> None:
        self.entries.append(Entry(step, int(count), note))

    def count(self, step: str) -> int:
        """The count of a step, 0 if it never happened."""
        return sum(e.count for e in self.entries if e.step == step)

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(e) for e in self.entries]


@dataclass(frozen=True)
class Readings:
    """Time-stamped readings of one or more streams, in file order.

    frame    columns stream (u32), trace (u32), t (i64, microseconds UTC), then lat, lon or value (f64)
    streams  names by stream code
    kind     "position" (degrees), "value", or "name": numbers that stand for `names` (`states.name_code`)
    unit     of the value; "km" for positions (distances are in km)
    stepped  True if `t` counts steps (small integers) rather than time
    files    the files read, for error messages and the data hash
    bad_streams  whose rows could not be read and were dropped, where a key tells
    iso      whether times were written as dates, not as numbers
    traced   whether a column of the data tells traces apart; else trips are cut by time
    """

    frame: pl.DataFrame
    streams: tuple[str, ...]
    kind: str
    unit: str
    account: Account
    stepped: bool = False
    files: tuple[str, ...] = ()
    sha256: str = ""
    bad_streams: tuple[str, ...] = ()
    iso: bool = True
    traced: bool = False
    names: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        return VALUE_COLUMNS[self.kind]

    @property
    def n_traces(self) -> int:
        return self.frame.select("stream", "trace").unique().height

    @property
    def where(self) -> str:
        """The source in a word, for messages."""
        if not self.files:
            return "the data"
        return self.files[0] if len(self.files) == 1 else f"{self.files[0]} and {len(self.files) - 1} more"

    def with_frame(self, frame: pl.DataFrame) -> Readings:
        return replace(self, frame=frame)

    def only(self, stream: str) -> Readings:
        """The readings of one stream, with an account that starts with this choice."""
        import polars as pl

        if stream not in self.streams:
            raise InputError(f"no stream {stream!r} in {self.where}; there are {few(self.streams, 8)}")
        frame = self.frame.filter(pl.col("stream") == self.streams.index(stream))
        account = Account(list(self.account.entries))
        if len(self.streams) > 1:
            account.add("stream chosen", frame.height, f"readings of {stream} kept, other streams left aside")
        return replace(self, frame=frame, account=account)


def hash_files(paths: list[Path]) -> str:
    """SHA-256 over the content of the files, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def from_arrays(
    t_s: NDArray[np.floating], points: NDArray[np.float64], unit: str, stream: str = "stream", stepped: bool = False
) -> Readings:
    """Readings of one stream from arrays: seconds UTC, and n x 2 degrees or n x 1 values."""
    import polars as pl

    kind = "position" if points.shape[1] == 2 else "value"
    zeros = np.zeros(len(t_s), np.uint32)
    columns = {"stream": zeros, "trace": zeros, "t": np.round(np.asarray(t_s) * MICROSECONDS).astype(np.int64)}
    columns |= {name: points[:, i] for i, name in enumerate(VALUE_COLUMNS[kind])}
    account = Account()
    account.add("read", len(t_s), f"readings of {stream}")
    digest = hashlib.sha256(np.ascontiguousarray(t_s).tobytes() + np.ascontiguousarray(points).tobytes()).hexdigest()
    return Readings(pl.DataFrame(columns), (stream,), kind, unit, account, stepped, (), digest)
