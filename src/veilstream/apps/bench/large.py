"""Many states, local moves: time against the number of non-zeros, and the memory of one solve in a process of its own.

Growth is fitted to processor time, which a busy machine disturbs less than the clock on the wall. Non-zeros are what
one pass over the problem multiplies: the triples (last release, state, release) that can occur, and for each (state,
release) its transitions. `fitted N`: chains without zeros, solved densely.
"""

import json
import resource
import subprocess
import sys
from itertools import islice
from time import perf_counter, process_time

import numpy as np

from veilstream.apps.bench.limits import fitted
from veilstream.core.builtin import builtin_problem
from veilstream.core.problem import Instantaneous, Problem
from veilstream.solvers import solve
from veilstream.solvers.bounds import alternation
from veilstream.solvers.bounds.witness import NATS
from veilstream.solvers.memory import window_memory
from veilstream.solvers.size import layout_of
from veilstream.solvers.sparse_sweep import SparseSweep, sparse_starts

LIMIT = 2
SIDES = (8, 16, 32)
FITTED = (256, 1024)  # states of chains without zeros
SWEEPS = 60  # of the alternation behind their bound


def measure(side: int) -> dict[str, float]:
    """One grid: how large, how long for a sweep, how long until converged."""
    began = perf_counter()
    problem = builtin_problem(f"grid{side}x{side}-local", Instantaneous(LIMIT))
    made = perf_counter() - began
    pattern = layout_of(problem, 1, 1, sparse=True).pattern
    assert pattern is not None
    sweep, one = SparseSweep(problem, np.zeros(1), pattern), np.arange(1)
    tables = sweep(sweep.start(sparse_starts(problem, pattern, 0, 0)[:1]), one)[0]
    best = np.inf
    for _ in range(5):
        began = process_time()
        for _ in range(10):
            sweep(tables, one)
        best = min(best, (process_time() - began) / 10)
    began = process_time()
    solution = solve(problem, window=1, sparse=True)
    spent = process_time() - began
    return {
        "states": len(problem.chain),
        "nonzeros": pattern.nonzeros,
        "dense_cells": float(len(problem.chain)) ** 3,
        "problem_seconds": made,
        "sweep_ms": 1e3 * best,
        "solve_seconds": solution.seconds,
        "solve_cpu_seconds": spent,
        "sweeps": solution.history[-1]["sweep"],
        "converged": float(solution.status == "converged"),
        "leakage": solution.leakage,
        "peak_rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


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
    P, C, pi = problem.chain.transition, problem.cost(weight), problem.chain.stationary
    none, cost = window_memory(problem.n_outputs, 0), C.T * NATS
    iterates = alternation.alternate(P, cost, none, pi)
    log_m, alpha = next(islice(iterates, sweeps - 1, None))
    return float(alternation.witness(P, cost, none, pi, log_m, alpha)[0].bound(P, C))


def alone(side: int, what: str = "measure") -> dict[str, float]:
    """`measure` in a process of its own, so that its peak memory is its own."""
    code = f"import json; from veilstream.apps.bench.large import {what} as m; print(json.dumps(m({side})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def exponent(nonzeros: list[float], seconds: list[float]) -> float:
    """The slope of log time over log non-zeros, least squares."""
    return float(np.polyfit(np.log(nonzeros), np.log(seconds), 1)[0])


def run(full: bool = False) -> dict[str, dict[str, float]]:
    sides = (*SIDES, 64) if full else SIDES
    found = {f"{n}x{n}": alone(n) for n in sides}
    sizes = [found[f"{n}x{n}"] for n in SIDES]
    nonzeros = [s["nonzeros"] for s in sizes]
    found["growth"] = {
        "sweep_exponent": exponent(nonzeros, [s["sweep_ms"] for s in sizes]),
        "solve_exponent": exponent(nonzeros, [s["solve_cpu_seconds"] for s in sizes]),
    }
    last = [found[f"{n}x{n}"] for n in sides[-2:]]  # where what a call costs by itself no longer counts
    for what in ("sweep_ms", "solve_cpu_seconds"):
        name = f"{what.split('_')[0]}_exponent_of_the_two_largest"
        found["growth"][name] = exponent([s["nonzeros"] for s in last], [s[what] for s in last])
    return found | {f"fitted {n}": alone(n, "measure_fitted") for n in FITTED}
