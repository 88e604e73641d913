"""A broker that garbles: packets of every kind, at the wrong time, bent, halved, for ids that nobody used.

The gateway may lose the connection as often as it likes. It lives on, acknowledges no reading before its release is in
the store, says one release for a step however often it is asked, and serves the next broker that is one.
"""

import contextlib
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from unittest import mock

from attack.drill import Trial
from attack.files import bent
from attack.wire import payload
from gatewaykit import artefact, core_of
from veilstream.gateway import packets
from veilstream.gateway.broker import BrokerSettings
from veilstream.gateway.core import Core
from veilstream.gateway.mqtt import MqttGateway
from veilstream.gateway.topics import Route

PATIENCE_S = 20.0
WELCOME, GRANTED = bytes((packets.CONNACK, 2, 0, 0)), bytes((packets.SUBACK, 3, 0, 1, 1))
TOPICS = [
    b"in/a",
    b"in/b",
    b"in/",
    b"in",
    b"out/a",
    b"veil/status",
    b"in/\xff",
    b"in/a+b",
    b"in/#",
    b"in/a/b",
    b"",
    b"in/\0",
]


def published(topic: bytes, body: bytes, mid: int, first: int = packets.PUBLISH | 2) -> bytes:
    """A PUBLISH with any first byte: DUP, QoS 0 to 3, retained."""
    numbered = bytes((mid >> 8, mid & 0xFF)) if first >> 1 & 3 else b""
    return packets.packet(first, packets.text(topic) + numbered + body)


def said(rng: random.Random) -> bytes:
    """One packet, more or less."""
    kind, mid = rng.random(), rng.choice([0, 1, 2, 3, 7, 0xFFFF])
    if kind < 0.5:
        body = payload(rng) if rng.random() < 0.5 else b'{"t":%d,"value":%d}' % (rng.randrange(50), rng.randrange(16))
        first = packets.PUBLISH | rng.choice([2, 2, 2, 0, 3, 10, 4, 6])
        packet = published(rng.choice(TOPICS[:2] if rng.random() < 0.7 else TOPICS), body, mid, first)
    elif kind < 0.65:
        packet = packets.puback(mid)
    elif kind < 0.75:
        packet = bytes((packets.SUBACK, 3, 0, rng.choice([1, 9]), rng.choice([0, 1, 2, 0x80, 0xFF])))
    elif kind < 0.8:
        packet = bytes((packets.CONNACK, 2, 0, rng.choice([0, 0, 1, 5, 99])))
    elif kind < 0.85:
        packet = bytes((packets.PONG, 0))
    else:
        packet = packets.packet(rng.randrange(256), rng.randbytes(rng.choice([0, 1, 2, 5, 200])))
    return bent(rng, packet) if rng.random() < 0.1 else packet


class Garbling:
    """Listens, and says what it is told to; hears what the gateway says."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.settimeout(PATIENCE_S)
        self.releases: list[dict] = []

    def __enter__(self) -> "Garbling":
        return self

    def __exit__(self, *_: object) -> None:
        self.listening.close()

    @contextlib.contextmanager
    def session(self) -> Iterator[socket.socket]:
        sock, _ = self.listening.accept()
        with sock:
            sock.settimeout(0.01)
            yield sock

    def garble(self, rng: random.Random) -> int:
        """One session of nonsense; how many packets."""
        lines = [said(rng) for _ in range(rng.randint(1, 12))]
        start = WELCOME + GRANTED if rng.random() < 0.8 else b""
        data = start + b"".join(lines)
        data = data[: rng.randrange(len(data) + 1)] if rng.random() < 0.2 else data
        with self.session() as sock, contextlib.suppress(OSError):
            while data:
                n = rng.choice([1, 7, 100, len(data)])
                sock.sendall(data[:n])
                data = data[n:]
            self.hear(sock, lambda got: False, 0.05)
        return len(lines)

    def hear(self, sock: socket.socket, done, seconds: float) -> list[tuple[int, bytes]]:
        """Whole packets from the gateway, until done(packets) or the time is up; releases are kept."""
        read, got, until = bytearray(), [], time.monotonic() + seconds
        while time.monotonic() < until and not done(got):
            try:
                data = sock.recv(1 << 16)
            except TimeoutError:
                continue
            if not data:
                break
            read += data
            while (found := packets.split(read)) is not None:
                got.append((read[0], bytes(read[found[0] : found[1]])))
                if read[0] & 0xF0 == packets.PUBLISH:
                    message = packets.heard(read[0], read, *found)
                    if message.topic.startswith("out/"):
                        body = json.loads(message.payload)
                        self.releases += body if isinstance(body, list) else [body]
                del read[: found[1]]
        return got


@contextlib.contextmanager
def served(core: Core, port: int) -> Iterator[list[BaseException]]:
    """The gateway, at that broker; what ended it, if anything did."""
    stop, ended = threading.Event(), []
    gateway = MqttGateway(core, [Route("in/+", "out/+")], BrokerSettings("127.0.0.1", port, "me", timeout_s=0.5))

    def run() -> None:
        try:
            gateway.run(stop)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    with (
        mock.patch("veilstream.gateway.mqtt.FIRST_DELAY_S", 0.01),
        mock.patch("veilstream.gateway.mqtt.LAST_DELAY_S", 0.02),
    ):
        thread.start()
        try:
            yield ended
        finally:
            stop.set()
            thread.join(PATIENCE_S)


def garbled(t: Trial) -> int:
    n, tried = t.times(20), 0
    with core_of(artefact(t.folder / "p.veil"), t.folder / "s.db") as core, Garbling() as broker:
        with served(core, broker.listening.getsockname()[1]) as ended:
            for _ in range(n):
                tried += broker.garble(t.rng)
                assert not ended, f"it ended: {ended[0]!r}"
            with broker.session() as sock:  # a broker again
                sock.sendall(WELCOME + GRANTED + published(b"in/good", b'{"t":1,"value":3}', 77))
                acknowledged = (packets.PUBACK, bytes((0, 77)))
                heard = broker.hear(sock, lambda got: acknowledged in got, PATIENCE_S)
                assert acknowledged in heard, "a good reading is not acknowledged"
                assert core.store.find(core._stream(("", "good")), 1) is not None, "acknowledged and not in the store"
                broker.hear(sock, lambda got: any(r["stream"] == "good" for r in broker.releases), PATIENCE_S)
        assert core.stats.refused["unhandled"] == 0, "an exception nobody thought of"
        shown: dict = {}
        for release in broker.releases:
            key = release["stream"], release["t"]
            assert shown.setdefault(key, release) == release, f"two different releases of {key}"
        assert ("good", 1) in shown, "no release after all that"
    return tried
