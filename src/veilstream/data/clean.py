"""Cleaning: time order, duplicates, impossible speeds. Every change is an entry of the account.

Nothing here looks ahead in a way a gateway could not bear: what is dropped is one point among its neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilstream.data.readings import MICROSECONDS, Readings
from veilstream.data.states import apart_km

if TYPE_CHECKING:
    import polars as pl

MAX_ROUNDS = 10


def clean(readings: Readings, max_speed_kmh: float, trip_gap_s: float | None = None) -> Readings:
    """Sorted, one reading per stream and time, no spikes; cut into `trips` where a gap is given."""
    readings = _in_order(readings)
    readings = readings if trip_gap_s is None else trips(readings, trip_gap_s)
    return _drop_spikes(readings, max_speed_kmh) if readings.kind == "position" else readings


def _in_order(readings: Readings) -> Readings:
    import polars as pl

    frame, account = readings.frame, readings.account
    same_trace = (pl.col("stream") == pl.col("stream").shift()) & (pl.col("trace") == pl.col("trace").shift())
    backward = frame.select((same_trace & (pl.col("t") < pl.col("t").shift())).sum()).item()
    if backward:
        account.add("backward time", backward, "readings earlier than the one before them, put back in order")
    keys = ["stream", "trace", "t"]
    in_order = frame.select(
        ((pl.struct(keys[:2]) == pl.struct(keys[:2]).shift()) & (pl.col("t") >= pl.col("t").shift())).sum()
    ).item()
    if in_order < frame.height - readings.n_traces or backward:
        frame = frame.sort(keys, maintain_order=True)
    unique = frame.unique(subset=["stream", "t"], keep="first", maintain_order=True)
    if unique.height < frame.height:
        account.add(
            "duplicate time", frame.height - unique.height, "readings at a time already taken in their stream, dropped"
        )
    return readings.with_frame(unique)


def trips(readings: Readings, gap_s: float) -> Readings:
    """Traces by time, whatever files or segments the readings came in: one a stream, and of positions a new one
    where none came for longer than this. Where a column tells traces apart, or times are step numbers, they stay."""
    import polars as pl

    if readings.traced or readings.stepped:
        return readings
    frame = readings.frame.sort("stream", "t", maintain_order=True)
    new = pl.col("stream").ne_missing(pl.col("stream").shift())
    if readings.kind == "position":
        new |= pl.col("t").diff() > round(gap_s * MICROSECONDS)
    return readings.with_frame(frame.with_columns((new.fill_null(True).cum_sum() - 1).cast(pl.UInt32).alias("trace")))


def _drop_spikes(readings: Readings, max_speed_kmh: float) -> Readings:
    """Drop a point that is impossibly far from both neighbours; a trace that jumps and stays is kept.

    An end point counts as a spike if its only neighbour is impossibly far and that one's other neighbour is not.
    """
    import polars as pl

    frame, account = readings.frame, readings.account
    dropped = 0
    for _ in range(MAX_ROUNDS):
        fast_in, joined = _fast(frame, max_speed_kmh)
        if not fast_in.any():
            break
        fast_out = np.append(fast_in[1:], False)
        first, last = ~joined, ~np.append(joined[1:], False)
        next_fast_out = np.append(fast_out[1:], False)
        previous_fast_in = np.append(False, fast_in[:-1])
        spike = (fast_in & fast_out) | (first & fast_out & ~next_fast_out) | (last & fast_in & ~previous_fast_in)
        spike &= ~np.append(False, spike[:-1])  # one of two neighbours at a time
        if not spike.any():
            break
        dropped += int(spike.sum())
        frame = frame.filter(pl.Series(~spike))
    if dropped:
        account.add("impossible speed", dropped, f"points over {max_speed_kmh:g} km/h from their neighbours, dropped")
    jumps = int(_fast(frame, max_speed_kmh)[0].sum())
    if jumps:
        account.add("jump", jumps, f"steps over {max_speed_kmh:g} km/h after which the trace stays there, kept")
    return readings.with_frame(frame)


def _fast(frame: pl.DataFrame, max_speed_kmh: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Per row: is the step into it impossibly fast; is there a row before it in the trace."""
    joined = np.zeros(frame.height, bool)
    fast = np.zeros(frame.height, bool)
    if frame.height < 2:
        return fast, joined
    trace = frame["trace"].to_numpy()
    hours = np.diff(frame["t"].to_numpy()) / (3600 * MICROSECONDS)
    joined[1:] = trace[1:] == trace[:-1]
    points = frame.select("lat", "lon").to_numpy()
    fast[1:] = joined[1:] & (apart_km(points[1:], points[:-1]) > max_speed_kmh * np.maximum(hours, 1e-12))
    return fast, joined
