"""Releases that add up: the mean total of what is released is that of the readings (a bill, a year's energy).

    cost(z,y) = lam (d(z,y) + theta y)

One more multiplier, theta, is searched until the mean over the recorded streams of release - reading is zero; what the
reading adds is a function of z alone and changes no policy. It holds for the mean over draws: one year's releases still
spread around it, by the standard deviation that is stated beside it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from veilstream.control.controller import Controller, schedule
from veilstream.control.held_out import HeldOut
from veilstream.control.replay import Replay, Total
from veilstream.errors import InputError
from veilstream.model.information import Array
from veilstream.model.problem import Average, Both, Instantaneous, Problem
from veilstream.solvers import solve
from veilstream.solvers.search import can_share
from veilstream.solvers.solution import Kept, Point, Progress, Solution, mean_distortion

CLOSE = 2e-4  # of the total, that the mean may be off
TRIES = 10
FIRST = 0.05  # of the steepest slope of d(z,.): the first theta
BLOCK = 192  # steps in which two policies share time
CORRECTIONS = 2  # of their shares


Found = tuple[float, float, Solution]  # theta, how far the total is off, and the policy


def solve_total(
    problem: Problem, total: Total, replay: Replay, progress: Progress | None = None, **options: Any
) -> Solution:
    """`solve` with the total kept; options: as `solve` takes them."""
    if not abs(total.mean) > 0:
        raise InputError("`keep_total`: the readings add up to nothing; there is no total to keep")
    certify, seconds = options.pop("certify", False), options.pop("certify_seconds", 30.0)
    later: Replay | None = options.pop("held_out", None)  # judged at the end, by the distortion itself
    tries, spent = 0, list[float]()

    def attempt(theta: float) -> Found:
        nonlocal tries
        at, tries = tries / (TRIES + 1), tries + 1
        tell = (lambda f, what: progress(at + f / (TRIES + 1), f"total, try {tries}: {what}")) if progress else None
        lean = tilted(problem, total.levels, theta) if theta else problem
        found = solve(lean, replay=replay, progress=tell, **options)
        found = replace(found, problem=problem, distortion=mean_distortion(problem, found.policy))
        spent.append(found.seconds)
        return theta, total.off(found.policy), found

    plain = attempt(0.0)
    if options.get("window") is None and plain[2].window is not None:
        options["window"] = plain[2].window  # as long as it was found to be worth
    best, ends = plain, None
    if abs(plain[1]) > CLOSE:
        best, ends = search(attempt, plain, FIRST * steepest(problem, total.levels))
    if abs(best[1]) > CLOSE and ends is not None and all(can_share(problem, end[2].policy) for end in ends):
        best = min([best, *sharing(problem, total, replay, *ends)], key=lambda f: abs(f[1]))
    _, off, kept = best
    if abs(off) > 10 * CLOSE:
        kept = replace(kept, warnings=[*kept.warnings, f"the mean total still has an error of {off:+.2%}"])
    before, after = plain[2].record, kept.record
    bits = 0.0 if before is None or after is None else after.bits - before.bits
    kept = replace(kept, seconds=sum(spent), total=Kept(off, total.spread(kept.policy), bits, plain[1]))
    if later is not None:
        kept = replace(kept, held_out=HeldOut.of(later, kept.policy, problem))
    if certify:
        from veilstream.solvers.bounds import certify_solution

        kept = certify_solution(kept, seconds, progress)
    return kept


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


def search(attempt: Callable[[float], Found], plain: Found, step: float) -> tuple[Found, tuple[Found, Found] | None]:
    """Outwards until the sign changes, then regula falsi (Illinois): the best found, and the two ends around it."""
    a, b, best = plain, None, plain
    f_a = f_b = 0.0
    theta = float(np.sign(plain[1])) * step
    for _ in range(TRIES):
        try:
            new = attempt(theta)
        except InputError:  # so lopsided that the limit cannot be kept
            if b is not None:
                break
            theta = (a[0] + theta) / 2
            continue
        best = min(best, new, key=lambda f: abs(f[1]))
        if abs(best[1]) <= CLOSE:
            break
        same = np.sign(new[1]) == np.sign(a[1])
        if b is None and same:
            a, theta = new, 2 * theta
            continue
        if b is None:
            b, f_a, f_b = new, a[1], new[1]
        elif same:
            a, f_a, f_b = new, new[1], f_b / 2
        else:
            b, f_a, f_b = new, f_a / 2, new[1]
        theta = (a[0] * f_b - b[0] * f_a) / (f_b - f_a)
    return best, None if b is None else (a, b)


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
