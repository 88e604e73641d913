"""The programme over the potential: what weights can prove for a pair, and the best potential of a policy's memory."""

import numpy as np
import pytest
from scipy.optimize import minimize

import veilstream as vs
from veilstream.apps.bench.limits import WEIGHT, fitted
from veilstream.core.builtin import builtin_problem
from veilstream.core.information import xlog2
from veilstream.core.problem import Average, Instantaneous
from veilstream.solvers.bounds import Witness, certify, pairs, potential, solutions
from veilstream.solvers.bounds.witness import NATS, improve, reverse_cost


def a_pair(seed, n=5, sticky=0.0):
    rng = np.random.default_rng(seed)
    P = (1 - sticky) * rng.dirichlet(np.full(n, 0.7), n) + sticky * np.eye(n)
    return P, rng.normal(size=n)


def by_search(P, c):
    """min over laws b of b c + H(bP) - H(b), in nats, by a general-purpose search over log b."""

    def value(x):
        b = np.exp(x - x.max())
        b /= b.sum()
        return b @ c + (xlog2(b, b).sum() - xlog2(b @ P, b @ P).sum()) * np.log(2)

    return min(minimize(value, x, method="BFGS", options={"gtol": 1e-9}).fun for x in (np.zeros(len(c)), -c))


@pytest.mark.parametrize("sticky", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_what_weights_can_prove_is_the_least_over_beliefs(seed, sticky):
    P, c = a_pair(seed, sticky=sticky)
    found = pairs.solve(P, c[None], np.zeros((1, 5)), 30)
    assert found.value[0] == pytest.approx(by_search(P, c), abs=1e-7)
    f = pairs.balance(P, c[None], found.theta).f[0]
    assert np.ptp(f) < 1e-6  # equal for every state: nothing is left to gain


@pytest.mark.parametrize("seed", range(4))
def test_gradient_and_bend_are_those_of_finite_differences(seed):
    P, c = a_pair(seed, sticky=0.4)
    at = pairs.solve(P, c[None], np.zeros((1, 5)), 30)
    h, each = 1e-4, np.eye(5)

    def V(c):
        return pairs.solve(P, c[None], at.theta, 30).value[0]

    def b(c):
        return pairs.solve(P, c[None], at.theta, 30).b[0]

    gradient = [(V(c + h * e) - V(c - h * e)) / (2 * h) for e in each]
    bend = [-(b(c + h * e) - b(c - h * e)) / (2 * h) for e in each]
    np.testing.assert_allclose(at.b[0], gradient, atol=1e-6)
    order = np.argsort(at.at[0])
    np.testing.assert_allclose(at.bend[0][np.ix_(order, order)], bend, atol=1e-6)


def test_newton_at_the_likeliest_states_alone_leads_to_the_same(monkeypatch):
    P, c = a_pair(7, n=12, sticky=0.3)
    whole = pairs.solve(P, c[None], np.zeros((1, 12)), 30)
    monkeypatch.setattr(pairs, "MOST_STATES", 6)
    part = pairs.solve(P, c[None], np.zeros((1, 12)), 60)
    assert part.value[0] == pytest.approx(whole.value[0], abs=1e-5)
    assert pairs.balance(P, c[None], part.theta).least[0] <= whole.value[0] + 1e-9


def test_states_that_share_no_successor_are_parts_of_their_own():
    P = np.array([[0.5, 0.5, 0, 0], [0.4, 0.6, 0, 0], [0, 0, 0.3, 0.7], [0.1, 0, 0.2, 0.7]])
    parts = pairs.ReleaseParts.of(P, np.array([[0.0, 1, 2, np.inf], [0.0, np.inf, 1, 1]]))
    assert parts.release.tolist() == [0, 0, 1]
    assert np.isfinite(parts.cost).tolist() == [[1, 1, 0, 0], [0, 0, 1, 0], [1, 0, 1, 1]]


def climbed(problem, weight, steps):
    """The bound after some steps from where a policy has settled, and the last iterate."""
    solution = vs.solve(problem, window=1)
    start = solutions.settled(solution)
    P, C = problem.chain.transition, problem.cost(weight)
    parts = pairs.ReleaseParts.of(P, C.T * NATS)
    x, best = potential.start(P, parts, start.next, start.log_m, start.alpha), -np.inf
    for _ in range(steps):
        x = potential.looked(P, potential.step(P, x))
        w = pairs.weights(parts, x.theta, C.shape[1])
        alpha = improve(P, x.next, reverse_cost(P, C.T * NATS, w), x.alpha, 10)
        best = max(best, Witness(x.next, w, alpha).bound(P, C))
    return solution, best, x


def test_it_proves_what_the_other_interior_point_method_proves():
    """Two implementations, one memory: the last release on a small chain."""
    problem = builtin_problem("grid2x3-toy", Average(weight=2.0))
    solution, best, x = climbed(problem, 2.0, 25)
    found = certify(problem.chain.transition, problem.cost(2.0), upper=solution.objective, tolerance=1e-5, seconds=20)
    assert best <= solution.objective
    assert best == pytest.approx(found.lower_bound, rel=2e-3)
    assert x.m.sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("constraint", [Instantaneous(limit=1), Instantaneous(limit=2)])
def test_forbidden_releases_and_impossible_moves(constraint):
    problem = builtin_problem("grid4x4-q1", constraint)
    solution, best, _ = climbed(problem, 0.0, 12)
    assert 0.97 * solution.objective <= best <= solution.objective


def test_rare_states_may_move_together(monkeypatch):
    """With few numbers that move by themselves the bound is still one, and near."""
    problem = fitted(16, steps=4000)
    monkeypatch.setattr(potential, "SMALL", 10)
    monkeypatch.setattr(potential, "LARGE", 60)
    solution, best, x = climbed(problem, WEIGHT, 6)
    assert int(x.place.max()) + 1 < 16 * 16
    assert 0.98 * solution.objective <= best <= solution.objective


def test_from_a_policy_f_is_its_value_less_what_the_memory_forgets():
    """f_sy(z) = g - sum_z' P(z,z') log (b_sy P)(z') / mu(z'|next), at theta = log m and alpha = beta + log mu."""
    problem = builtin_problem("grid2x3-toy", Average(weight=2.0))
    solution = vs.solve(problem, window=1, tolerance=1e-9)
    start = solutions.settled(solution)
    P, cost = problem.chain.transition, problem.cost(2.0).T * NATS
    m = np.exp(start.log_m)
    b = m / m.sum(2, keepdims=True)
    mu = m.sum((1, 2))
    law = m.sum(1) / mu[:, None]
    f = reverse_cost(P, cost, b) + (start.alpha @ P.T)[start.next] - start.alpha[:, None]
    forgotten = np.log((b @ P) / law[start.next]) @ P.T
    likely = m > 1e-6
    np.testing.assert_allclose((f + forgotten)[likely], solution.objective * NATS, rtol=2e-3)
