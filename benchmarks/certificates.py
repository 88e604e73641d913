"""How near proofs come: (objective - lower bound) / objective of what `veil solve --certify` finds.

Time is the processor's, of the certificate alone. The chain of a person: GeoLife user 016 of $VEIL_DATA, 16 stops.
"""

import time
from collections.abc import Callable
from functools import partial

from benchmarks.limits import fitted, sticky
from benchmarks.records import everybody
from veilstream.model.builtin import builtin_problem
from veilstream.model.chain import MarkovChain
from veilstream.model.problem import Average, Instantaneous, Problem
from veilstream.solvers import solve
from veilstream.solvers.bounds.solutions import certificate_of

SECONDS = 60.0
PERSON, STOPS, WEIGHTS = "016", 16, (0.05, 0.15, 0.6, 2.0)
QS, EVERY = ("q1", "q2"), "at every step"
WHO = "problem"
TABLE = {"bits per step": "{leakage:.4f}", "gap": "{gap_percent:.2g} %", "memory": "{memory}", "time": "{cpu_s:.1f} s"}


def measured(problem: Problem) -> dict[str, float | str]:
    found = solve(problem)
    begin = time.process_time()
    proved = certificate_of(found, SECONDS)
    took = time.process_time() - begin
    gap = (found.objective - proved.lower_bound) / found.objective
    return {"leakage": found.leakage, "gap_percent": round(100 * gap, 4), "memory": proved.memory, "cpu_s": took}


def order_two(steps: int = 4_000) -> Problem:
    """A chain of order 2 on 16 symbols, counted and smoothed: as many states as histories were seen."""
    base = builtin_problem("grid4x4-q2", Average(weight=1.0))
    chain = MarkovChain.fit(base.chain.sample(steps, seed=1), 16, order=2, smoothing=0.05)
    return Problem(chain, base.distortion, base.constraint)


CASES: dict[str, Callable[[], Problem]] = {
    **{
        f"grid 4x4, {q}, weight {w:g}": partial(builtin_problem, f"grid4x4-{q}", Average(w))
        for q in QS
        for w in (1, 2, 4)
    },
    **{
        f"grid 4x4, {q}, limit {m} {EVERY}": partial(builtin_problem, f"grid4x4-{q}", Instantaneous(m))
        for q in QS
        for m in (1, 2, 3)
    },
    **{f"grid 16x16, q2, weight {w:g}": partial(builtin_problem, "grid16x16-q2", Average(w)) for w in (0.5, 1, 2)},
    f"grid 32x32, local moves, limit 2 {EVERY}": partial(builtin_problem, "grid32x32-local", Instantaneous(2)),
    **{f"a walk on {n} cells, fitted, weight 0.5": partial(fitted, n) for n in (40, 64, 128, 256)},
    **{f"random sticky chain {k}, 40 states": partial(sticky, seed=k) for k in range(3)},
    "order 2 on 16 symbols, weight 1": order_two,
}


def run() -> dict[str, dict[str, float | str]]:
    return {name: measured(case()) for name, case in CASES.items()} | _person()


def _person() -> dict[str, dict[str, float | str]]:
    from veilstream.data.fitting import fit_model
    from veilstream.data.spec import FitSpec

    for who, readings in everybody():
        if who == PERSON:
            model = fit_model(readings, FitSpec(n_states=STOPS, hold_out=0.0, cycle="none"))
            distances = model.states.distances()
            problems = {w: Problem(model.chain, distances, Average(weight=w)) for w in WEIGHTS}
            return {f"GeoLife {who}, {len(distances)} stops, weight {w:g}": measured(p) for w, p in problems.items()}
    return {}
