"""Bounds over the non-zeros: the dense ones where both exist, below every policy known, found for a large grid."""

import numpy as np
import pytest

import veilstream as vs
from oracles import recomputed
from veilstream.core.local.pattern import Rows, pattern_of
from veilstream.solvers.bounds import Witness, certify
from veilstream.solvers.bounds.local import LocalWitness, Reverse, certify_locally, flattened, local_pattern
from veilstream.solvers.bounds.witness import SparseMatrix


def grid(n, weight=None, limit=1):
    limit = vs.Instantaneous(limit)
    return vs.builtin_problem(
        f"grid{n}x{n}-local", limit if weight is None else vs.Both(vs.Average(weight=weight), limit)
    )


def pattern(problem, window):
    return pattern_of(problem.chain.sparse, Rows.of(problem.allowed), problem.n_outputs, window)


def random_witness(problem, p, seed):
    rng = np.random.default_rng(seed)
    return LocalWitness(p, -3 * rng.random(p.n_triples), rng.normal(size=len(p.entry_state)))


def test_without_memory_it_is_the_dense_bound():
    """Every (z, y) can occur: the same numbers in the dense layout prove the same."""
    problem, weight = grid(4, 0.7, 2), 0.7
    p = pattern(problem, 0)
    local = random_witness(problem, p, 0)
    reverse = Reverse(p, problem.chain.sparse)
    w = np.zeros((1, problem.n_outputs, problem.n_states))
    w[0, reverse.output, reverse.state] = np.exp(local.log_weights)
    dense = Witness(np.zeros((1, problem.n_outputs), np.int64), w, local.alpha[None])
    said = dense.bound(problem.chain.transition, problem.cost(weight))
    assert local.bound(problem.chain.sparse, problem.distortion, weight) == pytest.approx(said, abs=1e-9)


def test_with_memory_it_is_the_dense_bound_where_everything_can_occur():
    """A chain of positive entries without limit: the pattern is all of it."""
    problem, weight = vs.builtin_problem("grid2x3-toy", vs.Average(weight=0.5)), 0.5
    p = pattern(problem, 1)
    local = random_witness(problem, p, 1)
    w = np.exp(local.log_weights).reshape(6, 6, 6).swapaxes(1, 2)  # s, z, y -> s, y, z
    dense = Witness(np.tile(np.arange(6), (6, 1)), w, local.alpha.reshape(6, 6))
    said = dense.bound(problem.chain.transition, problem.cost(weight))
    assert local.bound(problem.chain.sparse, problem.distortion, weight) == pytest.approx(said, abs=1e-9)


@pytest.mark.parametrize("window", [0, 1, 2])
@pytest.mark.parametrize("weight", [None, 0.5])
def test_no_witness_proves_more_than_a_policy_attains(window, weight):
    problem = grid(3, weight)
    best = vs.solve(problem, window=2).objective
    p, chain = pattern(problem, window), problem.chain
    reverse = Reverse(p, chain.sparse)
    for seed in range(3):
        rough = random_witness(problem, p, seed)
        cost = (weight or 0.0) * problem.distortion[reverse.state, reverse.output] * np.log(2)
        rho, _ = reverse.cost(cost, rough.log_weights)
        alpha = flattened(reverse, chain.sparse, chain.stationary, rho, rough.alpha, 5)
        fine = LocalWitness(p, rough.log_weights, alpha)
        before, after = (w.bound(chain.sparse, problem.distortion, weight or 0.0) for w in (rough, fine))
        assert before <= after + 1e-12  # rounding of two sums
        assert after <= best + 1e-9


@pytest.mark.parametrize("weight", [None, 0.5])
@pytest.mark.slow
def test_close_to_the_dense_certificate(weight):
    problem = grid(4, weight)
    best = vs.solve(problem, window=2)
    dense = certify(
        problem.chain.transition,
        problem.cost(best.weight),
        law=problem.chain.stationary,
        upper=best.objective,
        seconds=2,
    )
    local = certify_locally(problem, best.weight, pattern(problem, 0), upper=best.objective, seconds=2)
    assert local.lower_bound <= best.objective
    assert local.lower_bound >= 0.97 * dense.lower_bound
    again = local.witnesses[0].bound(problem.chain.sparse, problem.distortion, best.weight)
    assert local.lower_bound == recomputed(again)
    assert local.history[-1]["bound"] == recomputed(local.lower_bound)


@pytest.mark.slow
def test_a_large_grid_is_certified():
    problem = grid(16, limit=2)
    solution = vs.solve(problem, window=1, certify=True, certify_seconds=5.0)
    assert isinstance(solution.policy, vs.LocalPolicy)
    assert 0 < solution.gap < 0.08
    assert solution.leakage_lower == pytest.approx(solution.lower_bound)
    assert local_pattern(grid(4)) is None  # small: dense
    assert local_pattern(vs.builtin_problem("grid16x16-q1", vs.Average(weight=1.0))) is None


@pytest.mark.slow
def test_products_with_a_sparse_matrix_in_dense_bounds():
    """Large chain, no limit: the dense search, its products over the non-zeros."""
    problem = vs.builtin_problem("grid16x16-local", vs.Average(weight=0.5))
    assert problem.chain.is_sparse
    P, C = problem.chain.transition, problem.cost(0.5)
    sparse = SparseMatrix(problem.chain.sparse)
    x = np.random.default_rng(0).random((2, 3, 256))
    assert x @ sparse == pytest.approx(x @ P)
    assert x @ sparse.T == pytest.approx(x @ P.T)
    found = certify(P, C, seconds=1.0)
    assert found.witnesses[0].bound(P, C) == pytest.approx(found.lower_bound, abs=1e-9)
    assert found.lower_bound <= vs.solve(problem, window=1, reach=3).objective
