"""A policy on recorded streams: exact where its memories are numbers, against draws and against enumeration."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import veilstream as vs
from oracles import random_chain, recomputed, recorded
from veilstream.control.accountant import Accountant, BeliefFilter
from veilstream.control.mechanism import Mechanism
from veilstream.control.replay import ReplayResult
from veilstream.control.stationary import holds_all

RNG = np.random.default_rng(0)
CHAIN = vs.MarkovChain(random_chain(RNG, 3, sticky=0.6, floor=0.02))


def replay(lengths=(4, 3), Y=2):
    z = [RNG.integers(0, 3, n) for n in lengths]
    gaps = [np.concatenate([[0], RNG.integers(0, 3, n - 1)]) for n in lengths]
    return recorded(z, gaps, [RNG.random((n, Y)) for n in lengths])


def table(window, seed=1, Y=2):
    return vs.Controller.of_table(np.random.default_rng(seed).dirichlet(np.ones(Y), (Y**window, 3)), window)


def enumerated(replay, policy):
    """Mean distance over every possible sequence of releases."""
    total = 0.0
    for rows in replay.streams:
        z, d = replay.states[rows], replay.distances[rows]
        for ys in itertools.product(range(policy.n_outputs), repeat=len(z)):
            p, memory, cost = 1.0, policy.start(), 0.0
            for x, y, row in zip(z, ys, d, strict=True):
                p, cost = p * policy.channel(memory)[x, y], cost + row[y]
                memory = policy.update(memory, y)
            total += p * cost
    return total / replay.n_steps


@pytest.mark.parametrize("window", [0, 1, 2])
def test_the_felt_mean_is_that_of_every_sequence_of_releases(window):
    on = replay()
    assert on.error(table(window)) == pytest.approx(enumerated(on, table(window)))


@pytest.mark.slow
def test_draws_agree_with_the_exact_mean():
    on = replay((60, 40))
    found = on.run(Mechanism(table(1), meter=Accountant(), sighted=True))
    assert found.error == pytest.approx(on.error(table(1)), abs=4 * found.error_se)
    for mixed in (vs.schedule((table(1), table(0, 5)), (3, 2)), vs.schedule((table(2), table(1, 5)), (1, 4))):
        drawn = on.run(Mechanism(mixed, meter=Accountant(), sighted=True), seed=1)
        assert on.error(mixed) == pytest.approx(drawn.error, abs=4 * drawn.error_se)
    greedy = vs.solve(
        vs.Problem(CHAIN, 1 - np.eye(3)[:, :2], vs.Average(weight=1.0)), "belief-greedy", steps=3, streams=2
    )
    drawn = on.run(Mechanism(greedy.policy, meter=Accountant(), sighted=True))
    assert on.error(greedy.policy) == recomputed(drawn.error)  # one seed


@pytest.mark.slow
def test_bits_on_data_of_the_chain_itself_are_its_leakage():
    """From the stationary law, without gaps, the mean of log2 a/q is start-up plus rate."""
    problem = vs.Problem(CHAIN, 1 - np.eye(3), vs.Average(weight=2.0))
    solution = vs.solve(problem)
    z = CHAIN.sample(200, 60, seed=2)
    on = recorded(list(z), [np.zeros(200, int)] * 60, [np.zeros((200, 3))] * 60)
    expected = solution.leakage + solution.startup_bits / 200
    found = on.leakage(solution.policy, CHAIN)
    assert found.bits == pytest.approx(expected, abs=6 * found.bits_se + 0.01)


def test_least_and_blind_are_the_ends_of_what_any_policy_can_do():
    on = replay((50,), Y=3)
    allowed = np.ones((3, 3), bool)
    z, d = on.states, on.distances
    best = sum(d[z == x].sum(0).min() for x in range(3)) / 50
    assert on.least(allowed) == pytest.approx(best)
    assert on.blind() == pytest.approx(d.mean(0).min())
    assert on.least(allowed) <= on.error(table(1, Y=3)) <= d.max()


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_limit_is_met_on_the_course_and_not_in_the_long_run(share):
    """The streams start elsewhere and stay elsewhere than the chain's long run has it."""
    z = [np.repeat([0, 1, 0, 2, 0], 20), np.repeat([0, 2], 30)]
    points = [np.eye(3)[s] + 0.1 * RNG.random((len(s), 3)) for s in z]
    on = recorded(z, [np.zeros(len(s), int) for s in z], [1.2 - p for p in points])
    limit = on.least(np.ones((3, 3), bool)) * (1 - share) + on.blind() * share
    d = np.stack([on.distances[on.states == x].mean(0) for x in range(3)])
    solution = vs.solve(vs.Problem(CHAIN, d, vs.Average(limit=limit)), replay=on)
    assert on.error(solution.policy) <= limit * 1.001
    assert on.error(solution.policy) >= limit * 0.97
    assert solution.record.error == pytest.approx(on.error(solution.policy))
    with pytest.raises(vs.InputError, match="infeasible limit"):
        vs.solve(vs.Problem(CHAIN, d, vs.Average(limit=0.5 * on.least(np.ones((3, 3), bool)))), replay=on)


