"""The gateway's promises, without a protocol: one release per step, blind to the value, fails closed."""

import json
import logging
import math
import threading

import numpy as np
import pytest
from scipy.stats import chi2

from gatewaykit import artefact, core_of, places, problem_of, window_policy
from oracles import joint_law
from veilstream.artefact import save
from veilstream.control.belief import BeliefPolicy, GreedyRule
from veilstream.control.controller import schedule
from veilstream.control.evaluate import evaluate
from veilstream.control.release import Releaser
from veilstream.control.uniforms import uniforms
from veilstream.errors import InputError
from veilstream.gateway.records import Outcome, Private, Status, Stream
from veilstream.gateway.scheduler import _bytes_of, _waiting
from veilstream.gateway.service import Clock
from veilstream.gateway.wire import Grid, Reading, Refusal
from veilstream.model.chain import MarkovChain
from veilstream.model.distortion import hamming
from veilstream.model.problem import Average, Instantaneous, Problem, leakage


@pytest.fixture
def plain(tmp_path):
    return artefact(tmp_path / "policy.veil")


def one(core, *readings):
    return core.process(readings).outcomes


# --- steps -----------------------------------------------------------------------------------------------


def test_one_batch_is_the_same_as_one_by_one(plain):
    """Repeats, lateness and several steps of one stream inside a batch."""
    readings = [
        Reading(s, t, t, 2.0) for s, t in [("a", 0), ("b", 4), ("a", 0), ("a", 2), ("a", 1), ("b", 4), ("a", 3)]
    ]
    with core_of(plain, uniforms=lambda n: np.full(n, 0.4)) as core:
        together = core.process(readings).outcomes
    with core_of(plain, uniforms=lambda n: np.full(n, 0.4)) as core:
        assert together == [one(core, r)[0] for r in readings]  # six decimals of the meter leave, no last bits
    assert [o.status for o in together] == [
        Status.released,
        Status.released,
        Status.repeated,
        Status.released,
        Refusal.late,
        Status.repeated,
        Status.released,
    ]


def test_a_gap_moves_the_belief_by_the_chain(plain):
    with core_of(plain) as core:
        one(core, Reading("a", 0, 0, 3.0))
        before = core.store.load("", "a")
        one(core, Reading("a", 4, 4, 3.0))
        after = core.store.load("", "a")
    moved = np.frombuffer(before.belief) @ np.linalg.matrix_power(plain.chain.transition, 3)
    channel = plain.policy.channel(np.frombuffer(before.memory, np.int64)[0])
    assert after.total - before.total == pytest.approx(float(leakage(moved, channel)), abs=1e-12)


def test_grid_times_and_time_zones():
    grid = Grid(300.0, 100.0)
    assert grid.step(100) == (0, 100)
    assert grid.step(399.9) == (0, 100)
    assert grid.step(99) == (-1, -200)
    assert grid.step("1970-01-01T00:05:00+00:00") == (0, "1970-01-01T00:01:40Z")
    assert grid.step("1970-01-01T01:07:00+01:00")[0] == grid.step("1970-01-01T00:07:00")[0] == grid.step("420")[0] == 1
    for period in (0.1, 0.3, 7.7, 300.0):
        for step in (-3, 0, 1, 3, 12345, 10**9):
            assert Grid(period, 17.0).step(Grid(period, 17.0).time(step))[0] == step
    for bad in (None, "noon", "", math.nan, math.inf, 1e300, "2020-13-01", "1e5x"):
        assert grid.step(bad) is None
    assert Grid().step(3.5) is None
    assert Grid().step("2020-01-01T00:00:00Z") is None


def test_the_future_is_refused_by_the_clock(tmp_path):
    art = artefact(tmp_path / "p.veil", period_s=60.0)
    with core_of(art, now=lambda: 6000.0) as core:
        assert one(core, Reading("a", 101, 6060, 1.0))[0].status is Status.released
        assert one(core, Reading("a", 102, 6120, 1.0))[0].status is Refusal.ahead
    with core_of(art, now=lambda: 6000.0, max_ahead=5) as core:
        assert one(core, Reading("a", 105, 6300, 1.0))[0].status is Status.released
        assert one(core, Reading("a", 106, 6360, 1.0))[0].status is Refusal.ahead


