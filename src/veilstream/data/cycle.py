"""The hour of the day: a chain with a public clock, where held-out log-loss says that it pays.

    P_phi(x,x') = ( sum_psi k(phi - psi) N_psi(x,x') + strength P(x,x') ) / its row sum,     k(d) = 1 - |d|/(width + 1)

N_phi are the transitions seen at phase phi, pooled with those of neighbouring phases, P the chain without a clock. By
week weekdays and weekends have phases of their own, and P is then the chain of the same hour of any day. Number of
phases, width and strength are those with the least held-out log-loss, every fold predicted from the others alone; the
clock stays only where it gains more than (twice) the standard error of its gain, day by day.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.data.card import transition_counts
from veilstream.data.crossval import FOLDS, CrossValidation, Smoothing, fold_of, pseudo_counts
from veilstream.data.spec import FitSpec, Recording
from veilstream.data.trajectories import Runs
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.clock import DAY_S, Clock, steps_a_day
from veilstream.units import format_duration

CYCLES = ("auto", "none", "day", "week")
PHASES = (48, 24, 12, 8, 6)  # a day, of those that its steps can be divided by
WIDTHS = (0, 1, 2, 3, 5)
STRENGTHS = (2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
RENEWED_WIDTH = 1
LEAST_DAYS = {"day": 2, "week": 14}  # without which a cycle is refused
DAYS = 7  # from which one is looked for unasked
GAIN = 0.005  # of the loss: a clock that gains less is not worth its work
ERRORS = 2.0  # standard errors of the gain that it must pass: the best of many shapes looks a little too good
LARGEST = 60_000  # transitions of a cycle, over all phases: with many states, fewer phases
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shape:
    """Hyper-parameters of one cycle."""

    n: int
    width: int
    strength: float


@dataclass(frozen=True, eq=False)
class CycleChoice:
    """The clock that was chosen (None: none is worth it), and held-out log-losses, bits per step."""

    clock: Clock | None
    held_out: CrossValidation | None
    plain: float | None
    gain_se: float = 0.0
    shapes: tuple[Shape, ...] = ()  # of the day, and of the week

    def to_json(self) -> dict[str, Any] | None:
        if self.clock is None:
            return None
        last = self.shapes[-1]
        return {
            **self.clock.export(),
            "phases": self.clock.phases,
            "width": last.width,
            "strength": last.strength,
            "held_out_bits": None if self.held_out is None else self.held_out.loss,
            "held_out_bits_without": self.plain,
            "gain_se": self.gain_se,
        }


NONE = CycleChoice(None, None, None)


@dataclass(frozen=True, eq=False)
class Timed:
    """Every transition of the runs with the part of the day it begins in: x -> y, in blocks, in folds.

    A block is a day: what a person does at one hour of one day must not foretell itself.
    """

    place: Ints  # in the runs, one after the other
    x: Ints
    y: Ints
    slot: Ints  # of the finest phases of a day
    weekend: NDArray[np.bool_]
    block: Ints
    fold: Ints
    n: int  # states
    fine: int  # phases of a day

    @classmethod
    def of(cls, runs: Runs, n: int, fine: Clock, seed: int) -> Timed:
        flat, ends = np.concatenate(runs.sequences), np.cumsum([len(s) for s in runs.sequences])
        step = np.concatenate([first + np.arange(len(s)) for first, s in zip(runs.first, runs.sequences, strict=True)])
        at = np.setdiff1d(np.arange(len(flat)), ends - 1)
        assert fine.period_s is not None
        days, block = np.unique(step[at] * fine.period_s // DAY_S, return_inverse=True)
        fold = fold_of([days[:1]] * len(days), FOLDS, seed)
        weekend, slot = np.divmod(fine.phase(step[at]), fine.n)
        return cls(at, flat[at], flat[at + 1], slot, weekend > 0, block, fold[block], n, fine.n)

    def counts(self) -> Floats:
        """Transitions by day type (weekday, weekend) and phase, 2 x phases x n x n."""
        every = np.arange(len(self.x))
        return self.counted(every, self.x * self.n + self.y, self.n**2).reshape(2, self.fine, self.n, self.n)

    def counted(self, which: Ints, what: Ints, most: int) -> Floats:
        """How often some transitions were of each kind, by day type and phase, 2 x phases x most."""
        day = (self.weekend * self.fine + self.slot)[which]
        return np.bincount(day * most + what, minlength=2 * self.fine * most).reshape(2, self.fine, most).astype(float)


def with_clock(
    chain: MarkovChain,
    held_out: CrossValidation | None,
    runs: Runs,
    recording: Recording,
    smoothing: Smoothing,
    spec: FitSpec,
) -> tuple[MarkovChain, CrossValidation | None, CycleChoice]:
    """The chain as it was, or with the clock that was asked for or pays."""
    why_not = no_clock(chain, runs, recording, spec.cycle)
    if spec.cycle == "none" or (why_not and spec.cycle == "auto"):
        return chain, held_out, NONE
    if why_not:
        raise InputError(f"`cycle={spec.cycle!r}`: {why_not}")
    steps = steps_a_day(recording.period_s)
    assert steps is not None
    numbers = [k for k in divided(steps) if k * len(chain) ** 2 <= LARGEST] or divided(steps)[-1:]
    zone = spec.zone or (None if spec.tz == "own" else spec.tz)  # None: that of the record
    fine = Clock("week", math.lcm(*numbers), recording.period_s, recording.epoch_s, zone)  # what each can be made of
    choice, counts = choose(Timed.of(runs, len(chain), fine, spec.seed), numbers, fine, smoothing, spec.cycle)
    if choice.clock is None:
        return chain, held_out, choice
    P = cycle_of(counts, chain.transition, choice.shapes)
    return MarkovChain(P, name=chain.name, counts=chain.counts, clock=choice.clock), choice.held_out, choice


def renewed(old: MarkovChain, weight: float, runs: Runs, name: str) -> MarkovChain:
    """A chain with the old clock on new data; the old one counts for `weight` transitions a row and phase."""
    clock, n = old.clock, len(old)
    kinds = clock.phases // clock.n
    data = Timed.of(runs, n, replace(clock, kind="week"), 0)
    counts = data.counts()
    seen = pooled(counts, clock.n, RENEWED_WIDTH, kinds > 1).reshape(-1, n, n)
    P = (seen + weight * old.cycle) / (seen.sum(-1, keepdims=True) + weight)
    return MarkovChain(P, name=name, counts=counts.sum((0, 1)), clock=clock)


def no_clock(chain: MarkovChain, runs: Runs, recording: Recording, cycle: str) -> str:
    """Why there can be no cycle; empty if there can."""
    if cycle not in CYCLES:
        raise InputError(f"`cycle` must be one of {', '.join(CYCLES)}, found {cycle[:20]!r}")
    if recording.period_s is None:
        return "the times are step numbers, which have no hour"
    steps = steps_a_day(recording.period_s)
    length = format_duration(recording.period_s)
    if steps is None or not divided(steps):
        return f"a day cannot be divided into phases of whole steps of {length}"
    if not recording.holds or recording.gaps != "split":
        return "steps must follow each other: leave out `gaps='bridge'`, `fill='close'` and `noise='drop'`"
    if chain.order > 1:
        return f"a clock is for chains of order 1, this has order {chain.order}"
    seen = np.unique(runs.source.step * recording.period_s // DAY_S)
    least = DAYS if cycle == "auto" else LEAST_DAYS.get(cycle, 0)
    if len(seen) < max(least, 2):
        return f"it needs a record of at least {least} days, found {len(seen)}"
    return ""


def divided(steps: int) -> list[int]:
    """The numbers of phases that a day of so many steps may have; none where there are too many steps, or too few."""
    if not 2 <= steps <= 1440:
        return []
    return [k for k in PHASES if steps % k == 0] or ([steps] if steps < PHASES[0] else [])


# --- the choice ------------------------------------------------------------------------------------------


def choose(
    data: Timed, numbers: list[int], fine: Clock, smoothing: Smoothing, cycle: str
) -> tuple[CycleChoice, Floats]:
    """Which clock, and all counts on its finest phases."""
    folds = [_Fold(data, k, smoothing) for k in np.unique(data.fold)]
    block = np.concatenate([data.block[f.test] for f in folds])
    plain = CrossValidation.of(1, _bits(np.concatenate([f.prior for f in folds])), block)
    day, bits = _best(folds, numbers, None)
    best, shapes = CrossValidation.of(1, bits, block), [day]
    worth = cycle != "auto" or _pays(best, plain, plain)
    if cycle != "day":
        week, bits = _best(folds, [day.n], day)
        by_week = CrossValidation.of(1, bits, block)
        if cycle == "week" or _pays(by_week, best, plain):
            best, shapes = by_week, [day, week]
            worth = worth or _pays(best, plain, plain)
    kind = "day" if len(shapes) == 1 else "week"
    clock = Clock(kind, day.n, fine.period_s, fine.epoch_s, fine.zone) if worth else None
    choice = CycleChoice(clock, best, plain.loss, best.gain_over(plain)[1], tuple(shapes))
    return choice, data.counts()


def _pays(new: CrossValidation, old: CrossValidation, plain: CrossValidation) -> bool:
    gain, se = new.gain_over(old)
    return gain > max(ERRORS * se, GAIN * plain.loss)


def _bits(p: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log2(p))


class _Fold:
    """One fold to predict: the counts of the others at the pairs it needs."""

    def __init__(self, data: Timed, k: int, smoothing: Smoothing) -> None:
        self.test = np.flatnonzero(data.fold == k)
        train = np.flatnonzero(data.fold != k)
        n, fine = data.n, data.fine
        cuts = np.flatnonzero(np.diff(data.place[train]) != 1) + 1
        runs = [np.append(data.x[b], data.y[b[-1]]) for b in np.split(train, cuts)]
        counts = transition_counts(runs, n) + pseudo_counts(smoothing, runs)
        P = counts / counts.sum(1, keepdims=True)
        pair = data.x * n + data.y
        pairs, self.pair = np.unique(pair[self.test], return_inverse=True)
        self.slot, self.weekend = data.slot[self.test], data.weekend[self.test].astype(int)
        self.x, self.fine = data.x[self.test], fine
        self.rows = data.counted(train, data.x[train], n)
        asked = train[np.isin(pair[train], pairs)]
        self.pairs = data.counted(asked, np.searchsorted(pairs, pair[asked]), len(pairs))
        self.prior = P[data.x[self.test], data.y[self.test]]

    def predicted(self, n: int, width: int, strengths: Sequence[float], prior: Floats, by_week: bool) -> list[Floats]:
        """The probability of every transition of the fold, for each strength."""
        kind = self.weekend if by_week else np.zeros_like(self.weekend)
        slot = self.slot * n // self.fine
        seen = pooled(self.pairs, n, width, by_week)[kind, slot, self.pair]
        visits = pooled(self.rows, n, width, by_week)[kind, slot, self.x]
        return [(seen + strength * prior) / (visits + strength) for strength in strengths]


def _best(folds: list[_Fold], numbers: list[int], day: Shape | None) -> tuple[Shape, Floats]:
    """The shape of least loss, and its bits; day: of the day that a week falls back on."""
    best: tuple[float, Shape, Floats] | None = None
    priors = [f.prior for f in folds]
    if day is not None:
        priors = [f.predicted(day.n, day.width, [day.strength], f.prior, False)[0] for f in folds]
    for n in numbers:
        for width in WIDTHS:
            each = [f.predicted(n, width, STRENGTHS, p, day is not None) for f, p in zip(folds, priors, strict=True)]
            for i, strength in enumerate(STRENGTHS):
                bits = _bits(np.concatenate([p[i] for p in each]))
                if best is None or bits.mean() < best[0]:
                    best = float(bits.mean()), Shape(n, width, strength), bits
    assert best is not None
    return best[1], best[2]


# --- counts to chains --------------------------------------------------------------------------------------


def pooled(counts: Floats, n: int, width: int, by_week: bool) -> Floats:
    """2 x fine phases x ... -> (weekday, weekend or all) x n x ..., pooled with neighbouring phases of the day."""
    counts = counts if by_week else counts.sum(0, keepdims=True)
    grouped = counts.reshape(len(counts), n, counts.shape[1] // n, *counts.shape[2:]).sum(2)
    apart = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    near = np.maximum(1 - np.minimum(apart, n - apart) / (width + 1), 0.0)
    return np.asarray(np.einsum("pq,dq...->dp...", near, grouped))


def cycle_of(counts: Floats, P: Floats, shapes: tuple[Shape, ...]) -> Floats:
    """phases x n x n of the whole record, the day first and then the week that falls back on it."""
    prior = P[None, None]
    for shape, by_week in zip(shapes, (False, True), strict=False):
        seen = pooled(counts, shape.n, shape.width, by_week)
        prior = (seen + shape.strength * prior) / (seen.sum(-1, keepdims=True) + shape.strength)
    return np.asarray(prior.reshape(-1, *P.shape))
