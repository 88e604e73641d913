"""Each method by itself: the judges of the paper's items, and rules that can fail."""

from dataclasses import replace

import numpy as np
import pytest

from paperkit import TINY, quick
from reproduce import convergence, fig_adc, fig_geolife, fig_idc
from reproduce.item import BETTER, NO, NOT_RUN, OPTIMUM, PART, PUBLISHED, YES, Finding
from reproduce.run import items, run
from veilstream.model.builtin import builtin_problem
from veilstream.model.chain import MarkovChain
from veilstream.model.problem import Average, Instantaneous, Problem
from veilstream.solvers import solve
from veilstream.solvers.solution import Level, Point


def solutions_idc():
    found = {}
    for chain in fig_idc.CHAINS:
        for limit in fig_idc.LIMITS:
            s = quick(builtin_problem(f"grid4x4-{chain}", Instantaneous(limit)))
            s = replace(s, leakage_lower=0.98 * s.leakage)
            found |= {(chain, limit, m): s for m in ("causal-ba", "myopic", "belief-greedy")}
    return found


def test_the_judge_of_limits_sees_what_is_wrong():
    found = solutions_idc()
    assert fig_idc.judge(found).verdicts[OPTIMUM] == "yes"
    swapped = {({"q0": "q2", "q2": "q0"}.get(c, c), k, m): s for (c, k, m), s in found.items()}
    assert fig_idc.judge(swapped).verdicts[OPTIMUM] == "no"
    worse = replace(found["q0", 2, "myopic"], leakage=found["q0", 2, "myopic"].leakage + 0.01)
    unequal = fig_idc.judge({**found, ("q0", 2, "myopic"): worse})
    assert unequal.verdicts[OPTIMUM] == "no" and "not equal" in unequal.why
    low = replace(found["q1", 3, "belief-greedy"], leakage=0.9 * found["q1", 3, "belief-greedy"].leakage)
    below = fig_idc.judge({**found, ("q1", 3, "a2c"): low})
    assert below.verdicts[OPTIMUM] == "no" and "Q1 3 a2c" in below.ours
    wide = replace(low, leakage_se=0.1 * low.leakage)  # an estimate whose interval holds the bound is no contradiction
    assert fig_idc.judge({**found, ("q1", 3, "a2c"): wide}).verdicts[OPTIMUM] == "yes"


def test_the_judge_of_averages_sees_what_is_wrong():
    found = {}
    for chain in fig_adc.CHAINS:
        problem = builtin_problem(f"grid4x4-{chain}", Average(weight=1.0))
        row = []
        for weight in (0.5, 1.0, 2.0, 4.0):
            s = solve(replace(problem, constraint=Average(weight=weight)), "myopic")
            row.append(s.with_bound(0.98 * s.objective, None))
        found[chain] = problem, {"causal-ba": row, "myopic": row}, {}
    assert fig_adc.judge(found).verdicts[OPTIMUM] == "in part"  # all holds but that myopic leaks much more for Q2
    p, curves, _ = found["q2"]
    much = [replace(s, leakage=1.3 * s.leakage) for s in curves["myopic"]]
    assert fig_adc.judge({**found, "q2": (p, {**curves, "myopic": much}, {})}).verdicts[OPTIMUM] == "yes"
    assert fig_adc.judge({**found, "q0": found["q2"], "q2": found["q0"]}).verdicts[OPTIMUM] == "no"
    p, curves, _ = found["q0"]
    much = [replace(s, leakage=1.3 * s.leakage) for s in curves["myopic"]]
    assert fig_adc.judge({**found, "q0": (p, {**curves, "myopic": much}, {})}).verdicts[OPTIMUM] == "no"
    cheat = Point(None, curves["causal-ba"][0].leakage * 0.5, curves["causal-ba"][0].distortion, Level.ESTIMATED)
    told = fig_adc.judge({**found, "q0": (p, curves, {"rounding": [cheat]})})
    assert told.verdicts[OPTIMUM] == "no" and "Q0 rounding" in told.ours


