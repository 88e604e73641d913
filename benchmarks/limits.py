"""What people type is a limit: its price in weights, its certificate, and what memory buys.

Chains are fitted to a walk of local moves and smoothed, so that every transition is possible, as those of people are.
`states N`: one weight, a mean limit (the distortion found at that weight, so that both end at the same point), and a
certificate in so many seconds (PROOF, twice what a limit of that size may take: they are quicker than that). `growth`:
memories made to measure against plain window raising, on a sticky chain, and the gap that is proved of each. `curve`:
12 certified points. Processor seconds, one run each.
"""

from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

from veilstream.model.builtin import builtin_problem
from veilstream.model.chain import MarkovChain
from veilstream.model.problem import Average, Problem
from veilstream.solvers import curve, solve
from veilstream.solvers.bounds import certify_curve, certify_solution

SIDES = {16: (4, 4), 40: (5, 8), 64: (8, 8), 128: (8, 16), 256: (16, 16), 1024: (32, 32)}
USUAL = (16, 40, 64, 128, 256)
STEPS = 20_000  # of the walk
RARE = 0.02  # pseudo-counts a transition
WEIGHT = 0.5
PROOF = {16: 2.0, 40: 6.0, 64: 10.0, 128: 20.0, 256: 60.0}  # seconds
CERTIFY = 30.0  # the same for growth and curve
Row = dict[str, float | str]


def fitted(n_states: int, steps: int = STEPS) -> Problem:
    """A walk on a grid, counted and smoothed: every entry positive."""
    rows, columns = SIDES[n_states]
    local = builtin_problem(f"grid{rows}x{columns}-local", Average(weight=WEIGHT))
    walk = local.chain.sample(steps, seed=n_states)
    return Problem(MarkovChain.fit(walk, n_states, smoothing=RARE), local.distortion, Average(weight=WEIGHT))


def sticky(n_states: int = 40, seed: int = 0) -> Problem:
    """Four steps of five stay; the others go anywhere, unevenly; distances of points in a square."""
    rng = np.random.default_rng(seed)
    P = rng.gamma(0.5, size=(n_states, n_states))
    P = 0.2 * P / P.sum(1, keepdims=True) + 0.8 * np.eye(n_states)
    at = rng.random((n_states, 2))
    return Problem(MarkovChain(P), np.linalg.norm(at[:, None] - at[None], axis=-1), Average(weight=3.0))


def spent(work: Callable[..., Any], *given: Any, **options: Any) -> tuple[float, Any]:
    """Processor seconds, and the result."""
    began = process_time()
    result = work(*given, **options)
    return process_time() - began, result


def at_limit(n_states: int, certified: bool = True) -> Row:
    """A weight, the limit it stands for, and the proof."""
    problem = fitted(n_states)
    one, weighed = spent(solve, problem)
    limit = weighed.distortion
    limited = Problem(problem.chain, problem.distortion, Average(limit=limit))
    took, met = spent(solve, limited)
    found: Row = {
        "weight_cpu_seconds": one,
        "limit_cpu_seconds": took,
        "weights_a_limit_costs": took / one,
        "distortion/limit": met.distortion / limit,
        "bits/those_of_the_weight": met.leakage / weighed.leakage,
        "memories": float(met.policy.n_memories or 0),
    }
    if certified:
        proof, c = spent(certify_solution, met, PROOF[n_states])
        found |= {"certificate_cpu_seconds": proof, "certified_gap": c.gap or 0.0}
    return found


def growth(problem: Problem) -> dict[str, Row]:
    """What is found, and what is proved of it, with memories made to measure and by raising the window."""
    found: dict[str, Row] = {}
    ways: dict[str, dict[str, Any]] = {"memory": {}, "windows": {"grow": False}, "last release": {"window": 1}}
    for name, options in ways.items():
        took, s = spent(solve, problem, **options)
        c = certify_solution(s, CERTIFY)
        found[name] = {
            "cpu_seconds": took,
            "memories": float(s.policy.n_memories or 0),
            "objective": s.objective,
            "certified_gap": c.gap or 0.0,
        }
    return found


def certified_curve(n_states: int = 16, points: int = 12) -> Row:
    problem = fitted(n_states)
    took, found = spent(curve, problem, WEIGHT * np.geomspace(1 / 4, 4, points))
    proof, certified = spent(certify_curve, found, CERTIFY)
    gaps = [s.gap or 0.0 for s in certified]
    return {"cpu_seconds": took, "certificate_cpu_seconds": proof, "points": float(points), "worst_gap": max(gaps)}


def run(full: bool = False) -> dict[str, Row]:
    found = {f"states {n}": at_limit(n) for n in USUAL}
    if full:
        found["states 1024"] = at_limit(1024, certified=False)
    found |= {f"growth, {name}": row for name, row in growth(sticky()).items()}
    found["curve"] = certified_curve()
    return found
