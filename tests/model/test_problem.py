import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilstream as vs
from oracles import classical_rate
from veilstream.model.information import mutual_information
from veilstream.model.problem import (
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


def test_constraints_are_plain_numbers_and_say_what_they_are():
    average, budget = vs.Average(weight=np.float32(2)), vs.Budget(bits=1)
    assert (type(average.weight), type(vs.Average(limit=1).limit), type(budget.bits)) == (float, float, float)
    assert (average.weight, budget.bits) == (2.0, 1.0)
    assert str(average) == "weight 2 bits/unit" and str(vs.Average(limit=0.5)) == "average <= 0.5"
    assert str(budget) == "leakage <= 1 bits per step"
    assert str(vs.Both(budget, vs.Instantaneous([1, 2.5]))) == "leakage <= 1 bits per step, at every step <= 1, 2.5"
    both = vs.Both(vs.Average(limit=0.5), vs.Instantaneous([1, 2.5]))
    assert both.told("km") == "average <= 0.5 km, at every step <= 1, 2.5 km"
    assert average.told("km") == "weight 2 bits/km" and budget.told("km") == str(budget)
    assert str(vs.Instantaneous(3)) == "at every step <= 3" and vs.Instantaneous(3).limit == 3.0
    for wrong in (-1, np.inf, np.nan, "2", None):
        with pytest.raises(vs.InputError):
            vs.Budget(bits=wrong)
    for wrong in ({}, {"weight": 1, "limit": 1}, {"weight": -1}, {"limit": np.inf}):
        with pytest.raises(vs.InputError):
            vs.Average(**wrong)
    for limit in (-1, [0, -2], np.nan):
        with pytest.raises(vs.InputError, match="instantaneous"):
            vs.Instantaneous(limit)


def test_blahut_arimoto_of_many_priors_is_that_of_each():
    """Whatever the shape of the batch: a channel must not depend on the rest of it."""
    rng = np.random.default_rng(4)
    cost, r = 3 * rng.random((5, 3)), rng.dirichlet(np.ones(3))
    cost[1, 2] = np.inf
    b = rng.dirichlet(np.ones(5), (2, 4))
    for start in (None, r):
        a, law = blahut_arimoto(b, cost, start)
        assert a.shape == (2, 4, 5, 3) and law.shape == (2, 4, 3)
        for i, j in np.ndindex(2, 4):
            one, its_law = blahut_arimoto(b[i, j], cost, start)
            assert a[i, j] == pytest.approx(one, abs=1e-9) and law[i, j] == pytest.approx(its_law, abs=1e-9)
        assert a.sum(-1) == pytest.approx(1) and (a[:, :, 1, 2] == 0).all() and (a >= 0).all()
    assert blahut_arimoto(b[0, 0], cost, max_iterations=1)[1] != pytest.approx(law[0, 0], abs=1e-6)


def test_a_problem_may_be_narrowed_and_put_under_another_constraint():
    chain = vs.MarkovChain([[0.5, 0.5], [0.25, 0.75]])
    d, worst = np.array([[0, 1.0, 2], [3, 1, 0]]), np.array([[0, 2.0, 2], [5, 1, 1]])
    problem = vs.Problem(chain, d, vs.Average(weight=2.0), worst)
    assert (problem.n_states, problem.n_outputs) == (2, 3) and problem.allowed.all()
    assert problem.average == vs.Average(weight=2.0)
    releases = np.array([[True, False, True], [False, True, False]])
    narrow = problem.only(releases)
    assert (narrow.allowed == releases).all() and narrow.average == problem.average
    assert problem.only(releases, average=False).average is None
    assert (problem.only(releases, average=False).allowed == releases).all()
    limited = problem.under(vs.Both(vs.Budget(bits=0.5), vs.Instantaneous(1.0)))
    assert limited.average == vs.Budget(bits=0.5) and (limited.worst == worst).all()
    assert limited.allowed.tolist() == [[True, False, False], [False, True, True]]  # by the worst distances
    assert problem.under(vs.Instantaneous(1.0)).average is None
    by_symbol = problem.under(vs.Instantaneous([2.0, 5.0]))
    assert by_symbol.allowed.all() and problem.under(vs.Instantaneous([0.0, 1.0])).allowed.sum() == 3
    third = vs.Problem(chain, d / 3 * 0.3, vs.Instantaneous(0.1))  # 0.1 by another way of reckoning
    assert third.allowed.tolist() == [[True, True, False], [False, True, True]]
    assert problem.cost([1.0, 2.0]).shape == (2, 2, 3) and problem.cost(3.0) == pytest.approx(3 * d)
    assert np.isinf(limited.cost(1.0)[0, 1]) and limited.cost(2.0)[1, 1] == 2.0


@pytest.mark.parametrize(
    ("d", "constraint", "worst"),
    [
        (np.zeros((2, 0)), vs.Average(weight=1), None),
        (np.zeros(2), vs.Average(weight=1), None),
        (np.zeros((3, 2)), vs.Average(weight=1), None),
        ([[0, -1.0], [0, 0]], vs.Average(weight=1), None),
        ([[0, np.nan], [0, 0]], vs.Average(weight=1), None),
        ([[np.inf, np.inf], [0, 0]], vs.Average(weight=1), None),
        (np.ones((2, 2)), vs.Instantaneous(0.5), None),
        (np.ones((2, 2)), vs.Instantaneous([1.0, 1.0, 1.0]), None),
        (np.ones((2, 2)), vs.Average(weight=1), np.ones((2, 3))),
        (np.ones((2, 2)), "less", None),
    ],
)
def test_what_is_no_problem_is_refused(d, constraint, worst):
    with pytest.raises(vs.InputError):
        vs.Problem(vs.MarkovChain([[0.5, 0.5], [0.25, 0.75]]), d, constraint, worst)
    assert vs.Problem(vs.MarkovChain([[0.5, 0.5], [0.25, 0.75]]), [[0.0], [1.0]], vs.Average(weight=1)).n_outputs == 1


def test_blahut_arimoto_left_to_itself_gets_within_its_tolerance():
    b, cost = np.array([0.9, 0.1]), 2.0 * (1 - np.eye(2))
    r = blahut_arimoto(b, cost)[1]
    K = np.exp2(-cost)
    assert r[0] > 0.9 and np.log2(((b / (K @ r)) @ K).max()) < 1e-6  # Blahut's bound, and not where it began


@pytest.mark.parametrize(("said", "infinite"), [(True, False), (False, True), (True, True)])
def test_what_must_never_be_shown_is_what_is_said_and_what_costs_infinitely_much(said, infinite):
    chain, never = vs.MarkovChain([[0.8, 0.2], [0.3, 0.7]]), np.array([[False, False], [said, False]])
    d = np.array([[0.0, np.inf if infinite else 1.0], [1.0, 0.0]])
    problem = vs.Problem(chain, d, vs.Average(weight=1.0), forbidden=never if said else None)
    np.testing.assert_array_equal(problem.forbidden, never | (d == np.inf))
