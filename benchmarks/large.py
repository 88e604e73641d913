"""Many states: one weight on fitted chains without zeros, each in a process of its own, and what is proved of it."""

import json
import resource
import subprocess
import sys
from itertools import islice
from time import process_time

from benchmarks import environment
from benchmarks.limits import fitted
from veilstream.control.automaton import window
from veilstream.model.problem import Problem
from veilstream.solvers import solve
from veilstream.solvers.bounds import alternation
from veilstream.solvers.bounds.witness import NATS

FITTED = (256, 1024)  # states of chains without zeros
SWEEPS = 60  # of the alternation behind their bound


def measure_fitted(n_states: int, sweeps: int = SWEEPS) -> dict[str, float]:
    """One weight on a walk that was counted and smoothed, every entry positive; then what is proved of it."""
    problem = fitted(n_states)
    began = process_time()
    solution = solve(problem)
    spent = process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    found = {
        "states": float(n_states),
        "solve_cpu_seconds": spent,
        "sweeps": float(solution.history[-1]["sweep"]),
        "objective": solution.objective,
        "leakage": solution.leakage,
        "peak_rss_gb": peak,
    }
    began = process_time()
    found["gap_without_memory"] = 1 - bound_without_memory(problem, solution.weight, sweeps) / solution.objective
    found["bound_cpu_seconds"] = process_time() - began
    return found


def bound_without_memory(problem: Problem, weight: float, sweeps: int) -> float:
    """Bits per step that no mechanism can go below, by alternation alone: possible at any size."""
    P, C = list(problem.chain.cycle), problem.cost(weight)
    setting = P, C.T * NATS, window(problem.n_outputs, 0).table, problem.chain.laws
    log_m, alpha = next(islice(alternation.alternate(*setting), sweeps - 1, None))
    return alternation.witness(*setting, log_m, alpha)[0].bound(P, C)


def alone(side: int, what: str) -> dict[str, float]:
    """In a process of its own, so that its peak memory is its own."""
    code = f"import json; from benchmarks.large import {what} as m; print(json.dumps(m({side})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    return dict(json.loads(done.stdout))


def run(full: bool = False) -> dict[str, dict[str, float]]:
    return {f"fitted {n}": alone(n, "measure_fitted") for n in FITTED}
