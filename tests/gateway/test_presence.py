"""Under a clock nothing public differs between a step with a reading and one without."""

import json
import re
import sqlite3
import time

import numpy as np
import pytest

from gatewaykit import NEEDS_MOSQUITTO, Outbox, artefact, core_of
from httpkit import Server
from mosquitto import Mosquitto
from mqttkit import Client, serving
from patience import wait_until
from veilstream.gateway.core import Message, handle
from veilstream.gateway.store import StoreError
from veilstream.gateway.topics import Route
from veilstream.gateway.wire import Reading, parse

TIMED = re.compile(rb'"(uptime_s|releases_per_second)": [\d.]+')
NOTHING: list[bytes] = []
SAME = [b'{"stream":"a","t":%d,"value":3}', b'{"stream":"b","t":%d,"value":7}']  # as the step before
JUNK = [
    b"{",
    b"\xff",
    b'{"stream":"a"}',
    b'{"stream":"a","t":5,"value":3}',  # late
    b'{"stream":"a","t":99999999,"value":3}',  # ahead
    b'{"stream":"a","t":"9999-12-31T23:59:59-01:00"}',
    b'{"stream":"a+b","t":%d,"value":3}',
    b'{"_type":"transition","desc":"home"}',
]


def public(server) -> bytes:
    """Everything that leaves, but for moments."""
    paths = ("/v1/status", "/metrics", "/healthz", "/", "/openapi.json")
    return TIMED.sub(b"", b"\n".join(json.dumps(server.ask(path)[:2]).encode() for path in paths))


def shown(tmp_path, name: str, said: list[bytes], fails: bool = False) -> list[bytes]:
    """What can be seen of four steps; in the third one `said` is said."""
    art, moment, out = artefact(tmp_path / "p.veil", period_s=60.0), [6000.0], []
    draws = np.random.default_rng(5)
    with core_of(art, tmp_path / name, now=lambda: moment[0], clock=True, uniforms=draws.random) as core:
        server = Server(core, routes=[Route("in/+", "out/+")])
        core.outlets.append(Outbox())
        try:
            for step in range(100, 104):
                moment[0] = 60.0 * step
                for body in SAME if step < 102 else said if step == 102 else NOTHING:
                    body = body.replace(b"%d", b"%d" % moment[0])
                    if fails and step == 102:
                        core.store.file.db.execute("PRAGMA query_only = ON")
                    server.ask("/v1/release", body)
                    core.store.file.db.execute("PRAGMA query_only = OFF")
                out.append(public(server))  # before the tick
                out += [repr((core.tick("", step), core.unsent())).encode(), public(server)]
        finally:
            server.end()
    return out


@pytest.mark.parametrize("said", [SAME, SAME * 3, JUNK, JUNK + SAME], ids=["same", "again", "junk", "all"])
def test_all_public_output_is_the_same_with_and_without_readings(tmp_path, said):
    without, with_readings = shown(tmp_path, "without", NOTHING), shown(tmp_path, "with", said)
    assert len(without) == 12
    for a, b in zip(without, with_readings, strict=True):
        assert a == b


def test_a_reading_that_cannot_be_kept_does_not_show_either(tmp_path):
    assert shown(tmp_path, "without", NOTHING) == shown(tmp_path, "with", SAME, fails=True)


def test_the_owner_still_knows(tmp_path):
    shown(tmp_path, "s.db", JUNK)
    db = sqlite3.connect(tmp_path / "s.db")
    counts = dict(db.execute("SELECT reason, n FROM private_counts"))
    db.close()
    assert counts["late"] >= 1 and counts["ahead"] == 1 and counts["not_a_location"] == 1 and counts["waiting"] >= 4


@NEEDS_MOSQUITTO
def test_a_store_that_fails_for_a_reading_does_not_take_mqtt_offline_under_a_clock(tmp_path, monkeypatch):
    (tmp_path / "broker").mkdir()
    broker = Mosquitto(tmp_path / "broker")
    client = Client(broker.port, "veil/status")
    monkeypatch.setattr("veilstream.gateway.mqtt.PAUSE_S", 0.1)
    try:
        art = artefact(tmp_path / "p.veil", period_s=3600.0)
        with core_of(art, tmp_path / "s.db", clock=True) as core, serving(core, broker.port):
            core.store.file.db.execute("PRAGMA query_only = ON")
            client.say("in/a", {"t": time.time(), "value": 3})
            wait_until(lambda: core.stats.store_errors > 2)
            assert core.stats.connected and not core.failing
            assert [p for _, p, _ in client.heard] == [b"online"]
            core.store.file.db.execute("PRAGMA query_only = OFF")
            wait_until(lambda: core.stats.waiting == 1)  # it was not lost
            core.store.file.db.execute("PRAGMA query_only = ON")
            with pytest.raises(StoreError):
                core.tick("", core.scheduler.current_step(""))
            wait_until(lambda: core.stats.connected is False)  # a tick that fails is public
            core.store.file.db.execute("PRAGMA query_only = OFF")
    finally:
        client.end()
        broker.stop()


