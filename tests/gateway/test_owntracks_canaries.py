"""An OwnTracks phone's whole vocabulary, every field a canary, plain and encrypted, over MQTT and HTTP.

What comes out is built from an allow-list: of a location its release, of everything else nothing.
"""

import base64
import json
import logging
from contextlib import closing

import pytest

from gatewaykit import NEEDS_MOSQUITTO, artefact, core_of, places
from httpkit import Receiver, Server, forwarding
from mosquitto import Mosquitto
from mqttkit import Client, serving
from patience import wait_until
from veilstream.errors import InputError
from veilstream.gateway.core import Core
from veilstream.gateway.owntracks import opener, sealer
from veilstream.gateway.space import Space
from veilstream.gateway.store import Store
from veilstream.gateway.topics import Route
from veilstream.gateway.wire import Grid, Refusal, parse

nacl = pytest.importorskip("nacl.secret")
SECRET = "correct horse"
NUMBER = 77.123454321  # written into every field that is a number
CANARIES = ("canary", "77.1234", "7712345", "Y2FuYXJ5", "correct horse")
PLACE = {"lat": NUMBER, "lon": NUMBER, "acc": 7712345, "tst": 60, "_id": "canary", "created_at": 7712345}
REGION = {**PLACE, "_type": "waypoint", "desc": "canary home", "rad": 7712345, "rid": "canary", "uuid": "canary"}
VOCABULARY = [
    {
        **PLACE,
        "_type": "location",
        "alt": 7712345,
        "batt": 7712345,
        "bs": 7712345,
        "cog": 7712345,
        "rad": 7712345,
        "t": "canary",
        "tid": "canary",
        "vac": 7712345,
        "vel": 7712345,
        "p": NUMBER,
        "poi": "canary cafe",
        "image": "Y2FuYXJ5",
        "imagename": "canary.jpg",
        "conn": "canary",
        "tag": "canary",
        "topic": "owntracks/canary/phone",
        "inregions": ["canary home"],
        "inrids": ["canary"],
        "SSID": "canary net",
        "BSSID": "canary",
        "m": 7712345,
        "motionactivities": ["canary"],
        "isotst": "canary",
    },
    {**PLACE, "_type": "transition", "wtst": 7712345, "event": "enter canary", "desc": "canary home", "t": "canary"},
    REGION,
    {"_type": "waypoints", "_creator": "canary", "waypoints": [REGION, REGION]},
    {"_type": "card", "name": "canary", "face": "Y2FuYXJ5", "tid": "canary"},
    {"_type": "steps", "tst": 60, "steps": 7712345, "from": 7712345, "to": 7712345, "distance": 7712345},
    {"_type": "beacon", **{k: v for k, v in PLACE.items() if k != "lat"}, "uuid": "canary", "rssi": 7712345},
    {"_type": "cmd", "action": "setWaypoints", "waypoints": {"_type": "waypoints", "waypoints": [REGION]}},
    {"_type": "cmd", "action": "action", "content": "canary", "url": "http://canary"},
    {"_type": "configuration", "username": "canary", "password": "canary", "host": "canary", "waypoints": [REGION]},
    {"_type": "lwt", "tst": 7712345, "custom": "canary"},
    {"_type": "status", "iOS": {"canary": NUMBER}, "android": {"canary": NUMBER}},
    {"_type": "dump", "configuration": {"canary": "canary"}},
    {"_type": "request", "request": "tour", "tour": {"label": "canary", "from": "canary"}},
    {"_type": "encrypted", "data": "canary"},
    {"_type": "encrypted", "data": {"canary": [NUMBER]}},
    {"_type": "canary", "canary": "canary"},
    {"_type": "", "canary": "canary"},
]
ALLOWED = {"_type", "lat", "lon", "acc", "tst", "tid"}


def sealed(message: object, secret: str = SECRET) -> dict:
    box = nacl.SecretBox(secret.encode().ljust(32, b"\0"))
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return {"_type": "encrypted", "data": base64.b64encode(bytes(box.encrypt(body))).decode()}


def said(step: int) -> list[dict]:
    """The vocabulary at this step, plain and encrypted (twice, under another key, cut short)."""
    now = [{**m, "tst": 60 * step} if "tst" in m else m for m in VOCABULARY]
    odd = [sealed(sealed(now[0])), sealed(now[0], "another"), sealed(b"canary"), sealed([now[0]]), sealed(b"\xff")]
    cut = {"_type": "encrypted", "data": sealed(now[0])["data"][:20]}
    return [*now, *(sealed(m) for m in now), *odd, cut]


def check(out: list[dict], where: bytes | str, art, more: set[str] = frozenset()) -> None:
    assert out
    for body in out:
        assert set(body) == ALLOWED | more
        assert body["_type"] == "location" and [body["lat"], body["lon"]] in art.states.coordinates.tolist()
    text = where if isinstance(where, str) else where.decode("latin-1")
    assert not [c for c in CANARIES if c in text]


