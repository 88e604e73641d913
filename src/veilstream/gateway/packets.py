"""MQTT 3.1.1 as bytes, as much of it as a client with QoS 0 and 1 needs.

A packet is a byte of kind and flags, the length of the rest (7 bits a byte, lowest first), and the rest. Many are taken
from one read, and many are written at once: a gateway spends its time elsewhere.
"""

from typing import NamedTuple

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK = 0x10, 0x20, 0x30, 0x40, 0x82, 0x90
PING, PONG, DISCONNECT = b"\xc0\0", 0xD0, b"\xe0\0"
LONGEST_TEXT, LONGEST = 0xFFFF, 0xFFFFFFF  # bytes of a topic, of a packet
NUMBERS = 5  # bytes in a message beside topic and payload, and one more
REFUSED = {  # by a CONNACK
    1: "Unsupported protocol version",
    2: "Client identifier not valid",
    3: "Server unavailable",
    4: "Bad user name or password",
    5: "Not authorized",
}
FAILED = 0x80  # from here on: a subscription that was not granted
_RETAIN, _WITH_WILL, _CLEAN, _WITH_PASSWORD, _WITH_USER = 1, 0x04, 0x02, 0x40, 0x80
_WILL_QOS1_RETAINED = 0x28


class Garbled(ValueError):
    """What came is no MQTT."""


class Heard(NamedTuple):
    """A message from the broker; whoever looks at its topic finds out whether that is text."""

    name: bytes
    payload: bytes
    qos: int
    mid: int  # 0 without QoS
    retain: bool

    @property
    def topic(self) -> str:
        return self.name.decode()


def span(data: bytes | bytearray, start: int = 0) -> tuple[int, int] | None:
    """Where the rest of the packet at `start` begins and ends, all there or not; None if that is not said yet."""
    length = shift = 0
    for at in range(start + 1, min(start + 5, len(data))):
        digit = data[at]
        length |= (digit & 0x7F) << shift
        if digit < 0x80:
            return at + 1, at + 1 + length
        shift += 7
    if shift == 28:
        raise Garbled("a length without an end")
    return None


def split(data: bytes | bytearray, start: int = 0) -> tuple[int, int] | None:
    """Where the rest of the packet at `start` begins and ends; None if it is not all there."""
    found = span(data, start)
    return found if found is not None and found[1] <= len(data) else None


def heard(kind: int, data: bytes | bytearray, start: int, end: int) -> Heard:
    """The PUBLISH of that first byte, whose rest lies there."""
    qos, at = kind >> 1 & 3, start + 2 + (data[start] << 8 | data[start + 1] if end - start > 1 else LONGEST)
    body = at + 2 if qos else at
    if qos > 1 or body > end:
        raise Garbled("a message that cannot be one")
    mid = data[at] << 8 | data[at + 1] if qos else 0
    return Heard(bytes(data[start + 2 : at]), bytes(data[body:end]), qos, mid, bool(kind & _RETAIN))


def number(data: bytes | bytearray, start: int, end: int) -> int:
    """The id that a PUBACK or a SUBACK begins with."""
    if end - start < 2:
        raise Garbled("an acknowledgement of nothing")
    return data[start] << 8 | data[start + 1]


def packet(kind: int, rest: bytes) -> bytes:
    if len(rest) < 0x80:
        return bytes((kind, len(rest))) + rest
    if len(rest) > LONGEST:
        raise ValueError("a message longer than MQTT can carry")
    length, left = bytearray(), len(rest)
    while left >= 0x80:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((kind, *length, left)) + rest


def publish(topic: bytes, payload: bytes, mid: int, retain: bool = False) -> bytes:
    """QoS 1. Raises ValueError for what is no topic to publish to."""
    if not topic or b"+" in topic or b"#" in topic:
        raise ValueError("no topic to publish to")
    return packet(PUBLISH | 2 | retain, text(topic) + bytes((mid >> 8, mid & 0xFF)) + payload)


def puback(mid: int) -> bytes:
    return bytes((PUBACK, 2, mid >> 8, mid & 0xFF))


def subscribe(filters: list[str], mid: int) -> bytes:
    """QoS 1 at most."""
    return packet(SUBSCRIBE, mid.to_bytes(2) + b"".join(text(f.encode()) + b"\1" for f in filters))


def connect(
    client_id: str, keepalive_s: int, user: str | None, password: str | None, will: tuple[bytes, bytes] | None
) -> bytes:
    """Without a client id the session ends with the connection. will: topic and message, QoS 1, retained."""
    flags, parts = 0 if client_id else _CLEAN, [text(client_id.encode())]
    if will is not None:
        flags |= _WITH_WILL | _WILL_QOS1_RETAINED
        parts += map(text, will)
    for value, flag in ((user, _WITH_USER), (password, _WITH_PASSWORD)):
        if value is not None and user is not None:
            flags |= flag
            parts.append(text(value.encode()))
    return packet(CONNECT, text(b"MQTT") + bytes((4, flags)) + keepalive_s.to_bytes(2) + b"".join(parts))


def text(value: bytes) -> bytes:
    if len(value) > LONGEST_TEXT:
        raise ValueError("a text longer than MQTT can carry")
    return len(value).to_bytes(2) + value
