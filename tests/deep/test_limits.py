"""Limits for methods that train at a weight: met, near the exact solver's, trainings that go on from one another."""

import json

import numpy as np
import pytest

import veilstream as vs
from veilcli import veil

jax = pytest.importorskip("jax")

from veilstream.deep import a2c, learner  # noqa: E402
from veilstream.deep import networks as deep  # noqa: E402

pytestmark = pytest.mark.slow
SHORT = {"width": 16, "updates": 200, "segments": 1}


def grid(constraint):
    return vs.builtin_problem("grid2x2-q2", constraint)


@pytest.mark.parametrize("constraint", [vs.Average(limit=0.5), vs.Budget(bits=0.4)], ids=str)
def test_a_limit_is_met_at_little_more_than_the_exact_solver_pays(constraint):
    """At limits that one policy meets; where the curve jumps, as at 0.4, a learner ends on either side of it."""
    exact, learned = vs.solve(grid(constraint)), vs.solve(grid(constraint), "a2c", **SHORT)
    limited, other = ("distortion", "leakage") if isinstance(constraint, vs.Average) else ("leakage", "distortion")
    bound = getattr(constraint, "limit", None) or constraint.bits
    assert 0.9 * bound <= getattr(learned, limited) <= bound
    assert getattr(learned, other) <= 1.15 * getattr(exact, other)
    assert learned.weight > 0 and {row["weight"] for row in learned.history} >= {learned.weight}


def test_where_one_release_keeps_the_limit_nothing_is_trained():
    loose = vs.solve(grid(vs.Average(limit=2.0)), "a2c", **SHORT)
    assert (loose.leakage, loose.weight, loose.history) == (0, 0, [])


def test_a_training_goes_on_from_the_networks_of_the_one_before():
    problem = grid(vs.Average(weight=1.0))
    short = a2c.A2C(width=8, updates=8, streams=8, segments=1, learning_rate=0.0, critic_rate=0.0)
    actor = a2c.start(deep.Model.of(problem, 1.0), short, seed=7).actor
    kept = short.learn(problem, 1.2, None, (actor, jax.numpy.ones((64, 4))))
    same = jax.tree.map(lambda x, y: bool((x == y).all()), kept.networks[0], actor)
    assert all(jax.tree.leaves(same)) and short.shorter().updates == 2


@pytest.mark.parametrize("falls", [True, False])
def test_the_weight_moves_towards_the_limit_and_then_between(falls):
    """On a curve that is known: v = 1/w, or w."""
    v = (lambda w: 1 / w) if falls else (lambda w: w)
    for first in (0.3, 3.0):
        tried = [(first, v(first))]
        for _ in range(8):
            w = learner.next_weight(tried, 1.0, falls)
            tried.append((w, v(w)))
        assert max(value for _, value in tried if value <= 1) > 0.97


def test_what_cannot_be_met_is_one_line(monkeypatch):
    monkeypatch.setattr(learner, "MOST", 1)
    with pytest.raises(vs.InputError, match=r"after 1 trainings the least distortion is .* use causal-ba"):
        vs.solve(grid(vs.Average(limit=0.4)), "a2c", mode="paper", width=8, steps=10, segments=1)


def test_pairs_from_the_command_line():
    line = ["solve", "builtin:grid2x2-q2", "--lambda", "1", "--json"]
    single, pair = (json.loads(veil(*line, *more).stdout) for more in ([], ["--option", "pairs=true", "--window", "1"]))
    assert pair["objective"] == pytest.approx(single["objective"], rel=5e-3)
    options = [f"--option={k}" for k in ("mode=paper", "width=8", "steps=400", "segments=1")]
    learned = json.loads(veil(*line, "--option", "pairs=true", "--method", "a2c", *options).stdout)
    assert learned["method"] == "a2c" and np.isfinite(learned["objective"])
