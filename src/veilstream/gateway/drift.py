"""How a stream's readings go with its model: sums that are kept with the stream, for its owner alone. PRIVATE.

    loss   -log2 P(x_{t+1} | x_t) under the chain, at its phase where it has a clock
    felt   the distance from reading to release

each with what an interval over weeks needs (`control.drift.Sums`); over runs of steps where steps have no period. Steps
without a reading are filled with the last known state where the model's own record was, else they begin a new run.
Whether a week is over is public; every reading is counted alike.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from math import log2
from typing import NamedTuple

import numpy as np

from veilstream.control.drift import Sums, closed
from veilstream.data.spec import Recording
from veilstream.model.chain import MarkovChain
from veilstream.model.histories import BLIND, TrueStates

WEEK_S = 7 * 86_400
MOST_FILLED, LAST_STEP = 1024, 2**53  # steps: of a chain with a clock every one is looked at
LEAST = 2.0**-64  # what a chain calls impossible counts as 64 bits
NO_YES = 0.0, 1.0  # by a truth, without a branch
_NOWHERE = -(1 << 62)  # as a step or a week: none yet
_FORMAT = struct.Struct("<qqq16d")


class Watched(NamedTuple):
    """As it is kept of a stream."""

    state: int = BLIND  # after the last reading
    step: int = _NOWHERE  # of the last reading
    unit: int = _NOWHERE  # the week or run under way
    loss: Sums = Sums()
    felt: Sums = Sums()

    @classmethod
    def of(cls, data: bytes | None) -> "Watched":
        if data is None:
            return cls()
        state, step, unit, *sums = _FORMAT.unpack(data)
        return cls(state, step, unit, Sums(*sums[:8]), Sums(*sums[8:]))

    def pack(self) -> bytes:
        return _FORMAT.pack(self.state, self.step, self.unit, *self.loss, *self.felt)


class Watch:
    """The model that the streams of a space are watched against."""

    def __init__(self, chain: MarkovChain, recording: Recording, states: TrueStates) -> None:
        self._tables = [chain.at(phase).transition for phase in range(chain.phases)]
        self._phase = lru_cache(4096)(lambda step: int(chain.phase(step)))
        self._first, self._following = states.first.tolist(), states.following
        longest = (recording.max_gap_s or recording.step_s) * (1 + 1e-9)
        most = MOST_FILLED if len(self._tables) > 1 else LAST_STEP
        self._filled = int(min(longest / recording.step_s, most)) - 1 if recording.holds else 0  # steps, at most
        self._week = None if recording.period_s is None else max(WEEK_S / recording.period_s, 1.0)
        self.unit = "runs" if self._week is None else "weeks"
        if self._filled > 0:
            self._stays(chain)

    def _stays(self, chain: MarkovChain) -> None:
        """The states after 0, 1, ... steps that are filled, until a state follows itself, and the bits of each."""
        every, following = np.arange(len(chain)), self._following
        to = every if following is None else following[every, chain.symbols]
        trail = [every]
        while len(trail) <= chain.order and not np.array_equal(trail[-1], to[trail[-1]]):
            trail.append(to[trail[-1]])
        self._trail = np.array(trail).T  # |Z| x steps
        self._stay = -np.log2(np.maximum([table[every, to] for table in self._tables], LEAST))  # phases x |Z|
        self._so_far = np.cumsum(np.pad(self._stay[0, self._trail], ((0, 0), (1, 0))), 1)  # without a clock

    def follow(self, kept: bytes | None, x: Sequence[int], step: Sequence[int], far: Sequence[float]) -> bytes:
        """Beyond these readings: symbols (BLIND: none could be read), steps, and how far off their releases are felt.

        far: NaN where there is no distance. The same instructions run whatever the symbols and distances are: what
        does not count is taken times 0, or looked up at a place that does not matter, and not left out.
        """
        kept = _NEW if kept is None else kept
        z, at, unit, n, bits, l1, l2, l3, l4, l5, l6, m, off, f1, f2, f3, f4, f5, f6 = _FORMAT.unpack(kept)
        filled, week, following, phased = self._filled, self._week, self._following, len(self._tables) > 1
        table = self._tables[0]
        for symbol, now, distance in zip(x, step, far, strict=True):
            missing = min(now - at - 1, filled + 1)  # since the last one that could be read
            known = (z != BLIND) & (missing <= filled)
            of = int(now // week) if week is not None else (now, unit)[known]
            if week is None or of != unit:  # that a week is over is public, that a run is over is not
                gone = NO_YES[of != unit]
                n, bits, l1, l2, l3, l4, l5, l6 = closed(gone, n, bits, l1, l2, l3, l4, l5, l6)
                m, off, f1, f2, f3, f4, f5, f6 = closed(gone, m, off, f1, f2, f3, f4, f5, f6)
                unit = of
            felt = distance == distance
            m += NO_YES[felt]
            off += (0.0, distance)[felt]
            seen = symbol != BLIND
            counts, last = NO_YES[known & seen], z
            if filled > 0:
                bits += counts * self._filling(z, now, missing)
                last = self._trail.item(z, min(missing, self._trail.shape[1] - 1))
            to = symbol if following is None else (self._first[symbol], following.item(last, symbol))[known]
            if phased:
                table = self._tables[self._phase(now - 1)]
            bits -= counts * log2(max(table.item(last, to), LEAST))
            n += counts * (missing + 1)
            z, at = (z, to)[seen], (at, now)[seen]
        return _FORMAT.pack(z, at, unit, n, bits, l1, l2, l3, l4, l5, l6, m, off, f1, f2, f3, f4, f5, f6)

    def _filling(self, z: int, now: int, missing: int) -> float:
        """Bits of that many steps filled before the one to `now`; by a clock all that could be are looked at."""
        settled = self._trail.shape[1] - 1
        if len(self._stay) == 1:
            k = min(missing, settled)
            return float(self._so_far.item(z, k) + (missing - k) * self._stay.item(0, self._trail.item(z, k)))
        phase = [self._phase(now - 1 - self._filled + k) for k in range(self._filled)]
        kth = np.arange(missing - self._filled, missing)
        bits = self._stay[phase, self._trail[z, np.clip(kth, 0, settled)]]
        return float((bits * (kth >= 0)).sum())


_NEW = Watched().pack()
