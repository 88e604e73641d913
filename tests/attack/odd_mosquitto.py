"""A real mosquitto with limits that hurt: a window of one, small packets, refusals, floods, no persistence.

Every reading of QoS 1 that it accepts has one release at the output, whatever it refused or dropped meanwhile.
"""

import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from attack.drill import Trial
from attack.kills import audit, one_release_each
from forked import Gateways
from gatewaykit import artefact, core_of
from mosquitto import Mosquitto, _packet, _text
from mqttkit import Client, serving
from patience import wait_until

DEVICE, GATE = "user device\ntopic readwrite #\n", "user gate\ntopic read in/#\ntopic readwrite veil/status\n"
DENYING, MENDED = DEVICE + GATE, DEVICE + GATE + "topic write out/#\n"
FLOOD = 40_000  # messages of QoS 0, 250 bytes each: more than the sockets between hold


def _steps(client: Client) -> set[tuple[str, int]]:
    return {(r["stream"], r["t"]) for r in client.releases()}


def _served(t: Trial, *lines: str, persistent: bool = True) -> None:
    """So many readings, and their releases."""
    n, folder = t.times(400), t.folder
    (folder / "broker").mkdir()
    broker = Mosquitto(folder / "broker", *lines, persistent=persistent)
    client = Client(broker.port, "out/+")
    try:
        with core_of(artefact(folder / "p.veil"), folder / "s.db") as core, serving(core, broker.port):
            for i in range(n):
                client.say(f"in/s{i % 20}", {"t": i // 20, "value": i % 16})
            wait_until(lambda: len(_steps(client)) == n, what="the releases")
    finally:
        client.end()
        broker.stop()
    assert audit(folder / "s.db", one_release_each(client.releases())) == n


def window_of_one(t: Trial) -> None:
    _served(t, "max_inflight_messages 1")


def small_packets(t: Trial) -> None:
    _served(t, "max_packet_size 150")


def no_persistence(t: Trial) -> None:
    _served(t, persistent=False)


def denied(t: Trial) -> None:
    """Releases are refused, and nothing else; when that is mended all of them arrive within a minute."""
    folder, n = t.folder, t.times(300)
    (folder / "broker").mkdir()
    acl = folder / "acl"
    acl.write_text(DENYING)
    acl.chmod(0o600)
    broker = Mosquitto(folder / "broker", f"acl_file {acl}")
    client = Client(broker.port, "out/+", "veil/status", user="device")
    try:
        with (
            core_of(artefact(folder / "p.veil"), folder / "s.db") as core,
            serving(core, broker.port, user="gate", republish=0),
        ):
            for i in range(n):
                client.say(f"in/s{i % 5}", {"t": i // 5, "value": i % 16})
            wait_until(lambda: core.stats.released == n, what="the releases in the outbox")
            wait_until(lambda: core.stats.trouble is not None, what="that it is told")
            assert "Not authorized" in core.stats.trouble and core.stats.broker_refused["Not authorized"] > 0
            assert _outbox(core) == n, f"{n - _outbox(core)} releases left the outbox, and went nowhere"
            acl.write_text(MENDED)
            broker.process.send_signal(signal.SIGHUP)
            start = time.monotonic()
            client.heard = [m for m in client.heard if m[0] != "veil/status"]
            wait_until(lambda: len(_outs(client)) == n, 60, what="the releases, when they may come")
            t.figures["seconds from mended to delivered"] = time.monotonic() - start
            wait_until(lambda: core.stats.trouble is None, what="an end of it")
    finally:
        client.end()
        broker.stop()
    client.heard = [m for m in client.heard if m[0] != "veil/status"]
    assert audit(folder / "s.db", one_release_each(client.releases())) == n


def _outbox(core) -> int:
    return len(core.store.unsent(limit=10_000))


def _outs(client: Client) -> set[tuple[str, str]]:
    return {(topic, payload) for topic, payload, _ in list(client.heard) if topic.startswith("out/")}


def flooded(t: Trial) -> None:
    """By QoS 0, while the gateway is frozen: mosquitto drops what it cannot send, PUBACKs too. Then all goes on."""
    folder, n = t.folder, t.times(200)
    (folder / "broker").mkdir()
    artefact(folder / "p.veil")
    broker, store = Mosquitto(folder / "broker", "max_queued_messages 1000"), folder / "s.db"
    client = Client(broker.port, "out/late", client_id="service")
    try:
        with Gateways(folder / "p.veil", store, "mqtt", broker.port) as gateways:
            gateways.start()
            wait_until(lambda: b"broker_connected" in store.with_suffix(".log").read_bytes())
            for _ in range(2):
                _flood(broker.port, FLOOD // 4)
                time.sleep(t.rng.uniform(0.0, 0.1))
                gateways.signal(signal.SIGSTOP)
                _flood(broker.port, FLOOD)
                gateways.signal(signal.SIGCONT)
            for i in range(n):
                client.say("in/late", {"t": i, "value": i % 16})
            wait_until(lambda: len(_steps(client)) == n, what="the releases after a flood")
            t.figures["most resident MB in a flood"] = _peak_mb(gateways.pid)
            gateways.stop()
    finally:
        client.end()
        broker.stop()
    one_release_each(client.releases())
    assert t.figures["most resident MB in a flood"] < 120, "a flood of QoS 0 filled the memory"


def _flood(port: int, n: int) -> None:
    """From one device, on fifty topics, with no wish to know what becomes of it."""
    body = b'{"t":%d,"value":3,"pad":"' + 200 * b"x" + b'"}'
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        sock.sendall(_packet(0x10, _text("MQTT") + bytes([4, 2, 0, 60]) + _text("")))
        for i in range(0, n, 200):
            sock.sendall(b"".join(_packet(0x30, _text(f"in/f{k % 50}") + body % (k // 50)) for k in range(i, i + 200)))
        time.sleep(0.05)


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1e3


KINDS: list[Callable[[Trial], None]] = [window_of_one, small_packets, no_persistence, denied, flooded]


def brokers(t: Trial) -> int:
    for kind in KINDS:
        (t.folder / kind.__name__).mkdir()
        inner = Trial(t.rng, t.folder / kind.__name__, t.size, t.figures)
        kind(inner)
    return len(KINDS)
