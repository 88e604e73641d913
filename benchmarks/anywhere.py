"""Where nobody has been: the last third of four people's traces, and households from half-year to half-year.

map            made from the first two thirds, as `veil fit` and `veil solve --avg` do; planar Laplace beside it
frame          `veil start --avg`, of which nobody's data is known; `--max` beside it
places         `veil start MODEL --avg`: the frame with the places of the first two thirds
with feedback  the same, corrected by public moves
trip           1,000 km by car, train and plane under `--max 500m`: the farthest release, and bits
speed          releases one by one of a frame, and many at once
gateway        readings a CPU second through core and store, of a map and of frames in turn
"""

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.records import NONE, households, people
from veilstream.control.frame import Frame
from veilstream.control.frame_mechanism import FrameMechanism
from veilstream.data.fitting import fit_model
from veilstream.data.frames import readings_of
from veilstream.data.spec import FitSpec
from veilstream.data.synthetic import city
from veilstream.data.trajectories import Trajectories
from veilstream.errors import InputError
from veilstream.gateway.core import Core
from veilstream.gateway.space import Space
from veilstream.gateway.store import Store
from veilstream.gateway.wire import encode, parse
from veilstream.solvers.api import solve
from veilstream.solvers.places import errors_of
from veilstream.solvers.start import Started, along, on_later, start

if TYPE_CHECKING:
    from veilstream.artefact import Artefact
    from veilstream.control.limit_check import HeldOut
    from veilstream.data.model import FittedModel

LIMITS_KM = 0.25, 0.5, 1.0, 3.0
SHARE = 0.25  # of what it costs to release always the same value: the limit of a household
RELEASES = 500
ROUNDS, STREAMS = 5, 64
Row = dict[str, float | str]


def figures(name: str, found: "HeldOut | None", limit: float) -> Row:
    if found is None:
        return {}
    return {f"{name} error/limit": found.raw_distortion.value / limit, f"{name} bits": found.leakage.value}


def on_map(model: "FittedModel", limit: float) -> Row:
    """A map of stops and cells, and planar Laplace on it."""
    row: Row = {}
    for name, method in (("map", None), ("Laplace", "planar-laplace")):
        try:
            row |= figures(name, solve(model, method, avg=limit, progress=False).held_out, limit)
        except InputError as line:
            row[name] = str(line)[:60]
    return row


def started(name: str, made: Started, limit: float) -> Row:
    return {**figures(name, made.later, limit), f"{name} meter": made.trial.charged}


def person(readings: Any, limit: float) -> Row:
    spec = FitSpec(hold_out=1 / 3, cycle="none", resolution_m=min(1000.0, 1000 * limit))
    model = fit_model(readings, spec)
    assert model.later is not None
    row, record = on_map(model, limit), model.later.record
    row |= figures("frame", on_later(start(limit, progress=False).policy, record), limit)
    row |= started("places", start(limit, model=model, progress=False), limit)
    row |= started("with feedback", start(limit, model=model, feedback="day", progress=False), limit)
    most = start(max=limit, progress=False)
    found = on_later(most.policy, record, limit)
    assert found.beyond is not None
    return row | {"max: beyond": found.beyond.value, "max: bits": found.leakage.value, "max: meter": most.trial.charged}


def household(readings: Any) -> Row:
    """Half a year to the next, a move a week."""
    model = fit_model(readings, FitSpec(hold_out=1 / 2, cycle="none"))
    assert model.record is not None
    values = model.record.points[:, 0]
    limit = SHARE * float(np.abs(values - np.median(values)).mean())
    row: Row = {"limit kWh": limit}
    row |= started("places", start(limit, model=model, progress=False), limit)
    return row | started("with feedback", start(limit, model=model, feedback="week", progress=False), limit)


