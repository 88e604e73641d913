"""One policy at work: its mechanism, its map from readings to true symbols, and what each release looks like."""

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from veilstream.control.accountant import Streams
from veilstream.control.feedback import Excess
from veilstream.control.mechanism import SILENT, Mechanism, MeterName
from veilstream.control.uniforms import Uniforms
from veilstream.errors import InputError
from veilstream.gateway.drift import Watch
from veilstream.gateway.outcome import Outcome, OutFormat, Status
from veilstream.gateway.owntracks import Seals, as_owntracks, metres_off
from veilstream.gateway.records import Binding, Stream
from veilstream.gateway.wire import Columns, Grid, Point, Release, encode
from veilstream.model.chain import MarkovChain
from veilstream.model.histories import BLIND
from veilstream.model.information import Array, Index
from veilstream.model.problem import Average

if TYPE_CHECKING:
    from veilstream.artefact import Artefact

NOWHERE = math.nan, math.nan
WILD = 10  # times the farthest that the policy knows: a reading beyond it counts no more than that
Time = tuple[int, int | float | str]  # a step and the t it is released with
Shown = tuple[int | float | str, float | None, float | None]  # released, lat, lon
LogRow = tuple[Stream, int, float, bytes | None]  # as a Batch takes it: step, total, message


class Job(msgspec.Struct, gc=False):
    """What is to be released of one stream: for which steps, and the places of the readings that decide them."""

    stream: Stream
    last: int | None  # step, this batch included
    places: list[int] = []
    times: list[Time] = []
    points: list[Point] = []  # of these readings; empty where none are kept
    read: int | None = None  # under a clock: the symbol that was read, BLIND where none was

    def length(self) -> int:
        """Longest first."""
        return -len(self.places)

    def decides(self, step: int) -> int | None:
        """The place of the reading of this batch that decides the step."""
        if self.last is None or step > self.last:
            return None
        return next((place for place, at in zip(self.places, self.times, strict=True) if at[0] == step), None)


