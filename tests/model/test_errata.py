"""docs/errata.md, number by number: what the paper prints, against a case small enough to count."""

from itertools import combinations

import numpy as np
import pytest

import veilstream as vs
from brute import distances, entropy, information, joint, of, random_policy, source, whole, windows
from real_data import GEOLIFE, needs_geolife
from veilstream.model.builtin import TOY, grid_q2
from veilstream.model.distortion import grid_points, manhattan
from veilstream.model.problem import leakage, next_prior, output_law

TWO = np.array([[0.0, 1.0], [1.0, 0.0]])
DISTANCE = manhattan(grid_points(2, 3))


@pytest.fixture(scope="module")
def printed():
    """The 12 printed rows of the toy's actions, by (x_t, x_{t-1})."""
    toy = pytest.importorskip("reproduce.toy")
    return toy.PAPER


def test_1_theorem_2_s_identity_is_false_for_m_1_and_n_2():
    """I(X^2;Y^2) = sum I(X_t,X_{t-1};Y_t|Y^{t-1}), and more than the printed sum I(X_t;Y_t|Y^{t-1})."""
    rng = np.random.default_rng(0)
    law = joint(source(rng, 2, 2, 1), random_policy(rng, 2, 2, 2, 1))
    assert whole(law) == pytest.approx(sum(information(law, xs, t) for t, xs in windows(2, 1)), abs=1e-12)
    as_printed = sum(information(law, xs, t) for t, xs in windows(2, 0))
    assert whole(law) - as_printed == pytest.approx(information(law, [1], 2, given_x=(2,)), abs=1e-12)
    assert (whole(law), as_printed) == pytest.approx((0.1772, 0.0116), abs=5e-5)


def test_1_theorem_2_s_identity_fails_by_a_whole_bit():
    """X_1, X_2 fair coins, Y_1 constant, Y_2 = X_1: one bit is released, the printed sum is zero."""
    shows_the_last = np.broadcast_to(np.eye(2)[:, None, None, :], (2, 2, 2, 2))
    law = joint(np.full((2, 2), 0.25), [np.broadcast_to([1.0, 0.0], (2, 2)), shows_the_last])
    assert whole(law) == pytest.approx(1)
    assert sum(information(law, xs, t) for t, xs in windows(2, 0)) == pytest.approx(0)


def test_2_theorem_2_s_distortion_lacks_1_over_n():
    rng = np.random.default_rng(1)
    law = joint(source(rng, 2, 3, 1), random_policy(rng, 2, 2, 3, 1))
    every = np.array([(x != y).mean() for x, y in (np.split(np.array(i), 2) for i in np.ndindex(law.shape))])
    mean = float((law.ravel() * every).sum())
    assert sum(distances(law, TWO)) == pytest.approx(3 * mean)


def test_3_lemma_1_s_only_if_needs_histories_that_can_occur():
    """x -> x+1 mod 3: a policy that looks at x_{t-2} and is not of the printed form reaches equality."""
    p = np.zeros((3, 3, 3))
    for x in range(3):
        p[x, (x + 1) % 3, (x + 2) % 3] = 1 / 3
    law = joint(p, random_policy(np.random.default_rng(0), 3, 2, 3))
    assert whole(law) == pytest.approx(sum(information(law, xs, t) for t, xs in windows(3, 1)))


def test_4_a_release_may_tell_of_later_releases():
    """Y_1 a fair coin, Y_2 = Y_1: allowed, and Y_1 -> (X_1) -> Y_2 is not a Markov chain."""
    again = np.broadcast_to(np.eye(2), (2, 2, 2, 2))
    law = joint(np.full((2, 2), 0.25), [np.full((2, 2), 0.5), again])
    assert whole(law) == pytest.approx(0)
    given = entropy(of(law, [1], [])), entropy(of(law, [1], [1])), entropy(of(law, [1], [2]))
    assert given[1] + given[2] - given[0] - entropy(of(law, [1], [1, 2])) == pytest.approx(1)  # I(Y_1;Y_2|X_1)


