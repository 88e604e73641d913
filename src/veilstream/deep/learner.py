"""What every learned method is: a solver that trains at a weight, and by that meets limits.

A limit on average, or a budget of bits, takes a few trainings, each from the networks of the one before:

    w_0 = the weight that the exact solver needs;  train;  move w towards the limit;  train on from there; ...

Distortion falls as the weight rises, and leakage grows. Of all trainings the best within the limit is returned; how far
inside it may be is CLOSE. Its figures are estimates, and so is that the limit is kept.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from veilstream.control.replay import Replay
from veilstream.deep import training
from veilstream.deep.training import Report, TrainedPolicy
from veilstream.errors import InputError
from veilstream.model.information import Array
from veilstream.model.problem import Average, Budget, Problem
from veilstream.solvers import search
from veilstream.solvers.causal_ba import CausalBA
from veilstream.solvers.solution import Point, Progress, Solver

ROUNDS, MOST = 5, 9  # trainings; and while none is within the limit
CLOSE = 0.03  # relative: near enough to the limit
AIM = 0.985  # of the limit, so that the next one is within
SLOPE = 1.5  # of log v against log w, before it is known
MOST_STEP = np.log(2.0)  # of the logarithm of the weight
LEAST = 1e-3  # of the limit: what is less counts as this


@dataclass(frozen=True)
class Learner(Solver):
    """A solver that trains at a weight."""

    method: ClassVar[str] = "a2c"
    segments: int = 10  # points of the learning curve, and checkpoints
    runs: int = 1  # seeds: seed, seed + 1, ...; the best policy is returned, the history is of all
    seed: int = 0
    checkpoint: str | None = None
    resume: bool = False

    @property
    def name(self) -> str:
        return self.method

    @abstractmethod
    def learn(self, problem: Problem, weight: float, report: Report = None, onward: Any = None) -> TrainedPolicy:
        """One seed at one weight; onward: the networks of another weight to start from."""

    @abstractmethod
    def shorter(self) -> Self:
        """The same for a training that goes on from the networks of a weight nearby."""

    def at(
        self, problem: Problem, weights: Array, progress: Progress | None = None, warm: Point | None = None
    ) -> list[Point]:
        """For each weight the best of `runs` seeds, with the learning curves of all of them."""
        found, total = [], len(weights) * self.runs
        for i, weight in enumerate(weights):
            tried = []
            for k in range(self.runs):
                share = ((i * self.runs + k) / total, (i * self.runs + k + 1) / total)
                report = training.tell(progress, share, self.segments, problem, weight)
                parts = i if len(weights) > 1 else None, k if self.runs > 1 else None
                now = replace(self, seed=self.seed + k, checkpoint=training.numbered(self.checkpoint, *parts))
                policy, curve, _ = now.learn(problem, float(weight), report)
                tried.append(training.estimated(problem, policy, now.seed, curve))
            best = min(tried, key=lambda p: p.objective(weight))
            found.append(replace(best, history=[row for p in tried for row in p.history]))
        return found

    def meet(
        self,
        problem: Problem,
        constraint: Average | Budget,
        progress: Progress | None = None,
        replay: Replay | None = None,
    ) -> tuple[Point, float]:
        """The best point within the limit, and the weight it was trained at."""
        axis = search.axis_of(constraint, problem, replay)
        exact, weight = search.meet(problem, CausalBA(window=1, seed=self.seed), constraint, None, replay)
        if weight == 0:
            return exact, 0.0  # one release for all keeps the limit: there is nothing to learn
        if not np.isfinite(weight):
            raise InputError(f"{self.method} trains at a weight, and {constraint} needs one without end; use causal-ba")
        tried: list[tuple[float, Point]] = []
        networks = None
        while True:
            k = len(tried)
            name = training.numbered(self.checkpoint, k)
            there = name is not None and self.resume and Path(name).exists()
            now = replace(self if k == 0 else self.shorter(), checkpoint=name, resume=there)
            report = training.tell(progress, (k / MOST, (k + 1) / MOST), now.segments, problem, weight)
            policy, curve, networks = now.learn(problem, weight, report, networks)
            point = training.estimated(problem, policy, self.seed, [{**row, "weight": weight} for row in curve])
            tried.append((weight, point))
            inside = [(w, p) for w, p in tried if axis.of(p) <= axis.limit]
            near = any(axis.of(p) >= (1 - CLOSE) * axis.limit for _, p in inside)
            if near or (inside and len(tried) >= ROUNDS):
                weight, best = min(inside, key=lambda at: axis.other(at[1]))
                return replace(best, history=[row for _, p in tried for row in p.history]), weight
            if len(tried) == MOST:
                nearest = min(axis.of(p) for _, p in tried)
                raise InputError(
                    f"{self.method}: after {MOST} trainings the least {axis.unit} is {nearest:g}, {axis.limit:g} was "
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
