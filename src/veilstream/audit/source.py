"""Recorded data as symbols of a policy's states, encoded as its model was fitted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilstream.artefact import Artefact
from veilstream.control.replay import Course, OnCourse
from veilstream.data.crossval import losses
from veilstream.data.encode import encode_steps
from veilstream.data.readings import Readings
from veilstream.data.record import Record
from veilstream.data.recording import Recording
from veilstream.data.states import StateSpace
from veilstream.data.steps import Runs, to_steps
from veilstream.errors import InputError
from veilstream.model.data_card import DataCard
from veilstream.solvers.warnings import about_stranger

FAR = 1.0  # data is elsewhere if half of it lies further from every state than this many times the map's width


def recorded_runs(readings: Readings, policy: Artefact, recording: Recording | None = None) -> Runs:
    """The traces as symbols 0..n-1, recorded as the policy's model was unless another way is told."""
    states = policy.states
    check_kind(readings, states)
    readings, steps, recording = to_steps(readings, recording or policy.recording)
    if states is None:
        states = _whole_numbers(steps.points, policy.chain.n_symbols, readings.where)
    elif states.is_map:
        _check_place(steps.points, states, readings.where)
    return encode_steps(steps, recording, states, account=readings.account)


def course_of(policy: Artefact, runs: Runs) -> Course | None:
    """The recorded data, as a gateway would meet it: the steps that the model was fitted to, all where it says not.

    None where nothing is that early, or the file knows no places or levels, so that there are no distances.
    """
    card, steps = DataCard.of(policy.provenance), runs.source
    fitted = steps.step <= (np.inf if card is None or card.last_step is None else card.last_step)
    if policy.states is None or not fitted.any():
        return None
    kept = steps.keep(fitted)
    return Record.of(kept.stream, kept.step, kept.points, runs.symbols[fitted]).course(policy.cost, policy.chain)


def on_record(policy: Artefact, runs: Runs) -> OnCourse | None:
    """Error and bits on the recorded data; what the policy's file says of it where none of it is given."""
    course = course_of(policy, runs)
    if course is None or policy.policy is None:
        return OnCourse.of(policy.provenance.get("solution"))
    return course.whole(policy.policy, policy.chain)


def strange(policy: Artefact, runs: Runs) -> list[str]:
    """A line where the data looks like somebody else's."""
    chain = policy.chain
    bits = np.concatenate([np.zeros(0), *losses(chain, runs.sequences, runs.first)])
    if not len(bits):
        return []
    states, away = policy.states, None
    if states is not None and len(runs.source):
        away = float(np.median(states.distance_to(runs.source.points, states.encode(runs.source.points))))
    return about_stranger(float(bits.mean()), away, chain, policy.provenance)


def check_kind(readings: Readings, states: StateSpace | None) -> None:
    """Raises unless the data is of the policy's kind and unit."""
    of_policy = "value" if states is None else {"bins": "value", "names": "name"}.get(states.kind, "position")
    if readings.kind != of_policy:
        raise InputError(
            f"the policy and the data have different state spaces: the policy is about {of_policy}s, "
            f"{readings.where} holds {readings.kind}s"
        )
    if states is not None and not states.is_map and readings.unit and states.unit and readings.unit != states.unit:
        raise InputError(
            f"the policy and the data have different state spaces: the policy's values are in {states.unit}, "
            f"those of {readings.where} in {readings.unit}"
        )


def _whole_numbers(points: NDArray[np.float64], n: int, where: str) -> StateSpace:
    """States that are numbers 0..n-1, for data that holds nothing else."""
    values = points[:, 0]
    bad = (values != np.round(values)) | (values < 0) | (values >= n)
    if bad.any():
        raise InputError(
            f"the policy and the data have different state spaces: the policy's states are 0..{n - 1}, "
            f"{where} holds other numbers"
        )
    numbers = np.arange(float(n))
    return StateSpace("bins", numbers[:, None], tuple(map(str, range(n))), "", numbers[1:] - 0.5)


def _check_place(points: NDArray[np.float64], states: StateSpace, where: str) -> None:
    away = float(np.median(states.distance_to(points, states.encode(points))))
    width = max(float(states.distances().max()), 1.0)
    if away > FAR * width:
        raise InputError(
            f"the policy and the data have different state spaces: half of {where} lies more than {away:.0f} km "
            f"from every place of the policy, which spans {width:.0f} km"
        )
