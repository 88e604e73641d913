"""Ladders made for a limit: rungs along the curve, the first within it, what is promised and what is not."""

import numpy as np
import pytest

import veilstream as vs
from oracles import random_chain, recorded
from veilstream.solvers.adaptive import NEAR

RNG = np.random.default_rng(2)
CHAIN = vs.MarkovChain(random_chain(RNG, 5, sticky=0.6, floor=0.02))
D = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
LIMIT = 0.4


def solved(**more):
    return vs.solve(vs.Problem(CHAIN, D, vs.Average(limit=LIMIT)), window=1, feedback=48, **more)


def test_rungs_rise_in_distance_and_fall_in_leakage_and_the_first_keeps_the_limit():
    solution = solved()
    climb = solution.ladder
    assert (np.diff(climb.felt) > 0).all() and (np.diff([p.leakage for p in climb.points]) < 0).all()
    assert climb.felt[0] == pytest.approx(0, abs=1e-9)  # the truth itself
    first = climb.ladder.first
    assert climb.felt[first] <= NEAR * LIMIT < climb.felt[first + 1]
    assert solution.leakage == pytest.approx(climb.points[first].leakage)
    plain = vs.solve(vs.Problem(CHAIN, D, vs.Average(limit=LIMIT)), window=1)
    assert solution.leakage == pytest.approx(plain.leakage, rel=0.15)  # a rung next to the limit
    found = climb.to_json()
    assert found["promised"] and found["served"] == 1.0 and found["unserved"] == 0.0
    assert solution.to_json()["feedback"]["every"] == 48


@pytest.mark.slow
def test_the_limit_is_kept_for_people_the_chain_knows_nothing_of():
    """Alternating extremes, a stay in the dearest state, a cycle: without feedback these are felt far beyond it."""
    solution = solved()
    problem, ladder = solution.problem, solution.policy
    bound = LIMIT + ladder.feedback.overshoot / 5000
    plain = vs.solve(vs.Problem(CHAIN, D, vs.Average(limit=LIMIT)), window=1)
    beyond = 0
    for x in (np.resize([0, 4], 5000), np.resize([0] * 9 + [4] * 9, 5000), np.resize(np.arange(5), 5000)):
        y = vs.release_many(ladder, x[None], problem, seed=1).y[0]
        mean = np.minimum(D[x, y], ladder.feedback.most).mean()
        assert mean <= bound
        without = vs.release_many(plain.policy, x[None], problem, seed=1).y[0]
        beyond += D[x, without].mean() > 1.1 * LIMIT
        assert mean <= 1.1 * LIMIT
    assert beyond  # or there was nothing to keep


def test_readings_that_no_rung_can_serve_are_named():
    z = RNG.integers(0, 5, 400)
    stray = np.where(RNG.random(400) < 0.1, 0.7, 0.0)  # a tenth of the readings lie 0.7 from their state
    on = recorded([z], [np.zeros(400, int)], [D[z] + stray[:, None]])
    climb = solved(replay=on).ladder
    assert climb.served == pytest.approx(float((stray == 0).mean()))
    assert climb.unserved == pytest.approx(float(stray.mean() - (stray > 0).mean() * LIMIT), rel=0.01)
    assert any("farther than the limit" in line for line in climb.words("km"))


def test_rungs_that_leak_too_much_can_be_forbidden_and_the_promise_goes_with_them():
    free = solved().ladder
    most = (free.points[2].leakage + free.points[3].leakage) / 2
    climb = solved(max_bits=most).ladder
    assert max(p.leakage for p in climb.points) <= most
    assert not climb.to_json()["promised"]
    assert any("not promised" in line for line in climb.words())
    with pytest.raises(vs.InputError, match="no rung leaks as little"):
        solved(max_bits=0.0)


def test_a_limit_below_the_floor_is_refused_by_name():
    z = RNG.integers(0, 5, 100)
    on = recorded([z], [np.zeros(100, int)], [D[z] + 0.5])
    with pytest.raises(vs.InputError, match=r"has an error of 0\.5"):
        solved(replay=on)
    with pytest.raises(vs.InputError, match="mean limit"):
        vs.solve(vs.Problem(CHAIN, D, vs.Average(weight=1.0)), feedback=48)


@pytest.mark.slow
def test_the_first_rung_is_chosen_on_the_earlier_half_of_what_was_held_out():
    """Her later data is dearer at first: the ladder starts lower, and figures are of the other half."""
    z, at = RNG.integers(0, 5, 300), np.zeros(300, int)
    on = recorded([z], [at], [D[z]])
    weeks = np.repeat(np.arange(20), 15)
    far = np.where(weeks < 10, 1.6, 1.0)[:, None] * D[z]
    later = recorded([z], [at], [far], units=[weeks], unit="weeks")
    chosen = solved(replay=on, held_out=later)
    assert chosen.policy.first < solved(replay=on).policy.first
    assert chosen.held_out.units == 10
