"""Every odd broker of the drill, and what is told of a broker that refuses or does not answer."""

import random
import subprocess
import time

import pytest

from attack import odd_mosquitto
from attack.drill import Trial
from attack.odd import ODD, Silent, endured, served
from fakebroker import FakeBroker, Session
from gatewaykit import NEEDS_MOSQUITTO, artefact, core_of
from httpkit import Server
from mosquitto import free_port
from mqttkit import Client, serving
from nats_server import nats_command
from patience import PATIENCE_S, wait_until
from veilstream.gateway.topics import FIRST_S, LAST_S, RefusedTopics

READINGS = [(b"in/s%d" % s, b'{"t":%d,"value":3}' % t) for t in range(10) for s in range(4)]


@pytest.mark.parametrize("odd", [pytest.param(odd, id=odd.name) for odd in ODD])
def test_an_odd_broker_costs_its_connection_and_no_release(odd, tmp_path):
    endured(Trial(random.Random(odd.name), tmp_path), odd)


@NEEDS_MOSQUITTO
@pytest.mark.slow
@pytest.mark.parametrize("kind", odd_mosquitto.KINDS, ids=lambda kind: kind.__name__)
def test_limits_refusals_and_floods_cost_no_release(kind, tmp_path):
    kind(Trial(random.Random(kind.__name__), tmp_path, 0.5))


# --- what is told ------------------------------------------------------------------------------------------


class RefusesOne(Session):
    """Releases of stream s0, until it is told otherwise."""

    refusing = True

    def published(self, topic: str, body: bytes, mid: int) -> None:
        if topic == "out/s0" and RefusesOne.refusing:
            self.answer(mid, 0x87)
        else:
            Session.published(self, topic, body, mid)


def test_a_refused_release_is_told_and_holds_up_no_other_stream(tmp_path):
    RefusesOne.refusing = True
    with (
        core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core,
        FakeBroker(RefusesOne, 1000, READINGS) as broker,
        served(core, broker.port),
    ):
        server = Server(core)
        try:
            wait_until(lambda: len(broker.taken) == 30)
            assert {r["stream"] for r in broker.taken} == {"s1", "s2", "s3"}
            wait_until(lambda: server.ask("/healthz")[0] == 503)
            assert server.ask("/healthz")[1] == {
                "error": "the broker refuses releases (Not authorized); they wait in the outbox"
            }
            status = server.ask("/v1/status")[1]
            assert status["broker_refused"]["Not authorized"] >= 1 and "Not authorized" in status["broker_trouble"]
            assert status["broker_connected"] and status["broker_protocol"] == "5"
            shown = server.ask("/metrics")[1]
            assert 'veil_broker_refused_total{reason="Not authorized"}' in shown and "veil_broker_trouble 1.0" in shown
            tries = core.stats.broker_refused["Not authorized"]
            time.sleep(0.5)
            assert core.stats.broker_refused["Not authorized"] - tries <= 25  # one at a time, 0.02 s apart or more
            RefusesOne.refusing = False
            wait_until(lambda: len(broker.taken) == 40)
            assert [r["t"] for r in broker.taken if r["stream"] == "s0"] == list(range(10))  # in order
            wait_until(lambda: server.ask("/healthz")[0] == 200)
            assert server.ask("/v1/status")[1]["broker_trouble"] is None
        finally:
            server.end()


def test_answers_that_do_not_come_are_told_until_some_do(tmp_path):
    with (
        core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core,
        FakeBroker(Silent, 2, READINGS) as broker,
        served(core, broker.port),
    ):
        server, told = Server(core), []
        try:
            wait_until(lambda: (told.append(server.ask("/healthz")[:2]), len(broker.taken) == 40)[1])
            wait_until(lambda: server.ask("/healthz")[0] == 200)
        finally:
            server.end()
    assert (503, {"error": "the broker did not acknowledge releases; they are sent again"}) in told


# --- trials ------------------------------------------------------------------------------------------------


def test_refused_topics_are_tried_one_at_a_time_less_and_less_often_and_all_when_one_goes_through():
    now = [0.0]
    refused = RefusedTopics(lambda: now[0])
    for i, topic in enumerate(["a", "b", "c"], 1):
        refused.add(topic, i, "Not authorized")
        refused.add(topic, 10 + i, "Not authorized")
    assert len(refused) == 3 and refused.due() == ([], False)
    tried, waits = [], []
    while len(tried) < 8:
        before = now[0]
        while not (due := refused.due()[0]):
            now[0] += 0.25
        waits.append(now[0] - before)
        tried += due
        assert due[0][0] in refused and refused.due() == ([], False)
        refused.add(*due[0], "Not authorized")
    assert tried == [("a", 1), ("b", 2), ("c", 3)] * 2 + [("a", 1), ("b", 2)]
    assert waits[0] == FIRST_S and waits == sorted(waits) and waits[-1] == LAST_S
    now[0] += LAST_S
    assert refused.due() == ([("c", 3)], False)
    refused.remove("c")
    assert refused.due() == ([("a", 1), ("b", 2)], True)  # at once
    refused.lost()
    assert refused.due() == ([], False) and len(refused) == 2


def test_a_topic_of_which_nothing_waits_any_more_is_forgotten():
    now = [0.0]
    refused = RefusedTopics(lambda: now[0])
    for i, topic in enumerate("ab", 1):
        refused.add(topic, i, "Quota exceeded")
    refused.remove("a")
    assert refused.due() == ([("b", 2)], True)
    refused.remove("b")  # it was not in the outbox
    assert "b" not in refused and len(refused) == 0 and refused.due() == ([], True)


# --- a real broker of 3.1.1 --------------------------------------------------------------------------------


@pytest.mark.service("nats-server")
def test_a_broker_that_knows_3_alone_is_spoken_to_in_3_and_that_is_said(tmp_path, caplog):
    """nats-server speaks MQTT 3.1.1 and no other."""
    port = free_port()
    config = f'server_name: one\nlisten: "127.0.0.1:{free_port()}"\nmqtt {{ listen: "127.0.0.1:{port}" }}\n'
    (tmp_path / "nats.conf").write_text(config + f'jetstream {{ store_dir: "{tmp_path}" }}\n')
    server = subprocess.Popen([nats_command(), "-c", tmp_path / "nats.conf"], stderr=subprocess.DEVNULL)
    try:
        client = Client(port, "out/+")
        with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core, serving(core, port):
            for i in range(100):
                client.say(f"in/s{i % 5}", {"t": i // 5, "value": i % 16})
            wait_until(lambda: len({(r["stream"], r["t"]) for r in client.releases()}) == 100)
            assert core.stats.protocol == "3.1.1"
            assert core.stats.status(None)["broker_protocol"] == "3.1.1"
        client.end()
    finally:
        server.terminate()
        server.wait(PATIENCE_S)
    assert sum(r.message == "broker_speaks_mqtt_3" for r in caplog.records) == 1