# --- the same loop as everywhere else --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["window", "belief", "schedule", "order 2"])
def test_the_gateway_runs_the_releasers_loop_also_over_restarts(tmp_path, kind):
    """Same uniforms, same releases and meter as one Releaser that was never stopped."""
    problem = problem_of("grid2x3-toy")
    if kind == "order 2":
        chain = MarkovChain.fit(problem.chain.sample(400, 2), order=2, smoothing=0.1)
        problem = Problem(chain, hamming(6), Average(weight=1.0))
    window, chain = window_policy(problem), problem.chain
    belief = BeliefPolicy(chain, GreedyRule(problem.cost(1.0), tolerance=1e-3))
    policy = {"belief": belief, "schedule": schedule((window, window_policy(problem, 1)), (2, 3))}.get(kind, window)
    art = save(tmp_path / "p.veil", policy, problem=problem)
    x = problem.chain.symbols[problem.chain.sample(24, 1, seed=2)[0]]
    alone, source = Releaser(art.policy, art.problem, seed=9), uniforms(9)
    expected = [(alone.release(int(symbol)), alone.leaked_bits) for symbol in x]
    found = []
    for start in range(0, 24, 4):
        with core_of(art, tmp_path / "s.db", uniforms=source) as core:
            for t in range(start, start + 4):
                release = one(core, Reading("a", t, t, float(x[t])))[0].release
                found.append((release.released, release.leaked_bits))
    assert [y for y, _ in found] == [y for y, _ in expected]
    np.testing.assert_allclose([bits for _, bits in found], [bits for _, bits in expected], atol=1e-6)


def test_looking_while_counting(plain):
    """The page asks from another thread all the time."""
    with core_of(plain) as core:
        ended, failures = threading.Event(), []

        def look():
            try:
                while not ended.is_set():
                    core.stats.status(None)
                    core.stats.metrics()
            except (RuntimeError, IndexError) as error:
                failures.append(error)

        looker = threading.Thread(target=look)
        looker.start()
        for t in range(60):
            core.process([Reading(f"s{i}", t, t, 1.0) for i in range(300)])
        ended.set()
        looker.join()
    assert failures == []


# --- what leaves is what was promised --------------------------------------------------------------------


def test_the_sequence_that_leaves_has_the_promised_law_and_the_meter_agrees(tmp_path):
    """Chi-square on the transitions y -> y', and the meter's total against evaluate."""
    art = artefact(tmp_path / "p.veil", name="grid2x3-toy")
    n, steps, burn = 200, 150, 30
    x = art.chain.sample(steps, n, seed=11)
    with core_of(art, tmp_path / "s.db") as core:
        out = [
            [o.release for o in one(core, *(Reading(f"s{i}", t, t, float(x[i, t])) for i in range(n)))]
            for t in range(steps)
        ]
    y = np.array([[r.released for r in row] for row in out])
    mu = joint_law(art.chain, art.policy)
    table = art.policy.channel(np.arange(6))
    law = np.einsum("sz,szy->sy", mu, table)  # window 1: s is the last release
    seen = np.zeros((6, 6))
    np.add.at(seen, (y[burn:-1].ravel(), y[burn + 1 :].ravel()), 1)
    rows = seen.sum(1, keepdims=True)
    expected = rows * law / law.sum(1, keepdims=True)
    statistic = ((seen - expected) ** 2 / expected).sum()
    assert chi2.sf(statistic, 30) > 1e-3
    wrong = rows * law[::-1] / law[::-1].sum(1, keepdims=True)  # the test can fail
    assert chi2.sf(((seen - wrong) ** 2 / wrong).sum(), 30) < 1e-6
    promised = evaluate(art.problem, art.policy, steps=120, burn_in=30, streams=n, seed=3)
    totals = np.array([r.leaked_bits for r in out[-1]])
    error = np.hypot(totals.std(ddof=1) / np.sqrt(n), 150 * promised.leakage_se)
    assert totals.mean() == pytest.approx(promised.total_bits, abs=4 * error)


