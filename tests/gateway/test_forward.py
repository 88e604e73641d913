"""OwnTracks over HTTP: phones post, releases are sent on, through kills and receivers that are away."""

import base64
import json
import os
import random
import signal
import sqlite3
import time

import pytest

from forked import Gateways
from gatewaykit import NEEDS_MOSQUITTO, artefact, core_of, places
from httpkit import Server, forwarding
from mosquitto import Mosquitto
from mqttkit import Client
from patience import wait_until
from veilcli import veil
from veilstream.errors import InputError
from veilstream.gateway.forward import ForwardSettings
from veilstream.gateway.guard import HttpSettings
from veilstream.gateway.topics import Route

TOKEN = "a token of decent length"
NOW = 6000.0


@pytest.fixture
def art(tmp_path):
    return artefact(tmp_path / "p.veil", states=places(), period_s=60.0)


def location(step: int, lat: float = 39.91, **more) -> dict:
    return {"_type": "location", "tst": 60 * step, "lat": lat, "lon": 116.3, "tid": "xx", "acc": 3, **more}


def basic(user: str, password: str = TOKEN) -> dict:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


# --- phones in -------------------------------------------------------------------------------------------


def test_a_phone_posts_anywhere_below_and_gets_an_empty_list(tmp_path, art):
    with core_of(art, tmp_path / "s.db", now=lambda: NOW) as core:
        server = Server(core, owntracks="/pub")
        try:
            named = {"X-Limit-U": "ann", "X-Limit-D": "phone"}
            for i, path in enumerate(["/pub", "/pub/", "/pub/owntracks/ann/phone", "/pub?u=x"]):
                assert server.ask(path, location(i), **named)[:2] == (200, [])
            assert core.stats.released == 4
            assert [r.stream for r in core.stats.recent.values()] == ["ann/phone"]
            for body in (
                b"{",
                b"",
                {"_type": "waypoint"},
                {"_type": "cmd"},
                location(0),
                location(99_999),
                [],
                {"t": []},
            ):
                assert server.ask("/pub", body, **named)[:2] == (200, [])  # else the phone would send it for ever
            assert server.ask("/pub", location(9), **basic("bob"))[:2] == (200, [])
            assert {r.stream for r in core.stats.recent.values()} == {"ann/phone", "bob"}
            assert server.ask("/pub", location(9))[0] == 400  # nobody's
            assert server.ask("/pub", b"x" * (2 << 20), **named)[0] == 413
            assert server.ask("/pub", location(9), **named, **{"Content-Type": "text/plain"})[0] == 415
            assert server.ask("/public", location(9), **named)[0] == 404
            core.store.file.db.execute("PRAGMA query_only = ON")
            assert server.ask("/pub", location(10), **named)[0] == 503  # the phone keeps it
            core.store.file.db.execute("PRAGMA query_only = OFF")
        finally:
            server.end()


def test_the_password_is_the_token(art):
    with core_of(art, now=lambda: NOW) as core:
        server = Server(core, token=TOKEN, owntracks="/pub")
        try:
            for bad in (
                {},
                basic("ann", "wrong"),
                basic("ann", ""),
                {"Authorization": "Basic ???"},
                {"X-Limit-U": "ann"},
            ):
                code, _, headers = server.ask("/pub/x", location(1), **bad)
                assert code == 401 and headers["WWW-Authenticate"].startswith("Basic")
            assert core.stats.released == 0
            assert server.ask("/pub/x", location(1), **basic("ann"))[:2] == (200, [])
            named = {"X-Limit-U": "ann", "X-Limit-D": "phone"}
            assert server.ask("/pub", location(1), **named, Authorization=f"Bearer {TOKEN}")[:2] == (200, [])
            assert server.ask("/v1/release", location(2), **basic("ann"))[0] == 401  # for phones alone
            assert {r.stream for r in core.stats.recent.values()} == {"ann", "ann/phone"}
        finally:
            server.end()


def test_a_name_that_no_topic_can_carry_is_said(art):
    with core_of(art, now=lambda: NOW) as core:
        server = Server(core, [Route("in/+", "out/+")], owntracks="/pub")
        try:
            assert server.ask("/pub", location(1), **{"X-Limit-U": "ann", "X-Limit-D": "phone"})[0] == 400
            assert server.ask("/pub", location(1), **{"X-Limit-U": "ann"})[:2] == (200, [])
        finally:
            server.end()


