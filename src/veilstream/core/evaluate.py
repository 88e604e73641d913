"""Exact-belief Monte Carlo: what any policy really leaks, whatever it remembers.

Given the releases so far the belief b is known exactly, so each step contributes L(b,a) and D(b,a) without looking at a
true state; only the release itself is drawn, from p(y). Streams are independent, which gives the standard errors.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from veilstream.core.chain import draw
from veilstream.core.information import Array
from veilstream.core.policy import Policy
from veilstream.core.problem import Problem, expected_distortion, leakage, next_prior, output_law
from veilstream.errors import InputError

MOST_CELLS = 1 << 24  # channel entries held at once: streams beyond that go in turn


@dataclass(frozen=True)
class Evaluation:
    """Rates after the burn-in, per step; `total_bits` from the first step of `steps + burn_in` on, per stream."""

    leakage: float
    distortion: float
    leakage_se: float
    distortion_se: float
    total_bits: float
    steps: int
    streams: int


def evaluate(
    problem: Problem,
    policy: Policy,
    steps: int = 300,
    streams: int = 256,
    burn_in: int | None = None,
    seed: int = 0,
    progress: Callable[[float, str], None] | None = None,
) -> Evaluation:
    """Runs `streams` releases of burn_in + steps (burn-in: a third of the steps unless told) and averages the last."""
    burn_in = steps // 3 if burn_in is None else burn_in
    for what, value, least in (("steps", steps, 1), ("streams", streams, 2), ("burn_in", burn_in, 0)):
        if int(value) != value or value < least:
            raise InputError(f"{what} must be a whole number >= {least}, found {value}")
    if (policy.n_states, policy.n_outputs) != problem.distortion.shape:
        raise InputError(
            f"the policy is for {policy.n_states} states and {policy.n_outputs} releases, "
            f"the problem has {problem.n_states} and {problem.n_outputs}"
        )
    rng, most = np.random.default_rng(seed), max(1, MOST_CELLS // problem.distortion.size)
    parts, at = [], range(0, streams, most)
    for k, i in enumerate(at):
        tell = (lambda f, what, k=k: progress((k + f) / len(at), what)) if progress else None
        parts.append(_run(problem, policy, min(most, streams - i), burn_in, steps, rng, tell))
    bits, dist, total = (np.concatenate(x) for x in zip(*parts, strict=True))
    bits, dist = bits / steps, dist / steps
    root = np.sqrt(streams)
    return Evaluation(
        float(bits.mean()),
        float(dist.mean()),
        float(bits.std(ddof=1) / root),
        float(dist.std(ddof=1) / root),
        float(total.mean()),
        steps,
        streams,
    )


def _run(
    problem: Problem,
    policy: Policy,
    streams: int,
    burn_in: int,
    steps: int,
    rng: np.random.Generator,
    progress: Callable[[float, str], None] | None,
) -> tuple[Array, Array, Array]:
    """Bits and distortion after the burn-in, and all bits, summed over the steps of each stream."""
    P, d = problem.chain.transition, problem.distortion
    memory = policy.start(streams)
    b = np.tile(problem.chain.initial, (streams, 1))
    bits, dist, total = np.zeros((3, streams))
    for t in range(burn_in + steps):
        a = policy.channel(memory)
        leaked = leakage(b, a)
        total += leaked
        if t >= burn_in:
            bits += leaked
            dist += expected_distortion(b, a, d)
        y = draw(output_law(b, a), rng.random(streams))
        memory = policy.update(memory, y, a)
        b = next_prior(b, a, y, P)
        if progress:
            progress((t + 1) / (burn_in + steps), "evaluating")
    return bits, dist, total
