"""Beyond the map: the last third of four people's traces, by a fitted map and by a policy without history.

fitted        made from the first two thirds, as `veil fit` and `veil solve --avg` do
frame         `veil start --avg`, of which nobody's data is known; `--max` beside it
speed         releases one by one of a frame against those of a policy on a map
"""

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.records import NONE, people
from veilstream.control.frame import Frame, FrameMechanism, chosen
from veilstream.data.fitting import fit_model
from veilstream.data.spec import FitSpec
from veilstream.data.states import apart_km
from veilstream.errors import InputError
from veilstream.solvers.api import solve
from veilstream.solvers.start import start

if TYPE_CHECKING:
    from veilstream.data.trajectories import Trajectories
    from veilstream.model.information import Array

LIMITS_KM = 0.25, 0.5, 1.0, 3.0
COPIES, RELEASES = 20, 500
Row = dict[str, float | str]


def replayed(frame: Frame, record: "Trajectories", seed: int = 0) -> "tuple[Array, Array, Array]":
    """Errors, bits whatever the law, and bits charged, of all steps but the first: steps x copies."""
    rng, lattice, x = np.random.default_rng(seed), frame.lattice, frame.lattice.encode(record.points)
    anchor, each = np.zeros((COPIES, lattice.axes), np.int64), np.arange(COPIES)
    waited = np.diff(record.step, prepend=record.step[0] - 1000) - 1
    found = []
    for t in range(len(x)):
        group, there = frame.group(np.full(COPIES, waited[t])), np.full(COPIES, x[t])
        mass, moves = frame.weights(group, *lattice.seen(anchor, there))
        which = chosen(mass, rng.random(COPIES))
        v, a = moves[each, which], mass[each, which] / mass.sum(1)
        anchor = lattice.moved(anchor, v)
        error = apart_km(np.tile(record.points[t], (COPIES, 1)), lattice.places(anchor))
        found.append((error, np.log2(a / frame.law(group, v)), frame.charge(group, v)))
    error, bits, charged = np.array(found[1:]).transpose(1, 0, 2)
    return error, bits, charged


def later(readings: Any, limit: float) -> Row:
    spec = FitSpec(hold_out=1 / 3, cycle="none", resolution_m=min(1000.0, 1000 * limit))
    model = fit_model(readings, spec)
    assert model.later is not None
    record = model.later.record
    row: Row = {}
    try:
        held = solve(model, avg=limit, progress=False).held_out
    except InputError as line:
        row["fitted"] = str(line)[:60]
    else:
        assert held is not None
        row |= {"fitted error/limit": held.raw_distortion.value / limit, "fitted bits": held.leakage.value}
    frame = start(avg=limit, progress=False).policy
    error, bits, charged = replayed(frame, record)
    row |= {"frame error/limit": error.mean() / limit, "frame bits": bits.mean(), "frame charged": charged.mean()}
    error, bits, charged = replayed(start(max=limit, progress=False).policy, record)
    row |= {"max: farthest/limit": error.max() / limit, "max: bits": bits.mean(), "max: charged": charged.mean()}
    return row


def bench_releases() -> Row:
    """One by one, and many streams at once."""
    began = time.process_time()
    policy = start(avg=1.0, progress=False).policy
    solved = time.process_time() - began
    mechanism, rng, row = FrameMechanism(policy), np.random.default_rng(0), dict[str, float | str]()
    for n in (1, 100):
        x = policy.lattice.encode([[48.1, 11.5]] * n)
        s, _ = mechanism.step(mechanism.start(n), x, rng.random(n))
        began = time.process_time()
        for _ in range(RELEASES // n):
            s, _ = mechanism.step(s, x, rng.random(n))
        row[f"releases_per_s_{n}_at_once"] = RELEASES // n * n / (time.process_time() - began)
    return {"solve_cpu_seconds": solved, **row}


def run() -> dict[str, Row]:
    rows = {f"{name} {limit:g} km": later(readings, limit) for name, readings in people() for limit in LIMITS_KM}
    return {"speed": bench_releases(), **(rows or NONE)}
