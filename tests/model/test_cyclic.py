"""Chains with a public clock, against enumeration and against the chain on (phase, state); clocks that jump."""

import itertools
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import veilstream as vs
from oracles import dense_law, random_chain, recorded
from veilstream.control.accountant import Accountant
from veilstream.control.controller import cycle
from veilstream.control.mechanism import Mechanism
from veilstream.control.stationary import rates
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.clock import Clock

LONDON = "Europe/London"
HALF_HOURS = Clock("day", 48, 1800.0, 0.0, LONDON)


def at(*when):
    """The public number of the half-hour that begins then, local time of London."""
    return int(datetime(*when, tzinfo=ZoneInfo(LONDON)).timestamp() // 1800)


def cyclic(phases=3, states=2, seed=0, clock=None):
    rng = np.random.default_rng(seed)
    P = [random_chain(rng, states, sticky=0.3, floor=0.02) for _ in range(phases)]
    return MarkovChain(P, clock=clock or Clock("steps", phases))


def clock_policy(chain, window=1, outputs=2, seed=1):
    rng = np.random.default_rng(seed)
    tables = rng.dirichlet(np.ones(outputs), (chain.phases, outputs**window, len(chain)))
    return cycle(tuple(vs.Controller.of_table(t, window) for t in tables)).made_for(chain)


def problem_on(chain, outputs=2):
    d = np.random.default_rng(5).random((len(chain), outputs))
    return vs.Problem(chain, d, vs.Average(weight=1.0))


def information(chain, policy, n, first):
    """I(X^n; Y^n) over all sequences, the stream beginning at this step; written out, with no code of the package."""
    Y, joint = policy.n_outputs, {}
    for x in itertools.product(range(len(chain)), repeat=n):
        p = chain.law_by_phase[first % chain.phases][x[0]]
        for t in range(n - 1):
            p *= chain.cycle[(first + t) % chain.phases][x[t], x[t + 1]]
        for y in itertools.product(range(Y), repeat=n):
            q, last = p, 0
            for t in range(n):
                q *= policy.at_phase((first + t) % chain.phases).channel(np.asarray(last))[x[t], y[t]]
                last = y[t]
            joint[x, y] = q
    p_x, p_y = {}, {}
    for (x, y), p in joint.items():
        p_x[x], p_y[y] = p_x.get(x, 0) + p, p_y.get(y, 0) + p
    return sum(p * np.log2(p / (p_x[x] * p_y[y])) for (x, y), p in joint.items() if p > 0)


@pytest.mark.parametrize(("first", "phases"), [(0, 3), (1, 3), (5, 3), (1, 2)])
def test_the_meter_adds_up_to_the_information_of_two_states_and_few_phases(first, phases):
    chain = cyclic(phases)
    policy, n = clock_policy(chain), 5
    mechanism = Mechanism(policy, problem_on(chain))
    total = 0.0
    for y in itertools.product(range(2), repeat=n):
        s, p = mechanism.start(1, first), 1.0
        for symbol in y:
            view = mechanism.look(s)
            p *= view.law[0, symbol]
            s = mechanism.after(s, view, np.array([symbol]))
        total += p * s.total[0]
    assert total == pytest.approx(information(chain, policy, n, first), abs=1e-12)


def expanded(chain):
    """The chain on (phase, state), n |Z| of them, for kind "steps"."""
    n, Z = chain.cycle.shape[:2]
    P = np.zeros((n, Z, n, Z))
    for phase in range(n):
        P[phase, :, (phase + 1) % n] = chain.cycle[phase]
    return vs.MarkovChain(P.reshape(n * Z, n * Z))


def test_laws_entropy_and_rates_are_those_of_the_chain_on_phase_and_state():
    chain = cyclic(4, 3)
    big = expanded(chain)
    assert big.stationary.reshape(4, 3) * 4 == pytest.approx(chain.law_by_phase)
    assert big.stationary.reshape(4, 3).sum(0) == pytest.approx(chain.stationary)
    assert big.entropy_rate == pytest.approx(chain.entropy_rate)
    policy, problem = clock_policy(chain), problem_on(chain)
    tables = np.stack([policy.at_phase(i).table() for i in range(4)])  # phases x S x Z x Y
    wide = vs.Controller.of_table(tables.transpose(1, 0, 2, 3).reshape(2, 12, 2), 1)
    # the phase is public: I(Z; Y | S, phase) = I(Z, phase; Y | S) - I(phase; Y | S), summed out by hand
    mu = dense_law(big, wide).reshape(2, 4, 3)
    m = mu[..., None] * tables.transpose(1, 0, 2, 3)
    p = m.sum(2, keepdims=True) / mu.sum(2)[:, :, None, None]
    assert rates(problem, policy).leakage == pytest.approx((m * np.log2(tables.transpose(1, 0, 2, 3) / p)).sum(), 1e-6)
    assert rates(problem, policy).distortion == pytest.approx((m.sum((0, 1)) * problem.distortion).sum(), 1e-6)


def test_a_policy_that_does_not_look_at_the_clock_has_the_rates_of_one_that_does_and_ignores_it():
    chain = cyclic(3, 3)
    blind = vs.Controller.of_table(np.random.default_rng(0).dirichlet(np.ones(2), (2, 3)), 1)
    same, problem = cycle((blind,) * 3).made_for(chain), problem_on(chain)
    assert rates(problem, blind) == pytest.approx(rates(problem, same), abs=1e-9)
    found = vs.evaluate(problem, blind, steps=600, streams=600)
    assert found.distortion == pytest.approx(rates(problem, blind).distortion, abs=5 * found.distortion_se)


@pytest.mark.slow
def test_gaps_are_skipped_segment_by_segment_for_any_length():
    chain = cyclic(48, 3, clock=HALF_HOURS)
    b = np.random.default_rng(0).dirichlet(np.ones(3), 2)
    begin = np.array([at(2013, 3, 30, 12), at(2013, 10, 26, 23, 30)])  # over both changes of the clock
    for k in (1, 7, 100, 48 * 20):
        slow = b.copy()
        for t in range(k):
            slow = chain.moved(slow, begin + t)
        assert chain.later(b, k, begin) == pytest.approx(slow, abs=1e-12)
    far = chain.later(b, 10**8, begin)
    assert far == pytest.approx(chain.initial_at(begin + 10**8), abs=1e-6)


def test_days_have_23_and_25_hours():
    spring = HALF_HOURS.phase(np.arange(at(2013, 3, 31), at(2013, 4, 1)))
    autumn = HALF_HOURS.phase(np.arange(at(2013, 10, 27), at(2013, 10, 28)))
    assert spring.tolist() == [0, 1, *range(4, 48)]  # 01:00 local time is followed by 03:00: two half-hours fewer
    assert autumn.tolist() == [0, 1, 2, 3, 2, 3, *range(4, 48)]
    june = HALF_HOURS.phase(np.arange(at(2013, 6, 1), at(2013, 6, 2)))
    assert june.tolist() == list(range(48))


def test_every_step_has_the_phase_that_the_calendar_says():
    clock = Clock("week", 24, 1800.0, 600.0, "America/New_York")
    steps = np.random.default_rng(0).integers(10**5, 10**6, 300)
    for step, phase in zip(steps.tolist(), clock.phase(steps).tolist(), strict=True):
        local = datetime.fromtimestamp(600 + 1800 * step, ZoneInfo("America/New_York"))
        assert phase == local.hour + 24 * (local.weekday() >= 5)
        assert clock.phase(step) == phase
    assert np.bincount(clock.around).tolist() == [10] * 24 + [4] * 24


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kind": "month"}, "a clock is one of"),
        ({"n": 0}, "1 to 1440 phases"),
        ({"period_s": 7000.0}, "divides"),
        ({"n": 24, "period_s": 7200.0}, "divides"),
        ({"zone": "Europe/Londn"}, "unknown time zone"),
        ({"zone": "../../etc/passwd"}, "unknown time zone"),
        ({"period_s": None}, "divides"),
        ({"epoch_s": float("nan")}, "epoch"),
    ],
)
def test_a_clock_that_cannot_be_is_refused(wrong, said):
    with pytest.raises(InputError, match=said):
        Clock(**{"kind": "day", "n": 24, "period_s": 1800.0, "zone": LONDON} | wrong)


