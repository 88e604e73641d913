"""`veil serve` as a process: phones over HTTP, forwarded, announced at home, with and without a clock."""

import contextlib
import json
import os
import signal
import subprocess
import time

import pytest

from gatewaykit import NEEDS_MOSQUITTO, artefact, places
from httpkit import post
from mosquitto import Mosquitto, free_port
from mqttkit import Client
from patience import PATIENCE_S, wait_until
from veilcli import VEIL


@contextlib.contextmanager
def serving(tmp_path, *flags: object, **environment: str):
    """The command, until the end; what it logged is without secrets and falls."""
    port, log = free_port(), tmp_path / "log"
    command = [*VEIL, "serve", tmp_path / "p.veil", "--http", port, *flags]
    with log.open("wb") as out:
        process = subprocess.Popen([*map(str, command)], stderr=out, env={**os.environ, **environment})
    try:
        wait_until(lambda: b"http_listening" in log.read_bytes(), what="the start")
        yield f"http://127.0.0.1:{port}/pub"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    text = log.read_text()
    assert "Traceback" not in text and not [secret for secret in environment.values() if secret in text]


def location(lat: float = 39.91) -> dict:
    return {"_type": "location", "tst": int(time.time()), "lat": lat, "lon": 116.31, "SSID": "canary"}


@NEEDS_MOSQUITTO
@pytest.mark.slow
def test_a_phones_position_is_forwarded_and_shown_at_home(tmp_path, receiver):
    artefact(tmp_path / "p.veil", states=places(), period_s=60.0)
    (tmp_path / "broker").mkdir()
    broker = Mosquitto(tmp_path / "broker")
    client = Client(broker.port, "homeassistant/#")
    flags = ("--owntracks", "/pub", "--mqtt", f"127.0.0.1:{broker.port}", "--in", "in/#", "--out", "out/#")
    try:
        with serving(tmp_path, *flags, "--homeassistant", VEIL_FORWARD=receiver.url + "/hush") as url:
            assert post(url, location(), user="ann", device="phone") == (200, b"[]")
            wait_until(lambda: len(receiver.got) == 1 and len(client.heard) == 3)
    finally:
        client.end()
        broker.stop()
    [sent] = receiver.bodies()
    [state] = [json.loads(p) for t, p, _ in client.heard if not t.endswith("config")]
    assert state["place"] == {"latitude": sent["lat"], "longitude": sent["lon"], "gps_accuracy": sent["acc"]}
    assert "canary" not in repr(receiver.got) + repr(client.heard)


@pytest.mark.slow
def test_a_clock_needs_no_broker_where_releases_are_forwarded(tmp_path, receiver):
    artefact(tmp_path / "p.veil", states=places(), period_s=1.0)
    with serving(tmp_path, "--owntracks", "/pub", "--clock", "--forward", receiver.url) as url:
        until = time.monotonic() + PATIENCE_S
        while not receiver.got and time.monotonic() < until:  # the step may be over when the reading arrives
            assert post(url, location(), user="ann", device="phone")[0] == 200
        wait_until(lambda: len(receiver.got) >= 4)
    times = [b["tst"] for b in receiver.bodies()]
    assert times == sorted(set(times))
