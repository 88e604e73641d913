"""The tool that chooses the constants of the rule: its run is the rule's, and what it must not see it does not."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import choose_feedback as tool
from oracles import recorded
from veilstream.control.feedback import Feedback
from veilstream.data.readings import MICROSECONDS, Account, Readings

SHARES = np.array([0.3, 0.5, 0.7, 0.85, 1.0, 1.15, 1.4])


def invented(hard, n=10):
    """Every rung felt at its share times how hard the period is; bits as on a convex curve."""
    felt = SHARES[:, None] * hard * n
    rule = Feedback(n, 1.0, 9.0, SHARES)
    bits = np.tile(-np.log2(SHARES / 4)[:, None] * n, (1, len(hard)))
    return tool.Case(rule, felt, felt, bits, np.full(len(hard), float(n)), (felt[:, :5], np.full(5, float(n))))


def test_a_case_is_run_by_the_rule_itself():
    """Period by period what a policy with these rungs would go through, were each felt as the table says."""
    case = invented(np.array([1.0, 1.6, 1.2, 1.3, 0.6, 0.5, 0.5, 0.5, 1.0]))
    ratio, over = case.run(case.rule, 4)
    rung, excess, mark, seen = np.array([4]), np.zeros(1), np.zeros(1), []
    for k in range(9):
        if k:
            rung = case.rule.moved(rung, case.rule.way(excess, excess - mark, rung))
            mark = excess
        for _ in range(10):
            excess = case.rule.counted(excess, case.felt[rung, k] / 10)
        seen.append(excess[0] / 10)
    assert over == pytest.approx(seen)
    assert 0.9 < ratio < 1.4  # a move costs a tenth of what ten steps tell


def test_swinging_settings_and_slow_ones_cost_more():
    rng = np.random.default_rng(0)
    some = [invented(h * np.exp(rng.normal(0, 0.1, 26))) for h in (0.8, 1.0, 1.5)]
    bits, late = tool.score(some, 0.4, 8, 4, 0)
    assert tool.score(some, 3.0, 1, 4, 0)[0] > bits
    assert tool.score(some, 0.05, 50, 4, 0)[1] > late
    assert tool.chosen({(1.0,): (1.0, 0.02), (2.0,): (1.001, 0.018), (3.0,): (1.2, 0.0)})[0][0] == (2.0,)


def meter(days):
    t = np.arange(48 * days) * 1800 * MICROSECONDS
    value = 0.3 + 0.2 * np.sin(2 * np.pi * np.arange(len(t)) / 48) + 0.01 * (np.arange(len(t)) % 7)
    frame = pl.DataFrame({"stream": 0, "trace": 0, "t": t, "value": value})
    return Readings(frame.with_columns(pl.col("stream", "trace").cast(pl.UInt32)), ("m",), "value", "kWh", Account())


def test_nothing_of_the_reported_part_is_seen():
    own = meter(7 * 24)
    before = tool.earlier(own)
    changed = own.frame.with_columns(
        pl.when(pl.col("t") > before.frame["t"].max())
        .then(pl.col("value") * 5)
        .otherwise(pl.col("value"))
        .alias("value")
    )
    assert before.frame["t"].max() < own.frame["t"].max() // 2 + 1
    assert tool.earlier(replace(own, frame=changed)).frame.equals(before.frame)
    turned = tool.backwards(before)
    assert turned.frame["t"].to_list() == before.frame["t"].to_list()
    assert turned.frame["value"].to_list() == before.frame["value"].to_list()[::-1]


def test_sums_in_periods_go_by_public_steps():
    on = recorded([np.zeros(5, int)], [np.array([0, 0, 3, 0, 9])], [np.zeros((5, 2))], first=[2])
    assert on.sums_in(4).tolist() == [2, 1, 1, 1]  # steps 2, 3, 7, 8 and 18 -> periods 0, 0, 1, 2, 4
