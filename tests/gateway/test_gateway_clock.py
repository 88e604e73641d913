"""A policy with a public clock behind a gateway: stopped in the middle of a day, over changes of the clock and gaps."""

import json
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import veilstream as vs
from forked import answered_through_kills
from gatewaykit import core_of
from natskit import NEEDS_SERVER, released_through_a_kill
from oracles import random_chain
from veilstream.artefact import save
from veilstream.control.mechanism import Mechanism
from veilstream.control.uniforms import uniforms
from veilstream.gateway.wire import Grid, Reading
from veilstream.model.chain import MarkovChain
from veilstream.model.clock import Clock
from veilstream.model.histories import BLIND

LONDON = ZoneInfo("Europe/London")
PERIOD = 1800.0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    rng = np.random.default_rng(0)
    P = [random_chain(rng, 3, sticky=0.5 * (i % 2), floor=0.02) for i in range(48)]
    chain = MarkovChain(P, clock=Clock("day", 48, PERIOD, 0.0, "Europe/London"))
    distance = np.abs(np.subtract.outer(np.arange(3), np.arange(3))).astype(float)
    problem = vs.Problem(chain, distance, vs.Average(weight=1.5))
    policy = vs.solve(problem).policy
    return save(tmp_path_factory.mktemp("clock") / "p.veil", policy, problem=problem, period_s=PERIOD)


def streams(when, n=70, seed=1):
    """Steps of two streams from this local time on, with gaps, and true symbols."""
    rng = np.random.default_rng(seed)
    begin = int(datetime(*when, tzinfo=LONDON).timestamp() // PERIOD)
    steps = {
        name: begin + k + np.cumsum(1 + (rng.random(n) < 0.2) * rng.integers(1, 60, n)) for k, name in enumerate("ab")
    }
    return steps, {name: rng.integers(0, 3, n) for name in steps}


def expected(art, steps, x, source):
    """The loop itself, never stopped, told the public number of every step."""
    mechanism = Mechanism(art.policy, art.problem)
    out = {name: [] for name in steps}
    s = {name: mechanism.start(1, int(steps[name][0])) for name in steps}
    for t in range(len(steps["a"])):
        for name in steps:
            gap = int(steps[name][t] - s[name].step[0])
            if gap:
                s[name] = mechanism.skip(s[name], gap)
            s[name], y = mechanism.step(s[name], x[name][t : t + 1], source(1))
            out[name].append((int(y[0]), round(float(s[name].total[0]), 6)))
    return out


@pytest.mark.parametrize("when", [(2013, 3, 30, 15), (2013, 10, 26, 15), (2013, 6, 3, 9)])
@pytest.mark.parametrize("stop_every", [1, 7, 1000])
def test_releases_are_the_same_however_often_it_is_stopped_in_the_middle_of_a_day(made, tmp_path, when, stop_every):
    steps, x = streams(when)
    wanted = expected(made, steps, x, uniforms(4))
    source, found = uniforms(4), {name: [] for name in steps}
    for begin in range(0, 70, stop_every):
        with core_of(made, tmp_path / "s.db", uniforms=source) as core:
            for t in range(begin, min(begin + stop_every, 70)):
                for name in steps:
                    step = int(steps[name][t])
                    [outcome] = core.process([Reading(name, step, step * PERIOD, float(x[name][t]))]).outcomes
                    found[name].append((int(outcome.release.released), outcome.release.leaked_bits))
    for name in steps:
        assert [y for y, _ in found[name]] == [y for y, _ in wanted[name]]
        np.testing.assert_allclose([b for _, b in found[name]], [b for _, b in wanted[name]], atol=2e-6)


def test_what_a_new_stream_costs_depends_on_the_hour_it_begins(made):
    mechanism = Mechanism(made.policy, made.problem)
    bits = mechanism.look(mechanism.start(48, np.arange(48))).bits
    assert bits.std() > 1e-3
    with core_of(made, uniforms=uniforms(1)) as core:
        for step in (5, 29):
            [outcome] = core.process([Reading(f"s{step}", step, step * PERIOD, 1.0)]).outcomes
            assert outcome.release.leaked_bits == pytest.approx(bits[step], abs=1e-6)


def test_a_blind_draw_comes_from_the_law_of_its_hour(made):
    mechanism, n = Mechanism(made.policy, made.problem), 20_000
    for step in (0, 24):
        s = mechanism.start(n, step)
        _, y = mechanism.step(s, np.full(n, BLIND), np.random.default_rng(0).random(n))
        assert np.bincount(y, minlength=3) / n == pytest.approx(mechanism.look(s[:1]).law[0], abs=0.02)


def test_the_grid_counts_the_steps_that_the_clock_is_asked_about(made):
    t = datetime(2013, 7, 1, 12, 10, tzinfo=LONDON).timestamp()
    step, _ = Grid(PERIOD, 0.0).step(t)
    assert made.chain.clock.phase(step) == 24


# --- killed -----------------------------------------------------------------------------------------------------


def steps_over_a_change(n):
    """From the evening before summer time began, with gaps."""
    begin = int(datetime(2013, 3, 30, 20, tzinfo=LONDON).timestamp() // PERIOD)
    return begin + np.cumsum(1 + (np.arange(n) % 11 == 5) * 7)


def metered(art, steps, out):
    """What the meter must say after each release: memory, belief and hour are functions of releases and steps alone."""
    mechanism = Mechanism(art.policy, art.problem)
    s, totals = mechanism.start(1, int(steps[0])), []
    for step, body in zip(steps.tolist(), out, strict=True):
        assert body["t"] == step * PERIOD
        gap = step - int(s.step[0])
        s = mechanism.skip(s, gap) if gap else s
        s = mechanism.after(s, mechanism.look(s), np.array([int(body["released"])]))
        totals.append(float(s.total[0]))
    return totals


@pytest.mark.slow
def test_killed_at_random_moments_of_a_day_nothing_is_drawn_twice_and_the_hour_is_right(made, tmp_path):
    path, store, rng = tmp_path / "p.veil", tmp_path / "s.db", np.random.default_rng(8)
    vs.save(path, made.policy, problem=made.problem, period_s=PERIOD)
    steps = steps_over_a_change(90)
    x = rng.integers(0, 3, len(steps)).tolist()
    lines = [
        json.dumps({"stream": "ann", "t": step * PERIOD, "value": v}).encode() + b"\n"
        for step, v in zip(steps.tolist(), x, strict=True)
    ]
    answers, kills = answered_through_kills(path, store, lines, rng, 10)
    out = [json.loads(answer) for answer in answers]
    assert kills >= 3
    np.testing.assert_allclose([o["leaked_bits"] for o in out], metered(made, steps, out), atol=2e-6)


@NEEDS_SERVER
@pytest.mark.slow
def test_on_nats_a_worker_is_killed_in_the_middle_of_a_day_and_the_hour_is_right(made, tmp_path, server):
    path, rng = tmp_path / "hours.veil", np.random.default_rng(9)
    vs.save(path, made.policy, problem=made.problem, period_s=PERIOD)
    steps = steps_over_a_change(50)
    values = {f"s{i}": rng.integers(0, 3, len(steps)).tolist() for i in range(5)}
    messages = {
        name: [{"t": step * PERIOD, "value": v} for step, v in zip(steps.tolist(), of, strict=True)]
        for name, of in values.items()
    }
    released = released_through_a_kill(path, server, "hours", messages, 25)
    for out in released.values():
        np.testing.assert_allclose([o["leaked_bits"] for o in out], metered(made, steps, out), atol=2e-6)
