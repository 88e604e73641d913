"""Fewer readings: the truth of every k-th step, held until the next (down-sampling, rounding in time)."""

import numpy as np

from veilstream.audit.mechanisms.mechanism import ANY, Emulation, Made
from veilstream.control.controller import Controller, schedule
from veilstream.data.utility import Utility
from veilstream.errors import InputError


def held(fresh: np.ndarray, steps: int) -> Controller:
    """A fresh release by this channel of states, repeated for the steps that follow it."""
    n, Y = fresh.shape
    again = np.broadcast_to(np.eye(Y)[:, None], (Y, n, Y))
    anew = Controller.of_table(np.broadcast_to(fresh, (Y, n, Y)), 1)
    return anew if steps == 1 else schedule([anew, Controller.of_table(again, 1)], [1, steps - 1])


def whole(name: str, steps: float) -> int:
    if steps != int(steps):
        raise InputError(f"mechanism {name}: steps must be a whole number, found {steps:g}")
    return int(steps)


def make(utility: Utility, steps: float) -> Made:
    nearest = np.eye(utility.distortion.shape[1])[utility.distortion.argmin(1)]
    return Made([held(nearest[utility.chain.symbols], whole("hold", steps))], utility.distortion)


MECHANISM = Emulation(
    "hold",
    "shows the truth at every k-th step and holds it in between",
    "half-hourly meters read hourly or less often; trackers that report every few minutes",
    ANY,
    make,
    "the steps that a reading is held for",
    (4.0,),
    "",
    whole=True,
)
