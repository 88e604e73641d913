"""A policy on recorded data: both distortions, against what can be computed by hand."""

import numpy as np
import pytest

from veilstream.audit.felt import felt
from veilstream.core.evaluate import evaluate
from veilstream.core.problem import Average, Problem
from veilstream.core.window import WindowPolicy
from veilstream.data.synthetic import city
from veilstream.solvers import solve


def test_the_truth_costs_the_raw_distance_and_nothing_else():
    source = city(400)
    found = felt(WindowPolicy.of_table(np.eye(10)), source.chain, source.states, [source.points], copies=3)
    assert found.state_to_release == pytest.approx(0, abs=1e-9)
    assert found.raw_to_release == pytest.approx(found.raw_to_state)
    assert 0.01 < found.raw_to_state < 0.03  # 15 m of noise in each direction
    assert found.steps == 400


def test_a_constant_release_costs_its_mean_distance():
    source = city(400)
    always = np.zeros((10, 10))
    always[:, 0] = 1
    found = felt(WindowPolicy.of_table(always), source.chain, source.states, [source.points[:150], source.points[150:]])
    assert found.state_to_release == pytest.approx(source.states.distances()[source.path, 0].mean())
    assert found.raw_to_release == pytest.approx(source.states.distances_from(source.points)[:, 0].mean())
    assert found.state_to_release_se == pytest.approx(0)


def test_on_data_of_the_chain_itself_it_agrees_with_evaluate():
    source = city(4_000, seed=3)
    problem = Problem(source.chain, source.states.distances(), Average(weight=0.5))
    policy = solve(problem, window=1).policy
    found = felt(policy, source.chain, source.states, [source.points], copies=8)
    expected = evaluate(problem, policy, steps=300, streams=128)
    assert found.state_to_release == pytest.approx(expected.distortion, abs=0.2 * expected.distortion + 0.05)
