"""How a stream's readings go with its model: sums that are kept with the stream, for its owner alone. PRIVATE.

    loss   -log2 P(x_{t+1} | x_t) under the chain, at its phase where it has a clock
    felt   the distance from reading to release

each with what an interval over weeks needs (`core.drift.Sums`); over runs of steps where steps have no period. Steps
without a reading are filled with the last known state where the model's own record was, else they begin a new run.
Whether a week is over, and how many steps are missing, is public; every reading is counted alike.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from math import log2
from typing import NamedTuple

from veilstream.core.chain import MarkovChain
from veilstream.core.drift import Sums
from veilstream.core.histories import BLIND, TrueStates
from veilstream.data.recording import Recording

WEEK_S = 7 * 86_400
LEAST = 2.0**-64  # what a chain calls impossible counts as 64 bits
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
        self._first, self._following, self._symbols = states.first.tolist(), states.following, chain.symbols.tolist()
        longest = (recording.max_gap_s or recording.step_s) * (1 + 1e-9)
        self._filled = int(longest / recording.step_s) - 1 if recording.holds else 0  # steps, at most
        self._week = None if recording.period_s is None else max(WEEK_S / recording.period_s, 1.0)
        self.unit = "runs" if self._week is None else "weeks"

    def follow(self, kept: bytes | None, x: Sequence[int], step: Sequence[int], far: Sequence[float]) -> bytes:
        """Beyond these readings: symbols (BLIND: none could be read), steps, and how far off their releases are felt.

        far: NaN where there is no distance.
        """
        z, at, unit, n, bits, *loss, m, off, f0, f1, f2, f3, f4, f5 = _FORMAT.unpack(_NEW if kept is None else kept)
        felt = [f0, f1, f2, f3, f4, f5]
        filled, week = self._filled, self._week
        for symbol, now, distance in zip(x, step, far, strict=True):
            missing = now - at - 1
            known = z != BLIND and missing <= filled
            of = int(now // week) if week is not None else unit if known else now
            if of != unit:
                loss, felt = (list(Sums(*sums).closed()[2:]) for sums in ((n, bits, *loss), (m, off, *felt)))
                unit, n, bits, m, off = of, 0.0, 0.0, 0.0, 0.0
            measured = distance == distance
            m += measured
            off += distance if measured else 0.0
            if symbol == BLIND:
                continue
            if known:
                for k in range(missing):
                    to = self._next(z, self._symbols[z])
                    bits += self._bits(at + k, z, to)
                    z = to
                to = self._next(z, symbol)
                bits += self._bits(now - 1, z, to)
                n += missing + 1
            else:
                to = self._first[symbol]
            z, at = to, now
        return _FORMAT.pack(z, at, unit, n, bits, *loss, m, off, *felt)

    def _next(self, z: int, symbol: int) -> int:
        return symbol if self._following is None else int(self._following.item(z, symbol))

    def _bits(self, step: int, z: int, to: int) -> float:
        table = self._tables[0] if len(self._tables) == 1 else self._tables[self._phase(step)]
        return -log2(table.item(z, to) or LEAST)


_NEW = Watched().pack()