class Space:
    def __init__(
        self,
        artefact: "Artefact",
        ceiling: float | None = None,
        meter: MeterName | None = None,
        force: bool = False,
        seals: Seals | None = None,
    ) -> None:
        """meter: exact unless told. seals: encrypts OwnTracks that goes out."""
        policy, problem = artefact.answer()
        if artefact.study_only and not force:
            raise InputError(
                f"study only, not for release: {'; '.join(artefact.study_only)} (`force=True` to do it anyway)"
            )
        self.states = artefact.states
        self.points, self.problem = artefact.shown, problem
        self.cost = None if self.states is None else artefact.cost
        self.unit = artefact.unit  # of distances
        self._in_km = artefact.measure == "absolute" and artefact.unit == "km"  # the distortion
        if self.points is not None and len(self.points) < policy.n_outputs:
            raise InputError(
                f"the policy releases {policy.n_outputs} symbols but the file describes {len(self.points)}"
            )
        self.mechanism = Mechanism(policy, problem, ceiling, meter or "exact")
        self.symbols = problem.chain.symbols
        self.n_symbols = problem.chain.n_symbols
        self.rule, self.distances = policy.moves_by, problem.distortion
        self.farthest = float(problem.distortion.max())
        self.watch = Watch(problem.chain, artefact.recording, self.mechanism.true_states)
        self.keeps_state = self.mechanism.true_states.following is not None
        self.shown = [self._show(y) for y in range(policy.n_outputs)]
        self._begin(artefact, ceiling, seals, self._chain_hash(problem.chain, artefact))

    def _begin(self, artefact: "Artefact", ceiling: float | None, seals: Seals | None, chain: str) -> None:
        """What does not depend on the kind of policy."""
        names = self.states is not None and self.states.kind == "names"
        self.grid = Grid(artefact.period_s, artefact.epoch_s, names)
        if artefact.period_s is not None and self.grid.step(time.time()) is None:
            raise InputError("the file's period and epoch count no steps of our time; fit it again")
        self.width = 2 if self.states is not None and self.states.is_map else 1  # of a reading
        self.ceiling, self.seals, self.provenance = ceiling, seals, artefact.provenance
        self.columns: Columns = {}  # names of the fields of its messages, where they are not ours
        self.binding = Binding(artefact.sha256, chain)
        one = self.mechanism.start(1)
        self._memory, self._belief = one.memory, one.belief  # what a new stream starts from
        self._start = one.memory.tobytes(), one.belief.tobytes()
        self.state_bytes = len(self._start[0]) + len(self._start[1])

    @property
    def limit(self) -> float | None:
        """On the mean error."""
        average = self.problem.average
        return self.rule.limit if self.rule is not None else average.limit if isinstance(average, Average) else None

    def show(self, y: NDArray[np.int64]) -> list[Shown]:
        """Of SILENT anything."""
        return [self.shown[i] for i in y.tolist()]

    def _show(self, y: int) -> Shown:
        if self.points is None:
            return y, None, None
        place = self.points.decode(y)
        if self.points.kind == "names":
            return self.points.names[y], None, None
        if self.points.is_map:
            return y, float(place[0]), float(place[1])
        return float(place[0]), None, None

    def _chain_hash(self, chain: MarkovChain, artefact: "Artefact") -> str:
        digest = hashlib.sha256(np.ascontiguousarray(chain.transition).tobytes())
        if chain.phases > 1:
            digest.update(np.ascontiguousarray(chain.cycle).tobytes() + str(chain.clock).encode())
        if artefact.states is not None:
            digest.update(artefact.states.coordinates.tobytes())
        return digest.hexdigest()

    def encode(self, points: Sequence[Point]) -> NDArray[np.int64]:
        """The true symbol of every point: the nearest state, or BLIND where nothing can be read. Total."""
        xy, readable = self._coordinates(points)
        if self.states is None:
            symbols = np.clip(np.rint(xy[:, 0]), 0, self.n_symbols - 1).astype(np.int64)
        else:
            symbols = self.states.encode(xy)
        return np.where(readable, symbols, BLIND)

    def felt(self, points: Sequence[Point]) -> NDArray[np.float64]:
        """From every point to every release, n x |Y|; NaN where nothing can be read."""
        xy, readable = self._coordinates(points)
        far = self.distances[self.encode(points)] if self.cost is None else self.cost.distances_from(xy)
        return np.where(readable[:, None], far, np.nan)

    def _off(self, jobs: list[Job], x: NDArray[np.int64], y: NDArray[np.int64]) -> list[float]:
        """How far each reading is from its release; NaN where nothing was read or shown.

        By the state where the reading itself is not kept until its release.
        """
        if self.cost is None or not jobs[0].points:
            far, readable = self.distances[self.mechanism.true_states.first[x], y], x != BLIND
        else:
            xy, readable = self._coordinates([p for job in jobs for p in job.points])
            with np.errstate(over="ignore"):
                far = np.minimum(self.cost.distance_to(xy, y), WILD * self.farthest)
        found: list[float] = np.where(readable & (y != SILENT), far, np.nan).tolist()
        return found

    def _coordinates(self, points: Sequence[Point]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The points as rows of numbers, and which of them can be read; the others are 0."""
        if self.width == 2:
            rows: list[Point] = [p if isinstance(p, tuple) else NOWHERE for p in points]
        else:
            rows = [math.nan if p is None or isinstance(p, tuple) else p for p in points]
        xy = np.array(rows, float).reshape(-1, self.width)
        readable = np.isfinite(xy).all(1)
        return np.where(readable[:, None], xy, 0), readable

    # --- what is said ------------------------------------------------------------------------------------

    def body(self, outcome: Outcome, form: OutFormat, owntracks: bool = False) -> bytes:
        """The release as it is sent; `owntracks`: that is what its reading was."""
        release, message = outcome.release, outcome.message
        assert release is not None and message is not None
        if release.lat is not None and (form == "owntracks" or (form == "auto" and owntracks)):
            return self.as_owntracks(release)
        return message

    def as_owntracks(self, release: Release, topic: bool = False) -> bytes:
        """topic: with its name inside, for whoever gets it by no topic."""
        message = as_owntracks(release, self.accuracy(release), topic)
        return message if self.seals is None else self.seals(message)

    def accuracy(self, release: Release) -> int:
        """How far off a released place is said to be, in metres; of one that an earlier policy knew, the most."""
        return self._metres.get((release.lat, release.lon), self._metres[None, None])

    @cached_property
    def _metres(self) -> dict[tuple[float | None, float | None], int]:
        assert self.states is not None and self.points is not None
        far, policy = self.problem.distortion, self.mechanism.policy
        if not self._in_km:
            far = self.points.distances_from(self.states.decode(self.symbols))[:, : policy.n_outputs]
        off = metres_off(policy, self.problem.chain, 1000 * far)
        found: dict[tuple[float | None, float | None], int] = {(None, None): max(off)}
        for (_, lat, lon), metres in zip(self.shown, off, strict=True):
            found[lat, lon] = max(metres, found.get((lat, lon), 1))  # states may share a place
        return found

    # --- what is kept ------------------------------------------------------------------------------------

    def check(self, stream: Stream) -> None:
        """Raises unless the state kept of a stream is of this policy's and this meter's shape."""
        for kept, own in zip((stream.memory, stream.belief), self._start, strict=True):
            if kept is not None and len(kept) != len(own):
                raise InputError("the store was kept with another `meter`; give the same one, or another `store`")

    def unpack(self, streams: Sequence[Stream], step: NDArray[np.int64]) -> Streams:
        """The public state of these streams before these steps, as arrays."""
        m0, b0 = self._start
        memory = bytearray().join(m0 if s.memory is None else s.memory for s in streams)
        belief = bytearray().join(b0 if s.belief is None else s.belief for s in streams)
        now = Streams(
            np.frombuffer(memory, self._memory.dtype).reshape(-1, *self._memory.shape[1:]),
            np.frombuffer(belief).reshape(len(streams), *self._belief.shape[1:]),
            np.array([s.total for s in streams]),
            step,
        )
        if any(s.memory is None for s in streams):  # how a stream starts depends on the hour
            fresh = self.mechanism.start(len(streams), step)
            for i, s in enumerate(streams):
                if s.memory is None:
                    now.memory[i] = fresh.memory[i]
                if s.belief is None:
                    now.belief[i] = fresh.belief[i]
        return now

    def pack(self, streams: Sequence[Stream], new: Streams) -> None:
        """Write the arrays back."""
        m, b = len(self._start[0]), len(self._start[1])
        memory = np.ascontiguousarray(new.memory, dtype=self._memory.dtype).tobytes()
        belief = np.ascontiguousarray(new.belief).tobytes()
        for i, (s, total) in enumerate(zip(streams, new.total.tolist(), strict=True)):
            s.memory, s.belief, s.total = memory[i * m : i * m + m], belief[i * b : i * b + b], total

    # --- draws ---------------------------------------------------------------------------------------------

    def advance(
        self, jobs: list[Job], x: NDArray[np.int64], uniforms: Uniforms, clock: bool
    ) -> tuple[list[Outcome], list[LogRow]]:
        """Outcomes of jobs, longest first, in the order of their places, and what the log keeps; x: symbols."""
        y, totals, rungs, blind, last = self._rounds(jobs, x, uniforms)
        read = x if jobs[0].read is None else np.array([job.read for job in jobs])
        far, seen, watched = self._off(jobs, read, y), (x != BLIND).tolist(), self.watched(read).tolist()
        columns = y.tolist(), self.show(y), totals.tolist(), totals.round(6).tolist(), rungs.tolist(), blind.tolist()
        each = zip(*columns, strict=True)
        outcomes: list[Outcome] = []
        rows: list[LogRow] = []
        first, status, laddered = 0, Status.released, self.rule is not None
        for job, z in zip(jobs, last.tolist(), strict=True):
            s, steps, end = job.stream, [at for at, _ in job.times], first + len(job.times)
            s.last_step, mine = steps[-1], s.private
            mine.state = z if self.keeps_state or clock else BLIND
            mine.drift = self.watch.follow(mine.drift, watched[first:end], steps, far[first:end])
            mine.faults += 0 if clock else len(steps) - sum(seen[first:end])  # under a clock: when they come in
            for step, t in job.times:
                symbol, (released, lat, lon), total, bits, rung, unseen = next(each)
                release = message = None
                if symbol != SILENT:
                    release = Release(s.name, t, released, lat, lon, bits, rung if laddered else None)
                    message = encode(release)
                outcomes.append(Outcome(status, release, message, unseen))
                rows.append((s, step, total, message))
            first = end
        return outcomes, rows

    def symbol_of(self, state: int) -> int:
        """The symbol of a true state that a stream keeps."""
        return int(self.symbols[state])

    def watched(self, x: NDArray[np.int64]) -> NDArray[np.int64]:
        """The symbols that the drift of a stream is told by."""
        return x

    def _rounds(
        self, jobs: list[Job], x: NDArray[np.int64], uniforms: Uniforms
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
        """One numpy step per round: releases, the meter after each, the rung, whether it was blind; last true states.

        Turns are of any length, longest first, one after the other in x: round j is at starts + j.
        """
        streams = [job.stream for job in jobs]
        lengths = [len(job.places) for job in jobs]
        starts = np.array([0, *accumulate(lengths[:-1])])
        gaps = np.array(_gaps(jobs))
        first = [job.times[0][0] if job.stream.last_step is None else job.stream.last_step + 1 for job in jobs]
        now, last = self.unpack(streams, np.array(first)), np.array([s.private.state for s in streams])
        y, totals, rungs, blind = np.empty_like(x), np.empty(x.shape), np.zeros_like(x), np.zeros(x.shape, bool)
        account, error = self._account(jobs), self._errors(jobs, x)
        n = len(jobs)
        for j in range(lengths[0]):
            while lengths[n - 1] <= j:
                n -= 1
            at = starts[:n] + j
            gap = gaps[at]
            for k in set(gap[gap > 0].tolist()):
                which = np.flatnonzero(gap == k)
                now.put(which, self.mechanism.skip(now[which], k))
            z = self.mechanism.true_states(np.where(gap > 0, BLIND, last[:n]), x[at])
            if account is not None:
                now.put(slice(n), self.mechanism.move(now[:n], account[:n]))
                rungs[at] = self.mechanism.policy.rung(now.memory[:n])  # type: ignore[attr-defined]  # a ladder
            step, before = now.step[:n].copy(), now.total[:n].copy()
            new, y[at] = self.mechanism.step(now[:n], z, uniforms(n))
            if account is not None:
                account[:n].count(np.where(y[at] == SILENT, np.nan, error(at, y[at])), step)
            now.put(slice(n), new)
            last[:n] = z
            totals[at] = new.total
            if self.ceiling is not None:  # beyond it nothing is added
                blind[at] = (new.total == before) | (new.total >= self.ceiling)
        self.pack(streams, now)
        if account is not None:
            for s, excess, mark in zip(streams, account.excess.tolist(), account.mark.tolist(), strict=True):
                s.private.excess, s.private.mark = excess, mark
        return y, totals, rungs, blind, last

    def _account(self, jobs: list[Job]) -> Excess | None:
        """What feedback keeps of these streams."""
        if self.rule is None:
            return None
        last = [job.times[0][0] if job.stream.last_step is None else job.stream.last_step for job in jobs]
        excess, mark = (np.array([getattr(job.stream.private, k) for job in jobs]) for k in ("excess", "mark"))
        return Excess(self.rule, excess, mark, np.array(last))

    def _errors(self, jobs: list[Job], x: NDArray[np.int64]) -> Callable[[Index, Index], Array]:
        """For feedback: from some of these readings, by their places in x, to releases; NaN where nothing was read."""
        far = np.empty((0, 0)) if self.rule is None else self.felt([p for job in jobs for p in job.points])
        return lambda at, y: np.asarray(far[at, y])


def _gaps(jobs: list[Job]) -> list[int]:
    """Steps that were skipped before each one."""
    gaps = []
    for job in jobs:
        last = job.times[0][0] - 1 if job.stream.last_step is None else job.stream.last_step
        for step, _ in job.times:
            gaps.append(step - last - 1)
            last = step
    return gaps
