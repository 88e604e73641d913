"""From a limit to a weight: a mean distortion or a budget of bits, met exactly.

The achievable pairs (distortion, leakage) form a convex set, and each weight touches it at one point. The search
narrows the weight around the limit; where the limit falls on a straight piece, time is shared between the policies
at its two ends by a public schedule.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from veilstream.core.chain import MarkovChain
from veilstream.core.course import Course
from veilstream.core.information import Array
from veilstream.core.problem import Average, Budget, Problem
from veilstream.core.schedule import Schedule
from veilstream.core.steady import rates
from veilstream.errors import InputError
from veilstream.solvers.causal_ba import constants
from veilstream.solvers.solution import Level, Point, Progress, Solver

ROUNDS = 5
WEIGHTS_A_ROUND = 10
FEW, NEAR = 5, 1.5  # weights of the first round with a public clock, around the one without it
CLOSE_BY_CLOCK = 5e-3  # the same with a public clock, where there is no sharing of time
CLOSE = 2e-3  # a single policy this close (relative) to the curve is taken as it is
SWITCHING = 1e-2  # what switching may add to the leakage of a schedule, relative
LONGEST_BLOCK = 1024
STEPS_OF_A_BLOCK = 64  # in which its share is raised until the limit holds


@dataclass(frozen=True)
class Axis:
    """The limited quantity and the one to minimise; weights go up as distortion goes down."""

    limit: float
    of: Callable[[Point], float]
    other: Callable[[Point], float]
    unit: str
    least: float = 0.0  # of the limited quantity, for any policy


def axis_of(constraint: Average | Budget, problem: Problem, course: Course | None = None) -> Axis:
    """course: a limit on the mean distortion is about these recorded streams, not about the long run of the chain."""
    if isinstance(constraint, Budget):
        return Axis(constraint.bits, lambda p: p.leakage, lambda p: p.distortion, "bits")
    assert constraint.limit is not None
    if course is None:
        least = least_distortion(problem)
        return Axis(constraint.limit, lambda p: p.distortion, lambda p: p.leakage, "distortion", least)
    known: dict[int, tuple[Point, float]] = {}  # the point too, or its id might be another's one day

    def felt(p: Point) -> float:
        if id(p) not in known:
            known[id(p)] = p, course.felt(p.policy)
        return known[id(p)][1]

    return Axis(constraint.limit, felt, lambda p: p.leakage, "distortion", course.least(problem.allowed))


def meet(
    problem: Problem,
    solver: Solver,
    constraint: Average | Budget,
    progress: Progress | None = None,
    course: Course | None = None,
) -> tuple[Point, float]:
    """The point within the limit that is best on the other axis, and the weight it is best for."""
    axis = axis_of(constraint, problem, course)
    silent = constants(problem, 1)
    enough = [p for p in silent if axis.of(p) <= axis.limit + 1e-7 and p.leakage <= 1e-7]
    if enough and (isinstance(constraint, Average) or axis.limit <= 1e-7):
        return replace(min(enough, key=lambda p: p.distortion), startup_bits=0.0), 0.0
    rough = solver.rough(problem)
    found = silent + exact_end(problem, rough if problem.chain.phases > 1 else solver)
    if axis.limit < axis.least * (1 - 1e-9):
        raise InputError(
            f"infeasible limit: no release has a mean distortion below {axis.least:g}, {axis.limit:g} was asked for; "
            "allow more, or make a model with finer states"
        )
    clocked = problem.chain.phases > 1  # every weight takes long: fewer of them, chosen with more care
    weights = nearby_weights(problem, rough, constraint, course) if clocked else first_weights(problem)
    tried = list[tuple[float, Point]]()
    for i in range(ROUNDS):
        tell = (lambda f, what, i=i: progress((i + f) / ROUNDS, what)) if progress else None
        was, points = rough, rough.points(problem, weights, tell)
        found, tried = found + points, tried + list(zip(weights.tolist(), points, strict=True))
        within, beyond = bracket(found, axis)
        done = beyond is None or close_enough(within, beyond, axis, CLOSE_BY_CLOCK if clocked else CLOSE)
        done = done or (clocked and axis.of(within) > (1 - CLOSE_BY_CLOCK) * axis.limit)
        if done and rough is solver:
            break
        if done or (clocked and i > 0):
            rough = solver  # the region is found: now in full
        if beyond is not None and clocked:
            here = [w for w, p in tried if p.policy is within.policy]
            weights = np.mean(here) * np.array([0.985, 1.0, 1.015]) if done and here else closer(tried, axis)
            tried = [] if rough is solver and was is not solver else tried  # a rough point may be a little off
        elif beyond is not None:
            weights = narrower(weights, within, beyond)
            weights = weights if rough is not solver else weights[len(weights) // 2 - 1 :][:3]
    if beyond is None:
        return within, 0.0 if within.leakage <= 1e-9 else float(weights[0])
    weight = slope(within, beyond)
    if close_enough(within, beyond, axis) or not can_share(problem, within, beyond):
        return within, weight
    return share_time(problem, within, beyond, axis), weight


def first_weights(problem: Problem) -> Array:
    """A wide geometric grid around (bits at stake) / (distortion at stake)."""
    stake = float((problem.chain.stationary @ problem.distortion).min()) - least_distortion(problem)
    scale = max(problem.chain.entropy_rate, 0.01) / max(stake, 1e-9)
    return scale * np.geomspace(1 / 32, 64, 2 * WEIGHTS_A_ROUND)


def nearby_weights(problem: Problem, rough: Solver, constraint: Average | Budget, course: Course | None) -> Array:
    """Around the weight at which the chain that does not look at its clock meets the limit, which is quickly found."""
    chain = problem.chain
    plain = replace(problem, chain=MarkovChain(chain.transition, chain.initial, chain.histories))
    try:
        weight = meet(plain, rough, constraint, course=course)[1]
    except InputError:
        weight = 0.0
    return weight * np.geomspace(1 / NEAR, NEAR, FEW) if 0 < weight < np.inf else first_weights(problem)


def least_distortion(problem: Problem) -> float:
    d = np.where(problem.allowed, problem.distortion, np.inf)
    return float(problem.chain.stationary @ d.min(1))


def exact_end(problem: Problem, solver: Solver) -> list[Point]:
    """The end of the curve that no finite weight reaches: only nearest releases, chosen to leak least."""
    d = np.where(problem.allowed, problem.distortion, np.inf)
    return solver.points(problem.only(d <= d.min(1, keepdims=True) * (1 + 1e-12), average=False), np.zeros(1))


def hull(points: list[Point]) -> list[Point]:
    """The lower left convex hull, by rising distortion (and so by falling leakage)."""
    kept: list[Point] = []
    for p in sorted(points, key=lambda p: (p.distortion, p.leakage)):
        if kept and p.leakage >= kept[-1].leakage - 1e-12:
            continue
        while len(kept) > 1 and slope(kept[-2], kept[-1]) <= slope(kept[-1], p):
            kept.pop()
        kept.append(p)
    return kept


def slope(p: Point, q: Point) -> float:
    """Bits per unit of distortion between two points, as a weight >= 0."""
    span = abs(q.distortion - p.distortion)
    return abs(p.leakage - q.leakage) / span if span > 0 else np.inf


def bracket(points: list[Point], axis: Axis) -> tuple[Point, Point | None]:
    """Neighbours on the hull, one within the limit and one beyond it (None: the best of all is within)."""
    curve = hull(points)
    within = [p for p in curve if axis.of(p) <= axis.limit * (1 + 1e-9) + 1e-12]
    if not within:
        raise InputError(
            f"infeasible limit: the least {axis.unit} found is {min(map(axis.of, curve)):g}, "
            f"{axis.limit:g} was asked for"
        )
    best = min(within, key=axis.other)
    beyond = [p for p in curve if p not in within and axis.other(p) < axis.other(best)]
    return best, min(beyond, key=axis.of) if beyond else None


def on_chord(within: Point, beyond: Point, axis: Axis) -> tuple[float, float]:
    """Share of time for `within`, and the other quantity, where the chord crosses the limit."""
    share = (axis.of(beyond) - axis.limit) / (axis.of(beyond) - axis.of(within))
    return share, share * axis.other(within) + (1 - share) * axis.other(beyond)


def close_enough(within: Point, beyond: Point, axis: Axis, close: float = CLOSE) -> bool:
    _, best = on_chord(within, beyond, axis)
    return axis.other(within) - best <= close * axis.other(within)


def narrower(weights: Array, within: Point, beyond: Point) -> Array:
    """New weights around the chord's own: a straight piece is confirmed, a curved one is split."""
    centre = slope(within, beyond)
    reach = (weights[-1] / weights[0]) ** (1 / 4)
    return centre * np.geomspace(1 / reach, reach, WEIGHTS_A_ROUND + 1)


