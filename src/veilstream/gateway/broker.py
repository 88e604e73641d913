"""A connection to an MQTT broker with its own small loop: read what is there, let the owner act, write.

One thread, no callbacks into the owner: messages and confirmations are collected in `inbox` and `confirmed`.
Acknowledgements are manual: `ack` when the message's effect is durable.
"""

import selectors
import socket
import ssl
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode

from veilstream.gateway.tls import Tls

QUICKACK = getattr(socket, "TCP_QUICKACK", None)  # Linux; has to be said again and again
MAX_READ = 256  # messages taken before the owner acts
FIRST_TURN_S, LAST_TURN_S, GOODBYE_S = 0.1, 0.05, 2.0


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

    def __init__(self, settings: BrokerSettings, filters: list[str]) -> None:
        self.inbox: deque[paho.MQTTMessage] = deque()
        self.confirmed: deque[int] = deque()  # message ids the broker has taken over
        self.denied: list[str] = []
        self._filters, self._settings = filters, settings
        self._ready = False
        self._failure: str | None = None
        self._client = self._make_client(settings)
        self._client.connect(settings.host, settings.port, settings.keepalive_s)
        sock = self._client.socket()
        if not isinstance(sock, socket.socket):
            raise BrokerLost("no connection")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small packets must not wait for one another
        self._sock = sock
        self._selector = selectors.DefaultSelector()
        self._selector.register(sock, selectors.EVENT_READ)
        until = time.monotonic() + settings.timeout_s
        while not self._ready:
            if time.monotonic() > until:
                raise BrokerLost("the broker did not answer in time")
            self.turn(FIRST_TURN_S)
        if settings.status_topic:
            self.publish(settings.status_topic, b"online", retain=True)

    def _make_client(self, settings: BrokerSettings) -> paho.Client:
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=settings.client_id,
            clean_session=not settings.client_id,
            manual_ack=True,
            reconnect_on_failure=False,
        )
        client.max_inflight_messages_set(0)
        client.connect_timeout = settings.timeout_s
        if settings.user is not None:
            client.username_pw_set(settings.user, settings.password)
        if settings.tls is not None:
            client.tls_set_context(settings.tls.context())
        if settings.status_topic:
            client.will_set(settings.status_topic, b"offline", qos=1, retain=True)
        client.on_connect, client.on_subscribe = self._on_connect, self._on_subscribe
        client.on_message = lambda client, userdata, message: self.inbox.append(message)
        client.on_publish = lambda client, userdata, mid, reason, properties: self.confirmed.append(mid)
        client.on_socket_register_write = lambda client, userdata, sock: None  # we write when we are ready to
        return client

    def _on_connect(self, client: paho.Client, userdata: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        if reason.is_failure:
            self._failure = f"the broker refused the connection: {reason}"
        elif self._filters:
            client.subscribe([(f, 1) for f in self._filters])
        else:
            self._ready = True

    def _on_subscribe(self, client: Any, userdata: Any, mid: int, reasons: list[ReasonCode], properties: Any) -> None:
        self.denied = [f for f, r in zip(self._filters, reasons, strict=False) if r.is_failure]
        self._ready = True

    def turn(self, timeout: float) -> None:
        """Write what waits, wait up to `timeout` for input, read what is there."""
        self.flush()
        for _ in range(MAX_READ):
            if not self._readable(0 if self.inbox else timeout):
                break
            self._check(self._client.loop_read())
            timeout = 0
            if len(self.inbox) >= MAX_READ:
                break
        self._acknowledge_at_once()
        self._check(self._client.loop_misc())

    def flush(self) -> None:
        if self._client.want_write():
            self._check(self._client.loop_write())
            self._acknowledge_at_once()

    def _acknowledge_at_once(self) -> None:
        """Else a broker that uses Nagle's algorithm (mosquitto does by default) waits up to 40 ms for us."""
        if QUICKACK is not None:
            self._sock.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)

    def _readable(self, timeout: float) -> bool:
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            return True
        return bool(self._selector.select(timeout))

    def _check(self, code: MQTTErrorCode) -> None:
        if self._failure or code != paho.MQTT_ERR_SUCCESS:
            raise BrokerLost(self._failure or paho.error_string(code))

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> int:
        """Queue a message, QoS 1; its id turns up in `confirmed`."""
        info = self._client.publish(topic, payload, qos=1, retain=retain)
        if info.rc not in (paho.MQTT_ERR_SUCCESS, paho.MQTT_ERR_QUEUE_SIZE):
            raise BrokerLost(paho.error_string(info.rc))
        return info.mid

    def ack(self, message: paho.MQTTMessage) -> None:
        if message.qos:
            self._client.ack(message.mid, message.qos)

    def close(self) -> None:
        """Say goodbye; the will is not sent, so the status is."""
        try:
            if self._settings.status_topic:
                mid = self.publish(self._settings.status_topic, b"offline", retain=True)
                until = time.monotonic() + GOODBYE_S
                while mid not in self.confirmed and time.monotonic() < until:
                    self.turn(LAST_TURN_S)
            self._client.disconnect()
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
