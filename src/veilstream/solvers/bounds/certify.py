"""Proved lower bounds on what any causal release mechanism can do, better the longer they may take.

First the bound without memory (`memoryless`): a moment, at any size. Then memories of 1, 2, 3, 4, 6, 9, ...
states: the best bound each of them can prove (`interior`), split where it forgets most (`memory`), until the
bound is within the tolerance of what a mechanism attains, or the time is up. The best bound so far stands.

A chain with several closed classes is bounded class by class: to name the class costs bits once, but no rate, so

    objective >= sum over classes k of law(k) * bound(k),     and transient states add nothing.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from time import perf_counter

import numpy as np

from veilstream.chain import MarkovChain, stationary_law
from veilstream.information import Array, entropy
from veilstream.solvers.bounds import interior, memoryless
from veilstream.solvers.bounds.memory import attained, split
from veilstream.solvers.bounds.witness import NATS, Witness, improve, reverse_cost, weights_of
from veilstream.solvers.solution import Progress

LOOK_EVERY, MOST_SWEEPS, MOST_STEPS = 50, 2000, 100
GROWTH = 1.5  # of the memory, from round to round
ENOUGH = 0.003  # relative: how far a memory is exploited before it is split, while the gap is larger than that
MARGIN = 0.5  # of the gap: how far inside a finer memory starts
CENTRING = 0.3
LEAST_BITS = 1e-6  # a gap below this is none
LARGEST_BLOCKS = 6_000_000  # numbers in an array S x Y x Z x Z
LARGEST_SYSTEM = 4_000  # S x Z


class Outcome(StrEnum):
    """How a certificate ended, as a sentence."""

    TIGHT = "proved: the bound is within the tolerance of what can be reached"
    TIME = "proved, but the time was up: more seconds may raise the bound"
    SIZE = "proved with the largest memory that fits; the bound may not be tight"
    PRECISION = "proved as far as double precision goes; the bound may not be tight"


@dataclass(frozen=True, eq=False)
class Certificate:
    """`lower_bound` holds for every causal mechanism; `reachable` estimates what a good one attains."""

    lower_bound: float  # bits per step
    reachable: float  # bits per step
    memory: int  # states of the memory behind the bound
    steps: int  # sweeps and interior-point steps
    outcome: Outcome
    seconds: float
    history: list[dict[str, float]] = field(default_factory=list, repr=False)  # seconds, bound, memory
    witnesses: list[Witness | None] = field(default_factory=list, repr=False)  # per closed class; None: 0 leaks

    @property
    def method(self) -> str:
        memory = f"a memory of {self.memory} states" if self.memory > 1 else "no memory"
        return f"reverse channels with {memory}"


def certify(
    transition: Array,
    cost: Array,
    *,
    law: Array | None = None,
    upper: float | None = None,
    seconds: float = 60.0,
    tolerance: float = 1e-3,
    progress: Progress | None = None,
) -> Certificate:
    """Bound leakage + cost from below, in bits per step, over all causal mechanisms.

    transition: Z x Z. cost: Z x Y, weight * distortion in bits, infinite where a release is forbidden.
    law: the long-run law of the chain, needed only where it depends on the start. upper: what a known policy
    attains; the search stops when the bound is within `tolerance` (relative) of it, or of a policy found here.
    """
    began = perf_counter()
    P = np.asarray(transition, dtype=float)
    P = P / P.sum(1, keepdims=True)
    C = np.asarray(cost, dtype=float)
    chain = MarkovChain(P)
    law = chain.stationary if law is None else np.asarray(law, dtype=float)
    classes = [z for z in chain.closed_classes if law[z].sum() > 0]
    shares = np.array([law[z].sum() for z in classes])
    goal = upper if upper is not None and len(classes) == 1 else np.inf
    searches = [Search(P[np.ix_(z, z)], C[z], tolerance, goal) for z in classes]

    def total(values: list[float]) -> float:
        return float(shares @ values)

    history: list[dict[str, float]] = []
    for k, search in enumerate(searches):
        now = perf_counter()
        for _ in search.run(until=now + (began + seconds - now) / (len(searches) - k)):
            spent, bound = perf_counter() - began, total([s.bound for s in searches])
            if not history or bound > history[-1]["bound"]:
                history.append({"seconds": spent, "bound": bound, "memory": search.memory})
            if progress:
                fraction = min(1.0, spent / seconds) if seconds > 0 else 1.0
                progress(fraction, f"proved {bound:.4f} bits, memory {search.size}")
    worst_last = [Outcome.TIGHT, Outcome.PRECISION, Outcome.SIZE, Outcome.TIME]
    return Certificate(
        lower_bound=total([s.bound for s in searches]),
        reachable=total([s.reachable for s in searches]),
        memory=max(s.memory for s in searches),
        steps=sum(s.steps for s in searches),
        outcome=max((s.outcome for s in searches), key=worst_last.index),
        seconds=perf_counter() - began,
        history=history,
        witnesses=[s.witness for s in searches],
    )


class Search:
    """The best bound found so far for one closed class; `run` improves it."""

    def __init__(self, P: Array, C: Array, tolerance: float, goal: float) -> None:
        self.P, self.C = P, C[:, np.isfinite(C).any(0)]  # a release nobody may make is no release
        self.cost = self.C.T * NATS  # Y x Z
        self.pi = stationary_law(P)
        self.tolerance = tolerance
        cheapest = float(self.pi @ self.C.min(1))
        constant = float((self.pi @ self.C).min())  # always the same release leaks nothing,
        truth = float(self.pi @ entropy(P)) + cheapest  # and always the cheapest at most the entropy rate
        self.reachable = min(goal, constant, truth)
        self.bound = cheapest * (1 - 1e-12)  # leakage is never negative
        self.witness: Witness | None = None  # None: the bound above
        self.memory = self.size = 1
        self.steps = 0
        self.last = False  # no larger memory fits
        self.outcome = Outcome.TIME

    def run(self, until: float) -> Iterator[None]:
        """Yields after every piece of work; ends when the bound is tight, or nothing more can be done."""
        x = yield from self.without_memory(until)
        still = interior.gauge(self.P, self.cost) if self.going(until) and self.fits(x) else np.zeros(0)
        while self.going(until):
            if not self.fits(x):
                self.outcome = Outcome.SIZE
                return
            self.size, self.last = len(x.next), not self.fits(x, GROWTH)
            try:
                x = yield from self.with_memory(x, still, until)
            except np.linalg.LinAlgError:
                self.outcome = Outcome.PRECISION
                return
            margin = MARGIN * max(self.reachable - self.bound, LEAST_BITS) * NATS
            parent, table, weight = split(self.P, x.next, x.m, max(self.size + 1, int(GROWTH * self.size)))
            if len(parent) == self.size:
                self.outcome = Outcome.PRECISION
                return
            x = interior.refined(x, parent, table, weight, margin)

    def without_memory(self, until: float) -> Generator[None, None, interior.Iterate]:
        """Sweeps of `memoryless`; returns where the interior-point method may start, well inside."""
        sweeps, first = memoryless.alternate(self.P, self.cost, self.pi), None
        while True:
            while True:
                log_m = next(sweeps)
                self.steps += 1
                if self.steps % LOOK_EVERY == 0 or perf_counter() > until:
                    break
            witness, m = memoryless.witness(self.P, self.cost, self.pi, log_m), np.exp(log_m)[None]
            if first is None:
                first = interior.start(self.P, self.cost, witness.next, m, witness.alpha)
            value = float((m * np.where(m > 0, reverse_cost(self.P, self.cost, witness.weights), 0)).sum())
            over = self.offer(witness, value) or self.steps >= MOST_SWEEPS
            if over:
                self.reach(attained(self.P, self.cost, witness.next, m))
            yield
            if over or not self.going(until):
                return first

    def with_memory(self, x: interior.Iterate, still: Array, until: float) -> Generator[None, None, interior.Iterate]:
        """Interior-point steps on one memory; returns the last iterate."""
        centring = CENTRING
        for _ in range(MOST_STEPS):
            gap = max(centring * x.gap, 0.02 * self.tolerance * self.bound * NATS)  # no closer than needed
            x = interior.step(self.P, self.cost, still, x, gap)
            centring = CENTRING if x.length > CENTRING else min(1.0, 2 * centring)
            self.steps += 1
            weights = weights_of(x.theta, np.isfinite(self.cost))
            alpha = improve(self.P, x.next, reverse_cost(self.P, self.cost, weights), x.alpha, 30)
            settled = self.offer(Witness(x.next, weights, alpha), x.g + x.gap)
            yield
            if settled or not self.going(until):
                break
        self.reach(attained(self.P, self.cost, x.next, x.m))
        return x

    def offer(self, witness: Witness, value: float) -> bool:
        """Keep a witness if it proves more. Is it near the most this memory can prove (value, in nats)?"""
        bound = witness.bound(self.P, self.C)
        if bound > self.bound:
            self.bound, self.witness, self.memory = bound, witness, len(witness.next)
        enough = 0.0 if self.last else min(0.1 * (self.reachable - bound), ENOUGH * bound)
        return value / NATS - bound <= max(enough, 0.1 * self.tolerance * bound, 0.1 * LEAST_BITS)

    def reach(self, value: float) -> None:
        self.reachable = min(self.reachable, value / NATS)

    def going(self, until: float) -> bool:
        """There is time, and something left to prove."""
        if self.bound >= min((1 - self.tolerance) * self.reachable, self.reachable - LEAST_BITS):
            self.outcome = Outcome.TIGHT
        return self.outcome is not Outcome.TIGHT and perf_counter() < until

    def fits(self, x: interior.Iterate, growth: float = 1) -> bool:
        S, Y, Z = x.m.shape
        return growth * S * Y * Z * Z <= LARGEST_BLOCKS and growth * S * Z <= LARGEST_SYSTEM
