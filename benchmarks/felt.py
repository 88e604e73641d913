"""What a limit about readings holds and costs: everybody fitted as `veil fit` does by itself.

--avg 25%: of what revealing nothing costs; the record released 20 times, and what it tells beside the earlier meaning
(`--distortion states`) at the same limit. --max: half as much again as the least that every reading can have, for all
readings and for 99 % of each state's; the share of releases beyond it, computed and in 20 repeats.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.records import NONE, everybody
from veilstream.control.accountant import Accountant
from veilstream.control.mechanism import Mechanism
from veilstream.data.fitting import fit_model
from veilstream.data.model import FittedModel
from veilstream.data.spec import FitSpec
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.problem import Average, Constraint, Instantaneous
from veilstream.solvers import solve

if TYPE_CHECKING:
    from veilstream.control.policy import Policy
    from veilstream.control.replay import Replay
    from veilstream.data.readings import Readings

SHARE, REPEATS = 0.25, 20
MORE, QUANTILE = 1.5, 0.99  # of --max
NEAR = 0.03  # of the limit, within which felt error must be
OPTIONS = FitSpec(cycle="auto")  # those of veil fit
Row = dict[str, float | str]
WHO = "who"
TABLE = {
    "states x phases": "{states} x {phases}",
    "limit": "{limit:.3g} {unit}",
    "felt / limit": "{felt/limit:.3f} ± {spread:.3f}",
    "bits": "{bits:.3f}",
    "states: felt / limit": "{states, felt/limit:.2f}",
    "states: bits": "{states, bits:.3f}",
    "max": "{max:.2g} {unit}",
    "max: bits": "{max, bits:.3f}",
    "beyond max@99%": "{max@99%, beyond it:.2%}",
}


def felt(readings: "Readings") -> Row:
    """One row: the limit on average, then those at every step."""
    model = fit_model(readings, OPTIONS)
    utility = _utility(model)
    if utility.replay is None:
        return {"note": "too few fitted steps to say how readings lie around their states"}
    limit = SHARE * utility.blind
    found = solve(utility.problem(Average(limit=limit)), replay=utility.replay)
    assert found.record is not None
    mean, spread = repeated(utility.replay, found.policy)
    return {
        "states": len(model.states),
        "phases": model.chain.phases,
        "limit": limit,
        "unit": model.states.unit,
        "felt/limit": mean / limit,
        "spread": spread / limit,  # of one repeat
        "bits": found.record.bits,
        "bits, long run": found.leakage,
        **_earlier(model, Average(limit=limit), limit),
        **_at_every_step(model, 1.0),
        **_at_every_step(model, QUANTILE),
    }


def _utility(model: FittedModel, **told: Any) -> Utility:
    return Utility.of(model.chain, model.states, model.record, **told)


def repeated(replay: "Replay", policy: "Policy", repeats: int = REPEATS) -> tuple[float, float]:
    """The record released so many times, step by step: the mean distance, and its standard deviation over repeats."""
    drawn = replay.run(Mechanism(policy, meter=Accountant(), sighted=True), seed=1, draws=repeats * replay.n_steps)
    assert drawn.copies == repeats
    return drawn.error, drawn.error_se * float(np.sqrt(repeats))


def _earlier(model: FittedModel, constraint: Constraint, limit: float) -> Row:
    """The earlier meaning at the same limit: what it tells, and what is really felt."""
    about_states, replay = _utility(model, distortion="states"), _utility(model, show="states").replay
    assert replay is not None
    found = solve(about_states.problem(constraint))
    told = replay.whole(found.policy, model.chain)
    return {
        "states, felt/limit": told.error / limit,
        "states, bits": told.bits,
        "states, bits, long run": found.leakage,
    }


def _at_every_step(model: FittedModel, quantile: float) -> Row:
    """--max: bits, and the share of releases farther from their reading."""
    name = "max" if quantile == 1 else f"max@{quantile:.0%}"
    utility = _utility(model, quantile=quantile)
    assert utility.replay is not None and utility.worst is not None
    limit = MORE * float(utility.worst.min(1).max())
    found = solve(utility.problem(Instantaneous(limit)), replay=utility.replay)
    assert found.record is not None
    far = utility.replay.beyond(np.full(len(model.chain), limit))
    return {
        name: limit,
        f"{name}, bits": max(found.record.bits, 0.0),
        f"{name}, beyond it": far.error(found.policy),
        f"{name}, beyond it, repeats": repeated(far, found.policy)[0],
        f"{name}, felt": found.record.error,
    }


def run() -> dict[str, Row]:
    """Everybody, one row each, then the counts."""
    rows: dict[str, Row] = {}
    for name, readings in everybody():
        try:
            rows[name] = felt(readings)
        except InputError as fault:
            rows[name] = {"note": str(fault)}
    if not rows:
        return NONE
    told = [r for r in rows.values() if "limit" in r]
    if not told:
        return rows
    off = [abs(float(r["felt/limit"]) - 1) for r in told]
    share = [float(r[f"max@{QUANTILE:.0%}, beyond it"]) for r in told]
    kept = max(off) <= NEAR and all(r["max, beyond it"] == 0 for r in told) and max(share) <= 1 - QUANTILE
    rows["all"] = {
        "people and meters": len(told),
        f"within {NEAR:.0%} of the limit": sum(o <= NEAR for o in off),
        "farthest from it": max(off),
        "none beyond max": sum(r["max, beyond it"] == r["max, beyond it, repeats"] == 0 for r in told),
        f"most beyond max@{QUANTILE:.0%}": max(share),
        "bits / states: bits, geometric mean": float(
            np.exp(np.mean([np.log(float(r["bits"]) / float(r["states, bits"])) for r in told]))
        ),
        "verdict": "ok" if kept else "FAILED",
    }
    return rows
