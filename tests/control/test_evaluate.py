"""Estimates by exact belief: what is known without drawing is regressed away, and what is left has honest errors."""

import numpy as np
import pytest

import veilstream as vs
from oracles import random_chain
from veilstream.control.controller import cycle
from veilstream.control.evaluate import controlled
from veilstream.control.stationary import rates
from veilstream.model.clock import Clock


def sticky(phases: int):
    """A problem whose states are left once in twenty steps, and a random policy for it."""
    rng = np.random.default_rng(4)
    P = [random_chain(rng, 4, sticky=0.95, floor=0.002) for _ in range(phases)]
    chain = vs.MarkovChain(P, clock=Clock("steps", phases)) if phases > 1 else vs.MarkovChain(P[0])
    tables = [vs.Controller.of_table(rng.dirichlet(np.ones(3), (3, 4)), 1) for _ in range(phases)]
    policy = cycle(tuple(tables)).made_for(chain) if phases > 1 else tables[0]
    return vs.Problem(chain, rng.random((4, 3)), vs.Average(weight=1.0)), policy


@pytest.mark.parametrize("phases", [1, 3])
def test_a_distortion_is_estimated_within_its_own_standard_errors_and_much_closer_than_by_plain_means(phases):
    """Against the figure computed exactly, over twenty seeds; 7 streams are too few for 4 states: plain means."""
    problem, policy = sticky(phases)
    exact = rates(problem, policy).distortion
    found = [vs.evaluate(problem, policy, steps=60, streams=96, seed=seed) for seed in range(20)]
    off = np.array([(ev.distortion - exact) / ev.distortion_se for ev in found])
    assert 0.5 < np.sqrt((off**2).mean()) < 1.6 and abs(off).max() < 4.5
    plain = vs.evaluate(problem, policy, steps=60, streams=7)
    assert np.mean([ev.distortion_se for ev in found]) < 0.2 * plain.distortion_se * np.sqrt(7 / 96)
    assert abs(plain.distortion - exact) < 5 * plain.distortion_se


def test_the_standard_error_of_a_leakage_is_that_of_its_seeds():
    problem, policy = sticky(1)
    found = [vs.evaluate(problem, policy, steps=60, streams=96, seed=seed) for seed in range(20)]
    spread = np.std([ev.leakage for ev in found], ddof=1)
    assert 0.5 < spread / np.mean([ev.leakage_se for ev in found]) < 1.6


def test_what_is_linear_in_the_belief_is_found_without_error():
    rng = np.random.default_rng(0)
    off = rng.normal(size=(50, 3)) * [1.0, 0.1, 0.0]
    (mean,), (se,) = controlled((2.5 + off @ [3.0, -4.0, 7.0])[:, None], off)
    assert mean == pytest.approx(2.5, abs=1e-9) and se < 1e-8


def test_means_of_few_streams_are_plain_means():
    y = np.random.default_rng(1).normal(size=(10, 2))
    means, se = controlled(y, np.zeros((10, 9)))
    assert means == pytest.approx(y.mean(0).tolist())
    assert se == pytest.approx((y.std(0, ddof=1) / np.sqrt(9)).tolist())


def test_what_a_few_streams_alone_have_seen_says_nothing_of_the_rest():
    """A state that is hardly ever met: its expectation is known, but its slope rests on one stream."""
    rng = np.random.default_rng(2)
    off, y = rng.normal(size=(60, 2)) * 0.1, 1 + 0.01 * rng.normal(size=60)
    rare = np.full((60, 1), -1e-5)
    rare[0] = 2e-5
    with_rare, without = (controlled((y + off[:, 0])[:, None], v) for v in (np.hstack([off, rare]), off))
    assert with_rare[0] == pytest.approx(without[0], abs=1e-3) and with_rare[1] == pytest.approx(without[1], rel=0.1)
    assert without[0][0] == pytest.approx(1, abs=5 * without[1][0]) and without[1][0] < 0.003


def test_a_clock_of_more_steps_than_streams_is_seen_all_around():
    """The truth, shown: half of a round of 40 steps tells H(0.02) bits each, half of it one bit."""
    still, tossed = np.array([[0.98, 0.02], [0.02, 0.98]]), np.full((2, 2), 0.5)
    chain = vs.MarkovChain([still] * 20 + [tossed] * 20, clock=Clock("steps", 40))
    policy = vs.Controller.of_table(np.stack([np.eye(2)] * 2), 1).made_for(chain)
    problem = vs.Problem(chain, 1 - np.eye(2), vs.Average(weight=1.0))
    found = vs.evaluate(problem, policy, steps=10, streams=16, burn_in=3)
    assert found.leakage == pytest.approx(rates(problem, policy).leakage, abs=0.03)
