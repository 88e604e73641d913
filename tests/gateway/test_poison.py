"""One message can cost one message: what an attacker may send, through every transport, and what is kept of it."""

import gzip
import hashlib
import io
import json
import threading
import time

import pytest

from attack.path import Told
from fakebroker import NOT_THIS_VERSION, FakeBroker, Session, connack
from gatewaykit import NEEDS_MOSQUITTO, artefact, core_of
from httpkit import Server
from mqttkit import Client, serving
from patience import wait_until
from veilstream.gateway import pipe
from veilstream.gateway.broker import BrokerSettings
from veilstream.gateway.inbox import Heard
from veilstream.gateway.mqtt import MqttGateway
from veilstream.gateway.records import Status
from veilstream.gateway.scheduler import Scheduler
from veilstream.gateway.service import Clock
from veilstream.gateway.topics import Route
from veilstream.gateway.wire import Grid, Reading, Refusal, parse

NO_TIMES = ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00", "0001-01-01T00:00:00Z"]


@pytest.mark.parametrize("topic", ["in/a+b", "in/#", "in/+", "in/a/b", "elsewhere", ""])
def test_a_topic_that_no_release_can_go_to_costs_its_message_alone(tmp_path, topic):
    """No broker should deliver one with wildcards. It ended the gateway, and its outbox every restart."""
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        told = Told(core)
        told.broker.inbox.put(Heard(topic, b'{"t":1,"value":3}', 5))
        told.over_mqtt(b'{"t":1,"value":3}')
        assert [to for to, _ in told.broker.said] == ["out/a"] and not told.broker.inbox
        assert core.stats.refused["stream"] == 1 and core.stats.refused["unhandled"] == 0


@pytest.mark.parametrize("t", NO_TIMES)
def test_a_time_beyond_the_calendar_is_refused(t):
    """Its moment, or the grid time of its step, has no year from 1 to 9999."""
    data = json.dumps({"stream": "a", "t": t, "value": 1}).encode()
    assert parse(data, Grid(3600.0, 5.0)) == [Refusal.time]
    found = parse(data.replace(t.encode(), b"9999-12-31T22:59:59Z"), Grid(3600.0))
    assert isinstance(found[0], Reading)


@pytest.mark.parametrize("t", NO_TIMES[:2])
def test_a_time_beyond_the_calendar_costs_its_message_alone(tmp_path, t):
    art = artefact(tmp_path / "p.veil", period_s=3600.0)
    poison, good = ({"stream": "a", "t": when, "value": 1} for when in (t, 7200))
    with core_of(art, tmp_path / "s.db", now=lambda: 7300.0) as core:
        out = io.BytesIO()
        pipe.run(core, io.BytesIO(json.dumps(poison).encode() + b"\n" + json.dumps(good).encode() + b"\n"), out)
        assert [json.loads(line)["t"] for line in out.getvalue().splitlines()] == [7200]
        server = Server(core)
        try:
            assert server.ask("/v1/release", poison)[0] == 400
            assert [("released" in r) for r in server.ask("/v1/release", [poison, good])[1]] == [False, True]
        finally:
            server.end()
        assert core.stats.refused["time"] == 3


@NEEDS_MOSQUITTO
def test_a_time_beyond_the_calendar_does_not_end_mqtt(tmp_path, broker):
    art = artefact(tmp_path / "p.veil", period_s=3600.0)
    client = Client(broker.port, "out/#")
    with core_of(art, tmp_path / "s.db", now=lambda: 7300.0) as core, serving(core, broker.port):
        for t in [*NO_TIMES, 7200]:
            client.say("in/a", {"t": t, "value": 1})
        wait_until(lambda: client.heard)
        assert core.stats.refused["time"] >= 2
    client.end()


def test_a_body_that_is_not_packed_as_it_says_is_refused(tmp_path):
    """Found by `make attack`: it was 500, as if something had failed here."""
    with core_of(artefact(tmp_path / "p.veil")) as core:
        server = Server(core)
        try:
            packed = {"Content-Encoding": "gzip"}
            assert server.ask("/v1/release", line("a", 0, 1), **packed)[0] == 400
            assert server.ask("/v1/release", gzip.compress(line("a", 0, 1)), **packed)[0] == 200
            assert server.ask("/v1/release", gzip.compress(bytes(20_000_000)), **packed)[0] == 413
        finally:
            server.end()
        assert core.stats.refused["unreadable"] == 1 and core.stats.refused["unhandled"] == 0


# --- names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "good", "bad"),
    [
        ("out/+", ["a", "a b", "ä"], ["a+b", "#", "+", "a/b", "a/#"]),
        ("out/+/+", ["a/b", "a/"], ["a", "a/b/c", "a/+"]),
        ("out/#", ["a", "a/b/c"], ["a/#", "b+"]),
        ("+/out", ["a"], ["$SYS", "$share"]),
    ],
)
def test_a_name_must_fit_its_topic(target, good, bad):
    route = Route(target.replace("out", "in"), target)
    assert [name for name in [*good, *bad] if route.carries(name)] == good


