"""How large a problem is: dense or sparse sweeps, and the memory they take, known before they start.

Dense sweeps hold arrays of windows x states and windows x releases, sparse ones lists as long as the triples (window,
state, release) that can occur. A product in a dense sweep is a hundred times faster than a triple in a sparse one, so
sparse ones are for problems of some size where few of the triples can occur.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from veilstream.core.information import Index
from veilstream.core.local.pattern import Pattern, Rows, TooLarge, pattern_of
from veilstream.core.problem import Problem
from veilstream.core.steady import VECTORS
from veilstream.errors import InputError

SMALL = 2_000_000  # windows x states x releases up to which dense sweeps are taken without a further look
FASTER = 3  # sparse sweeps where they should be this many times faster
ENTRY_NS, PRODUCT_NS, TRIPLE_NS = 60, 0.1, 12  # measured: dense sweeps for each S x Z and each product, sparse ones
STATE_ARRAYS, OUTPUT_ARRAYS = 15, 12  # arrays S x Z and S x Y alive at the worst moment of a dense sweep, for each run
JUDGING = VECTORS + 8  # arrays S x Z in double precision while a policy's long-run law is found
TRIPLE_BYTES, MOVE_BYTES = 130, 60  # for each triple and each transition of a kernel entry, while the pattern is made
SPARSE_ARRAYS = 15  # arrays of entries and outputs alive at the worst moment, for each run
SHARE = 0.9  # of the memory that is free


@dataclass(frozen=True, eq=False)
class Layout:
    """How one window will be solved."""

    window: int
    pattern: Pattern | None  # None: dense
    bytes: int
    memory: Index | None = None  # s' = next(s, y), where the memory is made to measure and no window


def layout_of(
    problem: Problem,
    window: int,
    batch: int,
    dtype: DTypeLike = "float64",
    sparse: bool | None = None,
    free: float = np.inf,
) -> Layout:
    """Dense or sparse for `batch` runs; a line with advice if neither fits into `free` bytes."""
    dense = dense_bytes(problem, window, batch, dtype)
    cells = problem.n_outputs ** (window + 1) * problem.n_states
    if sparse is False or (sparse is None and (cells <= SMALL or problem.allowed.mean() > 0.5)):
        return fitting(Layout(window, None, dense), problem, free)
    most = free / TRIPLE_BYTES
    if not sparse and dense <= free:
        most = min(most, most_triples(problem, window))
    try:
        pattern = pattern_of(problem.chain.sparse, Rows.of(problem.allowed), problem.n_outputs, window, most)
    except TooLarge as triples:
        return fitting(Layout(window, None, int(triples.args[0]) * TRIPLE_BYTES if sparse else dense), problem, free)
    return fitting(Layout(window, pattern, sparse_bytes(pattern, batch, dtype)), problem, free)


def most_triples(problem: Problem, window: int) -> int:
    """Up to how many triples sparse sweeps should be clearly faster than dense ones."""
    S, Z, Y = problem.n_outputs**window, problem.n_states, problem.n_outputs
    return int(S * Z * (ENTRY_NS + PRODUCT_NS * (2 * Z + 3 * Y)) / (FASTER * TRIPLE_NS))


def fitting(found: Layout, problem: Problem, free: float) -> Layout:
    if found.bytes <= free:
        return found
    advice = ["a smaller window"] * (found.window > 1) + ["fewer states (a coarser grid)"]
    advice += ["a `reach` or a limit at every step (`max`) that keeps releases near"] * bool(problem.allowed.all())
    raise InputError(
        f"window {found.window} over {problem.n_states} states and {problem.n_outputs} releases needs about "
        f"{found.bytes / 2**30:.3g} GB, {free / 2**30:.3g} GB may be used; take {', '.join([*advice, 'float32'])}"
    )


def estimate_bytes(problem: Problem, window: int = 1, batch: int = 1, dtype: DTypeLike = "float64") -> int:
    """Memory that `batch` runs of causal Blahut-Arimoto will take at the worst moment, beyond the problem's own."""
    return layout_of(problem, window, batch, dtype).bytes


def dense_bytes(problem: Problem, window: int, batch: int, dtype: DTypeLike) -> int:
    S, Z, Y = problem.n_outputs**window, problem.n_states, problem.n_outputs
    sweeps = np.dtype(dtype).itemsize * S * (STATE_ARRAYS * Z + OUTPUT_ARRAYS * Y) + 8 * (2 * S * Y + 3 * Z * Y)
    return int(batch * sweeps + 8 * S * (JUDGING * Z + 2 * Y))


def sparse_bytes(pattern: Pattern, batch: int, dtype: DTypeLike) -> int:
    made = pattern.n_triples * TRIPLE_BYTES + int(pattern.follow.nnz) * MOVE_BYTES
    entries, outputs = len(pattern.entry_state), len(pattern.output)
    runs = batch * np.dtype(dtype).itemsize * SPARSE_ARRAYS * (2 * entries + outputs)
    return int(made + runs + 8 * JUDGING * entries)


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
