"""The exact solver against reference values, closed forms, brute force, a plain loop and many restarts."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

import veilstream as vs
from benchmarks.core import plain_causal_ba
from oracles import classical_rate, dense_law, joint_law, random_chain, recomputed, sequence_information
from veilstream.control import stationary
from veilstream.control.controller import Controller, schedule
from veilstream.control.stationary import LongRun, rates
from veilstream.model.distortion import euclidean, hamming
from veilstream.model.information import binary_entropy, mutual_information
from veilstream.solvers import Status
from veilstream.solvers.causal_ba import CausalBA
from veilstream.solvers.search import Axis, axis_of, bracket, on_chord, share_time
from veilstream.solvers.solution import Point

REFERENCE = json.loads((Path(__file__).parents[1] / "kit" / "reference.json").read_text())


@pytest.mark.parametrize("row", REFERENCE["average"], ids=lambda r: f"{r['chain']} {r['lam']}")
def test_reference_average(row):
    problem = vs.builtin_problem(row["chain"], vs.Average(weight=row["lam"]))
    s = vs.solve(problem)
    assert s.objective == pytest.approx(row["L"], rel=3e-3)
    assert s.status is Status.CONVERGED
    ev = vs.evaluate(problem, s.policy, steps=200, streams=128)
    margin = 4 * (ev.leakage_se + row["lam"] * ev.distortion_se) + 2e-3 * s.objective
    assert ev.leakage + row["lam"] * ev.distortion == pytest.approx(s.objective, abs=margin)


@pytest.mark.parametrize("row", REFERENCE["instantaneous"], ids=lambda r: f"{r['chain']} {r['limit']}")
def test_reference_instantaneous(row):
    problem = vs.builtin_problem(row["chain"], vs.Instantaneous(row["limit"]))
    s = vs.solve(problem)
    assert s.leakage == pytest.approx(row["leakage"], rel=3e-3, abs=1e-4)
    a = s.policy.channel(np.arange(s.policy.n_memories))
    assert (a[:, ~problem.allowed] == 0).all()  # the limit holds with probability one


@pytest.mark.parametrize("flip", [0.05, 0.1, 0.3])
def test_binary_chain_has_its_closed_form(flip):
    """R(D) = h(p*D) - h(D), and the weight is -dR/dD."""
    for D in (0.02, 0.05):
        mixed = flip + D - 2 * flip * D
        slope = np.log2((1 - D) / D) - (1 - 2 * flip) * np.log2((1 - mixed) / mixed)
        s = vs.solve(vs.builtin_problem("binary", vs.Average(weight=slope), flip=flip), tolerance=1e-8)
        closed = binary_entropy(mixed) - binary_entropy(D)
        if s.distortion == pytest.approx(D, abs=1e-3):  # else D lies beyond the critical distortion
            assert s.objective == pytest.approx(closed + slope * D, abs=1e-5)
        assert s.objective <= closed + slope * D + 1e-5


def test_a_memoryless_chain_is_classical_rate_distortion():
    rng = np.random.default_rng(0)
    law = rng.dirichlet(np.ones(5))
    d = rng.random((5, 4))
    problem = vs.Problem(vs.MarkovChain(np.tile(law, (5, 1))), d, vs.Average(weight=3.0))
    classical = classical_rate(law, 3 * d)
    for method in ("causal-ba", "myopic", "belief-greedy"):
        s = vs.solve(problem, method=method)
        assert s.objective == pytest.approx(classical, rel=5e-4), method


def test_against_the_plainest_loop():
    rng = np.random.default_rng(4)
    P, d = random_chain(rng, 4, sticky=0.5), rng.random((4, 3))
    problem = vs.Problem(vs.MarkovChain(P), d, vs.Average(weight=2.0))
    for window in (1, 2):
        s = vs.solve(problem, window=window, tolerance=1e-8)
        assert s.objective == pytest.approx(plain_causal_ba(P, 2 * d, 1000, window), rel=1e-4)


def test_window_zero_is_one_channel_for_ever():
    problem = vs.builtin_problem("grid2x3-toy", vs.Average(weight=2.0))
    s = vs.solve(problem, window=0)
    assert s.window == 0
    assert s.objective >= vs.solve(problem, window=1).objective - 1e-6


@pytest.mark.slow
def test_brute_force_optimum_of_a_tiny_horizon_is_not_beaten():
    """Theorems 1 and 2 of the paper: looking at x_(t-1), or at all of x^t, gains nothing over q(y|x_t, y^(t-1))."""
    P = np.array([[0.8, 0.2], [0.3, 0.7]])
    chain = vs.MarkovChain(P, initial=[0.6, 0.4])
    n, weight = 3, 1.5
    pi = chain.initial
    paths = [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)]
    prob = np.array([pi[x[0]] * P[x[0], x[1]] * P[x[1], x[2]] for x in paths])

    X = np.array(paths)
    wrong = (X[:, None] != X[None]).sum(-1)

    def best(see):
        """Over all causal mechanisms; see(t, x^t) says which part of the past they may look at."""
        keys: dict = {}
        at = [[[keys.setdefault((t, see(t, x), y[:t]), len(keys)) for t in range(n)] for y in paths] for x in paths]

        def objective(theta):
            q1 = 1 / (1 + np.exp(-theta[at]))  # x^n, y^n, t: P(y_t = 1 | what is seen)
            total = prob[:, None] * np.where(X, q1, 1 - q1).prod(-1)
            return float(mutual_information(total)) + weight * (total * wrong).sum()

        rng = np.random.default_rng(0)
        starts = [rng.normal(size=len(keys)) for _ in range(3)]
        return min(minimize(objective, v, method="L-BFGS-B").fun for v in starts)

    now = best(lambda t, x: x[t])
    pair = best(lambda t, x: x[max(t - 1, 0) : t + 1])
    everything = best(lambda t, x: x[: t + 1])
    assert now == pytest.approx(pair, abs=2e-3)
    assert now == pytest.approx(everything, abs=2e-3)


def test_the_paper_form_on_the_pair_chain_is_the_same_problem():
    toy = vs.builtin_problem("grid2x3-toy", vs.Average(weight=3.0))
    pair = vs.Problem(toy.chain.lift(2), toy.distortion, toy.constraint)
    one, two = vs.solve(toy, window=2), vs.solve(pair, window=2)
    assert two.objective == pytest.approx(one.objective, rel=1e-3)


HARD = {
    "sticky": lambda rng: (random_chain(rng, 12, sticky=0.97, density=0.3, floor=1e-5), 0.2),
    "sparse": lambda rng: (random_chain(rng, 20, density=0.15), 2.0),
    "nearly absorbing": lambda rng: (random_chain(rng, 6, sticky=0.99, density=0.2, floor=1e-6), 0.05),
    "two speeds": lambda rng: (0.5 * random_chain(rng, 10, sticky=0.99) + 0.5 * random_chain(rng, 10), 0.6),
}


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("outputs", [None, 3, 15])
@pytest.mark.slow
def test_as_good_as_many_restarts(kind, outputs):
    rng = np.random.default_rng(len(kind) + (outputs or 0))
    P, weight = HARD[kind](rng)
    x = 3 * rng.random((len(P), 2))
    d = euclidean(x, None if outputs is None else 3 * rng.random((outputs, 2)))
    problem = vs.Problem(vs.MarkovChain(P), d, vs.Average(weight=weight))
    s = vs.solve(problem)
    [many] = CausalBA(window=1, random_starts=20, seed=7).at(problem, np.array([weight]))
    assert s.objective <= many.objective(weight) * 1.005 or s.status is not Status.CONVERGED


def test_per_state_limits():
    rng = np.random.default_rng(5)
    P, x = random_chain(rng, 8, sticky=0.8), rng.random((8, 2))
    d = euclidean(x)
    limits = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 0.1]
    problem = vs.Problem(vs.MarkovChain(P), d, vs.Instantaneous(limits))
    s = vs.solve(problem)
    a = s.policy.channel(np.arange(s.policy.n_memories))
    assert (a * (d > np.array(limits)[:, None])).max() == 0
    loose = vs.solve(vs.Problem(vs.MarkovChain(P), d, vs.Instantaneous([v + 0.2 for v in limits])))
    assert loose.leakage <= s.leakage * 1.002


def test_chains_where_a_rate_alone_would_mislead():
    cycle = vs.MarkovChain(np.roll(np.eye(4), 1, axis=1))
    s = vs.solve(vs.Problem(cycle, hamming(4), vs.Average(weight=5.0)))
    assert s.objective == pytest.approx(0, abs=1e-4)  # published once, known for ever
    assert s.startup_bits == pytest.approx(2, abs=0.01)
    assert any("periodic" in w for w in s.warnings)
    still = vs.MarkovChain(np.eye(3), initial=[0.5, 0.25, 0.25])
    s = vs.solve(vs.Problem(still, hamming(3), vs.Average(weight=5.0)))
    assert s.leakage == pytest.approx(0, abs=1e-4)
    assert s.startup_bits == pytest.approx(1.5, abs=0.05)
    assert any("reducible" in w for w in s.warnings)
    absorbed = vs.MarkovChain([[0.9, 0.1], [0, 1]], initial=[1, 0])
    s = vs.solve(vs.Problem(absorbed, hamming(2), vs.Instantaneous(0)))
    assert s.leakage == pytest.approx(0, abs=1e-6)
    assert s.startup_bits > 1  # the moment of absorption is told
    assert any("transient" in w for w in s.warnings)


@pytest.mark.parametrize("limit", [0.0, 0.3, 0.6, 0.9])
def test_an_average_limit_is_met(limit):
    problem = vs.builtin_problem("grid2x3-toy", vs.Average(limit=limit))
    s = vs.solve(problem)
    assert s.distortion <= limit + 1e-6
    at_weight = vs.solve(vs.builtin_problem("grid2x3-toy", vs.Average(weight=s.weight)))
    assert s.objective <= at_weight.objective * 1.005 + 1e-6


@pytest.mark.slow
def test_time_is_shared_between_two_points_of_the_curve():
    """Two far apart towns, rarely left: what a schedule costs is computed, and one policy at the limit costs less."""
    P = np.array([[0.99, 0.01], [0.01, 0.99]])
    problem = vs.Problem(vs.MarkovChain(P), hamming(2), vs.Average(limit=0.25))
    within, beyond = CausalBA(window=1).at(problem, np.array([0.15, 0.0275]))
    assert within.distortion < 0.25 < beyond.distortion
    shared = share_time(problem, within, beyond, axis_of(problem.average, problem))
    assert shared.policy.turn is not None
    assert shared.distortion <= 0.25 + 1e-9
    period = shared.policy.places
    ev = vs.evaluate(problem, shared.policy, steps=4 * period, streams=64, burn_in=2 * period)
    assert ev.leakage <= shared.leakage + 4 * ev.leakage_se + 1e-4
    assert ev.distortion == pytest.approx(shared.distortion, abs=4 * ev.distortion_se + 5e-3)
    single = vs.solve(problem)  # the curve is bent here, if little: one policy meets the limit for less
    assert single.distortion == pytest.approx(0.25, rel=1e-3) and single.distortion <= 0.25 + 1e-9
    assert single.leakage < shared.leakage


def test_a_budget_of_bits():
    problem = vs.builtin_problem("grid2x3-toy", vs.Budget(0.4))
    s = vs.solve(problem)
    assert s.leakage <= 0.4 + 1e-6
    back = vs.solve(vs.builtin_problem("grid2x3-toy", vs.Average(limit=s.distortion)))
    assert back.leakage == pytest.approx(s.leakage, rel=0.01)
    assert vs.solve(vs.builtin_problem("grid2x3-toy", vs.Budget(0))).leakage == pytest.approx(0, abs=1e-7)


def test_both_constraints():
    both = vs.Both(vs.Average(limit=0.5), vs.Instantaneous(1))
    s = vs.solve(vs.builtin_problem("grid4x4-q1", both))
    assert s.distortion <= 0.5 + 1e-6
    assert s.leakage >= vs.solve(vs.builtin_problem("grid4x4-q1", vs.Instantaneous(1))).leakage * 0.999


def test_leakage_falls_as_the_limit_grows_and_rises_with_entropy():
    leak = [[vs.solve(vs.builtin_problem(f"grid4x4-q{q}", vs.Instantaneous(limit)), window=1).leakage
             for q in (2, 1, 0)] for limit in (1, 2, 3, 4)]  # fmt: skip
    leak = np.array(leak)
    assert (np.diff(leak, axis=0) < 1e-6).all()
    assert (np.diff(leak[:3], axis=1) > 0).all()  # Q2 < Q1 < Q0
    assert leak[3] == pytest.approx(0, abs=1e-6)


@pytest.mark.slow
def test_the_curve_is_concave_in_the_weight():
    curve = vs.curve(vs.builtin_problem("grid4x4-q2", vs.Average(weight=1)), weights=np.linspace(0.2, 5, 25))
    objective = np.array([s.objective for s in curve])
    assert (np.diff(objective) > -1e-9).all()
    assert (np.diff(objective, 2) < 1e-3).all()


def test_the_ends_around_a_limit_share_time_as_well_as_any_mixture():
    points = [Point(None, *p) for p in np.random.default_rng(5).random((30, 2)).tolist()]
    L, D = np.array([(p.leakage, p.distortion) for p in points]).T
    for limit in (0.1, 0.3, 0.6):
        axis = Axis(limit, lambda p: p.distortion)
        within, beyond = bracket(points, axis)
        least = linprog(L, [D], [limit], [np.ones(30)], [1]).fun  # of all mixtures that keep it
        found = within.leakage if beyond is None else on_chord(within, beyond, axis)[1]
        assert found == pytest.approx(least, abs=1e-9)


@pytest.mark.slow
@given(st.integers(0, 10_000))
@settings(max_examples=12, deadline=None)
def test_true_leakage_lies_between_nothing_and_the_promise(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    chain = vs.MarkovChain(random_chain(rng, n, sticky=rng.choice([0, 0.5]), floor=1e-3))
    problem = vs.Problem(chain, euclidean(rng.random((n, 2))), vs.Average(weight=float(rng.choice([0.5, 3, 10]))))
    s = vs.solve(problem)
    ev = vs.evaluate(problem, s.policy, steps=150, streams=100, burn_in=100, seed=seed)
    slack = 5 * ev.leakage_se + 1e-6
    assert -slack <= ev.leakage <= chain.entropy_rate + slack
    assert ev.leakage <= s.leakage + slack


def test_evaluate_agrees_with_enumeration():
    chain = vs.MarkovChain([[0.7, 0.3], [0.4, 0.6]])
    problem = vs.Problem(chain, hamming(2), vs.Average(weight=1))
    policy = Controller.of_table(np.random.default_rng(0).dirichlet([1, 1], (2, 2)), 1)
    whole, _ = sequence_information(chain, policy, 5)
    ev = vs.evaluate(problem, policy, steps=5, streams=20_000, burn_in=0)
    assert 5 * ev.leakage == pytest.approx(whole, abs=5 * 5 * ev.leakage_se)
    assert ev.total_bits == pytest.approx(5 * ev.leakage)


def test_steady_state_by_three_routes(monkeypatch):
    """Power iteration, Krylov's subspaces and the dense solve agree, and so do the two forms of the same policy."""
    problem = vs.builtin_problem("grid2x3-toy", vs.Average(weight=2.0))
    policy = vs.solve(problem, window=2).policy
    iterated = joint_law(problem.chain, policy)
    monkeypatch.setattr(stationary, "POWER_STEPS", 0)
    assert joint_law(problem.chain, policy) == pytest.approx(iterated, abs=1e-8)
    assert dense_law(problem.chain, policy) == pytest.approx(iterated, abs=1e-8)
    plain = replace(
        policy, automaton=policy.automaton.apart, output_model=np.ones((1, 36, 6)), kernel=policy.table()[None]
    )
    assert rates(problem, plain).leakage == pytest.approx(rates(problem, policy).leakage, abs=1e-9)