def test_a_course_felt_exactly_is_the_mean_over_draws_with_the_clock_jumping():
    chain = cyclic(48, 3, clock=HALF_HOURS)
    policy = clock_policy(chain)
    rng = np.random.default_rng(2)
    z = [rng.integers(0, 3, 60), rng.integers(0, 3, 50)]
    gaps = [rng.integers(0, 3, 60) * (np.arange(60) > 0), np.zeros(50, int)]
    replay = recorded(z, gaps, [rng.random((60, 2)), rng.random((50, 2))], [at(2013, 3, 30, 18), at(2013, 10, 26, 20)])
    drawn = replay.run(Mechanism(policy, meter=Accountant(), sighted=True))
    assert replay.error(policy) == pytest.approx(drawn.error, abs=4 * drawn.error_se)
    other = recorded(z, gaps, np.split(replay.distances, [60]), [0, 5])
    assert abs(replay.error(policy) - other.error(policy)) > 1e-4  # the hour matters


def test_nothing_told_by_the_hour_is_the_best_release_of_every_phase():
    """Step by step: of all ways from phases to releases the best one; gaps move the phase on."""
    chain, rng = cyclic(2, 3), np.random.default_rng(4)
    gaps = np.array([0, 0, 1, 0, 2, 0])
    phase = [(1 + t + int(gaps[: t + 1].sum())) % 2 for t in range(6)]
    distance = rng.random((6, 3)) + np.abs(np.arange(3) - 2 * np.array(phase)[:, None])
    replay = recorded([np.zeros(6, int)], [gaps], [distance], [1])
    ways = itertools.product(range(3), repeat=2)
    best = min(np.mean([distance[t, way[k]] for t, k in enumerate(phase)]) for way in ways)
    assert replay.blind(chain) == pytest.approx(best) and replay.blind() > best


