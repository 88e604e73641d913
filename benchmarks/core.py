"""How fast the exact solver is, against the plainest loop of the same algorithm and against belief-greedy."""

import resource
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from veilstream.control.automaton import window
from veilstream.model.builtin import builtin_problem
from veilstream.model.information import Array
from veilstream.model.problem import Average, Problem
from veilstream.solvers import curve, solve
from veilstream.solvers.bounds import certify_solution
from veilstream.solvers.starts import starting_models
from veilstream.solvers.sweep import Sweep


def plain_causal_ba(P: Array, cost: Array, sweeps: int, window: int = 1) -> float:
    """The recursion of `solvers.sweep` as plainly as it can be written; returns the value in bits per step."""
    Z, Y = cost.shape
    S = Y**window
    r, alpha, mu = np.full((S, Y), 1 / Y), np.zeros((S, Z)), np.full((S, Z), 1 / (S * Z))
    value = 0.0
    for _ in range(sweeps):
        new_alpha, new_mu, new_r = np.zeros((S, Z)), np.zeros((S, Z)), np.zeros((S, Y))
        for s in range(S):
            following = [(s * Y + y) % S for y in range(Y)]
            summand = np.stack([r[s, y] * np.exp2(-cost[:, y] - P @ alpha[following[y]]) for y in range(Y)], 1)
            N = summand.sum(1)
            m = mu[s][:, None] * summand / N[:, None]
            new_alpha[s] = -np.log2(N)
            new_r[s] = m.sum(0) / max(m.sum(), 1e-300)
            for y in range(Y):
                new_mu[following[y]] += m[:, y] @ P
        value = float((mu * (new_alpha - alpha)).sum())
        alpha, mu, r = new_alpha - value, new_mu, new_r
    return value


def seconds(work: Callable[[], Any], rounds: int = 1) -> tuple[float, Any]:
    """The best time of `rounds`, and the last result."""
    best, result = np.inf, None
    for _ in range(rounds):
        began = perf_counter()
        result = work()
        best = min(best, perf_counter() - began)
    return best, result


def bench_sweep() -> dict[str, float]:
    """One sweep for 24 weights at once, against 24 sweeps of the plain loop (16 states, window 1)."""
    problem = builtin_problem("grid4x4-q2", Average(weight=1.0))
    weights = np.geomspace(0.2, 10, 24)
    sweep, index = Sweep(problem, problem.cost(weights), window(problem.n_outputs, 1)), np.arange(24)
    tables = sweep.start(np.repeat(starting_models(problem, 1)[:1], 24, 0))
    ours, _ = seconds(lambda: [sweep(tables, index) for _ in range(20)], 3)
    plain, _ = seconds(lambda: plain_causal_ba(problem.chain.transition, problem.cost(1.0), 5), 3)
    ours, plain = 20 * 24 / ours, 5 / plain
    return {"sweeps_per_s_24_weights": ours, "plain_sweeps_per_s": plain, "ratio": ours / plain}


def bench_solve() -> dict[str, float]:
    """A whole solve against belief-greedy at the same weight: time, and what it buys."""
    problem = builtin_problem("grid4x4-q2", Average(weight=1.0))
    ours, s = seconds(lambda: solve(problem), 3)
    greedy, g = seconds(lambda: solve(problem, method="belief-greedy"))
    proof, c = seconds(lambda: certify_solution(s, 30.0))
    return {
        "seconds": ours,
        "objective": s.objective,
        "belief_greedy_seconds": greedy,
        "belief_greedy_objective": g.objective,
        "times_faster": greedy / ours,
        "certificate_seconds": proof,
        "certified_gap": c.gap or 0.0,
    }


def bench_curve() -> dict[str, float]:
    """24 weights on 16 states."""
    problem = builtin_problem("grid4x4-q2", Average(weight=1.0))
    took, points = seconds(lambda: curve(problem))
    one, _ = seconds(lambda: solve(problem))
    return {"seconds": took, "points": len(points), "single_solves": took / one}


def bench_large() -> dict[str, float]:
    """256 states at one weight, against the time its sweeps would take in the plain loop (from two windows' worth)."""
    problem = builtin_problem("grid16x16-q1", Average(weight=1.0))
    took, s = seconds(lambda: solve(problem))
    P, cost = problem.chain.transition, problem.cost(1.0)
    n, alpha, r = 256, np.zeros((256, 256)), np.full((256, 256), 1 / 256)

    def two_windows() -> None:
        for i in range(2):
            summand = np.stack([r[i, y] * np.exp2(-cost[:, y] - P @ alpha[y]) for y in range(n)], 1)
            m = summand / summand.sum(1)[:, None]
            for y in range(n):
                m[:, y] @ P

    plain, _ = seconds(two_windows)
    sweeps = s.history[-1]["sweep"]
    return {
        "seconds": took,
        "sweeps": sweeps,
        "plain_seconds": plain / 2 * n * sweeps,
        "ratio": plain / 2 * n * sweeps / took,
        "peak_rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def bench_lift() -> dict[str, float]:
    """The order-2 lift of a 16-state chain: 256 states, 16 releases, window 2."""
    base = builtin_problem("grid4x4-q2", Average(weight=1.0))
    problem = Problem(base.chain.lift(2), base.distortion, base.constraint)
    took, s = seconds(lambda: solve(problem))
    return {"seconds": took, "objective": s.objective, "same_problem_order_1": solve(base, window=2).objective}


def run() -> dict[str, dict[str, float]]:
    return {
        "sweep": bench_sweep(),
        "solve": bench_solve(),
        "curve": bench_curve(),
        "large": bench_large(),
        "lift": bench_lift(),
    }
