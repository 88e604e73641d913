"""The capacity meter: no law of the data can make a release tell more than it charges."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gatewaykit import problem_of, window_policy
from veilstream.control.accountant import worst_case
from veilstream.control.controller import schedule
from veilstream.control.mechanism import Mechanism
from veilstream.control.release import release_many
from veilstream.model.problem import capacity, leakage


@given(st.integers(0, 10_000), st.integers(2, 7), st.integers(2, 7))
@example(4645, 6, 5)  # 200 steps of Arimoto's leave it 0.003 bits too high
@settings(max_examples=60, deadline=None)
def test_it_is_above_the_leakage_of_every_law_and_near_the_best(seed, Z, Y):
    rng = np.random.default_rng(seed)
    a = rng.dirichlet(np.full(Y, 0.3), Z)
    bits, law = worst_case(a)
    for b in rng.dirichlet(np.full(Z, 0.5), 50):
        assert leakage(b, a) <= bits + 1e-9
    assert capacity(a[None])[0][0] == pytest.approx(bits, abs=2e-3)
    assert law.sum() == pytest.approx(1) and (law > 0).all()


@pytest.mark.parametrize(("a", "bits"), [(np.eye(4), 2.0), (np.full((3, 5), 0.2), 0.0)])
def test_the_truth_tells_all_and_noise_nothing(a, bits):
    assert worst_case(a)[0] == pytest.approx(bits, abs=1e-6)


def test_a_binary_symmetric_channel_has_its_known_capacity():
    h = -(0.1 * np.log2(0.1) + 0.9 * np.log2(0.9))
    assert worst_case(np.array([[0.9, 0.1], [0.1, 0.9]]))[0] == pytest.approx(1 - h, abs=1e-6)


def test_the_meter_adds_up_the_capacity_of_the_channels_really_used():
    problem = problem_of()
    policy = window_policy(problem)
    x = np.random.default_rng(0).integers(0, 16, (5, 40))
    found = release_many(policy, x, problem, meter="capacity", seed=1)
    table = policy.table()
    for y, total in zip(found.y, found.leaked_bits, strict=True):
        memories = [int(policy.start()), *y[:-1].tolist()]
        assert total == pytest.approx(sum(worst_case(table[m])[0] for m in memories))


def test_it_charges_more_than_the_exact_meter_and_gaps_are_borne():
    problem = problem_of()
    policy = window_policy(problem)
    x = np.random.default_rng(0).integers(0, 16, (50, 40))
    worst = release_many(policy, x, problem, meter="capacity", seed=1).leaked_bits
    assert (worst > release_many(policy, x, problem, seed=1).leaked_bits).all()
    mechanism = Mechanism(policy, meter="capacity")
    assert mechanism.skip(mechanism.start(1), 5).total.tolist() == [0]


def test_a_ceiling_is_kept_by_it():
    problem = problem_of()
    found = release_many(window_policy(problem), np.zeros((3, 60), int), problem, meter="capacity", ceiling=9.0, seed=1)
    assert (found.leaked_bits <= 9.0).all() and (found.leaked_bits > 6.0).all()
    assert (found.y >= 0).all()


def test_a_schedule_is_charged_for_the_policy_that_runs():
    problem = problem_of()
    parts = tuple(window_policy(problem, seed) for seed in (0, 1))
    found = release_many(schedule(parts, (1, 3)), np.zeros((2, 8), int), problem, meter="capacity", seed=1)
    most = max(worst_case(a)[0] for part in parts for a in part.table())
    assert (found.leaked_bits <= 8 * most + 1e-9).all()
    assert (found.leaked_bits > 0).all()


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr("veilstream.control.accountant.KEPT", 64)
    problem = problem_of()
    mechanism = Mechanism(window_policy(problem), problem, meter="capacity")
    streams = mechanism.start(1)
    for _ in range(40):
        streams, _ = mechanism.step(streams, np.array([3]), np.random.default_rng(2).random(1))
    assert len(mechanism.meter.known) <= 4
