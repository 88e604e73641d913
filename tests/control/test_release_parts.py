"""Many streams are released some at a time, so that what they need stays at hand: nobody can tell."""

import numpy as np
import pytest

import veilstream as vs
from benchmarks.echo import example
from veilstream.control import release
from veilstream.control.controller import Controller
from veilstream.control.release import release_many
from veilstream.model.problem import leakage, next_prior


@pytest.mark.parametrize("meter", ["exact", "capacity"])
@pytest.mark.parametrize("ceiling", [None, 2.0])
def test_streams_in_parts_release_what_they_release_together(monkeypatch, meter, ceiling):
    problem, policy = example()
    x = problem.chain.sample(37, 50)
    whole = release_many(policy, x, problem, seed=3, meter=meter, ceiling=ceiling)
    monkeypatch.setattr(release, "AT_HAND", 7 * problem.n_states)
    parts = release_many(policy, x, problem, seed=3, meter=meter, ceiling=ceiling)
    assert (parts.y == whole.y).all()
    np.testing.assert_allclose(parts.leaked_bits, whole.leaked_bits, rtol=1e-12)
    assert ceiling is None or (parts.leaked_bits <= ceiling + 1e-12).all()


def test_a_ladder_in_parts_moves_as_it_moves_together(monkeypatch):
    found = vs.solve("builtin:binary", avg=0.1, feedback=10)
    x = found.problem.chain.sample(60, 20)
    whole = release_many(found.policy, x, found.problem, seed=1)
    monkeypatch.setattr(release, "AT_HAND", 3 * found.problem.n_states)
    parts = release_many(found.policy, x, found.problem, seed=1)
    assert (parts.y == whole.y).all()
    np.testing.assert_allclose(parts.leaked_bits, whole.leaked_bits, rtol=1e-12)


@pytest.mark.parametrize("name", ["grid2x3-toy", "grid4x4-q2"])
@pytest.mark.parametrize("streams", [5, 400])
def test_the_meter_of_many_streams_is_the_plain_sum_for_each(name, streams):
    """sum_t L(b_t, a_t) by the formulas of `problem`, one stream and one step at a time."""
    problem = vs.builtin_problem(name, vs.Average(weight=1.0))
    policy = vs.solve(problem, window=1).policy
    x = problem.chain.sample(12, streams, seed=4)
    told = release_many(policy, x, problem, seed=5)
    for y, bits in zip(told.y[:40], told.leaked_bits[:40], strict=True):
        b, memory, total = problem.chain.initial, policy.start(), 0.0
        for shown in y:
            a = policy.channel(memory)
            total += float(leakage(b, a))
            b, memory = next_prior(b, a, shown, problem.chain.transition), policy.update(memory, shown)
        assert bits == pytest.approx(total, abs=1e-10)


@pytest.mark.parametrize("n_outputs", [2, 16, 300])
def test_a_draw_is_the_symbol_at_which_the_cumulative_law_passes_the_uniform(n_outputs):
    rng = np.random.default_rng(6)
    policy = Controller.of_table(rng.dirichlet(np.ones(n_outputs), 3))
    chain = vs.MarkovChain(rng.dirichlet(np.ones(3), 3))
    problem = vs.Problem(chain, rng.random((3, n_outputs)), vs.Average(weight=1.0))
    z, u = rng.integers(0, 3, 200), rng.random(200)
    u[:3] = 0, np.nextafter(1, 0), 0.5
    law = np.cumsum(policy.channel(policy.start()), -1)
    for sighted in (True, None):
        mechanism = release.Mechanism(policy, problem, sighted=sighted)
        _, y = mechanism.step(mechanism.start(200), z, u)
        assert y.dtype == np.int64
        expected = [min(np.searchsorted(law[k], v, side="right"), n_outputs - 1) for k, v in zip(z, u, strict=True)]
        assert y.tolist() == expected
