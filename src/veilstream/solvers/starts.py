"""Before causal Blahut-Arimoto starts: output models, policies that cost nothing to find, the memory it will take."""

from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from veilstream.control.automaton import window
from veilstream.control.controller import Controller
from veilstream.control.stationary import VECTORS, rates
from veilstream.errors import InputError
from veilstream.model.information import Array, Index
from veilstream.model.problem import Problem
from veilstream.solvers.solution import Point
from veilstream.solvers.sweep import FLOOR

MIXED = 0.05  # of the uniform law, in an output model to start from


def starting_models(problem: Problem, w: int, random: int = 0, seed: int = 0) -> Array:
    """Output models r(y|newest) to start from, starts x S x Y.

    Uniform; what publishing the nearest symbol would show; holding the last release; and random ones, if asked for.
    Sticky chains are the reason for the second and third: from a uniform model they often end 1-3 % above the best.
    """
    n, chain = problem.n_outputs, problem.chain
    nearest = np.eye(n)[np.where(problem.allowed, problem.distortion, np.inf).argmin(1)]  # Z x Y
    flow = nearest.T @ (chain.stationary[:, None] * chain.transition) @ nearest + 1e-12
    others = np.random.default_rng(seed).dirichlet(np.full(n, 0.3), (random, n))
    models = np.stack([np.full((n, n), 1 / n), flow / flow.sum(1, keepdims=True), np.eye(n), *others])
    models = (1 - MIXED) * models + MIXED / n
    return np.asarray(models[:, newest(n, w)] if w else models.mean(1, keepdims=True))


def newest(n: int, w: int) -> Index:
    """The last release of every window of `automaton.window`."""
    return np.arange(n**w) // n % n if w > 1 else np.arange(n)


def constants(problem: Problem, w: int) -> list[Point]:
    """Always the same symbol at a phase of the clock, where one is always allowed: nothing leaks.

    Without a limit the one of least distortion will do; under one each may still leak a little, by its floor.
    """
    n, chain, memory = problem.n_outputs, problem.chain, window(problem.n_outputs, w)
    free, open = problem.allowed.all(), np.flatnonzero(problem.allowed.all(0))
    laws = [chain.at(phase).initial for phase in range(chain.phases)] if chain.phases > 1 else [chain.stationary]
    costs = np.stack(laws) @ problem.distortion  # phases x Y
    if free or chain.phases > 1:
        shown = [open[costs[:, open].argmin(1)]] if open.size else []
    else:
        shown = [np.array([y]) for y in open]
    points, size = list[Point](), (chain.phases, len(memory.to), *problem.allowed.shape)
    K = np.broadcast_to(problem.allowed.astype(float), size)
    for outputs in shown:
        model = np.where(np.arange(n) == outputs[:, None], 1 - FLOOR * (n - 1), FLOOR)  # phases x Y
        r = np.repeat(model[:, None], len(memory), 1)
        first = int(np.flatnonzero(newest(n, w) == outputs[0])[0]) if w else 0
        policy = Controller(memory, r, K, first, window=w, chain=chain)
        mean = float((costs * model).sum(1)[chain.around].mean())
        points.append(Point(policy, 0.0, mean) if free else Point(policy, *rates(problem, policy)))
    return points


STATE_ARRAYS, OUTPUT_ARRAYS = 15, 12  # arrays S x Z and S x Y alive at the worst moment of a sweep, for each run
JUDGING = VECTORS + 8  # arrays S x Z in double precision while a policy's long-run law is found
SHARE = 0.9  # of the memory that is free


def fitting(problem: Problem, window: int, batch: int, dtype: DTypeLike, free: float) -> int:
    """Bytes that `batch` runs will take; a line with advice if they do not fit into `free` bytes."""
    needed = estimate_bytes(problem, window, batch, dtype)
    if needed <= free:
        return needed
    advice = ["a smaller window"] * (window > 1) + ["fewer states (a coarser grid)", "float32"]
    raise InputError(
        f"window {window} over {problem.n_states} states and {problem.n_outputs} releases needs about "
        f"{needed / 2**30:.3g} GB, {free / 2**30:.3g} GB may be used; take {', '.join(advice)}"
    )


def estimate_bytes(problem: Problem, window: int = 1, batch: int = 1, dtype: DTypeLike = "float64") -> int:
    """Memory that `batch` runs of causal Blahut-Arimoto will take at the worst moment, beyond the problem's own."""
    S, Z, Y = problem.n_outputs**window, problem.n_states, problem.n_outputs
    sweeps = np.dtype(dtype).itemsize * S * (STATE_ARRAYS * Z + OUTPUT_ARRAYS * Y) + 8 * (2 * S * Y + 3 * Z * Y)
    return int(problem.chain.phases * batch * sweeps + 8 * S * (JUDGING * Z + 2 * Y))


def free_bytes(memory_gb: float | None = None) -> float:
    """What may be used: `memory_gb`, or most of what the machine has free; no bound where that is not known."""
    if memory_gb is not None:
        if not memory_gb > 0:
            raise InputError(f"memory_gb must be positive, found {memory_gb}")
        return memory_gb * 2**30
    try:
        with Path("/proc/meminfo").open() as lines:
            available = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return np.inf
    return SHARE * min(1024 * available, _container_limit())


def _container_limit() -> float:
    """What a container may use in all; no bound where there is none."""
    try:
        return float(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):  # not there, or "max"
        return np.inf
