"""Recorded data, encoded as the policy's gateway would: readings -> steps -> states -> traces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilstream.artefact import Artefact
from veilstream.data.clean import clean
from veilstream.data.readings import Readings
from veilstream.data.states import StateSpace
from veilstream.data.steps import DEFAULT_MAX_GAP_S, Steps, default_period_s, make_runs, resample
from veilstream.errors import InputError

SAME_PLACE_KM = 0.001
FAR = 1.0  # data is elsewhere if half of it lies further from every state than this many times the map's width


@dataclass(frozen=True)
class Recording:
    """How recorded data becomes traces; None takes what the policy's model was made with."""

    gaps: str | None = None
    noise: str | None = None
    bin: str | None = None
    max_gap_s: float | None = None
    eps_m: float = 200.0
    min_samples: int = 8


def sequences(readings: Readings, policy: Artefact, how: Recording | None = None) -> list[NDArray[np.int64]]:
    """The traces as symbols 0..n-1 of the policy's states."""
    how = how or Recording()
    states = policy.states
    _check_kind(readings, policy)
    study = " ".join(states.study_only) if states is not None else ""
    gaps = how.gaps or ("bridge" if "--gaps bridge" in study else "split")
    noise = how.noise or ("drop" if "--noise drop" in study else "nearest")
    if noise not in ("drop", "nearest"):
        raise InputError(f"--noise must be nearest or drop, found {noise!r}")
    readings = clean(readings)
    period_s = 1.0 if readings.stepped else (policy.period_s or default_period_s(readings))
    if states is not None and noise == "drop":
        steps, labels = _stops(readings, states, period_s, how)
    else:
        steps = resample(readings, period_s, how.bin or "first")
        if states is None:
            labels = _whole_numbers(steps.points, policy.chain.n_symbols, readings.where)
        else:
            _check_place(steps.points, states, readings.where)
            labels = states.encode(steps.points)
    limit = how.max_gap_s or max(period_s, DEFAULT_MAX_GAP_S if readings.kind == "position" else 0)
    fill = "close" if gaps == "bridge" or noise == "drop" or "--fill close" in study else "hold"
    return make_runs(steps, labels, gaps, limit, fill).sequences


def _check_kind(readings: Readings, policy: Artefact) -> None:
    states = policy.states
    of_policy = "value" if states is None or not states.is_map else "position"
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


def _whole_numbers(points: NDArray[np.float64], n: int, where: str) -> NDArray[np.int64]:
    values = points[:, 0]
    bad = (values != np.round(values)) | (values < 0) | (values >= n)
    if bad.any():
        raise InputError(
            f"the policy and the data have different state spaces: the policy's states are 0..{n - 1}, "
            f"{where} holds {values[bad][0]:g}"
        )
    return values.astype(np.int64)


def _check_place(points: NDArray[np.float64], states: StateSpace, where: str) -> None:
    if not states.is_map:
        return
    away = float(np.median(states.distance_to(points, states.encode(points))))
    width = max(float(states.distances().max()), 1.0)
    if away > FAR * width:
        raise InputError(
            f"the policy and the data have different state spaces: half of {where} lies more than {away:.0f} km "
            f"from every place of the policy, which spans {width:.0f} km"
        )


def _stops(readings: Readings, states: StateSpace, period_s: float, how: Recording) -> tuple[Steps, NDArray[np.int64]]:
    """The steps that are stops, as DBSCAN tells: only the data the policy was made from can be told so."""
    from veilstream.data.find import find_stops

    for how_bin in [how.bin] if how.bin else ["mean", "first"]:
        steps = resample(readings, period_s, how_bin)
        stops = find_stops(steps.points, how.eps_m, how.min_samples)
        if len(stops.states) == len(states):
            own = states.encode(stops.states.coordinates)  # stop -> state, whatever their order
            away = states.distance_to(stops.states.coordinates, own)
            if len(set(own.tolist())) == len(states) and away.max() < SAME_PLACE_KM:
                stay = stops.labels >= 0
                return steps.keep(stay), own[stops.labels[stay]]
    raise InputError(
        f"the policy and the data have different state spaces: the policy was made with --noise drop from "
        f"{len(states)} stops, which this data (radius {how.eps_m:g} m, {how.min_samples} points) does not have; "
        "give the data, --bin, --eps and --min-samples it was fitted with, or --noise nearest"
    )
