"""Sparse sweeps against dense ones, local policies against brute force, memory against what is really used."""

import json
import tracemalloc

import numpy as np
import pytest
from typer.testing import CliRunner

import veilstream as vs
from oracles import random_chain
from veilstream.apps.bench.large import exponent, measure, measure_fitted
from veilstream.apps.bench.limits import fitted
from veilstream.apps.cli import app
from veilstream.core.chain import stationary_law
from veilstream.core.local.pattern import Products, Rows, pattern_of
from veilstream.core.local.policy import FLOOR
from veilstream.solvers import sparse_sweep
from veilstream.solvers import sweep as dense_sweep
from veilstream.solvers.causal_ba import CausalBA
from veilstream.solvers.size import estimate_bytes, free_bytes, layout_of
from veilstream.solvers.sparse_sweep import SparseSweep
from veilstream.solvers.sweep import Sweep, Tables


def grid(n, constraint, name="local"):
    return vs.builtin_problem(f"grid{n}x{n}-{name}", constraint)


def both(weight, limit):
    return vs.Both(vs.Average(weight=weight), vs.Instantaneous(limit))


def pattern(problem, window):
    return pattern_of(problem.chain.sparse, Rows.of(problem.allowed), problem.n_outputs, window)


def awkward(seed, kind):
    """Small chains that are periodic, reducible, or have states that nothing leads to."""
    rng = np.random.default_rng(seed)
    if kind == "periodic":
        P = np.kron([[0, 1], [1, 0]], random_chain(rng, 3))
    elif kind == "reducible":
        P = np.kron(np.eye(2), random_chain(rng, 3))
    else:
        P = np.zeros((6, 6))
        P[:, :5] = rng.dirichlet(np.ones(5), 6)
    d = np.abs(np.arange(6)[:, None] - np.arange(5))
    return vs.Problem(vs.MarkovChain(P), d, both(0.4, 2))


# --- what can occur ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0, 1, 2, 3])
def test_the_pattern_is_what_can_occur(window):
    """By walking: every (last releases, state) that some path of states and allowed releases leads to."""
    problem = awkward(0, "transient")
    P, allowed, Y = problem.chain.transition, problem.allowed, problem.n_outputs
    found = {((), z) for z in range(len(P))}
    for _ in range(window):
        found = {((*s, y), x) for s, z in found for y in np.flatnonzero(allowed[z]) for x in np.flatnonzero(P[z])}
    code = {(sum(int(y) * Y**k for k, y in enumerate(reversed(s))), int(z)) for s, z in found}
    p = pattern(problem, window)
    assert set(zip(p.windows[p.entry_window].tolist(), p.entry_state.tolist(), strict=True)) == code
    assert p.n_triples == sum(int(allowed[z].sum()) for _, z in code)
    assert p.follow.sum(1) == pytest.approx(1)


def test_products_are_sums_over_triples():
    p = pattern(grid(4, vs.Instantaneous(1)), 2)
    rng = np.random.default_rng(0)
    r, K, share = (rng.random(n) for n in (len(p.output), len(p.kernel_row), len(p.entry_state)))
    entry = np.repeat(np.arange(len(share)), np.diff(p.triple_start))
    products = Products(p)
    assert products.normaliser(r, K) == pytest.approx(np.bincount(entry, r[p.triple_output] * K[p.triple_kernel]))
    by_output = np.bincount(p.triple_output, share[entry] * K[p.triple_kernel])
    assert products.outputs(share) == pytest.approx(by_output)
    by_kernel = np.bincount(p.triple_kernel, share[entry] * r[p.triple_output])
    assert products.arrived(r, K, share) == pytest.approx(K * by_kernel)


# --- the same numbers as dense -------------------------------------------------------------------------------


def dense_tables(p, t):
    """The same tables laid out S x (Y or Z), what cannot occur at the floor or at zero."""
    S = p.n_outputs**p.window
    r = np.full((1, S, p.n_outputs), FLOOR)
    alpha, mu = np.zeros((2, 1, S, p.n_states))
    r[0, p.windows[p.output_window], p.output] = t.r[0]
    alpha[0, p.windows[p.entry_window], p.entry_state] = t.alpha[0]
    mu[0, p.windows[p.entry_window], p.entry_state] = t.mu[0]
    return r, alpha, mu


