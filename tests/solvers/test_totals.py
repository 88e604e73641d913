"""Releases that add up in the mean."""

from functools import cache

import numpy as np
import pytest

import veilstream as vs
from veilstream.control.mechanism import Mechanism
from veilstream.data.states import StateSpace
from veilstream.data.trajectories import Trajectories
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.problem import Average, Both, Budget, Instantaneous
from veilstream.solvers.totals import CLOSE, tilted

P = np.array([[0.8, 0.15, 0.05], [0.3, 0.6, 0.1], [0.2, 0.3, 0.5]])
METER = StateSpace("bins", [[0.11], [0.42], [1.61]], ("low", "middle", "high"), "kWh", [0.25, 0.9])
N = 900
LIMIT = Average(limit=0.22)

pytestmark = pytest.mark.slow


def meter(distortion="felt"):
    rng = np.random.default_rng(3)
    z = vs.MarkovChain(P).sample(N, seed=rng)[0]
    values = (np.array([0.05, 0.25, 0.9])[z] + rng.uniform(0, [0.15, 0.4, 1.2], (N, 3))[np.arange(N), z])[:, None]
    steps = np.arange(N) + (np.arange(N) > 400) * 50  # with a gap
    record = Trajectories(np.zeros(N, int), steps, values, METER.encode(values)).recorded()
    return Utility.of(vs.MarkovChain.fit([record.symbols], 3), METER, record, distortion), values[:, 0]


@cache
def keeping(constraint):
    """What the meter tells, and a policy that keeps its total: found once, looked at by several tests."""
    utility, values = meter()
    problem = utility.problem(constraint)
    more = {"certify": True, "certify_seconds": 2.0} if constraint == LIMIT else {}
    return utility, values, problem, vs.solve(problem, total=utility.total(), replay=utility.replay, window=1, **more)


def mean_release(policy, symbols, levels):
    """By the laws of all memories, step by step, with nothing of the replay's own."""
    table, law, total = policy.table(), None, 0.0
    law = np.eye(len(table))[int(policy.start())]
    for x in symbols:
        joint = law[:, None] * table[:, x]  # S x Y
        total += float(joint.sum(0) @ levels)
        law = np.zeros(len(table))
        for s in range(len(table)):
            for y in range(len(levels)):
                law[int(policy.update(np.int64(s), y))] += joint[s, y]
    return total / len(symbols)


@pytest.mark.parametrize(
    "constraint",
    [LIMIT, Average(weight=3.0), Budget(0.3), Instantaneous(1.4),
     Both(Average(limit=0.25), Instantaneous(1.4))],
    ids=str,
)  # fmt: skip
def test_the_mean_total_is_that_of_the_readings(constraint):
    utility, values, problem, kept = keeping(constraint)
    total = utility.total()
    assert abs(kept.total.off) <= 5 * CLOSE and kept.problem is problem
    assert kept.total.off == pytest.approx(total.off(kept.policy))
    if kept.policy.places == 1:
        mean = mean_release(kept.policy, utility.replay.states, total.levels)
        assert mean / values.mean() - 1 == pytest.approx(kept.total.off, abs=1e-9)
    if (limit := getattr(problem.average, "limit", None)) is not None:
        assert kept.record.error <= limit * 1.001
    if problem.allowed.all():
        return
    assert (kept.policy.channel(kept.policy.start())[~problem.allowed] == 0).all()


def test_single_releases_spread_as_is_said():
    utility, values, _, kept = keeping(LIMIT)
    mechanism, rng, n = Mechanism(kept.policy, kept.problem), np.random.default_rng(1), 60
    s, sums = mechanism.start(n), np.zeros(n)
    path, gaps = utility.replay.states, utility.replay.gaps
    for x, gap in zip(path.tolist(), gaps.tolist(), strict=True):
        s = mechanism.skip(s, gap) if gap else s
        s, y = mechanism.step(s, np.full(n, x), rng.random(n))
        sums += utility.total().levels[y]
    sums = sums / len(path) / values.mean() - 1
    assert np.mean(sums) == pytest.approx(kept.total.off, abs=4 * np.std(sums) / 60**0.5)
    assert np.std(sums, ddof=1) == pytest.approx(kept.total.spread, rel=0.35)


def test_what_it_costs_and_what_it_mends_is_told():
    utility, _, problem, kept = keeping(LIMIT)
    plain = vs.solve(problem, window=1, replay=utility.replay)
    assert kept.total.off_before == pytest.approx(utility.total().off(plain.policy))
    assert abs(kept.total.off_before) > 20 * CLOSE
    assert kept.total.bits == pytest.approx(kept.record.bits - plain.record.bits)
    assert kept.leakage >= plain.leakage * 0.999  # one condition more
    assert kept.lower_bound <= kept.leakage + kept.weight * kept.distortion + 1e-9
    assert kept.to_json()["total"]["off"] == kept.total.off


def test_a_limit_so_loose_that_nothing_need_be_told_is_kept_by_turns():
    utility, _ = meter()
    loose = utility.problem(Average(limit=2.0))
    assert vs.solve(loose, window=1, replay=utility.replay).leakage < 1e-6
    kept = vs.solve(loose, total=utility.total(), replay=utility.replay, window=1)
    assert abs(kept.total.off) < 0.02 and kept.leakage < 0.01  # two constants on a public schedule


def test_tilting_changes_no_order_that_depends_on_the_state_alone():
    utility, _ = meter()
    problem = utility.problem(Average(weight=2.0))
    lean = tilted(problem, utility.total().levels, 0.3)
    extra = lean.distortion - problem.distortion - 0.3 * utility.total().levels
    assert np.ptp(extra, axis=1) == pytest.approx(0, abs=1e-12) and (lean.distortion >= 0).all()


def test_it_is_for_values_with_their_readings():
    from veilstream.data.synthetic import city

    source = city(300)
    record = Trajectories(
        np.zeros(300, int), np.arange(300), source.points, source.states.encode(source.points)
    ).recorded()
    for utility in (
        Utility.of(source.chain, source.states, record),
        Utility.of(vs.MarkovChain(P), METER),
        meter("states")[0],
    ):
        with pytest.raises(InputError, match="`keep_total` is for values"):
            utility.total()
