"""What a gateway keeps of how its readings go with the model, and the owner's look at it: `veil status`."""

import json
import math
import os
import re
import signal
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from gatewaykit import artefact, core_of, levels, places, problem_of, window_policy
from veilcli import refused, veil
from veilstream.artefact import save
from veilstream.control.drift import Drift, Same, Sums, span
from veilstream.data.crossval import losses
from veilstream.data.spec import Recording
from veilstream.gateway.drift import Watch, Watched
from veilstream.gateway.records import STREAM, Stream
from veilstream.gateway.store import Store, StoreError
from veilstream.gateway.wire import Reading
from veilstream.model.chain import MarkovChain
from veilstream.model.clock import Clock
from veilstream.model.histories import BLIND, TrueStates
from veilstream.model.interval import Interval, ratio_interval
from veilstream.model.problem import Average, Problem

WEEK = 7 * 86_400


# --- the sums --------------------------------------------------------------------------------------------------


def test_an_interval_from_sums_is_the_bootstraps():
    rng = np.random.default_rng(0)
    for weeks in (12, 40):
        n = rng.integers(20, 300, weeks).astype(float)
        s = n * (1.5 + rng.normal(0, 0.2, weeks))
        kept = Sums()
        for a, b in zip(n, s, strict=True):
            kept = kept._replace(n=a, s=b).closed()
        drawn, found = ratio_interval(s, n), kept.interval
        assert found.value == pytest.approx(drawn.value) and kept.of == weeks and kept.steps == n.sum()
        assert found.high - found.low == pytest.approx(drawn.high - drawn.low, rel=0.12)


def chain_of(kind: str) -> MarkovChain:
    rng = np.random.default_rng(3)
    if kind == "order 2":
        return MarkovChain.fit([rng.integers(0, 3, 400)], n_states=3, order=2, smoothing=0.5)
    if kind == "day":
        return MarkovChain(rng.dirichlet(np.ones(4), (6, 4)), clock=Clock("day", 6, 14400.0, 0.0, None))
    return MarkovChain(rng.dirichlet(np.ones(4), 4))


