"""What of a promise survives: policies made from the earlier part of real records, checked on the later part.

People (GeoLife): fitted on the first two thirds of their traces in time, --avg 1km, checked on the last third.
Meters (London): fitted on the first half of the year, 8 bins, a limit halfway between the least possible and revealing
nothing, checked on the second half.

Each twice: as it is, and kept by feedback, with a public move a day (people) or a week (meters).
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from veilstream.core.course import Course
from veilstream.core.held_out import HeldOut
from veilstream.core.problem import Average, Problem
from veilstream.data.fitting import FitOptions, fit_model
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.solvers import solve

if TYPE_CHECKING:
    from veilstream.core.interval import Interval
    from veilstream.data.readings import Readings

LIMIT_KM = 1.0
DAY_S = 86_400.0
BINS = 8
Row = dict[str, float | str]


def survives(readings: "Readings", options: FitOptions, limit: float | None = None, days: int = 7) -> Row:
    """limit: on the mean, from reading to release; halfway between the least possible and revealing nothing if none.

    days: between public moves.
    """
    model = fit_model(readings, options)
    if model.later is None:
        return {"held out": "nothing: the record is too short"}
    utility = Utility.of(model.chain, model.states, model.record, held_out=model.later.record)
    course = utility.course
    if course is None or utility.held_out is None:
        return {"held out": "too few fitted steps to say how readings lie around their states"}
    if limit is None:
        allowed = utility.problem(Average(weight=1.0)).allowed
        limit = (course.least(allowed) + utility.blind) / 2
    problem = utility.problem(Average(limit=limit))
    solution = solve(problem, course=course, held_out=utility.held_out)
    record, later = solution.record, solution.held_out
    assert record is not None and later is not None
    felt, bits = later.raw_distortion.scaled(1 / limit), later.leakage
    every = round(days * DAY_S / (model.recording.period_s or DAY_S))
    return {
        "states": len(model.states),
        "held out": f"{later.units} {later.unit}" + ("" if later.level == "held out" else ", model only"),
        "limit": limit,
        "felt/limit, fitted": record.felt / limit,
        "felt/limit, later": felt.value,
        "felt/limit, interval": _span(felt),
        "kept": "yes" if felt.value <= 1 else "within the interval" if felt.low <= 1 else "NO",
        "bits, long run": solution.leakage,
        "bits, fitted": record.bits,
        "bits, later": bits.value,
        "bits, interval": _span(bits),
        "later/fitted": bits.value / record.bits if record.bits > 0 else 0.0,
        "claim": "inside" if bits.low <= record.bits <= bits.high else "above" if record.bits > bits.high else "BELOW",
        "bits at most, any data": solution.worst_leakage if solution.worst_leakage is not None else "",
        **kept(problem, limit, every, course, utility.held_out, bits.value),
    }


def kept(problem: Problem, limit: float, every: int, fitted: Course, later: Course, without: float) -> Row:
    """The same limit kept by feedback; without: bits per step on the later data of the policy that only promised it."""
    try:
        ladder = solve(problem, course=fitted, feedback=every).policy
    except InputError as fault:
        return {"feedback": f"refused: {fault}"}
    found = later.leakage(ladder, problem.chain)
    felt = HeldOut.of(later, ladder, problem.chain, problem.distortion).raw_distortion.scaled(1 / limit)
    assert found.charged is not None
    return {
        "feedback: felt/limit": felt.value,
        "feedback: interval": _span(felt),
        "feedback: bits": found.bits,
        "feedback: bits/without": found.bits / without if without > 0 else 0.0,
        "feedback: charged/bits": found.charged / found.bits if found.bits > 0 else 0.0,
        "feedback: moves": found.moves,
    }


def tried(readings: "Readings", options: FitOptions, limit: float | None = None, days: int = 7) -> Row:
    """The same; a record that cannot be fitted or cut says why."""
    try:
        return survives(readings, options, limit, days)
    except InputError as fault:
        return {"held out": f"nothing: {fault}"}


def _span(figure: "Interval") -> str:
    return f"[{figure.low:.3f}, {figure.high:.3f}]"


def run() -> dict[str, Row]:
    """Everybody in $VEIL_DATA/geolife and $VEIL_DATA/smartmeter/*.csv, one row each, then the counts."""
    from veilstream.data.sources import read

    folder = Path(os.environ.get("VEIL_DATA", "data"))
    rows: dict[str, Row] = {}
    for user in sorted(p for p in folder.glob("geolife/*") if p.is_dir()):
        rows[user.name] = tried(read([str(user)]), FitOptions(hold_out=1 / 3), LIMIT_KM, days=1)
    for table in sorted(folder.glob("smartmeter/*.csv")):
        readings = read([str(table)], unit="kWh")
        for name in readings.streams:
            rows[name] = tried(readings.only(name), FitOptions(n_states=BINS, hold_out=0.5))
    if not rows:
        return {"data": {"note": "none: name a folder with geolife/ and smartmeter/ in VEIL_DATA"}}
    told = [r for r in rows.values() if "kept" in r]
    fed = [r for r in told if "feedback: felt/limit" in r]
    rows["all"] = {
        "people and meters": len(told),
        "limit kept": sum(r["kept"] == "yes" for r in told),
        "limit within the interval": sum(r["kept"] != "NO" for r in told),
        "claimed bits inside or above": sum(r["claim"] != "BELOW" for r in told),
        "claimed bits inside": sum(r["claim"] == "inside" for r in told),
        "feedback: worst felt/limit": max((float(r["feedback: felt/limit"]) for r in fed), default=0.0),
        "feedback: within 1.05": sum(float(r["feedback: felt/limit"]) <= 1.05 for r in fed),
    }
    return rows
