"""Local policies against brute force: what sparse sweeps give."""

import sys

import numpy as np
import pytest

import veilstream as vs
from veilstream.core import release
from veilstream.core.local import policy as local_policy
from veilstream.core.local.policy import START
from veilstream.core.problem import leakage as leakage_of
from veilstream.core.steady import long_run, rates, startup_bits


def grid(n, constraint, name="local"):
    return vs.builtin_problem(f"grid{n}x{n}-{name}", constraint)


# --- local policies -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[1, 2])
def solved(request):
    return vs.solve(grid(3, vs.Instantaneous(1)), window=request.param, sparse=True)


def law_by_protocol(problem, policy, steps):
    """P(memory, z) after each step from the start, by the protocol alone: {memory: law over z}, and its leakage."""
    now = {int(policy.start()): problem.chain.initial}
    for _ in range(steps):
        leak, dist, new = 0.0, 0.0, {}
        for memory, b in now.items():
            a = policy.channel(np.asarray(memory))
            leak += b.sum() * leakage_of(b / b.sum(), a)
            dist += b @ (a * problem.distortion).sum(1)
            for y in np.flatnonzero(b @ a):
                after = int(policy.update(np.asarray(memory), y))
                new[after] = new.get(after, 0) + (b * a[:, y]) @ problem.chain.transition
        yield leak, dist
        now = new


@pytest.mark.slow
def test_rates_and_startup_by_brute_force(solved):
    problem, policy = solved.problem, solved.policy
    steps = list(law_by_protocol(problem, policy, 60))
    leak, dist = steps[-1]
    assert solved.leakage == pytest.approx(leak, abs=1e-9)
    assert solved.distortion == pytest.approx(dist, abs=1e-9)
    assert solved.startup_bits == pytest.approx(sum(at - leak for at, _ in steps), abs=2e-3)


def test_what_cannot_occur_still_has_a_law_within_the_limit(solved):
    problem, policy = solved.problem, solved.policy
    memories = np.arange(-1, problem.n_outputs**policy.window)
    a = policy.channel(memories)
    assert a.sum(-1) == pytest.approx(1)
    assert ((a > 0) == problem.allowed).all()  # every release a state may show, whatever was released before


def test_a_window_policy_with_the_same_tables(solved):
    """The floor for what is not kept: the same channel as a full table, and the same steady state."""
    problem, policy = solved.problem, solved.policy
    full = vs.WindowPolicy.of_table(policy.channel(np.arange(problem.n_outputs**policy.window)), policy.window)
    a, b = rates(problem, full), rates(problem, policy)
    assert (a.leakage, a.distortion) == pytest.approx((b.leakage, b.distortion), abs=1e-9)


def test_startup_is_not_claimed_where_it_is_not_known():
    """A chain that never stays: after one release the window (y, y) may not hold."""
    P = np.zeros((4, 4))
    P[np.arange(4), (np.arange(4) + 1) % 4] = 1
    problem = vs.Problem(vs.MarkovChain(P), 1 - np.eye(4), vs.Instantaneous(0))
    solution = vs.solve(problem, window=2, sparse=True)
    assert solution.startup_bits is None
    assert solution.leakage == pytest.approx(0, abs=1e-6)  # a clockwork tells nothing new
    policy = vs.solve(problem, window=1, sparse=True).policy
    assert startup_bits(problem, policy, 0.0) == pytest.approx(2, abs=1e-3)  # where it is, once


@pytest.mark.slow
def test_saved_loaded_and_released(solved, tmp_path):
    path = tmp_path / "local.veil"
    vs.save(path, solved.policy, problem=solved.problem)
    loaded = vs.load(path)
    assert loaded.study_only  # zeros in the chain: no gateway runs it unless forced to
    again = loaded.policy
    for memory in (START, 0, 4):
        assert again.channel(np.asarray(memory)) == pytest.approx(solved.policy.channel(np.asarray(memory)))
    assert again.chain.transition == pytest.approx(solved.problem.chain.transition)
    x = solved.problem.chain.sample(400, 64, seed=1)
    out = vs.release_many(again, x, seed=2)
    shown = solved.problem.distortion[x, out.y]
    assert shown.max() <= 1
    assert shown.mean() == pytest.approx(solved.distortion, abs=0.02)
    assert out.leaked_bits.mean() / 400 < solved.leakage + (solved.startup_bits + 0.2) / 400
    jump = vs.Releaser(again, seed=0)  # readings that the chain calls impossible
    assert all(jump.release(int(x)) is not None for x in (0, 8, 0, 8, 4))


