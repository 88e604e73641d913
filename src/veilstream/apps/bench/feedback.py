"""Limits kept by feedback: the later part of real records, with and without public moves.

People (GeoLife): fitted on the first two thirds of their traces in time, --avg 1km, a move a day.
Meters (London): fitted on the first half of the year, a quarter of what revealing nothing costs, a move a week.
Both are checked on all the rest.
"""

from typing import TYPE_CHECKING

import numpy as np

from veilstream.apps.bench.records import NONE, everybody
from veilstream.core.course import Course
from veilstream.core.problem import Average
from veilstream.data.fitting import FitOptions, fit_model
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.solvers import solve
from veilstream.solvers.ladder import Climb

if TYPE_CHECKING:
    from veilstream.data.readings import Readings

LIMIT_KM, SHARE = 1.0, 0.25
MOST = 1.05  # felt over the limit that still counts as kept
Row = dict[str, float | str]


def kept(readings: "Readings", options: FitOptions, every: str, limit: float | None = None) -> Row:
    """limit: on the mean, from reading to release; a quarter of what revealing nothing costs if none."""
    model = fit_model(readings, options)
    if model.later is None:
        return {"note": "the record is too short to hold anything out"}
    utility = Utility.of(model.chain, model.states, model.record, held_out=model.later.record)
    course, later, chain = utility.course, utility.held_out, model.chain
    if course is None or later is None:
        return {"note": "too few fitted steps to say how readings lie around their states"}
    limit = SHARE * utility.blind if limit is None else limit
    problem = utility.problem(Average(limit=limit))
    plain = solve(problem, course=course).policy
    climbed = solve(problem, course=course, feedback=model.recording.steps_in(every, "`feedback`")).ladder
    without, found = later.whole(plain, chain), later.whole(climbed.ladder, chain)
    floor = later.felt(climbed.points[0].policy) / limit
    assert found.charged is not None
    return {
        "states": len(model.states),
        "limit": limit,
        "without: felt/limit": without.felt / limit,
        "without: bits": without.bits,
        "felt/limit": found.felt / limit,
        "bits": found.bits,
        "bits/without": found.bits / without.bits if without.bits > 0 else 0.0,
        "charged/bits": found.charged / found.bits if found.bits > 0 else 0.0,
        "moves": found.moves,
        "felt/limit of rung 0": floor,
        "one rung with that mean: bits": _one_rung(found.felt, climbed, later),
        "kept": "yes" if found.felt <= MOST * limit else "rung 0 cannot" if floor > 1 else "NO",
    }


def _one_rung(felt: float, climbed: Climb, later: Course) -> float:
    """Bits per step in the long run where, in hindsight, one point of the curve would have had this mean."""
    means = [later.felt(p.policy) for p in climbed.points]
    return float(np.interp(felt, means, [p.leakage for p in climbed.points]))


def run() -> dict[str, Row]:
    """Everybody, one row each, then the counts."""
    rows: dict[str, Row] = {}
    for name, readings in everybody():
        hold_out, *how = (0.5, "week", None) if readings.kind == "value" else (1 / 3, "day", LIMIT_KM)
        try:
            rows[name] = kept(readings, FitOptions(hold_out=hold_out, cycle="none"), *how)
        except InputError as fault:
            rows[name] = {"note": str(fault)}
    if not rows:
        return NONE
    told = [r for r in rows.values() if "kept" in r]
    able = [r for r in told if r["kept"] != "rung 0 cannot"]
    rows["all"] = {
        "people and meters": len(told),
        "without: within the limit": sum(float(r["without: felt/limit"]) <= 1 for r in told),
        "without: worst": max((float(r["without: felt/limit"]) for r in told), default=0.0),
        f"within {MOST} times": sum(r["kept"] == "yes" for r in told),
        "worst": max((float(r["felt/limit"]) for r in told), default=0.0),
        "worst where rung 0 can": max((float(r["felt/limit"]) for r in able), default=0.0),
        "bits": sum(float(r["bits"]) for r in told) / max(len(told), 1),
        "without: bits": sum(float(r["without: bits"]) for r in told) / max(len(told), 1),
    }
    return rows
