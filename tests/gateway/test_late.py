"""An audience that gets its releases some steps late: what was drawn then, each once, and nothing of now."""

import json
import sqlite3

import numpy as np
import pytest

from audiencekit import behind, core_of, two
from veilstream.artefact import load
from veilstream.control.uniforms import uniforms
from veilstream.data.spec import Recording
from veilstream.errors import InputError
from veilstream.gateway.audience import AudienceSpec
from veilstream.gateway.pipe import Sink, settled
from veilstream.gateway.scheduler import due
from veilstream.gateway.wire import Reading

SPOTS = [(39.9 + 0.01 * (i // 4), 116.3 + 0.01 * (i % 4)) for i in range(16)]
STEPS = [0, 1, 2, 3, 7, 8, 9, 20, 21, 22, 23, 24, 40]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("late")
    two(found)
    behind(found / "world.veil", load(found / "public.veil"), n=2)
    return found


def readings(steps, stream="ann"):
    return [Reading(stream, t, t, SPOTS[t * 7 % 16]) for t in steps]


def seen(outcomes, audience="public"):
    return [[json.loads(o.message)["t"] for o in outcome.of(audience)] for outcome in outcomes]


def expected(steps, k):
    """With each step those that are k steps old by then and were not before."""
    return [[u for u in steps[:i] if u <= t - k and (i == 0 or u > steps[i - 1] - k)] for i, t in enumerate(steps)]


@pytest.mark.parametrize("k", [1, 3, 12])
@pytest.mark.parametrize("cut", [[], [4], [1, 5, 8, 9]])
def test_each_release_comes_once_when_it_is_old_enough_however_readings_come_and_over_restarts(
    folder, tmp_path, k, cut
):
    got, messages = [], {}
    for part in np.split(STEPS, cut):
        with core_of(folder, store=tmp_path / "a.db", delay=f"{k} steps") as core:
            outcomes = core.process(readings(part.tolist())).outcomes
            got += seen(outcomes)
            messages |= {json.loads(o.message)["t"]: o.message for one in outcomes for o in one.of("public")}
    assert got == expected(STEPS, k)
    assert [u for part in got for u in part] == [u for u in STEPS if u <= STEPS[-1] - k]
    with sqlite3.connect(tmp_path / "a.db") as db:  # as they were drawn
        rows = db.execute("SELECT r.step, r.message FROM releases r JOIN streams s ON s.id = r.stream WHERE space = ?",
                          ("public",)).fetchall()  # fmt: skip
    log = dict(rows)
    assert sorted(log) == STEPS and all(bytes(log[t]) == m for t, m in messages.items())
    with core_of(folder, store=tmp_path / "a.db", delay=f"{k} steps") as core:  # asked again: the same, no draw
        assert seen(core.process(readings(STEPS)).outcomes) == got


def test_what_is_drawn_is_what_would_be_told_at_once(folder):
    with core_of(folder, uniforms=uniforms(1)) as now, core_of(folder, uniforms=uniforms(1), delay="3 steps") as late:
        first, then = (core.process(readings(STEPS)).outcomes for core in (now, late))
    at_once = {json.loads(o.message)["t"]: o.message for one in first for o in one.of("public")}
    assert all(at_once[json.loads(o.message)["t"]] == o.message for one in then for o in one.of("public"))


def test_the_status_of_a_late_audience_holds_nothing_newer_also_after_a_restart(folder, tmp_path):
    for steps in (range(5), range(5, 9)):
        with core_of(folder, store=tmp_path / "a.db", delay="3 steps") as core:
            before = [r.t for r in core.audiences["public"].status(None)["recent"]]
            assert before in ([], [1])  # the last one old enough when the gateway stopped
            core.process(readings(steps))
            [release] = core.audiences["public"].status(None)["recent"]
            assert release.t == steps[-1] - 3
            assert core.audiences["public"].released == len([t for t in range(steps[-1] + 1) if t <= steps[-1] - 3
                                                             and t > steps[0] - 1 - 3])  # fmt: skip


def test_whoever_is_behind_a_late_audience_need_not_be_late(folder):
    with core_of(folder, ("public", "world"), delay="2 steps") as core:
        outcomes = core.process(readings(range(5))).outcomes
    assert seen(outcomes) == [[], [], [0], [1], [2]]
    assert seen(outcomes, "world") == [[t] for t in range(5)]


def test_under_a_clock_an_outlet_is_told_late_too(tmp_path):
    two(tmp_path, period_s=60.0)
    now, heard = [6000.0], []

    class Outlet:
        def compose(self, told):
            heard.append([(s.space, json.loads(m)["t"]) for s, m in told])
            return []

        def wake(self):
            pass

    with core_of(tmp_path, clock=True, now=lambda: now[0], delay="2min") as core:
        core.outlets.append(Outlet())
        core.process([Reading("ann", 100, 6000, SPOTS[2])])
        for step in range(100, 104):
            core.tick("", step)
    fine = [[("", 6000 + 60 * k)] for k in range(4)]
    late = [[], [], [("public", 6000)], [("public", 6060)]]
    assert [one for one in heard if one] == [a + b for a, b in zip(fine, late, strict=True)]


def test_lines_of_a_late_audience_are_written_once_and_the_same_in_a_later_run(folder, tmp_path):
    import io

    written = []
    for _ in range(2):
        with core_of(folder, store=tmp_path / "a.db", delay="3 steps") as core:
            out = io.BytesIO()
            sink = Sink(core, out, audience="public")
            sink.begin("csv")
            sink.write([settled(core, readings(STEPS))])
            sink.write([settled(core, readings(STEPS[:6]))])
            written.append(out.getvalue())
            assert sink.felt is None
    assert written[0] == written[1]
    assert [int(line.split(b",")[1]) for line in written[0].splitlines()[1:]] == STEPS[:-1]


def test_what_is_kept_reaches_back_as_far_as_the_latest_audience(folder):
    with core_of(folder, delay="100 steps") as core:  # a store in memory keeps 64 steps
        core.process(readings(range(110)))
        core.prune()
        assert seen(core.process(readings([110])).outcomes) == [[10]]


def test_a_delay_is_a_number_of_steps_or_a_time():
    minute = Recording(period_s=60.0)

    def steps(text, recording=minute):
        return AudienceSpec.read(f"p.veil delay={text}").steps(recording)

    assert (steps("2h"), steps("'3 steps'"), steps("'1 step'"), steps("day")) == (120, 3, 1, 1440)
    assert AudienceSpec.read("p.veil").steps(minute) == 0
    assert steps("4", Recording()) == 4
    for text in ("30s", "soon", "'-1 steps'"):
        with pytest.raises(InputError, match="delay"):
            steps(text)
    assert [*due(None, 5, 2)] == [] and [*due(4, 5, 2)] == [3] and [*due(1, 9, 2)] == [0, 1]
