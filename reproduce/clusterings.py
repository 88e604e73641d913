"""Every way to make 16 stops of user 016 that the paper's words allow: what was published leaves it open.

A way is: steps of some minutes on the clock or from the start of each file, the first fix or the mean of a step, and
DBSCAN's radius and number of points. Steps that are no stop are dropped; all files are joined to one trace. A way is
told apart by that trace: two radii that give the same one are one way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from reproduce.geolife import folder_of
from reproduce.item import Desk
from veilstream.audit.traces import Ints
from veilstream.data.clusters import stop_labels, stop_places
from veilstream.data.sources import read
from veilstream.data.spec import Recording
from veilstream.data.steps import clean, resample
from veilstream.data.trajectories import Trajectories
from veilstream.model.chain import MarkovChain
from veilstream.model.distortion import haversine
from veilstream.model.information import Array
from veilstream.model.problem import Instantaneous, Problem
from veilstream.solvers import solve

STOPS = 16
MINUTES = (2, 5, 10, 15)
RADII_M = (50, 100, 150, 200, 300, 400, 500, 700, 1000, 1500, 2000)
LEAST_POINTS = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30)
LIMITS_KM = (15.0, 5.0, 3.0)


@dataclass(frozen=True)
class Way:
    """How 16 stops were made."""

    minutes: int
    bin: str  # first, mean
    origin: str  # clock, file
    eps_m: float
    min_samples: int

    def __str__(self) -> str:
        what = "first fix" if self.bin == "first" else "mean"
        return (
            f"{what} of every {self.minutes} minutes from {'the clock' if self.origin == 'clock' else 'each file'}, "
            f"{self.eps_m:g} m, {self.min_samples} points"
        )


@dataclass(frozen=True)
class Found:
    """One way, and what follows from it without any training."""

    way: Way
    steps: int
    nats: float  # H(X_t | X_t-1) of the trace itself: what a look-back of one can reach in sample
    blind_km: float  # mean distance of the best single stop: above it nothing need be released
    uniform_km: float  # of any stop alike
    bits: tuple[float, float, float]  # of the exact solver (memory 1) at 15, 5, 3 km at every step


@dataclass(frozen=True, eq=False)
class Joined:
    """The joined trace, its chain and the distances of its stops."""

    path: Ints
    chain: MarkovChain
    distances: Array

    @classmethod
    def of(cls, steps: Trajectories, way: Way) -> Joined | None:
        """None where there are not 16 stops."""
        labels, _, _ = stop_labels(steps.points, way.eps_m, way.min_samples)
        if labels.max(initial=-1) + 1 != STOPS:
            return None
        places = stop_places(steps.points, labels)
        path = labels[labels >= 0]
        return cls(path, MarkovChain.fit([path], STOPS, name=USER), haversine(places, places))


USER = "user 016, joined"


def steps_of(geolife: Path, minutes: int, bin: str, origin: str) -> Trajectories:
    readings = clean(read([str(folder_of(geolife))]), Recording().max_speed_kmh)
    if origin == "file":
        begins = pl.col("t") - pl.col("t").min().over("trace")
        readings = readings.with_frame(readings.frame.with_columns(begins.alias("t")))
    return resample(readings, Recording(period_s=60.0 * minutes, bin="mean" if bin == "mean" else "first"))


def setting(geolife: Path, way: Way) -> Joined:
    made = Joined.of(steps_of(geolife, way.minutes, way.bin, way.origin), way)
    assert made is not None  # asked for only where it has 16 stops
    return made


def all_ways(desk: Desk) -> list[Found]:
    """Those with 16 stops, kept."""
    assert desk.geolife is not None
    geolife = desk.geolife
    key = {"clusterings": [MINUTES, RADII_M, LEAST_POINTS, STOPS], "geolife": _size(geolife)}
    told = desk.kept(key, lambda: [asdict(f) for f in _search(desk, geolife)])
    return [_of_json(t) for t in told]


def _search(desk: Desk, geolife: Path) -> Iterator[Found]:
    seen: set[str] = set()
    kinds = [(m, b, o) for m in MINUTES for b in ("first", "mean") for o in ("clock", "file")]
    for i, (minutes, bin, origin) in enumerate(kinds):
        desk.tell(0.5 * i / len(kinds), f"{minutes} minutes, {bin}, {origin}")
        steps = steps_of(geolife, minutes, bin, origin)
        for eps_m in RADII_M:
            for least in LEAST_POINTS:
                way = Way(minutes, bin, origin, float(eps_m), least)
                made = Joined.of(steps, way)
                if made is None:
                    continue
                name = hashlib.sha256(made.path.tobytes()).hexdigest()
                if name not in seen:
                    seen.add(name)
                    yield describe(way, made)


def describe(way: Way, made: Joined) -> Found:
    counts = np.zeros((STOPS, STOPS))
    np.add.at(counts, (made.path[:-1], made.path[1:]), 1)
    law = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    nats = -float((counts * np.log(np.where(law > 0, law, 1))).sum() / counts.sum())
    share = np.bincount(made.path, minlength=STOPS) / len(made.path)
    reached = [solve(Problem(made.chain, made.distances, Instantaneous(km)), window=1).leakage for km in LIMITS_KM]
    uniform = float(share @ made.distances.mean(1))
    return Found(way, len(made.path), nats, float((share @ made.distances).min()), uniform, tuple(reached))  # type: ignore[arg-type]


def _of_json(told: dict[str, Any]) -> Found:
    return Found(**{**told, "way": Way(**told["way"]), "bits": tuple(told["bits"])})


def _size(geolife: Path) -> int:
    return sum(path.stat().st_size for path in folder_of(geolife).rglob("*.plt"))
