"""A limit on average, or a budget of bits, for methods that train at a weight.

    w_0 = the weight that the exact solver needs;  train;  move w towards the limit;  train on from there; ...

Distortion falls as the weight rises, and leakage grows. Of all trainings the best within the limit is returned; how far
inside it may be is CLOSE. Its figures are estimates, and so is that the limit is kept.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from veilstream.control.replay import Course
from veilstream.deep import training
from veilstream.errors import InputError
from veilstream.model.problem import Average, Budget, Problem
from veilstream.solvers import search
from veilstream.solvers.causal_ba import CausalBA
from veilstream.solvers.solution import Point, Progress

ROUNDS, MOST = 5, 9  # trainings; and while none is within the limit
CLOSE = 0.03  # relative: near enough to the limit
AIM = 0.985  # of the limit, so that the next one is within
SLOPE = 1.5  # of log v against log w, before it is known
MOST_STEP = np.log(2.0)  # of the logarithm of the weight
LEAST = 1e-3  # of the limit: what is less counts as this


def meet(
    learner: Any, problem: Problem, constraint: Average | Budget, progress: Progress | None, course: Course | None
) -> tuple[Point, float]:
    """The best point within the limit, and the weight it was trained at."""
    axis = search.axis_of(constraint, problem, course)
    exact, weight = search.meet(problem, CausalBA(window=1, seed=learner.seed), constraint, None, course)
    if weight == 0:
        return exact, 0.0  # one release for all keeps the limit: there is nothing to learn
    if not np.isfinite(weight):
        raise InputError(f"{learner.method} trains at a weight, and {constraint} needs one without end; use causal-ba")
    tried: list[tuple[float, Point]] = []
    networks = None
    while True:
        k = len(tried)
        name = training.numbered(learner.checkpoint, k)
        there = name is not None and learner.resume and Path(name).exists()
        now = replace(learner if k == 0 else learner.shorter(), checkpoint=name, resume=there)
        report = training.tell(progress, (k / MOST, (k + 1) / MOST), now.segments, problem, weight)
        policy, curve, networks = now.trained(problem, weight, report, networks)
        point = training.estimated(problem, policy, learner.seed, [{**row, "weight": weight} for row in curve])
        tried.append((weight, point))
        inside = [(w, p) for w, p in tried if axis.of(p) <= axis.limit]
        near = any(axis.of(p) >= (1 - CLOSE) * axis.limit for _, p in inside)
        if near or (inside and len(tried) >= ROUNDS):
            weight, best = min(inside, key=lambda at: axis.other(at[1]))
            return replace(best, history=[row for _, p in tried for row in p.history]), weight
        if len(tried) == MOST:
            nearest = min(axis.of(p) for _, p in tried)
            raise InputError(
                f"{learner.method}: after {MOST} trainings the least {axis.unit} is {nearest:g}, {axis.limit:g} was "
                "asked for; train longer, or use causal-ba"
            )
        weight = next_weight([(w, axis.of(p)) for w, p in tried], axis.limit, isinstance(constraint, Average))


def next_weight(tried: list[tuple[float, float]], limit: float, falls: bool) -> float:
    """From the last two trainings alone, as earlier ones were of other networks; a little inside the limit.

    falls: whether what is limited falls as the weight rises.
    """
    over = [(float(np.log(w)), float(np.log(max(v / (AIM * limit), LEAST)))) for w, v in tried[-2:]]
    step = search.root(over, search.rise(over, -SLOPE if falls else SLOPE)) - over[-1][0]
    return float(tried[-1][0] * np.exp(np.clip(step, -MOST_STEP, MOST_STEP)))
