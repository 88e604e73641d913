"""What `--keep-total` keeps and costs: every household's whole year, `--avg` at a quarter of the blind distortion.

The policy is searched on the record without draws; then the year is released 20 times, step by step, with draws of
their own, and each total is compared with that of the readings.
"""

import numpy as np

from benchmarks.felt import REPEATS, SHARE, repeated
from benchmarks.records import NONE, households
from veilstream.data.fitting import fit_model
from veilstream.data.readings import Readings
from veilstream.data.spec import FitSpec
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.problem import Average
from veilstream.solvers import solve

OPTIONS = FitSpec(cycle="auto", hold_out=0.0)  # veil fit --hold-out 0: the whole year
NEAR = 0.002  # of the year's total, within which the mean of the releases must be
Row = dict[str, float | str]
WHO = "who"
TABLE = {
    "states x phases": "{states} x {phases}",
    "total": "{total:,.0f} {unit}",
    "without it": "{off without:+.2%}",
    "computed": "{off:+.3%}",
    "20 releases": "{off, repeats:+.3%} ± {spread:.2%}",
    "bits without": "{bits without:.3f}",
    "bits": "{bits:.3f}",
    "felt / limit": "{felt/limit:.3f}",
}


def kept(readings: Readings) -> Row:
    """One row: how far the year's total is off without and with it, and what that costs."""
    model = fit_model(readings, OPTIONS)
    utility = Utility.of(model.chain, model.states, model.record)
    if utility.replay is None:
        return {"note": "too few fitted steps"}
    limit, total = SHARE * utility.blind, utility.total()
    found = solve(utility.problem(Average(limit=limit)), total=total, replay=utility.replay)
    assert found.total is not None and found.record is not None
    mean, spread = repeated(total.errors, found.policy)
    return {
        "states": len(model.states),
        "phases": model.chain.phases,
        "total": total.mean * utility.replay.n_steps,
        "unit": model.states.unit,
        "off without": found.total.off_before,
        "off": found.total.off,
        "off, repeats": mean / total.mean,
        "spread": spread / abs(total.mean),  # of one release of the year
        "bits without": found.record.bits - found.total.bits,
        "bits": found.record.bits,
        "felt/limit": found.record.error / limit,
    }


def run() -> dict[str, Row]:
    """Every household, one row each, then the counts."""
    rows: dict[str, Row] = {}
    for name, readings in households():
        try:
            rows[name] = kept(readings)
        except InputError as fault:
            rows[name] = {"note": str(fault)}
    told = [r for r in rows.values() if "off" in r]
    if not told:
        return rows or NONE
    off = [abs(float(r["off, repeats"])) for r in told]
    cost = [float(r["bits"]) / float(r["bits without"]) for r in told]
    rows["all"] = {
        "meters": len(told),
        f"mean of {REPEATS} releases within {NEAR:.1%}": sum(o <= NEAR for o in off),
        "farthest": max(off),
        "bits / bits without, geometric mean": float(np.exp(np.mean(np.log(cost)))),
        "bits / bits without, most": max(cost),
        "verdict": "ok" if max(off) <= NEAR else "FAILED",
    }
    return rows
