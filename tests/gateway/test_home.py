"""Home Assistant: what is announced and published for it, at a real broker."""

import json
import time

import pytest

from gatewaykit import NEEDS_MOSQUITTO, artefact, core_of, levels, places
from httpkit import Server
from mqttkit import Client, serving
from patience import PATIENCE_S, wait_until
from veilcli import veil
from veilstream.errors import InputError
from veilstream.gateway.home import Home
from veilstream.gateway.space import Space
from veilstream.gateway.topics import Route

NOW = 6000.0
ROUTE = Route("owntracks/#", "shared/#")
TEMPLATE = "{{ states('person.ann') }}{% raw %}"


@pytest.fixture
def art(tmp_path):
    return artefact(tmp_path / "p.veil", states=places(), period_s=60.0)


def home_of(core, **more) -> Home:
    return Home(core.spaces, "veil/status", **more)


def location(step: int, **more) -> dict:
    return {"_type": "location", "tst": 60 * step, "lat": 39.91, "lon": 116.3, **more}


def retained(port: int) -> dict[str, dict]:
    """What somebody finds who comes later."""
    late = Client(port, "homeassistant/#")
    wait_until(lambda: late.heard)
    time.sleep(0.3)
    late.end()
    assert all(retain for _, _, retain in late.heard)
    return {topic: json.loads(payload) for topic, payload, _ in late.heard}


def texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [t for k, v in value.items() for t in (k, *texts(v))]
    return [t for v in value for t in texts(v)] if isinstance(value, list) else [str(value)]


@NEEDS_MOSQUITTO
def test_every_stream_is_announced_and_whoever_comes_later_finds_it(tmp_path, art, broker):
    client = Client(broker.port, "shared/#")
    with (
        core_of(art, tmp_path / "s.db", ceiling=50.0, now=lambda: NOW) as core,
        serving(core, broker.port, ROUTE, home=home_of(core)),
    ):
        for step in range(5):
            client.say("owntracks/ann/phone", location(step))
        wait_until(lambda: len(client.heard) == 5)
        wait_until(lambda: not core.store.file.read("SELECT 1 FROM outbox WHERE topic LIKE 'homeassistant/%'"))
    client.end()
    found = retained(broker.port)
    [tracker] = [v for t, v in found.items() if "/device_tracker/" in t]
    [bits] = [v for t, v in found.items() if "/sensor/" in t]
    [state] = [v for t, v in found.items() if not t.endswith("/config")]
    last = json.loads(client.heard[-1][1])
    assert state["place"] == {"latitude": last["lat"], "longitude": last["lon"], "gps_accuracy": last["acc"]}
    assert state["bits"]["ceiling_bits"] == 50.0 and 0 < state["bits"]["leaked_bits"] < 50
    assert tracker["json_attributes_topic"] in found and tracker["source_type"] == "gps"
    assert not {"state_topic", "value_template"} & tracker.keys()  # a location_name: Home Assistant drops it in 2027.7
    assert tracker["device"] == bits["device"] and tracker["device"]["name"] == "ann/phone"
    assert bits["entity_category"] == "diagnostic" and bits["unit_of_measurement"] == "bit"
    assert {tracker["availability_topic"], bits["availability_topic"]} == {"veil/status"}
    assert len({tracker["unique_id"], bits["unique_id"]}) == 2


@NEEDS_MOSQUITTO
def test_a_streams_text_is_in_no_topic_and_no_template(tmp_path, art, broker):
    client = Client(broker.port, "shared/#")
    with (
        core_of(art, tmp_path / "s.db", now=lambda: NOW) as core,
        serving(core, broker.port, ROUTE, home=home_of(core)),
    ):
        for name in ("ann", TEMPLATE):
            client.say(f"owntracks/{name}", location(1))
        wait_until(lambda: len(client.heard) == 2)
        wait_until(lambda: len(retained(broker.port)) == 6)
    client.end()
    found = retained(broker.port)
    by_name: dict[str, list] = {"ann": [], TEMPLATE: []}
    for topic, config in found.items():
        assert not any(c in topic for c in "{}%' ")
        if topic.endswith("/config"):
            named = config["device"].pop("name")
            assert not [t for t in texts(config) if named in t]
            by_name[named].append({k: v for k, v in config.items() if k.endswith("_template")})
    assert by_name["ann"] == by_name[TEMPLATE] and len(by_name["ann"]) == 2