def test_what_the_truth_would_tell_of_a_course_knows_the_hour():
    chain = cyclic(48, 3, clock=HALF_HOURS)
    first, gaps = at(2013, 3, 30, 23), np.array([0, 0, 5, 0])
    z = np.array([chain.initial_at(np.array([first]))[0].argmax(), 0, 0, 0])
    for t, step in ((1, first), (2, first + 6), (3, first + 7)):  # likely ones, so that log2 3 is no bound
        z[t] = chain.cycle[chain.phase(step)][z[t - 1]].argmax()
    replay = recorded([z], [gaps], [np.zeros((4, 2))], [first])
    law, bits = chain.initial_at(np.array([first]))[0], 0.0
    step = first
    for x, gap in zip(z, gaps, strict=True):
        for _ in range(gap):
            law = law @ chain.cycle[chain.phase(step)]
            step += 1
        bits -= np.log2(law[x])
        law = chain.cycle[chain.phase(step)][x]
        step += 1
    assert replay.truth(chain) == pytest.approx(bits / 4) and bits / 4 < np.log2(3)


def test_a_file_holds_chain_clock_and_policy(tmp_path):
    chain = cyclic(48, 3, clock=HALF_HOURS)
    policy, problem = clock_policy(chain), problem_on(chain)
    kept = vs.save(tmp_path / "p.veil", policy, problem=problem, period_s=1800.0)
    found = vs.load(tmp_path / "p.veil")
    assert found.sha256 == kept.sha256
    assert found.chain.clock == HALF_HOURS
    assert (found.chain.cycle == chain.cycle).all()
    assert found.policy.chain is found.chain
    assert (found.policy.table() == policy.table()).all()
    assert rates(found.problem, found.policy) == pytest.approx(rates(problem, policy))
    other = replace(policy, output_model=policy.output_model[:24], kernel=policy.kernel[:24])
    with pytest.raises(InputError, match="24 phases, its chain 48"):
        vs.save(tmp_path / "q.veil", other, problem=problem)
    with pytest.raises(InputError, match="another chain"):
        vs.save(tmp_path / "q.veil", policy.made_for(cyclic(48, 3, 7, HALF_HOURS)), problem=problem)


def test_sampled_streams_follow_the_hour():
    chain = cyclic(3, 2)
    z = chain.sample(4, 60_000, first=1)
    for t in range(4):
        assert (z[:, t] == 0).mean() == pytest.approx(chain.law_by_phase[(1 + t) % 3][0], abs=0.01)
    stay = (z[:, 1] == 1) & (z[:, 2] == 1)
    assert stay.sum() / (z[:, 1] == 1).sum() == pytest.approx(chain.cycle[2][1, 1], abs=0.01)
