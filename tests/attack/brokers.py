"""A broker that garbles: packets of every kind, at the wrong time, bent, halved, for ids that nobody used.

The gateway may lose the connection as often as it likes. It lives on, acknowledges no reading before its release is in
the store, says one release for a step however often it is asked, and serves the next broker that is one.
"""

import contextlib
import json
import random
import socket
from collections.abc import Iterator

from attack.drill import Trial
from attack.files import bent
from attack.odd import served
from attack.wire import payload
from fakebroker import NOT_THIS_VERSION, connack, packet, puback, publish, suback
from gatewaykit import artefact, core_of
from patience import Patience, crowd
from veilstream.gateway import packets

PATIENCE_S = 20.0
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


def said(rng: random.Random, version: int) -> bytes:
    """One packet, more or less."""
    kind, mid = rng.random(), rng.choice([0, 1, 2, 3, 7, 0xFFFF])
    if kind < 0.5:
        body = payload(rng) if rng.random() < 0.5 else b'{"t":%d,"value":%d}' % (rng.randrange(50), rng.randrange(16))
        first = packets.PUBLISH | rng.choice([2, 2, 2, 0, 3, 10, 4, 6])
        data = publish(version, rng.choice(TOPICS[:2] if rng.random() < 0.7 else TOPICS), body, mid, first)
    elif kind < 0.65:
        data = puback(mid, rng.choice([0, 0, 0x10, 0x87, 0x97, 0x55]) if version == 5 else 0)
    elif kind < 0.75:
        data = suback(version, rng.choice([1, 9]), rng.choice([0, 1, 2, 0x80, 0x87, 0xFF]))
    elif kind < 0.8:
        data = connack(rng.choice([4, 5]), rng.choice([0, 0, 1, 5, 99, 0x84, 0x87]))
    elif kind < 0.85:
        data = bytes((packets.PONG, 0))
    else:
        data = packet(rng.randrange(256), rng.randbytes(rng.choice([0, 1, 2, 5, 200])))
    return bent(rng, data) if rng.random() < 0.1 else data


class Garbling:
    """Listens, and says what it is told to; hears what the gateway says."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.settimeout(PATIENCE_S * crowd())
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
        version = rng.choice([4, 5, 5])
        if version == 4:
            with self.session() as sock:
                sock.sendall(NOT_THIS_VERSION)
        lines = [said(rng, version) for _ in range(rng.randint(1, 12))]
        start = connack(version) + suback(version, 1, 1) if rng.random() < 0.8 else b""
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
        read, got, patience = bytearray(), [], Patience(seconds)
        while not patience.over and not done(got):
            try:
                data = sock.recv(1 << 16)
            except TimeoutError:
                continue
            if not data:
                break
            read += data
            while read and (found := packets.span(read)) is not None and found[1] <= len(read):
                got.append((read[0], bytes(read[found[0] : found[1]])))
                if read[0] & 0xF0 == packets.PUBLISH:
                    topic, mid, at = packets.head(read, *found, 1)
                    with contextlib.suppress(OSError):
                        sock.sendall(puback(mid))
                    if str(topic).startswith("out/"):
                        body = json.loads(bytes(read[at : found[1]]).removeprefix(b"\0"))
                        self.releases += body if isinstance(body, list) else [body]
                del read[: found[1]]
        return got


def garbled(t: Trial) -> int:
    n, tried = t.times(20), 0
    with core_of(artefact(t.folder / "p.veil"), t.folder / "s.db") as core, Garbling() as broker:
        with served(core, broker.listening.getsockname()[1]) as ended:
            for _ in range(n):
                tried += broker.garble(t.rng)
                assert not ended, f"it ended: {ended[0]!r}"
            with broker.session() as sock:  # a broker again
                sock.sendall(connack(5) + suback(5, 1, 1) + publish(5, b"in/good", b'{"t":1,"value":3}', 77))
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
