"""The two versions of MQTT as bytes: 5 by the library `mqtt5`, and 3.1.1 for brokers that know no other.

What a packet is, `mqtt5` says; 3.1.1 is the same packets without their properties and reasons, written and read here.
`read` gives the packet that some bytes begin with and its length; IndexError: not all of it is there; ValueError: no
MQTT.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import mqtt5
from mqtt5 import ConnAckReasonCode, QoS, SubAckReasonCode

CONNACK, PUBLISH, PUBACK, SUBACK, PONG = 0x20, 0x30, 0x40, 0x90, 0xD0
LONGEST_TEXT, LONGEST = 0xFFFF, 0xFFFFFFF  # bytes of a topic, of a packet
NUMBERS = 11  # bytes of a PUBLISH without properties beside topic and payload, at most, and one more
FAILED = 0x80  # reasons from here on are refusals
_WITH_WILL, _CLEAN, _WITH_PASSWORD, _WITH_USER, _WILL_QOS1_RETAINED = 0x04, 0x02, 0x40, 0x80, 0x28
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
    if kind & 0xF0 == PUBLISH:
        qos = kind >> 1 & 3
        topic, mid, after = head(data, start, end, qos)
        if topic is None:
            raise ValueError("a topic that is no text")
        of = mid if qos else None
        return mqtt5.PublishPacket(
            topic, bytes(data[after:end]), qos=QoS(qos), packet_id=of, retain=bool(kind & 1)
        ), end
    if kind == CONNACK and end - start == 2:
        code = data[start + 1]
        reason = _WELCOMES[code] if code < len(_WELCOMES) else ConnAckReasonCode.UNSPECIFIED_ERROR
        return mqtt5.ConnAckPacket(session_present=bool(data[start]), reason_code=reason), end
    if kind == PONG:
        return mqtt5.PingRespPacket(), end
    if kind not in (PUBACK, SUBACK) or end - start < 2:
        raise ValueError("a packet that no broker sends")
    mid = data[start] << 8 | data[start + 1]
    if kind == PUBACK:
        return mqtt5.PubAckPacket(mid), end
    codes = [SubAckReasonCode.UNSPECIFIED_ERROR if c >= FAILED else SubAckReasonCode(c) for c in data[start + 2 : end]]
    return mqtt5.SubAckPacket(mid, codes), end


def _write_3(packet: Any) -> bytes:
    match packet:
        case mqtt5.PublishPacket():  # QoS 1; another topic than one to publish to was refused when it was made
            return _packet(PUBLISH | 2 | packet.retain, _text(packet.topic) + _mid(packet) + packet.payload)
        case mqtt5.SubscribePacket():
            filters = b"".join(_text(f.pattern) + bytes([int(f.max_qos)]) for f in packet.topic_filters)
            return _packet(0x82, _mid(packet) + filters)
        case mqtt5.ConnectPacket():
            return _connect(packet)
        case mqtt5.DisconnectPacket():
            return b"\xe0\0"
        case _:  # PUBACK without a reason, PINGREQ: as in 5
            return bytes(packet.write())


def _connect(packet: mqtt5.ConnectPacket) -> bytes:
    flags, parts = _CLEAN * packet.clean_start, [_text(packet.client_id)]
    if packet.will is not None:
        flags |= _WITH_WILL | _WILL_QOS1_RETAINED
        parts += [_text(packet.will.topic), _text(packet.will.payload or b"")]
    for value, flag in ((packet.username, _WITH_USER), (packet.password, _WITH_PASSWORD)):
        if value is not None:
            flags |= flag
            parts.append(_text(value))
    return _packet(0x10, _text("MQTT") + bytes((4, flags)) + packet.keep_alive.to_bytes(2) + b"".join(parts))


def _packet(kind: int, rest: bytes) -> bytes:
    if len(rest) > LONGEST:
        raise ValueError("a message longer than MQTT can carry")
    length, left = bytearray(), len(rest)
    while left >= 0x80:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((kind, *length, left)) + rest


def _mid(packet: Any) -> bytes:
    return int(packet.packet_id).to_bytes(2)


def _text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return len(data).to_bytes(2) + data


FIVE = Codec("5", _read_5, lambda packet: packet.write())
THREE = Codec("3.1.1", _read_3, _write_3)
