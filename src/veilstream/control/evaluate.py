"""Exact-belief Monte Carlo: what any policy really leaks, whatever it remembers.

Given the releases so far the belief b is known exactly, so each step contributes L(b,a) and D(b,a) without looking at a
true state; only the release itself is drawn, from p(y). Streams are independent, which gives the standard errors.

Whatever the policy, E b_t is the law of the chain at step t, known without drawing. So the mean belief of each stream
is a control variate: what streams differ by because they happened to dwell in other states is regressed away. On sticky
chains that is nearly all of it (GeoLife 016: standard errors fall to a thirtieth and less).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from veilstream.control.accountant import BeliefFilter
from veilstream.control.loop import Seen, replay
from veilstream.control.mechanism import Mechanism, check_fits
from veilstream.control.policy import Policy
from veilstream.errors import InputError
from veilstream.model.histories import BLIND
from veilstream.model.information import Array, Index, dot
from veilstream.model.problem import Problem, expected_distortion

ENOUGH = 2.0  # streams for each state, from which a mean belief is regressed on
LEAST_SPREAD = 1e-3  # of streams, along a direction: what a few of them alone have seen says nothing of the rest
ROUNDING = 1e-10  # relative: where nothing else is left of a standard error


@dataclass(frozen=True)
class Evaluation:
    """Rates after the burn-in, per step; `total_bits` from the first step of `steps + burn_in` on, per stream.

    >>> import veilstream as vs
    >>> solution = vs.solve("builtin:binary", weight=2.0)
    >>> seen = vs.evaluate(solution.problem, solution.policy, steps=60, streams=64)
    >>> abs(seen.leakage - solution.leakage) < 5 * seen.leakage_se + 0.01
    True
    """

    leakage: float
    distortion: float
    leakage_se: float
    distortion_se: float
    total_bits: float
    steps: int
    streams: int
    burn_in: int

    @property
    def startup_bits(self) -> float:
        """What the first steps added to the rate, once."""
        return self.total_bits - (self.steps + self.burn_in) * self.leakage


def evaluate(
    problem: Problem,
    policy: Policy,
    steps: int = 300,
    streams: int = 256,
    burn_in: int | None = None,
    seed: int = 0,
    progress: Callable[[float, str], None] | None = None,
    view: Index | None = None,
) -> Evaluation:
    """Runs `streams` releases of burn_in + steps (burn-in: a third of the steps unless told) and averages the last.

    view: which state of the policy each state of the problem's chain is, for a policy made for another chain.

        >>> import veilstream as vs
        >>> solution = vs.solve("builtin:binary", weight=2.0)
        >>> vs.evaluate(solution.problem, solution.policy, steps=60, streams=64).streams
        64
    """
    burn_in = steps // 3 if burn_in is None else burn_in
    for what, value, least in (("steps", steps, 1), ("streams", streams, 2), ("burn_in", burn_in, 0)):
        if int(value) != value or value < least:
            raise InputError(f"{what} must be a whole number >= {least}, found {value}")
    if view is None:
        check_fits(policy, problem)
    chain, n = problem.chain, burn_in + steps
    table = policy.lookup if view is None else None
    belief = BeliefFilter(chain, view, table)
    mechanism, hours = Mechanism(policy, meter=belief, sighted=False), np.arange(len(chain.around))
    cost = None if table is None else (table.table * problem.distortion).sum(-1)  # of each memory and state
    first = chain.clock.spread(streams)
    sums = np.zeros((2, streams))  # bits and distortion after the burn-in
    off = np.zeros((2, streams, len(chain)))  # belief - its expectation, before and after the burn-in
    law = chain.initial_at(hours)  # of the streams that begin at each hour

    def observe(seen: Seen) -> None:
        nonlocal law
        off[int(seen.t >= burn_in), seen.rows] += seen.before.belief - law[first[seen.rows]]
        if seen.t >= burn_in:
            sums[0, seen.rows] += seen.view.bits
            b, memory = seen.before.belief, seen.before.memory
            if cost is None:
                sums[1, seen.rows] += expected_distortion(b, belief.seen(seen.view.channel), problem.distortion)
            else:
                sums[1, seen.rows] += dot(b, cost.take(memory, 0))
        if seen.rows.stop == streams:
            law = chain.moved(law, hours + seen.t)
        if progress:
            progress((seen.rows.start + len(seen.y) * (seen.t + 1) / n) / streams, "evaluating")

    unseen = np.full((streams, n), BLIND)
    _, totals = replay(mechanism, unseen, observe, uniforms=np.random.default_rng(seed).random, first=first)
    (bits, dist), (bits_se, dist_se) = controlled(sums.T / steps, off[1] / steps)
    (total,), _ = controlled(totals[:, None], off.sum(0) / n)
    return Evaluation(bits, dist, bits_se, dist_se, total, steps, streams, burn_in)


def controlled(y: Array, off: Array) -> tuple[list[float], list[float]]:
    """Means of the columns of y (n x k) and their standard errors, regressed on off (n x |Z|), whose mean is 0.

    y = mean + off c + e;  se^2 = sum_i (w_i e_i / (1 - h_i))^2,  w: what each stream weighs in the mean, h its leverage
    """
    A = np.ones((len(y), 1))
    if len(y) >= ENOUGH * off.shape[1]:
        A = np.hstack([A, off])
    back = np.linalg.pinv(A, rcond=LEAST_SPREAD)
    h, e = np.einsum("ij,ji->i", A, back), y - A @ (back @ y)
    se = np.sqrt(((back[0] / np.maximum(1 - h, 1 / len(y)))[:, None] ** 2 * e**2).sum(0))
    return (back[0] @ y).tolist(), np.maximum(se, ROUNDING * np.abs(y).max(0)).tolist()