def test_5_the_next_belief_depends_on_the_release():
    """So a Bellman equation with one V(beta') on the right lacks its mean over y."""
    chain = vs.builtin("grid2x3-toy")
    b, a = chain.initial, np.random.default_rng(0).dirichlet(np.ones(6), 6)
    after = np.array([next_prior(b, a, y, chain.transition) for y in range(6)])
    assert np.ptp(after, 0).max() > 0.01
    assert output_law(b, a) @ after == pytest.approx(b @ chain.transition)


def test_7_the_text_s_actor_loss_has_a_mean_gradient_of_zero_where_the_cost_has_one():
    """ln q(y|xi) delta with V = 0: E_y[delta grad ln p(y)] = C grad sum_y p(y) = 0, whatever the channel."""
    rng = np.random.default_rng(0)
    b, logits, direction = rng.dirichlet(np.ones(3)), rng.normal(size=(3, 3)), rng.normal(size=(3, 3))

    def channel(h):
        q = np.exp(logits + h * direction)
        return q / q.sum(1, keepdims=True)

    slope = lambda f: (f(1e-5) - f(-1e-5)) / 2e-5  # noqa: E731
    cost = leakage(b, channel(0))
    score = slope(lambda h: np.log(output_law(b, channel(h))))
    assert cost * (output_law(b, channel(0)) @ score) == pytest.approx(0, abs=1e-9)
    assert abs(slope(lambda h: leakage(b, channel(h)))) > 0.005


def test_8_an_action_has_w_cubed_numbers():
    pair = vs.builtin("grid2x3-toy").lift(2)
    assert len(pair) * 6 == 6**3


def test_8_and_13_one_dirichlet_fits_the_printed_rows_of_the_toy(printed):
    """Likelihood ratio against one Dirichlet for each x_t, 6 more parameters; and what its mean can do."""
    from scipy.optimize import minimize
    from scipy.stats import chi2, dirichlet

    rows, first = np.array([*printed.values()]), np.array([x == 1 for x, _ in printed])
    rows = rows / rows.sum(1, keepdims=True)  # printed with two digits

    def fitted(rows):
        found = minimize(lambda v: -sum(dirichlet.logpdf(r, np.exp(v)) for r in rows), np.full(6, 0.8))
        return np.exp(found.x), -found.fun

    xi, together = fitted(rows)
    apart = fitted(rows[first])[1] + fitted(rows[~first])[1]
    assert xi == pytest.approx([2.5, 2.1, 3.7, 2.1, 2.3, 2.0], abs=0.1) and xi.sum() == pytest.approx(14.7, abs=0.3)
    assert 2 * (apart - together) == pytest.approx(2.7, abs=0.3) and chi2.sf(2.7, 6) > 0.8
    b, a = TOY.mean(0), np.tile(xi / xi.sum(), (6, 1))
    assert float(leakage(b, a)) == pytest.approx(0, abs=1e-12)
    assert (b @ a @ np.ones(6)) == pytest.approx(1) and (b @ (a * DISTANCE)).sum() >= (b @ DISTANCE).min()


def test_9_exchanged_activations_give_concentrations_of_sum_one(printed):
    """Softmax makes a Dirichlet, but of sum 1, where the printed rows have 14.7; tanh makes none."""
    o = np.random.default_rng(0).normal(size=(4, 6))
    xi = np.exp(o) / np.exp(o).sum(1, keepdims=True)
    assert (xi > 0).all() and xi.sum(1) == pytest.approx(np.ones(4))
    assert (np.tanh(o) < 0).any()
    spread = np.array([*printed.values()]).var(0).mean()
    mean = np.array([*printed.values()]).mean(0)
    of_sum = lambda total: (mean * (1 - mean)).mean() / (total + 1)  # noqa: E731  # the variance of a Dirichlet row
    assert of_sum(1.0) > 4 * spread and spread == pytest.approx(of_sum(14.7), rel=0.3)