@NEEDS_MOSQUITTO
def test_either_side_may_restart(tmp_path, art, broker):
    """The gateway: nothing changes. A broker that forgot everything: announced again, with the next release."""
    client = Client(broker.port, "shared/#", "homeassistant/veil/+")

    def states() -> list[dict]:
        return [json.loads(p) for t, p, _ in client.heard if t.startswith("homeassistant/veil")]

    with core_of(art, tmp_path / "s.db", now=lambda: NOW) as core:
        with serving(core, broker.port, ROUTE, home=home_of(core)):
            client.say("owntracks/ann/phone", location(1))
            wait_until(lambda: len(states()) == 1)
        before = retained(broker.port)
        assert len(before) == 3
        core.outlets.clear()
        with serving(core, broker.port, ROUTE, home=home_of(core)):
            assert retained(broker.port) == before
            broker.kill()
            for kept in (tmp_path / "broker").glob("*.db"):
                kept.unlink()
            broker.start()
            until = time.monotonic() + PATIENCE_S
            step = 2
            while len(states()) < 2 and time.monotonic() < until:  # what the broker lost on the way in is lost
                client.say("owntracks/ann/phone", location(step))
                step += 1
                time.sleep(0.3)
            wait_until(lambda: len(retained(broker.port)) == 3)
            after = retained(broker.port)
    client.end()
    assert {t: v for t, v in after.items() if t.endswith("/config")} == {
        t: v for t, v in before.items() if t.endswith("/config")
    }


@NEEDS_MOSQUITTO
def test_releases_of_http_and_of_a_clock_are_shown_too(tmp_path, art, broker):
    client = Client(broker.port, "homeassistant/veil/+", "shared/#")
    with (
        core_of(art, tmp_path / "s.db", now=lambda: NOW) as core,
        serving(core, broker.port, ROUTE, home=home_of(core)),
    ):
        server = Server(core, [ROUTE], owntracks="/pub")
        server.ask("/pub", location(1), **{"X-Limit-U": "ann"})
        server.end()
        wait_until(lambda: len(client.heard) == 1)
    moment = [NOW]
    client.heard.clear()
    with (
        core_of(art, tmp_path / "c.db", now=lambda: moment[0], clock=True) as core,
        serving(core, broker.port, ROUTE, home=home_of(core)) as gateway,
    ):
        client.say("owntracks/bob", location(100))
        wait_until(lambda: core.stats.waiting == 1)
        for step in (100, 101, 102):
            core.tick("", step)
        gateway.wake()
        wait_until(lambda: len(client.heard) == 6)
        time.sleep(0.3)
    client.end()
    assert [t.split("/")[0] for t, _, _ in client.heard].count("homeassistant") == 3 and len(client.heard) == 6


@pytest.mark.parametrize(
    ("unit", "kind", "state_class"),
    [
        ("kWh", "energy", None),
        ("W", "power", "measurement"),
        ("°C", "temperature", "measurement"),
        ("mg/dL", None, "measurement"),
        ("", None, "measurement"),
    ],
)
def test_values_have_their_unit_and_kind(tmp_path, unit, kind, state_class):
    home = Home({"": Space(levels(tmp_path / "v.veil", unit))}, "veil/status")
    config = json.loads(home.announcement(("", "meter 7"))[0][2])
    assert config.get("unit_of_measurement", "") == unit
    assert (config.get("device_class"), config.get("state_class")) == (kind, state_class)


def test_a_batch_leaves_the_last_state_and_is_announced_once_it_is_committed(tmp_path, art):
    with core_of(art, tmp_path / "s.db", now=lambda: NOW) as core:
        core.outlets.append(home_of(core))
        server = Server(core)
        batch = [{"stream": "a", "t": 60 * t, "lat": 39.9, "lon": 116.3} for t in range(3)]
        core.store.file.db.execute("PRAGMA query_only = ON")
        assert server.ask("/v1/release", batch)[0] == 503
        core.store.file.db.execute("PRAGMA query_only = OFF")
        released = server.ask("/v1/release", batch)[1]
        server.ask("/v1/release", {"stream": "a", "t": 240, "lat": 39.9, "lon": 116.3})
        server.end()
        mail = core.unsent()
    assert [t.rpartition("/")[2] == "config" for _, t, _ in mail] == [True, True, False, False]
    assert json.loads(mail[2][2])["place"]["latitude"] == released[-1]["lat"]


def test_what_would_come_back_or_cannot_be_is_refused(tmp_path, art):
    from veilstream.gateway.broker import BrokerSettings
    from veilstream.gateway.mqtt import MqttGateway

    with core_of(art) as core:
        for route in (Route("homeassistant/#", "out/#"), Route("+/veil/+", "out/+/+")):
            with pytest.raises(InputError, match="come back"):
                MqttGateway(core, [route], BrokerSettings(), home=home_of(core))
        assert core.outlets == []
        with pytest.raises(InputError, match="status_topic"):
            Home(core.spaces, "")
        for prefix in ("", "home/#", "a+b"):
            with pytest.raises(InputError, match="without wildcards"):
                home_of(core, prefix=prefix)


def test_the_command_needs_a_broker(tmp_path, art):
    assert "--homeassistant needs --mqtt" in veil("serve", tmp_path / "p.veil", "--http", "0", "--homeassistant").stderr
