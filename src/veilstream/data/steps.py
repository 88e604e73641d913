"""Readings -> one point per step on a fixed grid of time -> runs of symbols, the raw readings beside them. The one
place that does it, as a Recording says; fit, audit, report and fleet come here.

Cleaning (time order, duplicates, impossible speeds) never looks ahead in a way a gateway could not bear: what is
dropped is one point among its neighbours. A gateway calls the same `StateSpace.encode` on the first reading of a step.
Every change is an entry of the account.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from veilstream.data.card import Sequences, transition_counts
from veilstream.data.clusters import Stops, find_stops
from veilstream.data.readings import MICROSECONDS, Account, Readings
from veilstream.data.spec import Recording
from veilstream.data.states import StateSpace, apart_km
from veilstream.data.trajectories import Runs, Trajectories
from veilstream.errors import InputError
from veilstream.units import counted, format_duration

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
    in_order = frame.select((same_trace & (pl.col("t") >= pl.col("t").shift())).sum()).item()
    if in_order < frame.height - readings.n_traces:  # or traces are mixed
        frame = frame.sort("stream", "trace", "t", maintain_order=True)
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


# --- steps -----------------------------------------------------------------------------------------------


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


# --- from steps to runs of symbols ---------------------------------------------------------------------


SAME_PLACE_KM = 0.001


def encode(readings: Readings, recording: Recording, states: StateSpace) -> Runs:
    """The whole way, with an entry in the account for every step of it."""
    readings, steps, recording = to_steps(readings, recording)
    return encode_steps(steps, recording, states, account=readings.account)


def encode_steps(
    steps: Trajectories,
    recording: Recording,
    states: StateSpace,
    stops: Stops | None = None,
    account: Account | None = None,
) -> Runs:
    """The runs of these steps. `stops` says which of them are stops, where that is known already."""
    if recording.noise == "nearest":
        if stops is not None:
            _say(account, int((stops.labels < 0).sum()), f"given to the nearest of the {states.kind}")
        return make_runs(replace(steps, symbols=states.encode(steps.points)), recording, account)
    if states.kind != "stops":
        raise InputError(f"`noise='drop'` is for stops; these states are {states.kind}, every reading belongs to one")
    stops = stops or find_stops(steps.points, recording.eps_m, recording.min_samples)
    stay = stops.labels >= 0
    _say(account, int((~stay).sum()), "dropped")
    symbols = _same_places(stops, states, recording)[stops.labels[stay]]
    return make_runs(replace(steps.take(stay), symbols=symbols), recording, account)


def _say(account: Account | None, count: int, fate: str) -> None:
    if account is not None and count:
        account.add("no stop", count, f"steps that belong to no stop, {fate}")


def _same_places(stops: Stops, states: StateSpace, recording: Recording) -> NDArray[np.int64]:
    """The state of every stop. Only the data that the states were found in has the same stops."""
    state = states.encode(stops.states.coordinates)
    away = states.distance_to(stops.states.coordinates, state)
    if sorted(state.tolist()) == list(range(len(states))) and away.max() < SAME_PLACE_KM:
        return state
    raise InputError(
        f"the policy and the data have different state spaces: the policy was made with `noise='drop'` from "
        f"{len(states)} stops, which this data (radius {recording.eps_m:g} m, {recording.min_samples} points) does not "
        "have; give the data, `bin`, `eps_m` and `min_samples` it was fitted with, or `noise='nearest'`"
    )


def make_runs(steps: Trajectories, recording: Recording, account: Account | None = None) -> Runs:
    """Cut encoded traces at gaps and fill or close what is left; a gap without a length is any missing step."""
    if not len(steps):
        return Runs([], np.zeros(0, int), steps, np.zeros(0, np.int64))
    assert steps.trace is not None
    apart = np.diff(steps.step)
    longest = (recording.max_gap_s or recording.step_s) * (1 + 1e-9)
    far = (steps.stream[1:] == steps.stream[:-1]) & (apart * recording.step_s > longest) & (recording.gaps == "split")
    inside = (steps.trace[1:] == steps.trace[:-1]) & ~far
    repeat = np.ones(len(steps), np.int64)
    if recording.holds:
        repeat[:-1][inside] = apart[inside]
    starts = np.concatenate([[0], np.flatnonzero(~inside) + 1])
    rows = np.full(int(repeat.sum()), -1)
    rows[np.cumsum(repeat) - repeat] = np.arange(len(steps))
    sequences = np.split(np.repeat(steps.states, repeat), np.cumsum(np.add.reduceat(repeat, starts))[:-1])
    if account is not None:
        _account(account, int(far.sum()), int((apart[inside] - 1).sum()), recording, sequences)
    return Runs(sequences, steps.stream[starts], steps, rows)


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


# --- dead ends of runs that were cut at gaps, and the moves that lead out of them -------------------------


def link_dead_ends(sequences: Sequences, streams: NDArray[np.integer], n: int) -> list[NDArray[np.int64]]:
    """Transitions to add so that no set of states is entered and never left.

    Cut at gaps, a trace may end for good in a state, and the fitted chain would stay there for ever: its long-run
    law would be an artefact. Where a run ends in such a dead end, the person was seen next at the start of the
    stream's next run (after the last run: its first), and that move is added as a run of two steps.
    """
    links: list[NDArray[np.int64]] = []
    C = transition_counts(sequences, n)
    visited = np.flatnonzero((C.sum(0) + C.sum(1)) > 0)
    following = _next_run(streams)
    for _ in range(n):
        components, label = connected_components(csr_array(C[np.ix_(visited, visited)] > 0), connection="strong")
        if components <= 1:
            break
        of = np.full(n, -1)
        of[visited] = label
        i, j = np.nonzero(C)
        dead = set(range(components)) - {int(of[a]) for a, b in zip(i, j, strict=True) if of[a] != of[b]}
        new = [
            np.array([s[-1], sequences[k][0]])
            for s, k in zip(sequences, following, strict=True)
            if int(of[s[-1]]) in dead and of[sequences[k][0]] != of[s[-1]]
        ]
        if not new:
            break
        links += new
        C += transition_counts(new, n)
    return links


def _next_run(streams: NDArray[np.integer]) -> NDArray[np.int64]:
    """Index of the run that follows each one in its stream; the last is followed by the first."""
    following = np.empty(len(streams), np.int64)
    for stream in np.unique(streams):
        own = np.flatnonzero(streams == stream)
        following[own] = np.roll(own, -1)
    return following