def test_a_limit_at_every_step_is_about_the_worst_distance():
    d, worst = 1 - np.eye(3), 2 * (1 - np.eye(3)) + 0.5
    problem = vs.Problem(CHAIN, d, vs.Instantaneous(1.0), worst)
    assert (problem.allowed == np.eye(3, dtype=bool)).all()
    assert vs.Problem(CHAIN, d, vs.Instantaneous(1.0)).allowed.all()
    with pytest.raises(vs.InputError, match=r"its nearest is at 0\.5"):
        vs.Problem(CHAIN, d, vs.Instantaneous(0.4), worst)
    only = problem.only(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]], bool))
    assert only.allowed.tolist() == [[True, True, False], [False, True, False], [False, False, True]]


def test_what_the_truth_tells_is_the_likelihood_of_the_states():
    on, total = replay((6, 4)), 0.0
    on = replace(on, states=np.concatenate([CHAIN.sample(n, seed=i)[0] for i, n in enumerate((6, 4))]))
    for rows in on.streams:
        z, gaps = on.states[rows], on.gaps[rows]
        total -= np.log2(CHAIN.initial[z[0]])
        for t in range(1, len(z)):
            total -= np.log2(np.linalg.matrix_power(CHAIN.transition, 1 + gaps[t])[z[t - 1], z[t]])
    assert on.truth(CHAIN) == pytest.approx(total / on.n_steps) and total / on.n_steps < np.log2(3)
    apart = vs.MarkovChain(np.eye(3))  # what it calls impossible costs no more than believing in nothing
    pair = recorded([np.array([0, 1])], [np.zeros(2, int)], [np.zeros((2, 3))])
    assert pair.truth(apart) == pytest.approx(np.log2(3))


def test_bits_on_the_course_are_those_of_the_exact_meter():
    """The same laws and so the same draws, whether or not the meter charges for them."""
    on, policy = replay((30, 20), Y=2), table(1)
    told = on.run(Mechanism(policy.made_for(CHAIN)))
    assert on.leakage(policy, CHAIN).bits == pytest.approx(told.bits)


def test_a_file_may_say_anything_of_its_record():
    found = replay((20,)).leakage(table(1), CHAIN)
    told = ReplayResult.of(found.to_json())
    assert (told.error, told.bits, told.copies) == (found.error, found.bits, found.copies)
    for said in (
        None,
        3,
        {},
        {"record": 1},
        {"record": {"leakage": "x"}},
        {"record": {"raw_distortion": float("nan")}},
    ):
        assert ReplayResult.of(said) is None


def test_leakage_given_the_memory_is_the_rate_only_where_the_memory_is_a_belief():
    blind = vs.Controller.of_table(np.tile([0.3, 0.7], (3, 1)))
    assert holds_all(CHAIN, blind)  # nothing to remember
    truth = vs.Controller.of_table(np.tile(np.eye(3), (3, 1, 1)), 1)
    assert holds_all(CHAIN, truth)  # the last release is the last state
    assert not holds_all(CHAIN, table(1))  # older releases still tell something
    assert not holds_all(CHAIN, vs.schedule((table(1), table(0, 5)), (3, 2)))


@pytest.mark.parametrize("window", [0, 1, 2])
def test_a_policy_too_large_for_a_table_is_read_by_rows_and_columns(window, monkeypatch):
    on, policy = replay((30, 20)), table(window)
    channel = policy.channel(np.arange(policy.n_memories))
    s, z, y = np.arange(len(channel)), RNG.integers(0, 3, len(channel)), RNG.integers(0, 2, len(channel))
    np.testing.assert_allclose(policy.rows(s, z), channel[s, z], atol=1e-12)
    np.testing.assert_allclose(policy.columns(s, y), channel[s, :, y], atol=1e-12)
    felt, told = on.error(policy), on.leakage(policy, CHAIN)
    monkeypatch.setattr(vs.Controller, "table", lambda *_: None)
    monkeypatch.setattr(vs.Controller, "channel", None)  # nobody asks for a whole one
    assert on.error(policy) == pytest.approx(felt)
    large = on.leakage(policy, CHAIN)
    assert (large.bits, large.error) == pytest.approx((told.bits, told.error))


def test_the_bits_of_a_release_are_those_of_the_whole_output_law():
    """A listener that was told of no channels looks at all of every one."""
    on, policy = replay((30, 20)), table(1)
    by_columns = on.leakage(policy, CHAIN)
    whole = on.run(Mechanism(policy.made_for(CHAIN), meter=BeliefFilter(CHAIN, charges=False), sighted=True))
    assert (by_columns.bits, by_columns.error) == pytest.approx((whole.bits, whole.error))


def test_what_a_release_costs_may_be_a_function_of_its_reading():
    """So that releases need have no end: the same figures as by a table of distances, also of a part of the rows."""
    on, policy = recorded([RNG.integers(0, 3, 30)], [np.zeros(30, int)], [np.zeros((30, 2))]), table(1)
    points, levels = RNG.random((30, 1)), np.array([0.2, 0.9])
    on = replace(on, distances=np.abs(points - levels), units=np.arange(30) // 10)
    by_function = replace(on, distances=None, points=points, cost=lambda p, y: np.abs(p[:, 0] - levels[y]))
    mechanism = Mechanism(policy, meter=Accountant(), sighted=True)
    for one, other in zip((on, *on.halves()), (by_function, *by_function.halves()), strict=True):
        assert one.run(mechanism).error == recomputed(other.run(mechanism).error)
