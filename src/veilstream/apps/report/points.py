"""Operating points: the policy of the report and the others on its trade-off curve, each run on the same example."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veilstream.audit.traces import sampled
from veilstream.control.policy import Policy
from veilstream.control.stationary import long_run
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array
from veilstream.model.problem import Average, Both, Constraint, Instantaneous
from veilstream.solvers.solution import Level, Solution

Ints = NDArray[np.int64]
MAX_STEPS, FEW, DAY_S = 288, 24, 86_400.0  # of an example
SAME = 1e-3  # share of the axis under which two operating points are one


def curve_constraint(constraint: Constraint) -> Constraint:
    """The constraint under which the curve is drawn: any mean distortion, and the limit at every step if there is one.

    The weight is a place holder; the curve has its own.
    """
    match constraint:
        case Both(instantaneous=limit) | (Instantaneous() as limit):
            return Both(Average(weight=1.0), limit)
    return Average(weight=1.0)


def distinct(solutions: Sequence[Solution]) -> list[Solution]:
    """One solution for each place on the curve, by distortion."""
    ordered = sorted(solutions, key=lambda s: (s.distortion, s.leakage))
    scale = max(s.distortion for s in ordered) or 1.0
    bits = max(s.leakage for s in ordered) or 1.0
    kept: list[Solution] = []
    for s in ordered:
        last = kept[-1] if kept else None
        if last is None or max((s.distortion - last.distortion) / scale, abs(s.leakage - last.leakage) / bits) > SAME:
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
