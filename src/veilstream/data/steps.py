"""Readings -> one point per step on a fixed grid of time, as a Recording says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from veilstream.data.clean import clean
from veilstream.data.readings import MICROSECONDS, Readings
from veilstream.data.recording import Recording
from veilstream.data.trajectories import Trajectories
from veilstream.errors import InputError
from veilstream.units import format_duration

DEFAULT_PERIOD_S = 300.0  # positions; values take the median distance of their readings
ROUND_S = (1, 2, 5, 10, 15, 20, 30, *(60 * m for m in (1, 2, 3, 5, 10, 15, 20, 30, 60, 120, 180, 240, 360, 720, 1440)))
NEAR = 0.05  # of a round period: a sensor that says 298 s means 5 minutes
DEFAULT_MAX_GAP_S = 3600.0  # positions; values split at every missing step


def to_steps(readings: Readings, recording: Recording) -> tuple[Readings, Trajectories, Recording]:
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


def resample(readings: Readings, recording: Recording) -> Trajectories:
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
    return Trajectories(stream, number, rows.select(columns).to_numpy(), trace=trace)
