"""One policy at work: jobs of many streams are advanced together, and their releases are said."""

import time
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from veilstream.control.accountant import Streams
from veilstream.control.cascade import BehindFilter
from veilstream.control.feedback import Excess, Feedback
from veilstream.control.mechanism import SILENT, MeterName
from veilstream.control.uniforms import Uniforms
from veilstream.errors import InputError
from veilstream.gateway.drift import Watch
from veilstream.gateway.encoder import Error, encoder_of
from veilstream.gateway.owntracks import Seals, as_owntracks
from veilstream.gateway.records import Binding, Outcome, OutFormat, Status, Stream
from veilstream.gateway.wire import Columns, Grid, Point, Release, decode, encode
from veilstream.model.histories import BLIND

if TYPE_CHECKING:
    from veilstream.artefact import Artefact

Time = tuple[int, int | float | str]  # a step and the t it is released with
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
    """A mechanism and what its readings and releases are, on a public grid of time."""

    def __init__(
        self,
        artefact: "Artefact",
        ceiling: float | None = None,
        meter: MeterName | None = None,
        force: bool = False,
        seals: Seals | None = None,
        finer: "tuple[str, Space] | None" = None,
        delay: int = 0,
    ) -> None:
        """meter: exact unless told. seals: encrypts OwnTracks that goes out. finer: of an audience, the name and space
        of the policy whose releases it looks at. delay: steps after which an audience gets its releases."""
        if finer is not None:
            meter = _audience_meter(artefact, finer[1], meter)
        self.finer, self.delay = None if finer is None else finer[0], delay
        self.encoder = e = encoder_of(artefact, finer is not None)
        if artefact.study_only and not force:
            raise InputError(
                f"study only, not for release: {'; '.join(artefact.study_only)} (`force=True` to do it anyway)"
            )
        self.states, self.points, self.rule = e.states, e.points, e.rule
        self.mechanism = e.mechanism(ceiling, meter)
        self.watch = Watch(e.chain, artefact.recording, e.true_states)
        self.keeps_state = e.true_states.following is not None
        names = self.states is not None and self.states.kind == "names"
        self.grid = Grid(artefact.period_s, artefact.epoch_s, names)
        if artefact.period_s is not None and self.grid.step(time.time()) is None:
            raise InputError("the file's period and epoch count no steps of our time; fit it again")
        self.ceiling, self.seals, self.provenance = ceiling, seals, artefact.provenance
        self.columns: Columns = {}  # names of the fields of its messages, where they are not ours
        self.binding = Binding(artefact.sha256, e.identity)
        one = self.mechanism.start(1)
        self._memory, self._belief = one.memory, one.belief  # what a new stream starts from
        self._start = one.memory.tobytes(), one.belief.tobytes()
        self.state_bytes = len(self._start[0]) + len(self._start[1])

    def body(self, message: bytes, form: OutFormat, owntracks: bool = False, topic: bool = False) -> bytes:
        """A release as it is sent, as OwnTracks if that is the form of it or of its reading and there is a place.

        topic: with its name inside, for whoever gets it by no topic.
        """
        if form == "owntracks" or (form == "auto" and owntracks):
            release = decode(message)
            if release.lat is not None:
                sent = as_owntracks(release, self.encoder.accuracy(release), topic)
                return sent if self.seals is None else self.seals(sent)
        return message

    @property
    def says_zones(self) -> bool:
        """Whether names stand for places."""
        states, points = self.states, self.points
        return states is not None and points is not None and states.is_map and not points.is_map

    def absent(self, s: Stream, step: int) -> None:
        """A stream of an audience that missed finer releases, to go on at this step: of these it knows nothing."""
        if isinstance(meter := self.mechanism.meter, BehindFilter):
            s.belief = meter.settled(np.array([step])).tobytes()

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
    ) -> tuple[list[Outcome], list[LogRow], NDArray[np.int64]]:
        """Outcomes of jobs, longest first, in the order of their places, what the log keeps, and the symbols that were
        released; x: those that were read."""
        read = x if jobs[0].read is None else np.array([job.read for job in jobs])
        points = [p for job in jobs for p in job.points]
        feedback = None if self.rule is None else (self._account(self.rule, jobs), self.encoder.errors(points, read))
        y, totals, rungs, blind, last = self._rounds(jobs, x, uniforms, feedback)
        far, seen = self.encoder.off(points, read, y).tolist(), (x != BLIND).tolist()
        watched = self.encoder.watched(read).tolist()
        figures = totals.tolist(), totals.round(6).tolist(), rungs.tolist(), blind.tolist()
        each = zip(y.tolist(), self.encoder.show(y), *figures, strict=True)
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
        return outcomes, rows, y

    def _rounds(
        self, jobs: list[Job], x: NDArray[np.int64], uniforms: Uniforms, feedback: tuple[Excess, Error] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
        """One numpy step per round: releases, the meter after each, the rung, whether it was blind; last true states.

        Turns are of any length, longest first, one after the other in x: round j is at starts + j.
        """
        streams = [job.stream for job in jobs]
        lengths = [len(job.places) for job in jobs]
        starts = np.array([0, *accumulate(lengths[:-1])])
        steps = np.array([step for job in jobs for step, _ in job.times])
        first = [job.times[0][0] if job.stream.last_step is None else job.stream.last_step + 1 for job in jobs]
        gaps = np.diff(steps, prepend=0) - 1  # steps that were skipped before each one
        gaps[starts] = steps[starts] - first
        now, last = self.unpack(streams, np.array(first)), np.array([s.private.state for s in streams])
        y, totals, rungs, blind = np.empty_like(x), np.empty(x.shape), np.zeros_like(x), np.zeros(x.shape, bool)
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
            if feedback is not None:
                now.put(slice(n), self.mechanism.move(now[:n], feedback[0][:n]))
                rungs[at] = self.mechanism.policy.rung(now.memory[:n])  # type: ignore[attr-defined]  # a ladder
            step, before = now.step[:n].copy(), now.total[:n].copy()
            new, y[at] = self.mechanism.step(now[:n], z, uniforms(n))
            if feedback is not None:
                feedback[0][:n].count(feedback[1](at, y[at]), step)
            now.put(slice(n), new)
            last[:n] = z
            totals[at] = new.total
            if self.ceiling is not None:  # beyond it nothing is added
                blind[at] = (new.total == before) | (new.total >= self.ceiling)
        self.pack(streams, now)
        if feedback is not None:
            for s, excess, mark in zip(streams, feedback[0].excess.tolist(), feedback[0].mark.tolist(), strict=True):
                s.private.excess, s.private.mark = excess, mark
        return y, totals, rungs, blind, last

    def _account(self, rule: Feedback, jobs: list[Job]) -> Excess:
        """What feedback keeps of these streams."""
        last = [job.times[0][0] if job.stream.last_step is None else job.stream.last_step for job in jobs]
        excess, mark = (np.array([getattr(job.stream.private, k) for job in jobs]) for k in ("excess", "mark"))
        return Excess(rule, excess, mark, np.array(last))


def _audience_meter(artefact: "Artefact", finer: Space, meter: MeterName | None) -> MeterName | None:
    """The meter of an audience behind this space; raises where it is not made for it.

    Beyond its ceiling the finer one draws without looking, which nobody behind it can see: the law that an exact meter
    assumes is no longer that of the releases, so the worst case is charged.
    """
    if artefact.finer is None:
        raise InputError("an audience needs a policy made behind the finer one: veil solve MODEL --behind FINER.veil")
    if artefact.finer.sha256 != finer.binding.policy:
        raise InputError("it was made behind another policy than the one it is served with; solve it behind this one")
    if finer.ceiling is None:
        return meter
    if not finer.mechanism.open.all():
        raise InputError(
            "a `ceiling` silences a policy with a limit at every step, and the audiences behind it would see when: "
            "leave out the ceiling, or the audience"
        )
    return "capacity"


def root(spaces: Mapping[str, Space], name: str) -> str:
    """The space that looks at the readings an audience's releases come from."""
    finer = spaces[name].finer
    return name if finer is None else root(spaces, finer)
