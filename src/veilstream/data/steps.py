"""Readings -> one point per step on a fixed grid of time -> runs of consecutive steps.

step = floor((t - epoch) / period), as the gateway counts, with epoch 0 (1970, UTC).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from veilstream.data.readings import MICROSECONDS, Account, Readings
from veilstream.errors import InputError
from veilstream.units import format_duration

BINS = ("first", "mean", "sum")
GAPS = ("split", "bridge")
FILLS = ("hold", "close")
DEFAULT_PERIOD_S = 300.0  # positions; values take the median distance of their readings
DEFAULT_MAX_GAP_S = 3600.0  # positions; values split at every missing step


@dataclass(frozen=True)
class Steps:
    """One row per (trace, step), ordered; points are lat, lon in degrees, or values."""

    stream: np.ndarray
    trace: np.ndarray
    step: np.ndarray
    points: np.ndarray  # n x 2 or n x 1
    period_s: float

    def __len__(self) -> int:
        return len(self.step)

    def keep(self, mask: np.ndarray) -> Steps:
        return Steps(self.stream[mask], self.trace[mask], self.step[mask], self.points[mask], self.period_s)


def default_period_s(readings: Readings) -> float:
    """5 minutes for positions, the median distance between readings for values, 1 for step numbers."""
    if readings.stepped:
        return 1.0
    if readings.kind == "position":
        return DEFAULT_PERIOD_S
    t, trace = readings.frame["t"].to_numpy(), readings.frame["trace"].to_numpy()
    apart = np.diff(t)[trace[1:] == trace[:-1]]
    apart = apart[apart > 0]
    if not apart.size:
        raise InputError(f"{readings.where}: one reading only; a chain needs at least two in a trace")
    return float(np.median(apart)) / MICROSECONDS


def resample(readings: Readings, period_s: float, bin: str = "first") -> Steps:
    """One point per step: its first reading (all an online gateway has), or the mean or sum of its readings."""
    if bin not in BINS:
        raise InputError(f"--bin must be one of {', '.join(BINS)}, found {bin!r}")
    if bin == "sum" and readings.kind == "position":
        raise InputError("--bin sum is for values; positions have first or mean")
    columns, frame = readings.columns, readings.frame
    if not frame.height:
        raise InputError(f"{readings.where}: no readings left after cleaning")
    step = (pl.col("t") // round(period_s * MICROSECONDS)).alias("step")
    how = {"first": pl.Expr.first, "mean": pl.Expr.mean, "sum": pl.Expr.sum}[bin]
    rows = frame.group_by(["stream", "trace", step], maintain_order=True).agg(how(pl.col(c)) for c in columns)
    said = {"first": "the first reading decides", "mean": "mean of its readings", "sum": "sum of its readings"}[bin]
    readings.account.add("resampled", rows.height, f"steps of {format_duration(period_s)} with a reading; {said}")
    stream, trace, number = (rows[c].to_numpy() for c in ("stream", "trace", "step"))
    return Steps(stream, trace, number, rows.select(columns).to_numpy(), period_s)


@dataclass(frozen=True)
class Runs:
    """Sequences of states, one per run of consecutive steps, and the stream each belongs to."""

    sequences: list[np.ndarray]
    streams: np.ndarray
    held: int  # steps filled with the last known state
    closed: int  # steps skipped as if they had not been

    @property
    def steps(self) -> int:
        return sum(map(len, self.sequences))

    @property
    def transitions(self) -> int:
        return sum(len(s) - 1 for s in self.sequences)


def make_runs(
    steps: Steps,
    states: np.ndarray,
    gaps: str = "split",
    max_gap_s: float = DEFAULT_MAX_GAP_S,
    fill: str = "hold",
    account: Account | None = None,
) -> Runs:
    """Cut the traces at gaps and fill or close what is left.

    split   a new run where two steps are more than max_gap_s apart
    bridge  never; the trace is closed over every gap
    hold    steps missing inside a run repeat the last known state, as a gateway with --clock does
    close   steps missing inside a run are left out, and the states on both sides become neighbours
    """
    if gaps not in GAPS:
        raise InputError(f"--gaps must be one of {', '.join(GAPS)}, found {gaps!r}")
    if fill not in FILLS:
        raise InputError(f"--fill must be one of {', '.join(FILLS)}, found {fill!r}")
    if gaps == "bridge":
        fill = "close"
    if not len(steps):
        return Runs([], np.zeros(0, int), 0, 0)
    same = steps.trace[1:] == steps.trace[:-1]
    apart = np.diff(steps.step)
    far = same & (apart * steps.period_s > max_gap_s * (1 + 1e-9)) if gaps == "split" else np.zeros_like(same)
    inside = same & ~far
    missing = int((apart[inside] - 1).sum())
    repeat = np.ones(len(steps), int)
    if fill == "hold":
        repeat[:-1][inside] = apart[inside]
    cuts = np.flatnonzero(~inside) + 1
    starts = np.concatenate([[0], cuts])
    lengths = np.add.reduceat(repeat, starts)
    sequences = np.split(np.repeat(states, repeat), np.cumsum(lengths)[:-1])
    if account is not None:
        _account(account, int(far.sum()), missing, max_gap_s, gaps, fill, sequences)
    held, closed = (missing, 0) if fill == "hold" else (0, missing)
    return Runs(sequences, steps.stream[starts], held, closed)


def _account(
    account: Account, cut: int, missing: int, max_gap_s: float, gaps: str, fill: str, sequences: list[np.ndarray]
) -> None:
    if gaps == "split":
        account.add("gaps split", cut, f"gaps longer than {format_duration(max_gap_s)}, where a new run begins")
    if missing:
        note = "filled with the last known state" if fill == "hold" else "closed over, as if no time had passed"
        account.add("steps missing", missing, f"inside runs, {note}")
    single = sum(len(s) == 1 for s in sequences)
    if single:
        account.add("runs of one step", single, "count as visits but give no transition")
    account.add("transitions", sum(len(s) - 1 for s in sequences), f"in {len(sequences)} runs")
