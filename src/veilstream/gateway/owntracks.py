"""OwnTracks messages as they go out, and how far off a released place is said to be.

    acc(y) = sum_z m(z,y) d(z,y) / sum_z m(z,y)      in metres, rounded up to two digits, at least 1

m(z,y) is how often the policy shows y for z in the long run, d the problem's distance: a function of the file and the
released place, never of a reading. Receivers drop a position whose acc is missing or 0.
"""

import math
from datetime import datetime

import msgspec
import numpy as np

from veilstream.core.policy import Policy
from veilstream.core.problem import Problem
from veilstream.core.steady import mean_joint
from veilstream.gateway.wire import Release, encode

METRES = {"km": 1000.0, "m": 1.0}
DIGITS = 2


class OwnTracks(msgspec.Struct):
    """The allow-list: an OwnTracks app reads these, and none of them comes from the input but through the channel."""

    lat: float | None
    lon: float | None
    acc: int
    tst: int
    tid: str
    type: str = msgspec.field(name="_type", default="location")


def as_owntracks(release: Release, metres: int) -> bytes:
    """The OwnTracks message for a release on a map; tid is the end of the stream's name, as the app's own default."""
    t = release.t if isinstance(release.t, int | float) else datetime.fromisoformat(release.t).timestamp()
    return encode(OwnTracks(release.lat, release.lon, metres, int(t), release.stream[-2:]))


def metres_off(policy: Policy, problem: Problem, unit: str) -> list[int]:
    """acc of every release. A policy whose long run cannot be computed is judged by its first step."""
    m = mean_joint(problem.chain, policy)
    if m is None:
        m = problem.chain.stationary[:, None] * np.asarray(policy.channel(policy.start()))
    shown = m.sum(0)
    d = problem.distortion
    far = np.where(shown > 0, (m * d).sum(0) / np.where(shown > 0, shown, 1), problem.chain.stationary @ d)
    return [round_up(x * METRES.get(unit, 1.0)) for x in far.tolist()]


def round_up(metres: float) -> int:
    """To a whole number with at most DIGITS digits before its zeros, at least 1."""
    least = max(1, math.ceil(metres - 1e-9))
    unit = int(10 ** max(0, len(str(least)) - DIGITS))
    return -(-least // unit) * unit