@pytest.mark.parametrize("window", [0, 1, 2])
@pytest.mark.parametrize(
    "problem",
    [grid(4, both(0.3, 2)), awkward(1, "periodic"), awkward(2, "reducible"), awkward(3, "transient")],
    ids=["grid", "periodic", "reducible", "transient"],
)
def test_one_sweep_is_the_dense_sweep(problem, window, monkeypatch):
    for module in (dense_sweep, sparse_sweep):  # dense rows give the floor to what never occurs
        monkeypatch.setattr(module, "FLOOR", 1e-18)
    p, one = pattern(problem, window), np.arange(1)
    sparse = SparseSweep(problem, np.array([0.3]), p)
    dense = Sweep(problem, problem.cost(np.array([0.3])), window)
    rng = np.random.default_rng(0)
    r = rng.random((1, len(p.output)))
    t = sparse.start(r / sparse.total(r))
    t.alpha = rng.normal(size=t.alpha.shape)
    t = sparse(t, one)[0]  # now r, alpha and mu belong together
    layout = [dense.by_oldest(x) for x in dense_tables(p, t)]
    after, value, slack = sparse(t, one, 1.7)
    other, dense_value, dense_slack = dense(Tables(*layout), one, 1.7)
    close = 1e-12
    assert value == pytest.approx(dense_value, abs=close) and slack == pytest.approx(dense_slack, abs=close)
    r, alpha, mu = (dense.by_window(x)[0] for x in (other.r, other.alpha, other.mu))
    at = p.windows[p.entry_window], p.entry_state
    assert after.alpha[0] == pytest.approx(alpha[at], abs=close)
    assert after.mu[0] == pytest.approx(mu[at], abs=close)
    assert mu.sum() == pytest.approx(mu[at].sum(), abs=close)  # nothing leaves the pattern
    seen = sparse.seen(t.mu)[0] > 1e-12
    on_pattern = r[p.windows[p.output_window], p.output]
    on_pattern /= p.by_output(on_pattern)[p.output_window]
    assert after.r[0][seen] == pytest.approx(on_pattern[seen], abs=close)
    ahead, dense_ahead = sparse(t, one, 1.7, rounds=2)[1], dense(Tables(*layout), one, 1.7, rounds=2)[1]
    assert ahead == pytest.approx(dense_ahead, rel=1e-4)


@pytest.mark.parametrize(
    ("problem", "window"),
    [(grid(4, vs.Instantaneous(1)), 1), (grid(4, vs.Instantaneous(1)), 2), (grid(6, both(0.3, 2)), 1)],
    ids=["4x4", "4x4 window 2", "6x6"],
)
def test_solved_as_well_as_densely(problem, window):
    dense = vs.solve(problem, window=window, sparse=False)
    sparse = vs.solve(problem, window=window, sparse=True)
    assert isinstance(sparse.policy, vs.LocalPolicy)
    assert sparse.objective == pytest.approx(dense.objective, rel=3e-5)
    assert sparse.window == dense.window == window
    assert sparse.startup_bits is not None


@pytest.mark.slow
def test_the_window_is_raised_by_itself():
    problem = grid(4, vs.Instantaneous(1))
    narrow = vs.solve(problem, window=1, sparse=True)
    raised = vs.solve(problem, sparse=True)
    assert raised.window >= 2
    assert raised.leakage < 0.999 * narrow.leakage
    assert raised.leakage == pytest.approx(vs.solve(problem, sparse=False).leakage, rel=2e-3)


@pytest.mark.slow
def test_single_precision():
    problem = grid(8, both(0.3, 2))
    double = vs.solve(problem, window=1, sparse=True)
    single = vs.solve(problem, window=1, sparse=True, dtype="float32")
    assert single.objective == pytest.approx(double.objective, rel=5e-5)
    assert single.policy.kernel.values.dtype == np.float64
    problem = grid(4, vs.Average(weight=1.0), "q2")
    assert vs.solve(problem, window=2, dtype="float32").objective == pytest.approx(
        vs.solve(problem, window=2).objective, rel=5e-5
    )
    with pytest.raises(vs.InputError, match="float32 or float64"):
        vs.solve(problem, dtype="float16")


def test_reach_restricts_and_says_so():
    problem = grid(4, vs.Average(weight=0.4))
    free = vs.solve(problem, window=1)
    near = vs.solve(problem, window=1, reach=2)
    limited = vs.solve(grid(4, both(0.4, 2)), window=1)
    assert near.objective == pytest.approx(limited.objective, rel=1e-4)
    assert near.objective >= free.objective * (1 - 1e-4)
    assert near.problem is problem
    assert "2 were left out" in near.warnings[-1]
    assert not free.warnings
    a = near.policy.channel(near.policy.start())
    assert not a[problem.distortion > 2].any()
    wide = vs.Problem(problem.chain, problem.distortion[:, :3], problem.constraint)  # some cells have nothing within 1
    assert vs.solve(wide, window=1, reach=1).distortion > 1


# --- size -----------------------------------------------------------------------------------------------------


def test_large_and_sparse_is_solved_sparsely_by_itself():
    assert layout_of(grid(32, vs.Instantaneous(2)), 1, 3).pattern is not None
    assert layout_of(grid(4, vs.Instantaneous(2)), 1, 3).pattern is None
    assert layout_of(grid(16, vs.Average(weight=1.0)), 1, 3).pattern is None


def test_nonzeros_follow_the_states():
    small, large = (layout_of(grid(n, vs.Instantaneous(2)), 1, 1, sparse=True).pattern for n in (16, 32))
    assert large.nonzeros < 5 * small.nonzeros
    assert large.nonzeros < 1e-3 * 1024**3


