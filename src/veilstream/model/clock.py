"""A public clock: from the public number of a step to a phase of the day, the same for everybody.

    phase = floor(n seconds since local midnight / 86400)        n phases a day; by week the weekend has n of its own

Local time knows summer time, so a day may have 23 or 25 hours: phases are then left out or come again. The standard
library and numpy only.
"""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, tzinfo
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from veilstream.errors import InputError
from veilstream.model.information import Array, Index
from veilstream.units import printable

KINDS = ("day", "week", "steps")
DAY_S, QUARTER_S = 86400, 900  # clocks are put forward and back at quarters of an hour
FEW = 8  # times that are looked up one by one
THURSDAY, WEEKEND = 3, 5  # the first of January 1970, and the first day of a weekend, counted from Monday
MOST_PHASES, MOST_STEPS = 1440, 10080  # of a clock, and in one round of it: minutes in a day and in a week
EARLIEST_S, LATEST_S = -60_000_000_000, 250_000_000_000  # what a calendar can be asked for


@dataclass(frozen=True)
class Clock:
    """What says the phase: the hour of the day; the same, apart for weekends; or the number of the step modulo n.

    zone: name of a time zone, as in Europe/London; None: the times of the record are local already.
    """

    kind: str
    n: int  # phases a day; of kind "steps": in all
    period_s: float | None = None
    epoch_s: float = 0.0
    zone: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"a clock is one of {', '.join(KINDS)}, found {str(self.kind)[:20]!r}")
        if isinstance(self.n, bool) or not isinstance(self.n, int) or not 1 <= self.n <= MOST_PHASES:
            raise InputError(f"a clock has 1 to {MOST_PHASES} phases a day, found {str(self.n)[:20]}")
        if self.kind == "steps":
            return
        if not isinstance(self.epoch_s, int | float) or not np.isfinite(self.epoch_s):
            raise InputError("a clock needs an epoch that is a number of seconds")
        steps = steps_a_day(self.period_s)
        if steps is None or steps % self.n or steps * self._days > MOST_STEPS:
            raise InputError(
                f"a clock of {self.n} phases a day needs a period that divides each of them, found "
                f"{str(self.period_s)[:20]} s"
            )
        zone_of(self.zone)

    @property
    def phases(self) -> int:
        return 2 * self.n if self.kind == "week" else self.n

    @property
    def _days(self) -> int:
        return 7 if self.kind == "week" else 1

    @cached_property
    def around(self) -> Index:
        """The phases of the steps of one whole round, where the clock is not put forward or back."""
        if self.kind == "steps":
            return np.arange(self.n)
        steps = steps_a_day(self.period_s)
        assert steps is not None
        return self._phase_of(np.linspace(0.0, self._days * DAY_S, self._days * steps, endpoint=False))

    def spread(self, n: int) -> Index:
        """The first steps of n streams, all around: whatever they are run for, together they see every phase alike."""
        return np.arange(n) * len(self.around) // n

    def phase(self, step: ArrayLike) -> Index:
        """The phase of each step, by its public number."""
        step = np.asarray(step, np.int64)
        if self.kind == "steps":
            return step % self.n
        assert self.period_s is not None
        if step.size > 1 and (step == step.flat[0]).all():  # many streams at one step
            return np.full(step.shape, self.phase(step.flat[0]))
        t = self.epoch_s + step * self.period_s
        return self._phase_of(t + self._offset(t))

    def _phase_of(self, local_s: Array) -> Index:
        day, second = np.divmod(np.asarray(local_s, float), DAY_S)
        phase = (second * self.n // DAY_S).astype(np.int64)
        if self.kind == "week":
            phase = phase + self.n * ((day + THURSDAY) % 7 >= WEEKEND)
        return np.asarray(phase, np.int64)

    def _offset(self, t: Array) -> Array:
        """Seconds that local time is ahead of t; asked once a day, at every quarter where that day changes it."""
        if self.zone is None:
            return np.zeros(np.shape(t))
        flat = np.clip(np.ravel(t), EARLIEST_S, LATEST_S)
        if len(flat) <= FEW:
            found = np.array([offset_s(self.zone, int(s // QUARTER_S) * QUARTER_S) for s in flat.tolist()], float)
            return found.reshape(np.shape(t))
        days, at = np.unique(flat // DAY_S, return_inverse=True)
        ends = np.array([[offset_s(self.zone, int(d + k) * DAY_S) for k in (0, 1)] for d in days])
        found = ends[at, 0].astype(float)
        for i in np.flatnonzero((ends[:, 0] != ends[:, 1])[at]):
            found[i] = offset_s(self.zone, int(flat[i] // QUARTER_S) * QUARTER_S)
        return np.asarray(found.reshape(np.shape(t)))

    def export(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        where = "" if self.zone is None else f", {self.zone}"
        if self.kind == "steps":
            return f"{self.n} phases in turn"
        weekend = ", weekends apart" if self.kind == "week" else ""
        return f"{self.n} phases a day{weekend}{where}"


def steps_a_day(period_s: float | None) -> int | None:
    """How many steps a day has; None where that is no whole number."""
    if not isinstance(period_s, int | float) or not 0 < period_s <= DAY_S or DAY_S % period_s:
        return None
    return int(DAY_S // period_s)


@lru_cache(maxsize=64)
def zone_of(name: str | None) -> tzinfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    if name is None:
        return UTC
    try:
        return ZoneInfo(str(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        shown = printable(str(name)[:40])
        raise InputError(f"unknown time zone {shown!r}; give one like Europe/London or UTC") from None


@lru_cache(maxsize=65536)
def offset_s(zone: str, t_s: int) -> int:
    """Seconds that local time is ahead of UTC at this moment."""
    offset = datetime.fromtimestamp(t_s, zone_of(zone)).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())
