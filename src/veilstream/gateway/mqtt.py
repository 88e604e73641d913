"""The MQTT gateway: subscribe to in/+, publish releases to out/+.

A reading is acknowledged after its release is committed, a release leaves the outbox after the broker confirmed it.
When the connection breaks, or this process dies, the broker sends again what was not acknowledged (same step, same
release) and we send again what is in the outbox. The last `republish` confirmed releases stay in it: a broker that is
killed forgets messages it has confirmed. Whoever reads the output drops repeats by (stream, t).

A release that the broker refuses stays in the outbox until it does not (`topics.RefusedTopics`). One that it does not
answer at all is given up with the connection, and sent again over the next.

When the store cannot be written the gateway goes offline; the broker keeps the readings.

Releases of one message go out together as far as the broker's packets carry them. One of MQTT 3.1.1 hangs up at a
packet larger than it takes, and does not say how large that is: to it every release goes alone.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from veilstream.errors import InputError
from veilstream.gateway import packets, topics
from veilstream.gateway.broker import WINDOW, BrokerLost, BrokerSettings, Connection, Unanswered
from veilstream.gateway.core import Core, Found, Message, handle, process, transactions
from veilstream.gateway.home import Home
from veilstream.gateway.inbox import Heard
from veilstream.gateway.records import Outcome, OutFormat, Outgoing, Status, StoreError, Told
from veilstream.gateway.topics import RefusedTopics, Route, joined, parted
from veilstream.gateway.wire import Reading, Refusal

log = logging.getLogger("veilstream.mqtt")
FIRST_DELAY_S, LAST_DELAY_S = 0.1, 30.0
MAX_IN_FLIGHT = 1000  # releases given to the connection and not yet confirmed
AT_ONCE = 1000  # messages in one transaction: a flood must not fill the memory
IDLE_S = 0.05
DRAIN_S = 5.0
CALM_S, RESUME_S = 1.0, 10.0  # since a flood; between two sessions that end for that reason
PAUSE_S = 1.0  # after a reading that could not be kept
CONFIRM_AT_ONCE = 256
SMALL_PACKET = 4096  # bytes that almost every broker takes
TOPICS = 4096  # kept at hand


class Where(NamedTuple):
    """Of a topic with readings: how they are read, and the topic and form of their releases."""

    read: Callable[[bytes | bytearray], Found]
    stream: str = ""
    target: str = ""
    form: OutFormat = "plain"
    audiences: tuple[tuple[str, str], ...] = ()  # behind the policy, each with its topic


class OnItsWay(NamedTuple):
    """A release on its way."""

    id: int  # in the outbox
    topic: str
    whole: bool = True  # no: another part of it follows


class MqttGateway:
    def __init__(
        self,
        core: Core,
        routes: Sequence[Route],
        settings: BrokerSettings,
        home: Home | None = None,
        audiences: Sequence[Route] = (),
    ) -> None:
        """audiences: routes of the spaces of audiences; their source is that of the readings behind them."""
        self.core, self.routes, self.settings, self.home = core, list(routes), settings, home
        self.audiences = list(audiences)
        others = [settings.status_topic] if settings.status_topic else []
        others += [f"{home.prefix}/#"] if home is not None else []
        topics.check(self.routes, *others, audiences=self.audiences)
        if core.serving.clock:
            core.outlets.append(self)
        if home is not None:
            home.sends = self.wake
            core.outlets.append(home)
        for route in self.routes:
            old = core.store.filter_of(route.space, route.source)
            if topics.renames(old, route.source):
                raise InputError(
                    f"the store knows the streams of {old!r} by what its wildcards stand for; {route.source!r} would "
                    "give them other names, and their steps would be drawn a second time: keep the filter, or take "
                    "another `store`"
                )
        self._refused = RefusedTopics()
        self._behind = threading.Event()  # the outbox may hold something not sent in this session
        self._arrived = 0  # the last outbox id that has ever arrived
        self._packet = 0  # bytes of topic and payload in which releases may go together
        self._careful = False  # the last session broke with releases on their way: what about one of them, maybe
        self._resumed = 0.0  # when, after a flood
        self._overdue = False  # it broke because nothing was acknowledged
        self._where = lru_cache(TOPICS)(self._routed)
        self._begin()
        self._largest = core.serving.max_bytes + packets.LONGEST_TEXT + packets.NUMBERS  # more is refused anyway

    def _begin(self) -> None:
        """What belongs to one session."""
        self._in_flight: dict[int, OnItsWay] = {}  # by message id, in order
        self._batch: list[Heard] = []  # taken out of the inbox, and not yet handled
        self._confirmed: deque[int] = deque()  # outbox ids that have arrived, oldest first
        self._states: set[int] = set()  # outbox ids in flight of what is not sent again: a newer one replaces it
        self._sent_up_to = 0  # outbox id
        self._took = self._delivered = False  # it took readings; learned of releases what was not known

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop`, through every break."""
        delay = FIRST_DELAY_S
        while not stop.is_set():
            try:
                self.core.probe()
                filters, window = [r.source for r in self.routes], 1 if self._careful else WINDOW
                connection = Connection(self.settings, filters, self._largest, window)
            except StoreError:
                log.error("store_unavailable", extra={"retry_s": delay})
            except (OSError, ValueError) as error:  # ValueError: a host name that cannot be one
                log.warning("broker_unavailable", extra={"reason": type(error).__name__, "retry_s": delay})
            else:
                if self._session(connection, stop):
                    delay = FIRST_DELAY_S
            if not stop.wait(delay):
                delay = min(2 * delay, LAST_DELAY_S)

    def _session(self, connection: Connection, stop: threading.Event) -> bool:
        """Until it breaks, or `stop`; whether it got anything done."""
        stats, version = self.core.stats, connection.version
        five = version == packets.FIVE.version
        log.info("broker_connected", extra={"denied": connection.denied or None})
        if not five and stats.protocol != version:
            log.warning("broker_speaks_mqtt_3", extra={"reason": "it cannot say that it refuses a release"})
        stats.connected, stats.protocol = True, version
        self._packet = min(SMALL_PACKET, connection.max_packet - packets.NUMBERS) if five else 0
        self._begin()
        if self.home is not None:
            self.home.forget()
        self._behind.set()
        try:
            while not stop.is_set():
                waits = self._batch or connection.inbox
                connection.turn(0 if waits and self._may_take() else IDLE_S)
                self._take_answers(connection)
                self._try_again(connection)
                self._send_outbox(connection)
                self._try(connection, stop)
                self._resume(connection)
            self._drain(connection)
            connection.close()
        except BrokerLost as error:
            self._take_answers(connection)  # what it said before it hung up
            log.warning("broker_lost", extra={"reason": str(error)})
            connection.drop()
            self._careful, self._overdue = bool(self._in_flight), isinstance(error, Unanswered)
        except StoreError:
            log.error("store_failed")
            connection.drop()  # nothing was acknowledged: the broker keeps it
        finally:
            self._refused.lost()
            self._tell(connection)
            stats.connected = False
        return self._delivered or (self._took and not self._in_flight)

    def _resume(self, connection: Connection) -> None:
        """After a flood: what the broker dropped of QoS 1 it sends again. Under a clock it would show."""
        now, flood = time.monotonic(), connection.flooded_at
        if flood is not None and now > max(flood + CALM_S, self._resumed + RESUME_S) and not self.core.serving.clock:
            self._resumed = now
            raise BrokerLost("the session is resumed after a flood of QoS 0")

    def _tell(self, connection: Connection) -> None:
        """What is wrong with the broker, if anything, to whoever asks, and once to the log. No stream is named."""
        stats, line = self.core.stats, None
        if self._refused:
            line = f"the broker refuses releases ({self._refused.reason}); they wait in the outbox"
        elif connection.denied:
            line = "the broker refused the subscription; no readings come"
        elif self._overdue:
            line = "the broker did not acknowledge releases; they are sent again"
        if line != stats.trouble:
            (log.warning if line else log.info)("broker_trouble" if line else "broker_well", extra={"reason": line})
            stats.trouble = line

    def _try(self, connection: Connection, stop: threading.Event) -> None:
        """Under a clock a reading that cannot be kept must not show: only a tick that fails takes us offline."""
        if not self.core.serving.clock:
            self._take(connection)
            return
        if self.core.failing:
            raise StoreError("a tick failed")
        try:
            self._take(connection)
        except StoreError:
            stop.wait(PAUSE_S)  # it stays in the inbox, and is not acknowledged

    # --- readings in -----------------------------------------------------------------------------------

    def _may_take(self) -> bool:
        left_over = self._behind.is_set() and not self.core.serving.clock  # what an earlier session left goes first
        return not left_over and len(self._in_flight) < MAX_IN_FLIGHT

    def _take(self, connection: Connection) -> None:
        if not self._may_take():
            return
        self._batch = self._batch or connection.inbox.take(AT_ONCE)
        if not self._batch:
            return

        def work(messages: Sequence[Message]) -> None:
            compose = partial(self._compose, messages)
            receipt = process(self.core, messages, compose)
            for i, (_, topic, payload) in receipt.outbox:
                if topic not in self._refused:
                    self._send(connection, i, topic, payload)
            # under a clock a repeat would reveal that a reading came
            again = not self.core.serving.clock and any(o.status is Status.repeated for o in receipt.outcomes)
            for _, topic, payload in compose(receipt.outcomes, Status.repeated) if again else ():
                if topic not in self._refused:
                    connection.publish(topic, payload, self.settings.retain)

        messages = next(transactions(self._message(m) for m in self._batch))
        handle(self.core, messages, work)
        for m in self._batch[: len(messages)]:
            connection.ack(m)
        del self._batch[: len(messages)]
        self._took = True

    def _compose(
        self, messages: Sequence[Message], outcomes: Sequence[Outcome], wanted: Status = Status.released
    ) -> list[Outgoing]:
        """What is published of these messages: their releases of this status, together as their readings came."""
        out: list[Outgoing] = []
        left = iter(outcomes)
        for message in messages:
            where: Where = message.note
            pairs = zip(message.readings, left, strict=False)
            told = [(r, o) for r, o in pairs if isinstance(r, Reading) and o.status is wanted]
            for audience, target in (("", where.target), *where.audiences):
                bodies = [
                    self.core.spaces[audience or r.space].body(mine.message, where.form, r.owntracks)
                    for r, o in told
                    for mine in o.of(audience)
                    if mine.message is not None
                ]
                limit = self._packet - len(target.encode())
                out += [(where.stream, target, payload) for payload in joined(bodies, limit)]
        return out

    def _message(self, m: Heard) -> Message:
        where = self._where(m.topic)
        return Message.of(self.core, m.payload, where.read, where)

    def _routed(self, topic: str) -> Where:
        """What is to be known of a topic; one that names no stream that we could release is refused."""
        for route in self.routes:
            stream = route.stream(topic)
            if stream is not None and route.carries(stream):
                target = route.output(stream)
                read = partial(self.core.scheduler.read, space=route.space, stream=stream)
                behind = tuple(
                    (other.space, other.output(stream))
                    for other in self.audiences
                    if other.source == route.source and other.carries(stream)
                )
                return Where(read, stream, target, route.form, behind)
        return Where(lambda _: Refusal.stream)

    # --- releases out ----------------------------------------------------------------------------------

    def compose(self, told: Sequence[Told]) -> list[Outgoing]:
        """As an outlet, under a clock: whatever is released, on the topics of the first route of its space."""
        out: list[Outgoing] = []
        for s, message in told:
            route = next((r for r in (*self.routes, *self.audiences) if r.space == s.space), None)
            if message is not None and route is not None and route.carries(s.name):
                body = self.core.spaces[s.space].body(message, route.form)
                out.append((s.name, route.output(s.name), body))
        return out

    def wake(self) -> None:
        """Something was put into the outbox by another thread."""
        self._behind.set()

    def _send(self, connection: Connection, i: int, topic: str, payload: bytes) -> None:
        """The last of its parts stands for all, unless one is refused."""
        parts = parted(payload, self._packet - len(topic.encode()))
        at_home = self.home is not None and self.home.owns(topic)
        for part in parts[:-1]:
            mid = connection.publish(topic, part, self.settings.retain or at_home)
            self._in_flight[mid] = OnItsWay(i, topic, False)
        mid = connection.publish(topic, parts[-1], self.settings.retain or at_home)
        self._in_flight[mid] = OnItsWay(i, topic)
        if at_home:
            self._states.add(i)

    def _send_outbox(self, connection: Connection) -> None:
        """After a new connection, or a tick: everything in the outbox that this session has not sent."""
        while self._behind.is_set() and len(self._in_flight) < MAX_IN_FLIGHT:
            self._behind.clear()
            rows = self.core.unsent(self._sent_up_to)
            sent = {*(sent.id for sent in self._in_flight.values()), *self._confirmed} if rows else set()
            for i, topic, payload in rows:
                if len(self._in_flight) >= MAX_IN_FLIGHT:  # a row may be many messages
                    break
                self._sent_up_to = i
                if i not in sent and topic not in self._refused:
                    self._send(connection, i, topic, payload)
                    at_home = i in self._states
                    self.core.stats.republished += not (self.core.serving.clock or at_home)
            if rows:
                self._behind.set()

    def _try_again(self, connection: Connection) -> None:
        """Releases that the broker refused before."""
        trials, go_on = self._refused.due()
        for topic, first in trials:
            row = next(iter(self.core.unsent(first - 1, limit=1)), None)
            if row is not None and row[:2] == (first, topic):
                self._send(connection, *row)
            else:
                self._refused.remove(topic)
        if go_on:
            self._sent_up_to = 0
            self._behind.set()

    def _take_answers(self, connection: Connection, all_of_them: bool = False) -> None:
        """Take confirmed releases out of the outbox, all but the last `republish`."""
        replaced: list[int] = []
        refusing = len(self._refused) > 0
        while connection.confirmed:
            sent = self._in_flight.pop(connection.confirmed.popleft(), None)
            if sent is not None and sent.whole:
                i = sent.id
                (replaced if i in self._states else self._confirmed).append(i)
                self._delivered |= i > self._arrived
                self._arrived = max(self._arrived, i)
                self._overdue = False
                if refusing:
                    self._refused.remove(sent.topic)
        if connection.refused:
            self._refuse(connection)
        if replaced:
            self._states.difference_update(replaced)
            self.core.confirm(replaced)
        self._tell(connection)
        self.core.stats.outbox = len(self._in_flight)
        self.core.stats.dropped += connection.inbox.dropped
        connection.inbox.dropped = 0
        excess = len(self._confirmed) - (0 if all_of_them else self.settings.republish)
        if excess >= CONFIRM_AT_ONCE or (all_of_them and excess > 0):
            self.core.confirm([self._confirmed.popleft() for _ in range(excess)])

    def _refuse(self, connection: Connection) -> None:
        """They stay in the outbox."""
        while connection.refused:
            mid, reason = connection.refused.popleft()
            self.core.stats.broker_refused[reason] += 1
            if (sent := self._in_flight.pop(mid, None)) is not None:
                self._delivered |= sent.topic not in self._refused
                self._refused.add(sent.topic, sent.id, reason)
                self._in_flight = {m: other for m, other in self._in_flight.items() if other.id != sent.id}

    def _drain(self, connection: Connection) -> None:
        """On the way out: wait for what is in flight, then leave the outbox empty."""
        for _ in range(int(DRAIN_S / IDLE_S)):
            if not self._in_flight:
                break
            connection.turn(IDLE_S)
            connection.inbox.take(len(connection.inbox))  # not acknowledged: the broker keeps them
            self._take_answers(connection)
        self._take_answers(connection, all_of_them=True)
