"""Held: a policy that needs no solving, for models that are a guess.

    a_s(y|z) = r(y|s) 2^(-w d(z,y)) / N(s,z)         r: what publishing the nearest release would show under the chain

One release is remembered. On a chain that mostly stays, r mostly says s again, so a release is held while it is near
enough, and drawn anew near the truth when it is not. It is where causal Blahut-Arimoto starts, not where it ends: there
are no sweeps, so that hundreds of states take seconds. w is the weight, or found for a limit on the mean.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from veilstream.control.automaton import window
from veilstream.control.controller import Controller
from veilstream.control.replay import Course
from veilstream.control.stationary import LongRun
from veilstream.errors import InputError
from veilstream.model.information import Array
from veilstream.model.problem import Average, Budget, Problem
from veilstream.solvers.search import axis_of, first_weights, rise, root
from veilstream.solvers.solution import Point, Progress, Solver, Status
from veilstream.solvers.starts import constants

MIXED = 0.01  # of the uniform law, in r
BELOW, NEAR = 0.995, 0.985  # of the limit: what is aimed at, and what is near enough
FIRST = 2.0  # bits for a distance as long as the limit: the first weight, near the one that meets it on most maps
SETTLED, ROUNDS = 1e-4, 400  # of the mean distortion
STEPS = 16  # of the search for the weight
TRIES = 4  # if the long run is beyond the limit after all


@dataclass(frozen=True)
class Held(Solver):
    window: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.window not in (None, 1):
            raise InputError(f"method held remembers one release; `window={self.window}` cannot be had")

    def at(
        self, problem: Problem, weights: Array, progress: Progress | None = None, warm: Point | None = None
    ) -> list[Point]:
        look = Look(problem)
        return [look.point(float(w)) for w in weights]

    def meet(
        self,
        problem: Problem,
        constraint: Average | Budget,
        progress: Progress | None = None,
        course: Course | None = None,
    ) -> tuple[Point, float] | None:
        if not isinstance(constraint, Average) or constraint.limit is None:
            return None
        axis_of(constraint, problem).check()
        limit = constraint.limit
        for silent in constants(problem, 1):
            if silent.distortion <= limit and silent.leakage <= 1e-7:
                return silent, 0.0
        look = Look(problem)
        high = look.weight(limit, first_weights(problem))
        for _ in range(TRIES):
            found = look.point(high)
            if found.distortion <= limit * (1 + 1e-9):
                return found, 0.0
            high *= 1.1
        raise InputError(
            f"infeasible limit: the least distortion found is {found.distortion:g}, {limit:g} was asked for"
        )

    def left_out(self, problem: Problem) -> list[str]:
        return [
            "nothing was optimised (method held): what is claimed holds, but others leak less: causal-ba finds them"
        ]


class Look:
    """A problem, and the law of (release, state) that the last weight led to: the next one starts from it."""

    def __init__(self, problem: Problem) -> None:
        self.problem, n = problem, problem.n_outputs
        chain = problem.chain
        if chain.phases > 1 or chain.order > 1:
            raise InputError("method held is for chains of order 1 without a clock")
        nearest = np.eye(n)[np.where(problem.allowed, problem.distortion, np.inf).argmin(1)]
        flow = nearest.T @ (chain.stationary[:, None] * chain.transition) @ nearest + 1e-12
        self.r = (1 - MIXED) * flow / flow.sum(1, keepdims=True) + MIXED / n
        self.fixed = chain.transition, problem.distortion, self.r
        self.mu = ((nearest * chain.stationary[:, None]).T @ chain.transition).astype(np.float32)  # S x Z

    def kernel(self, weight: float) -> Array:
        cost = self.problem.cost(weight)
        K: Array = np.exp2(cost.min(1, keepdims=True) - cost)
        return K

    def distortion(self, weight: float) -> float:
        """In the long run, nearly: in single precision, and until it hardly changes."""
        K, P, d, r = (x.astype(np.float32) for x in (self.kernel(weight), *self.fixed))
        N, last = r @ K.T, np.inf
        for _ in range(ROUNDS):
            joint = (r.T @ (self.mu / N)) * K.T  # Y x Z
            self.mu = joint @ P
            mean = float((joint * d.T).sum())
            if abs(mean - last) < SETTLED * mean:
                break
            last = mean
        return mean

    def weight(self, limit: float, usual: Array) -> float:
        """One whose distortion is a little below the limit."""
        at, tried = float(np.clip(FIRST / limit, usual[0], usual[-1])), list[tuple[float, float]]()
        for _ in range(STEPS):
            d = self.distortion(at)
            if NEAR * limit <= d <= BELOW * limit:
                return at
            tried.append((float(np.log(at)), float(np.log(max(d, 1e-300) / ((BELOW + NEAR) / 2 * limit)))))
            at = float(np.exp(root(tried, rise(tried, -1.0), longest=np.log(4))))
        return float(np.exp(min((w for w, over in tried if over <= 0), default=max(tried)[0])))

    def point(self, weight: float) -> Point:
        problem = self.problem
        first = int((problem.chain.stationary @ problem.distortion).argmin())
        memory, K = window(problem.n_outputs, 1), self.kernel(weight)[None, None]
        policy = Controller(memory, self.r[None], K, first, window=1)
        run = LongRun(problem.chain, policy)
        found, startup = run.rates(problem.distortion), run.startup_bits(problem.distortion)
        known: dict[str, Any] = {"startup_bits": startup, "status": Status.GIVEN}
        return Point(policy, found.leakage, found.distortion, **known)
