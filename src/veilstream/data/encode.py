"""Readings + Recording + StateSpace -> runs of symbols, the raw readings beside them. The one place that does it.

A gateway calls the same `StateSpace.encode` on the first reading of a step; fit, audit, report and fleet come here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from veilstream.data.card import Sequences, transition_counts
from veilstream.data.clusters import Stops, find_stops
from veilstream.data.readings import Account, Readings
from veilstream.data.recording import Recording
from veilstream.data.states import StateSpace
from veilstream.data.steps import to_steps
from veilstream.data.trajectories import Runs, Trajectories
from veilstream.errors import InputError
from veilstream.units import counted, format_duration

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
