"""Readings -> one point per step on a fixed grid of time -> runs of consecutive steps, as a Recording says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from veilstream.data.clean import clean
from veilstream.data.readings import MICROSECONDS, Account, Readings
from veilstream.data.recording import Recording
from veilstream.errors import InputError
from veilstream.units import counted, format_duration

Number = TypeVar("Number", bound=np.generic)
DEFAULT_PERIOD_S = 300.0  # positions; values take the median distance of their readings
ROUND_S = (1, 2, 5, 10, 15, 20, 30, *(60 * m for m in (1, 2, 3, 5, 10, 15, 20, 30, 60, 120, 180, 240, 360, 720, 1440)))
NEAR = 0.05  # of a round period: a sensor that says 298 s means 5 minutes
DEFAULT_MAX_GAP_S = 3600.0  # positions; values split at every missing step


@dataclass(frozen=True, eq=False)
class Steps:
    """One row per (trace, step), ordered; points are lat, lon in degrees, or values."""

    stream: NDArray[np.integer]
    trace: NDArray[np.integer]
    step: NDArray[np.integer]
    points: NDArray[np.float64]  # n x 2 or n x 1

    def __len__(self) -> int:
        return len(self.step)

    def keep(self, mask: NDArray[np.bool_]) -> Steps:
        return Steps(self.stream[mask], self.trace[mask], self.step[mask], self.points[mask])


def to_steps(readings: Readings, recording: Recording) -> tuple[Readings, Steps, Recording]:
    """Cleaned readings, their steps, and the recording with the defaults for this kind of data."""
    gap_s = max(recording.max_gap_s or 0.0, recording.period_s or 0.0, DEFAULT_MAX_GAP_S)
    readings = clean(readings, recording.max_speed_kmh, gap_s if recording.gaps == "split" else None)
    recording = resolve(recording, readings)
    return readings, resample(readings, recording), recording


def resolve(recording: Recording, readings: Readings) -> Recording:
    """The defaults that depend on the data. Step numbers have no period."""
    period_s = None if readings.stepped else recording.period_s or default_period_s(readings)
    longest = max(period_s or 1.0, DEFAULT_MAX_GAP_S if readings.kind == "position" else 0.0)
    fill = recording.fill or ("hold" if recording.holds else "close")
    return replace(recording, period_s=period_s, max_gap_s=recording.max_gap_s or longest, fill=fill)


def default_period_s(readings: Readings) -> float:
    """5 minutes for positions; for values the median distance between readings, made round; 1 for step numbers."""
    if readings.stepped:
        return 1.0
    if readings.kind == "position":
        return DEFAULT_PERIOD_S
    t, trace = readings.frame["t"].to_numpy(), readings.frame["trace"].to_numpy()
    apart = np.diff(t)[trace[1:] == trace[:-1]]
    apart = apart[apart > 0]
    if not apart.size:
        raise InputError(f"{readings.where}: one reading only; a chain needs at least two in a trace")
    median = float(np.median(apart)) / MICROSECONDS
    near = min(ROUND_S, key=lambda s: abs(s - median))
    return float(near) if abs(near - median) <= NEAR * near else median


def resample(readings: Readings, recording: Recording) -> Steps:
    """One point per step: its first reading (all an online gateway has), or the mean or sum of its readings."""
    import polars as pl

    if recording.bin == "sum" and readings.kind == "position":
        raise InputError("`bin='sum'` is for values; positions have first or mean")
    columns, frame = readings.columns, readings.frame
    if not frame.height:
        raise InputError(f"{readings.where}: no readings left after cleaning")
    epoch = 0 if readings.stepped else round(recording.epoch_s * MICROSECONDS)
    step = ((pl.col("t") - epoch) // round(recording.step_s * MICROSECONDS)).alias("step")
    how, said = {
        "first": (pl.Expr.first, "the first reading decides"),
        "mean": (pl.Expr.mean, "mean of its readings"),
        "sum": (pl.Expr.sum, "sum of its readings"),
    }[recording.bin]
    rows = frame.group_by(["stream", "trace", step], maintain_order=True).agg(how(pl.col(c)) for c in columns)
    length = format_duration(recording.step_s)
    readings.account.add("resampled", rows.height, f"steps of {length} with a reading; {said}")
    stream, trace, number = (rows[c].to_numpy() for c in ("stream", "trace", "step"))
    return Steps(stream, trace, number, rows.select(columns).to_numpy())


@dataclass(frozen=True, eq=False)
class Runs:
    """Sequences of symbols, one per run of consecutive steps, and the stream each belongs to."""

    sequences: list[NDArray[np.int64]]
    streams: NDArray[np.integer]
    source: Steps
    rows: NDArray[np.int64]  # over all sequences: the row of `source` behind each symbol, -1 where it was filled

    @property
    def steps(self) -> int:
        return len(self.rows)

    @property
    def transitions(self) -> int:
        return self.steps - len(self.sequences)

    @property
    def symbols(self) -> NDArray[np.int64]:
        """The symbol of every row of `source`."""
        return np.concatenate(self.sequences)[self.rows >= 0] if self.sequences else np.zeros(0, np.int64)

    @property
    def first(self) -> NDArray[np.int64]:
        """The public number of the first step of every sequence."""
        lengths = np.array([len(s) for s in self.sequences], np.int64)
        return np.asarray(self.source.step[self.rows[np.cumsum(lengths) - lengths]], np.int64)

    @property
    def points(self) -> list[NDArray[np.float64]]:
        """The reading behind every symbol, run by run; nan where a step was filled and there is none."""
        raw = np.where(self.rows[:, None] >= 0, self.source.points[self.rows], np.nan)
        return _split(raw, [len(s) for s in self.sequences])


def make_runs(steps: Steps, symbols: NDArray[np.int64], recording: Recording, account: Account | None = None) -> Runs:
    """Cut the traces at gaps and fill or close what is left; a gap that is not told is any missing step."""
    if not len(steps):
        return Runs([], np.zeros(0, int), steps, np.zeros(0, np.int64))
    apart = np.diff(steps.step)
    longest = (recording.max_gap_s or recording.step_s) * (1 + 1e-9)
    far = (steps.stream[1:] == steps.stream[:-1]) & (apart * recording.step_s > longest) & (recording.gaps == "split")
    inside = (steps.trace[1:] == steps.trace[:-1]) & ~far
    missing = int((apart[inside] - 1).sum())
    repeat = np.ones(len(steps), np.int64)
    if recording.holds:
        repeat[:-1][inside] = apart[inside]
    starts = np.concatenate([[0], np.flatnonzero(~inside) + 1])
    rows = np.full(int(repeat.sum()), -1)
    rows[np.cumsum(repeat) - repeat] = np.arange(len(steps))
    sequences = _split(np.repeat(symbols, repeat), np.add.reduceat(repeat, starts))
    if account is not None:
        _account(account, int(far.sum()), missing, recording, sequences)
    return Runs(sequences, steps.stream[starts], steps, rows)


def _split(values: NDArray[Number], lengths: NDArray[np.int64] | list[int]) -> list[NDArray[Number]]:
    return np.split(values, np.cumsum(lengths)[:-1])


def _account(
    account: Account, cut: int, missing: int, recording: Recording, sequences: list[NDArray[np.int64]]
) -> None:
    if recording.gaps == "split":
        longest = format_duration(recording.max_gap_s or recording.step_s)
        account.add("gaps split", cut, f"gaps longer than {longest}, where a new run begins")
    if missing:
        note = "filled with the last known state" if recording.holds else "closed over, as if no time had passed"
        account.add("steps missing", missing, f"inside runs, {note}")
    single = sum(len(s) == 1 for s in sequences)
    if single:
        account.add("runs of one step", single, "count as visits but give no transition")
    account.add("transitions", sum(len(s) - 1 for s in sequences), f"in {counted(len(sequences), 'run')}")
