"""The MQTT gateway through a real mosquitto on loopback."""

import json
import os
import signal
import subprocess
import threading
import time
from collections import deque

import pytest

from attack import kills
from attack.drill import Drill
from attack.kills import audit, one_release_each
from forked import Gateways
from gatewaykit import NEEDS_MOSQUITTO, artefact, core_of
from mosquitto import Mosquitto
from mqttkit import Client, serving
from patience import PATIENCE_S, wait_until
from veilstream.errors import InputError
from veilstream.gateway import mqtt, packets
from veilstream.gateway.broker import BrokerLost, BrokerSettings, Connection
from veilstream.gateway.inbox import Heard, Inbox
from veilstream.gateway.tls import Tls
from veilstream.gateway.topics import Route, check, overlap


@pytest.fixture
def client(broker):
    made = Client(broker.port, "out/#", "veil/status")
    yield made
    made.end()


# --- topics ------------------------------------------------------------------------------------------------


def test_topics_carry_stream_names():
    route = Route("owntracks/+/+", "shared/+/x/+")
    assert route.stream("owntracks/jane/phone") == "jane/phone"
    assert route.output("jane/phone") == "shared/jane/x/phone"
    assert route.stream("owntracks/jane") is None
    assert route.stream("owntracks/jane/phone/event") is None
    rest = Route("in/#", "out/#")
    assert rest.output(rest.stream("in/a/b/c")) == "out/a/b/c"
    assert overlap("a/+", "+/b")
    assert overlap("a/#", "a")
    assert not overlap("a/+", "a/b/c")


@pytest.mark.parametrize(
    ("source", "target"), [("in/+", "out"), ("in", "out"), ("in/a+", "out/+"), ("#/a", "out/#"), ("in/+/+", "out/+")]
)
def test_bad_topics_are_refused(source, target):
    with pytest.raises(InputError):
        Route(source, target)


def test_loops_and_double_policies_are_refused():
    with pytest.raises(InputError, match="come back"):
        check([Route("a/+", "b/+"), Route("b/+", "c/+", "2")])
    with pytest.raises(InputError, match="overlap"):
        check([Route("in/+", "out/+"), Route("in/#", "else/#", "2")])
    with pytest.raises(InputError, match="come back"):
        check([Route("#", "out/#")])


# --- turns -------------------------------------------------------------------------------------------------


class Paper:
    """A connection on paper: what a broker would say is put in, and how long each turn may wait is written down."""

    def __init__(self, readings: int, stop: threading.Event) -> None:
        self.inbox = Inbox()
        for t in range(readings):
            self.inbox.put(Heard("in/a", b'{"t":%d,"value":3}' % t, t + 1))
        self.confirmed, self.refused, self.denied, self.acked, self.waits = deque(), deque(), [], [], []
        self.published, self.stop, self.version, self.max_packet = 0, stop, "5", packets.LONGEST
        self.flooded_at = None

    def turn(self, timeout: float) -> None:
        self.waits.append(timeout)
        if len(self.waits) == 3:
            self.confirmed.extend(range(1, self.published + 1))  # the broker has taken them over
        if len(self.waits) == 5:
            self.stop.set()

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> int:
        self.published += 1
        return self.published

    def ack(self, message: Heard) -> None:
        self.acked.append(message.mid)

    def close(self) -> None: ...


def test_who_waits_for_the_broker_does_not_ask_again_and_again(tmp_path, monkeypatch):
    """Readings that may be taken are taken at once; those that may not wait for confirmations without spinning."""
    monkeypatch.setattr(mqtt, "MAX_IN_FLIGHT", 2)
    monkeypatch.setattr(mqtt, "AT_ONCE", 2)
    monkeypatch.setattr(mqtt, "DRAIN_S", 0.0)
    stop = threading.Event()
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        gateway = mqtt.MqttGateway(core, [Route("in/+", "out/+")], BrokerSettings())
        paper = Paper(5, stop)
        gateway._session(paper, stop)
        assert set(paper.waits) == {mqtt.IDLE_S}  # two are in flight until the third turn, and two more from then on
        assert paper.acked == [1, 2, 3, 4] and len(paper.inbox) == 1
        monkeypatch.setattr(mqtt, "MAX_IN_FLIGHT", 100)
        stop.clear()
        again = Paper(5, stop)
        gateway._session(again, stop)
        assert again.waits == [mqtt.IDLE_S, 0, 0, mqtt.IDLE_S, mqtt.IDLE_S] and again.acked == [1, 2, 3, 4, 5]


# --- one by one --------------------------------------------------------------------------------------------


