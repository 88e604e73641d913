"""A limit kept by feedback: rungs along the trade-off curve, and public moves between them.

At a boundary, every N steps, the gateway looks at the private excess S, the sum so far of

    min(felt distance, dmax) - limit,

and at how much it has grown since the last boundary, dS. Afterwards S is raised to -B where it is lower, so that thrift
in spring is no licence for autumn. Rung i (0 is the most accurate) is felt at f_i on the record;
W is what the limit allows in a usual period: limit x readings in one. The distance to aim at is then

    f* = f_i - limit ( part dS/W + S/W / back )      (a part of the last error, and the excess paid back by and by)

and the gateway moves

    to rung 0                                                                      if S > theta W,
    not at all                                                                     if dS = 0, as if nothing was read,
    to i + 1                                                                       if S <= -B,
    to that of floor(i / 2), i - 1, i, i + 1 which is felt nearest to f*           otherwise.

The move is public; the excess is not. A gap that passes several boundaries makes one move.

**For every sequence of readings and draws, S <= M + U at every step, M = theta W + N (dmax - limit)**, where U adds up
what rung 0 itself exceeds the limit by: nothing, if no reading is farther from what rung 0 shows than the limit.

Proof. After the move at a boundary S <= theta W, or the rung is 0. A period adds N (dmax - limit) at most, at its end
and at every step in it; on rung 0 only U is added, and S falls below theta W before the rung leaves 0.            QED

So the mean felt distance of n steps is at most limit + (M + U) / n, and M is attained: no excess but theta W, above
rung 0, and then the worst at every step of a period. The proof does not ask how a rung is chosen while S <= theta W.
Because the curve is convex a rung that swings costs bits, and the best there is in hindsight is one rung for all time:
hence a part of the error only, and an excess that is paid back over many periods. `part`, `back`, `theta` and B were
chosen on records, and parts of records, that no figure of ours is about (`tools/choose_feedback.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilstream.errors import InputError
from veilstream.model.information import Array, Index

PART, BACK, THETA = 0.4, 8.0, 2.0
DEBT = 4.0  # B, of what the limit allows in a usual period
BOTTOM, HALF, DOWN, STAY, UP = WAYS = range(5)
PERIODS = 52  # that the promise is put into words for
MOVE_BITS = float(np.log2(len(WAYS)))  # what a move can tell


@dataclass(frozen=True)
class Feedback:
    """The rule of the moves: public numbers, all of them."""

    every: int  # N: steps between boundaries
    limit: float  # on the mean
    most: float  # dmax: a distance counts as at most this
    felt: Sequence[float]  # f_i, rising
    usual: float | None = None  # readings in a usual period; None: one a step
    debt: float = DEBT  # B / W
    part: float = PART
    back: float = BACK
    theta: float = THETA

    def __post_init__(self) -> None:
        if isinstance(self.every, bool) or int(self.every) != self.every or self.every < 1:
            raise InputError(f"a ladder needs a whole number of steps between boundaries, found {self.every}")
        if not 0 < self.limit < self.most < np.inf:
            raise InputError("a ladder needs 0 < limit < largest distance")
        usual = float(self.every if self.usual is None else self.usual)
        object.__setattr__(self, "usual", usual)
        object.__setattr__(self, "felt", tuple(float(f) for f in self.felt))
        f = np.array(self.felt)
        if not len(f) or not np.isfinite(f).all() or f[0] < 0 or (np.diff(f) < 0).any():
            raise InputError("a ladder needs the mean error of every rung, rising")
        numbers = (usual, self.back, self.debt, self.part, self.theta)
        if not np.isfinite(numbers).all() or min(numbers) < 0 or not 0 < usual <= self.every or self.back == 0:
            raise InputError("a ladder needs readings in a period, a part, a debt and a theta that are not negative")

    @property
    def rungs(self) -> int:
        return len(self.felt)

    @property
    def allowed(self) -> float:
        """W: what the limit allows in a usual period."""
        assert self.usual is not None
        return self.usual * self.limit

    @property
    def lowest(self) -> float:
        """-B"""
        return -self.debt * self.allowed

    def passed(self, last: Index, step: Index) -> NDArray[np.bool_]:
        """Whether a boundary lies between the last release and this step."""
        return np.asarray(np.floor_divide(step, self.every) > np.floor_divide(last, self.every))

    def counted(self, excess: Array, far: Array) -> Array:
        """S after one more felt distance."""
        return np.asarray(excess + np.minimum(far, self.most) - self.limit)

    def way(self, excess: Array, grown: Array, rung: Index) -> Index:
        """BOTTOM, HALF, DOWN, STAY or UP."""
        felt = np.array(self.felt)
        aim = felt[rung] - self.limit / self.allowed * (self.part * grown + excess / self.back)
        apart = [np.abs(felt[self.moved(rung, np.full_like(rung, way))] - aim) for way in WAYS[1:]]
        cases = [excess > self.theta * self.allowed, grown == 0, excess <= self.lowest]
        return np.select(cases, [BOTTOM, STAY, UP], 1 + np.argmin(apart, axis=0))

    def moved(self, rung: Index, way: Index) -> Index:
        near = [0 * rung, rung // 2, np.maximum(rung - 1, 0), rung, np.minimum(rung + 1, self.rungs - 1)]
        return np.asarray(np.choose(way, near))

    @property
    def overshoot(self) -> float:
        """M: the most that S can reach, U apart."""
        return self.theta * self.allowed + self.every * (self.most - self.limit)

    def words(self, unit: str = "", each: str = "") -> tuple[str, str]:
        """What happens, and what is promised: a sentence each. each: a period in words, as in week or 6 h."""
        n, over, far = PERIODS * self.every, self.overshoot, f" {unit}" if unit else ""
        period = f"{each} ({self.every:,} steps)" if each else f"{self.every:,} steps"
        long = f"{PERIODS} {each}s" if each.isalpha() else f"{n:,} steps"
        return (
            f"after every {period} it looks at the error of past releases, and takes one of {self.rungs} rungs, from "
            "accurate (0) to coarse; the rung is public, the error is not",
            f"whatever the person does, over {long} the error is at most {self.limit + over / n:.4g}{far} on average "
            f"({self.limit:.4g} + {over:.4g} / steps), that of one release counting as at most {self.most:.4g}{far}; "
            "not promised: a single release, a shorter time, and readings whose error exceeds the limit even on rung 0",
        )


@dataclass(eq=False)
class Excess:
    """The private side of the rule, for n streams."""

    rule: Feedback
    excess: Array  # n
    mark: Array  # n: the excess at the last boundary
    last: Index  # n: the public step of the last release; that of the first one before it

    @classmethod
    def new(cls, rule: Feedback, step: Index) -> "Excess":
        """Of streams that begin at these steps."""
        return cls(rule, np.zeros(len(step)), np.zeros(len(step)), step.copy())

    def __getitem__(self, which: slice) -> "Excess":
        """Some streams: a view, changed with the whole."""
        return Excess(self.rule, self.excess[which], self.mark[which], self.last[which])

    def way(self, due: NDArray[np.bool_], rung: Index) -> Index:
        """Where the streams that passed a boundary move; they start a new period."""
        way = self.rule.way(self.excess, self.excess - self.mark, rung)
        self.excess[due] = self.mark[due] = np.maximum(self.excess[due], self.rule.lowest)
        return np.where(due, way, STAY)

    def count(self, far: Array, step: Index) -> None:
        """The felt distances at these steps; NaN where nothing was read or shown: no distance."""
        self.excess[:] = np.where(np.isnan(far), self.excess, self.rule.counted(self.excess, far))
        self.last[:] = step
