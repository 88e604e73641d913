"""A connection to an MQTT broker with its own small loop: read what is there, let the owner act, write.

One thread, no callbacks into the owner: messages and confirmations are collected in `inbox` and `confirmed`, what the
broker would not take in `refused`. Acknowledgements are manual: `ack` when the message's effect is durable. What is
said waits until the next turn, and leaves in one piece; at most as many messages as the broker takes (its receive
maximum) are without an answer, and none for longer than `timeout_s`.
"""

import selectors
import socket
import ssl
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import mqtt5
from mqtt5 import ConnAckPacket, ConnAckReasonCode, PubAckPacket, PublishPacket, QoS

from veilstream.gateway import packets
from veilstream.gateway.inbox import Heard, Inbox
from veilstream.gateway.packets import FIVE, THREE, Codec
from veilstream.gateway.tls import Tls

QUICKACK = getattr(socket, "TCP_QUICKACK", None)  # Linux; has to be said again and again
WINDOW = 1000  # of our messages without an answer
MAX_READ = 256  # messages of QoS 1 that we take without an answer; in 3.1.1 the owner acts before more are read
MAX_TURN = 1 << 22  # bytes read before the owner acts
AT_ONCE_BYTES = 1 << 16  # of one read
FLOOD = 1000  # messages of QoS 0 in one turn: so many may have filled what lies between the broker and us
LAST_MID = 0xFFFF
FOR_EVER = 0xFFFFFFFF  # seconds that the broker keeps the session, or as long as it likes
LOST, SILENT = "The connection was lost.", "Client or broker did not communicate in the keepalive interval."
ASK_AGAIN_S = 10.0  # for a subscription that was not granted
FIRST_TURN_S, LAST_TURN_S, GOODBYE_S = 0.1, 0.05, 2.0
TOO_LARGE = "Packet too large"
_WAIT = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_QOS1 = QoS.AT_LEAST_ONCE


class BrokerLost(ConnectionError):
    """The connection is gone, or was refused."""


class Unanswered(BrokerLost):
    """The broker is there, and does not acknowledge."""


class _OtherVersion(BrokerLost):
    """The broker does not know this version of MQTT."""


@dataclass(frozen=True)
class BrokerSettings:
    host: str = "localhost"
    port: int = 1883
    client_id: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    status_topic: str = "veil/status"
    keepalive_s: int = 30
    timeout_s: float = 10.0  # for an answer
    republish: int = 1000  # confirmed releases that are sent again after a break
    retain: bool = False  # releases are published retained


