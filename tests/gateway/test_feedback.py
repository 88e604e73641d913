"""A ladder at a gateway: moves are public, the excess is not, and neither is lost or repeated."""

import json

import numpy as np
import pytest

from forked import answered_through_kills
from gatewaykit import artefact, core_of, places, problem_of
from natskit import NEEDS_SERVER, released_through_a_kill
from veilstream.artefact import save
from veilstream.control.accountant import Streams
from veilstream.control.adaptive import Ladder
from veilstream.control.controller import Controller, cycle
from veilstream.control.feedback import Feedback
from veilstream.control.mechanism import Mechanism
from veilstream.gateway.records import StoreError
from veilstream.gateway.wire import Reading
from veilstream.model.chain import MarkovChain
from veilstream.model.clock import Clock
from veilstream.model.problem import Problem, leakage, posterior

EVERY, LIMIT = 5, 1.0
RULE = Feedback(EVERY, LIMIT, 4.0, (0.4, 0.8, 1.2, 2.0), debt=1.6, part=2.0, back=2.0)  # one that swings


def ladder_file(path, states=None, by_clock=False, **more):
    """Four rungs from the truth to noise; where there are places the limit is in km between points.

    by_clock: around a public clock of three phases, at one of which every rung shows more noise.
    """
    problem = problem_of()
    near = np.exp(-4.0 * problem.distortion)
    near /= near.sum(1, keepdims=True)
    noise = np.full_like(near, 1 / len(near))

    def rung(e):
        a = (1 - e) * near + e * noise
        return Controller.of_table(np.tile(a, (len(a), 1, 1)), 1)

    policies = [rung(e) for e in (0.0, 0.2, 0.5, 0.9)]
    if by_clock:
        P = problem.chain.transition
        chain = MarkovChain(np.stack([P, P @ P, (P + np.eye(len(P))) / 2]), clock=Clock("steps", 3))
        problem = Problem(chain, problem.distortion, problem.constraint)
        policies = [cycle((p, rung(0.6), p)) for p in policies]
    ladder = Ladder(tuple(policies), RULE, 1).made_for(problem.chain)
    return save(path, ladder.proved(problem.chain), problem=problem, states=states, **more)


def uniforms_of(seed):
    return np.random.default_rng(seed).random


def readings(steps, rng, places=None):
    x = rng.integers(0, 16, len(steps))
    if places is None:
        return [Reading("ann", t, t, float(v)) for t, v in zip(steps, x.tolist(), strict=True)]
    at = places.coordinates[x] + rng.normal(0, 0.002, (len(x), 2))
    return [Reading("ann", t, t, (float(a), float(b))) for t, (a, b) in zip(steps, at, strict=True)]


