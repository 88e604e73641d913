"""A limit kept by feedback: rungs along the trade-off curve, and public moves between them.

At a boundary, every N steps, the gateway looks at the private excess S, the sum so far of

    min(felt distance, dmax) - limit,      kept above -B, so that thrift in spring is no licence for autumn,

and moves from rung i to floor(i/2) if S > 0, to i + 1 otherwise (rung 0 is the most accurate; the top one stays). The
move is public; the excess is not. A gap that passes several boundaries makes one move.

**For every sequence of readings and draws, S <= (floor(log2(R-1)) + 1) N (dmax - limit) + U**, where U adds up what
rung 0 itself exceeds the limit by: nothing, if no reading is farther from what rung 0 shows than the limit.

Proof. Take the last boundary with S <= 0 (or the start). In the N steps after it S rises by at most N (dmax - limit).
At every later boundary S > 0, so the rung is halved there: from R-1 it takes floor(log2(R-1)) + 1 halvings to reach 0,
and each but the last is followed by at most N more steps at a rung above 0, each adding at most dmax - limit. From then
on only rung 0 adds to S.                                                                                          QED

So the mean felt distance of n steps is at most limit + that / n. It is attained: the worst at every step above rung 0.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilstream.core.information import Array, Index
from veilstream.errors import InputError


@dataclass(frozen=True)
class Feedback:
    """The rule of the moves: public numbers, all of them."""

    every: int  # N: steps between boundaries
    limit: float  # on the mean
    most: float  # dmax: a distance counts as at most this
    debt: float  # B

    def __post_init__(self) -> None:
        if isinstance(self.every, bool) or int(self.every) != self.every or self.every < 1:
            raise InputError(f"a ladder needs a whole number of steps between boundaries, found {self.every}")
        if not 0 < self.limit < self.most < np.inf or not 0 <= self.debt < np.inf:
            raise InputError("a ladder needs 0 < limit < largest distance, and a debt >= 0")

    def passed(self, last: Index, step: Index) -> NDArray[np.bool_]:
        """Whether a boundary lies between the last release and this step."""
        return np.asarray(np.floor_divide(step, self.every) > np.floor_divide(last, self.every))

    def counted(self, excess: Array, far: Array) -> Array:
        """S after one more felt distance."""
        return np.maximum(excess + np.minimum(far, self.most) - self.limit, -self.debt)

    def moved(self, rung: Index, excess: Array, rungs: int) -> Index:
        return np.where(excess > 0, rung // 2, np.minimum(rung + 1, rungs - 1))

    def overshoot(self, rungs: int) -> float:
        """The most that S can reach, U apart."""
        return int(rungs - 1).bit_length() * self.every * (self.most - self.limit)


@dataclass(eq=False)
class Account:
    """The private side of the rule, for n streams."""

    rule: Feedback
    excess: Array  # n
    last: Index  # n: the public step of the last release; that of the first one before it

    def count(self, far: Array, step: Index) -> None:
        """The felt distances of the first streams at these steps; NaN where nothing was read or shown: no distance."""
        n = len(far)
        self.excess[:n] = np.where(np.isnan(far), self.excess[:n], self.rule.counted(self.excess[:n], far))
        self.last[:n] = step
