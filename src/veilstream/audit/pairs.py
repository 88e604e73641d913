"""True and released streams of any program, side by side: what adversaries make of releases who learned from others.

Whole traces are held out in turn. From the rest an adversary learns how the person moves, P(x'|x), and what the program
shows, a(y|x) or a(y|x, last release), whichever explains traces better that were not learned from; then she is the
exact adversary of that model. So every figure is one that somebody reaches: a better adversary may reach more.

    bits   mean of log2 a(y|x, ..) / p(y|past) on held-out traces: the information rate, under what was learned
    user   whose trace it is: the one of the people, each with a chain of her own, who explains it best
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from veilstream.audit.assemble import FEW_TRACES, in_pieces
from veilstream.audit.bayes import infer
from veilstream.audit.figures import Figures, Tally, looked_at, near, over_traces
from veilstream.audit.measures import per_trace
from veilstream.audit.traces import Ints, Traces
from veilstream.control.controller import Controller
from veilstream.data.model import FittedModel
from veilstream.data.readings import Readings
from veilstream.data.states import StateSpace, apart_km
from veilstream.data.steps import clean, resample
from veilstream.data.trajectories import Trajectories
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, normalised
from veilstream.model.interval import Interval
from veilstream.shown import Progress
from veilstream.units import counted

MOST_POINTS = 256  # distinct releases that are told apart; of more each stands for the state it lies at
MOST_TABLE = 2_000_000  # entries of a channel that looks at the last release
INNER = 5  # one in so many of the traces learned from decides what the channel looks at


class Program(Protocol):
    """Any mechanism as an object. A reading is an array: latitude and longitude, or one value."""

    def start(self) -> Any: ...
    def release(self, state: Any, reading: NDArray[np.float64]) -> tuple[Any, Any]: ...


@dataclass(frozen=True, eq=False)
class Aligned:
    """Steps of true and released streams, aligned. PRIVATE."""

    states: StateSpace
    shown: NDArray[np.float64]  # points that were released, one a symbol; one symbol more: nothing was
    x: Ints  # of every step, all traces joined
    y: Ints
    errors: Array  # from reading to release; nan where there is not both
    traces: Sequence[Ints]  # the steps of each
    stream: Ints  # of each trace
    notes: tuple[str, ...] = ()

    @property
    def nothing(self) -> int:
        """The symbol of a step without a release: a sign like any other."""
        return len(self.shown)

    @classmethod
    def of(cls, model: FittedModel, true: Readings, released: Readings) -> Aligned:
        """The steps of a model of the true readings, and what was released for each."""
        if (true.kind, true.stepped) != (released.kind, released.stepped):
            raise InputError(
                f"{true.where} and {released.where} must both hold positions, or both values, and both have times or "
                f"both step numbers; found {true.kind}s and {released.kind}s"
            )
        runs, found = model.runs, resample(clean(released, np.inf), model.recording)  # noise may jump as it likes
        code = codes(true.streams, released.streams)[found.stream.astype(np.int64)]
        keys = zip(code.tolist(), found.step.tolist(), strict=True)
        where = {key: i for i, key in reversed(list(enumerate(keys)))}  # the first release of a step decides
        ends = np.append(0, runs.ends)
        step = np.concatenate([f + np.arange(len(s)) for f, s in zip(runs.first, runs.sequences, strict=True)])
        stream = np.repeat(runs.streams, np.diff(ends)).astype(np.int64)
        row = np.array([where.get(key, -1) for key in zip(stream.tolist(), step.tolist(), strict=True)], np.int64)
        seen = row >= 0
        if not seen.any():
            raise InputError(
                f"{released.where} has no release at any step of {true.where}: streams must have the same names, and "
                "times the same clock"
            )
        notes = []
        if left := len(found) - int(seen.sum()):
            notes.append(f"{counted(left, 'release')} at steps without a true reading, left out")
        shown, symbols = alphabet(found, model.states, notes)
        both = seen & (runs.rows >= 0)
        errors = np.full(len(row), np.nan)
        errors[both] = apart(model.states, runs.source.points[runs.rows[both]], found.points[row[both]])
        y, cut = np.where(seen, symbols[row], len(shown)), list[tuple[int, Ints]]()
        for own in np.unique(runs.streams):
            pieces = [(int(step[a]), np.arange(a, b)) for a, b in pairwise(ends) if stream[a] == own]
            cut += in_pieces(pieces, 1) if len(pieces) < FEW_TRACES else pieces
        if len(cut) < 2:
            raise InputError(f"{true.where} has one trace of two steps or more, or none: nothing can be held out")
        at = [steps for _, steps in cut]
        return cls(
            model.states, shown, np.concatenate(runs.sequences), y, errors, at, stream[[t[0] for t in at]], tuple(notes)
        )

    @classmethod
    def of_program(cls, program: Program, utility: Utility, streams: int, steps: int, seed: int = 0) -> Aligned:
        """What it shows of streams that are drawn from the chain, its readings the middle of their states."""
        if utility.cost is None:
            raise InputError("a mechanism that is a program needs a model with places or values: fit one")
        states = utility.cost.states
        z = utility.chain.sample(steps, streams, seed)
        readings = states.decode(x := utility.chain.symbols[z].ravel())
        points, state = np.empty_like(readings), None
        for i, reading in enumerate(readings):
            state = program.start() if i % steps == 0 else state
            state, points[i] = program.release(state, reading)
        if not np.isfinite(points).all():
            raise InputError("the mechanism showed something that is not a finite number")
        found = Trajectories(np.repeat(np.arange(streams), steps), np.tile(np.arange(steps), streams), points)
        notes = list[str]()
        shown, y = alphabet(found, states, notes)
        traces = list(np.arange(len(x)).reshape(streams, steps))
        return cls(states, shown, x, y, apart(states, readings, points), traces, np.zeros(streams, int), tuple(notes))


def codes(true: Sequence[str], released: Sequence[str]) -> Ints:
    """The number among the true streams of each released one, -1 for none; where there is one of each, that."""
    if len(true) == len(released) == 1:
        return np.zeros(1, np.int64)
    known = {name: i for i, name in enumerate(true)}
    return np.array([known.get(name, -1) for name in released], np.int64)


def alphabet(found: Trajectories, states: StateSpace, notes: list[str]) -> tuple[NDArray[np.float64], Ints]:
    """The points that are released and which of them each release is."""
    points, at = np.unique(found.points, axis=0, return_inverse=True)
    if len(points) <= MOST_POINTS:
        return points, at.reshape(-1)
    notes.append(f"{len(points):,} different releases: the adversary sees the state that each lies at, no finer")
    return states.coordinates, states.encode(found.points)


def apart(states: StateSpace, a: NDArray[np.float64], b: NDArray[np.float64]) -> Array:
    """Row by row, in the unit of the states."""
    if states.is_map:
        return np.asarray(apart_km(a, b))
    return np.asarray(a[:, 0] != b[:, 0], float) if states.kind == "names" else np.abs(a[:, 0] - b[:, 0])


# --- the adversary ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reached:
    """What adversaries who learned from other traces make of these."""

    figures: Figures
    error: Interval  # from reading to release, where there is one
    bits: Interval  # per step
    traces: int
    steps: int
    silent: float  # share of the steps without a release
    looks_back: bool  # whether the channel that explains most looks at the last release
    streams: int
    identified: Interval | None  # whose trace it is: share of right answers; None: one stream
    homes: int  # streams whose most visited place is found

    def to_json(self) -> dict[str, Any]:
        own = {k: getattr(self, k) for k in ("traces", "steps", "silent", "looks_back", "streams", "homes")}
        return {**own, "identified": None if self.identified is None else self.identified.to_json()}


@dataclass(frozen=True, eq=False)
class Adversary:
    """Learns from some traces, and is asked about others."""

    pairs: Aligned
    folds: int = 5
    seed: int = 0

    @property
    def n(self) -> int:
        return len(self.pairs.states)

    def chain(self, traces: Sequence[Ints], prior: MarkovChain | None = None) -> MarkovChain:
        """P(x'|x) with one pseudo-count a row: uniform, or as others move."""
        x, n = self.pairs.x, self.n
        thought = np.full((n, n), 1 / n) if prior is None else prior.transition
        moves = MarkovChain.fit([x[t] for t in traces], n, smoothing=thought)
        begin = np.bincount([x[t[0]] for t in traces], minlength=n) + moves.stationary
        return MarkovChain(moves.transition, normalised(begin))

    def channel(self, traces: Sequence[Ints], looks_back: bool) -> Controller:
        """a(y|x), or a(y|x, last release) backed by it; a symbol more, never seen, stands for no last release."""
        x, y, n, Y = self.pairs.x, self.pairs.y, self.n, self.pairs.nothing + 2
        steps = np.concatenate(traces)
        plain = np.zeros((n, Y))
        np.add.at(plain, (x[steps], y[steps]), 1.0)
        law = normalised(plain.sum(0) + np.append(np.full(Y - 1, 1 / (Y - 1)), 0.0))
        a = normalised(plain + law)
        if not looks_back:
            return Controller.of_table(a)
        table = np.tile(a, (Y, 1, 1))
        before, after = (np.concatenate([t[k] for t in traces]) for k in (slice(None, -1), slice(1, None)))
        np.add.at(table, (y[before], x[after], y[after]), 1.0)
        return Controller.of_table(normalised(table), 1, first=Y - 1)

    def policy(self, traces: Sequence[Ints]) -> tuple[Controller, bool]:
        """The channel that explains some of the traces best, learned from the others; then learned from all."""
        looks_back = False
        if len(traces) >= INNER and self.n * (self.pairs.nothing + 2) ** 2 <= MOST_TABLE:
            known, asked = [t for i, t in enumerate(traces) if i % INNER], traces[::INNER]
            likely = [self.explained(self.channel(known, back), asked) for back in (False, True)]
            looks_back = likely[1] > likely[0]
        return self.channel(traces, looks_back), looks_back

    def explained(self, policy: Controller, traces: Sequence[Ints]) -> float:
        """log2 of the releases given the truth."""
        total, (x, y) = 0.0, (self.pairs.x, self.pairs.y)
        for t in traces:
            memory = np.append(policy.first, policy.automaton.next(0, y[t[:-1]]))
            rows = policy.rows(memory, x[t])
            total += float(np.log2(rows[np.arange(len(t)), y[t]]).sum())
        return total

    @cached_property
    def fold(self) -> Ints:
        """The fold of each trace."""
        n = len(self.pairs.traces)
        return np.random.default_rng(self.seed).permutation(n) % min(self.folds, n)

    def learned(self, names: Sequence[str], progress: Progress | None = None) -> Reached:
        """Every trace is asked about once, by an adversary who has learned from the traces of other folds."""
        p, several = self.pairs, len(np.unique(self.pairs.stream)) > 1
        law = np.bincount(p.x, minlength=self.n) / len(p.x)
        d, far = p.states.distances(), p.states.distances_from(p.shown).T
        tally, bits, right, backs = Tally(law, d, near(p.states)), [], [], []
        felt = np.concatenate([far, np.repeat(d[:, [(law @ d).argmin()]], 2, 1)], 1)  # of nothing: the best constant's
        found = np.zeros((int(p.stream.max()) + 1, self.n))  # steps that each stream is said to be at each place
        for k in range(int(self.fold.max()) + 1):
            known, asked = (
                [t for t, f in zip(p.traces, self.fold, strict=True) if (f == k) == now] for now in (False, True)
            )
            own = [s for s, f in zip(p.stream, self.fold, strict=True) if f == k]
            chain, (policy, back) = self.chain(known), self.policy(known)
            data, order = together(p, asked)
            beliefs = tally.add(chain, policy, data, felt)
            bits.append(per_trace(beliefs.density, data, data.mask))
            backs.append(back)
            assert beliefs.path is not None
            for row, i in enumerate(order):
                found[own[i]] += np.bincount(beliefs.path[row, : data.lengths[row]], minlength=self.n)
            if several:
                right.append(self.named(chain, policy, k, data, np.array(own)[order]))
            if progress:
                progress((k + 1) / (int(self.fold.max()) + 1), f"part {k + 1} held out")
        shown, n = p.y != p.nothing, len(p.traces)
        felt_by = [p.errors[t][np.isfinite(p.errors[t])] for t in p.traces]
        homes = [found[s].argmax() == np.bincount(p.x[np.concatenate(self.of(s))], minlength=self.n).argmax()
                 for s in np.unique(p.stream)]  # fmt: skip
        return Reached(
            tally.figures(looked_at(law, names, p.states)),
            over_traces([(np.array([f.sum() for f in felt_by]), np.array([float(len(f)) for f in felt_by]))]),
            over_traces(bits),
            n,
            len(p.x),
            float(1 - shown.mean()),
            bool(np.mean(backs) > 0.5),
            len(homes),
            over_traces([(r.astype(float), np.ones(len(r))) for r in right]) if several else None,
            int(sum(homes)),
        )

    def of(self, stream: int, without: int = -1) -> list[Ints]:
        """The traces of a stream, without those of one fold."""
        rows = zip(self.pairs.traces, self.pairs.stream, self.fold, strict=True)
        return [t for t, s, f in rows if s == stream and f != without]

    def named(self, chain: MarkovChain, policy: Controller, fold: int, data: Traces, own: Ints) -> NDArray[np.bool_]:
        """Whether each trace is taken for its own stream's: that under whose chain it is likeliest."""
        streams, cost = np.unique(self.pairs.stream), []
        for s in streams:
            known = self.of(int(s), fold)
            theirs = self.chain(known, chain) if known else chain
            seen = infer(theirs, policy, data, whole=False)
            cost.append(np.where(data.mask, seen.density, 0).sum(1))  # log2 a(y|x) / p(y), and a is the same for all
        return np.asarray(streams[np.argmin(cost, 0)] == own)


def together(pairs: Aligned, traces: Sequence[Ints]) -> tuple[Traces, Ints]:
    """Traces side by side, longest first, and which of them each row is."""
    lengths = np.array([len(t) for t in traces])
    order = np.argsort(-lengths, kind="stable")
    z, y = (np.zeros((len(order), int(lengths.max())), np.int64) for _ in range(2))
    for row, i in enumerate(order):
        z[row, : lengths[i]], y[row, : lengths[i]] = pairs.x[traces[i]], pairs.y[traces[i]]
    return Traces(z, y, lengths[order], np.arange(len(order))), order
