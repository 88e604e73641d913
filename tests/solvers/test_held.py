"""Held: no sweeps, a limit is kept, and causal Blahut-Arimoto, which starts there, is at least as good."""

import numpy as np
import pytest

from veilstream.control.replay import Course
from veilstream.control.stationary import rates
from veilstream.data.cold_start import Kernel, grid_around
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.builtin import builtin_problem
from veilstream.model.problem import Average, Both, Budget, Instantaneous
from veilstream.solvers import solve


@pytest.fixture(scope="module")
def town():
    ground = grid_around((48.137, 11.575), 2000, 1000)
    return Utility.of(Kernel(0.9, 1.5, 1e-3).chain(ground.states, ground.area), ground.states)


@pytest.mark.parametrize("limit", [0.3, 0.6, 1.0])
def test_a_limit_is_kept_and_nearly_used_and_the_best_is_better(town, limit):
    problem = town.problem(Average(limit=limit))
    quick, best = solve(problem, "held"), solve(problem, window=1)
    assert 0.97 * limit <= quick.distortion <= limit * (1 + 1e-9)
    assert best.leakage <= quick.leakage * (1 + 1e-3)
    found = rates(problem, quick.policy)
    assert (quick.leakage, quick.distortion) == pytest.approx((found.leakage, found.distortion), rel=1e-6)


def test_a_limit_at_every_step_is_kept_too(town):
    limit = float(town.distortion.min(1).max()) + 0.8
    problem = town.problem(Both(Average(limit=0.8), Instantaneous(limit)))
    a = solve(problem, "held").policy.channel(np.arange(problem.n_outputs))
    assert not a[:, ~problem.allowed].any()


def test_what_reveals_nothing_is_taken_where_it_is_near_enough(town):
    assert solve(town.problem(Average(limit=100.0)), "held").leakage == pytest.approx(0, abs=1e-6)


def test_weights_and_lines(town):
    light, heavy = (solve(town.problem(Average(weight=w)), "held") for w in (0.2, 5.0))
    assert heavy.distortion < light.distortion and heavy.leakage > light.leakage
    assert any("nothing was optimised" in line for line in light.warnings)
    with pytest.raises(InputError, match="infeasible limit"):
        solve(town.problem(Average(limit=0.0)), "held")
    with pytest.raises(InputError, match="one release"):
        solve(town.problem(Average(limit=1.0)), "held", window=2)


@pytest.mark.parametrize("times", [0.5, 3.0])
def test_a_limit_that_is_kept_in_the_long_run_only_is_said(town, times):
    """On a record where every release is felt so many times as far as the chain says."""
    problem = town.problem(Average(limit=0.6))
    z = problem.chain.sample(300, seed=1)[0]
    course = Course([z], [np.zeros(len(z), int)], [times * problem.distortion[z]])
    found = solve(problem, "held", course=course)
    assert found.record.felt == pytest.approx(times * found.distortion, rel=0.3)
    assert any("in the long run only" in line for line in found.warnings) == (times > 1)


def test_a_budget_goes_by_the_common_search():
    problem = builtin_problem("grid2x3-toy", Budget(0.3))
    assert solve(problem, "held").leakage <= 0.3 + 1e-6
