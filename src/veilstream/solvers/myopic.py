"""The myopic policy of Zhang, Li, Tandon and Li: one release remembered, Blahut-Arimoto at every step, no look-ahead.

It is causal Blahut-Arimoto whose value function is never learned: alpha = 0.
"""

from typing import Any

from veilstream.solvers.causal_ba import CausalBA


def myopic(
    tolerance: float = 1e-5,
    max_sweeps: int = 3000,
    seed: int = 0,
    window: int = 1,
    dtype: str = "float64",
    memory_gb: float | None = None,
) -> CausalBA:
    """A solver with one start: where Blahut-Arimoto from a uniform output model leads."""
    size: dict[str, Any] = {"dtype": dtype, "memory_gb": memory_gb}
    return CausalBA(window=window, tolerance=tolerance, max_sweeps=max_sweeps, look_ahead=False, seed=seed, **size)
