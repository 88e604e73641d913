"""The hour of the day: how long a chain with a clock takes, and what the clock is worth on households' next half-year.

The readings are those of the Low Carbon London trial, a household a column, looked for in $VEIL_DATA; without them only
the times are measured. Fitted on the first half of each record; objective: bits of the any-law bound plus weight times
the felt distance, on the second half, starts and gaps included.
"""

import os
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from veilstream.model.chain import MarkovChain
from veilstream.model.clock import Clock
from veilstream.model.problem import Average, Problem
from veilstream.solvers import curve, solve
from veilstream.solvers.bounds import certify_solution

METERS = Path("smartmeter") / "lcl_2013_halfhourly_20households.csv"
ZONE, BINS, WEIGHT = "Europe/London", 8, 8.0
FEW = 3  # households, unless all are asked for
LEAST_STEPS = 100
WHO = "household"
TABLE = {
    "held-out loss, bits": "{plain_loss:.3f}",
    "with the clock": "{clock_loss:.3f}",
    "objective": "{plain_objective:.3f}",
    "objective with the clock": "{clock_objective:.3f}",
    "": "{change:+.1%}",
    "phases": "{phases}",
}


def invented(phases: int = 48, states: int = 16, seed: int = 0) -> Problem:
    """Levels of a meter that move slowly, up in the morning and down at night."""
    rng = np.random.default_rng(seed)
    level = np.arange(states)
    apart = np.abs(level[:, None] - level)
    P = np.empty((phases, states, states))
    for phase in range(phases):
        pull = np.sin(2 * np.pi * phase / phases) * (level[None] - level[:, None]) / states
        P[phase] = np.exp(-apart / 1.5 + 2 * pull) * rng.uniform(0.5, 1.5, (states, states)) + 1e-4
    P /= P.sum(-1, keepdims=True)
    return Problem(MarkovChain(P, clock=Clock("day", phases, 86400.0 / phases)), apart / 4.0, Average(weight=1.0))


def bench_solve(certify_s: float = 20.0) -> dict[str, Any]:
    """48 phases x 16 states: at a weight, at a limit, a curve; and how near the best."""
    problem = invented()
    took, found = {}, solve(problem)
    for name, run in (
        ("weight", lambda: solve(problem)),
        ("limit", lambda: solve(problem.under(Average(limit=1.1 * found.distortion)))),
        ("curve", lambda: curve(problem)),
    ):
        began = process_time()
        run()
        took[f"{name}_cpu_s"] = process_time() - began
    return {**took, "gap": certify_solution(found, certify_s).gap}


def household(readings: Any, name: str) -> dict[str, float] | None:
    """Held-out loss and objective on the later half, without a clock and with `cycle="auto"`."""
    from dataclasses import replace

    from veilstream.artefact import Artefact
    from veilstream.audit.source import Recorded, recorded_runs
    from veilstream.data.crossval import losses
    from veilstream.data.fitting import fit_model
    from veilstream.data.spec import FitSpec
    from veilstream.data.utility import Utility

    own = readings.only(name)
    frame = own.frame
    if frame.height < 2 * LEAST_STEPS:
        return None
    half = frame.height // 2
    first, second = (replace(own, frame=part) for part in (frame.head(half), frame.slice(half)))
    found: dict[str, float] = {}
    for what, cycle in (("plain", "none"), ("clock", "auto")):
        model = fit_model(
            first,
            FitSpec(
                n_states=BINS,
                cycle=cycle,  # type: ignore[arg-type]
                zone=ZONE,
                hold_out=0.0,
            ),
        )
        utility = Utility.of(model.chain, model.states, model.record)
        problem = utility.problem(Average(weight=WEIGHT))
        policy = solve(problem).policy
        artefact = Artefact(policy, problem, model.states, model.chain, model.recording)
        runs = recorded_runs(second, artefact)
        tried = Recorded.of(artefact, second).record
        assert tried is not None
        found |= {
            f"{what}_loss": float(np.concatenate(losses(model.chain, runs.sequences, runs.first)).mean()),
            f"{what}_bits": tried.bits,
            f"{what}_felt": tried.error,
            f"{what}_objective": tried.bits + WEIGHT * tried.error,
            "phases": model.chain.phases,
        }
    return {**found, "change": found["clock_objective"] / found["plain_objective"] - 1}


def bench_households(path: Path, most: int | None) -> dict[str, dict[str, Any]]:
    """One row each, then all of them."""
    from veilstream.data.sources import read

    readings = read([str(path)], columns="value=*", unit="kWh")
    each = {name: household(readings, name) for name in readings.streams[:most]}
    known = {name: h for name, h in each.items() if h is not None}
    change = [h["change"] for h in known.values()]
    summary = {
        "how many": len(known),
        "too little data": ", ".join(name for name, h in each.items() if h is None) or "none",
        "median change of the objective": median(change),
        "worst change": max(change),
        "best change": min(change),
        "median loss without": median(h["plain_loss"] for h in known.values()),
        "median loss with": median(h["clock_loss"] for h in known.values()),
    }
    return {**known, "households": summary}


def run(full: bool = False) -> dict[str, dict[str, Any]]:
    found = {"solve": bench_solve()}
    path = Path(os.environ.get("VEIL_DATA", "")) / METERS
    if os.environ.get("VEIL_DATA") and path.is_file():
        found |= bench_households(path, None if full else FEW)
    return found