def bench_trip() -> Row:
    """An evening at home, 80 km by car, 280 by train, 640 by plane, a night there; every step, every draw."""
    limit, home, legs = 0.5, np.array([48.1, 11.6]), ((0.72, 12), (2.52, 14), (5.76, 11))  # degrees north, steps
    parts, at = [np.tile(home, (24, 1))], home
    for north, steps in legs:
        parts.append(at + np.linspace(0, 1, steps + 1)[1:, None] * np.array([north, 0.0]))
        at = parts[-1][-1]
    trip = np.concatenate([*parts, np.tile(at, (96, 1))])
    policy, steps_ = start(max=limit, progress=False).policy, np.arange(len(trip))
    replay = along(policy, Trajectories(0 * steps_, steps_, trip, units=0 * steps_))
    found = replay.run(FrameMechanism(policy))
    far = replace(replay, cost=lambda points, y: (errors_of(policy.lattice, points, y) > limit).astype(float))
    beyond = far.run(FrameMechanism(policy))
    assert found.charged is not None
    row: Row = {"steps": len(trip), "copies": found.copies, "error/limit": found.error / limit}
    row |= {"beyond": beyond.error, "bits": found.bits * len(trip), "meter": found.charged * len(trip)}
    return row


def bench_releases() -> Row:
    """One by one, and many streams at once."""
    began = time.process_time()
    policy = start(avg=1.0, progress=False).policy
    row: Row = {"solve_cpu_seconds": time.process_time() - began}
    assert isinstance(policy, Frame)
    row["offsets"] = len(policy.offsets)
    mechanism, rng = FrameMechanism(policy), np.random.default_rng(0)
    for n in (1, 100):
        x = policy.lattice.encode([[48.1, 11.5]] * n)
        s, _ = mechanism.step(mechanism.start(n), x, rng.random(n))
        began = time.process_time()
        for _ in range(RELEASES // n):
            s, _ = mechanism.step(s, x, rng.random(n))
        row[f"releases_per_s_{n}_at_once"] = RELEASES // n * n / (time.process_time() - began)
    return row


def bench_gateway(model: "FittedModel", messages: int = 3200) -> Row:
    """CPU seconds a reading, one by one and in batches, of a map against those of frames: medians over the rounds."""
    assert model.record is not None
    files = {"map": solve(model, avg=1.0, progress=False).artefact}
    files["frame"] = start(1.0, period=model.recording.period_s, progress=False).artefact
    files["places"] = start(1.0, model=model, progress=False).artefact
    row: Row = {"states": len(model.chain)}
    for batch in (1, STREAMS):
        used: dict[str, list[float]] = {name: [] for name in files}
        for _ in range(ROUNDS):
            for name, artefact in files.items():
                used[name].append(cpu_of(artefact, model.record.points, messages // (1 if batch > 1 else 4), batch))
        for name in ("frame", "places"):
            ratios = [a / b for a, b in zip(used["map"], used[name], strict=True)]
            row[f"{name}_rate_of_a_maps_{batch}_at_once"] = statistics.median(ratios)
        row[f"map_us_{batch}_at_once"] = 1e6 * min(used["map"])
    return row


def cpu_of(artefact: "Artefact", points: Any, n: int, batch: int) -> float:
    """CPU seconds of a reading: from its message to its durable release."""
    space, period = Space(artefact), artefact.period_s
    assert period is not None
    places = points[(np.arange(n + STREAMS) // STREAMS + 37 * np.arange(n + STREAMS)) % len(points)].tolist()
    messages = [
        encode({"stream": f"s{i % STREAMS}", "t": 1.6e9 + period * (i // STREAMS), "lat": lat, "lon": lon})
        for i, (lat, lon) in enumerate(places)
    ]
    with tempfile.TemporaryDirectory() as folder:
        core = Core({"": space}, Store(Path(folder) / "s.db", {"": space.binding}))

        def sent(part: "list[bytes]") -> None:
            core.process([r for message in part for r in parse(message, space.grid)])  # type: ignore[union-attr]

        sent(messages[:STREAMS])
        began = time.process_time()
        for i in range(STREAMS, n + STREAMS, batch):
            sent(messages[i : i + batch])
        seconds = time.process_time() - began
        core.close()
    return seconds / n


def run() -> dict[str, Row]:
    rows = {f"{name} {limit:g} km": person(readings, limit) for name, readings in people() for limit in LIMITS_KM}
    rows |= {name: household(readings) for name, readings in households()}
    person = city(600)
    lat, lon = person.points.T
    rows["gateway, a city"] = bench_gateway(
        fit_model(readings_of({"time": person.t_s, "lat": lat, "lon": lon}), FitSpec())
    )
    for name, readings in people():
        rows[f"gateway, {name}"] = bench_gateway(fit_model(readings, FitSpec(resolution_m=1000.0)))
    return {"speed": bench_releases(), "trip": bench_trip(), **(rows or NONE)}