def test_a_schedule_of_one_policy_is_that_policy():
    problem = vs.builtin_problem("binary", vs.Average(weight=3.0))
    policy = vs.solve(problem).policy
    now = rates(problem, policy)
    assert rates(problem, schedule((policy, policy), (3, 5))) == pytest.approx((now.leakage, now.distortion))


def test_startup_bits_are_what_the_first_steps_add():
    problem = vs.builtin_problem("binary", vs.Average(weight=4.0), flip=0.05)
    s = vs.solve(problem)
    total, _ = sequence_information(problem.chain, s.policy, 6)
    assert total == pytest.approx(6 * s.leakage + s.startup_bits, abs=2e-3)
    assert LongRun(problem.chain, s.policy).startup_bits(problem.distortion) == recomputed(s.startup_bits)


@pytest.mark.slow
def test_what_people_use_today_leaks_more_at_equal_distortion():
    chain = vs.MarkovChain(random_chain(np.random.default_rng(1), 8, sticky=0.9, floor=1e-4))
    d = euclidean(np.random.default_rng(2).random((8, 2)))
    problem = vs.Problem(chain, d, vs.Average(limit=0.15))
    ours, laplace = vs.solve(problem), vs.solve(problem, method="planar-laplace")
    assert laplace.distortion == pytest.approx(0.15, abs=1e-6)
    assert laplace.leakage > 1.2 * ours.leakage


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "causal_ba"}, "did you mean causal-ba"),
        ({"method": "magic"}, "known: causal-ba"),
        ({"window": -1}, "window must be"),
        ({"max_sweeps": 0}, "max_sweeps"),
        ({"colour": "red"}, "no option 'colour'"),
    ],
)
def test_bad_options_are_one_clear_line(options, says):
    with pytest.raises(vs.InputError, match=says):
        vs.solve(vs.builtin_problem("binary", vs.Average(weight=1)), **options)


def test_infeasible_and_foreign_input():
    d = np.array([[1.0, 2], [2, 1]])
    with pytest.raises(vs.InputError, match="infeasible limit"):
        vs.solve(vs.Problem(vs.builtin("binary"), d, vs.Average(limit=0.5)))
    policy = vs.solve(vs.builtin_problem("binary", vs.Average(weight=1))).policy
    with pytest.raises(vs.InputError, match="the policy is for 2 states"):
        vs.evaluate(vs.builtin_problem("grid2x3-toy", vs.Average(weight=1)), policy)
    with pytest.raises(vs.InputError, match="cannot keep a limit"):
        vs.solve(vs.builtin_problem("grid4x4-q1", vs.Instantaneous(1)), method="planar-laplace")
