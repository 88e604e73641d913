"""MQTT by hand, against the benchmark's client, which writes it in its own way, and against bad brokers."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mosquitto
from gatewaykit import PATIENCE_S, wait_until
from veilstream.gateway import packets
from veilstream.gateway.broker import AT_ONCE_BYTES, BrokerLost, BrokerSettings, Connection

TOPICS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="+#"), min_size=1, max_size=50)
WELCOME, GRANTED = bytes((packets.CONNACK, 2, 0, 0)), bytes((packets.SUBACK, 3, 0, 1, 1))


@given(topic=TOPICS, payload=st.binary(max_size=300), mid=st.integers(1, 65535))
def test_a_message_is_written_as_another_client_writes_it_and_read_back(topic, payload, mid):
    data = packets.publish(topic.encode(), payload, mid)
    assert data == mosquitto.publish(topic, payload, mid - 1)
    start, end = packets.split(data)
    found = packets.heard(data[0], data, start, end)
    assert found == (topic.encode(), payload, 1, mid, False) and found.topic == topic and end == len(data)


@pytest.mark.parametrize("size", [0, 1, 120, 121, 127, 128, 16_379, 16_383, 16_384, 2_097_151, 2_097_152])
def test_lengths_of_every_width_are_found_again_and_what_is_cut_is_not_there(size):
    data = packets.packet(packets.PUBLISH, bytes(size))
    assert packets.split(b"x" + data + b"more", 1) == (len(data) - size + 1, len(data) + 1)
    assert packets.split(data[:-1]) is None and packets.split(data[:1]) is None


def test_what_mqtt_cannot_carry_is_refused_before_it_is_sent():
    for topic in (b"", b"in/+", b"in/#", b"x" * 65_536):
        with pytest.raises(ValueError, match=r"topic|text"):
            packets.publish(topic, b"", 1)


class Broker:
    """Accepts one connection, says what it is told to, and keeps what it hears."""

    def __init__(self, *says: bytes, pause_s: float = 0.0, stays: bool = True, answers=None) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.heard, self.says, self.pause_s, self.stays, self.answers = b"", says, pause_s, stays, answers or {}
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        sock, _ = self.listening.accept()
        with sock:
            sock.settimeout(0.05)
            with contextlib.suppress(OSError):  # whoever was to hear it may be gone
                for data in self.says:
                    sock.sendall(data)
                    time.sleep(self.pause_s)
            until = time.monotonic() + PATIENCE_S
            while self.stays and time.monotonic() < until:
                try:
                    said = sock.recv(1000)
                except TimeoutError:
                    continue
                except OSError:
                    return
                if not said:  # it has hung up
                    return
                self.heard += said
                for question, answer in self.answers.items():
                    sock.sendall(answer * said.count(question))

    def connection(self, *filters: str, largest: int = packets.LONGEST, **settings) -> Connection:
        port = self.listening.getsockname()[1]
        return Connection(BrokerSettings("127.0.0.1", port, "me", status_topic="", **settings), list(filters), largest)


def turns(connection: Connection, seconds: float, done: Callable[[], object] = lambda: False) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not done():
        connection.turn(0.02)


def test_packets_that_come_byte_by_byte_are_whole_in_the_end():
    message = packets.publish(b"in/a", b"x" * 200, 7)
    broker = Broker(*[bytes([b]) for b in WELCOME + GRANTED + message + packets.puback(9)])
    connection = broker.connection("in/+")
    turns(connection, PATIENCE_S, lambda: connection.confirmed)
    assert [(m.topic, m.payload, m.mid) for m in connection.inbox] == [("in/a", b"x" * 200, 7)]
    assert list(connection.confirmed) == [9] and connection.denied == []
    connection.drop()


@pytest.mark.parametrize("piece", [700, 65_536])
def test_of_a_message_too_long_the_beginning_is_kept_and_what_follows_is_heard(piece):
    """One of 256 MB took three times that, and after the end of the process it came again, and again."""
    size = 30 * piece
    data = GRANTED + packets.publish(b"in/a", b"x" * size, 7) + packets.publish(b"in/b", b"{}", 8) + packets.puback(9)
    broker = Broker(WELCOME, *[data[i : i + piece] for i in range(0, len(data), piece)])
    connection, most = broker.connection("in/+", largest=600), 0
    until = time.monotonic() + PATIENCE_S
    while not connection.confirmed and time.monotonic() < until:
        connection.turn(0.02)
        most = max(most, len(connection._read))
    long, short = connection.inbox
    assert (long.topic, long.mid, long.payload) == ("in/a", 7, b"x" * (600 - 8))
    assert (short.topic, short.mid, short.payload) == ("in/b", 8, b"{}") and most <= 600 + AT_ONCE_BYTES
    connection.drop()


def test_only_a_message_may_be_longer_than_any():
    with pytest.raises(BrokerLost, match="longer than any"):
        turns(
            Broker(WELCOME, bytes((packets.SUBACK, 0xFF, 0xFF, 0x7F)) + bytes(900)).connection(largest=600), PATIENCE_S
        )


def test_what_it_says_first_is_a_connect_with_will_user_and_session():
    broker = Broker(WELCOME)
    port = broker.listening.getsockname()[1]
    connection = Connection(
        BrokerSettings("127.0.0.1", port, "me", "ann", "secret", status_topic="st", keepalive_s=30), []
    )
    turns(connection, PATIENCE_S, lambda: broker.heard.endswith(b"online"))
    flags = 0x80 | 0x40 | 0x20 | 0x08 | 0x04  # user, password, will: retained, QoS 1; the session stays
    said = [b"MQTT", bytes((4, flags, 0, 30)), b"me", b"st", b"offline", b"ann", b"secret"]
    rest = b"".join(len(part).to_bytes(2) + part if i != 1 else part for i, part in enumerate(said))
    assert broker.heard.startswith(bytes((0x10, len(rest))) + rest + packets.publish(b"st", b"online", 1, retain=True))
    connection.drop()


def test_a_password_goes_with_a_user_and_a_user_may_go_alone():
    assert packets.connect("", 30, None, "secret", None) == packets.connect("", 30, None, None, None)
    alone = packets.connect("me", 30, "ann", None, None)
    assert alone[9] == 0x80 and alone.endswith(b"\0\3ann")


@pytest.mark.parametrize(("code", "denied"), [(0, []), (1, []), (0x80, ["in/+"])])
def test_a_subscription_that_is_not_granted_is_told(code, denied):
    connection = Broker(WELCOME, bytes((packets.SUBACK, 3, 0, 1, code))).connection("in/+")
    assert connection.denied == denied
    connection.drop()


def test_who_says_goodbye_waits_until_that_is_heard_and_no_longer(monkeypatch):
    monkeypatch.setattr("veilstream.gateway.broker.GOODBYE_S", PATIENCE_S)
    broker = Broker(WELCOME, packets.puback(1), packets.puback(2), pause_s=0.4)
    settings = BrokerSettings("127.0.0.1", broker.listening.getsockname()[1], "me", status_topic="st")
    connection, start = Connection(settings, []), time.monotonic()
    connection.close()
    assert 0.5 < time.monotonic() - start < PATIENCE_S
    wait_until(lambda: broker.heard.endswith(packets.DISCONNECT))
    assert broker.heard.endswith(packets.publish(b"st", b"offline", 2, retain=True) + packets.DISCONNECT)


@pytest.mark.parametrize(
    ("says", "line"),
    [
        (bytes((packets.CONNACK, 2, 0, 5)), "refused the connection: Not authorized"),
        (bytes((packets.CONNACK, 2, 0, 4)), "refused the connection: Bad user name or password"),
        (b"HTTP/1.1 400 Bad Request\r\n" + bytes(200), "does not speak MQTT"),
        (b"\x30\xff\xff\xff\xff\xff", "does not speak MQTT: a length without an end"),
        (WELCOME + b"\x34\x05\x00\x01a\x00\x01", "does not speak MQTT"),  # QoS 2, which nobody asked for
        (WELCOME + b"\x30\x03\x00\x09a", "does not speak MQTT"),  # a topic longer than its packet
        (WELCOME + b"\x40\x01\x00", "does not speak MQTT"),
    ],
)
def test_a_broker_that_refuses_or_garbles_is_one_line(says, line):
    broker = Broker(says)
    with pytest.raises(BrokerLost, match=line):
        broker.connection("in/+", timeout_s=PATIENCE_S)


@given(data=st.binary(max_size=200), largest=st.sampled_from([10, packets.LONGEST]))
def test_whatever_bytes_come_either_make_packets_or_are_no_mqtt(data, largest):
    connection = Connection.__new__(Connection)
    connection.inbox, connection.confirmed, connection.denied = [], [], []
    connection._read, connection._unsent, connection._filters = bytearray(data), bytearray(), ["in/+"]
    connection._mid, connection._pinged = 0, False
    connection._largest, connection._left, connection._begun = largest, 0, None
    try:
        connection._take()
    except BrokerLost:
        return
    assert len(connection._read) <= len(data) and packets.split(connection._read) is None


def test_a_broker_that_says_nothing_is_asked_and_then_given_up():
    broker = Broker(WELCOME)
    connection = broker.connection(keepalive_s=1)
    with pytest.raises(BrokerLost, match="keepalive"):
        turns(connection, PATIENCE_S)
    assert broker.heard.endswith(packets.PING)
    connection.drop()


def test_a_broker_that_answers_pings_is_kept():
    broker = Broker(WELCOME, answers={packets.PING: bytes((packets.PONG, 0))})
    connection = broker.connection(keepalive_s=1)
    turns(connection, PATIENCE_S, lambda: broker.heard.count(packets.PING) == 3)
    assert broker.heard.count(packets.PING) == 3
    connection.drop()


def test_a_connection_that_ends_is_lost():
    broker = Broker(WELCOME, stays=False)
    with pytest.raises(BrokerLost, match="lost"):
        turns(broker.connection(), PATIENCE_S)
