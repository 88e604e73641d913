"""Points of the paper's figures: kept one by one, resumed inside an item, trained where they should be."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oracles import recomputed, same_curve
from paperkit import TINY, counted, cut_after, quick
from reproduce import cache, fig_idc, learned, points, toy
from reproduce.geolife import digest
from reproduce.item import Budget, Desk, Finding
from reproduce.run import chosen, items, run
from veilstream.control.belief import GreedyRule
from veilstream.errors import InputError
from veilstream.model.builtin import builtin_problem
from veilstream.model.problem import Average, Instantaneous, Problem
from veilstream.solvers import solve
from veilstream.solvers.baselines import Baseline
from veilstream.solvers.solution import Level, Point


@pytest.mark.slow
def test_an_item_cut_in_the_middle_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(fig_idc, "LIMITS", (2, 3))
    monkeypatch.setattr(fig_idc, "today", lambda *_: [Point(None, 1.0, 1.0, Level.ESTIMATED)])
    monkeypatch.setattr(learned, "available", lambda: False)
    calls = counted(monkeypatch, points, stop_at=11)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, chosen("fig-idc"), TINY)
    first = calls[:-1]
    assert len(first) == 10 and not (tmp_path / "fig-idc.json").exists()
    calls = counted(monkeypatch, points)
    assert [o.state for o in run(tmp_path, chosen("fig-idc"), TINY)] == ["made"]
    assert len(first) + len(calls) == 3 * 2 * 4  # three methods and a roll-out at each point: none done twice
    assert [o.state for o in run(tmp_path, chosen("fig-idc"), TINY)] == ["kept"]
    calls = counted(monkeypatch, points)
    (tmp_path / "fig-idc.png").unlink()  # made anew from the points that are there
    assert [o.state for o in run(tmp_path, chosen("fig-idc"), TINY)] == ["made"] and not calls


@pytest.mark.slow
def test_a_training_that_was_cut_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    pytest.importorskip("jax")
    from veilstream.deep import a2c

    problem = builtin_problem("binary", Average(weight=1.0))
    whole = learned.trained(Desk("x", tmp_path / "whole", TINY), problem, "a2c")
    desk = Desk("x", tmp_path / "cut", TINY)
    go_on = cut_after(monkeypatch, a2c, a2c.A2C().starts)  # the first segment, once for every start
    with pytest.raises(KeyboardInterrupt):
        learned.trained(desk, problem, "a2c")
    assert [p.suffix for p in (tmp_path / "cut" / cache.FOLDER).iterdir()] == [".safetensors"]
    again = go_on()
    resumed = learned.trained(desk, problem, "a2c")
    assert len(again) == len(whole.history) - 1
    assert resumed.leakage == pytest.approx(whole.leakage, rel=1e-3) and same_curve(resumed.history, whole.history)
    assert [p.suffix for p in (tmp_path / "cut" / cache.FOLDER).iterdir()] == [".json"]  # the checkpoint is gone
    before = len(again)
    assert learned.trained(desk, problem, "a2c").leakage == resumed.leakage and len(again) == before  # read, not made
    other = learned.trained(desk, problem, "a2c", run=1)  # another seed is another point
    assert not same_curve(other.history, whole.history)


def test_another_problem_budget_or_damage_is_another_point(tmp_path):
    desk = Desk("x", tmp_path, TINY)
    made = []

    def figures():
        made.append(1)
        return {"value": len(made)}

    problem = builtin_problem("binary", Average(weight=1.0))
    other = builtin_problem("binary", Average(weight=1.0 + 1e-9))
    key = points.key_of(problem, "a2c", seed=0)
    assert desk.kept(key, figures) == desk.kept(key, figures) == {"value": 1}
    assert desk.kept(points.key_of(other, "a2c", seed=0), figures) == {"value": 2}
    assert desk.kept({**key, "seed": 1}, figures) == {"value": 3}
    desk.place(key, "json").write_text('{"key": ')
    assert desk.kept(key, figures) == {"value": 4}


def test_where_nothing_can_be_written_is_one_line(tmp_path):
    (tmp_path / cache.FOLDER).write_text("in the way")
    problem = builtin_problem("binary", Average(weight=1.0))
    with pytest.raises(InputError, match="cannot be written"):
        points.solved(Desk("x", tmp_path, TINY), problem, "myopic")
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(InputError, match="cannot be written"):
        run(tmp_path / "taken", chosen("toy"), TINY)
    if (there := Path("/proc/self")).is_dir():  # a folder that nobody can write to, root neither
        with pytest.raises(InputError, match=r"index.html: cannot be written"):
            run(there, chosen("toy"), TINY)
    if learned.available():
        with pytest.raises(InputError, match="cannot be written"):
            learned.trained(Desk("x", tmp_path, TINY), problem, "a2c")


def test_what_is_read_is_what_was_computed(tmp_path):
    desk = Desk("x", tmp_path, TINY)
    problem = builtin_problem("binary", Average(weight=2.0))
    first, again = (points.solved(desk, problem, certify=True) for _ in range(2))
    exact = solve(problem, certify=True, certify_seconds=TINY.certify_s)
    numbers = ("leakage", "distortion", "lower_bound", "gap")
    assert [getattr(first, k) for k in numbers] == [getattr(again, k) for k in numbers]  # the second was read
    assert (first.leakage, first.distortion) == recomputed((exact.leakage, exact.distortion))
    assert first.lower_bound == pytest.approx(exact.lower_bound, rel=0.01)  # each as tight as its 0.1 s allowed
    for s in (first, again):
        assert s.gap == recomputed((s.objective - s.lower_bound) / s.objective)
        assert s.level is Level.COMPUTED
        with pytest.raises(AttributeError):
            s.policy.start()  # never there, read or computed: no item can lean on it


def test_another_geolife_folder_is_other_data(tmp_path, monkeypatch):
    for name, size in (("a", 3), ("b", 3), ("c", 4)):
        folder = tmp_path / name / "016" / "Trajectory"
        folder.mkdir(parents=True)
        (folder / "1.plt").write_text("x" * size)
    a, b, c = (digest(tmp_path / name) for name in "abc")
    assert a == b != c

    def made(desk):
        desk.table(["a"], [[1.0]])
        for ending in ("png", "svg"):
            (desk.folder / f"{desk.name}.{ending}").write_text("x")
        return Finding("ours", "yes")

    item = replace(items()[0], name="fits", make=made, needs_geolife=True)
    monkeypatch.setattr("reproduce.run.items", lambda: [item])
    states = [run(tmp_path / "out", [item], TINY, tmp_path / name)[0].state for name in "aabc"]
    assert states == ["made", "kept", "kept", "made"]
    monkeypatch.setattr("reproduce.run.available", lambda: "otherwise")  # with JAX an item holds more
    assert run(tmp_path / "out", [item], TINY, tmp_path / "c")[0].state == "made"


def test_today_within_a_limit_keeps_it_and_leaks_more():
    problem = builtin_problem("grid4x4-q1", Instantaneous(2))
    best = solve(problem, "myopic").leakage
    for shape in ("planar-laplace", "rounding"):
        point = points.least_within(problem, Baseline(shape, settings=5, steps=40, streams=16))
        a = point.policy.channel(point.policy.start())
        assert (a[~problem.allowed] == 0).all() and np.allclose(a.sum(1), 1)
        assert point.leakage > best
    uniform = problem.allowed / problem.allowed.sum(1, keepdims=True)  # the limit of a weak planar Laplace
    weak = points.least_within(problem, Baseline("planar-laplace", settings=5, steps=40, streams=16))
    assert np.abs(weak.policy.channel(weak.policy.start()) - uniform).max() < 0.2


@pytest.mark.slow
def test_a_sweep_goes_on_from_the_networks_before_and_deploys_both_ways(tmp_path, monkeypatch):
    """Cut after the first weight it trains the second only; what is read back is what was trained."""
    pytest.importorskip("jax")
    from veilstream.deep import algorithm1

    problem, weights = builtin_problem("binary", Average(weight=1.0)), (0.0, 1.0)
    whole = learned.swept(Desk("x", tmp_path / "whole", TINY), problem, "a2c-paper", weights)
    assert [s.weight for _, s in whole] == list(weights)
    assert len({len(s.history) for _, s in whole}) == 1
    desk = Desk("x", tmp_path / "cut", TINY)
    go_on = cut_after(monkeypatch, algorithm1, TINY.segments)
    with pytest.raises(KeyboardInterrupt):
        learned.swept(desk, problem, "a2c-paper", weights)
    again = go_on()
    resumed = learned.swept(desk, problem, "a2c-paper", weights)
    assert len(again) == TINY.segments
    for (policy, s), (other, t) in zip(resumed, whole, strict=True):
        assert s.leakage == pytest.approx(t.leakage, rel=1e-3)
        b = policy.start()
        assert np.allclose(policy.channel(b), other.channel(b), atol=1e-4)
    mean, s = learned.mean_of(desk, *resumed[1])
    assert np.allclose(mean.channel(mean.start()), resumed[1][0].rule(problem.chain.initial))
    assert s.leakage < resumed[1][1].leakage  # L is convex in the channel: the mean leaks less than what is drawn
    files = {p.suffix for p in (tmp_path / "cut" / cache.FOLDER).iterdir()}
    assert files == {".json", ".policy"}


def test_look_ahead_at_the_toys_uniform_belief():
    """Better in the long run than the best for each step alone, and the pair form does not look at x_t-1."""
    from veilstream.control.belief import BeliefPolicy
    from veilstream.control.evaluate import evaluate

    problem = builtin_problem("grid2x3-toy", Average(weight=toy.WEIGHT))
    costs = []
    for rule in (toy.lookahead(problem, 0), GreedyRule(problem.cost(toy.WEIGHT))):
        ev = evaluate(problem, BeliefPolicy(problem.chain, rule), 60, 64)
        costs.append(ev.leakage + toy.WEIGHT * ev.distortion)
    exact = solve(problem)
    assert costs[0] < costs[1] and costs[0] == pytest.approx(exact.objective, rel=0.01)
    pair = Problem(problem.chain.lift(2), problem.distortion, problem.constraint)
    names = pair.chain.histories
    rows = toy.lookahead(pair, 0)(np.array([problem.chain.transition[old, new] / 6 for new, old in names]))
    assert toy.pair_spread({(n + 1, o + 1): r for (n, o), r in zip(names, rows, strict=True)}) < 1e-3
    short = toy.lookahead(problem, 0)(np.full(6, 1 / 6) @ problem.chain.transition)
    assert np.abs(rows - short[[new for new, _ in names]]).max() < 0.01


def test_full_says_the_papers_budget(monkeypatch):
    full = Budget.full()
    assert (full.paper_steps, full.streams, full.steps) == (5000 * 300, 5000, 300)
    assert full.everywhere and not Budget().everywhere and Budget().lstm_s <= 20 and Budget().certify_s <= 10


@pytest.mark.slow
def test_learned_methods_stand_everywhere_when_asked(tmp_path, monkeypatch):
    pytest.importorskip("jax")
    monkeypatch.setattr(fig_idc, "LIMITS", (1, 2))
    monkeypatch.setattr(fig_idc, "today", lambda *_: [Point(None, 1.0, 1.0, Level.ESTIMATED)])
    counted(monkeypatch, points)
    asked = []

    def pretend(desk, problem, method, run=0, **_):
        asked.append((problem.chain.name, method))
        history = [{"sample_objective": 1.0}]
        return replace(quick(problem), method=method, level=Level.ESTIMATED, history=history)

    monkeypatch.setattr(learned, "trained", pretend)  # each seed of a2c
    monkeypatch.setattr(fig_idc, "trained", pretend)
    seeds = TINY.a2c_runs
    for everywhere, count in ((False, 3 * 2 * seeds + 1), (True, 3 * 2 * (seeds + 1))):  # a2c stands at every point
        asked.clear()
        fig_idc.make(Desk("fig-idc", tmp_path, replace(TINY, everywhere=everywhere)))
        assert len(asked) == count
    assert "a2c" in (tmp_path / "fig-idc.csv").read_text()
    assert json.loads(next(Path(tmp_path / cache.FOLDER).glob("*.json")).read_text())["key"]["veilstream"]