@pytest.mark.parametrize("kind", ["order 1", "order 2", "day"])
@pytest.mark.parametrize("holds", [True, False])
def test_the_loss_is_that_of_the_runs_that_a_fit_would_make(kind, holds):
    """The oracle: cut at gaps, filled with the last known state, scored by `losses`; in batches of any size."""
    chain, rng = chain_of(kind), np.random.default_rng(5)
    recording = Recording(14400.0, max_gap_s=3 * 14400.0, fill="hold" if holds else "close")
    watch = Watch(chain, recording, TrueStates.of(chain))
    step = np.cumsum(rng.choice([1, 1, 1, 2, 3, 4, 9], 300)) + 1000
    x = rng.integers(0, chain.n_symbols, 300)
    x[rng.random(300) < 0.1] = BLIND
    kept, at = None, 0
    while at < 300:
        to = at + int(rng.integers(1, 20))
        kept = watch.follow(kept, x[at:to].tolist(), step[at:to].tolist(), [math.nan] * len(x[at:to]))
        at = to
    runs, starts = [], []
    for t, symbol in zip(step[x != BLIND].tolist(), x[x != BLIND].tolist(), strict=True):
        missing = t - starts[-1] - len(runs[-1]) if runs else 99
        if missing <= (2 if holds else 0):
            runs[-1] += [runs[-1][-1]] * missing + [symbol]
        else:
            runs.append([symbol])
            starts.append(t)
    bits = np.concatenate(losses(chain, [np.array(r) for r in runs], starts))
    found = Watched.of(kept).loss
    assert found.steps == len(bits) and found.interval.value == pytest.approx(bits.mean())
    ends = [t + k for t, run in zip(starts, runs, strict=True) for k in range(1, len(run))]
    assert found.of <= len({t * 14400 // WEEK for t in ends}) <= found.of + 2


def drift_of(path) -> dict[str, Watched]:
    with sqlite3.connect(path) as db:
        return {
            s.name: Watched.of(s.private.drift) for s in map(Stream.of, db.execute(f"SELECT {STREAM} FROM streams"))
        }


def test_felt_is_the_distance_from_the_reading_itself(tmp_path):
    art = artefact(tmp_path / "p.veil", states=places(), period_s=60.0)
    points = [(39.9 + 0.001 * i, 116.31) for i in range(20)] + [(math.nan, 116.3), None]
    with core_of(art, tmp_path / "s.db", now=lambda: 60.0 * 200) as core:
        out = core.process([Reading("a", 100 + i, 60 * (100 + i), p) for i, p in enumerate(points)]).outcomes
        at = [(o.release.lat, o.release.lon) for o in out]
    far = art.states.distances_from(points[:20])
    found = drift_of(tmp_path / "s.db")["a"]
    told = [far[i, [tuple(c) for c in art.states.coordinates].index(at[i])] for i in range(20)]
    assert found.felt.steps == 20 and found.felt.interval.value == pytest.approx(np.mean(told))
    assert found.state == art.states.encode([points[19]])[0] and found.step == 119


def test_a_wild_number_counts_but_not_for_ever(tmp_path):
    with core_of(levels(tmp_path / "p.veil", "kWh"), tmp_path / "s.db", now=lambda: 60.0 * 200) as core:
        core.process([Reading("a", 100 + i, 60 * (100 + i), v) for i, v in enumerate([1e300, -1e308, 0.5])])
    felt = drift_of(tmp_path / "s.db")["a"].felt
    assert felt.steps == 3 and felt.interval.value < 20 * 1.9


def test_readings_outside_the_map_are_hinted_at_and_their_error_is_at_least(tmp_path):
    """A person abroad: a wild distance is cut at ten times the map, so that a mean of it says too little."""
    problem = Problem(MarkovChain(np.full((4, 4), 1 / 4)), places(4).distances(), Average(limit=0.5))
    parts = {"problem": problem, "states": places(4), "period_s": 60.0}
    art = save(tmp_path / "p.veil", window_policy(problem), **parts)
    away = [(39.9, 116.3 + 0.001 * i) for i in range(3)], [(-33.9, 151.2)] * 3
    for name, points in zip(("home", "abroad"), away, strict=True):
        with core_of(art, tmp_path / f"{name}.db", now=lambda: 60.0 * 200) as core:
            core.process([Reading("a", 100 + i, 60 * (100 + i), p) for i, p in enumerate(points)])
        said, found = (veil("status", tmp_path / f"{name}.db", *more).stdout for more in ((), ("--json",)))
        [stream] = json.loads(found)["streams"]
        assert stream["outside_map"] == (name == "abroad") == ("at least " in said) == ("outside the map" in said)
        assert stream["felt"]["low"] >= 0 and stream["limit_verdict"] == "not shown to be kept"


def test_no_distance_is_said_to_be_negative():
    """Issue 27: weeks that differ much gave an interval that began below 0."""
    sums = Sums()
    for week in (0.0, 0.0, 0.0, 9.0):
        sums = sums._replace(n=10.0, s=10 * week).closed()
    found = sums.interval
    assert found.low == 0 < found.value < found.high


def test_under_a_clock_a_step_without_a_reading_counts_for_nothing(tmp_path):
    art, moment = artefact(tmp_path / "p.veil", period_s=60.0), [0.0]
    with core_of(art, tmp_path / "s.db", clock=True, now=lambda: moment[0]) as core:
        for step in range(100, 110):
            moment[0] = 60.0 * step
            if step in (100, 101, 105, 106, 108):
                core.process([Reading("a", step, 60 * step, None if step == 106 else 3.0)])
            core.tick("", step)
    found = drift_of(tmp_path / "s.db")["a"]
    assert found.loss.steps == 1 and found.felt.steps == 4 and found.step == 108
    P = art.problem.chain.transition
    assert found.loss.interval.value == pytest.approx(-np.log2(P[3, 3]))


# --- once, whatever happens ------------------------------------------------------------------------------------

CHILD = """
import sys
sys.path[:0] = {path!r}
import numpy as np
from gatewaykit import core_of
from veilstream.artefact import load
from veilstream.gateway.wire import Reading
x = np.random.default_rng(9).integers(0, 16, 4000)
with core_of(load({art!r}), {store!r}) as core:
    s = core.store.load("", "a")
    step = 0 if s is None or s.last_step is None else s.last_step + 1
    print("ready", flush=True)
    while step < {n}:
        core.process([Reading("a", t, t, float(x[t])) for t in range(step, min(step + 3, {n}))])
        step += 3
    print("done", flush=True)
"""


@pytest.mark.slow
def test_kills_leave_every_step_counted_once(tmp_path):
    art, n = artefact(tmp_path / "p.veil"), 900
    where = {"path": sys.path, "art": str(tmp_path / "p.veil"), "store": str(tmp_path / "s.db"), "n": n}
    rng, done, kills = np.random.default_rng(0), "", 0
    while "done" not in done:
        child = subprocess.Popen([sys.executable, "-c", CHILD.format(**where)], stdout=subprocess.PIPE, text=True)
        done = child.stdout.readline()
        try:
            done += child.communicate(timeout=0.02 + 0.1 * rng.random() if kills < 4 else 60)[0]
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            done, kills = "", kills + 1
            child.communicate()
    assert kills >= 1
    x = np.random.default_rng(9).integers(0, 16, 4000)[:n]
    watch = Watch(art.problem.chain, art.recording, TrueStates.of(art.problem.chain))
    with sqlite3.connect(tmp_path / "s.db") as db:
        shown = [json.loads(m)["released"] for (m,) in db.execute("SELECT message FROM releases ORDER BY step")]
    far = art.problem.distortion[x, shown].tolist()
    found, expected = drift_of(tmp_path / "s.db")["a"], Watched.of(watch.follow(None, x.tolist(), range(n), far))
    assert found[:3] == expected[:3] and found.loss.steps == n - 1 and found.felt.steps == n
    np.testing.assert_allclose([*found.loss, *found.felt], [*expected.loss, *expected.felt], rtol=1e-12)


def test_a_commit_that_fails_counts_nothing(tmp_path):
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        core.process([Reading("a", t, t, 3.0) for t in range(5)])
        core.store.file.db.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreError):
            core.process([Reading("a", 5, 5, 3.0)])
        core.store.file.db.execute("PRAGMA query_only = OFF")
        core.process([Reading("a", t, t, 3.0) for t in (4, 5, 5)])
    assert drift_of(tmp_path / "s.db")["a"].felt.steps == 6


def test_another_policy_begins_anew_and_the_same_one_goes_on(tmp_path):
    for seed, expected in ((0, 3), (0, 6), (1, 3)):
        with core_of(artefact(tmp_path / f"{seed}.veil", seed), tmp_path / "s.db") as core:
            first = (core.store.streams() or [None])[0]
            start = 0 if first is None else first.last_step + 1
            core.process([Reading("a", t, t, 3.0) for t in range(start, start + 3)])
        assert drift_of(tmp_path / "s.db")["a"].felt.steps == expected


def test_a_store_of_another_version_is_refused_by_gateway_and_owner(tmp_path):
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        core.process([Reading("a", t, t, 3.0) for t in range(3)])
    with sqlite3.connect(tmp_path / "s.db") as db:
        db.execute("UPDATE meta SET value = 4 WHERE key = 'schema'")
    db.close()
    refused("status", tmp_path / "s.db", says="another version (schema 4")
    with pytest.raises(StoreError, match="has schema 4, this version reads 7"):
        Store(tmp_path / "s.db", {})


# --- the owner's look ------------------------------------------------------------------------------------------


def told(path) -> dict[str, dict]:
    done = veil("status", path, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["private"] is True
    return {s["stream"]: s for s in said["streams"]}


def fitted(path, loss=Interval(3.0, 2.9, 3.1), felt=2.0):  # noqa: B008
    """A policy whose file says how it did on data held out."""
    problem = problem_of(constraint=Average(limit=2.5))
    card = {"states": 16, "effective_sample": 1e4, "later_bits": loss.value, "later_low": loss.low}
    said = {"card": {**card, "later_high": loss.high}, "solution": {"raw_distortion": felt, "leakage": 0.5}}
    return save(path, window_policy(problem), problem=problem, period_s=WEEK / 50, provenance=said)


@pytest.mark.parametrize(("spread", "same"), [(1, Same.NO), (0, Same.YES)])
def test_the_owner_sees_streams_bits_felt_and_drift_while_the_gateway_runs(tmp_path, spread, same):
    art, n = fitted(tmp_path / "p.veil"), 50 * 12
    rng, P = np.random.default_rng(0), problem_of().chain
    x = rng.integers(0, 16, n) if spread else P.sample(n, 1, 4)[0]
    period = art.period_s
    with core_of(art, tmp_path / "p.veil.db", ceiling=40.0, now=lambda: period * 1000) as core:
        core.process([Reading("a", t, t * period, float(v)) for t, v in enumerate(x)])
        core.process([Reading("b", 0, 0, 3.0)])
        found = told(tmp_path / "p.veil")
        assert found == told(tmp_path / "p.veil.db")
        a, b = found["a"], found["b"]
        assert (a["last_step"], a["ceiling_bits"], a["limit"]) == (599, 40.0, 2.5)
        assert (a["units"], a["drift_unit"]) == (12, "weeks")
        assert a["leaked_bits"] == core.store.load("", "a").total and a["rung"] is None and a["t"] == 599 * period
        kept = Watched.of(core.store.load("", "a").private.drift)
        rule = Drift(kept.loss.interval, Interval(3.0, 2.9, 3.1), kept.felt.interval, 2.0, True)
        assert a["drift"] == rule.to_json() and a["drift"]["loss"]["value"] > 3.5 * spread
        assert b["drift"] is None and b["felt"]["value"] >= 0
        text = " ".join(veil("status", tmp_path / "p.veil").stdout.split())
        assert "PRIVATE" in text and ("a HAS CHANGED" in text) == (rule.same == Same.NO)
        assert ("veil refit" in text) == (rule.same == Same.NO)
        core.process([Reading("b", 1, period, 3.0)])  # the gateway goes on
    if spread:
        assert rule.moved
    else:
        assert not rule.moved
    assert told(tmp_path / "p.veil")["a"] == a  # and when it has ended
    assert sorted(f.name for f in tmp_path.iterdir()) == ["p.veil", "p.veil.db", "p.veil.db-count"]


def test_a_file_that_does_not_say_what_was_fitted_is_said(tmp_path):
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        core.process([Reading("a[red]\x1b", t, t, 3.0) for t in range(3)])
    text = " ".join(veil("status", tmp_path / "s.db").stdout.split())
    assert "does not say how well its chain" in text and "a[red]?" in text and "\x1b" not in text


def test_a_week_is_told_as_one_without_an_interval_and_no_time_is_cut(tmp_path):
    start = 1_700_000_000
    with core_of(artefact(tmp_path / "p.veil", period_s=1800.0), tmp_path / "s.db") as core:
        core.process([Reading("a", start // 1800 + i, start + 1800 * i, 3.0) for i in range(3)])
    text = veil("status", "--store", tmp_path / "s.db").stdout
    assert "rung" not in text and re.search(r"2023-11-1\dT\d\d:\d\d:00Z", text), text
    assert " ".join(text.split()).count("1 weeks") == 0
    assert span(Interval(0.5, 0.5, 0.5)) == "0.5" and span(Interval(0.5, 0.4, 0.6)) == "0.5 [0.4, 0.6]"


def test_a_stranger_is_refused_in_a_line(tmp_path):
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        core.process([Reading("a", 0, 0, 3.0)])
    refused("status", says="name a store or the policy")
    refused("status", tmp_path / "none.db", says="no store or policy")
    refused("status", tmp_path / "p.veil", says="none beside it")
    os.chmod(tmp_path / "s.db", 0o644)
    refused("status", tmp_path / "s.db", says="open to other users")
    os.chmod(tmp_path / "s.db", 0o600)
    data = bytearray((tmp_path / "s.db").read_bytes())
    data[100:4000] = bytes(3900)
    (tmp_path / "bad.db").touch(0o600)
    (tmp_path / "bad.db").write_bytes(data)
    refused("status", tmp_path / "bad.db", says="cannot be read")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_who_may_not_read_the_file_is_refused_by_the_system(tmp_path):
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        core.process([Reading("a", 0, 0, 3.0)])
    for folder in (tmp_path, *tmp_path.parents[:3]):
        os.chmod(folder, 0o755)
    code = f"""
import os
import re
from pathlib import Path
from veilstream.apps.cli.status import _in_store
from veilstream.errors import InputError
import veilstream.gateway.owner
os.setuid(65534)
try:
    print(_in_store(Path({str(tmp_path / "s.db")!r})))
except InputError as error:
    print("refused:", error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("refused: ") and "Permission denied" in done.stdout, done.stderr


def test_a_look_in_the_middle_leaves_no_trace_and_stops_no_commit(tmp_path):
    """A reader's snapshot while the gateway commits: both see what they should."""
    from veilstream.gateway.owner import look

    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        for name in "ab":
            core.process([Reading(name, 0, 0, 3.0)])
        views = look(tmp_path / "s.db")
        first = next(views)
        core.process([Reading("b", t, t, 3.0) for t in range(1, 50)])
        assert (first.stream.last_step, next(views).stream.last_step) == (0, 0)
        views.close()
        assert [v.stream.last_step for v in look(tmp_path / "s.db")] == [0, 49]


def test_two_gateways_still_do_not_share_a_store(tmp_path):
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        with pytest.raises(StoreError, match="in use by another process"):
            Store(tmp_path / "s.db", {"": core.spaces[""].binding})
        core.process([Reading("a", 0, 0, 3.0)])
