"""The memory that sweeps will take, known before they start."""

from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from veilstream.control.stationary import VECTORS
from veilstream.errors import InputError
from veilstream.model.problem import Problem

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
