"""The two versions of MQTT as bytes: 5 by the library `mqtt5`, and 3.1.1 for brokers that know no other.

What a packet is, `mqtt5` says; 3.1.1 is the same packets without properties, an empty list of which is one byte in 5.
`read` gives the packet that some bytes begin with and its length; IndexError: not all of it is there; ValueError: no
MQTT.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import mqtt5
from mqtt5 import ConnAckReasonCode

CONNACK, PUBLISH, PUBACK, SUBACK, PONG = 0x20, 0x30, 0x40, 0x90, 0xD0
LONGEST_TEXT, LONGEST = 0xFFFF, 0xFFFFFFF  # bytes of a topic, of a packet
NUMBERS = 11  # bytes of a PUBLISH without properties beside topic and payload, at most, and one more
FAILED = 0x80  # reasons from here on are refusals
_CONNECT, _SUBSCRIBE, _VERSION_AT, _PROPERTIES_AT, _WITH_WILL = 0x10, 0x80, 6, 10, 0x04  # of 5
_WELCOMES = [  # by the return code of 3.1.1
    ConnAckReasonCode.SUCCESS,
    ConnAckReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ConnAckReasonCode.CLIENT_ID_NOT_VALID,
    ConnAckReasonCode.SERVER_UNAVAILABLE,
    ConnAckReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ConnAckReasonCode.NOT_AUTHORIZED,
]
Buffer = bytes | bytearray | memoryview


class Codec(NamedTuple):
    version: str
    read: Callable[[memoryview], tuple[Any, int]]
    write: Callable[[Any], bytes]


def failed(reason: Any) -> bool:
    return int(reason) >= FAILED  # no IntEnum, whatever its stubs say


def said(reason: Any) -> str:
    """A reason code as a person says it."""
    return str(reason.name).replace("_", " ").capitalize()


def span(data: Buffer, start: int = 0) -> tuple[int, int] | None:
    """Where the rest of the packet at `start` begins and ends, all there or not; None if that is not said yet."""
    length = shift = 0
    for at in range(start + 1, min(start + 5, len(data))):
        digit = data[at]
        length |= (digit & 0x7F) << shift
        if digit < 0x80:
            return at + 1, at + 1 + length
        shift += 7
    if shift == 28:
        raise ValueError("a length without an end")
    return None


def head(data: Buffer, start: int, end: int, qos: int) -> tuple[str | None, int, int]:
    """Of a PUBLISH of either version whose rest lies there: the topic (None: no text), the id, and where they end."""
    at = start + 2 + (data[start] << 8 | data[start + 1] if end - start > 1 else LONGEST)
    after = at + 2 if qos else at
    if qos > 1 or after > end:
        raise ValueError("a message that cannot be one")
    try:
        topic = bytes(data[start + 2 : at]).decode()
    except UnicodeDecodeError:
        topic = None
    return topic, data[at] << 8 | data[at + 1] if qos else 0, after


# --- 5 -----------------------------------------------------------------------------------------------------


def _read_5(data: memoryview) -> tuple[Any, int]:
    try:
        return mqtt5.read(data)
    except (IndexError, ValueError):
        raise
    except BaseException as error:  # mqtt5 0.8 panics at text that is no UTF-8, and a panic is no Exception
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError("text that is no text") from None


# --- 3.1.1 -------------------------------------------------------------------------------------------------


def _read_3(data: memoryview) -> tuple[Any, int]:
    found = span(data)
    if found is None or found[1] > len(data):
        raise IndexError
    kind, (start, end) = data[0], found
    body = bytes(data[start:end])
    if kind == CONNACK and len(body) == 2:
        reason = _WELCOMES[body[1]] if body[1] < len(_WELCOMES) else ConnAckReasonCode.UNSPECIFIED_ERROR
        return mqtt5.ConnAckPacket(session_present=bool(body[0]), reason_code=reason), end
    if kind & 0xF0 == PUBLISH:
        topic, _, after = head(data, start, end, kind >> 1 & 3)
        if topic is None:
            raise ValueError("a topic that is no text")
        body = body[: after - start] + b"\0" + body[after - start :]
    elif kind == SUBACK:
        body = body[:2] + b"\0" + body[2:]
    elif kind not in (PUBACK, PONG):
        raise ValueError("a packet that no broker sends")
    try:
        return _read_5(memoryview(_packet(kind, body)))[0], end
    except IndexError:  # it is all there
        raise ValueError("a packet that ends too early") from None


def _write_3(packet: Any) -> bytes:
    data: bytes = packet.write()
    start, end = span(data) or (0, 0)
    body, kind = data[start:], data[0] & 0xF0
    if kind == _CONNECT:
        after = _PROPERTIES_AT + 1 + body[_PROPERTIES_AT]
        me = after + 2 + (body[after] << 8 | body[after + 1])  # behind the client's id are the will's properties
        will = bool(body[_VERSION_AT + 1] & _WITH_WILL)
        first = body[:_VERSION_AT] + b"\4" + body[_VERSION_AT + 1 : _PROPERTIES_AT]
        return _packet(kind, first + body[after:me] + body[me + will :])
    if kind not in (PUBLISH, _SUBSCRIBE):
        return data
    at = 2 if kind == _SUBSCRIBE else head(data, start, end, 1)[2] - start
    return _packet(data[0], body[:at] + body[at + 1 :])


def _packet(kind: int, rest: bytes) -> bytes:
    length, left = bytearray(), len(rest)
    while left >= 0x80:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((kind, *length, left)) + rest


FIVE = Codec("5", _read_5, lambda packet: packet.write())
THREE = Codec("3.1.1", _read_3, _write_3)
