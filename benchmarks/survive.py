"""What of a promise survives: policies made from the earlier part of real records, checked on the later part.

People (GeoLife): fitted on the first two thirds of their traces in time, --avg 1km, checked on the last third.
Meters (London): fitted on the first half of the year, 8 bins, a limit halfway between the least possible and revealing
nothing, checked on the second half. With --full also fitted on every other week and checked on those between.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.records import NONE, everybody
from veilstream.data.fitting import fit_model
from veilstream.data.hold_out import WEEK_S, by_units
from veilstream.data.model import FittedModel
from veilstream.data.readings import MICROSECONDS, Account
from veilstream.data.spec import FitSpec
from veilstream.data.steps import encode
from veilstream.data.trajectories import Trajectories
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.problem import Average
from veilstream.solvers import solve

if TYPE_CHECKING:
    from veilstream.data.readings import Readings
    from veilstream.model.interval import Interval

LIMIT_KM = 1.0
BINS = 8
WHO = "who"
TABLE = {
    "held out": "{held out}",
    "felt / limit, later": "{felt/limit, later:.2f} {felt/limit, interval}",
    "bits, fitted": "{bits, fitted:.3f}",
    "bits, later (any law)": "{bits, later:.3f} {bits, interval}",
    "later / fitted": "{later/fitted:.2f}",
    "bits at most": "{bits at most, any data:.2f}",
}
Row = dict[str, float | str]


def survives(readings: "Readings", options: FitSpec, limit: float | None = None) -> Row:
    """Fitted on the earlier part, checked on the later one."""
    model = fit_model(readings, options)
    if model.later is None:
        return {"note": "nothing: the record is too short"}
    return judged(model, model.later.record, limit)


def alternate(readings: "Readings", options: FitSpec, limit: float | None = None) -> Row:
    """Fitted on every other week, checked on those between: the same seasons in both."""
    import polars as pl

    odd = (readings.frame["t"].max() - pl.col("t")) // (WEEK_S * MICROSECONDS) % 2 == 1
    model = fit_model(_only(readings, odd), replace(options, hold_out=0.0))
    runs = encode(_only(readings, ~odd), model.recording, model.states)
    return judged(model, by_units(runs.source, model.recording).recorded(), limit)


def _only(readings: "Readings", which: Any) -> "Readings":
    return replace(readings, frame=readings.frame.filter(which), account=Account())


def judged(model: FittedModel, held_out: Trajectories, limit: float | None) -> Row:
    """limit: on the mean, from reading to release; halfway between the least possible and revealing nothing if none."""
    utility = Utility.of(model.chain, model.states, model.record, held_out=held_out)
    replay = utility.replay
    if replay is None or utility.held_out is None:
        return {"note": "too few fitted steps to say how readings lie around their states"}
    if limit is None:
        allowed = utility.problem(Average(weight=1.0)).allowed
        limit = (replay.least(allowed) + utility.blind) / 2
    problem = utility.problem(Average(limit=limit))
    solution = solve(problem, replay=replay, held_out=utility.held_out)
    record, later = solution.record, solution.held_out
    assert record is not None and later is not None
    felt, bits = later.raw_distortion.scaled(1 / limit), later.leakage
    return {
        "states": len(model.states),
        "held out": f"{later.units} {later.unit}" + ("" if later.level == "held out" else ", model only"),
        "limit": limit,
        "felt/limit, fitted": record.error / limit,
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
    }


def tried(way: Callable[..., Row], *given: Any) -> Row:
    """A record that cannot be fitted or cut says why."""
    try:
        return way(*given)
    except InputError as fault:
        return {"note": f"nothing: {fault}"}


def _span(figure: "Interval") -> str:
    return f"[{figure.low:.3f}, {figure.high:.3f}]"


def run(full: bool = False) -> dict[str, Row]:
    """Everybody, one row each, then the counts.

    full: meters once more by alternate weeks.
    """
    rows: dict[str, Row] = {}
    mixed: dict[str, Row] = {}
    for name, own in everybody():
        if own.kind != "value":
            rows[name] = tried(survives, own, FitSpec(hold_out=1 / 3, cycle="none"), LIMIT_KM)
            continue
        options = FitSpec(n_states=BINS, hold_out=0.5, cycle="none")
        rows[name] = tried(survives, own, options)
        if full:
            mixed[f"{name}, alternate weeks"] = tried(alternate, own, options)
    if not rows:
        return NONE
    counted = {"all": counts(rows)} | ({"all, alternate weeks": counts(mixed)} if mixed else {})
    return rows | mixed | counted


def counts(rows: dict[str, Row]) -> Row:
    told = [r for r in rows.values() if "kept" in r]
    return {
        "people and meters": len(told),
        "limit kept": sum(r["kept"] == "yes" for r in told),
        "limit within the interval": sum(r["kept"] != "NO" for r in told),
        "claimed bits inside or above": sum(r["claim"] != "BELOW" for r in told),
        "claimed bits inside": sum(r["claim"] == "inside" for r in told),
    }
