"""How readings become outcomes, whatever the store: which steps are decided, by which reading, and the draws.

Which readings are released is settled first, from steps alone; then the streams are advanced together, one numpy step
per round (several readings of one stream take several rounds). Nothing here is durable: whoever calls commits the
batch, and shows no outcome before that.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from veilstream.core.histories import BLIND
from veilstream.core.release import SecureUniforms, Uniforms
from veilstream.errors import InputError
from veilstream.gateway.outcome import Outcome, Status
from veilstream.gateway.space import Plan, Space, Time, advance
from veilstream.gateway.store import Batch, Stream
from veilstream.gateway.wire import Reading, Refused, decode

AHEAD_OF_CLOCK, AHEAD_OF_LAST = 1, 1_000_000  # default --max-ahead with and without a period
Key = tuple[str, str]  # space, stream
Find = Callable[[Stream, int], "tuple[bytes | None] | None"]  # the logged release of a step, as Store.find


class Settler:
    def __init__(
        self,
        spaces: Mapping[str, Space],
        *,
        max_ahead: int | None = None,
        clock: bool = False,
        uniforms: Uniforms | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        if clock and any(S.grid.period_s is None for S in spaces.values()):
            raise InputError("--clock needs a policy with a period (fit with --period)")
        self.spaces, self.clock, self.now, self.max_ahead = dict(spaces), clock, now, max_ahead
        self._uniforms = uniforms or SecureUniforms()

    def settle(
        self, readings: Sequence[Reading | Refused], stream_of: Callable[[Key], Stream], find: Find, room: int
    ) -> tuple[list[Outcome], Batch]:
        """One outcome per reading, and what must be committed before they hold. At most `room` new streams."""
        outcomes: list[Outcome] = [Outcome(r) if isinstance(r, Refused) else None for r in readings]  # type: ignore[misc]
        queues: dict[Key, list[int]] = {}
        for i, r in enumerate(readings):
            if isinstance(r, Reading):
                queues.setdefault((r.space, r.stream), []).append(i)
        symbols = self._encode(readings, queues)
        batch, n_new = Batch(), 0
        plans: dict[str, list[Plan]] = {name: [] for name in self.spaces}
        repeats: list[tuple[int, int]] = []
        for key, waiting in queues.items():
            s = stream_of(key)
            fresh: dict[int, int] = {}  # step -> which reading decides it
            last, held = s.last_step, False
            for i in waiting:
                r = readings[i]
                assert isinstance(r, Reading)
                if r.step in fresh:
                    repeats.append((i, fresh[r.step]))
                    continue
                done = self._closed(s, r, last, find)
                if done is None and s.id is None and n_new >= room:
                    done = Outcome(Refused.too_many_streams)
                if done is None and self.clock:
                    self._hold(s, r, int(symbols[i]))
                    done = Outcome(Status.waiting)
                    held = True
                if done is not None:
                    outcomes[i] = done
                    continue
                fresh[r.step] = i
                last = r.step
            if fresh or held:
                n_new += s.id is None
                batch.streams.append(s)
                if fresh:
                    steps: list[Time] = [(readings[i].step, readings[i].t) for i in fresh.values()]  # type: ignore[union-attr]
                    plans[key[0]].append(Plan(s, list(fresh.values()), steps))
        for name, plan in plans.items():
            if plan:
                advance(self.spaces[name], plan, symbols, self._uniforms, outcomes, batch, self.clock)
        for i, first in repeats:
            outcomes[i] = Outcome(Status.repeated, outcomes[first].release, outcomes[first].message)
        return outcomes, batch

    def _encode(self, readings: Sequence[Reading | Refused], queues: dict[Key, list[int]]) -> np.ndarray:
        """The true symbol of every reading; BLIND where there is none."""
        symbols = np.full(len(readings), BLIND)
        for name, space in self.spaces.items():
            where = [i for key, waiting in queues.items() if key[0] == name for i in waiting]
            if where:
                symbols[where] = space.encode([readings[i].point for i in where])  # type: ignore[union-attr]
        return symbols

    def _closed(self, s: Stream, r: Reading, last: int | None, find: Find) -> Outcome | None:
        """The outcome of a reading whose step needs no draw: released before, closed, or too far ahead."""
        if last is not None and r.step <= last:
            found = find(s, r.step)
            if found is None:
                return Outcome(Refused.late)
            return Outcome(Status.repeated, None if found[0] is None else decode(found[0]), found[0])
        if self.spaces[r.space].grid.period_s is not None:
            now = self.current_step(r.space)
            ahead = 0 if self.clock else AHEAD_OF_CLOCK if self.max_ahead is None else self.max_ahead
            if r.step > now + ahead:
                return Outcome(Refused.ahead)
            if self.clock and r.step < now:
                return Outcome(Refused.late)
        elif last is not None and r.step > last + (AHEAD_OF_LAST if self.max_ahead is None else self.max_ahead):
            return Outcome(Refused.ahead)
        return None

    def current_step(self, space: str) -> int:
        at = self.spaces[space].grid.step(self.now())
        assert at is not None
        return at[0]

    def _hold(self, s: Stream, r: Reading, symbol: int) -> None:
        """Under a clock the first reading of a step waits for its tick."""
        if s.pending_step != r.step:
            s.pending_step, s.pending_symbol = r.step, symbol
            s.faults += symbol == BLIND

    # --- the clock -------------------------------------------------------------------------------------

    def tick(self, space: str, step: int, streams: list[Stream]) -> tuple[list[Outcome], Batch]:
        """The draws of `step` for these streams of the space, whether a reading came or not."""
        S = self.spaces[space]
        symbols = np.array([self._clocked(S, s, step) for s in streams], dtype=np.int64)
        outcomes: list[Outcome] = [None] * len(streams)  # type: ignore[list-item]
        batch = Batch(streams=streams)
        plans = [Plan(s, [i], [(step, S.grid.time(step))]) for i, s in enumerate(streams)]
        if plans:
            advance(S, plans, symbols, self._uniforms, outcomes, batch, self.clock)
        return outcomes, batch

    def _clocked(self, S: Space, s: Stream, step: int) -> int:
        """The symbol to release for: the reading that waits, else the last known one, else none."""
        if s.pending_step == step:
            return s.pending_symbol
        return int(S.symbols[s.state]) if s.state != BLIND else BLIND
