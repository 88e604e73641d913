"""One suite for every solver: a new one joins by a line in the list."""

import numpy as np
import pytest

import veilstream as vs
from veilstream.control.policy import restore
from veilstream.solvers import LEARNED, METHODS

WEIGHT = 2.0
PROBLEM = vs.builtin_problem("grid2x3-toy", vs.Average(weight=WEIGHT))
SOLVERS = {
    **{name: (name, {}) for name in METHODS},
    "belief-greedy": ("belief-greedy", {"steps": 60, "streams": 40, "tolerance": 1e-3}),
    "causal-ba, window 2": ("causal-ba", {"window": 2}),
    "a2c": ("a2c", {"width": 16, "updates": 100, "streams": 64, "segments": 2}),
    "a2c, rows drawn": ("a2c", {"width": 16, "updates": 60, "streams": 64, "segments": 2, "deploy": "sample"}),
    "a2c, as in the paper": ("a2c", {"mode": "paper", "width": 16, "steps": 4_000, "segments": 2}),
}


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=SOLVERS, ids=str)
def solved(request):
    method, options = SOLVERS[request.param]
    if method in LEARNED:
        pytest.importorskip("jax")
    told = []
    solution = vs.solve(PROBLEM, method, seed=1, progress=lambda f, what: told.append(f), **options)
    return method, options, solution, told


@pytest.fixture(scope="module")
def best():
    return vs.solve(PROBLEM, certify=True)


def test_every_named_method_is_in_the_list():
    assert {method for method, _ in SOLVERS.values()} == {*METHODS, *LEARNED}


def test_its_numbers_are_confirmed_by_simulation(solved):
    _, _, s, _ = solved
    ev = vs.evaluate(PROBLEM, s.policy, steps=200, streams=200, seed=5)
    assert ev.leakage == pytest.approx(s.leakage, abs=5 * (ev.leakage_se + s.leakage_se) + 0.02)
    assert ev.distortion == pytest.approx(s.distortion, abs=5 * (ev.distortion_se + s.distortion_se) + 0.02)


def test_it_is_never_below_the_proved_bound(solved, best):
    _, _, s, _ = solved
    assert s.objective + 5 * (s.leakage_se + WEIGHT * s.distortion_se) >= best.lower_bound


def test_it_says_what_it_did(solved):
    method, _, s, told = solved
    assert s.method == method and s.weight == WEIGHT and s.seconds > 0 and str(s.status) and str(s.level)
    assert all(0 <= f <= 1 for f in told)
    assert {"chain", "method", "window", "constraint", "leakage", "distortion", "weight", "objective", "lower_bound",
            "leakage_lower", "gap", "level", "status", "seconds"} <= set(s.to_json())  # fmt: skip


def test_its_policy_knows_its_chain_and_goes_through_a_file(solved):
    _, _, s, _ = solved
    assert s.policy.chain is PROBLEM.chain
    again = restore(*s.policy.export(), PROBLEM.chain)
    again.check()
    memory, other = s.policy.start(3), again.start(3)
    for y in ([0, 1, 2], [3, 4, 5]):
        assert again.channel(other) == pytest.approx(s.policy.channel(memory), abs=1e-6)
        memory, other = s.policy.update(memory, np.array(y)), again.update(other, np.array(y))


def test_the_same_seed_gives_the_same_policy(solved):
    method, options, s, _ = solved
    again = vs.solve(PROBLEM, method, seed=1, **options)
    assert (again.leakage, again.distortion) == pytest.approx((s.leakage, s.distortion), rel=1e-6)


def test_a_limit_is_kept_or_refused_in_one_line(solved):
    method, options, _, _ = solved
    problem, limit = vs.builtin_problem("binary", vs.Average(limit=0.1)), 0.1
    try:
        s = vs.solve(problem, method, seed=1, **options)
    except vs.InputError as refused:
        line = str(refused)
    else:
        line = ""
        assert s.distortion <= limit * (1 + 1e-6) + 4 * s.distortion_se
    assert "\n" not in line
