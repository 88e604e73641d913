"""Odd brokers, one after another, each a list entry: whatever they do, the gateway lives on, says one release a step,
takes a release out of its outbox only when a broker has taken it, and serves the next broker that is one.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple
from unittest import mock

from attack.drill import Trial
from attack.kills import one_release_each
from fakebroker import NOT_THIS_VERSION, FakeBroker, Session, connack, packet, puback, publish, suback
from gatewaykit import artefact, core_of
from patience import wait_until
from veilstream.gateway.broker import WINDOW, BrokerSettings
from veilstream.gateway.core import Core
from veilstream.gateway.mqtt import MqttGateway
from veilstream.gateway.topics import Route

STREAMS, STEPS = 4, 10
Seen = Callable[[FakeBroker, Core], None]


class OneByOne(Session):
    piece = 1


class Malformed(Session):
    def subscribe(self, mid: int) -> None:
        self.say(suback(self.version, mid, 1) + b"\x32\xff\xff\xff\xff\x7f" + bytes(40))


class ShortOfItsLength(Session):
    lasts_s = 0.6

    def subscribe(self, mid: int) -> None:
        self.say(suback(self.version, mid, 1) + b"\x32\xff\xff\x01\0\x04in/a")


class NotGranted(Session):
    def subscribe(self, mid: int) -> None:
        if mid > 60:  # asked again and again, and granted in the end
            Session.subscribe(self, mid)
        else:
            self.mid = mid
            self.say(suback(self.version, mid, 0x87 if self.version == 5 else 0x80))


class Twice(Session):
    """QoS 2, which nobody asked for: its message, and the other half of its handshake."""

    def subscribe(self, mid: int) -> None:
        self.say(suback(self.version, mid, 1) + publish(self.version, b"in/a", b'{"t":99,"value":1}', 7, 0x34))


class Received(Session):
    def answer(self, mid: int, code: int = 0) -> None:
        self.say(packet(0x50, mid.to_bytes(2)))  # PUBREC


class Released(Session):
    def subscribe(self, mid: int) -> None:
        self.say(suback(self.version, mid, 1) + packet(0x62, b"\0\7"))  # PUBREL


class TwiceAndUnknown(Session):
    def answer(self, mid: int, code: int = 0) -> None:
        Session.answer(self, mid)
        self.say(puback(mid) + puback(0) + puback(0xFFFF) + puback((mid + 7) % 0xFFFF, 0x87))


class Silent(Session):
    """Says that it takes 65,535 messages at a time, and answers none."""

    welcome_properties = b"\x21\xff\xff"

    def published(self, topic: str, body: bytes, mid: int) -> None: ...


class AtMostOne(Session):
    welcome_properties = b"\x21\0\1"

    def published(self, topic: str, body: bytes, mid: int) -> None:
        time.sleep(0.002)  # what it would send without an answer would be there by now
        Session.published(self, topic, body, mid)


class Refuses(Session):
    """Every release, for a while."""

    def published(self, topic: str, body: bytes, mid: int) -> None:
        if topic.startswith("out/") and time.monotonic() < self.broker.until:
            self.answer(mid, 0x87)
        else:
            Session.published(self, topic, body, mid)


class HangsUp(Refuses):
    """At the first refusal, as mosquitto 2.0.11 does."""

    def answer(self, mid: int, code: int = 0) -> None:
        Session.answer(self, mid, code)
        self.over |= code >= 0x80


class Small(Session):
    """Takes no packet of more than 60 bytes, which no release is, and then it does."""

    lasts_s = 1.0
    welcome_properties = b"\x27\0\0\0\x3c"

    def take(self, topic: str, body: bytes) -> None:
        assert len(topic) + len(body) <= 60, f"{len(topic) + len(body)} bytes to who takes 60"


class Forgot(Session):
    def connect(self) -> None:
        self.say(connack(self.version, 0, present=False))


class NoPong(Session):
    def pong(self) -> None: ...

    def deliver(self) -> None: ...


class StopsReading(Session):
    lasts_s = 1.5

    def deliver(self) -> None:
        Session.deliver(self)
        self.reads = False


class Unwelcome(Session):
    def connect(self) -> None:
        codes = (0x80, 0x81, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x97, 0x9C, 0x9F, 0x03)
        self.say(connack(self.version, codes[len(self.broker.versions) % len(codes)]))


class Storm(Session):
    lasts_s = 0.0


class HalfWay(Session):
    def connect(self) -> None:
        self.over = True


class Ends(Session):
    def subscribe(self, mid: int) -> None:
        self.say(suback(self.version, mid, 1) + packet(0xE0, b"\x8b"))  # DISCONNECT: shutting down


class OnlyFive(Session):
    def connect(self) -> None:
        self.say(connack(5) if self.version == 5 else connack(4, 1))


class OnlyThree(Session):
    def connect(self) -> None:
        self.say(NOT_THIS_VERSION if self.version == 5 else connack(4))


class OnlyThreeAndSays(OnlyThree):
    def connect(self) -> None:
        self.say(connack(5, 0x84) if self.version == 5 else connack(4))


class NoQos(Session):
    welcome_properties = b"\x24\0"  # maximum QoS 0


class NoRetain(Session):
    welcome_properties = b"\x25\0"

    def heard(self, kind: int, rest: bytes) -> None:
        assert kind & 0xF0 != 0x30 or not kind & 1, "retained, where nothing can be"
        Session.heard(self, kind, rest)


class BadText(Session):
    """A topic and a property that are no text; they cost themselves, and are acknowledged."""

    def deliver(self) -> None:
        if not self.broker.acknowledged and not self.asked and self.version == 5:
            self.asked |= {900: -1, 901: -2}
            self.say(publish(5, b"in/\xff\xfe", b"{}", 900))
            self.say(packet(0x32, b"\0\4in/a" + (901).to_bytes(2) + b"\x04\x03\0\1\xff" + b"{}"))
        Session.deliver(self)


class Swallows(Session):
    """Floods with QoS 0, and what it would have sent of QoS 1 is lost on the way: it waits for acknowledgements."""

    def deliver(self) -> None:
        self.say(3000 * publish(self.version, b"in/f", b"x", 0, 0x30))


class Odd(NamedTuple):
    name: str
    kind: type[Session]
    sessions: int = 1  # so many; then it is a broker like others
    seen: Seen = lambda broker, core: None


def _most(n: int) -> Seen:
    def seen(broker: FakeBroker, core: Core) -> None:
        assert broker.most_unanswered <= n, f"{broker.most_unanswered} messages without an answer, of {n} at most"

    return seen


def _speaks(version: str) -> Seen:
    def seen(broker: FakeBroker, core: Core) -> None:
        assert core.stats.protocol == version, f"it speaks {core.stats.protocol}"

    return seen


def _refused(broker: FakeBroker, core: Core) -> None:
    assert core.stats.broker_refused["Not authorized"] > 0, "a refusal was not counted"


FOR_EVER = 1_000_000
ODD = [
    Odd("as others", Session, seen=_speaks("5")),
    Odd("bytes one by one", OneByOne, FOR_EVER),
    Odd("malformed length", Malformed, 3),
    Odd("a message without its end", ShortOfItsLength, 2),
    Odd("failed SUBACK", NotGranted, FOR_EVER),
    Odd("QoS 2 message", Twice, 3),
    Odd("PUBREC", Received, 3),
    Odd("PUBREL", Released, 3),
    Odd("duplicate and unknown PUBACKs", TwiceAndUnknown, FOR_EVER),
    Odd("65,535 in flight, no PUBACK", Silent, 2, _most(WINDOW)),
    Odd("receive maximum 1", AtMostOne, FOR_EVER, _most(1)),
    Odd("refused PUBACKs", Refuses, FOR_EVER, _refused),
    Odd("refused PUBACKs, and hangs up", HangsUp, FOR_EVER, _refused),
    Odd("maximum packet size 60", Small, 2),
    Odd("session not present", Forgot, FOR_EVER),
    Odd("no PINGRESP", NoPong, 1),
    Odd("stops reading", StopsReading, 1),
    Odd("refused CONNACKs", Unwelcome, 12),
    Odd("reconnect storm", Storm, 60),
    Odd("closed at CONNECT", HalfWay, 10),
    Odd("DISCONNECT", Ends, 3),
    Odd("MQTT 5 only", OnlyFive, FOR_EVER, _speaks("5")),
    Odd("MQTT 3.1.1 only", OnlyThree, FOR_EVER, _speaks("3.1.1")),
    Odd("MQTT 3.1.1 only, said in 5", OnlyThreeAndSays, FOR_EVER, _speaks("3.1.1")),
    Odd("QoS 0 only", NoQos, 3),
    Odd("no retained messages", NoRetain, FOR_EVER),
    Odd("text that is no text", BadText, FOR_EVER),
    Odd("QoS 0 that swallows QoS 1", Swallows, 1),
]


@contextlib.contextmanager
def served(core: Core, port: int, **more) -> Iterator[list[BaseException]]:
    """The gateway, at that broker and in a hurry; what ended it, if anything did."""
    stop, ended = threading.Event(), []
    settings = BrokerSettings("127.0.0.1", port, "me", **{"timeout_s": 0.5, "keepalive_s": 1, "republish": 0, **more})
    gateway = MqttGateway(core, [Route("in/+", "out/+")], settings)

    def run() -> None:
        try:
            gateway.run(stop)
        except BaseException as error:
            ended.append(error)

    hurry = {
        "mqtt.CONFIRM_AT_ONCE": 1,
        "mqtt.FIRST_DELAY_S": 0.01,
        "mqtt.LAST_DELAY_S": 0.02,
        "topics.FIRST_S": 0.02,
        "topics.LAST_S": 0.1,
        "broker.ASK_AGAIN_S": 0.01,
        "mqtt.CALM_S": 0.1,
        "mqtt.DRAIN_S": 1.0,
    }
    thread = threading.Thread(target=run)
    with contextlib.ExitStack() as stack:
        for name, value in hurry.items():
            stack.enter_context(mock.patch(f"veilstream.gateway.{name}", value))
        thread.start()
        try:
            yield ended
        finally:
            stop.set()
            thread.join()


def endured(t: Trial, odd: Odd) -> None:
    readings = [
        (b"in/s%d" % s, b'{"t":%d,"value":%d}' % (k, t.rng.randrange(16))) for k in range(STEPS) for s in range(STREAMS)
    ]
    folder = t.folder / odd.name.replace(" ", "_")
    folder.mkdir()
    with (
        core_of(artefact(folder / "p.veil"), folder / "s.db") as core,
        FakeBroker(odd.kind, odd.sessions, readings) as broker,
    ):
        broker.until = time.monotonic() + 0.7  # type: ignore[attr-defined]
        with served(core, broker.port) as ended:

            def done() -> bool:
                steps = {(r["stream"], r["t"]) for r in broker.taken}
                acknowledged = set(broker.acknowledged) >= set(range(len(readings)))
                return bool(ended or broker.wrong) or (len(steps) == len(readings) and acknowledged)

            wait_until(done, what=f"the releases, at a broker with {odd.name}")
            assert not ended, f"it ended: {ended[0]!r}"
            assert not broker.wrong, broker.wrong[0]
            wait_until(lambda: core.stats.trouble is None, what=f"an end of trouble, at a broker with {odd.name}")
            wait_until(lambda: not core.unsent(), what=f"an empty outbox, at a broker with {odd.name}")
            odd.seen(broker, core)
        one_release_each(broker.taken)
        assert core.stats.released == len(readings) and core.stats.refused["unhandled"] == 0


def brokers(t: Trial) -> int:
    chosen = t.rng.sample(ODD, t.times(len(ODD)))
    for odd in chosen:
        endured(t, odd)
    return len(chosen)
