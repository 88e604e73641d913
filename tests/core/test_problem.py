import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilstream as vs
from oracles import classical_rate
from veilstream.core.information import mutual_information
from veilstream.core.problem import (
    blahut_arimoto,
    expected_distortion,
    joint,
    leakage,
    next_prior,
    output_law,
)

seeds = st.integers(0, 2**32 - 1)


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_bayes_step_against_the_joint(seed):
    rng = np.random.default_rng(seed)
    b, a = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(3), 4)
    P, d = rng.dirichlet(np.ones(4), 4), rng.random((4, 3))
    m = b[:, None] * a
    assert joint(b, a) == pytest.approx(m)
    assert leakage(b, a) == pytest.approx(mutual_information(m), abs=1e-12)
    assert expected_distortion(b, a, d) == pytest.approx((m * d).sum())
    three = m[:, :, None] * P[:, None, :]  # z, y, z'
    for y in range(3):
        assert next_prior(b, a, y, P) == pytest.approx(three[:, y].sum(0) / three[:, y].sum())
    mean = sum(output_law(b, a)[y] * next_prior(b, a, y, P) for y in range(3))
    assert mean == pytest.approx(vs.MarkovChain(P).later(b))  # marginalising over the release is skipping it


def test_every_formula_takes_a_batch():
    rng = np.random.default_rng(0)
    b, a, P = rng.dirichlet(np.ones(4), 5), rng.dirichlet(np.ones(3), (5, 4)), rng.dirichlet(np.ones(4), 4)
    y = rng.integers(0, 3, 5)
    new, bits = next_prior(b, a, y, P), leakage(b, a)
    for i in range(5):
        assert new[i] == pytest.approx(next_prior(b[i], a[i], y[i], P))
        assert bits[i] == pytest.approx(leakage(b[i], a[i]))


def test_an_impossible_observation_fails_closed():
    a = np.array([[1.0, 0.0], [1.0, 0.0]])
    with pytest.raises(vs.ImpossibleObservation):
        next_prior(np.array([0.5, 0.5]), a, 1, np.eye(2))


def test_blahut_arimoto_is_the_classical_one():
    rng = np.random.default_rng(2)
    b, cost = rng.dirichlet(np.ones(5)), 3 * rng.random((5, 4))
    a, _ = blahut_arimoto(b, cost, tolerance=1e-9, max_iterations=50_000)
    assert leakage(b, a) + (b[:, None] * a * cost).sum() == pytest.approx(classical_rate(b, cost), abs=1e-6)
    cost[0, :3] = np.inf
    a, _ = blahut_arimoto(b, cost)
    assert a[0].tolist() == [0, 0, 0, 1]


def test_per_symbol_limits_and_lifted_chains():
    chain = vs.builtin("grid2x3-toy")
    d = vs.builtin_problem("grid2x3-toy", vs.Average(weight=1)).distortion
    problem = vs.Problem(chain.lift(2), d, vs.Instantaneous([0, 1, 2, 3, 3, 3]))
    assert problem.distortion.shape == (36, 6)
    assert problem.allowed[problem.chain.symbols == 0].sum(1).tolist() == [1] * 6
    assert np.isinf(problem.cost(2.0)[~problem.allowed]).all()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda c: vs.Average(weight=-1), "weight"),
        (lambda c: vs.Average(weight=np.nan), "weight"),
        (lambda c: vs.Average(), "either a weight or a limit"),
        (lambda c: vs.Budget(-0.1), "budget"),
        (lambda c: vs.Instantaneous(-1), "limits must be"),
        (lambda c: vs.Problem(c, np.zeros((3, 2)), vs.Average(weight=1)), "3 rows"),
        (lambda c: vs.Problem(c, np.zeros(2), vs.Average(weight=1)), "matrix"),
        (lambda c: vs.Problem(c, [[0, np.nan], [1, 0]], vs.Average(weight=1)), "finite"),
        (lambda c: vs.Problem(c, [[1, 2], [3, 2]], vs.Instantaneous(1.5)), "infeasible limit: state 1"),
        (lambda c: vs.Problem(c, [[0, 1], [1, 0]], vs.Instantaneous([1, 1, 1])), "3 instantaneous limits"),
        (lambda c: vs.Problem(c, [[0, 1], [1, 0]], 0.5), "constraint must be"),
    ],
)
def test_bad_input_is_one_clear_line(make, says):
    with pytest.raises(vs.InputError, match=says):
        make(vs.builtin("binary"))
