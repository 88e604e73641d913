"""Policies under local differential privacy: against convex solvers and brute force on small chains."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import linprog, minimize
from scipy.special import xlogy

import veilstream as vs
from oracles import random_chain
from veilstream.control.epsilon import step_epsilon
from veilstream.control.stationary import rates
from veilstream.model.clock import Clock
from veilstream.solvers.band import filled, lowest
from veilstream.solvers.causal_ba import CausalBA
from veilstream.solvers.sweep import floored


def problem_of(rng, states, releases, memory):
    d = rng.random((states, releases)) * 1.5
    d[np.arange(min(states, releases)), np.arange(min(states, releases))] = 0
    P = random_chain(rng, states, sticky=0.6) if memory else np.tile(rng.dirichlet(np.ones(states)), (states, 1))
    return vs.Problem(vs.MarkovChain(P), d, vs.Average(weight=1.0))


def banded(start, size, epsilon, value):
    """The least value of tables S x Z x Y with rows in a band, by sequential quadratic programming."""
    S, Z, Y = size
    rows = S * Z * Y

    def parts(q):
        return q[:rows].reshape(size), q[rows:].reshape(S, 1, Y)

    found = minimize(
        lambda q: value(parts(q)[0]),
        np.append(start.ravel(), start.min(1).ravel()),
        bounds=[(1e-9, 1)] * (rows + S * Y),
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
        constraints=[
            {"type": "eq", "fun": lambda q: (parts(q)[0].sum(-1) - 1).ravel()},
            {"type": "ineq", "fun": lambda q: np.subtract(*parts(q)).ravel()},
            {"type": "ineq", "fun": lambda q: (np.exp(epsilon) * parts(q)[1] - parts(q)[0]).ravel()},
        ],
    )
    return found.fun


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("weight", [1.0, 5.0])
def test_without_memory_in_the_data_it_is_the_solution_of_the_convex_programme(epsilon, weight):
    problem = problem_of(np.random.default_rng(round(10 * weight + epsilon)), 3, 3, memory=False)
    b, C = problem.chain.stationary, weight * problem.distortion

    def value(a):
        return float((b[:, None] * (xlogy(a[0], a[0] / (b @ a[0])) / np.log(2) + a[0] * C)).sum())

    exact = banded(np.full((1, 3, 3), 1 / 3), (1, 3, 3), epsilon, value)
    [found] = CausalBA(epsilon=epsilon).at(problem, np.array([weight]))
    assert exact - 1e-7 <= found.objective(weight) <= exact * (1 + 1e-3)
    assert step_epsilon(found.policy) <= epsilon + 1e-9


@pytest.mark.parametrize("epsilon", [0.5, 1.5])
def test_with_a_memory_of_one_release_brute_force_finds_nothing_better(epsilon):
    """From several starts, over all tables of two states."""
    rng = np.random.default_rng(2)
    problem, weight = problem_of(rng, 2, 2, memory=True), 2.0

    def value(a):
        a = np.maximum(a, 1e-12)
        found = rates(problem, vs.Controller.of_table(a / a.sum(-1, keepdims=True), 1))
        return found.leakage + weight * found.distortion

    starts = [np.full((2, 2, 2), 0.5), *(floored(rng.dirichlet(np.ones(2), (2, 2))) for _ in range(2))]
    exact = min(banded(start, (2, 2, 2), epsilon, value) for start in starts)
    [found] = CausalBA(epsilon=epsilon, window=1, grow=False).at(problem, np.array([weight]))
    assert found.objective(weight) <= exact * (1 + 2e-3)
    assert step_epsilon(found.policy) <= epsilon + 1e-9


def test_at_a_large_weight_it_is_the_linear_programme_of_the_least_error():
    problem, epsilon = problem_of(np.random.default_rng(4), 3, 3, memory=False), 1.0
    b, e = problem.chain.stationary, np.exp(epsilon)
    cost = (b[:, None] * problem.distortion).ravel()
    pairs = [(x, z, y) for y in range(3) for x in range(3) for z in range(3) if x != z]
    ratio = np.zeros((len(pairs), 9))
    for row, (x, z, y) in zip(ratio, pairs, strict=True):
        row[3 * x + y], row[3 * z + y] = 1, -e
    least = linprog(cost, ratio, np.zeros(len(pairs)), np.kron(np.eye(3), np.ones(3)), np.ones(3)).fun
    [found] = CausalBA(epsilon=epsilon).at(problem, np.array([60.0]))
    assert least - 1e-9 <= found.distortion <= least * 1.01


def test_less_epsilon_costs_more_and_none_at_all_says_nothing():
    """From today's policy, with no limit, to one that does not look at the reading."""
    problem = vs.builtin_problem("grid2x3-toy", vs.Average(weight=3.0))
    found = [vs.solve(problem, **({} if e is None else {"epsilon": e})) for e in (None, 30.0, 2.0, 1.0, 0.3, 0.0)]
    assert found[1].objective == pytest.approx(found[0].objective, rel=1e-4)
    assert all(b.objective >= a.objective * (1 - 1e-3) for a, b in pairwise(found))
    assert found[-1].leakage == pytest.approx(0, abs=1e-12)
    assert np.ptp(found[-1].policy.table(), axis=1).max() < 1e-12
    assert found[0].epsilon is None
    for solution, epsilon in zip(found[2:], (2.0, 1.0, 0.3, 0.0), strict=True):
        assert solution.epsilon.step <= epsilon + 1e-9


