"""Readings + Recording + StateSpace -> runs of symbols, the raw readings beside them. The one place that does it.

A gateway calls the same `StateSpace.encode` on the first reading of a step; fit, audit, report and fleet come here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilstream.data.clusters import Stops, find_stops
from veilstream.data.readings import Account, Readings
from veilstream.data.recording import Recording
from veilstream.data.states import StateSpace
from veilstream.data.steps import Runs, Steps, make_runs, to_steps
from veilstream.errors import InputError

SAME_PLACE_KM = 0.001


def encode(readings: Readings, recording: Recording, states: StateSpace) -> Runs:
    """The whole way, with an entry in the account for every step of it."""
    readings, steps, recording = to_steps(readings, recording)
    return encode_steps(steps, recording, states, account=readings.account)


def encode_steps(
    steps: Steps,
    recording: Recording,
    states: StateSpace,
    stops: Stops | None = None,
    account: Account | None = None,
) -> Runs:
    """The runs of these steps. `stops` says which of them are stops, where that is known already."""
    if recording.noise == "nearest":
        if stops is not None:
            _say(account, int((stops.labels < 0).sum()), f"given to the nearest of the {states.kind}")
        return make_runs(steps, states.encode(steps.points), recording, account)
    if states.kind != "stops":
        raise InputError(f"`noise='drop'` is for stops; these states are {states.kind}, every reading belongs to one")
    stops = stops or find_stops(steps.points, recording.eps_m, recording.min_samples)
    stay = stops.labels >= 0
    _say(account, int((~stay).sum()), "dropped")
    return make_runs(steps.keep(stay), _same_places(stops, states, recording)[stops.labels[stay]], recording, account)


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