def test_10_the_grids_divide_by_zero_and_are_conditioned_backwards():
    """1/d at d = 0; and what is summed over x_{t+1} is a law of x_{t+1}, not of x_t."""
    d = manhattan(grid_points(4, 4))
    with np.errstate(divide="ignore"):
        assert np.isinf(1 / d).sum() == 16
    Q = grid_q2(4, 4)
    assert Q.sum(1) == pytest.approx(np.ones(16)) and np.abs(Q.sum(0) - 1).max() > 0.5
    assert TOY.sum(1) == pytest.approx(np.ones(6)) and np.abs(TOY.sum(0) - 1).max() > 0.5


def test_11_a_uniform_belief_before_the_first_symbol_is_no_uniform_first_symbol():
    for P in (grid_q2(4, 4), TOY):
        n = len(P)
        assert np.abs(np.full(n, 1 / n) @ P - 1 / n).max() > 0.1 / n


def test_14_without_j_the_td_error_has_the_mean_j():
    """A flip of 0.1 shown through a channel of error 0.2: V of the average cost by iteration on a grid of beliefs."""
    P, a = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([[0.8, 0.2], [0.2, 0.8]])
    grid = np.linspace(0, 1, 401)
    b = np.stack([grid, 1 - grid], -1)
    cost, p = leakage(b, a), output_law(b, a)
    after = np.stack([next_prior(b, np.tile(a, (401, 1, 1)), np.full(401, y), P)[:, 0] for y in range(2)])
    backed = lambda v: cost + (p.T * np.interp(after, grid, v)).sum(0)  # noqa: E731
    v = np.zeros(401)
    for _ in range(400):
        v = backed(v) - backed(v)[200]
    J = backed(v)[200] - v[200]
    as_printed = backed(v) - v  # gamma -> 1
    assert J > 0.1 and as_printed == pytest.approx(np.full(401, J), abs=1e-4)
    assert as_printed - J == pytest.approx(np.zeros(401), abs=1e-4)


def test_15_the_convergence_figure_s_limit_speaks_for_nats():
    """Q2 at lambda 1: the optimum's distance, lambda per bit and per nat; the paper says 0.8."""
    per_bit, per_nat = (
        vs.solve(vs.builtin_problem("grid4x4-q2", vs.Average(weight=w)), window=1).distortion
        for w in (1, 1 / np.log(2))
    )
    assert (per_bit, per_nat) == pytest.approx((1.160, 0.784), abs=3e-3)


@needs_geolife
def test_15_three_kilometres_speak_for_bits():
    """0.53 is the entropy rate of the stops in bits, and more than it in nats."""
    geolife = pytest.importorskip("reproduce.geolife")
    bits = geolife.model(GEOLIFE).chain.entropy_rate
    assert bits == pytest.approx(0.53, abs=0.01) and bits * np.log(2) < 0.53 - 0.1


def test_13_the_toy_s_printed_actions_are_those_of_uniform_release(printed):
    """Rows of x_t = 1 and x_t = 6: their mean distance is uniform release's, and the limit is 0.6."""
    rows, at = np.array([*printed.values()]), np.array([x - 1 for x, _ in printed])
    mean = float((rows * DISTANCE[at]).sum(1).mean())
    assert mean == pytest.approx(DISTANCE[0].mean(), abs=0.05)
    assert mean > 2 * 0.6


def test_13_the_toy_s_printed_actions_do_not_depend_on_the_true_cell(printed):
    """Of all 924 ways to split the rows in two halves, how many differ at least as much as x_t = 1 from x_t = 6."""
    rows, first = np.array([*printed.values()]), np.array([x == 1 for x, _ in printed])
    apart = lambda half: ((rows[half].mean(0) - rows[~half].mean(0)) ** 2).sum()  # noqa: E731
    halves = [np.isin(np.arange(12), c) for c in combinations(range(12), 6)]
    share = np.mean([apart(h) >= apart(first) - 1e-12 for h in halves])
    assert share == pytest.approx(0.95, abs=0.005)
