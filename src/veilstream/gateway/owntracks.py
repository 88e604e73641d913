"""OwnTracks: messages as they go out, how far off a released place is said to be, and how encrypted ones are opened.

    acc(y) = sum_z m(z,y) d(z,y) / sum_z m(z,y)      in metres, rounded up to two digits, at least 1

m(z,y) is how often the policy shows y for z in the long run, d the problem's distance, or that between the places where
the problem counts something else: a function of the file and the released place, never of a reading. Receivers drop a
position whose acc is missing or 0.
"""

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import msgspec
import numpy as np

from veilstream.control.policy import Policy
from veilstream.control.stationary import long_run
from veilstream.errors import InputError
from veilstream.gateway.wire import Opens, Release, encode
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array

Seals = Callable[[bytes], bytes]
DIGITS = 2
KEY_BYTES = 32  # of an app's secret; a shorter one is filled up with zeros
BASE = "owntracks"  # what its topics begin with


class OwnTracks(msgspec.Struct):
    """The allow-list: an OwnTracks app reads these, and none of them comes from the input but through the channel."""

    lat: float | None
    lon: float | None
    acc: int
    tst: int
    tid: str
    type: str = msgspec.field(name="_type", default="location")


class Sent(OwnTracks):
    """For whoever gets it without a topic: Home Assistant, Traccar and the recorder read the name here."""

    topic: str = ""


class Encrypted(msgspec.Struct):
    data: str
    type: str = msgspec.field(name="_type", default="encrypted")


def user_and_device(stream: str) -> tuple[str, str]:
    """ann/phone is Ann's phone; a name without a device is its own."""
    user, _, device = stream.partition("/")
    return user, device.replace("/", "-") or user


def phone_of(headers: Mapping[str, str]) -> tuple[str | None, str]:
    """The stream that a phone in HTTP mode is, USER/DEVICE or USER, and its password. X-Limit-U before Basic's user."""
    kind, _, given = headers.get("Authorization", "").partition(" ")
    try:
        text = base64.b64decode(given, validate=True).decode() if kind.lower() == "basic" else ""
    except ValueError:
        text = ""
    known, _, password = text.partition(":")
    user, device = headers.get("X-Limit-U") or known, headers.get("X-Limit-D")
    return f"{user}/{device}" if user and device else user or None, password


def as_owntracks(release: Release, metres: int, topic: bool = False) -> bytes:
    """The OwnTracks message for a release on a map; tid is the end of the stream's name, as the app's own default."""
    t = release.t if isinstance(release.t, int | float) else datetime.fromisoformat(release.t).timestamp()
    known = release.lat, release.lon, metres, int(t), release.stream[-2:]
    if topic:
        return encode(Sent(*known, topic="/".join((BASE, *user_and_device(release.stream)))))
    return encode(OwnTracks(*known))


def _key(secret: str, where: str) -> bytes:
    key = secret.encode()
    if not 0 < len(key) <= KEY_BYTES:
        raise InputError(f"{where} must hold one secret a line, of 1 to {KEY_BYTES} bytes, as in the app")
    return key.ljust(KEY_BYTES, b"\0")


def sealer(secret: str) -> Seals:
    """Encrypts messages as the apps do (NaCl secretbox, nonce first)."""
    from nacl.secret import SecretBox

    box = SecretBox(_key(secret, "`owntracks_key_out`"))
    return lambda message: encode(Encrypted(base64.b64encode(bytes(box.encrypt(message))).decode()))


def opener(secrets: Sequence[str]) -> Opens:
    """Opens the `data` of encrypted messages with the first of these that fits."""
    from nacl.exceptions import CryptoError
    from nacl.secret import SecretBox

    boxes = [SecretBox(_key(secret, "`owntracks_key`")) for secret in secrets or [""]]

    def opens(data: str) -> bytes | None:
        try:
            sealed = base64.b64decode(data, validate=True)
        except ValueError:
            return None
        for box in boxes:
            try:
                return bytes(box.decrypt(sealed))
            except (CryptoError, ValueError, TypeError):  # too short for a nonce, or of another key
                continue
        return None

    return opens


def metres_off(policy: Policy, chain: MarkovChain, d: Array) -> list[int]:
    """acc of every release; d in metres. A policy whose long run cannot be computed is judged by its first step."""
    found = long_run(chain, policy)
    m = chain.stationary[:, None] * np.asarray(policy.channel(policy.start())) if found is None else found.joint
    shown = m.sum(0)
    far = np.where(shown > 0, (m * d).sum(0) / np.where(shown > 0, shown, 1), chain.stationary @ d)
    return [round_up(x) for x in far.tolist()]


def round_up(metres: float) -> int:
    """To a whole number with at most DIGITS digits before its zeros, at least 1."""
    least = max(1, math.ceil(metres - 1e-9))
    unit = int(10 ** max(0, len(str(least)) - DIGITS))
    return -(-least // unit) * unit
