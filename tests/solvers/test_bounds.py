"""The certificate: true for every mechanism, tight where the answer is known, better with time."""

import itertools

import numpy as np
import pytest

import veilstream as vs
from oracles import recomputed
from other_bounds import genie, path_penalty
from veilstream.model.builtin import builtin, builtin_problem
from veilstream.model.chain import MarkovChain
from veilstream.model.information import binary_entropy, xlog2
from veilstream.model.problem import Average, Instantaneous, Problem, blahut_arimoto
from veilstream.solvers.bounds import Ending, Witness, certify, certify_curve
from veilstream.solvers.causal_ba import CausalBA


def random_chain(rng, n, kind):
    P = rng.dirichlet(np.full(n, 0.5), n)
    if kind == "sparse":
        P = np.where(rng.random((n, n)) < 0.4, P, 0) + 0.1 * np.roll(np.eye(n), 1, 1)
    if kind == "sticky":
        P = 0.97 * np.eye(n) + 0.03 * P
    if kind == "periodic":
        P[: n // 2, : n // 2] = P[n // 2 :, n // 2 :] = 0
    if kind == "absorbing":
        P = np.triu(P) + 1e-9 * np.eye(n)
    return P / P.sum(1, keepdims=True)


KINDS = ["dense", "sparse", "sticky", "periodic", "absorbing"]


# --- the inequality itself ---------------------------------------------------------------------------------


def objective_by_enumeration(P, C, start, mechanism, n):
    """I(Z^n;Y^n) + sum E C in bits, from all (z^n, y^n); mechanism(z^t, y^{t-1}) is any law of y_t; P: one a step."""
    joint, cost, Z = {}, 0.0, len(start)
    for zs in itertools.product(range(Z), repeat=n):
        p_z = start[zs[0]] * np.prod([P[t % len(P)][i, j] for t, (i, j) in enumerate(itertools.pairwise(zs))])
        for ys in itertools.product(range(C.shape[1]), repeat=n):
            p = p_z * np.prod([mechanism(zs[: t + 1], ys[:t])[ys[t]] for t in range(n)])
            joint[zs, ys] = p
            cost += p * sum(C[z, y] for z, y in zip(zs, ys, strict=True)) if p > 0 else 0
    table = np.array(list(joint.values())).reshape(Z**n, -1)
    independent = table.sum(1, keepdims=True) * table.sum(0)
    return (xlog2(table, table) - xlog2(table, independent)).sum() + cost


@pytest.mark.parametrize("L", [1, 2])
@pytest.mark.parametrize("seed", range(12))
def test_no_mechanism_with_any_memory_beats_any_witness(seed, L):
    """I + cost >= n g - span(alpha) - log2|Z|: random mechanisms with all of the past, witnesses of L steps a round."""
    rng = np.random.default_rng(seed)
    Z, Y, S, n = 2, int(rng.integers(2, 4)), int(rng.integers(1, 4)), 4
    P, C = [random_chain(rng, Z, KINDS[seed % 3]) for _ in range(L)], rng.random((Z, Y)) * 2
    C[0, 0] = np.inf if seed % 2 else C[0, 0]
    weights = rng.dirichlet(np.ones(Z), (L, S, Y)) * np.isfinite(C.T)
    witness = Witness(rng.integers(0, S, (S, Y)), weights, rng.normal(size=(L, S, Z)))
    laws = {}

    def mechanism(zs, ys):
        if (zs, ys) not in laws:
            law = rng.dirichlet(np.full(Y, 0.3)) * np.isfinite(C[zs[-1]]) + 1e-9 * np.isfinite(C[zs[-1]])
            laws[zs, ys] = law / law.sum()
        return laws[zs, ys]

    start = rng.dirichlet(np.ones(Z))
    value = objective_by_enumeration(P, C, start, mechanism, n)
    span = np.ptp(witness.alpha) / np.log(2)
    assert value >= n * witness.bound(P, C) - span - np.log2(Z) - 1e-9


def test_a_certificate_carries_the_witness_that_proves_it():
    problem = builtin_problem("grid2x3-toy", Average(weight=2.0))
    P, C = problem.chain.transition, problem.cost(2.0)
    found = certify(P, C)
    [witness] = found.witnesses
    assert witness.bound([P], C) == recomputed(found.lower_bound)
    assert np.isfinite(witness.weights).all()
    assert (witness.weights > 0).all()


# --- where the answer is known -----------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.3, 1.0, 3.0, 6.0])
@pytest.mark.parametrize("flip", [0.05, 0.2, 0.4])
def test_binary_chain_closed_form(flip, weight):
    """min over D of h(flip * D) - h(D) + weight D."""
    D = np.linspace(0, 0.5, 200_001)
    exact = (binary_entropy(flip + D - 2 * flip * D) - binary_entropy(D) + weight * D).min()
    found = certify(builtin("binary", flip=flip).transition, weight * (1 - np.eye(2)), tolerance=1e-4)
    assert exact - 3e-4 * exact - 1e-6 <= found.lower_bound <= exact + 1e-9


@pytest.mark.parametrize("weight", [0.5, 1.0, 3.0])
def test_memoryless_chain_is_classical_rate_distortion(weight):
    rng = np.random.default_rng(3)
    b, C = rng.dirichlet(np.ones(5)), weight * rng.random((5, 4)) * 2
    a, _ = blahut_arimoto(b, C, tolerance=1e-9, max_iterations=100_000)
    m = b[:, None] * a
    exact = (xlog2(m, a) - xlog2(m, m.sum(0)) + m * C).sum()
    found = certify(np.tile(b, (5, 1)), C, tolerance=1e-5)
    assert exact * (1 - 1e-4) <= found.lower_bound <= exact + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_against_dynamic_programming_over_beliefs(seed):
    """Two states: brute force over a grid of beliefs and channels is within a little of the true optimum."""
    rng = np.random.default_rng(seed)
    P, C = random_chain(rng, 2, "dense"), 2 * rng.random((2, 2))
    x = np.linspace(0, 1, 61)
    q0, q1 = (q.ravel() for q in np.meshgrid(x, x))  # a(0|z)
    V = np.zeros(x.size)
    m = np.stack(
        [x[:, None] * q1, x[:, None] * (1 - q1), (1 - x[:, None]) * q0, (1 - x[:, None]) * (1 - q0)]
    )  # b(1) = x
    a = np.stack([q1, 1 - q1, q0, 1 - q0])[:, None, :]
    p = [m[0] + m[2], m[1] + m[3]]
    run = (xlog2(m, np.broadcast_to(a, m.shape))).sum(0) - sum(xlog2(v, v) for v in p)
    run += m[0] * C[1, 0] + m[1] * C[1, 1] + m[2] * C[0, 0] + m[3] * C[0, 1]
    beliefs = [(m[y] * P[1, 1] + m[2 + y] * P[0, 1]) / np.maximum(p[y], 1e-300) for y in (0, 1)]
    for _ in range(60):
        new = (run + sum(p[y] * np.interp(beliefs[y], x, V) for y in (0, 1))).min(1)
        increment, V = (new - V).mean(), new - new[0]
    found = certify(P, C, tolerance=1e-4)
    assert found.lower_bound <= increment + 1e-3
    assert found.lower_bound >= 0.985 * increment - 1e-3


@pytest.mark.parametrize(("name", "weight"), [(n, w) for n in ("grid4x4-q1", "grid4x4-q2") for w in (1.0, 2.0, 4.0)])
def test_the_papers_grids_within_a_tenth_of_a_percent(name, weight):
    problem = builtin_problem(name, Average(weight=weight))
    [point] = CausalBA(window=1).at(problem, [weight])
    found = certify(problem.chain.transition, problem.cost(weight), upper=point.objective(weight), seconds=60)
    assert found.lower_bound <= point.objective(weight)
    assert found.lower_bound >= 0.999 * point.objective(weight)
    assert found.outcome is Ending.TIGHT


# --- every kind of problem ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(15))
def test_below_every_policy_and_close_to_the_best(seed):
    rng = np.random.default_rng(100 + seed)
    Z, Y = int(rng.integers(3, 9)), int(rng.integers(2, 9))
    chain = MarkovChain(random_chain(rng, Z, KINDS[seed % 5]))
    d = 3 * rng.random((Z, Y))
    limit = Instantaneous(limit=float(np.sort(d, 1)[:, Y // 2].max()))
    problem = Problem(chain, d, limit if seed % 2 else Average(weight=1.0))
    weight = 0.0 if seed % 2 else 1.0
    [point] = CausalBA(max_sweeps=1000).at(problem, [weight])
    upper = point.objective(weight)
    found = certify(chain, problem.cost(weight), upper=upper, seconds=2)
    assert found.lower_bound <= upper + 1e-9
    assert upper - found.lower_bound <= 0.02 * upper + 1e-5


def test_classes_are_bounded_one_by_one():
    """Two closed classes and a transient state: the rate is the average of theirs, by where the start leads."""
    P = np.zeros((5, 5))
    P[:2, :2] = P[2:4, 2:4] = 0.5
    P[4] = [0.7, 0, 0.3, 0, 0]
    C = np.kron([[1], [1], [1]], np.eye(2))[:5] * 3.0
    one = certify(P[:2, :2], C[:2], tolerance=1e-5).lower_bound
    chain = MarkovChain(P, initial=[0, 0, 0, 0, 1])
    found = certify(chain, C, tolerance=1e-5)
    two = certify(P[2:4, 2:4], C[2:4], tolerance=1e-5).lower_bound
    assert found.lower_bound == pytest.approx(0.7 * one + 0.3 * two, rel=1e-6)
    assert len(found.witnesses) == 2


def test_where_nothing_need_leak_the_bound_is_zero_at_once():
    d = 1 - np.eye(4)
    found = certify(np.roll(np.eye(4), 1, 1), np.where(d > 0, np.inf, 0))
    assert found.lower_bound == 0 == found.reachable
    assert found.outcome is Ending.TIGHT


@pytest.mark.slow
def test_large_problems_get_a_bound_without_memory():
    problem = builtin_problem("grid9x9-q2", Average(weight=1.0))
    [point] = CausalBA(window=1, max_sweeps=300).at(problem, [1.0])
    found = certify(problem.chain.transition, problem.cost(1.0), seconds=5)
    assert 0.98 * point.objective(1.0) < found.lower_bound <= point.objective(1.0)


@pytest.mark.slow
def test_a_lifted_chain_needs_memory_and_gets_it():
    rng = np.random.default_rng(0)
    law, x = rng.dirichlet(np.full(3, 0.3), (3, 3)), [0, 1]
    for u in rng.random(5000):
        x.append(int((law[x[-1], x[-2]].cumsum() < u).sum()))
    chain = MarkovChain.fit([x], n_states=3, order=2)
    problem = Problem(chain, np.abs(np.subtract.outer(np.arange(3), np.arange(3))), Average(weight=1.0))
    [point] = CausalBA(window=4).at(problem, [1.0])
    upper = point.objective(1.0)
    found = certify(chain, problem.cost(1.0), upper=upper, seconds=5)
    assert 0.98 * upper <= found.lower_bound <= upper


# --- two independent bounds --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_other_bounds_agree(seed):
    rng = np.random.default_rng(seed)
    P, C = rng.dirichlet(np.ones(3), 3), 2 * rng.random((3, 2))
    pi = MarkovChain(P).stationary
    found = certify(P, C, tolerance=1e-4)
    others = [genie(P, C, pi, k) for k in (1, 2, 3)] + [path_penalty(P, C, history) for history in (2, 4)]
    assert max(others) <= found.reachable + 1e-6
    assert max(others) <= found.lower_bound * (1 + 2e-3)  # it has not been beaten yet
    assert max(others) >= 0.9 * found.lower_bound  # and they see the same optimum


# --- anytime -----------------------------------------------------------------------------------------------


def test_the_bound_only_rises_and_time_is_kept():
    problem = builtin_problem("grid4x4-q2", Average(weight=1.0))
    messages = []
    P, C = problem.chain.transition, problem.cost(1.0)
    found = certify(P, C, seconds=1.0, tolerance=1e-9, progress=lambda f, m: messages.append((f, m)))
    bounds = [h["bound"] for h in found.history]
    assert bounds == sorted(bounds)
    assert bounds[-1] == recomputed(found.lower_bound)
    assert found.seconds < 10
    assert all(0 <= fraction <= 1 for fraction, _ in messages)
    assert found.outcome in (Ending.TIME, Ending.PRECISION)
    short = certify(P, C, seconds=0.0)
    assert 0 < short.lower_bound <= found.lower_bound


# --- solutions and curves ----------------------------------------------------------------------------------


def test_a_certified_solution():
    problem = builtin_problem("grid2x3-toy", Average(weight=2.0))
    solution = vs.solve(problem, certify=True, certify_seconds=10)
    assert 0 <= solution.gap < 2e-3
    assert 0.99 * solution.leakage < solution.leakage_lower <= solution.leakage


def test_a_limit_at_every_step_is_certified():
    solution = vs.solve(builtin_problem("grid2x3-toy", Instantaneous(limit=1)), certify=True, certify_seconds=10)
    assert 0.99 * solution.leakage < solution.leakage_lower <= solution.leakage
    assert solution.leakage_lower == recomputed(solution.lower_bound)  # no weight: the same bound, by another way


def test_a_poor_policy_is_told_how_little_its_distortion_needs():
    """A method that has no weight: the bound on leakage alone comes from the best weight for its distortion."""
    problem = builtin_problem("grid2x3-toy", Average(limit=0.4))
    best = vs.solve(problem)
    poor = vs.solve(problem, method="randomised-response", certify=True, certify_seconds=5)
    assert 0.8 * best.leakage < poor.leakage_lower <= poor.leakage


def test_a_certified_curve_is_a_band():
    problem = builtin_problem("grid2x3-toy", Average(weight=1.0))
    curve = certify_curve(vs.curve(problem, weights=[0.7, 1.0, 1.5, 2.0, 4.0]), seconds=10)
    for s in curve:
        assert s.lower_bound <= s.objective
        assert s.objective - 0.005 <= s.lower_bound
        assert s.leakage_lower <= s.leakage
