"""The MQTT gateway: subscribe to in/+, publish releases to out/+.

A reading is acknowledged after its release is committed, a release leaves the outbox after the broker confirmed it.
When the connection breaks, or this process dies, the broker sends again what was not acknowledged (same step, same
release) and we send again what is in the outbox. The last `republish` confirmed releases stay in it: a broker that is
killed forgets messages it has confirmed. Whoever reads the output drops repeats by (stream, t).

When the store cannot be written the gateway goes offline; the broker keeps the readings.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence

from paho.mqtt.client import MQTTMessage

from veilstream.gateway import topics
from veilstream.gateway.broker import BrokerLost, BrokerSettings, Connection
from veilstream.gateway.core import Core
from veilstream.gateway.outcome import Message, Outcome, Status, body
from veilstream.gateway.store import StoreError
from veilstream.gateway.topics import Route
from veilstream.gateway.wire import MAX_BYTES, Reading, Refused, Release, parse

log = logging.getLogger("veilstream.mqtt")
FIRST_DELAY_S, LAST_DELAY_S = 0.1, 30.0
MAX_IN_FLIGHT = 1000  # releases sent and not yet confirmed
IDLE_S = 0.05
DRAIN_S = 5.0


class MqttGateway:
    def __init__(
        self,
        core: Core,
        routes: Sequence[Route],
        settings: BrokerSettings,
        *,
        republish: int = 1000,
        retain: bool = False,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.core, self.routes, self.settings = core, list(routes), settings
        self.republish, self.retain, self.max_bytes = republish, retain, max_bytes
        topics.check(self.routes, *([settings.status_topic] if settings.status_topic else []))
        self._in_flight: dict[int, int] = {}  # message id -> outbox id
        self._confirmed: deque[int] = deque()  # outbox ids that have arrived, oldest first
        self._sent_up_to = 0  # outbox id
        self._behind = threading.Event()  # the outbox may hold something not sent in this session

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop`, through every break."""
        delay = FIRST_DELAY_S
        while not stop.is_set():
            try:
                self.core.probe()
                connection = Connection(self.settings, [r.source for r in self.routes])
            except StoreError:
                log.error("store_unavailable", extra={"retry_s": delay})
            except (OSError, ValueError) as error:  # ValueError: paho's word for a bad host name
                log.warning("broker_unavailable", extra={"reason": type(error).__name__, "retry_s": delay})
            else:
                delay = FIRST_DELAY_S
                self._session(connection, stop)
            if not stop.wait(delay):
                delay = min(2 * delay, LAST_DELAY_S)

    def _session(self, connection: Connection, stop: threading.Event) -> None:
        log.info("broker_connected", extra={"denied": connection.denied or None})
        self.core.stats.connected = True
        self._in_flight.clear()
        self._confirmed.clear()
        self._sent_up_to = 0
        self._behind.set()
        try:
            while not stop.is_set():
                connection.turn(IDLE_S)
                self._settle(connection)
                self._send_outbox(connection)
                self._take(connection)
            self._drain(connection)
            connection.close()
        except BrokerLost as error:
            log.warning("broker_lost", extra={"reason": str(error)})
            connection.drop()
        except StoreError:
            log.error("store_failed")
            connection.drop()  # nothing was acknowledged: the broker keeps it
        finally:
            self.core.stats.connected = False

    # --- readings in -----------------------------------------------------------------------------------

    def _take(self, connection: Connection) -> None:
        left_over = self._behind.is_set() and not self.core.clock  # what an earlier session left goes first
        if not connection.inbox or left_over or len(self._in_flight) >= MAX_IN_FLIGHT:
            return
        messages = list(connection.inbox)
        readings: list[Reading | Refused] = []
        spans: list[tuple[int, int, Route | None]] = []
        for m in messages:
            start = len(readings)
            route, found = self._parse(m)
            readings += [found] if isinstance(found, Refused) else found
            spans.append((start, len(readings), route))

        def compose(outcomes: list[Outcome], wanted: Status = Status.released) -> list[Message]:
            out = []
            for start, end, route in spans:
                done = [
                    i for i in range(start, end) if outcomes[i].status is wanted and outcomes[i].release is not None
                ]
                if done and route is not None:
                    bodies = [self._body(route, readings[i], outcomes[i]) for i in done]
                    payload = bodies[0] if len(bodies) == 1 else b"[" + b",".join(bodies) + b"]"
                    out.append((route.output(outcomes[done[0]].release.stream), payload))  # type: ignore[union-attr]
            return out

        processed = self.core.process(readings, compose)
        for i, (topic, payload) in processed.outbox:
            self._send(connection, i, topic, payload)
        for topic, payload in compose(processed.outcomes, Status.repeated):
            connection.publish(topic, payload, self.retain)
        for m in messages:
            connection.ack(m)
        connection.inbox.clear()

    def _parse(self, m: MQTTMessage) -> "tuple[Route | None, list[Reading | Refused] | Refused]":
        try:
            topic = m.topic
        except UnicodeDecodeError:
            return None, Refused.stream
        for route in self.routes:
            stream = route.stream(topic)
            if stream is not None:
                grid = self.core.spaces[route.space].grid
                return route, parse(m.payload, grid, stream, route.space, self.max_bytes)
        return None, Refused.stream

    def _body(self, route: Route, reading: Reading | Refused, outcome: Outcome) -> bytes:
        assert isinstance(reading, Reading)
        assert outcome.release is not None
        return body(route.form, reading.owntracks, outcome.release, outcome.message)

    # --- releases out ----------------------------------------------------------------------------------

    def compose_tick(self, space: str, release: Release) -> Message:
        """The message of a clocked release."""
        route = next(r for r in self.routes if r.space == space)
        return route.output(release.stream), body(route.form, False, release)

    def wake(self) -> None:
        """Something was put into the outbox by another thread."""
        self._behind.set()

    def _send(self, connection: Connection, i: int, topic: str, payload: bytes) -> None:
        self._in_flight[connection.publish(topic, payload, self.retain)] = i

    def _send_outbox(self, connection: Connection) -> None:
        """After a new connection, or a tick: everything in the outbox that this session has not sent."""
        while self._behind.is_set() and len(self._in_flight) < MAX_IN_FLIGHT:
            self._behind.clear()
            rows = self.core.unsent(self._sent_up_to)
            for i, topic, payload in rows:
                self._send(connection, i, topic, payload)
            if rows:
                self._sent_up_to = rows[-1][0]
                self.core.stats.republished += 0 if self.core.clock else len(rows)
                self._behind.set()

    def _settle(self, connection: Connection, all_of_them: bool = False) -> None:
        """Take confirmed releases out of the outbox, all but the last `republish`."""
        while connection.confirmed:
            i = self._in_flight.pop(connection.confirmed.popleft(), None)
            if i is not None:
                self._confirmed.append(i)
        self.core.stats.outbox = len(self._in_flight)
        excess = len(self._confirmed) - (0 if all_of_them else self.republish)
        if excess >= 256 or (all_of_them and excess > 0):
            self.core.confirm([self._confirmed.popleft() for _ in range(excess)])

    def _drain(self, connection: Connection) -> None:
        """On the way out: wait for what is in flight, then leave the outbox empty."""
        for _ in range(int(DRAIN_S / IDLE_S)):
            if not self._in_flight:
                break
            connection.turn(IDLE_S)
            connection.inbox.clear()  # not acknowledged: the broker keeps them
            self._settle(connection)
        self._settle(connection, all_of_them=True)
