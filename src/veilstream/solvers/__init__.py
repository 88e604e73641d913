"""From a problem to a policy: solvers, the search for a limit, certificates; `solve` knows methods by name."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

from veilstream.control.epsilon import Epsilon
from veilstream.control.limit_check import LEAST_UNITS, HeldOut
from veilstream.control.replay import Replay, Total
from veilstream.errors import InputError
from veilstream.model.information import Array
from veilstream.model.problem import Average, Problem
from veilstream.solvers import search
from veilstream.solvers.adaptive import climb
from veilstream.solvers.baselines import SHAPES, Baseline, BeliefGreedy
from veilstream.solvers.causal_ba import CausalBA, envelope, myopic
from veilstream.solvers.solution import Level, Point, Progress, Solution, Solver, Status
from veilstream.solvers.totals import with_total

__all__ = ["METHODS", "Level", "Point", "Solution", "Status", "curve", "solve"]

METHODS: dict[str, Callable[..., Any]] = {
    "causal-ba": CausalBA,
    "myopic": myopic,
    "belief-greedy": BeliefGreedy,
    **{shape: partial(Baseline, shape) for shape in SHAPES},
}
LEARNED = {"a2c": {"fast": "veilstream.deep.a2c:A2C", "paper": "veilstream.deep.algorithm1:Algorithm1"}}  # by mode
ABOVE = 1.01  # of the limit: what is felt beyond this is said


def solver_of(problem: Problem, method: str | Solver, **options: Any) -> tuple[Solver, str]:
    """A solver as it is, or the one of that name with its options; and what to call it."""
    if isinstance(method, str):
        solver, name = make_solver(method, **options), method
    else:
        solver, name = method, method.name
        given = [k for k, v in options.items() if v is not None and k != "seed"]
        if given:
            raise InputError(f"{name} has its options already; {given[0]!r} was given beside it")
    if problem.chain.phases > 1 and not solver.clocks:
        raise InputError(f"method {name} cannot look at a clock; fit with `cycle='none'`, or use causal-ba")
    return solver, name


def make_solver(method: str, **options: Any) -> Solver:
    """The solver of that name with its options, or a line saying what there is."""
    if method not in METHODS and method not in LEARNED:
        known = [*METHODS, *LEARNED]
        near = get_close_matches(method, known, 1)
        hint = f"did you mean {near[0]}?" if near else "known: " + ", ".join(known)
        raise InputError(f"unknown method {method!r}; {hint}")
    maker: Callable[..., Solver] = METHODS.get(method) or _learned(method, options.get("mode") or "fast")
    accepted = signature(maker).parameters
    unknown = [k for k, v in options.items() if k not in accepted and v is not None]
    if unknown:
        raise InputError(f"method {method} has no option {unknown[0]!r}; it has {', '.join(accepted)}")
    return maker(**{k: v for k, v in options.items() if k in accepted})


def _learned(method: str, mode: str) -> Callable[..., Solver]:
    """Imported when asked for: only these need the extra `deep`."""
    if mode not in LEARNED[method]:
        raise InputError(f"{method}: mode must be one of {', '.join(LEARNED[method])}, found {mode!r}")
    module, _, name = LEARNED[method][mode].partition(":")
    try:
        maker: Callable[..., Solver] = getattr(import_module(module), name)
    except ModuleNotFoundError as missing:
        line = f"method {method} needs {missing.name}; install it with: pip install 'veilstream[deep]'"
        raise InputError(line) from None
    return maker


def solve(
    problem: Problem,
    method: str | Solver = "causal-ba",
    window: int | None = None,
    certify: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    replay: Replay | None = None,
    feedback: int | None = None,
    max_bits: float | None = None,
    held_out: Replay | None = None,
    total: Total | None = None,
    **options: Any,
) -> Solution:
    """The policy that leaks least under the problem's constraint. method: a name, or a solver of your own.

    window: released symbols the policy remembers; None: a memory made to measure, as large as pays.
    replay: recorded streams that a mean limit is about, and that the policy is tried on; else it is about the long run
    of the chain. held_out: later streams that nothing was fitted to, for figures that do not believe the chain.
    feedback: a mean limit is kept by public moves between rungs, every so many steps, in the long run; no rung
    leaks more than max_bits per step; the first one is chosen on the earlier half of what was held out.
    total: what the releases of those streams are to add up to, in the mean.
    certify: prove a lower bound that holds for every policy (`certify_seconds` of work).
    epsilon=1.0 (nats): no release is e^epsilon times likelier for one state than for another, at any step; lower bounds
    are those of policies without this limit, and hold for those with it.
    Many states: dtype="float32" halves the memory of the sweeps, and
    memory_gb=4 refuses what would need more (default: what the machine has free).
    """
    started = time.perf_counter()
    seconds = options.pop("certify_seconds", 30.0)
    if window is not None:
        options["window"] = window
    solver, name = solver_of(problem, method, seed=seed, **options)
    if feedback is not None and not solver.sharp:
        raise InputError("epsilon goes without `feedback`, whose moves look at the data")
    if feedback is not None:
        chosen_on = None
        if held_out is not None and held_out.n_units > 1:  # chosen on its earlier half, reported of its later one
            chosen_on, held_out = held_out.halves(LEAST_UNITS)
        rungs = climb(problem, solver, feedback, replay, chosen_on, max_bits, progress)
        solution = replace(Solution.of(problem, name, rungs.start, rungs.weight), policy=rungs.ladder, ladder=rungs)
        solution = solution if replay is None else solution.recorded(replay)
    elif total is not None and replay is not None:
        solution = with_total(
            problem, total, replay, lambda lean, tell: met(lean, solver, name, tell, replay), progress
        )
    else:
        solution = met(problem, solver, name, progress, replay)
    if held_out is not None:
        solution = replace(solution, held_out=HeldOut.of(held_out, solution.policy, problem))
    if not solver.sharp:
        solution = replace(solution, epsilon=Epsilon.of(problem.chain, solution.policy))
    if certify:
        from veilstream.solvers.bounds import certify_solution

        solution = certify_solution(solution, seconds, progress)
    return replace(solution, seconds=time.perf_counter() - started)


def met(problem: Problem, solver: Solver, name: str, progress: Progress | None, replay: Replay | None) -> Solution:
    """What the solver finds at the weight that was asked for, or at the one that meets the limit."""
    average = problem.average
    if average is None or (isinstance(average, Average) and average.weight is not None):
        weight = 0.0 if average is None else float(average.weight)  # type: ignore[arg-type]
        point = solver.at(problem, np.array([weight]), progress)[0]
    else:
        own = solver.meet(problem, average, progress, replay)
        point, weight = search.meet(problem, solver, average, progress, replay) if own is None else own
    solution = Solution.of(problem, name, point, weight)
    if replay is None:
        return solution
    solution = solution.recorded(replay)
    limit, seen = average.limit if isinstance(average, Average) else None, solution.record
    if limit is None or seen is None or seen.error <= ABOVE * limit:
        return solution  # methods with a way of their own to a limit may be above it
    line = f"{seen.error:.3g} on your recorded data, above {limit:g}: {name} keeps a limit in the long run only"
    return replace(solution, warnings=[*solution.warnings, line])


def curve(
    problem: Problem,
    weights: Sequence[float] | Array | None = None,
    method: str | Solver = "causal-ba",
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> list[Solution]:
    """The trade-off curve: for each weight the best of all policies found at any of them (24 weights by default)."""
    started = time.perf_counter()
    weights = default_weights(problem) if weights is None else np.asarray(weights, dtype=float)
    if weights.ndim != 1 or not weights.size or not np.isfinite(weights).all() or (weights < 0).any():
        raise InputError("weights must be a list of finite numbers >= 0")
    solver, name = solver_of(problem, method, seed=seed, **options)
    best = envelope(solver.at(problem, weights, progress), weights)
    seconds = time.perf_counter() - started
    found = zip(best, weights, strict=True)
    return [replace(Solution.of(problem, name, point, float(w)), seconds=seconds) for point, w in found]


def default_weights(problem: Problem, n: int = 24) -> Array:
    """From where nothing is released to where nearly everything is."""
    wide = search.first_weights(problem)
    return np.geomspace(wide[0], wide[-1], n)
