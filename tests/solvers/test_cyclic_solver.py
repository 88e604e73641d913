"""Causal Blahut-Arimoto and certificates around a public clock, against the chain on (phase, state)."""

import itertools
import sys

import numpy as np
import pytest

import veilstream as vs
from benchmarks.cycle import invented
from oracles import random_chain
from veilstream.control.stationary import LongRun
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.clock import Clock
from veilstream.solvers.bounds import certify

Z, N, WEIGHT = 3, 4, 1.2
DISTANCE = np.abs(np.subtract.outer(np.arange(Z), np.arange(Z))).astype(float)


def cyclic(phases=N, states=Z, seed=0, clock=None):
    rng = np.random.default_rng(seed)
    P = [random_chain(rng, states, sticky=0.5 * (i % 2), floor=0.03) for i in range(phases)]
    return MarkovChain(P, clock=clock or Clock("steps", phases))


def expanded(chain):
    """The same problem on states (phase, z): a release (phase, y) tells the phase, which is known anyway."""
    n, states = chain.cycle.shape[:2]
    P = np.zeros((n, states, n, states))
    for phase in range(n):
        P[phase, :, (phase + 1) % n] = chain.cycle[phase]
    own = np.kron(np.eye(n), np.ones((states, states)))
    d = np.tile(DISTANCE, (n, n))
    both = vs.Both(vs.Average(weight=WEIGHT), vs.Instantaneous(0.0))
    return vs.Problem(vs.MarkovChain(P.reshape(n * states, -1)), d, both, worst=1 - own)


@pytest.fixture(scope="module")
def solved():
    problem = vs.Problem(cyclic(), DISTANCE, vs.Average(weight=WEIGHT))
    return vs.solve(problem, window=1, certify=True, certify_seconds=20)


def test_the_optimum_is_that_of_the_chain_on_phase_and_state(solved):
    other = vs.solve(expanded(solved.problem.chain), window=1, tolerance=1e-6)
    assert solved.objective == pytest.approx(other.objective, rel=2e-4)
    assert solved.leakage == pytest.approx(other.leakage, rel=1e-2)


def test_claims_hold_in_a_simulation_with_the_exact_belief(solved):
    found = vs.evaluate(solved.problem, solved.policy, steps=400, streams=400)
    assert found.distortion == pytest.approx(solved.distortion, abs=4 * found.distortion_se)
    assert found.leakage == pytest.approx(solved.leakage, rel=0.02)
    assert abs(solved.startup_bits) < 0.2


def test_the_clock_gains_and_nothing_is_lost_where_it_says_nothing(solved):
    chain = solved.problem.chain
    plain = vs.solve(vs.Problem(vs.MarkovChain(chain.transition), DISTANCE, vs.Average(weight=WEIGHT)), window=1)
    assert solved.objective < plain.objective
    alike = MarkovChain([chain.transition] * N, clock=Clock("steps", N))
    same = vs.solve(vs.Problem(alike, DISTANCE, vs.Average(weight=WEIGHT)), window=1)
    assert same.objective == pytest.approx(plain.objective, rel=1e-4)


def test_the_certificate_is_below_the_optimum_and_near_it(solved):
    assert solved.lower_bound <= solved.objective
    assert solved.gap < 0.01
    problem = expanded(solved.problem.chain)
    other = certify(problem.chain.transition, problem.cost(WEIGHT), seconds=5)
    assert solved.lower_bound == pytest.approx(other.lower_bound, rel=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_no_policy_is_below_a_bound_whatever_the_witness(seed):
    chain = cyclic(3, 2, seed)
    problem = vs.Problem(chain, DISTANCE[:2, :2], vs.Average(weight=2.0))
    best = min(vs.solve(problem, window=w).objective for w in (0, 1, 2))
    for policy, seconds in ((None, 0.0), (None, 2.0), (vs.solve(problem, window=1).policy, 2.0)):
        found = certify(chain, problem.cost(2.0), start=policy, seconds=seconds)
        assert found.lower_bound <= best + 1e-9
    assert found.lower_bound > 0.97 * best


def test_a_certificate_is_near_also_from_a_policy_that_never_shows_what_it_should():
    """One made for a tenth of the weight; a start from its own releases alone stays at 0.25 % (as without memory)."""
    problem = invented(6, 5).under(vs.Average(weight=2.0))
    best = vs.solve(problem, window=1).objective
    shy = vs.solve(problem.under(vs.Average(weight=0.2)), window=1).policy
    found = certify(problem.chain, problem.cost(2.0), start=shy, upper=best, seconds=30)
    assert found.lower_bound > 0.9985 * best and found.memory == 5


def test_a_certificate_keeps_its_time_by_leaving_out_what_would_not_fit(monkeypatch):
    """Time goes by a hundredth at every look at it: a memory whose first look would end too late is not begun."""
    chain = cyclic(6, 4, 0)
    problem = vs.Problem(chain, np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0))), vs.Average(weight=0.5))
    policy, found = vs.solve(problem, window=1).policy, {}
    for seconds in (3.0, 30.0):
        ticks = itertools.count()
        monkeypatch.setattr(sys.modules[certify.__module__], "perf_counter", lambda ticks=ticks: 0.01 * next(ticks))
        found[seconds] = certify(chain, problem.cost(0.5), start=policy, seconds=seconds, tolerance=0.0)
        assert found[seconds].seconds <= seconds + 0.2
    assert found[3.0].outcome.name == "TIME" and found[3.0].seconds < 3.0  # two releases were not begun
    assert found[3.0].memory == 4 and found[3.0].lower_bound <= found[30.0].lower_bound and found[30.0].memory == 16


@pytest.mark.slow
def test_limits_at_every_step_and_in_the_mean_are_met():
    problem = vs.Problem(cyclic(), DISTANCE, vs.Average(limit=0.4))
    mean = vs.solve(problem)
    assert 0.39 < mean.distortion <= 0.4
    strict = vs.solve(problem.under(vs.Instantaneous(1.0)))
    table = strict.policy.table()
    assert table[:, DISTANCE > 1].max() == 0
    bits = vs.solve(problem.under(vs.Budget(0.2)))
    assert 0.19 < bits.leakage <= 0.2
    silent = vs.solve(problem.under(vs.Average(limit=1.2)))
    assert silent.leakage == 0


@pytest.mark.slow
def test_weekends_apart_and_phases_of_several_steps_are_judged_on_the_true_week():
    clock = Clock("week", 2, 21600.0, 0.0, "Europe/London")  # four steps a day, two to a phase
    chain = cyclic(4, 3, 1, clock)
    problem = vs.Problem(chain, DISTANCE, vs.Average(weight=WEIGHT))
    solution = vs.solve(problem, certify=True, certify_seconds=10)
    assert len(LongRun(chain, solution.policy).steps) == 28
    found = vs.evaluate(problem, solution.policy, steps=280, streams=280)
    assert found.distortion == pytest.approx(solution.distortion, abs=4 * found.distortion_se)
    plain = vs.solve(problem, window=0, look_ahead=False)
    assert solution.lower_bound <= solution.objective <= plain.objective


def test_a_curve_is_one_batch():
    curve = vs.curve(vs.Problem(cyclic(), DISTANCE, vs.Average(weight=1.0)), [0.3, 1.0, 3.0])
    assert [s.leakage for s in curve] == sorted(s.leakage for s in curve)


@pytest.mark.parametrize("method", ["belief-greedy"])
def test_methods_that_cannot_see_the_clock_say_so(method):
    with pytest.raises(InputError, match="clock"):
        vs.solve(vs.Problem(cyclic(), DISTANCE, vs.Average(weight=1.0)), method)
