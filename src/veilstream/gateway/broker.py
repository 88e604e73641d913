"""A connection to an MQTT broker with its own small loop: read what is there, let the owner act, write.

One thread, no callbacks into the owner: messages and confirmations are collected in `inbox` and `confirmed`.
Acknowledgements are manual: `ack` when the message's effect is durable. What is said waits until the next turn, and
leaves in one piece.
"""

import selectors
import socket
import ssl
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from veilstream.gateway import packets
from veilstream.gateway.packets import Heard
from veilstream.gateway.tls import Tls

QUICKACK = getattr(socket, "TCP_QUICKACK", None)  # Linux; has to be said again and again
MAX_READ = 256  # messages; with as many in the inbox the owner acts before more are read
AT_ONCE_BYTES = 1 << 16  # of one read
LAST_MID = 0xFFFF
LOST, SILENT = "The connection was lost.", "Client or broker did not communicate in the keepalive interval."
FIRST_TURN_S, LAST_TURN_S, GOODBYE_S = 0.1, 0.05, 2.0
_WAIT = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class BrokerLost(ConnectionError):
    """The connection is gone, or was refused."""


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
    timeout_s: float = 10.0


class Connection:
    """One session; when it breaks make another. The broker keeps what we have not acknowledged (clean_session off)."""

    def __init__(self, settings: BrokerSettings, filters: list[str], largest: int = packets.LONGEST) -> None:
        """largest: bytes of a message that are kept. Of a longer one the beginning is in the inbox, when it is over."""
        self.inbox: deque[Heard] = deque()
        self.confirmed: deque[int] = deque()  # message ids the broker has taken over
        self.denied: list[str] = []
        self._filters, self._settings = filters, settings
        self._ready = False
        self._read, self._unsent = bytearray(), bytearray()
        self._largest, self._left = largest, 0  # bytes of a packet; of one that is too long, still to come
        self._begun: Heard | None = None  # what is kept of that
        self._mid = 0
        self._last_in = self._last_out = time.monotonic()
        self._pinged = False  # and no answer yet
        self._sock = _connected(settings)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._sock, selectors.EVENT_READ)
        will = (settings.status_topic.encode(), b"offline") if settings.status_topic else None
        user, password = settings.user, settings.password
        self._unsent += packets.connect(settings.client_id, settings.keepalive_s, user, password, will)
        until = time.monotonic() + settings.timeout_s
        try:
            while not self._ready:
                if time.monotonic() > until:
                    raise BrokerLost("the broker did not answer in time")
                self.turn(FIRST_TURN_S)
        except BaseException:
            self.drop()
            raise
        if settings.status_topic:
            self.publish(settings.status_topic, b"online", retain=True)

    # --- in --------------------------------------------------------------------------------------------

    def turn(self, timeout: float) -> None:
        """Write what waits, wait up to `timeout` for input, read what is there."""
        self.flush()
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
            self._last_in = time.monotonic()
            self._read += self._beyond(data)
            self._take()
            if len(self.inbox) >= MAX_READ:
                break
        self._acknowledge_at_once()
        self._stay_alive()

    def _readable(self, timeout: float) -> bool:
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            return True
        return bool(self._selector.select(timeout))

    def _beyond(self, data: bytes) -> bytes:
        """What follows the packet that is too long to be kept, if one is under way."""
        skipped, self._left = min(self._left, len(data)), max(self._left - len(data), 0)
        if self._begun is not None and not self._left:
            self.inbox.append(self._begun)
            self._begun = None
        return data[skipped:]

    def _take(self) -> None:
        """Whole packets out of what was read."""
        data, at = self._read, 0
        try:
            while (found := packets.span(data, at)) is not None:
                kind, (start, end) = data[at], found
                if end > len(data):
                    at = self._cut(kind, at, start, end)
                    break
                if kind & 0xF0 == packets.PUBLISH:
                    self.inbox.append(packets.heard(kind, data, start, end))
                elif kind == packets.PUBACK:
                    self.confirmed.append(packets.number(data, start, end))
                else:
                    self._told(kind, bytes(data[start:end]))
                at = end
        except packets.Garbled as error:
            raise BrokerLost(f"the broker does not speak MQTT: {error}") from None
        del data[:at]

    def _cut(self, kind: int, at: int, start: int, end: int) -> int:
        """How much is taken of a packet that is not all there: nothing, or what came of one too long to wait for."""
        data, enough = self._read, start + self._largest
        if end <= enough or len(data) < enough:
            return at
        if kind & 0xF0 != packets.PUBLISH:
            raise packets.Garbled("a packet longer than any")
        self._begun, self._left = packets.heard(kind, data, start, enough), end - len(data)
        return len(data)

    def _told(self, kind: int, rest: bytes) -> None:
        """What comes seldom."""
        if kind == packets.CONNACK and len(rest) == 2:
            if rest[1]:
                raise BrokerLost(f"the broker refused the connection: {packets.REFUSED.get(rest[1], rest[1])}")
            if self._filters:
                self._unsent += packets.subscribe(self._filters, self._next_mid())
            self._ready = not self._filters
        elif kind == packets.SUBACK:
            granted = zip(self._filters, rest[2:], strict=False)
            self.denied = [f for f, code in granted if code >= packets.FAILED]
            self._ready = True
        elif kind == packets.PONG:
            self._pinged = False
        else:
            raise packets.Garbled("a packet that no broker sends")

    def _stay_alive(self) -> None:
        now, every = time.monotonic(), self._settings.keepalive_s
        if not every or now - min(self._last_in, self._last_out) < every:
            return
        if self._pinged and now - self._last_in >= every:
            raise BrokerLost(SILENT)
        self._unsent += packets.PING
        self._pinged, self._last_in, self._last_out = True, now, now

    # --- out -------------------------------------------------------------------------------------------

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
        self._mid = self._mid % LAST_MID + 1
        return self._mid

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> int:
        """Queue a message, QoS 1; its id turns up in `confirmed`."""
        mid = self._next_mid()
        self._unsent += packets.publish(topic.encode(), payload, mid, retain)
        return mid

    def ack(self, message: Heard) -> None:
        if message.qos:
            self._unsent += packets.puback(message.mid)

    def close(self) -> None:
        """Say goodbye; the will is not sent, so the status is."""
        try:
            if self._settings.status_topic:
                mid = self.publish(self._settings.status_topic, b"offline", retain=True)
                until = time.monotonic() + GOODBYE_S
                while mid not in self.confirmed and time.monotonic() < until:
                    self.turn(LAST_TURN_S)
            self._unsent += packets.DISCONNECT
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
