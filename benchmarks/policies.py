"""How good policies are, to be compared with an earlier commit's (`--compare EARLIER.json`).

The paper's chains at four weights and three limits at every step (objective, bits), and everybody of $VEIL_DATA: at
three weights (objective; 1 is the truth's bits for all that revealing nothing costs), and at three mean limits about
readings, 12.5, 25 and 50 % of the way from the least there is to that. What is told at a limit is beside how nearly it
is met: a policy a little further inside tells a little more. Processor seconds of the limits, one run.
"""

from benchmarks.limits import spent
from benchmarks.records import everybody
from veilstream.data.fitting import fit_model
from veilstream.data.spec import FitSpec
from veilstream.data.utility import Utility
from veilstream.model.builtin import builtin_problem
from veilstream.model.problem import Average, Instantaneous
from veilstream.solvers import solve

CHAINS = ("grid4x4-q0", "grid4x4-q1", "grid4x4-q2", "grid2x3-toy")
WEIGHTS, LIMITS = (0.5, 1, 2, 4), (1, 2, 3)
TIMES, SHARES = (0.25, 1, 4), (0.125, 0.25, 0.5)
Row = dict[str, float | str]


def of_chain(name: str) -> Row:
    weighed = {f"objective, weight {w:g}": solve(builtin_problem(name, Average(w))).objective for w in WEIGHTS}
    limited = {f"bits, limit {m}": solve(builtin_problem(name, Instantaneous(m))).leakage for m in LIMITS}
    return {**weighed, **limited}


def of_utility(utility: Utility) -> Row:
    found: Row = {"states": len(utility.chain)}
    if utility.replay is None:
        return found
    free = utility.problem(Average(weight=1.0))
    least = utility.replay.least(free.allowed)
    scale = utility.chain.entropy_rate / (utility.blind - least)
    found |= {f"objective, weight {w:g}": solve(utility.problem(Average(w * scale))).objective for w in TIMES}
    total = 0.0
    for share in SHARES:
        limit = least + share * (utility.blind - least)
        took, s = spent(solve, utility.problem(Average(limit=limit)), replay=utility.replay)
        assert s.record is not None
        total += took
        found |= {f"felt/limit, {share:.1%}": s.record.error / limit, f"told, {share:.1%}": s.leakage}
    return {**found, "cpu_seconds": total}


def run() -> dict[str, Row]:
    found = {name: of_chain(name) for name in CHAINS}
    for name, readings in everybody():
        model = fit_model(readings, FitSpec(hold_out=0.0, cycle="none"))
        found[name] = of_utility(Utility.of(model.chain, model.states, model.record))
    return found
