"""A batch of causal Blahut-Arimoto runs, driven until each has settled.

A few plain sweeps first, then sweeps that fit the output models to law and kernel before these move on (`sweep.fitted`:
nearly all of the way is in them, and a model that is half fitted holds up the rest); a look at convergence every so
often. A run leaves the batch when it has settled.
"""

import numpy as np

from veilstream.model.information import Array
from veilstream.solvers.solution import Progress
from veilstream.solvers.sweep import Sweep, Tables

PLAIN, ROUNDS = 10, 2  # sweeps before the output models are fitted: there is no value yet; rounds of fitting in one
BEGIN, WARM, LOOK = 30, 5, 10  # sweeps before the first look, afresh and from another weight; between looks
NOTHING = 1e-5  # bits: differences of this size times the tolerances count as none
SLACK = 500  # tolerances: Blahut's bound on what a better output model could still gain, far more than it does


class Runs:
    """`tables` change in place. After `converge`: the `history` of values, which runs are `done`."""

    def __init__(self, sweep: Sweep, tables: Tables, tolerance: float, warm: bool = False) -> None:
        """warm: the tables had settled at another weight."""
        self.sweep, self.tables, self.tolerance, self.warm = sweep, tables, tolerance, warm
        self.history: list[tuple[int, Array]] = []  # sweep, value of every run
        self.done = np.zeros(len(tables), dtype=bool)
        self.value = np.full(len(tables), np.inf)
        self.live = np.arange(len(tables))
        self.now = tables.take(self.live)  # of the live runs

    def converge(self, max_sweeps: int, progress: Progress | None = None) -> None:
        begin = WARM if self.warm else BEGIN
        for k in range(max_sweeps):
            if not self.live.size:
                return
            self.now, now, slack = self.sweep(self.now, self.live, ROUNDS if self.warm or k >= PLAIN else 0)
            if k == begin - LOOK:
                self.value[self.live] = now
            if k >= begin and (k - begin) % LOOK == 0:
                self.look(k, now, slack)
                if progress:
                    share = 1 - len(self.live) / len(self.tables)
                    memory = "memory" if self.sweep.window is None else f"window {self.sweep.window}"
                    progress(share, f"{memory}, sweep {k}: {len(self.live)} runs live")
        if self.live.size:
            self.tables.put(self.live, self.now)

    def look(self, k: int, now: Array, slack: Array) -> None:
        """Who has settled; the others go on."""
        close = self.tolerance * (np.abs(now) + NOTHING)
        settled = (np.abs(now - self.value[self.live]) < close) & (slack < SLACK * close)
        self.value[self.live] = now
        self.history.append((k, self.value.copy()))
        self.tables.put(self.live, self.now)
        self.done[self.live[settled]] = True
        self.live, self.now = self.live[~settled], self.now.take(np.flatnonzero(~settled))
