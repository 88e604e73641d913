"""A real Home Assistant behind the gateway: its OwnTracks integration over MQTT and by webhook, and MQTT discovery."""

import json
import time
from contextlib import closing

import pytest

from audiencekit import behind
from gatewaykit import NEEDS_MOSQUITTO, artefact, core_of, levels, places
from homekit import SECRET, HomeAssistant
from httpkit import Server, forwarding
from mosquitto import Mosquitto, free_port
from mqttkit import Client, serving
from patience import PATIENCE_S, wait_until
from veilstream.data.states import named
from veilstream.gateway.audience import AudienceSpec, with_audiences
from veilstream.gateway.core import Core
from veilstream.gateway.home import Home
from veilstream.gateway.owntracks import sealer
from veilstream.gateway.space import Space
from veilstream.gateway.store import Store
from veilstream.gateway.topics import Route
from veilstream.gateway.wire import parse

pytestmark = [NEEDS_MOSQUITTO, pytest.mark.service("home-assistant"), pytest.mark.slow]
TEMPLATE = '{{ states("zone.home") }}'


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    made = Mosquitto(tmp_path_factory.mktemp("broker"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def home(tmp_path_factory, broker):
    made = HomeAssistant(tmp_path_factory.mktemp("home"), free_port(), broker.port, "shared/#")
    yield made
    made.end()


@pytest.fixture
def art(tmp_path):
    return artefact(tmp_path / "p.veil", states=places(), period_s=60.0)


def location(minutes_ago: int = 0, **more) -> dict:
    return {"_type": "location", "tst": int(time.time()) - 60 * minutes_ago, "lat": 39.91, "lon": 116.3, **more}


def shown(message: bytes) -> list[float]:
    body = json.loads(message)
    return [body["lat"], body["lon"], body["acc"]]


def test_its_owntracks_integration_takes_our_releases_over_mqtt(tmp_path, art, broker, home):
    client = Client(broker.port, "shared/ann/+")
    until = time.monotonic() + PATIENCE_S
    while home.place("device_tracker.some_one") is None and time.monotonic() < until:  # it subscribes when it likes
        client.say("shared/some/one", location(acc=5))
        time.sleep(0.5)
    client.say("shared/nobody/phone", location())  # what we sent before: silently dropped
    client.say("shared/nobody/watch", location(acc=0))
    with core_of(art, tmp_path / "s.db") as core, serving(core, broker.port, Route("owntracks/#", "shared/#")):
        client.say("owntracks/ann/phone", location(3, SSID="HomeNet", batt=55, vel=7, inregions=["home"]))
        client.say("owntracks/ann/phone", {"_type": "waypoint", "desc": "home", "lat": 1, "lon": 2, "rad": 5, "tst": 1})
        client.say("owntracks/ann/phone", location(1))
        wait_until(lambda: len(client.heard) == 2)
        wait_until(lambda: home.place("device_tracker.ann_phone") == shown(client.heard[-1][1]))
    client.end()
    known = home.states["device_tracker.ann_phone"]["attributes"]
    assert not {"battery_level", "velocity", "SSID"} & known.keys()
    assert not [entity for entity in home.states if "nobody" in entity]


def test_its_webhook_takes_forwarded_releases_and_what_waited_while_it_was_away(tmp_path, art, home):
    phone = {"X-Limit-U": "bob", "X-Limit-D": "watch"}
    with core_of(art, tmp_path / "s.db") as core, forwarding(core, home.hook) as forwarder:
        server = Server(core, owntracks="/pub")
        try:
            assert server.ask("/pub", location(5), **phone)[:2] == (200, [])
            wait_until(lambda: home.place("device_tracker.bob_watch") is not None)
            home.end()
            for minutes in (4, 3, 2, 1):
                assert server.ask("/pub", location(minutes), **phone)[:2] == (200, [])
            last = core.stats.recent["bob/watch"]
            assert core.unsent(forward=True)
            home.start()
            wait_until(lambda: core.unsent(forward=True) == [])
            assert forwarder.sent == 5
            wait_until(
                lambda: (
                    home.place("device_tracker.bob_watch")
                    == [last.lat, last.lon, core.spaces[""].encoder.accuracy(last)]
                ),
                PATIENCE_S,
            )
        finally:
            server.end()


def test_it_reads_what_we_encrypt(tmp_path, art, home):
    space = Space(art, seals=sealer(SECRET))
    core = Core({"": space}, Store(tmp_path / "s.db", {"": space.binding}))
    with closing(core), forwarding(core, home.hook):
        core.process(parse(json.dumps(location()).encode(), space.grid, "dora/phone"))
        last = core.stats.recent["dora/phone"]
        at = [last.lat, last.lon, space.encoder.accuracy(last)]
        wait_until(lambda: home.place("device_tracker.dora_phone") == at)


def test_discovery_shows_trackers_meters_and_their_bits_and_either_side_may_restart(tmp_path, art, broker, home):
    spaces = {"": Space(art, 50.0), "meters": Space(levels(tmp_path / "m.veil", "kWh"), 20.0)}
    routes = [Route("phones/#", "released/phones/#"), Route("meters/+", "released/meters/+", "meters")]
    client = Client(broker.port, "released/#")

    def says(entity: str, key: str | None = None) -> object:
        known = home.states.get(entity, {})
        return known.get("state") if key is None else known.get("attributes", {}).get(key)

    with_store = tmp_path / "s.db"
    core = Core(spaces, Store(with_store, {k: s.binding for k, s in spaces.items()}))
    with serving(core, broker.port, *routes, home=Home(spaces, "veil/status")):
        for name in ("carol/phone", TEMPLATE):
            client.say(f"phones/{name}", location(9))
        client.say("meters/meter 7", {"t": int(time.time()) - 540, "value": 0.4})
        wait_until(lambda: len(client.heard) == 3)
        wait_until(lambda: says("device_tracker.carol_phone", "latitude") is not None)
        wait_until(lambda: says("sensor.meter_7") in ("0.1", "0.5", "2.0"))
        wait_until(lambda: says("sensor.meter_7_leaked_bits", "ceiling_bits") == 20.0)
        wait_until(lambda: says("device_tracker.states_zone_home", "friendly_name") == TEMPLATE)
        assert (says("sensor.meter_7", "unit_of_measurement"), says("sensor.meter_7", "device_class")) == (
            "kWh",
            "energy",
        )
        home.end()
        client.say("phones/carol/phone", location(8))
        wait_until(lambda: len(client.heard) == 4)
        at = shown(client.heard[-1][1])
        home.start()
        wait_until(lambda: home.place("device_tracker.carol_phone") == at, what="what came while it was away")
    wait_until(lambda: says("device_tracker.carol_phone") == "unavailable")
    core.outlets.clear()
    with serving(core, broker.port, *routes, home=Home(spaces, "veil/status")):
        wait_until(lambda: home.place("device_tracker.carol_phone") == at, what="the same after our restart")
        assert float(says("sensor.carol_phone_leaked_bits")) > 0
    core.close()
    client.end()


def test_the_family_sees_a_tracker_and_the_neighbours_a_zone_of_one_phone(tmp_path, art, broker, home):
    names = named(("away", "home", "school"))
    behind(tmp_path / "neighbours.veil", art, sharpness=2.0, points=names, measure="table", cost_unit="%")
    spec = AudienceSpec("neighbours", str(tmp_path / "neighbours.veil"))
    spaces = with_audiences({"": Space(art)}, [spec])
    core = Core(spaces, Store(tmp_path / "s.db", {k: s.binding for k, s in spaces.items()}))
    route, theirs = Route("people/+/+", "family/+/+"), Route("people/+/+", "near/+/+", "neighbours")
    client, fine, zones = Client(broker.port, "family/#", "near/#"), "device_tracker.erin_phone", set()
    zone = f"{fine}_neighbours"
    with closing(core), serving(core, broker.port, route, audiences=[theirs], home=Home(spaces, "veil/status")):
        for k in range(12):
            places = {"lat": 39.9 + 0.01 * (k % 4), "lon": 116.3 + 0.01 * (k // 4)}
            client.say("people/erin/phone", {**location(20 - k), **places})
            wait_until(lambda k=k: len(client.heard) == 2 * (k + 1))
            last = {topic: payload for topic, payload, _ in client.heard}
            name = json.loads(last["near/erin/phone"])["released"]
            said = {"away": "not_home"}.get(name, name)
            zones.add(said)
            wait_until(lambda said=said: home.states.get(zone, {}).get("state") == said, what=said)
            inside = [] if name == "away" else [name]
            wait_until(lambda inside=inside: home.states[zone]["attributes"].get("in_zones") == inside)
            at = shown(last["family/erin/phone"])
            wait_until(lambda at=at: home.place(fine) == at)
    client.end()
    assert len(zones) > 1 and home.place(zone) is None  # a name, and no place
    known = [home.states[entity]["attributes"]["friendly_name"] for entity in (fine, zone)]
    assert known == ["erin/phone", "erin/phone (neighbours)"]


def test_all_of_them_speak_mqtt_5(broker, home):
    """As mosquitto's log has it; the benchmark's own client is not among them."""
    found = [line for line in broker.log.read_text().splitlines() if "New client connected" in line]
    assert len(found) >= 2 and all("(p5," in line for line in found), found