def closer(tried: list[tuple[float, Point]], axis: Axis) -> Array:
    """Three weights around the one at which the limit should be met, between the nearest tried on both sides of it."""
    tried = sorted(tried, key=lambda one: one[0])
    at = np.log([weight for weight, _ in tried])
    over = np.array([axis.of(p) for _, p in tried]) - axis.limit
    crossed = np.flatnonzero((over[1:] > 0) != (over[:-1] > 0))
    if not crossed.size:  # further out, as far as the last two say
        end = np.array([0, 1] if abs(over[0]) < abs(over[-1]) else [-1, -2])
        width = at[end[0]] - at[end[1]]
        rise = (over[end[0]] - over[end[1]]) / width
        ahead = np.clip(-over[end[0]] / (rise * width) if rise else 1.0, 0.5, 10.0)
        return np.asarray(np.exp(at[end[0]] + width * ahead * np.array([0.75, 1.0, 1.5])))
    k = min(crossed, key=lambda k: at[k + 1] - at[k])
    width = at[k + 1] - at[k]
    centre = at[k] + width * np.clip(over[k] / (over[k] - over[k + 1]), 0.1, 0.9)
    return np.asarray(np.exp(centre + width * np.array([-0.1, 0.0, 0.1])))


def can_share(problem: Problem, within: Point, beyond: Point) -> bool:
    """Whether the rates of a schedule of the two can be computed."""
    return Schedule((within.policy, beyond.policy), (1, 1)).law_steps(problem.chain) is not None


def share_time(problem: Problem, within: Point, beyond: Point, axis: Axis) -> Point:
    """A schedule of the two ends, in blocks long enough that switching costs little; the limit holds with it."""
    share, best = on_chord(within, beyond, axis)
    block = 64
    while True:
        n_within = min(max(int(np.ceil(share * block)), 1), block - 1)
        while True:
            schedule = Schedule((within.policy, beyond.policy), (n_within, block - n_within))
            point = Point(schedule, *rates(problem, schedule), Level.COMPUTED, status=within.status)
            if axis.of(point) <= axis.limit * (1 + 1e-9) or n_within == block - 1:
                break
            n_within = min(n_within + max(1, block // STEPS_OF_A_BLOCK), block - 1)
        if axis.of(point) > axis.limit * (1 + 1e-9):
            point = within
        if axis.other(point) - best <= SWITCHING * abs(best) or block >= LONGEST_BLOCK:
            break
        block *= 2
    if axis.other(point) >= axis.other(within):
        return within
    return replace(point, startup_bits=within.startup_bits)