class Connection:
    """One connection; when it breaks make another. The broker keeps the session, and what we have not acknowledged."""

    def __init__(
        self, settings: BrokerSettings, filters: list[str], largest: int = packets.LONGEST, window: int = WINDOW
    ) -> None:
        """largest: bytes of a message that are kept. Of a longer one the beginning is in the inbox, when it is over.

        window: messages that may be without an answer at first; every answer doubles it.
        """
        self.inbox = Inbox()
        self.confirmed: deque[int] = deque()  # message ids the broker has taken over
        self.refused: deque[tuple[int, str]] = deque()  # those it has not, and why
        self.denied: list[str] = []  # filters
        self.max_packet = packets.LONGEST  # bytes that the broker takes
        self.flooded_at: float | None = None  # the broker may have dropped what it had for us, of whatever QoS
        self._filters, self._settings, self._largest, self._window = filters, settings, largest, window
        try:
            self._open(FIVE)
        except _OtherVersion:
            self._open(THREE)
        if settings.status_topic:
            self.publish(settings.status_topic, b"online", retain=True)

    @property
    def version(self) -> str:
        return self._codec.version

    def _open(self, codec: Codec) -> None:
        settings, self._codec = self._settings, codec
        self._welcome: ConnAckPacket | None = None
        self._ready, self._asked = False, list[str]()  # filters
        self._read, self._unsent = bytearray(), bytearray()
        self._left = 0  # bytes to come of a packet that is too long
        self._begun: Heard | None = None  # what is kept of that
        self._mid = self._heard = self._answered = 0  # ids given; messages of QoS 1 that came, that were acknowledged
        self._acks: dict[int, int] = {}  # those that may be acknowledged when their turn comes: number -> id
        self._flying: dict[int, float] = {}  # message id -> since when it is without an answer; in order
        self._held: deque[tuple[int, bytes]] = deque()  # beyond the window
        self._most, self._keepalive_s, self._retains = WINDOW, settings.keepalive_s, True
        self._now = self._last_in = self._last_out = time.monotonic()
        self._pinged = False  # and no answer yet
        self._sock = _connected(settings)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._sock, selectors.EVENT_READ)
        until = time.monotonic() + settings.timeout_s
        try:
            self._say(_connect(settings))
            while not self._ready:
                if time.monotonic() > until:
                    raise BrokerLost("the broker did not answer in time")
                self.turn(FIRST_TURN_S)
        except BaseException:
            self.drop()
            raise

    # --- in --------------------------------------------------------------------------------------------

    def turn(self, timeout: float) -> None:
        """Write what waits, wait up to `timeout` for input, read what is there."""
        self._now = time.monotonic()
        self.flush()
        came, more, unowed = 0, False, self.inbox.unowed
        while self._readable(timeout):
            timeout = 0
            try:
                data = self._sock.recv(AT_ONCE_BYTES)
            except _WAIT:
                break
            except OSError:
                data = b""
            if not data:
                raise BrokerLost(LOST)
            self._now = self._last_in = time.monotonic()
            self._read += self._beyond(data)
            self._take()
            came += len(data)
            if more := self.inbox.owed >= MAX_READ or came >= MAX_TURN:
                break
        if self.inbox.unowed - unowed >= FLOOD:
            self.flooded_at = self._now
        self._acknowledge_at_once()
        self._stay_alive()
        if not more:  # what came in the meantime has been read
            self._give_up()

    def _readable(self, timeout: float) -> bool:
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            return True
        return bool(self._selector.select(timeout))

    def _beyond(self, data: bytes) -> bytes:
        """What follows the packet that is too long to be kept, if one is under way."""
        skipped, self._left = min(self._left, len(data)), max(self._left - len(data), 0)
        if self._begun is not None and not self._left:
            self.inbox.put(self._begun)
            self._begun = None
        return data[skipped:]

    def _take(self) -> None:
        """Whole packets out of what was read."""
        at, read, end = 0, self._codec.read, len(self._read)
        view = memoryview(bytes(self._read))  # a copy: a panic of mqtt5 holds on to what it was reading
        try:
            while at < end:
                try:
                    packet, n = read(view[at:])
                except IndexError:
                    at = self._cut(at)
                    break
                except ValueError as error:
                    packet, n = self._unread(at, error)
                at += n
                if type(packet) is PublishPacket:
                    if packet.qos == 2:
                        raise ValueError("a message of QoS 2, which nobody asked for")
                    self._hear(packet.topic, packet.payload, packet.packet_id or 0, packet.retain)
                elif type(packet) is PubAckPacket:
                    self._answer(packet.packet_id, packet.reason_code)
                elif packet is not None:
                    self._told(packet)
        except ValueError as error:
            raise BrokerLost(f"the broker does not speak MQTT: {error}") from None
        del self._read[:at]

    def _hear(self, topic: str, payload: bytes, mid: int, retain: bool) -> None:
        self.inbox.put(Heard(topic, payload, mid, retain, self._heard))
        self._heard += mid > 0

    def _unread(self, at: int, error: ValueError) -> tuple[Any, int]:
        """A message that cannot be read costs itself; a welcome may be one of 3.1.1."""
        data = self._read
        found = packets.span(data, at)
        if found is None or found[1] > len(data):
            raise error
        if data[at] & 0xF0 == packets.PUBLISH:
            _, mid, _ = packets.head(data, *found, data[at] >> 1 & 3)
            self._hear("", b"", mid, False)
            return None, found[1] - at
        if data[at] == packets.CONNACK and self._codec is FIVE:
            return THREE.read(memoryview(bytes(data[at : found[1]])))
        raise error

    def _cut(self, at: int) -> int:
        """How much is taken of a packet that is not all there: nothing, or what came of one too long to wait for."""
        data, found = self._read, packets.span(self._read, at)
        if found is None or found[1] <= (enough := found[0] + self._largest) or len(data) < enough:
            return at
        if data[at] & 0xF0 != packets.PUBLISH:
            raise ValueError("a packet longer than any")
        topic, mid, after = packets.head(data, found[0], enough, data[at] >> 1 & 3)
        self._begun, self._left = (
            Heard(topic or "", bytes(data[after:enough]), mid, False, self._heard),
            found[1] - len(data),
        )
        self._heard += mid > 0
        return len(data)

    def _answer(self, mid: int, reason: mqtt5.PubAckReasonCode) -> None:
        if self._flying.pop(mid, None) is None:
            return  # nobody asked
        if not packets.failed(reason):
            self.confirmed.append(mid)
        else:
            self.refused.append((mid, packets.said(reason)))
        self._window = min(2 * self._window, self._most)
        if self._held and 2 * len(self._flying) <= self._window:  # in gulps: one by one would cost a turn each
            while self._held and len(self._flying) < self._window:
                waiting, data = self._held.popleft()
                self._flying[waiting] = self._now
                self._unsent += data

    def _told(self, packet: Any) -> None:
        """What comes seldom."""
        if isinstance(packet, mqtt5.PingRespPacket):
            self._pinged = False
        elif isinstance(packet, ConnAckPacket) and self._welcome is None:
            self._welcomed(packet)
        elif isinstance(packet, mqtt5.SubAckPacket) and self._asked:
            granted = zip(self._asked, packet.reason_codes, strict=False)
            self.denied = [f for f, code in granted if packets.failed(code)]
            self._ready = True
        elif isinstance(packet, mqtt5.DisconnectPacket):
            raise BrokerLost(f"the broker ended the connection: {packets.said(packet.reason_code)}")
        else:
            raise ValueError("a packet that no broker sends")

    def _welcomed(self, packet: ConnAckPacket) -> None:
        if packet.reason_code == ConnAckReasonCode.UNSUPPORTED_PROTOCOL_VERSION and self._codec is FIVE:
            raise _OtherVersion(LOST)
        if packets.failed(packet.reason_code):
            raise BrokerLost(f"the broker refused the connection: {packets.said(packet.reason_code)}")
        if packet.max_qos == 0:
            raise BrokerLost("the broker takes messages of QoS 0 only, which it may lose; releases need QoS 1")
        self._welcome, self._retains = packet, packet.retain_available
        self._most = min(WINDOW, packet.receive_max)
        self._window = min(self._window, self._most)
        self.max_packet = packet.max_packet_size or packets.LONGEST
        if packet.server_keep_alive is not None:
            self._keepalive_s = packet.server_keep_alive
        if self._filters:
            self._subscribe(self._filters)
        self._ready = not self._filters

    def _stay_alive(self) -> None:
        now, every = time.monotonic(), self._keepalive_s
        if self.denied and now - self._asked_at > ASK_AGAIN_S:
            self._subscribe(self.denied)
        if not every or now - min(self._last_in, self._last_out) < every:
            return
        if self._pinged and now - self._last_in >= every:
            raise BrokerLost(SILENT)
        self._say(mqtt5.PingReqPacket())
        self._pinged, self._last_in, self._last_out = True, now, now

    def _give_up(self) -> None:
        oldest, limit = next(iter(self._flying.values()), None), self._settings.timeout_s
        if oldest is not None and time.monotonic() - oldest > limit:
            raise Unanswered(f"the broker has not acknowledged a message for {limit:g} s")

    # --- out -------------------------------------------------------------------------------------------

    def _say(self, packet: Any) -> None:
        self._unsent += self._codec.write(packet)

    def flush(self) -> None:
        while self._unsent:
            try:
                sent = self._sock.send(self._unsent)
            except _WAIT:
                return
            except OSError:
                raise BrokerLost(LOST) from None
            del self._unsent[:sent]
            self._last_out = time.monotonic()
            self._acknowledge_at_once()

    def _acknowledge_at_once(self) -> None:
        """Else a broker that uses Nagle's algorithm (mosquitto does by default) waits up to 40 ms for us."""
        if QUICKACK is not None:
            with suppress(OSError):  # the next read says what is wrong
                self._sock.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)

    def _next_mid(self) -> int:
        if len(self._flying) + len(self._held) >= LAST_MID - 1:
            raise BrokerLost("more messages without an answer than there are ids")
        self._mid = self._mid % LAST_MID + 1
        while self._mid in self._flying:
            self._mid = self._mid % LAST_MID + 1
        return self._mid

    def _subscribe(self, filters: list[str]) -> None:
        """QoS 1 at most."""
        self._asked, self._asked_at = filters, time.monotonic()
        wanted = [mqtt5.TopicFilter(f, max_qos=_QOS1, retain_as_published=False) for f in filters]
        self._say(mqtt5.SubscribePacket(self._next_mid(), wanted))

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> int:
        """Queue a message, QoS 1; its id turns up in `confirmed` or `refused`. ValueError: no topic to publish to."""
        mid = self._next_mid()
        packet = PublishPacket(topic, payload, qos=_QOS1, packet_id=mid, retain=retain and self._retains)
        data = self._codec.write(packet)
        if len(data) > self.max_packet:
            self.refused.append((mid, TOO_LARGE))
            return mid
        if len(self._flying) < self._window and not self._held:
            self._flying[mid] = self._now
            self._unsent += data
        else:
            self._held.append((mid, data))
        return mid

    def ack(self, message: Heard) -> None:
        """In the order in which they came, as MQTT wants it; one before its turn waits."""
        if message.mid:
            self._acks[message.number] = message.mid
            while (mid := self._acks.pop(self._answered, None)) is not None:
                self._say(PubAckPacket(mid))
                self._answered += 1

    def close(self) -> None:
        """Say goodbye; the will is not sent, so the status is."""
        try:
            if self._settings.status_topic:
                mid = self.publish(self._settings.status_topic, b"offline", retain=True)
                until = time.monotonic() + GOODBYE_S
                while mid not in self.confirmed and time.monotonic() < until:
                    self.turn(LAST_TURN_S)
            self._say(mqtt5.DisconnectPacket())
            self.flush()
        except (OSError, ValueError):
            pass  # it was gone already
        finally:
            self.drop()

    def drop(self) -> None:
        """Close without a word."""
        self._selector.close()
        with suppress(OSError):
            self._sock.close()


def _connect(settings: BrokerSettings) -> mqtt5.ConnectPacket:
    """Without a client id the session ends with the connection."""
    will = None
    if settings.status_topic:
        will = mqtt5.Will(settings.status_topic, payload=b"offline", qos=_QOS1, retain=True)
    password = settings.password.encode() if settings.password is not None and settings.user is not None else None
    return mqtt5.ConnectPacket(
        settings.client_id,
        username=settings.user,
        password=password,
        clean_start=not settings.client_id,
        will=will,
        keep_alive=settings.keepalive_s,
        session_expiry_interval=FOR_EVER if settings.client_id else 0,
        receive_max=MAX_READ,
    )


def _connected(settings: BrokerSettings) -> socket.socket:
    """That does not wait, from here on."""
    sock = socket.create_connection((settings.host, settings.port), settings.timeout_s)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small packets must not wait for one another
        if settings.tls is not None:
            sock = settings.tls.context().wrap_socket(sock, server_hostname=settings.host)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock
