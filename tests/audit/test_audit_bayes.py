"""Exact adversaries against enumeration of every (z^n, y^n)."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilstream as vs
from oracles import joint_law, random_chain, sequence_information
from veilstream.audit.bayes import infer
from veilstream.audit.learned import least_cross_entropy, view_of, window_law
from veilstream.audit.measures import measure, surprise
from veilstream.audit.traces import Traces, release, sampled
from veilstream.control.belief import BeliefPolicy, GreedyRule
from veilstream.control.controller import Controller, schedule
from veilstream.model.information import entropy
from veilstream.model.interval import ratio_interval


def random_window(rng, Z, Y, window):
    a = rng.gamma(0.7, size=(Y**window, Z, Y)) + 1e-3
    return Controller.of_table(a / a.sum(-1, keepdims=True), window)


def policy_of(kind, rng, chain, Y):
    Z = len(chain)
    if kind == "belief":
        return BeliefPolicy(chain, GreedyRule(2 * rng.random((Z, Y))))
    if kind == "schedule":
        return schedule((random_window(rng, Z, Y, 1), random_window(rng, Z, Y, 0)), (1, 2))
    return random_window(rng, Z, Y, int(kind[-1]))


def every_release(policy, n):
    """All y^n as streams; the true states do not matter to the beliefs."""
    y = np.array(list(product(range(policy.n_outputs), repeat=n)))
    zeros = np.zeros(len(y), np.int64)
    return Traces(np.zeros_like(y), y, np.full(len(y), n), np.arange(len(y)), zeros)


def chain_of(rng, order=1):
    chain = vs.MarkovChain(random_chain(rng, 3, sticky=0.3), rng.dirichlet(np.ones(3)))
    return chain.lift(order)


KINDS = ["window0", "window1", "window2", "belief", "schedule"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [1, 2])
def test_filter_predictor_smoother_and_viterbi_equal_brute_force(kind, order):
    rng = np.random.default_rng(7)
    n = 4 if order == 1 else 3
    chain = chain_of(rng, order)
    policy = policy_of(kind, rng, chain, 2)
    _, joint = sequence_information(chain, policy, n)  # Z^n x Y^n
    Z, X = len(chain), chain.n_symbols
    data = every_release(policy, n)
    found = infer(chain, policy, data)
    paths = np.array(list(product(range(Z), repeat=n)))
    for j in range(len(data.y)):
        for t in range(n):
            same_past = (data.y[:, :t] == data.y[j, :t]).all(1)
            same_now = (data.y[:, : t + 1] == data.y[j, : t + 1]).all(1)
            for who, which in (
                ("predictor", same_past),
                ("filter", same_now),
                ("smoother", np.arange(len(data.y)) == j),
            ):
                law = np.bincount(chain.symbols[paths[:, t]], joint[:, which].sum(1), X)
                assert getattr(found, who)[j, t] == pytest.approx(law / law.sum(), abs=1e-10), (who, j, t)
        best = joint[:, j].max()
        path = [i for i, p in enumerate(paths) if (chain.symbols[p] == found.path[j]).all()]
        assert max(joint[path, j]) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_mean_surprise_of_the_filter_is_the_conditional_entropy(kind):
    """sum P(z^n, y^n) (-log2 P(z_t | y^t)) = H(X_t | Y^t), and the mean density is the leakage."""
    rng = np.random.default_rng(3)
    n, chain = 3, chain_of(rng)
    policy = policy_of(kind, rng, chain, 3)
    total, joint = sequence_information(chain, policy, n)
    data = every_release(policy, n)
    found = infer(chain, policy, data, whole=False)
    paths = np.array(list(product(range(3), repeat=n)))
    bits = 0.0
    for t in range(n):
        _, past = np.unique(data.y[:, : t + 1], axis=0, return_inverse=True)
        law = np.zeros((3, past.max() + 1))
        np.add.at(law, (paths[:, t][:, None], past[None]), joint)
        H = entropy(law.ravel()) - entropy(law.sum(0))
        x = np.broadcast_to(paths[:, t][:, None], joint.shape)
        seen = surprise(np.broadcast_to(found.filter[:, t], (*joint.shape, 3)), x)
        assert (joint * np.where(joint > 0, seen, 0)).sum() == pytest.approx(H, abs=1e-10)
        guess = surprise(np.broadcast_to(found.predictor[:, t], (*joint.shape, 3)), x)
        bits += (joint * np.where(joint > 0, guess - seen, 0)).sum()
    assert bits == pytest.approx(total, abs=1e-9)  # chain rule: what the filter gains is the leakage


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(KINDS))
def test_data_processing(seed, kind):
    """More releases never hurt the adversary, and blurring them never helps."""
    rng = np.random.default_rng(seed)
    n, chain = 3, chain_of(rng)
    policy = policy_of(kind, rng, chain, 2)
    _, joint = sequence_information(chain, policy, n)
    weight = joint.sum(0)
    found = infer(chain, policy, every_release(policy, n))
    for t in range(n):
        prior = entropy(chain.initial @ np.linalg.matrix_power(chain.transition, t))
        p, f, s = (weight @ entropy(getattr(found, who)[:, t]) for who in ("predictor", "filter", "smoother"))
        assert s <= f + 1e-9 <= p + 2e-9 <= prior + 3e-9
    blur = rng.dirichlet(np.ones(2), size=2)
    plain = Controller.of_table(policy.channel(policy.start()))
    blurred = Controller.of_table(plain.channel(plain.start()) @ blur)
    H = []
    for one in (plain, blurred):
        law = sequence_information(chain, one, n)[1].sum(0)
        H.append(law @ entropy(infer(chain, one, every_release(one, n)).filter[:, -1]))
    assert H[0] <= H[1] + 1e-9


def test_impossible_observations_fail_closed():
    chain = vs.MarkovChain(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1.0, 0.0]))
    policy = Controller.of_table(np.eye(2))
    y = np.array([[0, 0, 1]])
    data = Traces(np.zeros_like(y), y, np.array([3]), np.array([0]), np.array([0]))
    with pytest.raises(vs.ImpossibleObservation):
        infer(chain, policy, data)


@pytest.mark.parametrize("kind", KINDS)
def test_ragged_traces_in_a_batch_equal_one_by_one(kind):
    rng = np.random.default_rng(1)
    chain = chain_of(rng)
    policy = policy_of(kind, rng, chain, 3)
    data = release(policy, [chain.sample(k, seed=k)[0] for k in (2, 5, 1, 7)], copies=3)
    whole = infer(chain, policy, data)
    for i, n in enumerate(data.lengths):
        one = data.rows(i, i + 1)
        alone = infer(chain, policy, Traces(one.z[:, :n], one.y[:, :n], one.lengths, one.origin, one.first))
        for who in ("predictor", "filter", "smoother", "path"):
            assert getattr(whole, who)[i, :n] == pytest.approx(getattr(alone, who)[0])


def test_a_schedule_is_seen_at_every_phase_and_its_phase_is_public():
    rng = np.random.default_rng(2)
    chain = chain_of(rng)
    loud, silent = Controller.of_table(np.eye(3)), Controller.of_table(np.full((3, 3), 1 / 3))
    policy = schedule((silent, loud), (50, 50))
    data = release(policy, [chain.sample(4, seed=0)[0]], copies=20)
    found = infer(chain, policy, data, whole=False)
    sure = (found.filter.max(-1) > 1 - 1e-12).mean()
    assert 0.4 < sure < 0.6  # half of the phases release the truth


def test_an_adversary_of_higher_order_sees_the_policy_through_its_newest_symbol():
    rng = np.random.default_rng(5)
    chain = vs.MarkovChain(random_chain(rng, 3, sticky=0.3))
    policy = random_window(rng, 3, 3, 1)
    data = sampled(chain, policy, 6, 20)
    pair = chain.lift(2)
    a = infer(chain, policy, data)
    b = infer(pair, policy, data, view_of(pair, chain))
    assert b.filter == pytest.approx(a.filter)
    assert b.smoother == pytest.approx(a.smoother)
    with pytest.raises(vs.InputError, match="order 1 cannot follow a policy of order 2"):
        view_of(chain, pair)


# --- look-back -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0, 1, 2])
def test_window_law_is_the_stationary_law_of_the_widened_policy(window):
    """A second way to it: remember two releases from the start, then solve for the steady state."""
    rng = np.random.default_rng(9)
    chain = vs.MarkovChain(random_chain(rng, 3))
    policy = random_window(rng, 3, 2, window)
    wide = Controller.of_table(np.tile(policy.table(), (2 ** (2 - window), 1, 1)), 2)
    mu = joint_law(chain, wide)  # last two releases x state
    assert window_law(chain, policy, 2) == pytest.approx(mu, abs=1e-8)
    assert window_law(chain, policy, 1) == pytest.approx(mu.reshape(2, 2, 3).sum(0), abs=1e-8)
    now = mu[:, None, :] * wide.channel(np.arange(4)).swapaxes(1, 2)  # (y_{t-2}, y_{t-1}), y_t, state
    assert window_law(chain, policy, 1, current=True) == pytest.approx(now.sum(0), abs=1e-8)
    assert window_law(chain, policy, 2, current=True) == pytest.approx(now.reshape(2, 4, 3).sum(0), abs=1e-8)


def test_longer_look_back_never_hurts_and_tends_to_the_filter():
    problem = vs.builtin_problem("grid2x3-toy", vs.Average(weight=2.0))
    policy = vs.solve(problem).policy
    chain = problem.chain
    least = [least_cross_entropy(window_law(chain, policy, m)) for m in (1, 2, 3, 4)]
    assert all(b <= a + 1e-12 for a, b in pairwise(least))
    data = sampled(chain, policy, 60, 400)
    found = infer(chain, policy, data, whole=False)
    exact = entropy(found.predictor[:, 20:]).mean()
    assert exact == pytest.approx(least[-1], abs=0.02)
    assert window_law(chain, policy, 12) is None  # too large to list
    assert window_law(chain, BeliefPolicy(chain, GreedyRule(problem.cost(1.0))), 1) is None


# --- measures --------------------------------------------------------------------------------------------


def test_measures_by_hand():
    z = np.array([[0, 1, 2, 0]])
    data = Traces(z, z, np.array([3]), np.array([0]), np.array([0]))
    belief = np.array([[[0.6, 0.2, 0.2], [0.4, 0.35, 0.25], [0.7, 0.2, 0.1], [0, 0, 0]]])
    d = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    got = measure(belief, z, data, d, anchors=(0, 1))
    assert got.cross_entropy.value == pytest.approx(-np.log2([0.6, 0.35, 0.1]).mean())
    assert got.top1 == pytest.approx(1 / 3)
    assert got.top3 == 1
    assert got.error == pytest.approx((0 + 0 + 2) / 3)  # guesses 0, 1, 0: the middle of the belief, not its peak
    assert got.home == pytest.approx(1 / 3)
    assert got.work == 0
    assert got.recovered == pytest.approx(1 / 3)


def test_intervals_are_over_traces():
    sums, counts = np.array([1.0, 30.0, 5.0]), np.array([1.0, 10.0, 5.0])
    found = ratio_interval(sums, counts)
    assert found.value == pytest.approx(36 / 16)
    assert found.low == pytest.approx(1.0)
    assert found.high == pytest.approx(3.0)