@NEEDS_MOSQUITTO
def test_a_name_that_no_topic_can_carry_is_refused_at_every_door(tmp_path, broker):
    """Under a clock what came over HTTP is published: with such a name that ended the gateway and every restart."""
    art = artefact(tmp_path / "p.veil", period_s=0.5)
    client = Client(broker.port, "out/#")
    routes = [Route("in/+", "out/+")]
    with core_of(art, tmp_path / "s.db", clock=True) as core, serving(core, broker.port):
        server, stop = Server(core, routes=routes), threading.Event()
        clock = threading.Thread(target=Clock(core, "").run, args=(stop,))
        clock.start()
        try:
            for name in ("a+b", "#", "a/b"):
                code, answer, _ = server.ask("/v1/release", {"stream": name, "t": time.time(), "value": 3})
                assert code == 400 and "stream" in answer["error"]
            wait_until(lambda: server.ask("/v1/release", {"stream": "a", "t": time.time(), "value": 3})[0] == 202)
            wait_until(lambda: len([1 for t, _, _ in client.heard if t == "out/a"]) >= 2)
            assert {t for t, _, _ in client.heard} == {"out/a"}
            assert core.stats.connected and core.store.count_streams() == 1
        finally:
            stop.set()
            clock.join()
            server.end()
    client.end()


def test_a_stream_that_no_topic_can_carry_is_not_published(tmp_path):
    """One that an earlier configuration made: the others go on."""
    with core_of(artefact(tmp_path / "p.veil", period_s=60.0), now=lambda: 6000.0, clock=True) as core:
        core.process([Reading(name, 100, 6000, 1.0) for name in ("a+b", "a", "x/y")])
        gateway = MqttGateway(core, [Route("in/+", "out/+")], BrokerSettings())
        core.tick("", 100)
        assert [topic for _, topic, _ in core.unsent()] == ["out/a"] and core.outlets == [gateway]
        assert core.stats.released == 3


# --- sizes -------------------------------------------------------------------------------------------------


@NEEDS_MOSQUITTO
@pytest.mark.parametrize("broker", [["max_packet_size 9000"]], indirect=True)
def test_releases_of_a_large_batch_are_split_as_the_broker_needs(tmp_path, broker):
    client = Client(broker.port, "out/#")
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core, serving(core, broker.port):
        body = b"[" + b",".join(b'{"t":%d}' % t for t in range(800)) + b"]"
        assert len(body) < 9000
        client.say("in/a", body)
        wait_until(lambda: {r["t"] for r in client.releases()} == set(range(800)))
        assert len(client.releases()) == 800
        assert len(client.heard) > 3 and max(len(p) for _, p, _ in client.heard) < 9000
    client.end()


def broken(caplog) -> list:
    """Connections that were."""
    return [r for r in caplog.records if r.message == "broker_lost"]


@NEEDS_MOSQUITTO
@pytest.mark.parametrize("broker", [["max_packet_size 700"]], indirect=True)
def test_a_broker_that_takes_less_than_usual_gets_smaller_messages(tmp_path, broker, caplog):
    """It broke the connection at every message of 4 kB, and got the same one again, for ever and without a pause."""
    client = Client(broker.port, "out/#")
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core, serving(core, broker.port):
        for k in range(20):
            client.say("in/a", b"[" + b",".join(b'{"t":%d}' % t for t in range(40 * k, 40 * k + 40)) + b"]")
        wait_until(lambda: {r["t"] for r in client.releases()} == set(range(800)))
        assert max(len(p) for _, p, _ in client.heard) < 700
    assert broken(caplog) == []  # MQTT 5 says how much it takes
    client.end()


@NEEDS_MOSQUITTO
@pytest.mark.parametrize("broker", [["max_packet_size 80"]], indirect=True)
def test_a_release_that_no_packet_of_the_broker_can_carry_stays_in_the_outbox_and_is_told(tmp_path, broker, caplog):
    client = Client(broker.port, "out/#")
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core, serving(core, broker.port):
        for t in range(30):
            client.say("in/a" + "a" * 30, {"t": t})
        wait_until(lambda: core.stats.released == 30)
        wait_until(lambda: "Packet too large" in (core.stats.trouble or ""))
        time.sleep(1.5)
        assert core.stats.connected and broken(caplog) == [] and len(core.store.unsent()) == 30
        assert core.stats.broker_refused["Packet too large"] <= 33  # tried less and less often
    client.end()


