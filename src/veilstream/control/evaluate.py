"""Exact-belief Monte Carlo: what any policy really leaks, whatever it remembers.

Given the releases so far the belief b is known exactly, so each step contributes L(b,a) and D(b,a) without looking at a
true state; only the release itself is drawn, from p(y). Streams are independent, which gives the standard errors.
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
from veilstream.model.information import Index
from veilstream.model.problem import Problem, expected_distortion


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
    belief = BeliefFilter(problem.chain, view)
    mechanism, n = Mechanism(policy, meter=belief), burn_in + steps
    sums = np.zeros((2, streams))  # bits and distortion after the burn-in

    def observe(seen: Seen) -> None:
        if seen.t >= burn_in:
            sums[0, seen.rows] += seen.view.bits
            far = expected_distortion(seen.before.belief, belief.seen(seen.view.channel), problem.distortion)
            sums[1, seen.rows] += far
        if progress:
            progress((seen.rows.start + len(seen.y) * (seen.t + 1) / n) / streams, "evaluating")

    unseen, first = np.full((streams, n), BLIND), np.arange(streams) % len(problem.chain.around)  # every hour in turn
    _, totals = replay(mechanism, unseen, observe, uniforms=np.random.default_rng(seed).random, first=first)
    (bits, dist), total = sums / steps, totals.mean()
    bits_se, dist_se = (float(x.std(ddof=1) / np.sqrt(streams)) for x in (bits, dist))
    means = float(bits.mean()), float(dist.mean())
    return Evaluation(*means, bits_se, dist_se, float(total), steps, streams, burn_in)