@NEEDS_MOSQUITTO
def test_readings_in_releases_out(tmp_path, broker, client):
    """Plain readings, a batch, repeats, junk of every kind, retained messages, the status topic."""
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        with serving(core, broker.port):
            client.say("in/a", {"t": 1, "value": 3})
            client.say("in/a", [{"t": t, "value": 3} for t in range(2, 8)])
            client.say("in/a", {"t": 1, "value": 12})
            client.say("in/b", {"stream": "b", "t": 1, "value": 4}, retain=True)
            junk = [b"\xff\xfe", b"", b"[" * 5000, b"x" * 10_000_000, b'{"t":1}', b'{"stream":"other","t":1}']
            for i, payload in enumerate(junk):
                client.say(f"in/junk{i}", payload)
            client.say("in/c", {"t": 5, "value": "NaN"})
            wait_until(client.all_sent)
            wait_until(lambda: any(topic == "out/c" for topic, _, _ in client.heard))
            wait_until(lambda: sum(core.stats.refused.values()) == 5)
            refused = {k: n for k, n in core.stats.refused.items() if n}
        assert refused == {"unreadable": 3, "too_large": 1, "stream": 1}
        heard = [(t, json.loads(p)) for t, p, _ in client.heard if t.startswith("out/")]
        a = [body for topic, body in heard if topic == "out/a"]
        assert [type(body) for body in a] == [dict, list, dict]
        assert a[0] == a[2]
        assert [r["t"] for r in a[1]] == list(range(2, 8))
        assert {topic for topic, _ in heard} == {"out/a", "out/b", "out/c", "out/junk4"}  # a missing value is blind
        assert not any(retain for topic, _, retain in client.heard if topic.startswith("out/"))
        wait_until(lambda: [p for t, p, _ in client.heard if t == "veil/status"][-1:] == [b"offline"])
        assert core.store.unsent() == []  # a graceful end leaves nothing behind
        with serving(core, broker.port):  # the retained reading comes again, and gets the same release
            wait_until(lambda: core.stats.repeated >= 2)
        wait_until(lambda: len([1 for t, _, _ in client.heard if t == "out/b"]) == 2)
        b = [p for t, p, _ in client.heard if t == "out/b"]
        assert b[0] == b[1]


@NEEDS_MOSQUITTO
def test_topics_have_their_own_policies_and_a_clock_publishes_for_all(tmp_path, broker, client):
    from veilstream.gateway.core import Core
    from veilstream.gateway.scheduler import Serving
    from veilstream.gateway.service import Clock
    from veilstream.gateway.space import Space
    from veilstream.gateway.store import Store

    small = artefact(tmp_path / "small.veil", name="grid2x3-toy", period_s=0.5)
    spaces = {"": Space(artefact(tmp_path / "p.veil", period_s=0.5)), "cars": Space(small)}
    core = Core(spaces, Store(tmp_path / "s.db", {k: s.binding for k, s in spaces.items()}), Serving(clock=True))
    routes = [Route("in/+", "out/+"), Route("cars/+", "out/cars/+", "cars")]
    with serving(core, broker.port, *routes):
        stop = threading.Event()
        clocks = [threading.Thread(target=Clock(core, s).run, args=(stop,)) for s in spaces]
        for c in clocks:
            c.start()
        wait_until(lambda: (client.say("in/a", {"t": time.time(), "value": 3}), core.stats.waiting > 0)[1])
        wait_until(lambda: (client.say("cars/a", {"t": time.time(), "value": 3}), core.stats.streams == 2)[1])
        wait_until(lambda: len([1 for t, _, _ in client.heard if t == "out/cars/a"]) >= 3)  # nothing is sent any more
        stop.set()
        for c in clocks:
            c.join()
    core.close()
    times = [json.loads(p)["t"] for t, p, _ in client.heard if t == "out/cars/a"]
    assert times == sorted(set(times))
    assert all(json.loads(p)["released"] < 6 for t, p, _ in client.heard if t == "out/cars/a")