@NEEDS_MOSQUITTO
def test_a_reading_of_a_step_that_was_ticked_is_not_answered_on_the_output(tmp_path):
    (tmp_path / "broker").mkdir()
    broker, moment = Mosquitto(tmp_path / "broker"), [6000.0]
    client = Client(broker.port, "out/#")
    try:
        art = artefact(tmp_path / "p.veil", period_s=60.0)
        clocked = {"clock": True, "now": lambda: moment[0]}
        with core_of(art, tmp_path / "s.db", **clocked) as core, serving(core, broker.port) as gateway:
            client.say("in/a", {"t": 6000, "value": 3})
            wait_until(lambda: core.stats.waiting == 1)
            core.tick("", 100)
            gateway.wake()
            wait_until(lambda: len(client.heard) == 1)
            client.say("in/a", {"t": 6001, "value": 3})
            wait_until(lambda: core.stats.repeated == 1)
            time.sleep(0.3)
            assert len(client.heard) == 1
    finally:
        client.end()
        broker.stop()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b'{"_type":"transition","event":"leave"}', "not_a_location"),
        (b'{"_type":"encrypted","data":"c2VhbGVk"}', "sealed"),
    ],
)
def test_without_a_clock_what_is_no_location_is_counted_for_the_owner_alone(tmp_path, message, reason):
    """It comes when someone crosses the border of a region; what cannot be opened may be such."""
    with core_of(artefact(tmp_path / "p.veil")) as core:
        before = core.stats.metrics(), core.stats.status(None)["refused"]
        message = Message(b"", parse(message, core.spaces[""].grid, "a"))
        handle(core, [message], lambda parts: core.process([r for p in parts for r in p.readings]) and None)
        assert core.stats.refused[reason] == 1
        assert core.stats.status(None)["refused"] == before[1]
        assert core.stats.metrics() == before[0]


@pytest.mark.parametrize("trigger", ["c", "u", "t", "p", "b", 7, "2020-01-01T00:00:00Z"])
def test_the_trigger_of_an_owntracks_message_is_no_time(tmp_path, trigger):
    """c: a region was crossed. It was refused, and the refusal counted for all to see."""
    where = {"_type": "location", "lat": 39.9, "lon": 116.3, "tst": 6000}
    grid = core_grid(tmp_path)
    with_it, without = (parse(json.dumps(m).encode(), grid, "a")[0] for m in ({**where, "t": trigger}, where))
    assert isinstance(with_it, Reading) and with_it == without and with_it.step == 100


def core_grid(tmp_path):
    with core_of(artefact(tmp_path / "p.veil", period_s=60.0)) as core:
        return core.spaces[""].grid


PINNED = [
    *("veil_releases_total", "veil_silent_steps_total", "veil_blind_releases_total", "veil_repeats_total"),
    *("veil_store_errors_total", "veil_republished_total", "veil_dropped_total", "veil_commits_total"),
    *("veil_commit_seconds_total", "veil_refused_total", "veil_broker_refused_total", "veil_broker_trouble"),
    *("veil_streams", "veil_outbox", "veil_broker_connected"),
]
LATENCIES = ["veil_commit_latency_seconds", "veil_request_latency_seconds"]


def test_the_names_of_the_metrics_are_pinned_and_each_is_explained(tmp_path):
    """As dashboards know them; the number of series does not grow with streams."""
    with core_of(artefact(tmp_path / "p.veil")) as core:
        before = core.stats.metrics()
        core.process([Reading(f"stream {i}", 0, 0, 1.0) for i in range(50)])
        after = core.stats.metrics()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", after, re.M))
    assert list(kinds) == PINNED + LATENCIES
    assert {name for name in kinds if kinds[name] == "histogram"} == set(LATENCIES)
    assert re.findall(r"^# HELP (\S+) .{10,}$", after, re.M) == list(kinds)
    assert len(after.splitlines()) == len(before.splitlines())
    assert "veil_commit_latency_seconds_count 1.0" in after and "veil_commits_total 1.0" in after


def test_under_a_clock_there_are_no_latencies(tmp_path):
    art = artefact(tmp_path / "p.veil", period_s=60.0)
    with core_of(art, clock=True, now=lambda: 6000.0) as core:
        core.process([Reading("a", 100, 6000, 3.0)])
        core.tick("", 100)
        assert "veil_releases_total 1.0" in core.stats.metrics() and "latency" not in core.stats.metrics()
