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
_LOSS, _FELT, _OVER = struct.Struct("<qqqdd"), struct.Struct("<dd"), struct.Struct("<6d")  # its parts, in turn
_FELT_AT = _LOSS.size + _OVER.size


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
        kept = _NEW if kept is None else kept
        z, at, unit, n, bits = _LOSS.unpack_from(kept)
        m, off = _FELT.unpack_from(kept, _FELT_AT)
        over = kept[_LOSS.size : _FELT_AT], kept[_FELT_AT + _FELT.size :]  # weeks or runs that are over
        filled, week, following, phased = self._filled, self._week, self._following, len(self._tables) > 1
        table = self._tables[0]
        for symbol, now, distance in zip(x, step, far, strict=True):
            missing = now - at - 1
            known = z != BLIND and missing <= filled
            of = int(now // week) if week is not None else unit if known else now
            if of != unit:
                over = _closed(n, bits, over[0]), _closed(m, off, over[1])
                unit, n, bits, m, off = of, 0.0, 0.0, 0.0, 0.0
            if distance == distance:
                m += 1.0
                off += distance
            if symbol == BLIND:
                continue
            if known:
                for k in range(missing):
                    to = self._next(z, self._symbols[z])
                    bits += self._bits(at + k, z, to)
                    z = to
                to = symbol if following is None else int(following.item(z, symbol))
                if phased:
                    table = self._tables[self._phase(now - 1)]
                bits -= log2(table.item(z, to) or LEAST)
                n += missing + 1
            else:
                to = self._first[symbol]
            z, at = to, now
        return b"".join((_LOSS.pack(z, at, unit, n, bits), over[0], _FELT.pack(m, off), over[1]))

    def _next(self, z: int, symbol: int) -> int:
        return symbol if self._following is None else int(self._following.item(z, symbol))

    def _bits(self, step: int, z: int, to: int) -> float:
        table = self._tables[0] if len(self._tables) == 1 else self._tables[self._phase(step)]
        return -log2(table.item(z, to) or LEAST)


def _closed(n: float, s: float, over: bytes) -> bytes:
    """The sums of weeks or runs, with one more that is over."""
    return _OVER.pack(*Sums(n, s, *_OVER.unpack(over)).closed()[2:])


_NEW = Watched().pack()