@NEEDS_MOSQUITTO
def test_credentials_and_tls(tmp_path):
    folder = tmp_path / "broker"
    folder.mkdir()
    key = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        folder / "key.pem",
        "-out",
        folder / "cert.pem",
    ]
    try:
        subprocess.run(key, check=True, capture_output=True)
        subprocess.run(
            ["mosquitto_passwd", "-b", "-c", folder / "users", "gate", "open sesame"], check=True, capture_output=True
        )
    except FileNotFoundError as missing:
        pytest.skip(f"needs {missing.filename}")
    (folder / "users").chmod(0o600)
    lines = [
        f"cafile {folder}/cert.pem",
        f"certfile {folder}/cert.pem",
        f"keyfile {folder}/key.pem",
        f"password_file {folder}/users",
        "allow_anonymous false",
    ]
    mosquitto = Mosquitto(folder, *lines)
    try:
        safe = {"tls": Tls(str(folder / "cert.pem"))}
        good = {**safe, "user": "gate", "password": "open sesame"}
        for bad in ({**good, "password": "wrong"}, {**safe}, {**good, "tls": Tls()}, {**good, "tls": None}):
            with pytest.raises((BrokerLost, OSError)):
                Connection(BrokerSettings("127.0.0.1", mosquitto.port, "x", timeout_s=3, **bad), [])
        client = Client(mosquitto.port, "out/+", **good)
        with core_of(artefact(tmp_path / "p.veil")) as core, serving(core, mosquitto.port, **good):
            for t in range(300):
                client.say("in/a", {"t": t, "value": 3})
            wait_until(lambda: len(client.heard) >= 300)
        client.end()
        assert "sesame" not in repr(BrokerSettings(**good))
    finally:
        mosquitto.stop()


# --- exactly once ------------------------------------------------------------------------------------------


@NEEDS_MOSQUITTO
@pytest.mark.slow
def test_killed_and_frozen_at_random_moments_under_load():
    """Thirty times. Nothing accepted is lost, no step has two releases, and it all reaches the output."""
    done = Drill("kill mqtt", "", kills.mqtt).run("thirty", 0, 2.5)
    assert done.finding is None, done.finding.where
    assert done.attacks == 30


@NEEDS_MOSQUITTO
def test_the_last_will_tells_of_a_kill(tmp_path, broker):
    artefact(tmp_path / "p.veil")
    client = Client(broker.port, "veil/status")
    with Gateways(tmp_path / "p.veil", tmp_path / "s.db", "mqtt", broker.port) as gateways:
        gateways.start()
        wait_until(lambda: [p for _, p, _ in client.heard] == [b"online"])
        os.kill(gateways.pid, signal.SIGKILL)
        wait_until(lambda: [p for _, p, _ in client.heard] == [b"online", b"offline"])
    client.end()


@NEEDS_MOSQUITTO
def test_the_broker_is_killed_and_comes_back(tmp_path, broker, capsys):
    """What the broker lost before our commit is counted; what we committed reaches the output."""
    artefact(tmp_path / "p.veil")
    store = tmp_path / "s.db"
    client = Client(broker.port, "out/+", client_id="service")
    t = 0
    with Gateways(tmp_path / "p.veil", store, "mqtt", broker.port) as gateways:
        gateways.start()
        wait_until(lambda: b"broker_connected" in (tmp_path / "s.log").read_bytes())
        for _ in range(3):
            for _ in range(12):
                for s in range(20):
                    client.say(f"in/s{s}", {"t": t, "value": s % 16})
                t += 1
                time.sleep(0.03)
            broker.kill()
            time.sleep(0.2)
            broker.start()
        wait_until(client.all_sent, what="publishing")
        until = time.monotonic() + PATIENCE_S  # a marker that is sent last has come through
        while not any(r["stream"] == "marker" for r in client.releases()) and time.monotonic() < until:
            client.say("in/marker", {"t": t, "value": 1})
            t += 1
            time.sleep(0.2)
        time.sleep(1)
        gateways.stop()
    client.end()
    accepted = audit(store, one_release_each(client.releases()))
    published = len({(topic, json.loads(p)["t"]) for topic, p, _ in client.queue})
    with capsys.disabled():
        print(f"\n  3 broker kills: {published} published, {accepted} accepted, {published - accepted} lost by it")
    assert accepted >= 0.5 * published


@NEEDS_MOSQUITTO
def test_a_store_that_fails_takes_the_gateway_offline_and_loses_nothing(tmp_path, broker, client):
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core, serving(core, broker.port):
        client.say("in/a", {"t": 0, "value": 3})
        wait_until(lambda: core.stats.released == 1)
        core.store.file.db.execute("PRAGMA query_only = ON")
        client.say("in/a", {"t": 1, "value": 3})
        wait_until(lambda: core.stats.store_errors > 0)
        wait_until(lambda: core.stats.connected is False)
        client.say("in/a", {"t": 2, "value": 3})
        time.sleep(0.3)
        assert not [1 for t, p, _ in client.heard if t == "out/a" and json.loads(p)["t"] > 0]
        core.store.file.db.execute("PRAGMA query_only = OFF")
        wait_until(lambda: {json.loads(p)["t"] for t, p, _ in client.heard if t == "out/a"} == {0, 1, 2})