def test_the_meter_shows_the_same_for_two_truths_with_the_same_releases(plain):
    """The uniforms are chosen so that both truths release the same; every public byte must agree."""
    shown = []
    for truth in ([3.0] * 20, [12.0, math.nan] * 10):
        with core_of(plain) as core:
            S, ys = core.spaces[""], iter(range(1000))
            messages = []
            for t, value in enumerate(truth):
                y = next(ys) % 16
                s = core.store.load("", "a")
                memory = plain.policy.start() if s is None else np.frombuffer(s.memory, np.int64)[0]
                belief = plain.chain.initial if s is None else np.frombuffer(s.belief)
                a = plain.policy.channel(memory)
                symbol = S.encoder.encode([value])[0]
                row = np.cumsum(a[symbol] if symbol >= 0 else belief @ a)
                core.scheduler._uniforms = lambda n, u=((row[y - 1] if y else 0) + row[y]) / 2: np.array([u])
                messages.append(one(core, Reading("a", t, t, value))[0])
            shown.append((messages, core.stats.recent, core.stats.refused, core.stats.released))
    assert shown[0] == shown[1]  # to the six decimals of the meter that leave


def test_the_ceiling_holds_in_the_gateway_and_silence_is_remembered(tmp_path):
    problem = Problem(MarkovChain.fit([[0, 1, 2, 3] * 5], smoothing=1.0), 1 - np.eye(4), Instantaneous(0.5))
    art = save(tmp_path / "p.veil", window_policy(problem), problem=problem)
    with core_of(art, tmp_path / "s.db", ceiling=3.0) as core:
        outcomes = one(core, *(Reading("a", t, t, float(t % 4)) for t in range(10)))
        silent = [t for t, o in enumerate(outcomes) if o.release is None]
        assert silent
        assert all(o.status is Status.released for o in outcomes)
        assert all(o.release.leaked_bits <= 3.0 for o in outcomes if o.release)
        assert one(core, Reading("a", silent[0], silent[0], 1.0))[0] == Outcome(Status.repeated)
        assert core.stats.silent == len(silent)


def test_releases_beyond_the_ceiling_are_counted_where_the_owner_looks(tmp_path):
    with core_of(artefact(tmp_path / "p.veil"), ceiling=5.0) as core:
        outcomes = one(core, *(Reading("a", t, t, float(t % 4)) for t in range(60)))
        totals = [o.release.leaked_bits for o in outcomes]
        blind = [o.blind for o in outcomes]
        assert not blind[0] and blind[-1] and max(totals) <= 5.0
        assert core.stats.blind == sum(blind) == core.stats.status(5.0)["blind"]
        still = [total == before for before, total in zip([0.0, *totals], totals, strict=False)]
        assert blind == still  # what does not look adds nothing
    with core_of(artefact(tmp_path / "p.veil")) as core:
        one(core, *(Reading("a", t, t, float(t % 4)) for t in range(60)))
        assert core.stats.blind == 0


# --- presence --------------------------------------------------------------------------------------------


def test_the_clock_releases_whether_a_reading_came_or_not(tmp_path):
    art = artefact(tmp_path / "p.veil", period_s=60.0)
    moment = [6000.0]
    with core_of(art, tmp_path / "s.db", now=lambda: moment[0], clock=True) as core:
        assert [o.status for o in one(core, Reading("a", 100, 6000, 3.0), Reading("b", 100, 6000, math.nan))] == [
            Status.waiting
        ] * 2
        assert one(core, Reading("a", 100, 6000, 9.0))[0].status is Status.waiting
        assert core.store.load("", "a").private.pending_symbol == 3  # the first decides
        assert one(core, Reading("a", 99, 5940, 3.0))[0].status is Refusal.late
        assert one(core, Reading("a", 101, 6060, 3.0))[0].status is Refusal.ahead
        ticked = core.tick("", 100)
        assert [o.release.stream for o in ticked] == ["a", "b"]
        assert core.tick("", 100) == []  # once
        assert core.store.load("", "a").private.state == 3
        moment[0] = 6060.0
        assert one(core, Reading("a", 100, 6000, 3.0))[0] == Outcome(
            Status.repeated, ticked[0].release, ticked[0].message
        )
        later = core.tick("", 101)  # nobody sent anything
        assert [(o.release.stream, o.release.t) for o in later] == [("a", 6060), ("b", 6060)]
        assert (core.store.load("", "a").private.state, core.store.load("", "b").private.state) == (3, -1)
        assert (core.store.load("", "a").private.faults, core.store.load("", "b").private.faults) == (0, 1)


def test_the_clock_ticks_at_the_end_of_every_step(tmp_path):
    class Stop:
        def __init__(self):
            self.waits = []

        def wait(self, seconds):
            self.waits.append(round(seconds, 3))
            moment[0] += seconds
            return len(self.waits) > 3

    moment = [6010.0]
    with core_of(artefact(tmp_path / "p.veil", period_s=60.0), now=lambda: moment[0], clock=True) as core:
        one(core, Reading("a", 100, 6000, 3.0))
        stop = Stop()
        Clock(core, "").run(stop)
        assert stop.waits[:3] == [50.0, 60.0, 60.0]
        assert core.stats.released == 3
    with pytest.raises(InputError, match="period"), core_of(artefact(tmp_path / "q.veil"), clock=True):
        pass


