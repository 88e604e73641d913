"""A limit on later data: broken, not shown to be kept, kept; one rule, and sentences that say no more than it."""

from itertools import product

import numpy as np
import pytest

import veilstream as vs
from oracles import recorded
from veilstream.control.limit_check import LEAST_UNITS, TOLERANCE, HeldOut, Verdict, check_limits, limits_json, weakest
from veilstream.control.replay import ReplayResult
from veilstream.model.interval import Interval, ratio_interval

NONE = Interval(0.0, 0.0, 0.0)


def seen(low, value, high, units=17):
    return HeldOut(units, "traces", NONE, Interval(value, low, high), NONE)


def verdict(low, value, high, limit=0.75, units=17):
    [check] = check_limits(vs.Average(limit=limit), seen(low, value, high, units), "km")
    return check


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ((0.57, 1.21, 2.24), "not shown to be kept"),  # issue 27: its interval covers the limit, its mean does not
        ((0.853, 1.15, 1.44), "broken"),
        ((0.42, 0.636, 0.887), "not shown to be kept"),
        ((0.70, 0.74, 0.78), "kept"),
        ((0.42, 0.6, 0.75), "kept"),
        ((0.751, 0.76, 0.77), "broken"),  # within the tolerance, but surely above
    ],
)
def test_the_verdict_is_the_one_its_interval_allows(figures, expected):
    check = verdict(*figures)
    assert check.verdict == expected and check.words.startswith(f"Limit {expected}")
    low, value, high = figures
    assert f"{value:.3g} [{low:.3g}, {high:.3g}] km" in check.words and "at most 0.75 km" in check.words
    assert ("above the limit" in check.words) == (expected == "not shown to be kept" and value > 0.75)
    assert (f"within {TOLERANCE:.0%}" in check.words) == (expected == "kept" and high > 0.75)
    assert limits_json([check])["limits"][0]["later"] == {"value": value, "low": low, "high": high}


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        ("km", "an error of at most 0.75 km on average"),
        ("", "an error of at most 0.75 units on average"),
        ("%", "an error in at most 0.75 % of steps"),
    ],
)
def test_a_limit_on_the_mean_is_said_as_an_error(unit, words):
    [check] = check_limits(vs.Average(limit=0.75), None, unit)
    assert check.asked == words


def test_few_traces_and_none_show_nothing():
    assert verdict(0.1, 0.2, 0.3, units=LEAST_UNITS - 1).verdict is Verdict.NOT_SHOWN
    assert verdict(5.0, 6.0, 7.0, units=LEAST_UNITS - 1).verdict is Verdict.NOT_SHOWN
    [nothing] = check_limits(vs.Average(limit=0.75), None, "km")
    assert nothing.verdict is Verdict.NOT_SHOWN and "no later data" in nothing.words
    assert check_limits(vs.Average(weight=1.0), seen(1, 2, 3), "km") == []
    assert weakest([]) is None and limits_json([]) == {}


def test_a_mean_exactly_at_the_limit_is_rarely_called_broken_and_one_beyond_it_rarely_kept():
    """400 people of 20 weeks each, whose true mean is known."""
    rng, n = np.random.default_rng(0), 400
    for truth, wrong in ((1.0, Verdict.BROKEN), (1.0 + TOLERANCE, Verdict.KEPT)):
        weeks = truth * rng.gamma(4.0, 1 / 4.0, (n, 20))
        found = []
        for row in weeks:
            figure = ratio_interval(row * 336, np.full(20, 336.0))
            found.append(verdict(figure.low, figure.value, figure.high, limit=1.0, units=20).verdict)
        assert found.count(wrong) / n < 0.06  # 2.5 % at this end of an exact interval


def test_of_two_limits_the_weakest_speaks_first():
    both = vs.Both(vs.Average(limit=1.0), vs.Instantaneous(2.0))
    for mean, beyond in product((0.5, 2.0), (0.0, 0.01)):
        later = HeldOut(17, "traces", NONE, Interval(mean, mean, mean), NONE, Interval(beyond, 0.0, beyond))
        checks = check_limits(both, later, "km")
        parts = {Verdict.BROKEN if mean > 1 else Verdict.KEPT, Verdict.BROKEN if beyond else Verdict.KEPT}
        assert {c.verdict for c in checks} == parts and checks[0].verdict is weakest(checks)
        assert (weakest(checks) is Verdict.BROKEN) == (mean > 1 or beyond > 0)