@pytest.mark.parametrize("path", ["pub", "/v1", "/v1/release", "/", "/a b", "/{x}", "/pub/"])
def test_paths_that_cannot_be_are_refused(path):
    with pytest.raises(InputError, match="must be a path"):
        HttpSettings(0, owntracks=path)


# --- releases on -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["recorder:8083", "ftp://recorder/pub", "http://?secret", "/pub", "http://[x/"])
def test_what_is_no_url_is_refused_and_not_repeated(url):
    with pytest.raises(InputError, match="must be a URL") as said:
        ForwardSettings(url)
    assert url not in str(said.value) or url == "/pub"
    assert "secret" not in repr(ForwardSettings("http://u:secret@host/webhook"))


def test_releases_are_sent_on_as_owntracks(tmp_path, art, receiver):
    with core_of(art, tmp_path / "s.db", now=lambda: NOW) as core, forwarding(core, receiver.url) as forwarder:
        server = Server(core, owntracks="/pub")
        try:
            for step in range(20):
                server.ask("/pub", location(step), **{"X-Limit-U": "ann", "X-Limit-D": "phone"})
            server.ask("/pub", location(3, 39.93), **{"X-Limit-U": "ann", "X-Limit-D": "phone"})  # released before
            wait_until(lambda: len(receiver.got) >= 20)
            wait_until(lambda: core.unsent(forward=True) == [])
        finally:
            server.end()
        assert forwarder.sent == 20
    path, headers, body = receiver.got[0]
    assert (path, headers["X-Limit-U"], headers["X-Limit-D"]) == ("/pub", "ann", "phone")
    assert set(body) == {"_type", "lat", "lon", "acc", "tst", "tid", "topic"}
    assert (body["topic"], body["tid"]) == ("owntracks/ann/phone", "ne")
    assert [b["tst"] for b in receiver.bodies()] == [60 * step for step in range(20)]
    assert all([b["lat"], b["lon"]] in art.states.coordinates.tolist() and b["acc"] >= 1 for b in receiver.bodies())


def test_values_and_plain_places_are_sent_on_as_they_are_released(tmp_path, art, receiver):
    levels = artefact(tmp_path / "v.veil")
    for made, form, t in ((levels, "auto", 1), (art, "plain", 60)):
        with core_of(made, now=lambda: NOW) as core, forwarding(core, receiver.url, form=form):
            server = Server(core)
            _, release, _ = server.ask("/v1/release", {"stream": "a", "t": t, "value": 3})
            wait_until(lambda: core.unsent(forward=True) == [])
            server.end()
        assert receiver.bodies()[-1] == release


def test_what_cannot_be_sent_waits_in_order_and_survives(tmp_path, art, receiver):
    """The receiver is away, comes back, and hears everything once more at most; another run goes on where one ended."""
    receiver.up = False

    def post(core, steps):
        server = Server(core, owntracks="/pub")
        for step in steps:
            for user in ("ann", "bob"):
                server.ask("/pub", location(step), **{"X-Limit-U": user})
        server.end()

    with core_of(art, tmp_path / "s.db", now=lambda: NOW) as core, forwarding(core, receiver.url):
        post(core, range(5))
        wait_until(lambda: receiver.asked >= 2)
        assert receiver.got == []
    with core_of(art, tmp_path / "s.db", now=lambda: NOW) as core:
        assert len(core.unsent(forward=True)) == 10
        assert core.unsent() == []  # nothing of it is for a broker
        with forwarding(core, receiver.url):
            post(core, range(5, 8))
            receiver.up = True
            wait_until(lambda: core.unsent(forward=True) == [])
    for user in ("ann", "bob"):
        assert [b["tst"] for b in receiver.bodies() if f"/{user}/" in b["topic"]] == [60 * step for step in range(8)]


def test_one_message_that_is_called_wrong_costs_one_message(tmp_path, art, receiver):
    receiver.answers["unknown"] = 400
    with core_of(art, tmp_path / "s.db", now=lambda: NOW) as core, forwarding(core, receiver.url) as forwarder:
        server = Server(core, owntracks="/pub")
        for user in ("unknown", "ann", "unknown", "bob"):
            server.ask("/pub", location(len(core.stats.recent)), **{"X-Limit-U": user})
        server.end()
        wait_until(lambda: core.unsent(forward=True) == [])
        assert (forwarder.sent, forwarder.wrong) == (2, 2)


