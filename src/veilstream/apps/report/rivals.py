"""Other methods at the same mean error in the long run: solved for at the policy, read off elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from veilstream.apps.report.points import curve_constraint
from veilstream.errors import InputError
from veilstream.model.problem import Average, Both, Constraint, Problem
from veilstream.solvers import curve, default_weights, solve
from veilstream.solvers.baselines import Baseline
from veilstream.solvers.solution import Level, Point, Solution
from veilstream.solvers.warnings import level

BASELINES = {
    "myopic": "myopic: best for each step alone",
    "planar-laplace": "planar Laplace (geo-indistinguishability)",
    "randomised-response": "randomised response",
    "rounding": "rounding to zones",
    "constant": "always the same",
}
TOO_ACCURATE = "cannot be this accurate"
STEPS, STREAMS = 100, 64  # of a simulation at a point that is not the policy's
WEIGHTS, WEIGHTS_BY_CLOCK = 24, 10  # on the curve of myopic policies, which is read off


@dataclass(frozen=True)
class Rival:
    """One row of the table at equal error in the long run; `note` says why there are no numbers."""

    label: str
    leakage: float | None = None
    leakage_se: float = 0.0
    distortion: float | None = None
    level: str = ""
    note: str = ""


@dataclass(frozen=True, eq=False)
class Elsewhere:
    """The table of rivals: solved for at the policy; at other points of the slider with less work."""

    problem: Problem
    seed: int
    myopic: Sequence[tuple[float, float]]  # by distortion: that, and leakage

    @classmethod
    def of(cls, problem: Problem, seed: int) -> Elsewhere:
        within = problem.under(curve_constraint(problem.constraint))
        weights = WEIGHTS if problem.chain.phases == 1 else WEIGHTS_BY_CLOCK
        found = curve(within, default_weights(within, weights), "myopic", seed=seed)
        return cls(problem, seed, sorted((s.distortion, s.leakage) for s in found))

    def at(self, point: Point | Solution, known: Mapping[str, Any] | None = None, own: bool = False) -> list[Rival]:
        """The point itself and every rival that is as accurate; where data is thin their level is `model only`."""
        label = f"this {'policy' if own else 'point'}"
        rows = [Rival(label, point.leakage, point.leakage_se, point.distortion, str(point.level))]
        rows += [self._one(method, point.distortion, own) for method in BASELINES]
        thin = level(Level.COMPUTED, known or {}) is Level.MODEL_ONLY
        return [replace(r, level=str(Level.MODEL_ONLY)) if thin and r.level else r for r in rows]

    def _one(self, method: str, distortion: float, own: bool) -> Rival:
        if method == "myopic" and (not own or self.problem.chain.phases > 1):
            return self._read_off(distortion)
        free, mean = curve_constraint(self.problem.constraint), Average(limit=distortion)
        every = free.instantaneous if isinstance(free, Both) else None
        quick = {} if own else {"steps": STEPS, "streams": STREAMS}
        if method == "myopic":
            solver: str | Baseline = method
            asked: Constraint = mean if every is None else Both(mean, every)
            note = ""
        else:
            solver, asked = Baseline(method, seed=self.seed, **quick), mean
            note = "" if every is None else "does not keep the limit at every step"
        try:
            s = solve(self.problem.under(asked), solver, seed=self.seed)
        except InputError:
            return Rival(BASELINES[method], note=TOO_ACCURATE)
        return Rival(BASELINES[method], s.leakage, s.leakage_se, s.distortion, str(s.level), note)

    def _read_off(self, distortion: float) -> Rival:
        """Two neighbouring myopic policies by turns, in public."""
        label, (D, L) = BASELINES["myopic"], np.array(self.myopic).T
        if distortion < D[0] * (1 - 1e-9):
            return Rival(label, note=TOO_ACCURATE)
        off = min(distortion, float(D[-1]))
        return Rival(label, float(np.interp(off, D, L)), 0.0, off, "read off its curve")
