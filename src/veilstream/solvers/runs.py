"""A batch of causal Blahut-Arimoto runs, driven until each has settled.

Annealing first, where a start asks for it; then cycles of sweeps and one extrapolation of the output models, which is
taken back where it harmed; a look at convergence every so often. A run leaves the batch when it has settled, or when
another run at the same weight has made it redundant.
"""

import numpy as np

from veilstream.core.information import Array, Index
from veilstream.solvers.solution import Progress
from veilstream.solvers.sweep import Sweeping, Tables, extrapolate

LOOK_EVERY = 50  # sweeps between looks at convergence
ANNEAL_SWEEPS = 100
WARM_SWEEPS = 20  # before the first look, from where another weight had settled
CYCLE = 3, 2  # sweeps of a cycle: before its extrapolation is judged, and those the next is made from
HARM = 1.5  # an extrapolation after which the slack is this many times larger is taken back
HELP = 1.02  # one after which it is less than this many times larger helped
FIRST_CAP, LARGEST_CAP, BACK_OFF = 4.0, 1e3, 4.0  # on the length of an extrapolation, and what harm divides it by
NOTHING = 1e-5  # bits: differences of this size times the tolerances count as none
SLACK = 5e-3  # relative: Blahut's bound on what a better output model could still gain
ALIKE = 0.02  # total variation under which two output models are the same


class Runs:
    """`tables` change in place. After `converge`: the `history` of values, which runs are `done`, which to keep."""

    def __init__(
        self, sweep: Sweeping, tables: Tables, anneal: Array, group: Index, tolerance: float, warm: bool = False
    ) -> None:
        n = len(tables)
        self.first_look = WARM_SWEEPS if warm else ANNEAL_SWEEPS
        self.sweep, self.tables, self.anneal, self.group, self.tolerance = sweep, tables, anneal, group, tolerance
        self.history: list[tuple[int, Array]] = []  # sweep, value of every run
        self.done, self.kept = np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
        self.value, self.slack, self.ceiling = np.full((3, n), np.inf)
        self.cap = np.full(n, FIRST_CAP)  # grows while extrapolation helps, shrinks when it hurts
        self.live = np.arange(n)
        self.now = self.safe = tables.take(self.live)  # of the live runs; `safe`: before the last extrapolation
        self.last = self.value  # values of the live runs before it

    def converge(self, max_sweeps: int, progress: Progress | None = None) -> None:
        annealed = ANNEAL_SWEEPS if (self.anneal != 1).any() else 0
        every, next_look = self.sweep.settle_every, self.first_look
        next_settle = 4 * ANNEAL_SWEEPS if every is None else ANNEAL_SWEEPS - 10  # just before a look
        k = 0
        while self.live.size and k < max_sweeps:
            if k < annealed:
                stretch = self.anneal[self.live] ** (1 - k / annealed)
                self.now = self.sweep(self.now, self.live, stretch)[0]
                k += 1
                continue
            now, left = self.cycle()
            k += sum(CYCLE)
            if k >= next_settle:
                self.sweep.settle(self.now, self.live)
                self.safe = self.now
                next_settle = 2 * next_settle if every is None else k + every
            if k >= next_look:
                next_look = k + LOOK_EVERY
                self.look(k, now, left)
                if progress:
                    share = 1 - len(self.live) / len(self.tables)
                    memory = "memory" if self.sweep.window is None else f"window {self.sweep.window}"
                    progress(share, f"{memory}, sweep {k}: {len(self.live)} runs live")
        if self.live.size:
            self.tables.put(self.live, self.now)

    def cycle(self) -> tuple[Array, Array]:
        """A few sweeps, and the output model thrown ahead; value and slack before that."""
        t, live = self.now, self.live
        for _ in range(CYCLE[0]):
            t, now, left = self.sweep(t, live)
        harmed = (left > HARM * self.slack[live]) & (self.cap[live] > 1)
        if harmed.any():  # back to before the extrapolation
            back = np.flatnonzero(harmed)
            t.put(back, self.safe.take(back))
            now, left = np.where(harmed, self.last, now), np.where(harmed, self.slack[live], left)
            self.ceiling[live] = np.where(harmed, np.maximum(self.cap[live] / BACK_OFF, 1), self.ceiling[live])
        helped = left < HELP * self.slack[live]
        longer, shorter = np.minimum(2 * self.cap[live], LARGEST_CAP), np.maximum(self.cap[live] / BACK_OFF, 1)
        self.cap[live] = np.minimum(np.where(helped, longer, shorter), self.ceiling[live])
        self.slack[live], self.last = left, now
        t1 = self.sweep(t, live)[0]
        self.safe = self.sweep(t1, live)[0]
        self.now = extrapolate(self.sweep, t, t1, self.safe, self.cap[live])
        return now, left

    def look(self, k: int, now: Array, left: Array) -> None:
        """Who has settled, who is redundant; the others go on."""
        live = self.live
        scale = np.abs(now) + NOTHING
        settled = (np.abs(now - self.value[live]) < self.tolerance * scale) & (left < SLACK * scale)
        self.value[live] = now
        self.history.append((k, self.value.copy()))
        self.tables.put(live, self.now)
        self.done[live[settled]] = True
        self.kept[self.redundant()] = False
        going = np.flatnonzero(~settled & self.kept[live])
        self.live, self.now, self.safe = live[going], self.now.take(going), self.safe.take(going)
        self.last = self.last[going]
        self.ceiling[self.live] *= 2

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
                if apart < ALIKE or value[i] - self.slack[i] > value[best]:
                    drop.append(i)
        return np.array(drop, dtype=int)