# --- sizes, secrets --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_more_streams_than_are_kept_at_hand(plain, tmp_path):
    with core_of(plain, tmp_path / "s.db", max_streams=40_000) as core:
        for start in range(0, 40_000, 5000):
            outcomes = one(core, *(Reading(f"stream {start + i}", 0, 0, 1.0) for i in range(5000)))
            assert all(o.status is Status.released for o in outcomes)
        assert one(core, Reading("one more", 0, 0, 1.0))[0].status is Refusal.too_many_streams
        assert one(core, Reading("stream 7", 1, 1, 1.0))[0].status is Status.released
        assert len(core._cache) <= 20_000
        assert len(core.stats.status(None)["recent"]) <= 200
        assert core.stats.streams == core.store.count_streams() == 40_000


CANARY = 39.912345678


def test_no_true_value_in_store_messages_metrics_or_logs(tmp_path, caplog):
    """Also: the file itself holds it nowhere; with a clock only the private columns hold the true state."""
    caplog.set_level(logging.DEBUG)
    art = artefact(tmp_path / "p.veil", states=places(), period_s=60.0)
    for clock in (False, True):
        path = tmp_path / f"clock {clock}.db"
        with core_of(art, path, clock=clock, now=lambda: 6000.0) as core:
            readings = [Reading("a", 100, 6000, (CANARY, 116.312345678)), Reading("b", 100, 6000, (CANARY, math.inf))]
            outcomes = core.process(readings).outcomes
            if clock:
                outcomes = core.tick("", 100)
            public = repr(outcomes) + json.dumps(core.stats.status(None), default=str) + core.stats.metrics()
            rows = core.store.file.db.execute("SELECT * FROM streams ORDER BY id").fetchall()
        blob = b"".join(f.read_bytes() for f in tmp_path.glob(f"clock {clock}.db*"))
        assert "912345" not in public + caplog.text
        assert b"912345" not in blob
        assert np.float64(CANARY).tobytes() not in blob
        kept = Stream.of(rows[0])
        true_state = int(core.spaces[""].encoder.encode([(CANARY, 116.312345678)])[0])
        assert kept.private.state == (true_state if clock else -1)


def test_a_store_kept_with_another_meter_is_refused_before_any_reading(tmp_path):
    art = artefact(tmp_path / "p.veil", period_s=60.0)
    clocked = {"clock": True, "now": lambda: 6000.0}
    for step in (100, 101):
        with core_of(art, tmp_path / "s.db", meter="exact", **clocked) as core:
            core.process([Reading("a", 100, 6000, 3.0)])
            assert core.tick("", step)[0].release is not None
    with (
        pytest.raises(InputError, match="another `meter`"),
        core_of(art, tmp_path / "s.db", meter="capacity", **clocked),
    ):
        pass


def test_new_streams_of_one_batch_count_against_the_limit_one_by_one(plain):
    with core_of(plain, max_streams=3) as core:
        core.process([Reading("a", 0, 0, 1.0)])
        batch = [Reading(name, t, t, 1.0) for name in "abcdebe" for t in (1, 2)]
        outcomes = dict(zip([(r.stream, r.step) for r in batch], core.process(batch).outcomes, strict=True))
        refused = {stream for (stream, _), o in outcomes.items() if o.status is Refusal.too_many_streams}
        assert refused == {"d", "e"} and core.streams == core.store.count_streams() == 3
        assert core.process([Reading("c", 3, 3, 1.0)]).outcomes[0].status is Status.released


@pytest.mark.parametrize("point", [3.5, (39.9, 116.3), None, math.nan])
def test_a_reading_that_waits_is_the_one_of_its_tick(point):
    s = Private(pending_step=7, pending_point=_bytes_of(point))
    width = 2 if isinstance(point, tuple) else 1
    found = _waiting(s, 7, width)
    assert found == point or np.isnan(found).all()
    for other in (_waiting(s, 8, width), _waiting(Private(pending_step=7), 7, width), found):
        assert isinstance(other, tuple) == isinstance(point, tuple)
        assert other is found or np.isnan(other).all()
