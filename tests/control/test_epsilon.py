"""Epsilon against its definition, the linear-fractional programme by brute force, and the published example."""

from itertools import product

import numpy as np
import pytest

import veilstream as vs
from veilstream.control.epsilon import Carried, Epsilon, backwards, event_epsilon, step_epsilon, temporal

E = 0.1
SLOW = np.array([[0.8, 0.2], [0.0, 1.0]])  # the moderate correlation of Cao et al.


def test_the_published_example_of_temporal_privacy_leakage():
    """Cao et al., ICDE 2017: ten releases of 0.1 each under three correlations; log(q (e^a - 1) + 1) + 0.1."""

    def behind(P):
        found, carried = [E], Carried(P)
        while len(found) < 10:
            found.append(carried(found[-1]) + E)
        return np.array(found)

    assert behind(SLOW).round(2).tolist() == [0.1, 0.18, 0.25, 0.3, 0.35, 0.39, 0.42, 0.45, 0.48, 0.5]
    both = behind(SLOW) + behind(SLOW)[::-1] - E
    assert both.round(2).tolist() == [0.5, 0.56, 0.6, 0.62, 0.64, 0.64, 0.62, 0.6, 0.56, 0.5]
    assert np.allclose(behind(np.eye(2)), E * np.arange(1, 11))
    assert np.allclose(behind(np.full((2, 2), 0.5)), E)


@pytest.mark.parametrize("seed", range(8))
def test_one_sort_solves_the_linear_fractional_programme(seed):
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(5, 0.5), 5) * (rng.random((5, 5)) > 0.2)
    P /= P.sum(1, keepdims=True)
    epsilon = rng.uniform(0.05, 3)
    corners = np.array(list(product([1.0, np.exp(epsilon)], repeat=5)))  # a ratio of linear forms is largest at one
    values = P @ corners.T
    assert Carried(P)(epsilon) == pytest.approx(float(np.log(values[:, None] / values[None]).max()))


def releases_by_enumeration(chain, a, steps, at):
    """max over y^n and pairs of states at one step of log P(y^n | z_at) / P(y^n | z_at')."""
    n, worst = len(chain), 0.0
    for y in product(range(a.shape[1]), repeat=steps):
        seen = np.zeros(n)
        for path in product(range(n), repeat=steps):
            p = chain.stationary[path[0]] * np.prod(chain.transition[list(path[:-1]), list(path[1:])])
            seen[path[at]] += p * np.prod(a[list(path), list(y)])
        like = seen / chain.stationary
        worst = max(worst, float(np.log(like.max() / like.min())))
    return worst


@pytest.mark.parametrize("seed", range(4))
def test_what_all_releases_tell_of_one_state_is_within_the_temporal_leakage(seed):
    """And it is no loose bound: on two states with one channel it is nearly attained."""
    rng = np.random.default_rng(seed)
    chain = vs.MarkovChain(rng.dirichlet([3, 1], 2) * 0.9 + 0.05)
    q = rng.uniform(0.55, 0.9)
    a = np.array([[q, 1 - q], [1 - q, q]])
    bound = temporal(chain, step_epsilon(vs.Controller.of_table(a)), 5)
    for at in range(5):
        true = releases_by_enumeration(chain, a, 5, at)
        assert 0.9 * bound[at] <= true <= bound[at] + 1e-9


def test_the_epsilon_of_a_policy_is_its_largest_ratio():
    problem = vs.builtin_problem("grid2x3-toy", vs.Average(weight=2.0))
    policy = vs.solve(problem, window=1).policy
    table = policy.table()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(table[:, :, None] / table[:, None])
    found = Epsilon.of(problem.chain, policy)
    assert found.step == pytest.approx(float(np.nanmax(ratio)))
    assert found.window(3) == pytest.approx(3 * found.step)
    assert found.step < found.event


def test_a_release_that_rules_a_state_out_has_no_epsilon():
    truth = Epsilon.of(vs.builtin("binary"), vs.Controller.of_table(np.eye(2)))
    assert truth.step == truth.event == np.inf
    assert truth.to_json() == {"step": None, "event": None}


def test_what_is_never_released_does_not_count():
    never = np.array([[0.6, 0.4, 0.0], [0.3, 0.7, 0.0]])
    assert step_epsilon(vs.Controller.of_table(never)) == pytest.approx(np.log(2))


def test_the_leakage_of_a_stream_without_end_is_the_limit_of_long_ones():
    chain = vs.builtin("binary")
    assert event_epsilon(chain, E) == pytest.approx(temporal(chain, E, 400)[200])
    assert event_epsilon(vs.MarkovChain(np.eye(2)), E) == np.inf  # it never forgets
    assert np.allclose(backwards(chain), chain.transition)  # reversible
