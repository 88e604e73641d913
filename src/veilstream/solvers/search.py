"""From a limit to a weight: a mean distortion or a budget of bits, met exactly.

The achievable pairs (distortion, leakage) form a convex set, and each weight touches it at one point. The search
narrows the weight around the limit; where the limit falls on a straight piece, time is shared between the policies
at its two ends by a public schedule.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from veilstream.control.controller import Controller, aligned, schedule
from veilstream.control.policy import Policy
from veilstream.control.replay import Replay
from veilstream.control.stationary import rates
from veilstream.errors import Infeasible, InputError
from veilstream.model.information import Array
from veilstream.model.problem import Average, Budget, Problem
from veilstream.solvers.solution import Level, Point, Progress, Solver
from veilstream.solvers.starts import constants

LOOKS = 10  # weights from one end of the curve to the other
ROUNDS = 8  # weights tried one by one: to find the region, and in full
RIGHT = 2e-4, 5e-3  # a policy this close (relative) to the limit is taken; with a public clock, where weights take long
ROUGH = 2e-2  # the same while the region is looked for
SAME = 1e-3  # of the weight: ends nearer than this to each other lie on one straight piece
ELASTIC, STEEP = 0.7, (0.2, 5.0)  # d log (limited quantity) / d log (weight), before it is known, and its bounds
INSIDE = RIGHT[0] / 2  # a little within the limit is aimed at
LONGEST = 4.0  # factor of the weight, in one step outwards
CLOSE = 3e-4  # a single policy this close (relative) to the curve is taken as it is
SWITCHING = 1e-2  # what switching may add to the leakage of a schedule, relative
LONGEST_BLOCK = 1024


@dataclass(frozen=True)
class Axis:
    """The limited quantity and the one to minimise; weights go up as distortion goes down."""

    limit: float
    far: Callable[[Point], float]  # the distortion: one of the two
    budget: bool = False  # the limit is one of bits
    least: float = 0.0  # of the limited quantity, for any policy

    @property
    def unit(self) -> str:
        return "bits" if self.budget else "distortion"

    def of(self, p: Point) -> float:
        """The limited quantity."""
        return p.leakage if self.budget else self.far(p)

    def other(self, p: Point) -> float:
        return self.far(p) if self.budget else p.leakage

    def over(self, p: Point) -> float:
        """log (limited quantity / limit)"""
        return float(np.log(max(self.of(p) / max(self.limit, 1e-300), 1e-9)))

    def within(self, p: Point) -> bool:
        return self.of(p) <= self.limit * (1 + 1e-9) + 1e-12

    def check(self, unit: str = "") -> None:
        """Raises where no policy can keep the limit. unit: that it was asked for in."""
        if self.limit < self.least * (1 - 1e-9):
            least, limit = (f"{x:.4g} {unit}".rstrip() for x in (self.least, self.limit))
            raise Infeasible(
                f"infeasible limit: no release has a mean error below {least}, {limit} was asked for",
                "allow more, or make a model with finer states",
            )


def axis_of(constraint: Average | Budget, problem: Problem, replay: Replay | None = None) -> Axis:
    """replay: a limit on the mean distortion is about these recorded streams, not about the long run of the chain."""
    if isinstance(constraint, Budget):
        return Axis(constraint.bits, distortion_of, budget=True)
    assert constraint.limit is not None
    if replay is None:
        return Axis(constraint.limit, distortion_of, least=least_distortion(problem))
    known: dict[int, tuple[Point, float]] = {}  # the point too, or its id might be another's one day

    def felt(p: Point) -> float:
        if id(p) not in known:
            known[id(p)] = p, replay.error(p.policy)
        return known[id(p)][1]

    return Axis(constraint.limit, felt, least=replay.least(problem.allowed))


def distortion_of(p: Point) -> float:
    return p.distortion


def meet(
    problem: Problem,
    solver: Solver,
    constraint: Average | Budget,
    progress: Progress | None = None,
    replay: Replay | None = None,
    shares: bool = True,
) -> tuple[Point, float]:
    """The point within the limit that is best on the other axis, and the weight it is best for.

    shares: whether two policies may take turns.
    """
    axis = axis_of(constraint, problem, replay)
    silent = constants(problem, 1)
    enough = [p for p in silent if axis.of(p) <= axis.limit + 1e-7 and p.leakage <= 1e-7]
    if enough and (isinstance(constraint, Average) or axis.limit <= 1e-7):
        return replace(min(enough, key=lambda p: p.distortion), startup_bits=0.0), 0.0
    plain, tell = solver.windowed(), progress or (lambda share, what: None)
    axis.check()
    # roughly, for the region: from one weight on
    rough, weights = plain.rough(problem), first_weights(problem)[LOOKS // 2 :][:1]
    looked = rough.at(problem, weights, lambda share, what: tell(share / 3, what))
    beyond = axis.within(looked[0]) != axis.budget  # on its side of the limit
    end = [] if beyond else exact_end(problem, rough)
    trail = Trail(axis, [*silent, *end], [(float(weights[0]), looked[0])])
    trail.close_in(problem, rough, ROUNDS, ROUGH, lambda share, what: tell((1 + share) / 3, what))
    if trail.ends[1] is None:
        best = trail.best
        return best, 0.0 if best.leakage <= 1e-9 else trail.weight_of(best)
    # in full, around where the limit is met
    if any(p is trail.ends[0] for p in end):
        end = exact_end(problem, plain)
    weight = trail.next_weight()
    warm = trail.nearest(weight) if plain.carries(problem) else None
    [point] = plain.at(problem, np.array([weight]), lambda share, what: tell((2 + share) / 3, what), warm)
    full = Trail(axis, [*silent, *end, *trail.points], [(weight, point)], trail.rise)
    full.close_in(problem, plain, ROUNDS, RIGHT[problem.chain.phases > 1])
    best, (left, right) = full.best, full.ends
    found = [finer(problem, solver, full, best)]
    worth = CLOSE * axis.other(best)  # less than the chord saves
    if (
        right is not None
        and shares
        and axis.other(best) - on_chord(left, right, axis)[1] > worth
        and all(can_share(problem, p.policy) for p in (left, right))
    ):
        found.append((share_time(problem, left, right, axis), slope(left, right)))
    return min(found, key=lambda one: axis.other(one[0]))


def finer(problem: Problem, solver: Solver, trail: "Trail", best: Point) -> tuple[Point, float]:
    """The point with a memory made to measure, the weight moved until it meets the limit again."""
    weight = trail.weight_of(best)
    grown = solver.grown(problem, weight, best)
    if grown.policy is best.policy:
        return best, weight
    own = Trail(trail.axis, [best], [(weight, grown)], trail.rise, exactly=True)
    own.close_in(problem, solver, ROUNDS, RIGHT[0])
    return own.best, weight if own.best is best else own.weight_of(own.best)


class Trail:
    """Weights tried and what was found at each; `others` are points at no weight. Closes in on the limit."""

    def __init__(
        self,
        axis: Axis,
        others: list[Point],
        tried: list[tuple[float, Point]],
        rise: float | None = None,
        exactly: bool = False,
    ) -> None:
        self.axis, self.others, self.tried = axis, others, tried
        self.exactly = exactly  # whether the limit is to be met by a point that was tried
        self._rise = rise  # d log (limited quantity) / d log (weight), as another trail knew it

    @property
    def points(self) -> list[Point]:
        return [p for _, p in self.tried]

    @property
    def ends(self) -> tuple[Point, Point | None]:
        return bracket([*self.others, *self.points], self.axis)

    @property
    def best(self) -> Point:
        """Of all points within the limit, on the hull or not."""
        points = [p for p in (*self.others, *self.points) if self.axis.within(p)]
        return min(points, key=self.axis.other) if points else self.ends[0]

    def weight_of(self, point: Point) -> float:
        """The one it was found at, else by the slope of the hull there."""
        left, right = self.ends
        own = [w for w, p in self.tried if p is point]
        return own[0] if own else slope(left, right) if right is not None else self.tried[0][0]

    def nearest(self, weight: float) -> Point:
        """The point that was tried at the nearest weight."""
        return min(self.tried, key=lambda one: abs(np.log(one[0] / weight)))[1]

    def right(self, close: float) -> bool:
        """Whether the limit is met: nearly, or so that a chord of the hull would hardly be better."""
        if any(self.axis.within(p) and self.axis.of(p) >= (1 - close) * self.axis.limit for p in self.points):
            return True
        if self.exactly or not any(map(self.axis.within, (*self.others, *self.points))):
            return False
        left, right = self.ends
        return right is None or (left in self.points and close_enough(left, right, self.axis))

    def close_in(
        self, problem: Problem, solver: Solver, rounds: int, close: float, progress: Progress | None = None
    ) -> None:
        for k in range(rounds):
            if self.right(close) or self.straight or self.stuck:
                return
            weight = self.next_weight()
            [found] = solver.at(problem, np.array([weight]), warm=self.nearest(weight))
            self.tried.append((weight, found))
            if progress:
                progress((k + 1) / rounds, f"weight {weight:.4g}")

    @property
    def over(self) -> list[tuple[float, float]]:
        """log weight, and how far over the limit each point is."""
        return [(float(np.log(w)), self.axis.over(p)) for w, p in self.tried]

    @property
    def straight(self) -> bool:
        """Whether the limit falls into a jump between two weights that are as good as one."""
        ends = crossing(self.over)
        return ends is not None and ends[1][0] - ends[0][0] < SAME

    @property
    def stuck(self) -> bool:
        """Whether the limit is out of reach and a much larger weight has changed next to nothing."""
        if len(self.tried) < 2 or any(map(self.axis.within, (*self.others, *self.points))):
            return False
        (a, f_a), (b, f_b) = sorted(self.over, key=lambda one: one[1])[:2]
        return abs(a - b) > 1 and abs(f_a - f_b) < ROUGH

    @property
    def rise(self) -> float:
        """d log (limited quantity) / d log (weight) around the limit."""
        usual = ELASTIC if self.axis.budget else -ELASTIC
        return rise(self.over, usual if self._rise is None else self._rise)

    def next_weight(self) -> float:
        """Where the limit should be met: between the nearest weights on both sides of it, or further out."""
        return float(np.exp(root(self.over, self.rise, INSIDE, np.log(LONGEST))))


def crossing(tried: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """The nearest neighbours (x, f) with a change of sign of f between them."""
    ordered = sorted(tried)
    ends = [(p, q) for p, q in pairwise(ordered) if (p[1] > 0) != (q[1] > 0)]
    return min(ends, key=lambda both: both[1][0] - both[0][0], default=None)


def rise(tried: Sequence[tuple[float, float]], known: float) -> float:
    """df/dx around the root: by the two points around it or nearest to it, of the sign and some of the size known."""
    (a, f_a), (b, f_b) = crossing(tried) or (*sorted(tried, key=lambda one: abs(one[1])), *tried)[:2]
    if a == b:
        return known
    return float(np.sign(known) * np.clip((f_b - f_a) / (b - a) * np.sign(known), *STEEP))


def root(
    tried: Sequence[tuple[float, float]], rise: float = np.inf, inside: float = 0.0, longest: float = np.inf
) -> float:
    """Where a monotone f is 0, from points (x, f): by regula falsi between two, or outwards as it rises, not too far.

    inside: by so much below 0 between two points, nearly as much beyond it outwards, so that it is crossed.
    """
    ends = crossing(tried)
    if ends is not None:
        (a, f_a), (b, f_b) = ends
        return float(a + (b - a) * np.clip((f_a + inside) / (f_a - f_b), 0.05, 0.95))
    x, f = min(tried, key=lambda one: abs(one[1]))
    far = -f / rise
    far += np.sign(far) * 0.6 * inside / abs(rise)
    return float(x + np.clip(far, -longest, longest))


def first_weights(problem: Problem, n: int = LOOKS) -> Array:
    """A wide geometric grid around (bits at stake) / (distortion at stake)."""
    stake = float((problem.chain.stationary @ problem.distortion).min()) - least_distortion(problem)
    scale = max(problem.chain.entropy_rate, 0.01) / max(stake, 1e-9)
    return np.asarray(scale * np.geomspace(1 / 32, 64, n))


def least_distortion(problem: Problem) -> float:
    d = np.where(problem.allowed, problem.distortion, np.inf)
    return float(problem.chain.stationary @ d.min(1))


def exact_end(problem: Problem, solver: Solver) -> list[Point]:
    """The end of the curve that no finite weight reaches: only nearest releases, chosen to leak least."""
    if not solver.sharp:
        return []
    d = np.where(problem.allowed, problem.distortion, np.inf)
    return solver.at(problem.only(d <= d.min(1, keepdims=True) * (1 + 1e-12), average=False), np.zeros(1))


def slope(p: Point, q: Point) -> float:
    """Bits per unit of distortion between two points, as a weight >= 0."""
    span = abs(q.distortion - p.distortion)
    return abs(p.leakage - q.leakage) / span if span > 0 else np.inf


def bracket(points: list[Point], axis: Axis) -> tuple[Point, Point | None]:
    """Neighbours on the convex hull, one within the limit and one beyond it (None: the best of all is within)."""
    within = [p for p in points if axis.within(p)]
    if not within:
        raise InputError(
            f"infeasible limit: the least {axis.unit} found is {min(map(axis.of, points)):g}, "
            f"{axis.limit:g} was asked for"
        )
    best = min(within, key=lambda p: (axis.other(p), axis.of(p)))
    beyond = [p for p in points if not axis.within(p) and axis.other(p) < axis.other(best)]
    if not beyond:
        return best, None
    left, _ = min(((p, q) for p in within for q in beyond), key=lambda ends: on_chord(ends[0], ends[1], axis)[1])
    steepest = min(beyond, key=lambda q: (axis.other(q) - axis.other(left)) / (axis.of(q) - axis.of(left)))
    return left, steepest


def on_chord(within: Point, beyond: Point, axis: Axis) -> tuple[float, float]:
    """Share of time for `within`, and the other quantity, where the chord crosses the limit."""
    share = (axis.of(beyond) - axis.limit) / (axis.of(beyond) - axis.of(within))
    return share, share * axis.other(within) + (1 - share) * axis.other(beyond)


def close_enough(within: Point, beyond: Point, axis: Axis, close: float = CLOSE) -> bool:
    _, best = on_chord(within, beyond, axis)
    return axis.other(within) - best <= close * axis.other(within)


def can_share(problem: Problem, policy: Policy) -> bool:
    """Whether it can take turns with another, on a public schedule whose rates can be computed."""
    return isinstance(policy, Controller) and policy.places == 1 and problem.chain.phases == 1


def share_time(problem: Problem, within: Point, beyond: Point, axis: Axis) -> Point:
    """A schedule of the two ends, in blocks long enough that switching costs little; the limit holds with it."""
    share, best = on_chord(within, beyond, axis)
    ends = aligned([p.policy for p in (within, beyond) if isinstance(p.policy, Controller)])
    block, apart = 64, axis.of(beyond) - axis.of(within)
    while True:
        n_within = min(max(int(np.ceil(share * block)), 1), block - 1)
        while True:
            policy = schedule(ends, (n_within, block - n_within))
            point = Point(policy, *rates(problem, policy), Level.COMPUTED, status=within.status)
            if axis.of(point) <= axis.limit * (1 + 1e-9) or n_within == block - 1:
                break
            missing = (axis.of(point) - axis.limit) / apart * block  # steps, if switching cost nothing
            n_within = min(n_within + max(int(np.ceil(missing)), 1), block - 1)
        if axis.of(point) > axis.limit * (1 + 1e-9):
            point = within
        if axis.other(point) - best <= SWITCHING * abs(best) or block >= LONGEST_BLOCK:
            break
        block *= 2
    if axis.other(point) >= axis.other(within):
        return within
    return replace(point, startup_bits=within.startup(problem))
