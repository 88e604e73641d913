"""Audiences over MQTT and HTTP: each on its own topic or with its own token, and no byte of a finer release."""

import json

import pytest

from audiencekit import HIDDEN, core_of, two
from gatewaykit import NEEDS_MOSQUITTO
from httpkit import Server
from mosquitto import Mosquitto
from mqttkit import Client, serving
from patience import wait_until
from veilstream.errors import InputError
from veilstream.gateway.guard import HttpSettings
from veilstream.gateway.home import Home
from veilstream.gateway.mqtt import MqttGateway
from veilstream.gateway.spec import ServeSpec
from veilstream.gateway.topics import Route, check

ROUTE, PUBLIC = Route("in/+", "out/+"), Route("in/+", "public/+", "public")
OWNER, THEIRS = "o" * 20, "p" * 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("audiences")
    two(found, map=False)
    return found


def bodies(client, topic):
    found = [json.loads(payload) for at, payload, _ in client.heard if at.startswith(topic)]
    return [r for body in found for r in (body if isinstance(body, list) else [body])]


@NEEDS_MOSQUITTO
def test_each_audience_has_its_topic_and_the_public_one_carries_nothing_finer(folder, tmp_path):
    broker, n = Mosquitto(tmp_path), 40
    everybody, public = Client(broker.port, "out/+", "public/+"), Client(broker.port, "public/+")
    try:
        with core_of(folder, store=tmp_path / "a.db") as core, serving(core, broker.port, ROUTE, audiences=[PUBLIC]):
            for t in range(n):
                everybody.say("in/ann", {"t": t, "value": t % 16})
            everybody.say("in/ann", [{"t": t, "value": 3} for t in range(n, n + 5)])  # several in one message
            wait_until(lambda: len(bodies(everybody, "out")) == len(bodies(everybody, "public")) == n + 5)
            everybody.say("in/ann", {"t": 2, "value": 9})  # once more: everybody gets the same again
            wait_until(lambda: len(bodies(everybody, "out")) == len(bodies(everybody, "public")) == n + 6)
    finally:
        everybody.end()
        public.end()
        broker.stop()
    assert {at for at, _, _ in public.heard} == {"public/ann"}
    fine, coarse = ({r["t"]: r for r in bodies(everybody, topic)} for topic in ("out", "public"))
    assert fine.keys() == coarse.keys() and all(coarse[r["t"]] == r for r in bodies(everybody, "public"))
    assert {r["released"] for r in coarse.values()} <= set(range(HIDDEN))
    assert max(r["released"] for r in fine.values()) >= HIDDEN  # there was something finer
    assert not {json.dumps(r["leaked_bits"]) for r in fine.values()} & {
        json.dumps(r["leaked_bits"]) for r in coarse.values()
    }


@NEEDS_MOSQUITTO
def test_a_late_audience_hears_each_release_once_when_it_is_old_also_over_a_restart(folder, tmp_path):
    broker, n, k = Mosquitto(tmp_path), 12, 3
    client = Client(broker.port, "public/+")
    try:
        for first in (0, n):
            with (
                core_of(folder, store=tmp_path / "a.db", delay=f"{k} steps") as core,
                serving(core, broker.port, ROUTE, audiences=[PUBLIC]),
            ):
                for t in range(first, first + n):
                    client.say("in/ann", {"t": t, "value": t % 16})
                wait_until(lambda end=first + n: len(bodies(client, "public")) == end - k)
    finally:
        client.end()
        broker.stop()
    assert [r["t"] for r in bodies(client, "public")] == list(range(2 * n - k))


