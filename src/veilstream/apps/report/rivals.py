"""What else there is at the same mean error in the long run: solved for at the policy, read off elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from veilstream.apps.report.points import curve_constraint
from veilstream.errors import InputError
from veilstream.model.problem import Average, Both, Problem
from veilstream.solvers import curve, default_weights, solve
from veilstream.solvers.baselines import Baseline
from veilstream.solvers.solution import Level, Point
from veilstream.solvers.warnings import level

BASELINES = {
    "myopic": "myopic: best for each step alone",
    "planar-laplace": "planar Laplace (geo-indistinguishability)",
    "randomised-response": "randomised response",
    "rounding": "rounding to zones",
    "constant": "always the same",
}
STEPS, STREAMS = 100, 64  # of a simulation at a point that is not the policy's
WEIGHTS, WEIGHTS_BY_CLOCK = 24, 10  # on the curve of myopic policies, which is read off


@dataclass(frozen=True)
class Rival:
    """One row of the table at equal error in the long run; `note` says why there are no numbers."""

    label: str
    leakage: float | None
    leakage_se: float
    distortion: float | None
    level: str
    note: str = ""


def at_policy(
    problem: Problem, own: Point, elsewhere: Elsewhere, provenance: Mapping[str, Any], seed: int
) -> list[Rival]:
    """What else there is, at a mean distortion of at most the policy's; around a clock myopic policies are read off."""
    first = Rival("this policy", own.leakage, own.leakage_se, own.distortion, str(own.level))
    rows, limit, free = [first], Average(limit=own.distortion), curve_constraint(problem.constraint)
    for method, label in BASELINES.items():
        if method == "myopic" and problem.chain.phases > 1:
            rows.append(elsewhere.read_off(own.distortion))
            continue
        keeps = method == "myopic" and isinstance(free, Both)
        constraint = Both(limit, free.instantaneous) if keeps and isinstance(free, Both) else limit
        try:
            s = solve(problem.under(constraint), method, seed=seed)
        except InputError:
            rows.append(Rival(label, None, 0, None, "", "cannot be this accurate"))
            continue
        sure = str(level(s.level, provenance))
        rows.append(Rival(label, s.leakage, s.leakage_se, s.distortion, sure, _note(problem, method)))
    return rows


@dataclass(frozen=True, eq=False)
class Elsewhere:
    """The same table at other points of the slider."""

    problem: Problem
    seed: int
    myopic: Sequence[tuple[float, float]]  # by distortion: that, and leakage

    @classmethod
    def of(cls, problem: Problem, seed: int) -> Elsewhere:
        within = problem.under(curve_constraint(problem.constraint))
        weights = WEIGHTS if problem.chain.phases == 1 else WEIGHTS_BY_CLOCK
        found = curve(within, default_weights(within, weights), "myopic", seed=seed)
        return cls(problem, seed, sorted((s.distortion, s.leakage) for s in found))

    def at(self, point: Point) -> list[Rival]:
        first = Rival("this point", point.leakage, point.leakage_se, point.distortion, str(point.level))
        return [first, *(self._one(method, point.distortion) for method in BASELINES)]

    def _one(self, method: str, distortion: float) -> Rival:
        label, note = BASELINES[method], _note(self.problem, method)
        if method == "myopic":
            return self.read_off(distortion)
        free = self.problem.under(Average(weight=1.0))
        try:
            met = Baseline(method, steps=STEPS, streams=STREAMS, seed=self.seed).meet(free, Average(limit=distortion))
        except InputError:
            met = None
        if met is None:
            return Rival(label, None, 0, None, "", "cannot be this accurate")
        found = met[0]
        return Rival(label, found.leakage, found.leakage_se, found.distortion, str(found.level), note)

    def read_off(self, distortion: float) -> Rival:
        """Two neighbouring myopic policies by turns, in public."""
        label = BASELINES["myopic"]
        D, L = np.array(self.myopic).T
        if distortion < D[0] * (1 - 1e-9):
            return Rival(label, None, 0, None, "", "cannot be this accurate")
        off = min(distortion, float(D[-1]))
        return Rival(label, float(np.interp(off, D, L)), 0.0, off, "read off its curve")


def modest(rivals: Sequence[Rival], provenance: Mapping[str, Any]) -> list[Rival]:
    """Of a thin model every figure is of the model only."""
    thin = level(Level.COMPUTED, provenance) is Level.MODEL_ONLY
    return [replace(r, level=str(Level.MODEL_ONLY)) if thin and r.level else r for r in rivals]


def _note(problem: Problem, method: str) -> str:
    bound = isinstance(curve_constraint(problem.constraint), Both)
    return "does not keep the limit at every step" if bound and method != "myopic" else ""
