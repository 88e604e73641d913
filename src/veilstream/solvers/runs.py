"""A batch of causal Blahut-Arimoto runs, driven until each has settled.

A few plain sweeps first, then sweeps that fit the output models to law and kernel before these move on (`sweep.fitted`:
nearly all of the way is in them, and a model that is half fitted holds up the rest); a look at convergence every so
often. A run leaves the batch when it has settled, or when another run at the same weight has made it redundant.
"""

from typing import NamedTuple

import numpy as np

from veilstream.model.information import Array, Index
from veilstream.solvers.solution import Progress
from veilstream.solvers.sweep import Sweep, Tables

ANNEAL_SWEEPS = 30
SETTLE = 60  # sweeps before the first Newton step


class Pace(NamedTuple):
    """How far the output models are fitted in a sweep, and when to look."""

    first: int  # plain sweeps before they are fitted: there is no value yet
    rounds: int  # in which they are, at every sweep
    begin: int  # sweeps before the first look
    warm: int  # the same from where another weight had settled
    look: int  # sweeps between looks at convergence


USUAL = Pace(first=10, rounds=2, begin=30, warm=5, look=10)
LARGE = Pace(first=5, rounds=7, begin=8, warm=4, look=4)  # where products are dear and the chain is not that sticky
NOTHING = 1e-5  # bits: differences of this size times the tolerances count as none
SLACK = 500  # tolerances: Blahut's bound on what a better output model could still gain, far more than it does
CALM = 3e-3  # relative change between two looks under which a value says something about the run
ALIKE = 0.02  # total variation under which two output models are the same


class Runs:
    """`tables` change in place. After `converge`: the `history` of values, which runs are `done`, which to keep."""

    def __init__(
        self,
        sweep: Sweep,
        tables: Tables,
        anneal: Array,
        group: Index,
        tolerance: float,
        pace: Pace = USUAL,
        warm: bool = False,
    ) -> None:
        n = len(tables)
        self.pace, self.warm = pace, warm
        self.sweep, self.tables, self.anneal, self.group, self.tolerance = sweep, tables, anneal, group, tolerance
        self.history: list[tuple[int, Array]] = []  # sweep, value of every run
        self.done, self.calm, self.kept = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
        self.value, self.slack = np.full((2, n), np.inf)
        self.live = np.arange(n)
        self.now = tables.take(self.live)  # of the live runs

    def converge(self, max_sweeps: int, progress: Progress | None = None) -> None:
        annealed = ANNEAL_SWEEPS if (self.anneal != 1).any() else 0
        pace, next_settle = self.pace, SETTLE
        next_look = pace.warm if self.warm else max(pace.begin, annealed)
        for k in range(max_sweeps):
            if not self.live.size:
                return
            stretch = self.anneal[self.live] ** (1 - k / annealed) if k < annealed else 1.0
            rounds = 0 if k < pace.first and not self.warm else pace.rounds
            self.now, now, left = self.sweep(self.now, self.live, stretch, rounds)
            if k == next_look - pace.look:
                self.value[self.live] = now
            if k >= next_settle:
                self.sweep.settle(self.now, self.live)
                next_settle *= 2
            if k >= next_look:
                next_look = k + pace.look
                self.look(k, now, left)
                if progress:
                    share = 1 - len(self.live) / len(self.tables)
                    memory = "memory" if self.sweep.window is None else f"window {self.sweep.window}"
                    progress(share, f"{memory}, sweep {k}: {len(self.live)} runs live")
        if self.live.size:
            self.tables.put(self.live, self.now)

    def look(self, k: int, now: Array, left: Array) -> None:
        """Who has settled, who is redundant; the others go on."""
        live = self.live
        scale = np.abs(now) + NOTHING
        change = np.abs(now - self.value[live])
        settled = (change < self.tolerance * scale) & (left < SLACK * self.tolerance * scale)
        self.value[live], self.slack[live], self.calm[live] = now, left, change < CALM * scale
        self.history.append((k, self.value.copy()))
        self.tables.put(live, self.now)
        self.done[live[settled]] = True
        self.kept[self.redundant()] = False
        going = np.flatnonzero(~settled & self.kept[live])
        self.live, self.now = live[going], self.now.take(going)

    def redundant(self) -> Index:
        """Runs not worth going on with: another at the same weight has the same output model, or is so much better
        that by Blahut's bound they cannot catch up."""
        drop, value = [], self.value
        for g in np.unique(self.group):
            runs = np.flatnonzero((self.group == g) & self.kept)
            best = runs[value[runs].argmin()]
            seen = self.sweep.seen(self.tables.mu[best : best + 1])[0]
            for i in runs[runs != best]:
                apart = (seen * np.abs(self.tables.r[i] - self.tables.r[best])).sum() / 2
                behind = value[i] - self.slack[i] > value[best] and self.calm[i] and self.calm[best]
                if apart < ALIKE or behind:
                    drop.append(i)
        return np.array(drop, dtype=int)