def test_over_http_and_forwarded(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    art, receiver = artefact(tmp_path / "p.veil", states=places(), period_s=60.0), Receiver()
    with core_of(art, tmp_path / "s.db", now=lambda: 6000.0, opens=opener([SECRET])) as core:
        server = Server(core, owntracks="/pub")
        with forwarding(core, receiver.url):
            for step in (10, 11):
                for message in said(step):
                    assert server.ask("/pub", message, **{"X-Limit-U": "ann", "X-Limit-D": "phone"})[:2] == (200, [])
            wait_until(lambda: len(receiver.got) == 2)  # one release a step: of the location, plain or encrypted
            wait_until(lambda: core.unsent(forward=True) == [])
        seen = repr(receiver.got) + repr([server.ask(path)[:2] for path in ("/v1/status", "/metrics", "/")])
        server.end()
        assert core.stats.released == 2
    receiver.end()
    check(receiver.bodies(), seen + caplog.text, art, {"topic"})
    check(receiver.bodies(), b"".join(f.read_bytes() for f in tmp_path.glob("s.db*")), art, {"topic"})


@NEEDS_MOSQUITTO
def test_over_mqtt(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    art, folder = artefact(tmp_path / "p.veil", states=places(), period_s=60.0), tmp_path / "broker"
    folder.mkdir()
    broker = Mosquitto(folder)
    client = Client(broker.port, "shared/#", "veil/#")
    route = Route("owntracks/#", "shared/#")
    try:
        opens = opener(["nobody's", SECRET])
        with (
            core_of(art, tmp_path / "s.db", now=lambda: 6000.0, opens=opens) as core,
            serving(core, broker.port, route),
        ):
            for step in (10, 11):
                for message in said(step):
                    for below in ("", "/event", "/waypoint", "/waypoints", "/info", "/cmd", "/step", "/dump"):
                        client.say(f"owntracks/ann/phone{below}", message)
            wait_until(client.all_sent)
            client.say("owntracks/last/one", {**VOCABULARY[0], "tst": 600})
            wait_until(lambda: any(t == "shared/last/one" for t, _, _ in client.heard))
    finally:
        client.end()
        broker.stop()
    heard = [(t, p) for t, p, _ in client.heard if t.startswith("shared/")]
    check([json.loads(p) for _, p in heard], repr(client.heard) + caplog.text, art)
    check([json.loads(p) for _, p in heard], b"".join(f.read_bytes() for f in tmp_path.glob("s.db*")), art)


# --- encrypted -------------------------------------------------------------------------------------------


def read(message: object, secrets: list[str] | None) -> object:
    opens = None if secrets is None else opener(secrets)
    return parse(json.dumps(message).encode(), Grid(60.0), "ann", opens=opens)[0]


def test_an_encrypted_location_is_read_as_the_plain_one():
    for message in (VOCABULARY[0], {"_type": "location", "tst": 60, "lat": "x"}):
        assert read(sealed(message), [SECRET]) == read(message, None)
        assert read(sealed(message), ["another", SECRET]) == read(message, None)


def test_a_fault_of_value_inside_is_a_draw_that_does_not_look():
    found = read(sealed(b'{"_type":"location","tst":60,"lat":NaN,"lon":1e999}'), [SECRET])
    assert found.step == 1 and found.owntracks


def test_what_cannot_be_opened_is_refused_alike_whatever_it_holds():
    for message in VOCABULARY:
        assert read(sealed(message), None) is Refusal.sealed
        assert read(sealed(message), ["another"]) is Refusal.sealed
    assert read(sealed(VOCABULARY[2]), [SECRET]) is Refusal.not_a_location
    assert read(sealed(sealed(VOCABULARY[0])), [SECRET]) is Refusal.not_a_location  # once is enough


def test_releases_go_out_under_another_key(tmp_path):
    art, receiver = artefact(tmp_path / "p.veil", states=places(), period_s=60.0), Receiver()
    space = Space(art, seals=sealer("for the service"))
    core = Core({"": space}, Store(tmp_path / "s.db", {"": space.binding}), now=lambda: 6000.0)
    with closing(core), forwarding(core, receiver.url):
        found = parse(json.dumps(VOCABULARY[0]).encode(), space.grid, "ann/phone")
        [outcome] = core.process(found).outcomes
        wait_until(lambda: core.unsent(forward=True) == [])
    receiver.end()
    for body in (json.loads(space.body(outcome.message, "auto", True)), receiver.bodies()[0]):
        assert set(body) == {"_type", "data"} and body["_type"] == "encrypted"
        assert opener([SECRET])(body["data"]) is None
        plain = json.loads(opener(["for the service"])(body["data"]))
        assert set(plain) >= ALLOWED and plain["lat"] == outcome.release.lat
    assert json.loads(space.body(outcome.message, "plain"))["released"] == outcome.release.released


@pytest.mark.parametrize("secrets", [[], [""], ["x" * 33], ["good", ""]])
def test_secrets_are_as_the_app_takes_them(secrets):
    with pytest.raises(InputError, match="one secret a line"):
        opener(secrets)