@pytest.mark.parametrize(
    ("problem", "window", "options"),
    [
        (grid(8, vs.Average(weight=0.5), "q1"), 1, {}),
        (grid(4, vs.Average(weight=0.5), "q1"), 2, {"dtype": "float32"}),
        (grid(16, both(0.5, 2)), 1, {"sparse": True}),
        (grid(7, both(0.5, 2)), 2, {"sparse": True, "dtype": "float32"}),
    ],
    ids=["dense", "dense single", "sparse", "sparse single"],
)
@pytest.mark.slow
def test_the_estimate_bounds_what_is_used(problem, window, options):
    few = problem.n_states * problem.n_outputs**window > 20_000
    said = layout_of(problem, window, 3 if few else 7, options.get("dtype", "float64"), options.get("sparse")).bytes
    solver = CausalBA(window=window, max_sweeps=110, **options)
    solver.points(problem, np.array([0.5]))  # imports and what the problem keeps
    tracemalloc.start()
    try:
        solver.points(problem, np.array([0.5]))
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert used <= said <= 3 * used


def test_what_does_not_fit_is_refused_before_it_starts():
    problem = grid(8, vs.Average(weight=1.0), "q1")
    assert 4 * 2**30 < estimate_bytes(problem, 3, 3) < 60 * 2**30
    with pytest.raises(vs.InputError, match=r"window 3 over 64 states .* 4 GB may be used; take a smaller window"):
        vs.solve(problem, window=3, memory_gb=4)
    with pytest.raises(vs.InputError, match="more memories than can be numbered"):
        vs.solve(grid(4, vs.Instantaneous(1)), window=20, sparse=True)
    with pytest.raises(vs.InputError, match="memory_gb must be positive"):
        vs.solve(problem, memory_gb=0)
    assert free_bytes() > 0
    local = grid(8, both(0.5, 2))  # dense would not fit, sparse does
    assert layout_of(local, 2, 3, free=0.2 * 2**30).pattern is not None


@pytest.mark.slow
def test_the_command_line(tmp_path):
    run = CliRunner().invoke(app, ["solve", "builtin:grid8x8-q1", "--lambda", "1", "--window", "3", "--memory", "4"])
    assert run.exit_code == 2 or isinstance(run.exception, vs.InputError)
    out = tmp_path / "p.veil"
    line = ["solve", "builtin:grid8x8-local", "--lambda", "0.3", "--reach", "2", "--float32", "--json", "-o", str(out)]
    run = CliRunner().invoke(app, [*line, "--option", "sparse=true", "--window", "1"])
    assert run.exit_code == 0, run.output
    said = json.loads(run.stdout)
    assert said["window"] == 1
    assert "left out" in said["warnings"][0]
    assert isinstance(vs.load(out).policy, vs.LocalPolicy)


def test_the_benchmark_counts_what_it_says():
    assert exponent([10, 100, 1000], [2, 20, 200]) == pytest.approx(1)
    assert exponent([10, 100, 1000], [1, 10**1.5, 10**3]) == pytest.approx(1.5)
    found = measure(6)
    assert found["converged"]
    assert found["nonzeros"] == layout_of(grid(6, vs.Instantaneous(2)), 1, 1, sparse=True).pattern.nonzeros


# --- chains ---------------------------------------------------------------------------------------------------


def test_local_grids():
    chain = vs.builtin("grid17x18-local")
    assert len(chain) == 306
    assert chain.is_sparse
    assert len(chain.closed_classes) == 1
    assert chain.period == 1
    moves = vs.builtin_problem("grid17x18-local", vs.Average(weight=1.0)).distortion[chain.transition > 0]
    assert set(moves) == {0, 1}
    assert chain.stationary == pytest.approx(stationary_law(chain.transition), abs=1e-14)
    assert chain.stationary.max() > 3 * chain.stationary.min()


@pytest.mark.slow
def test_weights_are_run_in_turn_where_they_do_not_fit_at_once():
    problem, weights = grid(8, vs.Average(weight=1.0), "q1"), np.array([0.5, 1.0, 2.0])
    one = layout_of(problem, 1, 7).bytes / 2**30
    apart = vs.curve(problem, weights, window=1, memory_gb=1.5 * one)
    together = vs.curve(problem, weights, window=1)
    assert [s.objective for s in apart] == pytest.approx([s.objective for s in together], rel=1e-5)
    with pytest.raises(vs.InputError, match="GB may be used"):
        vs.curve(problem, weights, window=1, memory_gb=0.5 * one)


def test_rows_and_columns_of_a_local_policy_are_those_of_its_channels():
    policy = vs.solve("builtin:grid5x5-local", weight=1.0, reach=1.5, window=2, sparse=True).policy
    rng = np.random.default_rng(0)
    s = np.array([-1, 0, 7, 7, 30, 30, 31])
    z, y, channel = rng.integers(0, 25, len(s)), rng.integers(0, 25, len(s)), policy.channel(s)
    np.testing.assert_allclose(policy.rows(s, z), channel[np.arange(len(s)), z])
    np.testing.assert_allclose(policy.columns(s, y), channel[np.arange(len(s)), :, y])


def test_what_the_bench_says_of_a_chain_without_zeros():
    found = measure_fitted(16)
    assert found["states"] == 16 and 0 < found["gap_without_memory"] < 0.1
    assert found["objective"] == pytest.approx(vs.solve(fitted(16)).objective, rel=1e-6)
