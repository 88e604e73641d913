"""Operating points: the policy of the report and the others on its trade-off curve, each run on the same example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilstream.audit.bayes import infer
from veilstream.audit.traces import release, sampled
from veilstream.core.chain import MarkovChain
from veilstream.core.evaluate import evaluate
from veilstream.core.information import Array
from veilstream.core.local.policy import LocalPolicy
from veilstream.core.policy import Policy, Schedule, WindowPolicy
from veilstream.core.problem import Average, Both, Constraint, Instantaneous, Problem
from veilstream.core.steady import rates, schedule_rates, stationary_joint
from veilstream.solvers.solution import Level, Point, Solution

Ints = NDArray[np.int64]
AUDIT_STEPS, AUDIT_STREAMS = 200, 64
SAME = 1e-3  # share of the axis under which two operating points are one


@dataclass(frozen=True)
class Example:
    """One operating point on the example trace, and what an adversary who knows chain and policy makes of it."""

    released: Ints  # steps
    posterior: Array  # steps x symbols: P(true symbol | releases up to then), computed exactly
    right: float  # share of steps at which the likeliest symbol is the true one, on data drawn from the chain
    right_se: float


def where(problem: Problem, policy: Policy) -> Point:
    """Leakage and distortion of a policy: computed where that can be, else estimated."""
    if isinstance(policy, WindowPolicy | LocalPolicy):
        steady = rates(problem, policy)
        return Point(policy, steady.leakage, steady.distortion)
    if isinstance(policy, Schedule) and all(isinstance(p, WindowPolicy) for p in policy.policies):
        leakage, distortion = schedule_rates(problem, policy)
        return Point(policy, leakage, distortion)
    ev = evaluate(problem, policy)
    return Point(policy, ev.leakage, ev.distortion, Level.ESTIMATED, ev.leakage_se, ev.distortion_se)


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
        if (
            last is None
            or abs(s.distortion - last.distortion) > SAME * scale
            or abs(s.leakage - last.leakage) > SAME * bits
        ):
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


def stretch(sequences: Sequence[Ints], steps: int) -> Ints:
    """The `steps` consecutive symbols with the most moves in them: an example with something to see."""
    best, most = np.asarray(sequences[0][:steps]), -1
    for sequence in sequences:
        moves = np.concatenate([[0], np.cumsum(np.diff(sequence) != 0)])
        last = np.minimum(np.arange(len(sequence)) + steps, len(sequence)) - 1
        inside = moves[last] - moves
        start = int(inside.argmax())
        if (inside[start], min(steps, len(sequence))) > (most, len(best)):
            best, most = np.asarray(sequence[start : start + steps]), int(inside[start])
    return best


def example(chain: MarkovChain, policy: Policy, path: Ints, seed: int) -> Example:
    """Release the path and look at it with the eyes of the exact adversary."""
    traces = release(policy, [path], seed=seed)
    seen = infer(chain, policy, traces, whole=False)
    return Example(traces.y[0], seen.filter[0], *guessed(chain, policy, seed))


def guessed(chain: MarkovChain, policy: Policy, seed: int) -> tuple[float, float]:
    """Share of steps at which the exact adversary's likeliest symbol is the true one, with its standard error."""
    drawn = sampled(chain, policy, AUDIT_STEPS, AUDIT_STREAMS, seed)
    guess = infer(chain, policy, drawn, whole=False).filter.argmax(-1)
    hits = (guess == chain.symbols[drawn.z]).mean(1)
    return float(hits.mean()), float(hits.std(ddof=1) / np.sqrt(len(hits)))


def mean_channel(chain: MarkovChain, policy: Policy, seed: int = 0) -> tuple[Array, str]:
    """P(release y | true symbol x) in the long run, over all the policy remembers,  symbols x |Y|."""
    if isinstance(policy, WindowPolicy):
        m_zy = _long_run(chain, policy)
    elif isinstance(policy, Schedule) and all(isinstance(p, WindowPolicy) for p in policy.policies):
        shares = np.array(policy.durations) / policy.period
        parts = [_long_run(chain, p) for p in policy.policies if isinstance(p, WindowPolicy)]
        m_zy = sum((w * part for w, part in zip(shares, parts, strict=True)), np.zeros_like(parts[0]))
        return _by_symbol(
            chain, m_zy
        ), "computed for each part of its schedule; what a switch leaves behind is not counted"
    else:
        traces = sampled(chain, policy, 400, 64, seed)
        m_zy = np.full((len(chain), policy.n_outputs), 1e-12)
        np.add.at(m_zy, (traces.z.ravel(), traces.y.ravel()), 1.0)
        return _by_symbol(chain, m_zy), f"counted in {traces.z.size} simulated steps"
    return _by_symbol(chain, m_zy), str(Level.COMPUTED)


def _long_run(chain: MarkovChain, policy: WindowPolicy) -> Array:
    """m(z,y) = sum_s mu(s,z) a_s(y|z)."""
    mu = stationary_joint(chain, policy)
    m_zy = np.zeros((policy.n_states, policy.n_outputs))
    size = max(1, 2_000_000 // m_zy.size)
    for at in range(0, len(mu), size):
        s = np.arange(at, min(at + size, len(mu)))
        m_zy += np.einsum("sz,szy->zy", mu[s], policy.channel(s))
    return m_zy


def _by_symbol(chain: MarkovChain, m_zy: Array) -> Array:
    m_xy = np.zeros((chain.n_symbols, m_zy.shape[1]))
    np.add.at(m_xy, chain.symbols, m_zy)
    return m_xy / np.maximum(m_xy.sum(1, keepdims=True), 1e-300)
