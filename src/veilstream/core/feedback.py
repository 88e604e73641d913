"""A limit kept by feedback: rungs along the trade-off curve, and public moves between them.

At a boundary, every N steps, the gateway looks at the private excess S, the sum so far of

    min(felt distance, dmax) - limit,      kept above -B, so that thrift in spring is no licence for autumn,

and at how much it has grown since the last boundary, dS. Every rung i (0 is the most accurate) is for an excess of up
to theta_i, which is 0 for the rung a stream starts from and falls from rung to rung: by N limit / 4 below it, and by
N limit / 2 above it, but not below -B. The gateway moves

    far down, to floor(i / 2)    if dS > 0 and S + 2 dS > theta_i-2       (it grows, and is or soon will be too large
    down, to i - 1               if dS > 0 and S + 2 dS > theta_i          by far, or somewhat)
    up, to i + 1                 if dS <= 0 and S <= theta_i+1            (there is room for the next)
    not at all                   otherwise

The move is public; the excess is not. A gap that passes several boundaries makes one move.

**For every sequence of readings and draws, S <= M + U at every step, M = max over i of theta_i-2 + k_i N (dmax -
limit)**, where k_i is the number of moves far down from rung i to rung 0, and U adds up what rung 0 itself exceeds the
limit by: nothing, if no reading is farther from what rung 0 shows than the limit.

Proof. Let A = N (dmax - limit), the most that a period can add, at its end and at every step in it. After the move at
any boundary S + k_i A <= M + U: so it is at the start, where S = 0 = theta_i, and it stays so. If S has not grown and
the rung stays, or goes up to j where S <= theta_j, that is plain. If it has grown and the rung goes far down, k_i falls
by one and S rose by A at most; on rung 0 only U is added. If it has grown and the rung does not go far down, S is at
most theta_i-2, and k_i does not rise. Inside a period S rises by A at most, and k_i >= 1 unless i = 0.            QED

So the mean felt distance of n steps is at most limit + (M + U) / n, and k N (dmax - limit) of M is attained, from the
top: the worst at every step above rung 0. Because the curve is convex, a rung that swings costs bits; the best there is
in hindsight is one rung for all time. So thrift is remembered for some periods, the rung follows the excess itself and
not its sign, and it goes far down only where it is two rungs too high (`veil bench feedback` has what that costs).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilstream.core.information import Array, Index
from veilstream.errors import InputError

AHEAD = 2  # periods that the excess is thought on
BELOW, ABOVE = 1 / 4, 1 / 2  # of a period's limit: excess between rungs, below and above the one a stream starts from
FAR_OFF = 2  # rungs too high, from which on a move goes far down
FAR, DOWN, STAY, UP = WAYS = -2, -1, 0, 1
PERIODS = 52  # that the promise is put into words for
MOVE_BITS = float(np.log2(len(WAYS)))  # what a move can tell


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

    def room(self, height: Index) -> Array:
        """theta of the rung so many above the one that a stream starts from."""
        apart = np.where(height > 0, ABOVE, BELOW) * self.every * self.limit
        return np.asarray(np.maximum(-apart * height, -self.debt))

    def way(self, excess: Array, grown: Array, height: Index) -> Index:
        """FAR, DOWN, STAY or UP."""
        soon, grows = excess + AHEAD * grown, grown > 0
        far, down = grows & (soon > self.room(height - FAR_OFF)), grows & (soon > self.room(height))
        up = ~grows & (excess <= self.room(height + 1))
        return np.select([far, down, up], [FAR, DOWN, UP], STAY)

    def moved(self, rung: Index, way: Index, rungs: int) -> Index:
        return np.where(way == FAR, rung // 2, np.clip(rung + way, 0, rungs - 1))

    def overshoot(self, rungs: int, first: int) -> float:
        """M: the most that S can reach, U apart."""
        i = np.arange(rungs)
        k = np.where(i > 0, np.floor(np.log2(np.maximum(i, 1))) + 1, 0)
        return float((self.room(i - first - FAR_OFF) + k * self.every * (self.most - self.limit)).max())

    def words(self, rungs: int, first: int, unit: str = "") -> str:
        """What is promised, in a sentence."""
        n, unit, over = PERIODS * self.every, f" {unit}" if unit else "", self.overshoot(rungs, first)
        return (
            f"{rungs} rungs, a public move every {self.every:,} steps; whatever the person does, the mean over {n:,} "
            f"steps is at most {self.limit + over / n:.4g}{unit} ({self.limit:.4g} + {over:.4g} / steps), where a "
            f"distance counts as at most {self.most:.4g}{unit}"
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

    def way(self, due: NDArray[np.bool_], height: Index) -> Index:
        """Where the streams that passed a boundary move, so far above their first rung; they start a new period."""
        way = self.rule.way(self.excess, self.excess - self.mark, height)
        self.mark[due] = self.excess[due]
        return np.where(due, way, STAY)

    def count(self, far: Array, step: Index) -> None:
        """The felt distances at these steps; NaN where nothing was read or shown: no distance."""
        self.excess[:] = np.where(np.isnan(far), self.excess, self.rule.counted(self.excess, far))
        self.last[:] = step
