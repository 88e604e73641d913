"""Causal Blahut-Arimoto: the best policy that remembers the last w releases, for many weights at once.

The alternation of `sweep` falls into local minima on sticky chains, so it is run from several starts, some of them
annealed from a larger or a smaller weight, as one batch. All policies found, at every weight, then compete at each
weight: the optimum is concave in the weight, and so is the envelope they span.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from veilstream.core.chain import MarkovChain
from veilstream.core.information import Array, Index
from veilstream.core.local.pattern import Rows, TooLarge, pattern_of
from veilstream.core.policy import Policy
from veilstream.core.problem import Problem
from veilstream.core.steady import rates
from veilstream.errors import InputError
from veilstream.solvers.cyclic import CyclicSweep
from veilstream.solvers.memory import window_memory
from veilstream.solvers.memory_sweep import MemorySweep
from veilstream.solvers.runs import LARGE, Runs
from veilstream.solvers.size import Layout, dense_bytes, fitting, free_bytes, layout_of
from veilstream.solvers.solution import Point, Progress, Solver, Status
from veilstream.solvers.sparse_sweep import SparseSweep, sparse_starts
from veilstream.solvers.starts import MIXED, annealing, constants, starting_models
from veilstream.solvers.sweep import Sweep, Sweeping, Tables

LARGE_TABLE = 16_000  # numbers in one alpha from which one start will do, in single precision
LARGE_TOLERANCE = 1e-4  # and this tolerance, between looks that are few sweeps apart
ROUGH_TOLERANCE = 3e-3  # while the region of a limit is looked for
LARGEST_TABLE = 200_000  # numbers in alpha, over the batch, up to which the window is raised by itself
LARGEST_MEMORY = 4_000_000  # numbers in a table S x Y x Z, over the batch, up to which a memory grows by itself
LARGEST_WORK = 20_000_000  # products S x S x Z in one of its sweeps
GROWTH = 1.5  # of a memory, from one to the next
LEAST_GROWTH = 2e-4  # relative: a memory that gains less is the last
MANY = 20  # states from which a first look around takes one start
SPREAD = 1e-3  # of the uniform law, in the output model of a policy to go on from


@dataclass(frozen=True)
class CausalBA(Solver):
    """Hyper-parameters; `points` runs it."""

    clocks: ClassVar[bool] = True
    window: int | None = None  # None: as many as the chain's order, at first
    grow: bool = True  # without a window: a memory made to measure; else the window is raised while that gains min_gain
    tolerance: float = 1e-5  # relative change of the value between two looks
    max_sweeps: int = 3000
    random_starts: int = 2
    most_starts: int = 100
    min_gain: float = 1e-3
    look_ahead: bool = True
    seed: int = 0
    reach: float | None = None  # releases further off than this are not considered: an upper bound, and sparse
    drop: float | None = None  # transitions rarer than this per step are left out of the search, not of the result
    sparse: bool | None = None  # None: by the size of the problem
    dtype: str | None = None  # of the sweeps (None: by the size); what they find is judged in double precision
    memory_gb: float | None = None  # None: what the machine has free

    def __post_init__(self) -> None:
        if self.window is not None and (int(self.window) != self.window or self.window < 0):
            raise InputError(f"window must be a whole number >= 0, found {self.window}")
        if self.max_sweeps < 1:
            raise InputError(f"max_sweeps must be at least 1, found {self.max_sweeps}")
        if not self.tolerance > 0:
            raise InputError(f"tolerance must be positive, found {self.tolerance}")
        if self.dtype not in (None, "float32", "float64"):
            raise InputError(f"dtype must be float32 or float64, found {self.dtype!r}")
        if self.reach is not None and not self.reach >= 0:
            raise InputError(f"reach must be a distance >= 0, found {self.reach}")
        if self.drop is not None and not 0 <= self.drop < 1:
            raise InputError(f"drop must be a rate from 0 to 1, found {self.drop}")

    def points(self, problem: Problem, weights: Array, progress: Progress | None = None) -> list[Point]:
        """The best point found for each weight."""
        weights = np.asarray(weights, dtype=float)
        if self.dtype is None:
            return self._in_precision(problem).points(problem, weights, progress)
        if self.drop is None:
            return self._points(within_reach(problem, self.reach), weights, progress)
        thin = replace(problem, chain=problem.chain.thinned(self.drop))
        found = self._points(within_reach(thin, self.reach), weights, progress)
        return envelope([on_chain(problem, p) for p in found], weights)

    def _points(self, problem: Problem, weights: Array, progress: Progress | None) -> list[Point]:
        window = self._first_window(problem)
        if problem.chain.phases > 1:
            return self._around(problem, weights, window, progress)
        large = self._large(problem)
        n_starts = min(1 if large else 5 + self.random_starts, self.most_starts)
        how = self._layout(problem, window, n_starts)  # one weight must fit; several are run at once where they do
        at_once = max(1, int(min(free_bytes(self.memory_gb) // how.bytes, len(weights))))
        if how.pattern is None:
            starts = starting_models(problem, window, 0 if large else self.random_starts, self.seed)
        else:
            starts = sparse_starts(problem, how.pattern, 0 if large else self.random_starts, self.seed)[None]
        starts = starts[:, 1:2] if n_starts == 1 and large else starts[:, :n_starts]  # the truth's model is the nearest
        found = constants(problem, window if how.pattern is None else 0)
        for first in range(0, len(weights), at_once):
            found += self.run(problem, weights[first : first + at_once], how, starts, progress)
        best = envelope(found, weights)
        rising = np.arange(len(weights))  # weights at which the last raise of the window paid
        while self.window is None and rising.size and (how.pattern is not None or not self.grow):
            raised = self._raised(problem, how, len(weights))
            if raised is None:
                break
            how = raised
            wider = np.stack([model_for(how, problem, best[i].policy) for i in rising])
            more = self.run(problem, weights[rising], how, wider[:, None], progress)
            better = envelope(found + more, weights)
            gains = np.array([gain(o, b, w) for o, b, w in zip(best, better, weights, strict=True)])
            rising = np.flatnonzero(gains > self.min_gain)
            for i in rising:
                best[i] = better[i]
            found += [best[i] for i in rising]
        if self.grow:
            best = [self._grown(problem, w, p, len(weights)) for w, p in zip(weights.tolist(), best, strict=True)]
            best = envelope(best, weights)
        return best

    def windowed(self) -> "CausalBA":
        return replace(self, grow=False)

    def least(self, problem: Problem) -> "CausalBA":
        window, dense = self._first_window(problem), problem.chain.phases == 1
        if not self.grow or not dense or not self.look_ahead:
            return self.windowed()
        dense = self._layout(problem, window, 1).pattern is None
        return replace(self, grow=False, window=window) if dense else self.windowed()

    def near(self, problem: Problem, weight: float, point: Point) -> Point:
        if point.warm is None or self.drop is not None:
            return super().near(problem, weight, point)
        if self.dtype is None:
            return self._in_precision(problem).near(problem, weight, point)
        how, tables = point.warm
        problem = within_reach(problem, self.reach)
        return self._onwards(problem, weight, how, tables)

    def carries(self, problem: Problem) -> bool:
        return self._large(problem) and problem.chain.phases == 1 and self.drop is None

    def grown(self, problem: Problem, weight: float, point: Point) -> Point:
        if not self.grow or self.drop is not None:
            return point
        if self.dtype is None:
            return self._in_precision(problem).grown(problem, weight, point)
        problem = within_reach(problem, self.reach)
        return self._grown(problem, weight, point)

    def least_point(self, problem: Problem, weight: float, policy: Policy) -> tuple[Index, Array, Array, Array] | None:
        """The least memory (S x Y), and output model, potential in bits and law on it, from the model of a policy.

        None where the chain has a clock, or the problem is so large that it is solved over what can occur.
        """
        window = self._first_window(problem)
        if problem.chain.phases > 1 or problem.n_outputs == 1 or window == 0:
            return None
        how = self._layout(problem, window, 1)
        if how.pattern is not None:
            return None
        S, Y = problem.n_outputs**window, problem.n_outputs
        r = policy.output_model_at(np.arange(S)[:, None], np.arange(Y)[None])
        starts = starting_models(problem, window, 0, self.seed)[:, 1:2] if r is None else r[None, None]
        [point] = self.run(problem, np.array([weight]), how, (1 - SPREAD) * starts + SPREAD / Y, None)
        _, tables = point.warm
        r, alpha, mu = (x.swapaxes(1, 2).reshape(S, -1) for x in (tables.r, tables.alpha, tables.mu))
        return window_memory(Y, window), r, alpha, mu

    def _in_precision(self, problem: Problem) -> "CausalBA":
        return replace(self, dtype="float32" if self._large(problem) else "float64")

    def _large(self, problem: Problem) -> bool:
        return bool(problem.n_states * problem.n_outputs ** self._first_window(problem) >= LARGE_TABLE)

    def _batch(
        self, problem: Problem, sweep: Sweeping, tables: Tables, anneal: Array, group: Index, warm: bool = False
    ) -> Runs:
        if not self._large(problem):
            return Runs(sweep, tables, anneal, group, self.tolerance, warm=warm)
        return Runs(sweep, tables, anneal, group, max(self.tolerance, LARGE_TOLERANCE), LARGE, warm)

    def _onwards(self, problem: Problem, weight: float, how: Layout, tables: Tables) -> Point:
        """One run, from where another has settled."""
        sweep, tables = self._sweep(problem, np.array([weight]), how), tables.take(np.zeros(1, dtype=int))
        batch = self._batch(problem, sweep, tables, np.ones(1), np.zeros(1, dtype=int), warm=True)
        batch.converge(self.max_sweeps)
        return point_of(batch, how, 0)

    def _grown(self, problem: Problem, weight: float, point: Point, batch: int = 1) -> Point:
        """The same with ever finer memories, split where they forget most, while that gains enough."""
        if self.window is not None or point.warm is None or problem.n_outputs == 1 or not self.look_ahead:
            return point
        how, tables = point.warm
        if how.pattern is not None or problem.chain.phases > 1 or how.window == 0:
            return point
        if how.memory is None:
            S = problem.n_outputs**how.window
            how = replace(how, memory=window_memory(problem.n_outputs, how.window))
            tables = Tables(*(x.swapaxes(1, 2).reshape(1, S, -1) for x in (tables.r, tables.alpha, tables.mu)))
        while True:
            S = len(how.memory)
            finer = max(S + 1, int(GROWTH * S))
            too_large = finer * problem.n_outputs * problem.n_states * batch > LARGEST_MEMORY
            if too_large or finer * finer * problem.n_states > LARGEST_WORK:
                return point
            coarse = MemorySweep(problem, problem.cost(np.array([weight])), how.memory, self.dtype)
            memory, tables = coarse.finer(tables, finer)
            if len(memory) == S:
                return point
            how = replace(how, memory=memory)
            new = self._onwards(problem, weight, how, tables)
            tables, gained = new.warm[1], gain(point, new, weight)
            point = new if gained > 0 else point
            if gained < LEAST_GROWTH:
                return point

    def _around(self, problem: Problem, weights: Array, window: int, progress: Progress | None) -> list[Point]:
        """With a public clock, from the best for the chain that does not look at it: other starts led to the same."""
        chain, n = problem.chain, problem.n_outputs
        mean = MarkovChain(chain.transition, chain.initial, chain.histories)
        bytes_each = chain.phases * dense_bytes(problem, window, 1, self.dtype or "float64")
        at_once = max(1, int(min(free_bytes(self.memory_gb) // bytes_each, len(weights))))
        how = fitting(Layout(window, None, bytes_each), problem, free_bytes(self.memory_gb))
        plain = replace(self, window=window, reach=None, sparse=False)
        models = [
            model_for(how, problem, p.policy) for p in plain.points(replace(problem, chain=mean), weights, progress)
        ]
        starts = (1 - MIXED) * np.stack(models)[:, None] + MIXED / n
        found = constants(problem, window)
        for first in range(0, len(weights), at_once):
            part = slice(first, first + at_once)
            found += self.run(problem, weights[part], how, starts[part], progress)
        return envelope(found, weights)

    def rough(self, problem: Problem) -> "CausalBA":
        """For a first look around: the least window, the fewest starts."""
        if self.carries(problem):
            return replace(self, tolerance=max(self.tolerance, ROUGH_TOLERANCE))
        least = replace(self, window=self._first_window(problem), random_starts=0)
        # on large chains all starts have led to nearly the same value, and a weight takes seconds
        slow = len(problem.chain) >= MANY or problem.chain.phases > 1
        return replace(least, most_starts=1, tolerance=10 * self.tolerance) if slow else least

    def left_out(self, problem: Problem) -> list[str]:
        lines, chain = [], problem.chain
        if self.reach is not None:
            lines.append(
                f"releases further than {self.reach:g} were left out: what is claimed holds, but others might leak less"
            )
        if self.drop is not None:
            gone = np.where(chain.thinned(self.drop).transition > 0, 0, chain.transition).sum(1)
            lines.append(
                f"transitions of {float(chain.stationary @ gone):.2%} of all steps were left out of the search, "
                "not of what is claimed; the less that is, the nearer the best"
            )
        return lines

    def _first_window(self, problem: Problem) -> int:
        return max(1, problem.chain.order) if self.window is None else self.window

    def _layout(self, problem: Problem, window: int, batch: int) -> Layout:
        return layout_of(problem, window, batch, self.dtype or "float64", self.sparse, free_bytes(self.memory_gb))

    def _raised(self, problem: Problem, how: Layout, batch: int) -> Layout | None:
        """One release more, if that is quick enough to try unasked."""
        if how.pattern is None:
            fits = batch * problem.n_outputs ** (how.window + 1) * problem.n_states <= LARGEST_TABLE
            return replace(how, window=how.window + 1) if fits else None
        try:
            allowed = Rows.of(problem.allowed)
            most = LARGEST_TABLE // batch
            longer = pattern_of(problem.chain.sparse, allowed, problem.n_outputs, how.window + 1, most)
        except TooLarge:
            return None
        return Layout(longer.window, longer, how.bytes)

    def run(
        self, problem: Problem, weights: Array, how: Layout, starts: Array, progress: Progress | None
    ) -> list[Point]:
        """Every (weight, start) to convergence. starts: |weights| or 1, x starts x (S x Y or outputs)."""
        n_starts = starts.shape[1]
        r = np.broadcast_to(starts, (len(weights), *starts.shape[1:])).reshape(-1, *starts.shape[2:])
        anneal = np.tile(annealing(n_starts), len(weights))
        every = np.repeat(weights, n_starts)
        sweep = self._sweep(problem, every, how)
        tables = sweep.start(r.copy())
        group = np.repeat(np.arange(len(weights)), n_starts)
        batch = self._batch(problem, sweep, tables, anneal, group)
        batch.converge(self.max_sweeps, progress)
        return [point_of(batch, how, int(i)) for i in np.flatnonzero(batch.kept)]

    def _sweep(self, problem: Problem, weights: Array, how: Layout) -> Sweeping:
        if how.memory is not None:
            return MemorySweep(problem, problem.cost(weights), how.memory, self.dtype)
        if how.pattern is not None:
            return SparseSweep(problem, weights, how.pattern, self.look_ahead, self.dtype)
        dense = Sweep if problem.chain.phases == 1 else CyclicSweep
        return dense(problem, problem.cost(weights), how.window, self.look_ahead, self.dtype)


def point_of(batch: Runs, how: Layout, i: int) -> Point:
    """What run i has found, and where it can go on from."""
    policy, found = batch.sweep.result(batch.tables, i)
    status = Status.CONVERGED if batch.done[i] else Status.STOPPED
    history = [{"sweep": k, "value": float(v[i])} for k, v in batch.history]
    return Point(policy, *found, status=status, history=history, warm=(how, batch.tables.take(np.array([i]))))


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


def within_reach(problem: Problem, reach: float | None) -> Problem:
    """The problem with releases beyond `reach` left out (the nearest always stays): a restriction of the policies."""
    if reach is None:
        return problem
    d = problem.distortion
    nearest = np.where(problem.allowed, d, np.inf).min(1)
    allowed = problem.allowed & (d <= np.maximum(reach, nearest)[:, None] * (1 + 1e-12))
    return problem.only(allowed)


def model_for(how: Layout, problem: Problem, policy: Policy) -> Array:
    """The output model of a policy, as a start for a longer window."""
    p, Y = how.pattern, problem.n_outputs
    dense = np.arange(Y**how.window)[:, None], np.arange(Y)[None]
    r = policy.output_model_at(*(dense if p is None else (p.windows[p.output_window], p.output)))
    assert r is not None  # every policy of this solver has one
    return r if p is None else r / p.by_output(r)[p.output_window]


def on_chain(problem: Problem, point: Point) -> Point:
    """The same policy, judged on another chain."""
    found = rates(problem, point.policy)
    return replace(point, leakage=found.leakage, distortion=found.distortion)