@pytest.mark.parametrize("ceiling", [None, 30.0])
def test_streams_in_turn_are_streams_at_once(solved, monkeypatch, ceiling):
    """Channels of many states and streams do not fit at once."""
    x = solved.problem.chain.sample(20, 7, seed=3)
    together = vs.release_many(solved.policy, x, solved.problem, ceiling=ceiling, seed=4)
    monkeypatch.setattr(release, "MOST_CELLS", 2 * 81 + 5)
    apart = vs.release_many(solved.policy, x, solved.problem, ceiling=ceiling, seed=4)
    assert (together.y == apart.y).all()
    monkeypatch.setattr(sys.modules["veilstream.core.evaluate"], "MOST_CELLS", 30 * 81 + 5)
    seen = vs.evaluate(solved.problem, solved.policy, steps=60, streams=100, seed=0)  # 30, 30, 30 and 10 streams
    assert seen.leakage <= solved.leakage + 4 * seen.leakage_se
    assert seen.distortion == pytest.approx(solved.distortion, abs=5 * seen.distortion_se)
    assert together.leaked_bits == pytest.approx(apart.leaked_bits)


def test_bad_tables_are_refused(solved):
    meta, arrays = solved.policy.export()

    def refused(change, match):
        bad = {k: v.copy() for k, v in arrays.items()}
        change(bad)
        with pytest.raises(vs.InputError, match=match):
            vs.LocalPolicy.restore(meta, bad, solved.problem.chain)

    refused(lambda b: b["kernel_values"].__setitem__(0, -1), "kernel is not a table")
    refused(lambda b: b["kernel_columns"].__setitem__(0, 99), "kernel is not a table")
    refused(lambda b: b["kernel_start"].__setitem__(1, 10**6), "kernel is not a table")
    refused(lambda b: b["output_model_values"].__setitem__(3, np.inf), "output model is not a table")
    refused(lambda b: b["output_model_values"].__setitem__(3, 0), "impossible")
    refused(lambda b: b.update(kernel_keys=b["kernel_keys"] + 1), "each of its 9 states")
    refused(lambda b: b["output_model_keys"].__setitem__(-1, 10**6), "memory longer than its window")
    refused(lambda b: b["kernel_keys"].__setitem__(-1, 10**6), "its states do not have|each of its 9 states")
    if meta["window"] > 1:  # a release beyond the limit, hidden in a row that few histories reach
        last = slice(arrays["kernel_start"][-2], arrays["kernel_start"][-1])
        far = np.setdiff1d(np.arange(9), arrays["kernel_columns"][last])[: last.stop - last.start]
        refused(lambda b: b["kernel_columns"].__setitem__(last, far), "row or a release")
    with pytest.raises(vs.InputError, match="each of its 1000000000000 releases"):
        vs.LocalPolicy.restore(meta | {"n_outputs": 10**12}, arrays, solved.problem.chain)


def smoothed(problem, mass=1e-4):
    """The same problem on a chain that makes everything possible, as one that is deployed must."""
    P = (1 - mass) * problem.chain.transition + mass / problem.n_states
    return vs.Problem(vs.MarkovChain(P), problem.distortion, problem.constraint)


@pytest.mark.slow
def test_rare_transitions_are_left_out_of_the_search_and_not_of_the_result():
    problem = smoothed(grid(6, vs.Instantaneous(2)))
    whole = vs.solve(problem, window=1)
    thin = vs.solve(problem, window=1, drop=1e-5, sparse=True)
    assert isinstance(thin.policy, vs.LocalPolicy)
    assert np.count_nonzero(problem.chain.thinned(1e-5).transition) == np.count_nonzero(
        grid(6, vs.Instantaneous(2)).chain.transition
    )
    assert "0.01% of all steps" in thin.warnings[-1]
    assert whole.leakage * (1 - 1e-4) <= thin.leakage <= 1.01 * whole.leakage
    ev = vs.evaluate(problem, thin.policy, steps=200, streams=100, seed=0)
    assert ev.leakage <= thin.leakage + 4 * ev.leakage_se
    assert thin.distortion == pytest.approx(ev.distortion, abs=4 * ev.distortion_se)


@pytest.mark.slow
@pytest.mark.parametrize("window", [1, 2])
def test_judged_densely_where_everything_is_possible(window, monkeypatch):
    problem = smoothed(grid(3, vs.Instantaneous(1)), 0.01)
    policy = vs.solve(problem, window=window, drop=2e-3, sparse=True).policy
    sparse, startup = long_run(problem, policy)
    monkeypatch.setattr(local_policy, "LARGE", 0)
    dense, dense_startup = long_run(problem, policy)
    assert (dense.leakage, dense.distortion) == pytest.approx((sparse.leakage, sparse.distortion), abs=1e-9)
    steps = list(law_by_protocol(problem, policy, 40))
    assert dense.leakage == pytest.approx(steps[-1][0], abs=1e-6)
    assert dense_startup == pytest.approx(sum(at - dense.leakage for at, _ in steps), abs=3e-3)
    assert startup == pytest.approx(dense_startup, abs=1e-6)
