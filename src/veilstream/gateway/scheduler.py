"""How readings become outcomes, whatever the store: which steps are decided, by which reading, and the draws.

Which readings are released is decided first, from steps alone; then the streams are advanced together, one numpy step
per round (several readings of one stream take several rounds). Nothing here is durable: whoever calls commits the
batch, and shows no outcome before that.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from veilstream.control.uniforms import SecureUniforms, Uniforms
from veilstream.errors import InputError
from veilstream.gateway.records import Batch, Key, Outcome, Private, Status, Stream
from veilstream.gateway.space import Job, Space, root
from veilstream.gateway.wire import MAX_BYTES, Opens, Point, Reading, Refusal, decode, parse
from veilstream.model.histories import BLIND

AHEAD_OF_CLOCK, AHEAD_OF_LAST = 1, 1_000_000  # default of max_ahead with and without a period
StreamOf = Callable[[Key], Stream]
Find = Callable[[Stream, int], "tuple[bytes | None] | None"]  # the logged release of a step, as Store.find
Before = Callable[[Stream, int], "int | None"]  # the step before one that the log has a release of, as Store.before


@dataclass(frozen=True)
class Serving:
    """What readings may ask of a gateway, whatever the transport and the store."""

    clock: bool = False  # one release per step and stream, reading or not
    max_ahead: int | None = None  # steps a reading may lie ahead
    max_streams: int = 1_000_000  # that may be opened
    max_bytes: int = MAX_BYTES  # of one message
    keep: int | None = None  # steps per stream that the log keeps; None: all, or what the store can
    opens: Opens | None = field(default=None, repr=False)  # encrypted OwnTracks messages


class Scheduler:
    def __init__(
        self,
        spaces: Mapping[str, Space],
        serving: Serving,
        uniforms: Uniforms | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        if serving.clock and any(S.grid.period_s is None for S in spaces.values()):
            raise InputError("`clock` needs a policy with a period (fit with `period_s`)")
        if serving.clock and any(S.mechanism.safe is not None for S in spaces.values()):
            raise InputError(
                "`clock` cannot keep what the policy forbids: a missing reading is shown as the last known state, and "
                "the truth may have moved on since; serve it without a clock"
            )
        self.spaces, self.serving, self.now = dict(spaces), serving, now
        self.own = [name for name, s in spaces.items() if s.finer is None]  # that look at readings
        self.audiences = {name: [k for k, s in spaces.items() if s.finer == name] for name in spaces}
        self.behind = {name: [k for k in spaces if k != name and root(spaces, k) == name] for name in self.own}
        self._uniforms = uniforms or SecureUniforms()

    def read(
        self, data: bytes | bytearray, space: str = "", stream: str | None = None
    ) -> list[Reading | Refusal] | Refusal:
        """The readings of one message to a space, whatever brought it; stream: the one its topic or sender names."""
        own, serving = self.spaces[space], self.serving
        return parse(data, own.grid, stream, space, serving.max_bytes, own.columns, serving.opens)

    def decide(
        self,
        readings: Sequence[Reading | Refusal],
        stream_of: StreamOf,
        find: Find,
        room: int,
        before: Before | None = None,
    ) -> tuple[list[Outcome], Batch]:
        """One outcome per reading, and what must be committed before they hold. At most `room` new streams; before: for
        audiences that are late."""
        outcomes: list[Outcome] = [None] * len(readings)  # type: ignore[list-item]
        batch, clock, jobs = Batch(), self.serving.clock, dict[Key, Job]()
        repeats: list[tuple[int, int]] = []  # a reading, and the one before it that decides the same step
        for i, r in enumerate(readings):
            if isinstance(r, Refusal):
                outcomes[i] = Outcome(r)
                continue
            key = r.space, r.stream
            job = jobs.get(key)
            if job is None:
                s = stream_of(key)
                job = jobs[key] = Job(s, s.last_step)
            if job.times and not clock and (first := job.decides(r.step)) is not None:
                repeats.append((i, first))
            elif (done := self._closed(job.stream, r, job.last, find)) is not None:
                outcomes[i] = self._with_coarser(done, r, stream_of, find, before)
            elif job.stream.id is None and not job.places and room <= 0:
                outcomes[i] = Outcome(Refusal.too_many_streams)
            else:
                room -= job.stream.id is None and not job.places
                job.places.append(i)
                job.times.append((r.step, r.t))
                job.points.append(r.point)
                if not clock:
                    job.last = r.step
        of_space: dict[str, list[Job]] = {}
        for (space, _), job in jobs.items():
            if job.places:
                batch.streams.append(job.stream)
                of_space.setdefault(space, []).append(job)
        for name, those in of_space.items():
            those.sort(key=Job.length)
            symbols = self.spaces[name].encoder.encode([point for job in those for point in job.points])
            if clock:
                self._hold(self.spaces[name], those, symbols.tolist(), outcomes)
            else:
                self._draw(name, those, symbols, outcomes, batch, stream_of, find)
        for i, first in repeats:
            drawn = outcomes[first]
            outcomes[i] = Outcome(Status.repeated, drawn.release, drawn.message, coarser=drawn.coarser)
        return outcomes, batch

    def _draw(
        self,
        name: str,
        jobs: list[Job],
        symbols: NDArray[np.int64],
        outcomes: list[Outcome],
        batch: Batch,
        stream_of: StreamOf | None,
        find: Find | None,
    ) -> None:
        """The releases of these jobs, and from them those of every audience behind: one batch, so one transaction."""
        before = [job.stream.last_step for job in jobs]
        released, rows, y = self.spaces[name].advance(jobs, symbols, self._uniforms, self.serving.clock)
        batch.releases += rows
        batch.told += [(s, message) for s, _, _, message in rows]
        coarser: list[dict[str, list[Outcome]]] = [{} for _ in y]
        if stream_of is not None and find is not None:
            self._draw_behind(name, jobs, before, y, coarser, batch, stream_of, find)
        places = [place for job in jobs for place in job.places]
        for place, outcome, behind in zip(places, released, coarser, strict=True):
            outcomes[place] = structs.replace(outcome, coarser=behind) if behind else outcome

    def _draw_behind(
        self,
        name: str,
        jobs: list[Job],
        before: list[int | None],
        y: NDArray[np.int64],
        coarser: list[dict[str, list[Outcome]]],
        batch: Batch,
        stream_of: StreamOf,
        find: Find,
    ) -> None:
        """The releases of every audience behind, each from the finer one of its step: a symbol, read by nobody else.

        before: the last steps of the jobs' streams; coarser: what audiences get, in the order of y.
        """
        for audience in self.audiences[name]:
            space = self.spaces[audience]
            mine = self._jobs_behind(audience, jobs, before, stream_of)
            if not mine:
                continue
            at = [place for job in mine for place in job.places]
            batch.streams += [job.stream for job in mine]
            released, rows, own = space.advance(mine, y[at], self._uniforms, self.serving.clock)
            batch.releases += rows
            those, drawn = [coarser[i] for i in at], iter(released)
            told = [(job, got) for job in mine for got in told_of(job, drawn, space.delay, find)]
            for one, (job, got) in zip(those, told, strict=True):
                one[audience] = got
                batch.told += [(job.stream, o.message) for o in got]
            self._draw_behind(audience, mine, [job.last for job in mine], own, those, batch, stream_of, find)

    def _jobs_behind(self, audience: str, jobs: list[Job], before: list[int | None], stream_of: StreamOf) -> list[Job]:
        """What an audience has not got yet of these jobs' steps, longest first; places count the finer releases."""
        mine, end = list[Job](), 0
        for job, last in zip(jobs, before, strict=True):
            s, first, end = stream_of((audience, job.stream.name)), end, end + len(job.times)
            new = [i for i, (step, _) in enumerate(job.times) if s.last_step is None or step > s.last_step]
            if new:
                if s.last_step != last:
                    self.spaces[audience].absent(s, job.times[new[0]][0] if s.last_step is None else s.last_step + 1)
                mine.append(Job(s, s.last_step, [first + i for i in new], [job.times[i] for i in new]))
        return sorted(mine, key=Job.length)

    def _with_coarser(
        self, done: Outcome, r: Reading, stream_of: StreamOf, find: Find, before: Before | None
    ) -> Outcome:
        """A release of the log with what audiences got with it: nothing is drawn for them."""
        if done.status is not Status.repeated or not self.behind[r.space]:
            return done
        got: dict[str, list[Outcome]] = {}
        for audience in self.behind[r.space]:
            s, delay = stream_of((audience, r.stream)), self.spaces[audience].delay
            if find(s, r.step) is not None:
                steps = due(before(s, r.step), r.step, delay) if delay and before is not None else [r.step]
                got[audience] = logged(s, steps, find, Status.repeated)
        return structs.replace(done, coarser=got) if got else done

    def _closed(self, s: Stream, r: Reading, last: int | None, find: Find) -> Outcome | None:
        """The outcome of a reading whose step needs no draw: released before, closed, or too far ahead."""
        clock, max_ahead = self.serving.clock, self.serving.max_ahead
        if last is not None and r.step <= last:
            return next(iter(logged(s, [r.step], find, Status.repeated)), Outcome(Refusal.late))
        if self.spaces[r.space].grid.period_s is not None:
            now = self.current_step(r.space)
            ahead = 0 if clock else AHEAD_OF_CLOCK if max_ahead is None else max_ahead
            if r.step > now + ahead:
                return Outcome(Refusal.ahead)
            if clock and r.step < now:
                return Outcome(Refusal.late)
        elif last is not None and r.step > last + (AHEAD_OF_LAST if max_ahead is None else max_ahead):
            return Outcome(Refusal.ahead)
        return None

    def current_step(self, space: str) -> int:
        at = self.spaces[space].grid.step(self.now())
        assert at is not None
        return at[0]

    # --- the clock -------------------------------------------------------------------------------------

    def _hold(self, space: Space, jobs: list[Job], symbols: list[int], outcomes: list[Outcome]) -> None:
        """Under a clock the first reading of a step waits for its tick."""
        left = iter(symbols)
        for job in jobs:
            mine = job.stream.private
            for place, (step, _), point in zip(job.places, job.times, job.points, strict=True):
                symbol = next(left)
                if mine.pending_step != step:
                    mine.pending_step, mine.pending_symbol = step, symbol
                    mine.pending_point = None if space.rule is None else _bytes_of(point)
                    mine.faults += symbol == BLIND
                outcomes[place] = Outcome(Status.waiting)

    def tick(
        self,
        space: str,
        step: int,
        streams: list[Stream],
        stream_of: StreamOf | None = None,
        find: Find | None = None,
    ) -> tuple[list[Outcome], Batch]:
        """The draws of `step` for these streams of the space, whether a reading came or not."""
        S = self.spaces[space]
        symbols = np.array([self._clocked(S, s, step) for s in streams], dtype=np.int64)
        outcomes: list[Outcome] = [None] * len(streams)  # type: ignore[list-item]
        batch = Batch(streams=list(streams))
        at, jobs = (step, S.grid.time(step)), []
        for i, s in enumerate(streams):
            points = [] if S.rule is None else [_waiting(s.private, step, S.encoder.width)]
            read = (BLIND, s.private.pending_symbol)[s.private.pending_step == step]
            jobs.append(Job(s, s.last_step, [i], [at], points, read))
        if jobs:
            self._draw(space, jobs, symbols, outcomes, batch, stream_of, find)
        return outcomes, batch

    def _clocked(self, S: Space, s: Stream, step: int) -> int:
        """The symbol to release for: the reading that waits, else the last known one, else none."""
        mine = s.private
        last = (S.encoder.symbol_of(mine.state), BLIND)[mine.state == BLIND]
        return (last, mine.pending_symbol)[mine.pending_step == step]