def test_a_clock_forwards_by_its_ticks_alone(tmp_path, art, receiver):
    moment = [NOW]
    with core_of(art, tmp_path / "s.db", now=lambda: moment[0], clock=True) as core, forwarding(core, receiver.url):
        server = Server(core, owntracks="/pub")
        assert server.ask("/pub", location(100), **{"X-Limit-U": "ann"})[:2] == (200, [])
        server.end()
        time.sleep(0.2)
        assert receiver.got == []
        for step in (100, 101, 102):  # readings or not
            moment[0] = 60.0 * step
            core.tick("", step)
        wait_until(lambda: len(receiver.got) == 3)
    assert [b["tst"] for b in receiver.bodies()] == [6000, 6060, 6120]


@NEEDS_MOSQUITTO
@pytest.mark.slow
def test_killed_at_random_moments_nothing_is_lost_on_the_way_on(tmp_path, receiver, capsys):
    """SIGKILL of the gateway, and a receiver that is away now and then: every release arrives, in order, unchanged."""
    artefact(tmp_path / "p.veil", states=places())
    folder = tmp_path / "broker"
    folder.mkdir()
    broker, rng, kills = Mosquitto(folder), random.Random(2), 12
    client, steps, store = Client(broker.port, "nothing"), 0, tmp_path / "s.db"
    try:
        with Gateways(tmp_path / "p.veil", store, "mqtt", broker.port) as gateways:
            gateways.start(receiver.url)
            wait_until(lambda: b"broker_connected" in (tmp_path / "s.log").read_bytes())
            for _ in range(kills):
                receiver.up = rng.random() < 0.7
                for _ in range(6):
                    for s in range(5):
                        client.say(f"in/s{s}", {"t": steps, "lat": 39.9 + 0.01 * rng.randrange(4), "lon": 116.31})
                    steps += 1
                    time.sleep(rng.uniform(0.0, 0.08))
                os.kill(gateways.pid, signal.SIGKILL)
                gateways.start(receiver.url)
            receiver.up = True
            wait_until(
                lambda: len({(b["topic"], b["tst"]) for b in receiver.bodies()}) == 5 * steps, 60, "the last one"
            )
            gateways.stop()
    finally:
        client.end()
        broker.stop()
    db = sqlite3.connect(store)
    rows = db.execute("SELECT s.name, r.step, r.message FROM releases r JOIN streams s ON s.id = r.stream").fetchall()
    log = {(f"owntracks/{n}/{n}", step): json.loads(message) for n, step, message in rows}
    assert db.execute("SELECT count(*) FROM outbox WHERE topic = '#'").fetchone() == (0,)
    db.close()
    first: dict[str, list[int]] = {}
    for b in receiver.bodies():
        said = log[b["topic"], b["tst"]]
        assert (b["lat"], b["lon"]) == (said["lat"], said["lon"])
        if b["tst"] not in first.setdefault(b["topic"], []):
            first[b["topic"]].append(b["tst"])
    assert all(order == list(range(steps)) for order in first.values()) and len(first) == 5
    with capsys.disabled():
        print(
            f"\n  {kills} kills: {len(log)} releases, {len(receiver.got) / len(log):.2f} copies of each at the receiver"
        )


# --- the command -----------------------------------------------------------------------------------------


def test_the_command_says_what_is_missing(tmp_path, art):
    policy, key = tmp_path / "p.veil", tmp_path / "secret.txt"
    assert "--owntracks needs --http" in veil("serve", policy, "--mqtt", "x", "--owntracks", "/pub").stderr
    assert "--owntracks must be a path" in veil("serve", policy, "--http", "0", "--owntracks", "/v1").stderr
    assert "--forward must be a URL" in veil("serve", policy, "--http", "0", "--forward", "recorder").stderr
    assert "--forward does not go with --nats" in veil("serve", policy, "--nats", "x", "--forward", "http://x").stderr
    key.write_text("x" * 33)
    key.chmod(0o644)
    assert "open to other users" in veil("serve", policy, "--http", "0", "--option", f"owntracks-key={key}").stderr
    key.chmod(0o600)
    both = ("--option", f"owntracks-key={key}", "--option", f"owntracks-key-out={key}")
    key.write_text("phone")
    assert "must be another secret" in veil("serve", policy, "--http", "0", *both).stderr
    key.write_text("x" * 33)
    assert (
        "--option owntracks-key=... must hold one secret a line"
        in veil("serve", policy, "--http", "0", "--option", f"owntracks-key={key}").stderr
    )