def test_the_judge_of_geolife_sees_the_bound_and_the_order():
    chain = MarkovChain(np.full((2, 2), 0.5))
    problem = Problem(chain, 1 - np.eye(2), Average(weight=1.0))
    s = solve(problem, "myopic").with_bound(0.0, None)

    def limits(bits, low=0.0):
        got = {}
        for km, leak in zip(fig_geolife.LIMITS_KM, bits, strict=True):
            at = replace(s, leakage=leak, leakage_lower=low)
            ev = fig_geolife.Evaluation(leak, 0.1, 0.01, 0.01, 1.0, 10, 10, 3)
            got[km] = fig_geolife.AtEveryStep({"causal-ba": at, "myopic": at}, None, ev)
        return got

    curves = {"causal-ba": [s]}
    paper = (0.8, 0.6, 0.53, 0.39, 0.3, 0.18)
    assert fig_geolife.judge(problem, limits(paper), curves).verdicts[OPTIMUM] == "yes"
    assert fig_geolife.judge(problem, limits(np.array(paper) / 3), curves).verdicts[OPTIMUM] == "in part"
    assert fig_geolife.judge(problem, limits(paper[::-1]), curves).verdicts[OPTIMUM] == "no"
    assert fig_geolife.judge(problem, limits(paper, low=0.2), curves).verdicts[OPTIMUM] == "no"


@pytest.mark.parametrize(
    ("published", "better", "optimum", "together"),
    [
        (YES, NO, NO, YES),
        (NO, YES, YES, NO),
        (NOT_RUN, YES, YES, PART),
        ("not judged: run at 1 of 12 points", NOT_RUN, YES, PART),
        (NOT_RUN, NOT_RUN, NO, NO),
        (NOT_RUN, PART, NOT_RUN, PART),
        (NOT_RUN, NOT_RUN, NOT_RUN, NOT_RUN),
    ],
)
def test_together_there_is_no_yes_unless_the_paper_s_method_was_run(published, better, optimum, together):
    assert Finding.judged("", "", published, better, optimum).agrees == together


def test_a_learned_method_is_judged_by_its_own_points_and_only_if_it_has_them_all():
    found = solutions_idc()
    told = fig_idc.judge(found)
    assert told.agrees == PART and told.verdicts == {PUBLISHED: NOT_RUN, BETTER: NOT_RUN, OPTIMUM: YES}
    one = fig_idc.judge({**found, ("q2", 2, "a2c-paper"): found["q2", 2, "causal-ba"]})
    assert one.verdicts[PUBLISHED] == "not judged: run at 1 of 12 points" and one.agrees == PART
    every = {(c, k, "a2c-paper"): replace(s, leakage=2 * s.leakage) for (c, k, m), s in found.items() if m == "myopic"}
    assert fig_idc.judge({**found, **every}).agrees == YES  # far from the optimum, and the order holds of it
    level = {at: replace(s, leakage=9.0 if at[0] == "q2" else 5.0) for at, s in every.items()}
    other = fig_idc.judge({**found, **level})
    assert other.agrees == NO and other.verdicts[OPTIMUM] == YES  # it does not hold of it, whatever the optimum does


def test_the_judge_of_convergence_sees_each_band():
    best = quick(builtin_problem("grid4x4-q2", Average(weight=1.0)))
    steps, start = np.arange(1.0, 9.0), np.linspace(2.0, 1.0, 8)
    there = best.objective * np.array([[1.5, 1.3, 1.1, *[1.01] * 5]] * 2)
    moving, stuck = best.objective * (start + 0.5)[None], best.objective * np.full((2, 8), 1.6)
    for runs, word in ((there, YES), (moving, PART), (stuck, NO)):
        told = convergence.judge({"a2c-paper": (steps, runs), "a2c": (steps, there)}, best, TINY)
        assert (told.agrees, told.verdicts[BETTER], told.verdicts[OPTIMUM]) == (word, YES, NOT_RUN)


def test_verdicts_survive_the_file_and_stand_on_the_page(tmp_path, monkeypatch):
    def made(desk):
        desk.table(["a"], [[1.0]])
        for ending in ("png", "svg"):
            (desk.folder / f"{desk.name}.{ending}").write_text("x")
        told = Finding.judged("ours", "", optimum=YES, ran="the exact solver: 3 of 3 points.")
        return replace(told, table=[["policy", "bits"], ["myopic", "< 1"]])

    item = replace(items()[0], name="fits", make=made)
    monkeypatch.setattr("reproduce.run.items", lambda: [item])
    first, again = (run(tmp_path, [item], TINY)[0] for _ in range(2))
    assert again.state == "kept" and again.finding == first.finding and first.finding.agrees == PART
    page = (tmp_path / "index.html").read_text()
    assert '<dt>the system as published</dt><dd class="part">not run</dd>' in page
    assert '<dt>the optimum</dt><dd class="yes">yes</dd>' in page
    assert "<dt>what was run</dt><dd>the exact solver: 3 of 3 points. Took 0 s of processor time.</dd>" in page
    assert again.cpu_s == round(first.cpu_s, 1)
    assert "<th>policy</th><th>bits</th></tr><tr><td>myopic</td><td>&lt; 1</td></tr></table>" in page
    assert '<td class="part">not run</td><td class="part">not run</td><td class="yes">yes</td><td>0</td></tr>' in page
