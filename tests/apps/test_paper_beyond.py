"""Beyond the paper: the same policies at equal distortion, judged by rules that can fail."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from real_data import GEOLIFE, METER, needs_geolife, needs_meter
from reproduce import beyond_meters, beyond_orders, beyond_users
from reproduce.beyond import at_equal_distortion, blind
from reproduce.geolife import users
from reproduce.item import Budget, Desk
from reproduce.meters import household as household_of
from reproduce.run import chosen, run
from veilstream.control.evaluate import evaluate
from veilstream.data.synthetic import household
from veilstream.errors import InputError
from veilstream.model.builtin import builtin, builtin_problem
from veilstream.model.chain import MarkovChain
from veilstream.model.problem import Average, Problem
from veilstream.solvers import search, solve
from veilstream.solvers.solution import Point

pytestmark = pytest.mark.slow
QUICK = Budget(certify_s=0.2, streams=32, steps=60)
GRID = builtin_problem("grid4x4-q2", Average(weight=1.0)).distortion


@pytest.fixture
def desk(tmp_path):
    return Desk("beyond", tmp_path, QUICK)


def test_the_three_are_compared_at_the_same_distortion(desk):
    chain = builtin("grid4x4-q2")
    equal = at_equal_distortion(desk, chain, GRID, 0.25, certify=True)
    limit = 0.25 * blind(chain, GRID)
    assert blind(chain, GRID) == pytest.approx((chain.stationary @ GRID).min())
    for s in (equal.ours, equal.myopic, equal.laplace):
        assert s.distortion == pytest.approx(limit, rel=0.02)
    assert 0 < equal.ours.leakage_lower <= equal.ours.leakage <= equal.myopic.leakage < equal.laplace.leakage
    assert equal.ratio > 1


def test_a_judge_sees_when_laplace_is_better(desk):
    good = at_equal_distortion(desk, builtin("grid4x4-q2"), GRID, 0.25)
    bad = replace(good, ours=good.laplace, laplace=good.ours)
    fine, poor = {"a": [good] * 3, "b": [good] * 3}, {"a": [bad] * 3, "b": [good] * 3}
    assert beyond_users.judge(fine, {"a": 1.0, "b": 1.0}, []).agrees == "yes"
    assert beyond_users.judge(poor, {"a": 1.0, "b": 1.0}, ["c (one stop only)"]).agrees == "no"
    assert "c (one stop only)" in beyond_users.judge(fine, {"a": 1.0}, ["c (one stop only)"]).ours
    limited = [0.4, 0.3, 0.2, 0.1]
    assert beyond_meters.judge(fine, [], "a", limited).agrees == "yes"
    assert beyond_meters.judge(poor, [], "a", limited).agrees == "no"


def test_a_policy_that_looks_at_the_newest_symbol_of_histories_is_the_same_policy():
    rng = np.random.default_rng(0)
    chain = MarkovChain(rng.dirichlet(np.ones(3), 3))
    second = MarkovChain.fit([chain.sample(60_000, seed=1)[0]], 3, order=2)
    d = 1 - np.eye(3)
    policy = solve(Problem(chain, d, Average(limit=0.3)), window=1).policy
    one = evaluate(Problem(chain, d, Average(weight=1.0)), policy, 400, 400)
    two = evaluate(Problem(second, d, Average(weight=1.0)), policy, 400, 400, view=second.symbols)
    assert two.leakage == pytest.approx(one.leakage, abs=5 * np.hypot(one.leakage_se, two.leakage_se) + 0.005)
    assert two.distortion == pytest.approx(one.distortion, abs=0.01)


def test_households_of_a_file_and_one_that_cannot_be_fitted(tmp_path, monkeypatch):
    monkeypatch.setattr(beyond_meters, "SHARES", (0.25,))
    monkeypatch.setattr(beyond_meters, "LIMITS_KWH", (0.5,))
    monkeypatch.setattr(beyond_meters, "POINTS", 3)
    source = household(400, seed=3)
    values = source.states.coordinates[source.path, 0] + np.random.default_rng(0).normal(0, 0.01, 400)
    lines = ["timestamp,one,two,flat"]
    for i, v in enumerate(values):
        stamp = f"2024-01-{1 + i // 48:02d} {i % 48 // 2:02d}:{30 * (i % 2):02d}:00"
        lines.append(f"{stamp},{abs(v):.4f},{abs(values[-1 - i]):.4f},0.5")
    (tmp_path / "homes.csv").write_text("\n".join(lines) + "\n")
    (made,) = run(tmp_path / "out", chosen("beyond-meters"), QUICK, meters=tmp_path / "homes.csv")
    assert made.state == "made" and made.finding.agrees in ("yes", "in part")
    with (tmp_path / "out" / "beyond-meters.csv").open() as f:
        rows = list(csv.DictReader(f))
    assert {"one", "two"} <= {r["case"] for r in rows} and {r["method"] for r in rows} == {
        "causal-ba",
        "myopic",
        "planar-laplace",
    }
    assert "flat" in made.finding.ours
    assert "beyond it we ask" in (tmp_path / "out" / "index.html").read_text()


def test_without_meters_it_is_skipped_and_a_wrong_file_is_one_line(tmp_path):
    (skipped,) = run(tmp_path, chosen("beyond-meters"), QUICK)
    assert skipped.finding is None and "needs a CSV of meter readings" in skipped.state
    with pytest.raises(InputError, match="no such file"):
        run(tmp_path, chosen("beyond-meters"), QUICK, meters=tmp_path / "none.csv")


@needs_geolife
def test_the_users_beside_the_papers_own_come_after_it():
    names = [p.name for p in users(GEOLIFE)]
    assert names[0] == "016" and {"006", "008", "018"} <= set(names)
    assert users(GEOLIFE / "016")[0].name == "016"


@needs_geolife
@needs_meter
def test_orders_of_a_household_are_judged_by_held_out_loss(tmp_path, monkeypatch):
    """Another household stands for user 016, which takes longer."""
    monkeypatch.setattr(beyond_orders, "ORDERS", (1, 2))
    monkeypatch.setattr(beyond_orders, "BINS", 4)
    monkeypatch.setattr(beyond_orders, "model", lambda geolife, k: household_of(METER, "MAC000003", 4, k))
    (made,) = run(tmp_path, chosen("beyond-orders"), QUICK, GEOLIFE, meters=METER)
    with (tmp_path / "beyond-orders.csv").open() as f:
        rows = list(csv.DictReader(f))
    assert [r["case"] + " " + r["order"] for r in rows] == [f"{c} {k}" for c in ("user 016", "MAC000002") for k in "12"]
    loss = {(r["case"], r["order"]): float(r["held_out_bits"]) for r in rows}
    better = [c for c in ("user 016", "MAC000002") if loss[c, "2"] < loss[c, "1"]]
    assert made.finding.agrees == ("yes" if better else "no")
    for r in rows:  # an optimum is not above another policy at its distortion
        spread = 4 * float(r["order_1_policy_standard_error"]) + 0.01
        assert float(r["leakage_bits"]) <= float(r["order_1_policy_leakage_bits"]) + spread


def test_a_schedules_blocks_stay_within_themselves(monkeypatch):
    """A limit no share can keep: the policy within it is taken, whatever the length of the block."""
    problem = Problem(builtin("binary"), 1 - np.eye(2), Average(limit=0.2))
    within, beyond = (solve(Problem(problem.chain, problem.distortion, Average(weight=w))) for w in (6.0, 1.0))
    points = [Point(s.policy, s.leakage, s.distortion) for s in (within, beyond)]
    assert points[0].distortion < 0.2 * 0.9 and points[1].distortion > points[0].distortion
    monkeypatch.setattr(search, "rates", lambda problem, schedule: (0.0, 1.0))
    axis = search.axis_of(Average(limit=(points[0].distortion + points[1].distortion) / 2), problem)
    assert search.share_time(problem, *points, axis) is points[0]
