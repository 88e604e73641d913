"""Two invented sources with a known true chain: a commuter in a small city, and a household's meter.

Numpy only. The truth is a `MarkovChain` with a `StateSpace`; readings are drawn from it, with the noise a real
sensor adds. The city lies in the empty South Pacific, so nobody lives there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilstream.data.states import StateSpace
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain

EPOCH_S = 1_704_067_200  # 2024-01-01 00:00 UTC
CENTRE = (-47.0, -125.0)
KM_PER_DEGREE = 111.195
KM_EAST = float(KM_PER_DEGREE * np.cos(np.radians(CENTRE[0])))  # in a degree of longitude
GPS_NOISE_KM = 0.015

# name, east km, north km, mean stay in minutes, where next and how often
CITY = (
    ("home", 0.0, 0.0, 300, {"work": 55, "station": 20, "shop": 10, "gym": 8, "park": 5, "friend": 2}),
    ("work", 6.2, 3.1, 160, {"home": 45, "cafe": 35, "gym": 10, "shop": 8, "clinic": 2}),
    ("cafe", 5.8, 3.6, 30, {"work": 85, "home": 10, "park": 5}),
    ("gym", 4.1, 1.2, 70, {"home": 80, "shop": 15, "cafe": 5}),
    ("shop", 1.1, 0.7, 35, {"home": 85, "friend": 10, "gym": 5}),
    ("school", 1.9, -1.4, 20, {"work": 60, "home": 40}),
    ("park", -0.9, 1.6, 55, {"home": 80, "cafe": 20}),
    ("friend", -3.4, 2.7, 150, {"home": 100}),
    ("station", 2.6, 0.4, 15, {"work": 70, "school": 20, "clinic": 10}),
    ("clinic", 3.7, 4.4, 45, {"home": 60, "work": 40}),
)
CITY_PERIOD_S = 300.0

HOUSEHOLD_EDGES = (0.05, 0.12, 0.25, 0.5, 1.0)  # kWh per half-hour
HOUSEHOLD_TOP = 2.0
HOUSEHOLD_NAMES = ("asleep", "standby", "light", "busy", "cooking", "heating")
HOUSEHOLD = (  # P(next | now)
    (0.80, 0.17, 0.02, 0.00, 0.00, 0.01),
    (0.16, 0.66, 0.13, 0.03, 0.01, 0.01),
    (0.02, 0.18, 0.60, 0.15, 0.04, 0.01),
    (0.01, 0.06, 0.24, 0.54, 0.12, 0.03),
    (0.01, 0.03, 0.12, 0.34, 0.42, 0.08),
    (0.01, 0.02, 0.05, 0.12, 0.15, 0.65),
)
HOUSEHOLD_PERIOD_S = 1800.0


@dataclass(frozen=True)
class Source:
    """Readings drawn from a known chain; the truth comes along."""

    name: str
    chain: MarkovChain
    states: StateSpace
    period_s: float
    path: NDArray[np.int64]  # the true states
    t_s: NDArray[np.floating]  # time stamps, seconds UTC
    points: NDArray[np.float64]  # n x 2 degrees, or n x 1 values

    @property
    def unit(self) -> str:
        return self.states.unit


def city_chain() -> tuple[MarkovChain, StateSpace]:
    """The commuter: stays are geometric with the mean given, every move is possible."""
    names = [row[0] for row in CITY]
    n = len(names)
    P = np.full((n, n), 1e-4)
    for i, (_, _, _, stay_min, moves) in enumerate(CITY):
        leave = CITY_PERIOD_S / 60 / stay_min
        total = sum(moves.values())
        P[i, i] += 1 - leave
        for name, weight in moves.items():
            P[i, names.index(name)] += leave * weight / total
    P /= P.sum(1, keepdims=True)
    east, north = np.array([row[1] for row in CITY]), np.array([row[2] for row in CITY])
    places = np.stack([CENTRE[0] + north / KM_PER_DEGREE, CENTRE[1] + east / KM_EAST], axis=1)
    return MarkovChain(P, name="synthetic city"), StateSpace("places", places, tuple(names), "km")


def household_chain() -> tuple[MarkovChain, StateSpace]:
    """Six levels of use; within a level the reading is uniform."""
    P = np.array(HOUSEHOLD) + 1e-3
    low, high = np.array((0.0, *HOUSEHOLD_EDGES)), np.array((*HOUSEHOLD_EDGES, HOUSEHOLD_TOP))
    states = StateSpace("bins", ((low + high) / 2)[:, None], HOUSEHOLD_NAMES, "kWh", np.array(HOUSEHOLD_EDGES))
    return MarkovChain(P / P.sum(1, keepdims=True), name="synthetic household"), states


def city(steps: int = 20_000, seed: int = 0) -> Source:
    """One GPS fix per 5 minutes, a few seconds after the step begins, 15 m off."""
    chain, states = city_chain()
    rng = np.random.default_rng(seed)
    path = chain.sample(steps, seed=rng)[0]
    noise = rng.normal(scale=GPS_NOISE_KM, size=(steps, 2)) / (KM_PER_DEGREE, KM_EAST)
    t = EPOCH_S + CITY_PERIOD_S * np.arange(steps) + np.floor(rng.uniform(0, 20, steps))
    return Source("city", chain, states, CITY_PERIOD_S, path, t, states.decode(path) + noise)


def household(steps: int = 20_000, seed: int = 0) -> Source:
    """kWh per half-hour."""
    chain, states = household_chain()
    rng = np.random.default_rng(seed)
    path = chain.sample(steps, seed=rng)[0]
    low, high = np.array((0.0, *HOUSEHOLD_EDGES)), np.array((*HOUSEHOLD_EDGES, HOUSEHOLD_TOP))
    values = np.maximum(low[path], np.nextafter(high[path], 0) - rng.uniform(0, 1, steps) * (high - low)[path])
    t = EPOCH_S + HOUSEHOLD_PERIOD_S * np.arange(steps)
    return Source("household", chain, states, HOUSEHOLD_PERIOD_S, path, t, values[:, None])


SOURCES = {"city": city, "household": household}


def synthetic(name: str, steps: int = 20_000, seed: int = 0) -> Source:
    if name not in SOURCES:
        raise InputError(f"a synthetic source is one of {', '.join(SOURCES)}, found {name!r}")
    if steps < 2:
        raise InputError(f"a synthetic source takes at least 2 steps, found {steps}")
    return SOURCES[name](steps, seed)
