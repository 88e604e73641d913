"""What people use today, as channels without memory on the same states.

    planar-laplace       a(y|x) ~ 2^(-epsilon d(x,y)): geo-indistinguishability, snapped to the states
    randomised-response  the truth with probability 1 - p, any symbol with probability p
    rounding             the middle of the zone x lies in
    constant             always the symbol nearest to everything

And belief-greedy: Blahut-Arimoto at the provider's exact belief, step by step, no look-ahead. The leakage of all is the
true one, by exact belief: a provider who knows the chain filters what they add.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from veilstream.control.belief import BeliefPolicy, GreedyRule
from veilstream.control.controller import Controller
from veilstream.control.evaluate import evaluate
from veilstream.control.replay import Replay
from veilstream.errors import InputError
from veilstream.model.information import Array, normalised
from veilstream.model.problem import Average, Budget, Problem
from veilstream.shown import within
from veilstream.solvers.solution import Point, Progress, Solver, Status


def planar_laplace(problem: Problem, strength: float) -> Array:
    """strength: epsilon, in bits per unit of distance."""
    d = problem.distortion
    a = np.exp2(-strength * (d - d.min(1, keepdims=True)))
    return normalised(a)


def randomised_response(problem: Problem, strength: float) -> Array:
    """strength in [0, 1]: the probability 1 - p of the truth."""
    near = np.eye(problem.n_outputs)[problem.distortion.argmin(1)]
    return np.asarray(strength * near + (1 - strength) / problem.n_outputs)


def rounding(problem: Problem, strength: float) -> Array:
    """strength in [0, 1]: 1 + strength (|Y| - 1) zones, their centres chosen greedily (k-median)."""
    d, pi = problem.distortion, problem.chain.stationary
    n_zones = 1 + round(strength * (problem.n_outputs - 1))
    centres = [int((pi @ d).argmin())]
    while len(centres) < n_zones:
        gain = np.maximum(d[:, centres].min(1, keepdims=True) - d, 0)
        gain = pi @ gain
        gain[centres] = -1
        centres.append(int(gain.argmax()))
    kept = np.array(centres)
    return np.asarray(np.eye(problem.n_outputs)[kept[d[:, kept].argmin(1)]])


def constant(problem: Problem, strength: float = 0.0) -> Array:
    """The same symbol always; there is nothing to choose."""
    return rounding(problem, 0.0)


SHAPES: dict[str, tuple[Callable[[Problem, float], Array], float, float]] = {
    # name: channel, weakest and strongest strength (planar Laplace: times the distortion of the best constant)
    "planar-laplace": (planar_laplace, 0.05, 40.0),
    "randomised-response": (randomised_response, 0.0, 1.0),
    "rounding": (rounding, 0.0, 1.0),
    "constant": (constant, 0.0, 0.0),
}


@dataclass(frozen=True)
class Baseline(Solver):
    """One of the above, tried at `settings` strengths; at a weight, the best of them."""

    clocks: ClassVar[bool] = True
    shape: str
    settings: int = 24
    steps: int = 200
    streams: int = 128
    seed: int = 0

    def family(self, problem: Problem, progress: Progress | None = None) -> list[Point]:
        """Every setting with its true leakage and distortion."""
        points, seen = [], set()
        strengths = self.strengths(problem)
        for i, strength in enumerate(strengths):
            a = self._channel(problem, strength)
            if a.tobytes() not in seen:
                seen.add(a.tobytes())
                points.append(self.point(problem, a))
            if progress:
                progress((i + 1) / len(strengths), f"{self.shape} setting {i + 1}")
        return points

    def at(
        self, problem: Problem, weights: Array, progress: Progress | None = None, warm: Point | None = None
    ) -> list[Point]:
        family = self.family(problem, progress)
        return [min(family, key=lambda p: p.objective(w)) for w in weights]

    def meet(
        self,
        problem: Problem,
        constraint: Average | Budget,
        progress: Progress | None = None,
        replay: Replay | None = None,
    ) -> tuple[Point, float] | None:
        """The weakest setting whose mean distortion is within the limit (bisection: it falls with the strength)."""
        if not isinstance(constraint, Average) or (limit := constraint.limit) is None:
            return None
        low, high = self.strengths(problem)[[0, -1]]
        if self._distortion(problem, self._channel(problem, high)) > limit * (1 + 1e-9):
            raise InputError(f"{self.shape} cannot reach an average distortion of {limit:g}")
        for _ in range(60):
            middle = (low + high) / 2
            enough = self._distortion(problem, self._channel(problem, middle)) <= limit
            low, high = (low, middle) if enough else (middle, high)
        return self.point(problem, self._channel(problem, high)), 0.0

    def strengths(self, problem: Problem) -> Array:
        _, low, high = SHAPES[self.shape]
        if self.shape != "planar-laplace":
            return np.linspace(low, high, self.settings)
        return np.geomspace(low, high, self.settings) / max(self._distortion(problem, constant(problem)), 1e-12)

    def _channel(self, problem: Problem, strength: float) -> Array:
        free = np.ones(problem.distortion.shape) if problem.forbidden is None else 1.0 - problem.forbidden
        if (problem.allowed < free).any():
            raise InputError(f"{self.shape} cannot keep a limit at every step; use an average constraint")
        a = SHAPES[self.shape][0](problem, float(strength))
        if problem.forbidden is None:
            return a
        a = a * free  # what is forbidden is struck out, and a row that is left empty shows anything it may
        return normalised(np.where(a.any(1, keepdims=True), a, free))

    @staticmethod
    def _distortion(problem: Problem, a: Array) -> float:
        return float(problem.chain.stationary @ (a * problem.distortion).sum(1))

    def point(self, problem: Problem, a: Array) -> Point:
        policy = Controller.of_table(a)
        ev = evaluate(problem, policy, self.steps, self.streams, seed=self.seed)
        exact = {"distortion": self._distortion(problem, a), "distortion_se": 0.0}
        return Point.estimated(policy, ev, status=Status.GIVEN, **exact)


@dataclass(frozen=True)
class BeliefGreedy(Solver):
    steps: int = 200
    streams: int = 64
    tolerance: float = 1e-4  # bits, of each step's Blahut-Arimoto
    seed: int = 0

    def at(
        self, problem: Problem, weights: Array, progress: Progress | None = None, warm: Point | None = None
    ) -> list[Point]:
        points, n = [], len(weights)
        for i, weight in enumerate(weights):
            policy = BeliefPolicy(problem.chain, GreedyRule(problem.cost(weight), self.tolerance))
            tell = within(progress, i / n, (i + 1) / n, f"weight {i + 1} of {n}: ")
            ev = evaluate(problem, policy, self.steps, self.streams, seed=self.seed, progress=tell)
            points.append(Point.estimated(policy, ev))
        return points