class Three(Session):
    """Of 3.1.1, which takes no packet of more than 700 bytes, and says so by hanging up."""

    def connect(self) -> None:
        self.say(NOT_THIS_VERSION if self.version == 5 else connack(4))

    def published(self, topic: str, body: bytes, mid: int) -> None:
        if len(topic) + len(body) > 690:
            self.over = True
        else:
            Session.published(self, topic, body, mid)


def test_a_broker_of_3_that_takes_less_than_usual_gets_smaller_messages(tmp_path, caplog):
    """It broke the connection at every message of 4 kB, and got the same one again, for ever and without a pause."""
    batches = [range(40 * k, 40 * k + 40) for k in range(20)]
    readings = [(b"in/a", b"[" + b",".join(b'{"t":%d}' % t for t in batch) + b"]") for batch in batches]
    with (
        FakeBroker(Three, 1_000, readings) as broker,
        core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core,
        serving(core, broker.port),
    ):
        wait_until(lambda: {r["t"] for r in broker.taken} == set(range(800)))
        assert core.stats.protocol == "3.1.1"
    assert broken(caplog) == []  # every release goes alone
    assert sum(r.message == "broker_speaks_mqtt_3" for r in caplog.records) == 1  # said once


# --- what nobody thought of --------------------------------------------------------------------------------


@pytest.fixture
def trap(monkeypatch):
    """Something in the gateway fails at stream "trap", and at the value 13."""
    settle = Scheduler.decide

    def fails(self, readings, *more):
        for r in readings:
            if isinstance(r, Reading) and (r.stream == "trap" or r.point == 13.0):
                raise ZeroDivisionError(f"at {r.point}")
        return settle(self, readings, *more)

    monkeypatch.setattr(Scheduler, "decide", fails)


def kept(core) -> list[tuple]:
    return core.store.file.db.execute("SELECT reason, length, sha256 FROM private_unhandled").fetchall()


def line(stream: str, t: int, value: float) -> bytes:
    return json.dumps({"stream": stream, "t": t, "value": value}).encode()


MESSAGES = [line("a", 0, 1), line("trap", 0, 2), line("a", 1, 13), line("a", 2, 4)]


def test_what_fails_in_the_pipe_costs_its_line_alone(tmp_path, trap):
    """A failure that a value brings about must not show: that reading is released without looking."""
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        out = io.BytesIO()
        pipe.run(core, io.BytesIO(b"\n".join(MESSAGES)), out)
        assert [json.loads(r)["t"] for r in out.getvalue().splitlines()] == [0, 1, 2]
        assert core.stats.refused["unhandled"] == 1
        assert core.store.load("", "a").private.faults == 1
        digest = hashlib.sha256(MESSAGES[1]).hexdigest()
        assert ("ZeroDivisionError", len(MESSAGES[1]), digest) in kept(core)
        assert {row[2] for row in kept(core)} == {hashlib.sha256(m).hexdigest() for m in MESSAGES[1:3]}
    for file in tmp_path.glob("s.db*"):
        assert b"trap" not in file.read_bytes()


def test_what_fails_over_http_costs_its_request_alone(tmp_path, trap):
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        server = Server(core)
        try:
            codes = [server.ask("/v1/release", m)[0] for m in MESSAGES]
            assert server.ask("/healthz")[0] == 200
        finally:
            server.end()
        assert codes == [200, 500, 200, 200]
        assert core.stats.refused["unhandled"] == 1 and len(kept(core)) == 2


@NEEDS_MOSQUITTO
def test_what_fails_over_mqtt_is_acknowledged_and_costs_its_message_alone(tmp_path, broker, trap):
    client = Client(broker.port, "out/#")
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        with serving(core, broker.port):
            for m in MESSAGES:
                client.say(f"in/{json.loads(m)['stream']}", m)
            wait_until(lambda: [r["t"] for r in client.releases()] == [0, 1, 2])
            wait_until(lambda: core.stats.refused["unhandled"] == 1)
        with serving(core, broker.port):  # it does not come again
            client.say("in/b", line("b", 0, 1))
            wait_until(lambda: len(client.releases()) >= 4)
            assert core.stats.refused["unhandled"] == 1
    client.end()


def test_what_is_kept_of_unhandled_messages_stays_small(tmp_path, trap, monkeypatch):
    monkeypatch.setattr("veilstream.gateway.store.MOST_UNHANDLED", 5)
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        pipe.run(core, io.BytesIO(b"\n".join(line("trap", t, 1) for t in range(12))), io.BytesIO())
        assert core.stats.refused["unhandled"] == 12
        assert [row[2] for row in kept(core)] == [hashlib.sha256(line("trap", t, 1)).hexdigest() for t in range(7, 12)]
        assert core.process([Reading("a", 0, 0, 1.0)]).outcomes[0].status is Status.released
