"""A ladder for a limit: rungs along the curve, around what was asked for, and what it promises (`control.feedback`)."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from veilstream.control.adaptive import Ladder
from veilstream.control.charge import Charge
from veilstream.control.controller import Controller, aligned
from veilstream.control.feedback import Feedback
from veilstream.control.policy import Policy
from veilstream.control.replay import Replay
from veilstream.control.stationary import LongRun
from veilstream.errors import InputError
from veilstream.model.information import Array
from veilstream.model.problem import Average, Problem
from veilstream.solvers.search import exact_end, first_weights, slope
from veilstream.solvers.solution import Point, Progress, Solver

SHARES = (0.4, 0.6, 0.75, 0.82, 0.88, 0.92, 0.96, 1.0, 1.04, 1.08, 1.12, 1.18, 1.25, 1.35, 1.5, 1.8)  # of the limit
LOOKS = 20  # weights of a first look at what is felt at each
APART = 1.015  # neighbours differ by this factor at least
LARGEST = 30_000_000  # entries in the table of one rung
CLIPPED = 0.999  # of the distances on the highest rung count in full
NEAR = 1.02  # of the limit: a mean that a stream may start with,
SURE = 1.0  # standard errors, over periods, added to it
LEAST_ROOM = 1.001  # the largest distance is beyond the limit by this factor at least
SHOWN = 1e-9  # a release is in the support of a rung where some memory shows it with more than this


@dataclass(frozen=True, eq=False)
class Climb:
    """A ladder, where each of its rungs operates, and what it promises."""

    ladder: Ladder
    points: tuple[Point, ...]
    felt: tuple[float, ...]  # mean distance of each rung, on the record where there is one
    served: float  # share of readings that the bottom rung keeps within the limit, whatever it draws
    unserved: float  # what the others can add to the excess at most, per step
    forbidden: int = 0  # rungs that leak more than was allowed

    @property
    def start(self) -> Point:
        return self.points[self.ladder.first]

    @property
    def weight(self) -> float:
        """Bits per unit of distortion around the first rung, by its neighbour below."""
        i = self.ladder.first
        return slope(self.points[i - 1], self.points[i]) if i else 0.0

    def words(self, unit: str = "", each: str = "") -> list[str]:
        """What it promises and what not, in sentences. each: the time between moves, in words."""
        rule, first, unit_ = self.ladder.feedback, self.ladder.first, f" {unit}" if unit else ""
        happens, promised = rule.words(unit, each)
        lines = [f"kept by feedback: {happens}; it starts on rung {first}", f"promised: {promised}"]
        if self.forbidden:
            lines[1] = (
                f"! {self.forbidden} rungs leak more than was allowed: the limit of {rule.limit:.4g}{unit_} is not "
                f"promised any more, only kept as well as the {len(self.points)} rungs that are left can; "
                "raise `max_bits` (bits per step) to promise it"
            )
        if self.unserved > 0:
            lines.append(
                f"! {1 - self.served:.1%} of your recorded readings lie farther than the limit from what even rung "
                f"0 may show; such readings are not in that promise, and can add {self.unserved:.2g}{unit_} to the "
                "mean; make the model with finer states (veil fit --resolution), or allow a larger `avg`"
            )
        return lines

    def to_json(self) -> dict[str, Any]:
        rule, charge = self.ladder.feedback, self.charge
        rungs = [{"leakage": p.leakage, "raw_distortion": d} for p, d in zip(self.points, self.felt, strict=True)]
        return {
            "every": rule.every,
            "limit": rule.limit,
            "largest_distance": rule.most,
            "usual": rule.usual,
            "debt": rule.debt * rule.allowed,
            "first": self.ladder.first,
            "rungs": rungs,
            "overshoot": rule.overshoot,
            "promised": not self.forbidden,
            "served": self.served,
            "unserved": self.unserved,
            "entry_bits": charge.entry_bits,
            "change_bits": float(charge.change_bits.max()),
        }

    @property
    def charge(self) -> Charge:
        chain = self.ladder.chain
        assert chain is not None
        return self.ladder.own_meter(chain)


def climb(
    problem: Problem,
    solver: Solver,
    every: int,
    replay: Replay | None = None,
    chosen_on: Replay | None = None,
    max_bits: float | None = None,
    progress: Progress | None = None,
) -> Climb:
    """Rungs from the most accurate release to twice the limit on the mean.

    replay: recorded streams that the limit is about. chosen_on: others, that the first rung is chosen on. max_bits: no
    rung that leaks more per step; the limit is then no longer promised.
    """
    average = problem.average
    if not isinstance(average, Average) or (limit := average.limit) is None:
        raise InputError("`feedback` keeps a mean limit: give one (`avg`)")
    if problem.n_outputs**2 * problem.n_states * problem.chain.phases > LARGEST:
        raise InputError(f"a ladder over {problem.n_states} states is too large; fit fewer")

    pairs = _pairs(problem, solver.windowed(), limit, replay, progress)
    allowed = [(d, p) for d, p in pairs if p.leakage <= (np.inf if max_bits is None else max_bits)]
    if not allowed:
        raise InputError(
            f"no rung leaks as little as {max_bits:g} bits per step; the least is {pairs[-1][1].leakage:.3g}"
        )
    policies = _alike([p.policy for _, p in allowed])
    judge = replay if chosen_on is None else chosen_on
    if judge is None:
        first = first_rung(np.array([[d] for d, _ in allowed]), np.ones(1), limit)
    else:
        sums = np.array([judge.sums_in(every, judge.errors(p)) for p in policies])
        first = first_rung(sums, judge.sums_in(every), limit)
    most = max(_largest(policies[-1], problem, replay), limit * LEAST_ROOM)
    usual = None if replay is None else float(np.median(replay.sums_in(every)))
    rule = Feedback(every, limit, most, [d for d, _ in allowed], usual)
    ladder = Ladder(tuple(policies), rule, first).made_for(problem.chain).proved(problem.chain)
    served, unserved = _served(policies[0], problem, replay, rule)
    kept = tuple(replace(p, policy=q) for (_, p), q in zip(allowed, policies, strict=True))
    return Climb(ladder, kept, tuple(d for d, _ in allowed), served, unserved, len(pairs) - len(allowed))


def _pairs(
    problem: Problem, solver: Solver, limit: float, replay: Replay | None, progress: Progress | None
) -> list[tuple[float, Point]]:
    """The errors that rungs around the limit have, and the rungs, by rising error."""

    def felt(p: Point) -> float:
        return p.distortion if replay is None else replay.error(p.policy)

    [bottom] = exact_end(problem, solver)
    floor = felt(bottom)
    if floor >= limit:
        raise InputError(
            f"a ladder cannot keep {limit:.4g}: the most accurate release has an error of {floor:.4g} on average; "
            "ask for more than that, or fit more states"
        )
    weights = first_weights(problem, LOOKS)
    rough = [felt(p) for p in solver.rough(problem).at(problem, weights, progress)]
    wanted = [share * limit for share in SHARES if floor * APART < share * limit < max(rough)]
    points = [bottom, *solver.at(problem, _weights_at(wanted, weights, np.array(rough)), progress)]
    return _rising([(felt(p), p) for p in points])


def first_rung(felt: Array, readings: Array, limit: float, sure: float = SURE) -> int:
    """The highest whose mean keeps (about) the limit, so many standard errors added.

    felt: sums over periods, rungs x periods; readings: in each period.
    """
    n, periods = readings.sum(), len(readings)
    means = felt.sum(1) / n
    off = felt - means[:, None] * readings
    error = np.sqrt((off**2).sum(1) * periods / max(periods - 1, 1)) / n
    return int(max(np.flatnonzero(means + sure * error <= NEAR * limit), default=0))


def _weights_at(wanted: list[float], weights: Array, felt: Array) -> Array:
    """Weights at which these distances are likely felt: between those of a first look, on logarithms."""
    order = np.argsort(felt)
    tiny = max(float(felt.max()) * 1e-9, 1e-300)
    at = np.interp(np.log(wanted), np.log(np.maximum(felt[order], tiny)), np.log(weights[order]))
    return np.asarray(np.exp(at))


def _rising(pairs: list[tuple[float, Point]]) -> list[tuple[float, Point]]:
    """By rising distance and falling leakage, neighbours some way apart; the most accurate stays."""
    kept: list[tuple[float, Point]] = []
    for d, p in sorted(pairs, key=lambda pair: pair[0]):
        if not kept or (d >= APART * kept[-1][0] and p.leakage < kept[-1][1].leakage):
            kept.append((d, p))
    return kept


def _alike(policies: list[Policy]) -> list[Controller]:
    """With one numbering of memories: one that holds what each of them remembers."""
    finite = [p for p in policies if isinstance(p, Controller)]
    if len(finite) < len(policies):
        raise InputError("a ladder needs finite policies; this method has others")
    return aligned(finite)


def _largest(top: Controller, problem: Problem, replay: Replay | None) -> float:
    """The distance that nearly all releases of the highest rung stay within: what a distance counts as at most."""
    shown = LongRun(problem.chain, top).joint
    far, share = problem.distortion, shown
    if replay is not None:
        law = shown / np.maximum(shown.sum(1, keepdims=True), 1e-300)
        far, share = replay.table, law[replay.states]
    order = np.argsort(far, axis=None)
    below = np.cumsum(share.ravel()[order])
    return float(far.ravel()[order][np.searchsorted(below, CLIPPED * below[-1])])


def _served(bottom: Policy, problem: Problem, replay: Replay | None, rule: Feedback) -> tuple[float, float]:
    """Share of readings that the bottom rung keeps within the limit whatever it draws; mean excess of the others."""
    table = bottom.table(np.inf)
    assert table is not None
    shows = np.asarray((table > SHOWN).any(0))  # |Z| x |Y|
    if replay is None:
        far, weight = np.where(shows, problem.distortion, 0).max(1), problem.chain.stationary
    else:
        far = np.where(shows[replay.states], replay.table, 0).max(1)
        weight = np.full(len(far), 1 / len(far))
    over = np.maximum(np.minimum(far, rule.most) - rule.limit, 0)
    return float(weight @ (over <= 0)), float(weight @ over)
