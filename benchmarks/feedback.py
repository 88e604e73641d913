"""Limits kept by feedback: the later part of real records, with and without public moves.

People (GeoLife): fitted on the first two thirds of their traces in time, --avg 1km, a move a day.
Meters (London): fitted on the first half of the year, a quarter of what revealing nothing costs, a move a week.
Both are checked on all the rest.
"""

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.records import NONE, everybody
from veilstream.control.replay import Replay
from veilstream.data.fitting import fit_model
from veilstream.data.spec import FitSpec
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array
from veilstream.model.problem import Average
from veilstream.solvers import solve
from veilstream.solvers.adaptive import Climb

if TYPE_CHECKING:
    from veilstream.data.readings import Readings

LIMIT_KM, SHARE = 1.0, 0.25
MOST = 1.05  # felt over the limit that still counts as kept
HINDSIGHT = 100_000  # draws of a rung that is looked at in hindsight
Row = dict[str, float | str]
WHO = "who"
TABLE = {
    "limit": "{limit:.3g} {unit}",
    "without: felt / limit": "{felt/limit without:.2f}",
    "bits": "{bits without:.3f}",
    "with: felt / limit": "{felt/limit:.2f}",
    "with: bits": "{bits:.3f}",
    "one rung in hindsight": "{bits in hindsight:.3f}",
    "charged": "{charged:.3f}",
    "moves": "{moves:.0f}",
    "rung 0": "{felt/limit of rung 0:.2f}",
}


def kept(readings: "Readings", options: FitSpec, every: str, limit: float | None = None) -> Row:
    """limit: on the mean, from reading to release; a quarter of what revealing nothing costs if none."""
    model = fit_model(readings, options)
    if model.later is None:
        return {"note": "the record is too short to hold anything out"}
    utility = Utility.of(model.chain, model.states, model.record, held_out=model.later.record)
    replay, later, chain = utility.replay, utility.held_out, model.chain
    if replay is None or later is None:
        return {"note": "too few fitted steps to say how readings lie around their states"}
    limit = SHARE * utility.blind if limit is None else limit
    problem = utility.problem(Average(limit=limit))
    plain = solve(problem, replay=replay).policy
    climbed = solve(problem, replay=replay, feedback=model.recording.steps_in(every, "`feedback`")).ladder
    without, found = later.whole(plain, chain), later.whole(climbed.ladder, chain)
    means = np.array([later.error(p.policy) for p in climbed.points]) / limit
    assert found.charged is not None
    return {
        "states": len(model.states),
        "limit": limit,
        "unit": model.states.unit,
        "felt/limit without": without.error / limit,
        "bits without": without.bits,
        "felt/limit": found.error / limit,
        "bits": found.bits,
        "bits in hindsight": hindsight(means, climbed, later, chain),
        "charged": found.charged,
        "moves": found.moves,
        "felt/limit of rung 0": float(means[0]),
        "overshoot/limit": climbed.ladder.feedback.overshoot / limit / climbed.ladder.feedback.every,
        "kept": "yes" if found.error <= MOST * limit else "rung 0 cannot" if means[0] > 1 else "NO",
    }


def hindsight(means: Array, climbed: Climb, later: Replay, chain: MarkovChain) -> float:
    """Bits per step of what would have been right from the start: one rung, or two by turns, with the limit as mean.

    means: of every rung on the later part, over the limit. Any-law bits there, like those of the ladder.
    """
    pair = around(means)
    bits = [later.leakage(climbed.points[i].policy, chain, HINDSIGHT).bits for i in pair]
    return float(np.interp(1.0, means[pair], bits))


def around(means: Array) -> list[int]:
    """The rungs next to the limit, means over which these are."""
    above = int(np.searchsorted(means, 1.0))
    return [i for i in (above - 1, above) if 0 <= i < len(means)]


def run() -> dict[str, Row]:
    """Everybody, one row each, then the counts."""
    rows: dict[str, Row] = {}
    for name, readings in everybody():
        hold_out, *how = (0.5, "week", None) if readings.kind == "value" else (1 / 3, "day", LIMIT_KM)
        try:
            rows[name] = kept(readings, FitSpec(hold_out=hold_out, cycle="none"), *how)
        except InputError as fault:
            rows[name] = {"note": str(fault)}
    if not rows:
        return NONE
    told = {k: r for k, r in rows.items() if "kept" in r}
    for name, some in (
        ("all people", [r for k, r in told.items() if r["unit"] == "km"]),
        ("all meters", [r for k, r in told.items() if r["unit"] != "km"]),
    ):
        if some:
            rows[name] = counts(some)
    return rows


def counts(told: list[Row]) -> Row:
    def mean(what: str) -> float:
        return float(np.mean([float(r[what]) for r in told]))

    able = [r for r in told if r["kept"] != "rung 0 cannot"]
    return {
        "how many": len(told),
        "without: within the limit": sum(float(r["felt/limit without"]) <= 1 for r in told),
        "without: worst": max(float(r["felt/limit without"]) for r in told),
        f"within {MOST} times": sum(r["kept"] == "yes" for r in told),
        "worst": max(float(r["felt/limit"]) for r in told),
        "worst where rung 0 can": max((float(r["felt/limit"]) for r in able), default=0.0),
        "mean bits without": mean("bits without"),
        "mean bits": mean("bits"),
        "mean bits in hindsight": mean("bits in hindsight"),
        "mean bits charged": mean("charged"),
        "bits / hindsight, median": float(np.median([float(r["bits"]) / float(r["bits in hindsight"]) for r in told])),
        "charged / bits, median": float(np.median([float(r["charged"]) / float(r["bits"]) for r in told])),
    }
