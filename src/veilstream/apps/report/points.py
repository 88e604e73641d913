"""Operating points: the policy of the report, the others on its trade-off curve, and other methods as accurate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.audit.traces import sampled
from veilstream.control.policy import Policy
from veilstream.control.stationary import long_run
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array
from veilstream.model.problem import Average, Both, Constraint, Instantaneous, Problem
from veilstream.solvers import curve, default_weights, solve
from veilstream.solvers.baselines import Baseline
from veilstream.solvers.solution import Level, Point, Solution
from veilstream.solvers.warnings import level

Ints = NDArray[np.int64]
MAX_STEPS, FEW, DAY_S = 288, 24, 86_400.0  # of an example
SAME = 1e-3  # share of the axis under which two operating points are one
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


def curve_constraint(constraint: Constraint) -> Constraint:
    """The constraint under which the curve is drawn: any mean distortion, and the limit at every step if there is one.

    The weight is a place holder; the curve has its own.
    """
    match constraint:
        case Both(instantaneous=limit) | (Instantaneous() as limit):
            return Both(Average(weight=1.0), limit)
    return Average(weight=1.0)


def apart(a: Solution, b: Solution, curve: Sequence[Solution]) -> float:
    """How far two operating points are from each other, as a share of the axes of the curve."""
    reach, most = (max(getattr(s, axis) for s in curve) or 1.0 for axis in ("distortion", "leakage"))
    return max(abs(a.distortion - b.distortion) / reach, abs(a.leakage - b.leakage) / most)


def distinct(solutions: Sequence[Solution]) -> list[Solution]:
    """One solution for each place on the curve, by distortion."""
    kept: list[Solution] = []
    for s in sorted(solutions, key=lambda s: (s.distortion, s.leakage)):
        if not kept or apart(s, kept[-1], solutions) > SAME:
            kept.append(s)
    return kept


def slopes(solutions: Sequence[Solution], distortion: float) -> list[float]:
    """Weights whose policies lie near this distortion: the slope of the curve there, and somewhat less and more."""
    D, L = np.array([(s.distortion, s.leakage) for s in distinct(solutions)]).T
    at = int(np.searchsorted(D, distortion))
    if not 0 < at < len(D):
        return []
    slope = float((L[at - 1] - L[at]) / max(D[at] - D[at - 1], 1e-12))
    return [slope * f for f in (0.7, 1.0, 1.4)] if slope > 0 else []


def example_steps(period_s: float | None) -> int:
    """How long an example is: a day where that is known, as far as it can be drawn."""
    period = period_s or 0.0
    return int(min(MAX_STEPS, DAY_S // period)) if 0 < period <= DAY_S / FEW else 2 * FEW


def stretch(sequences: Sequence[Ints], steps: int) -> Ints:
    """The `steps` consecutive symbols with the most moves in them: an example with something to see."""
    which, start = liveliest(sequences, steps)
    return np.asarray(sequences[which][start : start + steps])


def liveliest(sequences: Sequence[Ints], steps: int) -> tuple[int, int]:
    """The number of the sequence with that stretch, and where in it the stretch begins."""
    best, at = (-1, 0), (0, 0)
    for i, sequence in enumerate(sequences):
        moves = np.concatenate([[0], np.cumsum(np.diff(sequence) != 0)])
        last = np.minimum(np.arange(len(sequence)) + steps, len(sequence)) - 1
        inside = moves[last] - moves
        start = int(inside.argmax())
        if (found := (int(inside[start]), min(steps, len(sequence)))) > best:
            best, at = found, (i, start)
    return at


def mean_channel(chain: MarkovChain, policy: Policy, seed: int = 0) -> tuple[Array, str]:
    """P(release y | true symbol x) in the long run, over all the policy remembers,  symbols x |Y|."""
    found = long_run(chain, policy)
    if found is not None:
        return _by_symbol(chain, found.joint), str(Level.COMPUTED)
    traces = sampled(chain, policy, 400, 64, seed)
    m_zy = np.full((len(chain), policy.n_outputs), 1e-12)
    np.add.at(m_zy, (traces.z.ravel(), traces.y.ravel()), 1.0)
    return _by_symbol(chain, m_zy), f"counted in {traces.z.size} simulated steps"


def _by_symbol(chain: MarkovChain, m_zy: Array) -> Array:
    m_xy = np.zeros((chain.n_symbols, m_zy.shape[1]))
    np.add.at(m_xy, chain.symbols, m_zy)
    return np.asarray(m_xy / np.maximum(m_xy.sum(1, keepdims=True), 1e-300))


# --- other methods at the same mean error in the long run ---------------------------------------------------


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
