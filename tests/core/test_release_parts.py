"""Many streams are released some at a time, so that what they need stays at hand: nobody can tell."""

import numpy as np
import pytest

import veilstream as vs
from veilstream.apps.bench.gateway import example
from veilstream.core import release
from veilstream.core.release import release_many


@pytest.mark.parametrize("meter", ["exact", "table"])
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
