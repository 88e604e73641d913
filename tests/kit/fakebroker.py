"""An MQTT broker in a thread, that its test makes as odd as it likes. Bytes by hand: what reads them is on trial."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable

from mosquitto import _packet as packet
from patience import PATIENCE_S
from veilstream.gateway.packets import head, span

CONNECT, PUBLISH, PUBACK, SUBSCRIBE, PING, DISCONNECT = 0x10, 0x30, 0x40, 0x82, 0xC0, 0xE0
NOT_THIS_VERSION = b"\x20\x02\0\1"  # as a broker of 3.1.1 says it


def connack(version: int, code: int = 0, properties: bytes = b"", present: bool = False) -> bytes:
    more = bytes([len(properties)]) + properties if version == 5 else b""
    return packet(0x20, bytes([present, code]) + more)


def suback(version: int, mid: int, *codes: int) -> bytes:
    return packet(0x90, mid.to_bytes(2) + (b"\0" if version == 5 else b"") + bytes(codes))


def puback(mid: int, code: int = 0) -> bytes:
    return packet(PUBACK, mid.to_bytes(2) + (bytes([code]) if code else b""))


def publish(version: int, topic: bytes, body: bytes, mid: int, first: int = PUBLISH | 2) -> bytes:
    """With any first byte: DUP, QoS 0 to 3, retained."""
    numbered = mid.to_bytes(2) if first >> 1 & 3 else b""
    return packet(first, len(topic).to_bytes(2) + topic + numbered + (b"\0" if version == 5 else b"") + body)


class Session:
    """One connection, as a broker should hold it. An odd one is a class with something else in it."""

    lasts_s = PATIENCE_S
    welcome_properties = b""
    piece = 1 << 16  # bytes said at once
    reads = True

    def __init__(self, broker: "FakeBroker", sock: socket.socket) -> None:
        self.broker, self.sock, self.version, self.mid = broker, sock, 5, 0
        self.asked: dict[int, int] = {}  # id -> which reading
        self.over = False

    def run(self) -> None:
        read, until = bytearray(), time.monotonic() + self.lasts_s
        self.sock.settimeout(0.02)
        while not self.over and not self.broker.ended and time.monotonic() < until:
            if not self.reads and self.version:
                time.sleep(0.02)
                continue
            try:
                data = self.sock.recv(1 << 16)
            except TimeoutError:
                self.idle()
                continue
            if not data:
                return
            read += data
            while read and (found := span(read)) is not None and found[1] <= len(read):
                kind, rest = read[0], bytes(read[found[0] : found[1]])
                del read[: found[1]]
                self.heard(kind, rest)

    def say(self, data: bytes) -> None:
        for i in range(0, len(data), self.piece):
            self.sock.sendall(data[i : i + self.piece])

    def heard(self, kind: int, rest: bytes) -> None:
        if kind == CONNECT:
            self.version = rest[6]
            self.broker.versions.append(self.version)
            self.connect()
        elif kind == SUBSCRIBE:
            self.subscribe(int.from_bytes(rest[:2]))
        elif kind & 0xF0 == PUBLISH:
            topic, mid, at = head(rest, 0, len(rest), kind >> 1 & 3)
            self.broker.unanswered += 1
            self.broker.most_unanswered = max(self.broker.most_unanswered, self.broker.unanswered)
            self.published(str(topic), rest[at + (self.version == 5) :], mid)
        elif kind == PUBACK:
            mid = int.from_bytes(rest[:2])
            assert mid in self.asked, "an acknowledgement of what was not sent"
            self.broker.acknowledged.append(self.asked.pop(mid))
            self.deliver()
        elif kind == PING:
            self.pong()
        elif kind == DISCONNECT:
            self.over = True

    # --- what an odd one does otherwise ----------------------------------------------------------------

    def connect(self) -> None:
        self.say(connack(self.version, 0, self.welcome_properties, present=len(self.broker.versions) > 1))

    def subscribe(self, mid: int) -> None:
        self.say(suback(self.version, mid, 1))
        self.deliver()

    def deliver(self) -> None:
        """Readings that were not acknowledged, twenty at a time."""
        waiting = [i for i in range(len(self.broker.readings)) if i not in self.broker.acknowledged]
        for i in waiting:
            if len(self.asked) >= 20:
                break
            if i not in self.asked.values():
                self.mid += 1
                self.asked[self.mid] = i
                self.say(publish(self.version, *self.broker.readings[i], self.mid))

    def published(self, topic: str, body: bytes, mid: int) -> None:
        self.take(topic, body)
        self.answer(mid)

    def take(self, topic: str, body: bytes) -> None:
        if topic.startswith("out/"):
            found = json.loads(body)
            self.broker.taken += found if isinstance(found, list) else [found]

    def answer(self, mid: int, code: int = 0) -> None:
        self.broker.unanswered -= 1
        self.say(puback(mid, code))

    def pong(self) -> None:
        self.say(b"\xd0\0")

    def idle(self) -> None: ...


class FakeBroker:
    """Accepts one connection after another: the first `sessions` of a kind, then as a broker should."""

    def __init__(
        self, odd: type[Session] = Session, sessions: int = 1, readings: list[tuple[bytes, bytes]] = ()
    ) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.settimeout(0.05)
        self.port = self.listening.getsockname()[1]
        self.odd, self.left, self.readings, self.ended = odd, sessions, list(readings), False
        self.acknowledged: list[int] = []  # readings, by their place
        self.taken: list[dict] = []  # releases that were
        self.versions: list[int] = []  # of MQTT, one for every CONNECT
        self.unanswered = self.most_unanswered = 0
        self.wrong: list[AssertionError] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self.ended:
            try:
                sock, _ = self.listening.accept()
            except TimeoutError:
                continue
            self.unanswered = 0
            kind: Callable[..., Session] = self.odd if self.left > 0 else Session
            self.left -= 1
            with sock, contextlib.suppress(OSError):
                try:
                    kind(self, sock).run()
                except AssertionError as error:
                    self.wrong.append(error)

    def __enter__(self) -> "FakeBroker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True
        self._thread.join(PATIENCE_S)
        self.listening.close()
