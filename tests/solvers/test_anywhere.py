"""Frames with the history of a record: what they keep where it ends."""

import numpy as np
import pytest

import veilstream as vs
from veilstream.data.states import apart_km
from veilstream.data.synthetic import city
from veilstream.model.lattice import Lattice
from veilstream.solvers.frame import Kernel
from veilstream.solvers.places import FADE, History, PlaceSweep

HALF_HOURS, WEEK = 48, 336
LIMIT = 0.1


def household(rng, steps, low, high):
    """Two levels, and something of its own at every step."""
    on = np.repeat(rng.random(steps // 6) < 0.3, 6)
    return np.where(on, high, low) * rng.lognormal(0, 0.25, steps)


@pytest.mark.slow
def test_a_household_that_leaves_its_range_both_ways_keeps_its_limit_by_feedback():
    """Two weeks between 0.2 and 0.6 kWh are fitted; then a week of nearly nothing, and one of ten times as much."""
    rng = np.random.default_rng(1)
    spans = (2 * WEEK, 0.2, 0.6), (WEEK - WEEK % 6, 0.02, 0.05), (WEEK - WEEK % 6, 1.5, 3.0)
    kwh = np.concatenate([household(rng, *span) for span in spans])
    t = 1.6e9 + 1800 * np.arange(len(kwh))
    model = vs.fit({"time": t, "kwh": kwh}, columns="value=kwh", unit="kWh", hold_out=0.5)
    alone = vs.start(LIMIT, model=model, progress=False)
    assert alone.later.raw_distortion.value > 1.5 * LIMIT  # the record knows nothing of such weeks
    kept = vs.start(LIMIT, model=model, feedback="day", progress=False)
    assert kept.later.raw_distortion.value <= 1.05 * LIMIT
    assert kept.policy.average == LIMIT and kept.policy.feedback.limit <= LIMIT


def test_who_moves_on_leaves_behind_what_a_release_missed():
    """On a drive away from every place a release that moves may miss more than one that stays."""
    person = city(300)
    lat, lon = person.points.T
    frame = vs.start("1km", model=vs.fit({"time": person.t_s, "lat": lat, "lon": lon}), progress=False).frame
    assert frame.fade == FADE < 1
    lattice, memory = frame.lattice, frame.start(1)
    nowhere = lattice.encode(np.array([[40.0, 5.0]]))
    memory = frame.update(memory, nowhere)
    at, x = frame.known(memory), lattice.encode(np.array([[40.03, 5.0]]))
    mass, ways = frame.weights(at, x, np.zeros(1, bool))
    moves = ways.u - frame.offsets.near
    y = lattice.landing(np.repeat(at.anchor, len(moves), 0), np.repeat(at.size, len(moves), 0), moves)
    near = mass[0, len(frame.packed) : -1]
    left = apart_km(np.repeat(lattice.decode(x), len(y), 0), lattice.decode(y))
    every = frame.known(np.repeat(memory, len(moves), 0))
    with np.errstate(divide="ignore"):
        own = -np.log2(near * every.share / frame.free(every, moves)) - frame.weight * left
    close = (left < 2 * frame.spacing) & moves.any(1)
    values = frame.values[frame.offsets.index(ways.u - moves)]
    np.testing.assert_allclose(own[close], FADE * values[close], atol=0.3)
    stays = (moves == 0).all(1).argmax()
    assert near[stays] == 0  # counted apart, in the last column, whole
    whole = -np.log2(mass[0, -1] * every.share[0] / frame.free(every, moves)[stays]) - frame.weight * left[stays]
    assert whole == pytest.approx(values[stays], abs=0.3)


def test_releases_expected_along_a_record_are_those_of_every_path():
    """By enumeration of all paths of releases of a record of five readings, gaps in it."""
    rng, lattice = np.random.default_rng(0), Lattice(1.0, 1)
    levels, step = np.array([[0.0], [2.0], [1.0], [2.0], [0.0]]), np.array([0, 1, 4, 5, 30])
    history = History.of(lattice, levels, step, np.zeros(5, int))
    law, factor = rng.dirichlet(np.ones(3), (3, 3)), rng.uniform(0.1, 1, (3, 3))
    counts, paths = np.zeros((3, 3, 3)), {(int(history.cell[0]),): 1.0}
    for g, x in zip(history.group[1:], history.cell[1:], strict=True):
        longer = {}
        for path, p in paths.items():
            a = law[g, path[-1]] * factor[x] / (law[g, path[-1]] * factor[x]).sum()
            counts[g, path[-1]] += p * a
            longer |= {(*path, y): p * a[y] for y in range(3)}
        paths = longer
    found = PlaceSweep.of(history, "", Kernel(jump=2.0)).expected(factor, law)
    np.testing.assert_allclose(found, counts, rtol=1e-9)
    assert (counts.sum((1, 2)) > 0).all()
