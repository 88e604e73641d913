"""Precision bits of Meshtastic: the first bits of each coordinate, then the middle of what they leave open.

PositionModule of its firmware: latitude_i and longitude_i are 10^-7 degrees in 32 bits, i & (2^32 - 2^(32-bits)), and
2^(31-bits) is added.
"""

import numpy as np

from veilstream.audit.mechanisms.mechanism import MAP, Emulation, Made, places_of, showing
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.information import Array

UNIT = 1e-7  # degrees
WORD = 32


def masked(degrees: Array, bits: int) -> Array:
    """The coordinate that is sent."""
    lost = WORD - bits
    whole = np.round(degrees / UNIT).astype(np.int64)
    return np.asarray(((whole >> lost << lost) + (1 << lost >> 1)) * UNIT)


def make(utility: Utility, bits: float) -> Made:
    if bits != int(bits) or not 1 <= bits < WORD:
        raise InputError(f"mechanism meshtastic: bits must be a whole number from 1 to {WORD - 1}, found {bits:g}")
    sent = masked(places_of(utility).coordinates, int(bits))
    return showing(utility, np.clip(sent, [-90, -180], [90, 180])[None])


MECHANISM = Emulation(
    "meshtastic",
    "keeps the first bits of latitude and longitude",
    "Meshtastic firmware, PositionModule: position_precision",
    MAP,
    make,
    "the bits of each coordinate",
    (13.0, 16.0),
    "",
    whole=True,
)
