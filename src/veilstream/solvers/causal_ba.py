"""Causal Blahut-Arimoto: the best policy with a given memory, for many weights at once.

The alternation of `sweep` falls into local minima on sticky chains, so it is run from several starts, as one batch.
All policies found, at every weight, then compete at each weight: the optimum is concave in the weight, and so is the
envelope they span. Where no window was asked for the best at each weight goes on with ever finer memories, split where
they forget most (`Sweep.refined`).
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from veilstream.control.automaton import Automaton, window
from veilstream.control.controller import Controller
from veilstream.control.policy import Policy
from veilstream.errors import InputError
from veilstream.model.information import Array
from veilstream.model.problem import Problem
from veilstream.solvers.band import BandSweep
from veilstream.solvers.solution import Point, Progress, Solver, Status
from veilstream.solvers.starts import constants, fitting, free_bytes, newest, starting_models
from veilstream.solvers.sweep import Runs, Sweep, Tables

LARGE_TABLE = 16_000  # numbers in one alpha from which one start will do, in single precision
LARGE_TOLERANCE = 1e-4  # and this tolerance
ROUGH_TOLERANCE = 3e-3  # while the region of a limit is looked for
LARGEST_MEMORY = 4_000_000  # numbers in a table S x Y x Z, over the batch, up to which a memory grows by itself
GROWTH = 1.5  # of a memory, from one to the next
ABOVE = 4.0  # times the weight: where runs begin that are followed down to it
LEAST_GROWTH = 2e-4  # relative: a memory that gains less is the last
SPREAD = 1e-3  # of the uniform law, in the output model of a policy to go on from
MOST_BANDED = 300  # sweeps within a band
LARGEST_BANDED = 30_000  # numbers in a table S x Y x Z of it: a larger memory is left out, or it takes many minutes


@dataclass(frozen=True)
class CausalBA(Solver):
    """Hyper-parameters; `at` runs it."""

    clocks: ClassVar[bool] = True
    window: int | None = None  # None: as many as the chain's order, at first
    grow: bool = True  # without a window: a memory made to measure
    tolerance: float = 1e-5  # relative change of the value between two looks
    max_sweeps: int = 3000
    random_starts: int = 0  # beside the usual three
    most_starts: int = 100
    look_ahead: bool = True
    seed: int = 0
    dtype: str | None = None  # of the sweeps (None: by the size); what they find is judged in double precision
    memory_gb: float | None = None  # None: what the machine has free
    epsilon: float = np.inf  # nats: no release is e^epsilon times likelier for one state than for another

    def __post_init__(self) -> None:
        if self.window is not None and (int(self.window) != self.window or self.window < 0):
            raise InputError(f"window must be a whole number >= 0, found {self.window}")
        if self.max_sweeps < 1:
            raise InputError(f"max_sweeps must be at least 1, found {self.max_sweeps}")
        if not self.tolerance > 0:
            raise InputError(f"tolerance must be positive, found {self.tolerance}")
        if self.dtype not in (None, "float32", "float64"):
            raise InputError(f"dtype must be float32 or float64, found {self.dtype!r}")
        if not (isinstance(self.epsilon, int | float) and self.epsilon >= 0):
            raise InputError(f"epsilon must be a number, at least 0 (nats), found {self.epsilon!r}")

    def at(
        self, problem: Problem, weights: Array, progress: Progress | None = None, warm: Point | None = None
    ) -> list[Point]:
        """The best point found for each weight; from a warm one where that has led, on its memory."""
        if self.epsilon < np.inf:
            return self._banded(problem, np.asarray(weights, float), progress, warm)
        if warm is not None and warm.warm is not None:
            sweep, tables = warm.warm
            return [self._onwards(problem, w, sweep.automaton, tables) for w in np.asarray(weights, float).tolist()]
        weights, w = np.asarray(weights, dtype=float), self._first_window(problem)
        models = starting_models(problem, w, self.random_starts, self.seed)
        one = self._large(problem) or problem.chain.phases > 1  # all have led to the same: the truth's is the nearest
        models, found = models[1:2] if one else models[: self.most_starts], constants(problem, w)
        free = free_bytes(self.memory_gb)
        each = fitting(problem, w, len(models), self._dtype(problem), free)  # one weight must fit
        at_once = max(1, int(min(free // each, len(weights))))  # several are run at once where they do
        for first in range(0, len(weights), at_once):
            found += self.run(problem, weights[first : first + at_once], models, progress)
        best = envelope(found, weights)
        if self.grow:
            best = [self._grown(problem, w, p, len(weights)) for w, p in zip(weights.tolist(), best, strict=True)]
            best = envelope(best, weights)
        return best

    def _banded(self, problem: Problem, weights: Array, progress: Progress | None, warm: Point | None) -> list[Point]:
        """Within bands: from where sweeps without them have led, on their memory, and on none; or from a warm point."""
        if not problem.allowed.all():
            raise InputError("epsilon goes without limits at every step: a release that rules states out has none")
        Y, found = problem.n_outputs, constants(problem, self._first_window(problem))
        known = warm if warm is not None and warm.warm is not None else None
        free = [known] * len(weights) if known else replace(self, epsilon=np.inf).at(problem, weights, progress)
        for weight, point in zip(weights.tolist(), free, strict=True):
            cost = problem.cost(np.array([weight]))
            alone = Sweep(problem, cost, window(Y, 0), 0, self.look_ahead)
            starts = [] if known else [(alone, alone.start(np.full((1, 1, Y), 1 / Y)))]
            fits = point.warm and len(point.warm[0].automaton) * problem.distortion.size <= LARGEST_BANDED
            for sweep, tables in [*starts, point.warm] if known or fits else starts:
                band = BandSweep(problem, cost, sweep.automaton, sweep.window, self.look_ahead)
                band.epsilon = self.epsilon
                runs = Runs(band, tables if known else band.begin(tables), self.tolerance, warm=True)
                runs.converge(min(self.max_sweeps, MOST_BANDED))
                found.append(point_of(runs, 0))
        return envelope(found, weights)

    @property
    def sharp(self) -> bool:
        return self.epsilon == np.inf

    def windowed(self) -> "CausalBA":
        return replace(self, grow=False)

    def carries(self, problem: Problem) -> bool:
        return self._large(problem) and problem.chain.phases == 1

    def grown(self, problem: Problem, weight: float, point: Point) -> Point:
        if self.epsilon < np.inf:
            return self.at(problem, np.array([weight]))[0] if self.grow and point.warm is not None else point
        return self._grown(problem, weight, point) if self.grow else point

    def least_point(self, problem: Problem, weight: float, policy: Policy) -> Point | None:
        """On the least memory, from the output model of a policy; None where the chain has a clock."""
        w, Y = self._first_window(problem), problem.n_outputs
        if problem.chain.phases > 1 or Y == 1 or w == 0:
            return None
        known = isinstance(policy, Controller) and policy.places == 1
        r = model_on(window(Y, w), w, policy) if known else starting_models(problem, w)[1]
        return self.run(problem, np.array([weight]), (1 - SPREAD) * r[None] + SPREAD / Y, None)[0]

    def _dtype(self, problem: Problem) -> str:
        return self.dtype or ("float32" if self._large(problem) else "float64")

    def _large(self, problem: Problem) -> bool:
        return bool(problem.n_states * problem.n_outputs ** self._first_window(problem) >= LARGE_TABLE)

    def _converged(
        self, problem: Problem, sweep: Sweep, tables: Tables, progress: Progress | None = None, warm: bool = False
    ) -> Runs:
        tolerance = max(self.tolerance, LARGE_TOLERANCE) if self._large(problem) else self.tolerance
        batch = Runs(sweep, tables, tolerance, warm)
        batch.converge(self.max_sweeps, progress)
        return batch

    def _sweep(self, problem: Problem, weights: Array, memory: Automaton, w: int | None) -> Sweep:
        return Sweep(problem, problem.cost(weights), memory, w, self.look_ahead, self._dtype(problem))

    def _onwards(self, problem: Problem, weight: float, memory: Automaton, tables: Tables) -> Point:
        """One run, from where another has settled."""
        w = self._first_window(problem)
        sweep = self._sweep(problem, np.array([weight]), memory, w if len(memory) == problem.n_outputs**w else None)
        return point_of(self._converged(problem, sweep, tables.take(np.zeros(1, int)), warm=True), 0)

    def _grown(self, problem: Problem, weight: float, point: Point, batch: int = 1) -> Point:
        """The same with ever finer memories, split where they forget most, while that gains enough."""
        unfit = self.window is not None or point.warm is None or not self.look_ahead or problem.chain.phases > 1
        if unfit or problem.n_outputs == 1:
            return point
        sweep, tables = point.warm
        while True:
            S = len(sweep.automaton)
            finer = max(S + 1, int(GROWTH * S))
            if finer * problem.n_outputs * problem.n_states * batch > LARGEST_MEMORY:
                return point
            sweep, tables = sweep.refined(tables, finer)
            if len(sweep.automaton) == S:
                return point
            new = self._onwards(problem, weight, sweep.automaton, tables)
            (sweep, tables), gained = new.warm, gain(point, new, weight)
            point = new if gained > 0 else point
            if gained < LEAST_GROWTH:
                return point

    def rough(self, problem: Problem) -> "CausalBA":
        """For a first look around: the least window, one start."""
        if self.carries(problem):
            return replace(self, tolerance=max(self.tolerance, ROUGH_TOLERANCE))
        return replace(self, window=self._first_window(problem), most_starts=1, tolerance=10 * self.tolerance)

    def _first_window(self, problem: Problem) -> int:
        return max(1, problem.chain.order) if self.window is None else self.window

    def run(self, problem: Problem, weights: Array, models: Array, progress: Progress | None) -> list[Point]:
        """Every weight from every output model (starts x S x Y) to convergence.

        The truth's model is also followed down from a larger weight: the best on sticky chains is found no other way.
        """
        w, n = self._first_window(problem), len(models)
        memory, r = window(problem.n_outputs, w), np.tile(models, (len(weights), 1, 1))
        sweep = self._sweep(problem, np.repeat(weights, n), memory, w)
        batches = [self._converged(problem, sweep, sweep.start(r), progress)]
        if n > 1 and weights.any():
            sweep = self._sweep(problem, ABOVE * weights, memory, w)
            above = self._converged(problem, sweep, sweep.start(r[1::n].copy()), progress)
            sweep = self._sweep(problem, weights, memory, w)
            batches.append(self._converged(problem, sweep, above.tables, progress, warm=True))
        return [point_of(batch, i) for batch in batches for i in range(len(batch.tables))]


# the policy of Zhang, Li, Tandon and Li: one release remembered, no look-ahead (alpha is never learned and stays 0)
myopic = partial(CausalBA, window=1, look_ahead=False, dtype="float64")


def point_of(batch: Runs, i: int) -> Point:
    """What run i has found, and where it can go on from."""
    policy, found = batch.sweep.result(batch.tables, i)
    status = Status.CONVERGED if batch.done[i] else Status.STOPPED
    history = [{"sweep": k, "value": float(v[i])} for k, v in batch.history]
    warm = batch.sweep.only(i), batch.tables.take(np.array([i]))
    return Point(policy, *found, status=status, history=history, warm=warm)


def model_on(memory: Automaton, w: int, policy: Policy) -> Array:
    """The output model of a policy for each of the last w releases: the mean of its memories that they may lead to."""
    assert isinstance(policy, Controller)
    own, Y = policy.automaton, memory.n_outputs
    if np.array_equal(own.table, memory.table):
        return np.asarray(policy.output_model[0])
    reached, law = np.zeros((Y, len(own))), np.ones(len(own)) / len(own)
    np.add.at(reached, (np.tile(np.arange(Y), len(own)), own.table.ravel()), np.repeat(law, Y))
    model = (reached @ policy.output_model[0]) / np.maximum(reached.sum(1, keepdims=True), 1e-300)
    return np.asarray(model[newest(Y, w)] if w else model.mean(0, keepdims=True))


def envelope(points: list[Point], weights: Array) -> list[Point]:
    """The best of all points at each weight; of equals, the one with less distortion, then the one found first.

    Without a weight (a limit at every step alone) leakages within one in ten thousand count as equal: the convergence
    tolerance could not tell them apart, and the distortion is worth having.
    """
    leak, dist = np.array([[p.leakage, p.distortion] for p in points]).T
    chosen = []
    for w in weights:
        objective = leak + w * dist
        least = objective.min()
        equal = np.flatnonzero(objective <= least + (1e-12 if w > 0 else 1e-4 * least + 1e-12))
        chosen.append(points[equal[dist[equal].argmin()]])
    return chosen


def gain(old: Point, new: Point, weight: float) -> float:
    """How much lower the objective is, relative."""
    before = old.objective(weight)
    return 1 - new.objective(weight) / before if before > 1e-12 else 0.0