def test_a_share_of_readings_may_lie_beyond_a_limit_at_every_step_where_that_was_asked():
    def check(value, low, high):
        later = HeldOut(17, "traces", NONE, NONE, NONE, Interval(value, low, high))
        return check_limits(vs.Instantaneous(0.5), later, "km", beyond=0.01)[0]

    assert check(0.005, 0.001, 0.0099).verdict is Verdict.KEPT
    assert check(0.02, 0.011, 0.03).verdict is Verdict.BROKEN
    assert check(0.012, 0.005, 0.02).verdict is Verdict.NOT_SHOWN


def test_a_step_in_a_billion_breaks_no_limit_but_one_in_a_thousand_does():
    for value, expected in ((2e-11, Verdict.KEPT), (1e-3, Verdict.BROKEN)):
        later = HeldOut(17, "traces", NONE, NONE, NONE, Interval(value, 0.0, 2 * value))
        [check] = check_limits(vs.Instantaneous(6.0), later, "km")
        assert check.verdict is expected and "e-" not in check.words


def test_a_budget_is_about_bits():
    later = HeldOut(17, "traces", NONE, NONE, Interval(0.2, 0.15, 0.25))
    [check] = check_limits(vs.Budget(0.1), later, "km")
    assert check.verdict is Verdict.BROKEN and "0.2 [0.15, 0.25] bits per step" in check.words


def test_steps_beyond_a_limit_at_every_step_are_counted_as_the_channel_says():
    rng = np.random.default_rng(3)
    chain = vs.MarkovChain([[0.8, 0.2], [0.3, 0.7]])
    table, limit = np.array([[0.9, 0.1], [0.4, 0.6]]), (0.3, 0.6)
    z, far = rng.integers(0, 2, 200), rng.random((200, 2))
    replay = recorded([z], [np.zeros(200, int)], [far], units=[np.arange(200) // 10])
    problem = vs.Problem(chain, np.zeros((2, 2)), vs.Instantaneous(limit), worst=np.zeros((2, 2)))
    found = HeldOut.of(replay, vs.Controller.of_table(table), problem)
    expected = sum(table[x, y] for x, d in zip(z, far, strict=True) for y in range(2) if d[y] > limit[x]) / 200
    assert found.beyond.value == pytest.approx(expected) and found.beyond.low < expected < found.beyond.high
    assert HeldOut.read(found.to_json()) == found


def test_what_the_truth_would_reveal_is_never_more_than_log2_of_the_states():
    """Issue 27: 4.512 bits of 12 bins, which can tell 3.58 at most."""
    stays = np.full((4, 4), 0.001) + 0.996 * np.eye(4)
    chain = vs.MarkovChain(stays)
    jumps, sits = np.arange(40) % 4, np.zeros(40, int)
    gaps = [np.zeros(40, int)]
    log_loss = -(np.log2(0.25) + 39 * np.log2(0.001)) / 40
    assert log_loss > 2 and recorded([jumps], gaps, [np.zeros((40, 4))]).truth(chain) == pytest.approx(2.0)
    bits = -(np.log2(0.25) + 39 * np.log2(0.997)) / 40
    assert recorded([sits], gaps, [np.zeros((40, 4))]).truth(chain) == pytest.approx(bits)


def test_what_is_kept_back_is_a_share_of_the_truth_on_the_same_steps():
    rng = np.random.default_rng(5)
    chain = vs.MarkovChain([[0.8, 0.2], [0.3, 0.7]])
    replay = recorded([rng.integers(0, 2, 300)], [np.zeros(300, int)], [rng.random((300, 2))])
    found = replay.whole(vs.Controller.of_table([[0.9, 0.1], [0.2, 0.8]]), chain)
    assert found.truth == replay.truth(chain) and found.kept_back == pytest.approx(1 - found.bits / found.truth)
    assert ReplayResult.of(found.to_json()).truth == found.truth
