"""What releases that come late say about now: bits about the present state against lateness, for recorded people.

Everybody of $VEIL_DATA/geolife is fitted as `veil fit` does by itself; a family gets releases of 500 m of error, the
public of 1 km behind it, both with the memory of a release. 120 streams are drawn from the chain of each; *the truth*
is what the true state would say, that late, computed exactly.
"""

import numpy as np

from benchmarks.records import NONE, people
from veilstream.audit.audiences import audit_audiences
from veilstream.audit.source import Recorded
from veilstream.audit.spec import AuditSpec
from veilstream.data.fitting import fit_model
from veilstream.data.spec import FitSpec
from veilstream.model.chain import MarkovChain
from veilstream.model.information import divergence
from veilstream.solvers.api import solve

WHO = "error in the long run"
DELAYS = ("none", "1 step", "15 min", "1 h", "3 h", "6 h", "1 day", "2 days")
TABLE = {"late by: none" if name == "none" else name: "{" + name + ":.3f}" for name in DELAYS}
Row = dict[str, float | str]


def run() -> dict[str, Row]:
    found: dict[str, Row] = {}
    for name, readings in people():
        model = fit_model(readings, FitSpec())
        family = solve(model, avg="500m", window=1)
        public = solve(model, avg="1km", window=1, behind=family)
        seen = audit_audiences(public.artefact, Recorded.nothing(public.artefact), AuditSpec())
        chain = family.problem.chain
        found[f"{name}: the truth"] = {k: known(chain, steps) for k, steps in seen.delays.items()}
        for row in seen.rows:
            if row.error is not None:
                half = {f"{k} ±": (v.high - v.low) / 2 for k, v in zip(seen.delays, row.now, strict=True)}
                bits = {k: max(v.value, 0.0) for k, v in zip(seen.delays, row.now, strict=True)}
                found[f"{name}: {row.error:.2f} km"] = {**bits, **half}
    return found or NONE


def known(chain: MarkovChain, k: int) -> float:
    """I(X_t; X_{t-k}) in the long run, bits; of a chain without a clock."""
    now = chain.later(np.eye(len(chain)), k)
    return max(float(chain.stationary @ divergence(now, chain.stationary)), 0.0)
