"""Releases that add up: the mean total of what is released is that of the readings (a bill, a year's energy).

    cost(z,y) = lam (d(z,y) + theta y)

One more multiplier, theta, is searched until the mean over the recorded streams of release - reading is zero; what the
reading adds is a function of z alone and changes no policy. It holds for the mean over draws: one year's releases still
spread around it, by the standard deviation that is stated beside it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.optimize import brentq

from veilstream.control.controller import Controller, schedule
from veilstream.control.replay import Replay, Total
from veilstream.errors import InputError
from veilstream.model.information import Array
from veilstream.model.problem import Average, Both, Instantaneous, Problem
from veilstream.shown import within
from veilstream.solvers.search import can_share
from veilstream.solvers.solution import Point, Progress, Solution, mean_distortion

CLOSE = 2e-4  # of the total, that the mean may be off
TRIES = 10
FIRST = 0.05  # of the steepest slope of d(z,.): the first theta
BLOCK = 192  # steps in which two policies share time
CORRECTIONS = 3  # of their shares


@dataclass(frozen=True)
class Kept:
    """A total that is kept in the mean, relative to that of the recorded readings."""

    off: float  # of the mean over releases, computed exactly
    spread: float  # standard deviation of one release of the record, estimated
    bits: float  # per step on the record, more than without
    off_before: float  # without keeping it

    def to_json(self) -> dict[str, float]:
        return {"off": self.off, "sd": self.spread, "extra_bits": self.bits, "off_without": self.off_before}


Found = tuple[float, float, Solution]  # theta, how far the total is off, and the policy


def with_total(
    problem: Problem,
    total: Total,
    replay: Replay,
    solved: Callable[[Problem, Progress], Solution],
    progress: Progress | None = None,
) -> Solution:
    """The solution with the total kept; solved: that of a problem, without it."""
    if not abs(total.mean) > 0:
        raise InputError("`keep_total`: the readings add up to nothing; there is no total to keep")
    known: dict[float, Found] = {}

    def attempt(theta: float) -> float:
        """How far the total is off at this theta; 0 where that is near enough."""
        if theta not in known:
            at = min(len(known) / (TRIES + 2), 1.0)
            tell = within(progress, at, min(at + 1 / (TRIES + 2), 1.0), f"total, try {len(known) + 1}: ")
            found = solved(tilted(problem, total.levels, theta) if theta else problem, tell)
            found = replace(found, problem=problem, distortion=mean_distortion(problem, found.policy))
            known[theta] = theta, total.off(found.policy), found
        off = known[theta][1]
        return off if abs(off) > CLOSE else 0.0

    off = attempt(0.0)
    below, above = 0.0, float(np.sign(off)) * FIRST * steepest(problem, total.levels)
    for _ in range(TRIES if off else 0):  # outwards until the sign changes, then between
        try:
            if attempt(above) * off <= 0:
                brentq(attempt, below, above, maxiter=TRIES, disp=False)
                break
            below, above = above, 2 * above
        except InputError:  # so lopsided that the limit cannot be kept
            if above in known:
                break
            above = (below + above) / 2
    tried = sorted(known.values(), key=lambda f: f[0])
    best, plain = min(tried, key=lambda f: abs(f[1])), known[0.0]
    for one, other in pairwise(tried):
        ends = one[1] * other[1] < 0 and all(can_share(problem, f[2].policy) for f in (one, other))
        if ends and abs(best[1]) > CLOSE:
            best = min([best, *sharing(problem, total, replay, one, other)], key=lambda f: abs(f[1]))
    _, off, kept = best
    if abs(off) > 10 * CLOSE:
        kept = replace(kept, warnings=[*kept.warnings, f"the mean total still has an error of {off:+.2%}"])
    before, after = plain[2].record, kept.record
    bits = 0.0 if before is None or after is None else after.bits - before.bits
    return replace(kept, total=Kept(off, total.spread(kept.policy), bits, plain[1]))


def tilted(problem: Problem, levels: Array, theta: float) -> Problem:
    """The same problem with theta y added to the distortion, less what depends on z alone."""
    limit = problem.constraint
    base = np.zeros_like(problem.distortion) if isinstance(limit, Instantaneous) else problem.distortion
    d = base + theta * levels
    worst = problem.distortion if problem.worst is None else problem.worst
    if isinstance(limit, Instantaneous):
        limit = Both(Average(weight=1.0), limit)  # no distortion has a price: theta is in bits
    return Problem(problem.chain, d - d.min(1, keepdims=True), limit, worst, problem.forbidden)


def steepest(problem: Problem, levels: Array) -> float:
    """The largest slope of d(z,.): with a theta beyond it every state would show the least or the largest level."""
    order = np.argsort(levels)
    if isinstance(problem.constraint, Instantaneous):
        return 1.0 / max(float(np.ptp(levels)), 1e-12)
    slopes = np.abs(np.diff(problem.distortion[:, order], axis=1)) / np.diff(levels[order])
    return float(slopes.max())


def sharing(problem: Problem, total: Total, replay: Replay, one: Found, other: Found) -> list[Found]:
    """The two by turns, on a public schedule, in proportion to how far the other's total is off."""
    out: list[Found] = []
    share = abs(other[1]) / (abs(one[1]) + abs(other[1]))
    for _ in range(CORRECTIONS):
        n = int(np.clip(round(share * BLOCK), 1, BLOCK - 1))
        pair = [f[2].policy for f in (one, other) if isinstance(f[2].policy, Controller)]
        policy = schedule(pair, (n, BLOCK - n)).made_for(problem.chain)
        point = Point.of(problem, policy)
        tried = replace(replay.leakage(policy, problem.chain), error=replay.error(policy))
        mixed = replace(one[2], policy=policy, leakage=point.leakage, distortion=point.distortion, record=tried)
        out.append((one[0], total.off(policy), mixed))
        share -= out[-1][1] / (one[1] - other[1])
    return out
