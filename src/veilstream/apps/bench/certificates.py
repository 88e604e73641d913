"""How near proofs come: (objective - lower bound) / objective of what `veil solve --certify` finds.

Time is the processor's, of the certificate alone. The chain of a person: GeoLife user 016 of $VEIL_DATA, 16 stops.
"""

import time

from veilstream.apps.bench.limits import fitted, sticky
from veilstream.apps.bench.records import everybody
from veilstream.core.builtin import builtin_problem
from veilstream.core.chain import MarkovChain
from veilstream.core.problem import Average, Constraint, Instantaneous, Problem
from veilstream.solvers import solve
from veilstream.solvers.bounds.solutions import certificate_of

SECONDS = 60.0
PERSON, STOPS, WEIGHTS = "016", 16, (0.05, 0.15, 0.6, 2.0)
WALKS, STICKY = (40, 64, 128, 256), (0, 1, 2)
QS, EVERY = ("q1", "q2"), "at every step"
CASES: dict[str, tuple[str, Constraint]] = {
    **{f"grid 4x4, {q}, weight {w:g}": (f"grid4x4-{q}", Average(weight=w)) for q in QS for w in (1.0, 2.0, 4.0)},
    **{f"grid 4x4, {q}, limit {m} {EVERY}": (f"grid4x4-{q}", Instantaneous(m)) for q in QS for m in (1, 2, 3)},
    **{f"grid 16x16, q2, weight {w:g}": ("grid16x16-q2", Average(weight=w)) for w in (0.5, 1.0, 2.0)},
    f"grid 32x32, local moves, limit 2 {EVERY}": ("grid32x32-local", Instantaneous(2)),
}
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


def run() -> dict[str, dict[str, float | str]]:
    found = {name: measured(builtin_problem(*case)) for name, case in CASES.items()}
    found |= {f"a walk on {n} cells, fitted, weight 0.5": measured(fitted(n)) for n in WALKS}
    found |= {f"random sticky chain {k}, 40 states": measured(sticky(seed=k)) for k in STICKY}
    return found | {"order 2 on 16 symbols, weight 1": measured(order_two())} | _person()


def _person() -> dict[str, dict[str, float | str]]:
    from veilstream.data.fitting import FitOptions, fit_model

    for who, readings in everybody():
        if who == PERSON:
            model = fit_model(readings, FitOptions(n_states=STOPS, hold_out=0.0))
            distances = model.states.distances()
            problems = {w: Problem(model.chain, distances, Average(weight=w)) for w in WEIGHTS}
            return {f"GeoLife {who}, {len(distances)} stops, weight {w:g}": measured(p) for w, p in problems.items()}
    return {}