# --- late audiences ----------------------------------------------------------------------------------------


def due(last: int | None, step: int, delay: int) -> range:
    """Steps whose releases an audience gets with that of `step`, the one before at `last`: old now, not then."""
    return range(0) if last is None else range(last - delay + 1, min(step - delay, last) + 1)


def told_of(job: Job, drawn: Iterator[Outcome], delay: int, find: Find) -> Iterator[list[Outcome]]:
    """What an audience gets with each release of a job: itself, or what was drawn `delay` steps before, once."""
    last, new = job.last, dict[int, Outcome]()
    for (step, _), outcome in zip(job.times, drawn, strict=False):
        new[step] = outcome
        if not delay:
            yield [outcome]
            continue
        got = list[Outcome]()
        for old in due(last, step, delay):
            got += [new[old]] if old in new else logged(job.stream, [old], find, Status.released)
        last = step
        yield got


def logged(s: Stream, steps: Iterable[int], find: Find, status: Status) -> list[Outcome]:
    """The releases of these steps that the log has."""
    rows = (find(s, step) for step in steps)
    return [Outcome(status, None if row[0] is None else decode(row[0]), row[0]) for row in rows if row is not None]


def _bytes_of(point: Point) -> bytes:
    return np.atleast_1d(np.array(np.nan if point is None else point, float)).tobytes()


def _waiting(mine: Private, step: int, width: int) -> Point:
    """The reading that waits for this tick, or one that cannot be read: no branch tells which."""
    none = width * _bytes_of(None)
    kept = (none, mine.pending_point)[(mine.pending_step == step) & (mine.pending_point is not None)]
    assert kept is not None
    found = np.frombuffer(kept).tolist()
    return (found[0], found[1]) if len(found) == 2 else found[0]