@NEEDS_MOSQUITTO
def test_under_a_clock_every_tick_goes_to_every_audience(tmp_path):
    two(tmp_path, period_s=60.0)
    broker, now = Mosquitto(tmp_path), [6000.0]
    client = Client(broker.port, "out/+", "public/+")
    try:
        with (
            core_of(tmp_path, store=tmp_path / "a.db", clock=True, now=lambda: now[0]) as core,
            serving(core, broker.port, ROUTE, audiences=[PUBLIC]) as gateway,
        ):
            client.say("in/ann", {"t": 6000, "lat": 39.9, "lon": 116.3})
            wait_until(lambda: core.stats.waiting == 1)
            core.tick("", 100)
            gateway.wake()
            wait_until(lambda: len(client.heard) == 2)
    finally:
        client.end()
        broker.stop()
    assert {at for at, _, _ in client.heard} == {"out/ann", "public/ann"}


@pytest.mark.parametrize("target", ["out/+", "in/+", "+/ann"])
def test_a_topic_on_which_releases_would_meet_is_refused(target):
    with pytest.raises(InputError, match=r"overlaps|come back|wildcards"):
        check([ROUTE], audiences=[Route("in/+", target, "public")])


def test_a_token_of_an_audience_shows_its_own_releases_and_nothing_else(folder, tmp_path):
    with core_of(folder, store=tmp_path / "a.db") as core:
        server = Server(core, token=OWNER, audiences={"public": THEIRS})
        try:
            mine, yours = ({"Authorization": f"Bearer {token}"} for token in (OWNER, THEIRS))
            readings = [{"stream": "ann", "t": t, "value": t % 16} for t in range(20)]
            code, answer, _ = server.ask("/v1/release", readings, **mine)
            assert code == 200 and len(answer) == 20
            _, own, _ = server.ask("/v1/status", **mine)
            code, seen, _ = server.ask("/v1/status", **yours)
            assert code == 200 and seen["released"] == 20
            assert own["recent"] == [answer[-1]]
            [last] = seen["recent"]
            assert last["released"] < HIDDEN and last["leaked_bits"] < answer[-1]["leaked_bits"]
            for path, body in (("/v1/release", readings), ("/metrics", None), ("/v1/else", None)):
                code, text, _ = server.ask(path, body, **yours)
                assert code == 401 and "error" in text
            assert server.ask("/v1/status")[0] == 401
        finally:
            server.end()


def test_tokens_must_differ_and_the_owner_needs_one():
    for settings in ({"audiences": {"public": THEIRS}}, {"token": OWNER, "audiences": {"public": OWNER}}):
        with pytest.raises(InputError, match="tokens of audiences"):
            HttpSettings(0, **settings)


def test_at_home_each_audience_is_a_device(folder):
    with core_of(folder) as core:
        home = Home(core.spaces, "veil/status")
        core.outlets.append(home)
        core.process(core.scheduler.read(b'{"stream": "ann", "t": 1, "value": 3}'))
        found = [m for _, topic, m in core.store.unsent() if topic.endswith("/config")] or [
            m for _, topic, m in core.unsent() if topic.endswith("/config")
        ]
        names = {json.loads(m)["device"]["name"] for m in found}
    assert names == {"ann", "ann (public)"}


def test_a_gateway_asked_for_an_audience_without_a_way_to_it_is_one_line(folder):
    family, public = str(folder / "family.veil"), str(folder / "public.veil")
    with pytest.raises(InputError, match="would get nothing"):
        ServeSpec(policy=family, mqtt="localhost", audience=[public])
    with pytest.raises(InputError, match="`audience` does not go with `nats`"):
        ServeSpec(policy=family, nats="nats://n1", audience=[f"{public} out=public/+"])
    spec = ServeSpec(policy=family, mqtt="localhost", audience=[f"{public} out=public/+ ceiling=4"])
    topics = [route for route, _ in spec.routes()]
    spaces = spec.spaces({route.space: file for route, file in spec.routes()})
    assert spec.shared(spaces, topics) == [PUBLIC] and spaces["public"].ceiling == 4
    with core_of(folder) as core:
        assert MqttGateway(core, [ROUTE], spec.broker("x"), audiences=[PUBLIC]).audiences == [PUBLIC]