def expected(art, steps, far, shown):
    """Rungs and bits: the rule, written once more, of the ways that the meter leaves open."""
    mechanism, rule = Mechanism(art.policy, art.problem), art.policy
    s, excess, mark, last, rungs, bits = mechanism.start(1, steps[0]), 0.0, 0.0, None, [], []
    for t, d, y in zip(steps, far, shown, strict=True):
        s = mechanism.skip(s, t - last - 1) if last is not None and t > last + 1 else s
        if last is not None and t // EVERY > last // EVERY:
            rung = int(rule.rung(s.memory)[0])
            near = [0, rung // 2, max(rung - 1, 0), rung, min(rung + 1, 3)]
            moves = [mechanism.meter.move(s, rule.on_rung(s.memory, i), np.array([t - last])) for i in near]
            if np.isfinite(moves[3][0][0]):
                aim = RULE.felt[rung] - (RULE.part * (excess - mark) + excess / RULE.back) / EVERY
                way = min(range(1, 5), key=lambda i: abs(RULE.felt[near[i]] - aim))
                way = 0 if excess > RULE.theta * EVERY else 3 if excess == mark else 4 if excess <= -8.0 else way
                while not np.isfinite(moves[way][0][0]):
                    way = 3 if way == 4 else way + 1
                added, belief = moves[way]
                s = Streams(rule.on_rung(s.memory, near[way]), belief, s.total + added, s.step)
                excess = mark = max(excess, -8.0)
        rungs.append(int(rule.rung(s.memory)[0]))
        s = mechanism.after(s, mechanism.look(s), np.array([y]))
        bits.append(float(s.total[0]))
        excess, last = excess + min(d, 4.0) - LIMIT, t
    return rungs, bits


@pytest.mark.parametrize("on_map", [False, True])
@pytest.mark.parametrize("gaps", [False, True])
def test_the_rung_follows_the_felt_distance_of_the_readings_themselves(tmp_path, on_map, gaps):
    states = places() if on_map else None
    art = ladder_file(tmp_path / "p.veil", states)
    rng = np.random.default_rng(3)
    steps = np.cumsum(rng.integers(1, 9 if gaps else 2, 300)).tolist()
    given = readings(steps, rng, states)
    with core_of(art, uniforms=uniforms_of(1), max_ahead=100) as core:
        out = [o.release for o in core.process(given).outcomes]
    if on_map:
        points = np.array([r.point for r in given])
        places_shown = np.array([(o.lat, o.lon) for o in out])
        shown = [int(np.abs(states.coordinates - s).sum(1).argmin()) for s in places_shown]
        far = states.distances_from(points)[np.arange(len(given)), shown]
    else:
        shown = [int(o.released) for o in out]
        far = [problem_of().distortion[int(r.point), y] for r, y in zip(given, shown, strict=True)]
    rungs, bits = expected(art, steps, far, shown)
    assert [o.rung for o in out] == rungs and [o.leaked_bits for o in out] == pytest.approx(bits, abs=1e-5)
    assert len(set(rungs)) >= 3


@pytest.mark.parametrize("clock", [False, True])
def test_a_restart_at_every_step_changes_nothing(tmp_path, clock):
    art = ladder_file(tmp_path / "p.veil", places(), **({"period_s": 60.0} if clock else {}))
    rng = np.random.default_rng(4)
    steps = list(range(60))
    given = readings(steps, rng, places())

    def run(store, restart):
        draw, out = uniforms_of(5), []
        core = None
        for r in given:
            at = r.step * 60.0 + 1
            if core is None or restart:
                manager = core_of(art, store, uniforms=draw, now=lambda at=at: at, clock=clock)
                core = manager.__enter__()
            core.scheduler.now = lambda at=at: at
            outcomes = core.process([r]).outcomes
            if clock and r.step % 7 != 3:  # a tick without a reading now and then
                outcomes = core.tick("", r.step)
            out += [o.message for o in outcomes if o.message is not None]
            if restart:
                manager.__exit__(None, None, None)
        if not restart:
            manager.__exit__(None, None, None)
        return out

    once = run(tmp_path / "a.db", restart=False)
    assert run(tmp_path / "b.db", restart=True) == once
    assert len({json.loads(m)["rung"] for m in once}) >= 2


def test_a_commit_that_fails_takes_its_move_back(tmp_path):
    art = ladder_file(tmp_path / "p.veil")
    given = readings(list(range(40)), np.random.default_rng(6))
    with core_of(art, tmp_path / "s.db", uniforms=uniforms_of(7)) as core:
        core.process(given[:9])
        kept = core.store.load("", "ann")
        commit = core.store.commit

        def failing(batch):
            raise StoreError("no space")

        core.store.commit = failing
        with pytest.raises(StoreError):
            core.process(given[9:30])
        core.store.commit = commit
        assert core.store.load("", "ann") == kept
        core.process(given[9:])
        assert core.store.load("", "ann").last_step == 39


def test_under_a_clock_a_move_comes_at_every_boundary_reading_or_not(tmp_path):
    art = ladder_file(tmp_path / "p.veil", places(), period_s=60.0)
    now = [0.0]
    with core_of(art, now=lambda: now[0], clock=True, uniforms=uniforms_of(1)) as core:
        rungs = []
        for step in range(40):
            now[0] = step * 60.0 + 1
            if step < EVERY:
                core.process([Reading("ann", step, 0, (39.8, 116.2), space="")])
            [outcome] = core.tick("", step)
            rungs.append(outcome.release.rung)
    assert rungs[:5] == [1] * 5 and rungs[5:] == [0] * 35  # a bad period, one move; then nothing was read


def test_the_excess_is_in_no_message_and_no_public_column(tmp_path):
    """Two people whose readings differ; with the same releases all that is public is equal until the first boundary."""
    art = ladder_file(tmp_path / "p.veil")
    outs = []
    for far in (0.0, 15.0):
        store = tmp_path / f"{far}.db"
        given = [Reading("ann", t, t, far) for t in range(EVERY)]
        with core_of(art, store, uniforms=lambda n: np.full(n, 0.0)) as core:  # the first symbol, whatever is true
            outs.append([o.message for o in core.process(given).outcomes])
            assert core.store.load("", "ann").private.excess == pytest.approx(EVERY * ((4.0 if far else 0.0) - LIMIT))
    assert outs[0] == outs[1]


def test_a_new_stream_is_charged_by_the_filter_and_never_more_than_its_states_can_reveal(tmp_path):
    art = ladder_file(tmp_path / "p.veil")
    with core_of(art, uniforms=uniforms_of(2)) as core:
        chain, rung = art.problem.chain, art.policy.policies[1]
        [first] = core.process([Reading("ann", 0, 0, 3.0)]).outcomes
        assert first.release.leaked_bits == pytest.approx(leakage(chain.initial, rung.channel(rung.start())), abs=1e-5)
        assert first.release.leaked_bits <= np.log2(len(chain))
        [second] = core.process([Reading("ann", 3, 3, 3.0)]).outcomes  # two steps missed, no boundary
        a, y = rung.channel(rung.start()), int(first.release.released)
        b = chain.later(posterior(chain.initial[None], a[None], np.array([y])), 3)[0]
        added = second.release.leaked_bits - first.release.leaked_bits
        assert added == pytest.approx(leakage(b, rung.channel(rung.update(rung.start(), y))), abs=1e-5)


def test_without_a_ladder_there_is_no_rung(tmp_path):
    with core_of(artefact(tmp_path / "plain.veil")) as core:
        [outcome] = core.process([Reading("ann", 0, 0, 3.0)]).outcomes
    assert b"rung" not in outcome.message


# --- killed -----------------------------------------------------------------------------------------------------


def as_the_rule_says(art, given, out):
    """Whether each release of one stream has the rung and the bits that its readings and releases lead to."""
    shown = [int(o["released"]) for o in out]
    far = [problem_of().distortion[int(r.point), y] for r, y in zip(given, shown, strict=True)]
    rungs, bits = expected(art, [r.step for r in given], far, shown)
    return [o["rung"] for o in out] == rungs and np.allclose([o["leaked_bits"] for o in out], bits, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("by_clock", [False, True])
def test_killed_at_random_moments_no_move_is_lost_or_made_twice(tmp_path, by_clock):
    """The pipe with a store, kill -9 after some releases."""
    path, store, rng = tmp_path / "p.veil", tmp_path / "s.db", np.random.default_rng(8)
    art = ladder_file(path, by_clock=by_clock)
    given = readings(list(range(150)), rng)
    lines = [json.dumps({"stream": "ann", "t": r.step, "value": r.point}).encode() + b"\n" for r in given]
    answers, kills = answered_through_kills(path, store, lines, rng, 5)
    out = [json.loads(answer) for answer in answers]
    assert kills >= 4 and len({o["rung"] for o in out}) >= 3
    assert as_the_rule_says(art, given, out)


@NEEDS_SERVER
@pytest.mark.slow
@pytest.mark.parametrize("by_clock", [False, True])
def test_on_nats_a_worker_is_killed_and_no_move_is_lost_or_made_twice(tmp_path, server, by_clock):
    prefix = "clocked" if by_clock else "ladder"
    path, rng = tmp_path / "ladder.veil", np.random.default_rng(9)
    art = ladder_file(path, by_clock=by_clock)
    given = {f"s{i}": readings(list(range(60)), rng) for i in range(6)}
    messages = {name: [{"t": r.step, "value": r.point} for r in of] for name, of in given.items()}
    released = released_through_a_kill(path, server, prefix, messages, 30)
    for name, out in released.items():
        assert [o["t"] for o in out] == list(range(60)), "lost, twice or out of order"
        assert as_the_rule_says(art, given[name], out)
