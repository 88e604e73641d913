"""The connection to a broker: MQTT 3.1.1 by hand against the benchmark's client, and both versions at bad brokers."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mosquitto
from fakebroker import FakeBroker, Session, connack, packet, puback, publish, suback
from patience import PATIENCE_S, wait_until
from veilstream.gateway import packets
from veilstream.gateway.broker import AT_ONCE_BYTES, BrokerLost, BrokerSettings, Connection, Unanswered
from veilstream.gateway.inbox import OVERHEAD, Heard, Inbox
from veilstream.gateway.packets import FIVE, THREE

TOPICS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="+#\0"), min_size=1, max_size=50)
GRANTED = suback(5, 1, 1)
PING, BYE = b"\xc0\0", b"\xe0\0"
QOS1 = mqtt5.QoS.AT_LEAST_ONCE


# --- 3.1.1 -------------------------------------------------------------------------------------------------


@given(topic=TOPICS, payload=st.binary(max_size=300), mid=st.integers(1, 65535))
def test_a_message_is_written_as_another_client_writes_it_and_read_back(topic, payload, mid):
    data = THREE.write(mqtt5.PublishPacket(topic, payload, qos=QOS1, packet_id=mid))
    assert data == mosquitto.publish(topic, payload, mid - 1)
    found, n = THREE.read(memoryview(data + b"more"))
    assert (found.topic, found.payload, found.qos, found.packet_id, found.retain) == (topic, payload, 1, mid, False)
    assert n == len(data)


@pytest.mark.parametrize("size", [0, 1, 120, 121, 127, 128, 16_379, 16_383, 16_384, 2_097_151, 2_097_152])
def test_lengths_of_every_width_are_found_again_and_what_is_cut_is_not_there(size):
    data = THREE.write(mqtt5.PublishPacket("in/a", bytes(size), qos=QOS1, packet_id=7))
    assert data == mosquitto.publish("in/a", bytes(size), 6)
    assert packets.span(b"x" + data + b"more", 1)[1] == len(data) + 1
    for codec in (FIVE, THREE):
        whole = codec.write(mqtt5.PublishPacket("in/a", bytes(size), qos=QOS1, packet_id=7))
        for short in (whole[:-1], whole[:1]):
            with pytest.raises(IndexError):
                codec.read(memoryview(short))


@pytest.mark.parametrize("topic", ["", "in/+", "in/#", "x" * 65_536])
def test_what_mqtt_cannot_carry_is_refused_before_it_is_sent(topic):
    with FakeBroker() as broker:
        connection = connected(broker)
        with pytest.raises(ValueError, match=r"(?i)topic|string"):
            connection.publish(topic, b"")
        connection.drop()


@pytest.mark.parametrize("version", [4, 5])
def test_what_it_says_first_is_a_connect_with_will_user_and_session(version):
    with Says([[b"\x20\x02\0\1"], [connack(4)]] if version == 4 else [[connack(5)]]) as broker:
        settings = BrokerSettings("127.0.0.1", broker.port, "me", "ann", "secret", status_topic="st")
        connection = Connection(settings, [])
        wait_until(lambda: (connection.turn(0.02), broker.heard.endswith(b"online"))[1])
        flags = 0x80 | 0x40 | 0x20 | 0x08 | 0x04  # user, password, will: retained, QoS 1; the session stays
        for_ever = b"\x11\xff\xff\xff\xff\x21\x01\x00"  # session expiry, receive maximum
        own, will = (b"", b"") if version == 4 else (bytes([len(for_ever)]) + for_ever, b"\0")
        texts = [b"me", b"st", b"offline", b"ann", b"secret"]
        me, topic, message, user, password = (len(part).to_bytes(2) + part for part in texts)
        rest = b"\0\4MQTT" + bytes((version, flags, 0, 30)) + own + me + will + topic + message + user + password
        online = publish(version, b"st", b"online", 1, 0x33)
        assert broker.heard.startswith(bytes((0x10, len(rest))) + rest + online)
        connection.drop()


def test_a_password_goes_with_a_user_and_a_user_may_go_alone():
    def said(**settings) -> bytes:
        with Says([[b"\x20\x02\0\1"], [connack(4)]]) as broker:
            connected(broker, **settings).drop()
            wait_until(lambda: broker.over == 2)
            return broker.heard

    assert said(password="secret") == said()
    alone = said(user="ann")
    assert alone[9] == 0x80 and alone.endswith(b"\0\3ann")


# --- brokers that say what they are told to ----------------------------------------------------------------


class Says:
    """Accepts connections, says to each what it is told to, and keeps what it hears of the last."""

    def __init__(self, says=None, pause_s: float = 0.0, stays: bool = True, answers=None) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.heard, self.says, self.pause_s, self.stays = b"", says or [[connack(5)]], pause_s, stays
        self.answers, self.over = answers or {}, 0  # sessions that are
        threading.Thread(target=self.run, daemon=True).start()

    def __enter__(self) -> "Says":
        return self

    def __exit__(self, *_: object) -> None:
        self.listening.close()

    def run(self) -> None:
        for says in iter(lambda: self.says[self.over : self.over + 1], []):
            with contextlib.suppress(OSError):
                sock, _ = self.listening.accept()
                self.heard = b""
                with sock:
                    self.session(sock, *says)
            self.over += 1

    def session(self, sock: socket.socket, says: list[bytes]) -> None:
        sock.settimeout(0.05)
        with contextlib.suppress(OSError):  # whoever was to hear it may be gone
            for data in says:
                sock.sendall(data)
                time.sleep(self.pause_s)
        until = time.monotonic() + PATIENCE_S
        while self.stays and time.monotonic() < until:
            try:
                said = sock.recv(1000)
            except TimeoutError:
                continue
            if not said:  # it has hung up
                return
            self.heard += said
            for question, answer in self.answers.items():
                sock.sendall(answer * said.count(question))


def connected(broker, *filters: str, largest: int = packets.LONGEST, window: int = 1000, **settings) -> Connection:
    at = BrokerSettings("127.0.0.1", broker.port, "me", status_topic="", **settings)
    return Connection(at, list(filters), largest, window)


def turns(connection: Connection, seconds: float, done: Callable[[], object] = lambda: False) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not done():
        connection.turn(0.02)


def test_packets_that_come_byte_by_byte_are_whole_in_the_end():
    message = publish(5, b"in/a", b"x" * 200, 7)
    connection = connected(Says([[bytes([b]) for b in connack(5) + GRANTED + message + puback(2)]]), "in/+")
    assert connection.publish("out/a", b"") == 2
    turns(connection, PATIENCE_S, lambda: connection.confirmed)
    assert connection.inbox.take(9) == [Heard("in/a", b"x" * 200, 7)]
    assert list(connection.confirmed) == [2] and connection.denied == []
    connection.drop()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("piece", [700, 65_536])
def test_of_a_message_too_long_the_beginning_is_kept_and_what_follows_is_heard(piece, version):
    """One of 256 MB took three times that, and after the end of the process it came again, and again."""
    size = 30 * piece
    data = suback(version, 1, 1) + publish(version, b"in/a", b"x" * size, 7) + publish(version, b"in/b", b"{}", 8)
    pieces = [connack(version), *[data[i : i + piece] for i in range(0, len(data), piece)]]
    connection = connected(Says([[b"\x20\x02\0\1"], pieces] if version == 4 else [pieces]), "in/+", largest=600)
    most, until = 0, time.monotonic() + PATIENCE_S
    while len(connection.inbox) < 2 and time.monotonic() < until:
        connection.turn(0.02)
        most = max(most, len(connection._read))
    long, short = connection.inbox.take(9)
    assert (long.topic, long.mid, long.payload.lstrip(b"\0")) == ("in/a", 7, b"x" * (600 - 8 - (version == 5)))
    assert (short.topic, short.mid, short.payload) == ("in/b", 8, b"{}") and most <= 600 + AT_ONCE_BYTES
    connection.drop()


def test_only_a_message_may_be_longer_than_any():
    broker = Says([[connack(5), bytes((0x90, 0xFF, 0xFF, 0x7F)) + bytes(900)]])
    with pytest.raises(BrokerLost, match="longer than any"):
        turns(connected(broker, largest=600), PATIENCE_S)


@pytest.mark.parametrize(("code", "denied"), [(0, []), (1, []), (0x80, ["in/+"]), (0x87, ["in/+"])])
def test_a_subscription_that_is_not_granted_is_told(code, denied):
    connection = connected(Says([[connack(5), suback(5, 1, code)]]), "in/+")
    assert connection.denied == denied
    connection.drop()


def test_who_says_goodbye_waits_until_that_is_heard_and_no_longer(monkeypatch):
    monkeypatch.setattr("veilstream.gateway.broker.GOODBYE_S", PATIENCE_S)
    broker = Says([[connack(5), puback(1), puback(2)]], pause_s=0.4)
    settings = BrokerSettings("127.0.0.1", broker.port, "me", status_topic="st")
    connection, start = Connection(settings, []), time.monotonic()
    connection.close()
    assert 0.5 < time.monotonic() - start < PATIENCE_S
    wait_until(lambda: broker.heard.endswith(BYE))
    assert broker.heard.endswith(publish(5, b"st", b"offline", 2, 0x33) + BYE)


@pytest.mark.parametrize(
    ("says", "line"),
    [
        ([connack(4, 5)], "refused the connection: Not authorized"),
        ([connack(4, 4)], "refused the connection: Bad user name or password"),
        ([connack(4, 77)], "refused the connection: Unspecified error"),
        ([connack(5, 0x87)], "refused the connection: Not authorized"),
        ([connack(5, 0, b"\x24\0")], "QoS 0 only"),
        ([b"HTTP/1.1 400 Bad Request\r\n" + bytes(200)], "does not speak MQTT"),
        ([b"\x30\xff\xff\xff\xff\xff"], "does not speak MQTT"),
        ([connack(5), publish(5, b"a", b"", 1, 0x34)], "does not speak MQTT"),  # QoS 2, which nobody asked for
        ([connack(5), b"\x30\x03\x00\x09a"], "does not speak MQTT"),  # a topic longer than its packet
        ([connack(5), b"\x40\x01\x00"], "does not speak MQTT"),
        ([suback(5, 1, 1)], "does not speak MQTT"),  # to what nobody asked
        ([connack(5), puback(1, 0x55)], "does not speak MQTT"),  # a reason that there is not
        ([connack(5), packet(0xE0, b"\x8b")], "ended the connection: Server shutting down"),
    ],
)
def test_a_broker_that_refuses_or_garbles_is_one_line(says, line):
    with pytest.raises(BrokerLost, match=line):
        connected(Says([says]), "in/+", timeout_s=PATIENCE_S)


@given(
    data=st.binary(max_size=200), largest=st.sampled_from([10, packets.LONGEST]), codec=st.sampled_from([FIVE, THREE])
)
def test_whatever_bytes_come_either_make_packets_or_are_no_mqtt(data, largest, codec):
    with Silence() as connection:
        connection._codec, connection._largest, connection._read = codec, largest, bytearray(data)
        try:
            connection._take()
        except BrokerLost:
            return
        left = connection._read
        assert len(left) <= len(data)
        found = packets.span(left)
        assert not left or found is None or found[1] > len(left)


class Silence:
    """A connection that was made, and nothing more is heard of."""

    def __enter__(self) -> Connection:
        ours, self.theirs = socket.socketpair()
        connection = Connection.__new__(Connection)
        with contextlib.ExitStack() as stack:
            stack.enter_context(pytest.MonkeyPatch.context()).setattr(
                "veilstream.gateway.broker._connected", lambda settings: (ours.setblocking(False), ours)[1]
            )
            self.theirs.sendall(connack(5))
            Connection.__init__(connection, BrokerSettings(status_topic=""), [])
        self.connection = connection
        return connection

    def __exit__(self, *_: object) -> None:
        self.connection.drop()
        self.theirs.close()


def test_a_broker_that_says_nothing_is_asked_and_then_given_up():
    broker = Says()
    connection = connected(broker, keepalive_s=1)
    with pytest.raises(BrokerLost, match="keepalive"):
        turns(connection, PATIENCE_S)
    assert broker.heard.endswith(PING)
    connection.drop()


def test_a_broker_that_answers_pings_is_kept():
    broker = Says(answers={PING: b"\xd0\0"})
    connection = connected(broker, keepalive_s=30)
    connection._keepalive_s = 0.2
    turns(connection, PATIENCE_S, lambda: broker.heard.count(PING) == 3)
    assert broker.heard.count(PING) == 3
    connection.drop()


def test_the_broker_decides_how_often_it_is_asked():
    broker = Says([[connack(5, 0, b"\x13\0\1")]])  # server keep alive: 1 s
    connection = connected(broker, keepalive_s=3600)
    turns(connection, PATIENCE_S, lambda: PING in broker.heard)
    assert PING in broker.heard
    connection.drop()


def test_a_connection_that_ends_is_lost():
    with pytest.raises(BrokerLost, match="lost"):
        turns(connected(Says(stays=False)), PATIENCE_S)


# --- answers -----------------------------------------------------------------------------------------------


def test_an_answer_that_does_not_come_ends_the_connection_and_one_that_waits_in_the_socket_does_not():
    """It waited for ever, for all streams, and said that it was online."""
    connection = connected(Says(), timeout_s=0.3)
    connection.publish("out/a", b"")
    start = time.monotonic()
    with pytest.raises(Unanswered, match=r"not acknowledged a message for 0\.3 s"):
        turns(connection, PATIENCE_S)
    assert 0.3 <= time.monotonic() - start < PATIENCE_S
    connection.drop()
    with FakeBroker() as broker:  # frozen for longer than that, with the answer there when it wakes
        slow = connected(broker, timeout_s=0.3)
        mid = slow.publish("out/a", b"{}")
        slow.turn(0)
        time.sleep(0.5)
        slow.turn(0)
        assert list(slow.confirmed) == [mid]
        slow.drop()


def test_messages_beyond_the_receive_maximum_wait_for_answers():
    class Seven(Session):
        welcome_properties = b"\x21\0\7"

        def published(self, topic: str, body: bytes, mid: int) -> None:
            waiting.append(mid)

        def idle(self) -> None:  # no more comes
            while waiting:
                self.answer(waiting.pop(0))

    waiting: list[int] = []
    with FakeBroker(Seven) as broker:
        connection = connected(broker, window=1000)
        mids = [connection.publish("out/a", b"%d" % i) for i in range(70)]
        turns(connection, PATIENCE_S, lambda: len(connection.confirmed) == 70)
        assert list(connection.confirmed) == mids and broker.most_unanswered == 7
        connection.drop()


def test_after_a_break_one_message_goes_first_and_every_answer_doubles_the_window():
    with Says() as broker:
        connection = connected(broker, window=1)
        for _ in range(40):
            connection.publish("out/a", b"")
        flying = []
        while connection._flying:
            flying.append(len(connection._flying))
            for mid in list(connection._flying):
                connection._answer(mid, mqtt5.PubAckReasonCode.SUCCESS)
                break
        assert flying[:5] == [1, 2, 4, 8, 16] and len(connection.confirmed) == 40
        connection.drop()


def test_ids_that_wait_for_an_answer_are_not_given_again_and_when_there_are_no_more_it_ends():
    with Says() as broker:
        connection = connected(broker)
        first = connection.publish("out/a", b"")
        for _ in range(65_534):
            mid = connection._next_mid()
            assert mid != first
        assert connection._next_mid() != first
        connection._flying.update(dict.fromkeys(range(1, 65_535), 0.0))
        with pytest.raises(BrokerLost, match="ids"):
            connection.publish("out/a", b"")
        connection.drop()


def test_every_reason_counts():
    codes = {0: None, 0x10: None, 0x80: "Unspecified error", 0x87: "Not authorized", 0x97: "Quota exceeded"}
    with Says([[connack(5), *(puback(i + 1, code) for i, code in enumerate(codes))]], pause_s=0.02) as broker:
        connection = connected(broker)
        mids = [connection.publish("out/a", b"") for _ in codes]
        turns(connection, PATIENCE_S, lambda: len(connection.confirmed) + len(connection.refused) == len(codes))
        assert list(connection.confirmed) == mids[:2]
        assert list(connection.refused) == list(zip(mids[2:], list(codes.values())[2:], strict=True))
        connection.drop()


def test_readings_are_acknowledged_in_the_order_in_which_they_came():
    lines = b"".join(publish(5, b"in/%d" % (i % 2), b"", 10 + i) for i in range(4))
    broker = Says([[connack(5), suback(5, 1, 1), lines]])
    connection = connected(broker, "in/+")
    turns(connection, PATIENCE_S, lambda: len(connection.inbox) == 4)
    heard = connection.inbox.take(4)
    for m in reversed(heard):
        connection.ack(m)
    turns(connection, PATIENCE_S, lambda: broker.heard.count(b"\x40\2\0") == 4)
    assert broker.heard.endswith(b"".join(puback(10 + i) for i in range(4)))
    connection.drop()


# --- the inbox ---------------------------------------------------------------------------------------------


def test_topics_take_turns_and_each_keeps_its_order():
    inbox = Inbox()
    for i, topic in enumerate("aaaaabbc"):
        inbox.put(Heard(topic, b"%d" % i, 0))
    taken = inbox.take(5) + inbox.take(9)
    assert "".join(m.topic for m in taken) == "abcabaaa" and len(inbox) == 0
    for topic in "abc":
        assert [m.payload for m in taken if m.topic == topic] == sorted(m.payload for m in taken if m.topic == topic)


@given(
    said=st.lists(st.tuples(st.sampled_from("aaaaaaaabcd"), st.integers(0, 1), st.integers(0, 900)), max_size=300),
    room=st.integers(1_000, 20_000),
)
def test_of_qos_0_no_more_waits_than_there_is_room_for_and_of_qos_1_all(said, room):
    inbox = Inbox(room)
    for number, (topic, mid, size) in enumerate(said):
        inbox.put(Heard(topic, bytes(size), mid, number=number))
    n, dropped = len(inbox), inbox.dropped
    assert n + dropped == len(said) and inbox.owed == sum(mid for _, mid, _ in said)
    found = inbox.take(1000)
    assert len(found) == n and inbox.owed == 0 and inbox._size == 0 and len(inbox) == 0
    size = sum(OVERHEAD + len(m.payload) for m in found if not m.mid)
    assert size <= 3 * room // 2 + OVERHEAD + 900
    for topic in "abcd":
        numbers = [m.number for m in found if m.topic == topic]
        assert numbers == sorted(numbers)


def test_a_device_that_floods_loses_its_own_messages():
    inbox = Inbox(100 * OVERHEAD)
    for i in range(10_000):
        inbox.put(Heard("loud", b"", 0))
        if i % 1000 == 999:
            inbox.put(Heard("quiet", b"", 0))
    assert sum(m.topic == "quiet" for m in inbox.take(20)) == 10 and inbox.dropped == 9_900