def test_a_limit_on_the_mean_is_met_within_epsilon_and_the_bound_stands():
    """The bound is that of policies without epsilon: below, and said to be proved."""
    problem = vs.builtin_problem("grid2x3-toy", vs.Average(limit=0.6))
    plain = vs.solve(problem, certify=True, certify_seconds=1)
    found = vs.solve(problem, epsilon=2.0, certify=True, certify_seconds=1)
    assert found.distortion == pytest.approx(0.6, rel=1e-3)
    assert found.epsilon.step <= 2 + 1e-9
    assert plain.leakage_lower <= plain.leakage + 1e-9 <= found.leakage
    assert found.leakage_lower <= found.leakage
    assert found.to_json()["epsilon"]["step"] == pytest.approx(found.epsilon.step)
    with pytest.raises(vs.InputError, match="least distortion found"):
        vs.solve(problem, epsilon=0.2)


def test_a_clock_keeps_epsilon_too():
    phases = [random_chain(np.random.default_rng(s), 3, sticky=0.5) for s in (0, 1)]
    chain = vs.MarkovChain(phases, clock=Clock("steps", 2))
    problem = vs.Problem(chain, 1 - np.eye(3), vs.Average(weight=2.0))
    [found] = CausalBA(epsilon=1.0).at(problem, np.array([2.0]))
    [free] = CausalBA().at(problem, np.array([2.0]))
    assert step_epsilon(found.policy) <= 1 + 1e-9 < step_epsilon(free.policy)
    assert free.objective(2.0) < found.objective(2.0)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"epsilon": -1.0, "weight": 1.0}, "at least 0"),
        ({"epsilon": "one", "weight": 1.0}, "must be a number"),
        ({"epsilon": 1.0, "max": 1.0}, "rules states out"),
        ({"epsilon": 1.0, "avg": 1.0, "feedback": 10}, "feedback"),
    ],
)
def test_what_cannot_have_an_epsilon_is_one_line(asked, line):
    with pytest.raises(vs.InputError, match=line):
        vs.solve("builtin:grid2x3-toy", **asked)


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 3.0])
def test_bands_and_rows_are_the_roots_they_are_meant_to_be(epsilon):
    rng = np.random.default_rng(1)
    w, b = rng.normal(size=(4, 5, 6)) * 3, rng.dirichlet(np.ones(6), 4)[:, None]
    band = lowest(w, b, epsilon)[..., None]
    pull = b * (np.maximum(band - w, 0) - np.exp(epsilon) * np.maximum(w - epsilon - band, 0))
    assert np.abs(pull.sum(-1)).max() < 1e-9
    rows = filled(w, band, epsilon)
    assert np.allclose(rows.sum(1), 1)
    assert np.log(rows.max(-1) / rows.min(-1)).max() <= epsilon + 1e-9
