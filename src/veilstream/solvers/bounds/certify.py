"""Proved lower bounds on what any causal release mechanism can do, better the longer they may take.

First the bound without memory (`memoryless`), in a moment and at any size. Then memories of 1, 2, 4, 8, ... states: the best
bound each can prove (`interior`), split where it forgets most (`memory`), until the bound is within the
tolerance of what a mechanism with that memory attains, or the time is up. The best bound so far always stands.

A chain with several closed classes is bounded class by class: naming the class costs bits once, no rate, so

    objective >= sum over classes k of law(k) * bound(k),     transient states add nothing.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from enum import Enum
from time import perf_counter

import numpy as np

from veilstream.chain import MarkovChain, stationary_law
from veilstream.information import Array, entropy
from veilstream.solvers.bounds import interior, memoryless
from veilstream.solvers.bounds.memory import attained, split
from veilstream.solvers.bounds.witness import NATS, Witness, improve, reverse_cost, weights_of

Progress = Callable[[float, str], None]  # fraction of the time used, what is going on

LARGEST_BLOCKS = 6_000_000  # numbers in an array S x Y x Z x Z
LARGEST_SYSTEM = 3_000  # S x Z
CENTRING = 0.3
LEAST_BITS = 1e-6  # a gap below this is none
LOOK_EVERY, MOST_SWEEPS, MOST_STEPS = 50, 2000, 100
KEEP_AT = 0.1  # relative gap of the iterate that the next memory starts from: still well inside


class Outcome(str, Enum):
    """How a certificate ended, as a sentence."""

    TIGHT = "proved: the bound is within the tolerance of what can be reached"
    TIME = "proved, but the time was up: more seconds may raise the bound"
    SIZE = "proved with the largest memory that fits; the bound may not be tight"
    PRECISION = "proved as far as double precision allows; the bound may not be tight"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, eq=False)
class Certificate:
    """`lower_bound` holds for every causal mechanism; `reachable` is an estimate of what a good one attains."""

    lower_bound: float  # bits per step
    reachable: float  # bits per step
    memory: int  # states of the largest memory behind the bound
    steps: int  # sweeps and interior-point steps
    outcome: Outcome
    seconds: float
    history: list[dict[str, float]] = field(default_factory=list, repr=False)  # seconds, bound, memory
    witnesses: list[Witness | None] = field(default_factory=list, repr=False)  # one for each closed class

    @property
    def method(self) -> str:
        return (
            "reverse channels without memory"
            if self.memory == 1
            else f"reverse channels, memory of {self.memory} states"
        )


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

    transition: Z x Z. cost: Z x Y, weight * distortion in bits, infinite where a release is forbidden. law: the long-run
    law of the chain, needed only where it depends on the start. upper: what a known policy attains; the search
    stops when the bound is within `tolerance` (relative) of it, or of what it finds reachable itself.
    """
    began = perf_counter()
    P = np.asarray(transition, dtype=float)
    P = P / P.sum(1, keepdims=True)
    C = np.asarray(cost, dtype=float)
    chain = MarkovChain(P)
    law = chain.stationary if law is None else np.asarray(law, dtype=float)
    classes = [z for z in chain.closed_classes if law[z].sum() > 0]
    goal = upper if len(classes) == 1 else None
    searches = [Search(P[np.ix_(z, z)], C[z], tolerance, goal) for z in classes]
    shares = np.array([law[z].sum() for z in classes])

    def best() -> float:
        return float(shares @ [s.bound for s in searches])

    history: list[dict[str, float]] = []
    for k, search in enumerate(searches):
        until = perf_counter() + (began + seconds - perf_counter()) / (len(searches) - k)
        for _ in search.run(until):
            now = perf_counter() - began
            if not history or best() > history[-1]["bound"]:
                history.append({"seconds": now, "bound": best(), "memory": search.memory})
            if progress:
                progress(min(1.0, now / seconds), f"proved {best():.4f} bits, memory {search.size}")
    order = [Outcome.TIGHT, Outcome.PRECISION, Outcome.SIZE, Outcome.TIME]
    return Certificate(
        lower_bound=best(),
        reachable=float(shares @ [s.reachable for s in searches]),
        memory=max(s.memory for s in searches),
        steps=sum(s.steps for s in searches),
        outcome=max((s.outcome for s in searches), key=order.index),
        seconds=perf_counter() - began,
        history=history,
        witnesses=[s.witness for s in searches],
    )


class Search:
    """The best bound found so far for one closed class; `run` improves it."""

    def __init__(self, P: Array, C: Array, tolerance: float, goal: float | None) -> None:
        self.P, self.C = P, C[:, np.isfinite(C).any(0)]  # a release nobody may make is no release
        self.cost = self.C.T * NATS  # Y x Z
        self.pi = stationary_law(P)
        self.tolerance = tolerance
        self.bound = float(self.pi @ self.C.min(1)) * (1 - 1e-12)  # leakage is never negative
        self.witness: Witness | None = None  # None: the bound above
        self.reachable = min(np.inf if goal is None else goal, self.simple_policies())
        self.memory = self.size = 1
        self.steps = 0
        self.outcome = Outcome.TIME

    def run(self, until: float) -> Iterator[None]:
        """Yields after every piece of work, until the bound is tight, the time is up or the size too large."""
        log_m = yield from self.without_memory(until)
        x = self.start(log_m)
        while self.going(until):
            if not self.fits(x):
                self.outcome = Outcome.SIZE
                return
            self.size = len(x.next)
            try:
                x, kept = yield from self.with_memory(x, until)
            except np.linalg.LinAlgError:
                self.outcome = Outcome.PRECISION
                return
            parent, next, weight = split(self.P, x.next, x.m, 2 * self.size)
            if len(parent) == self.size:
                self.outcome = Outcome.PRECISION
                return
            x = interior.refined(kept, parent, next, weight)

    def simple_policies(self) -> float:
        """The better of always the same release and always the cheapest one (which leaks at most the entropy rate)."""
        return float(min((self.pi @ self.C).min(), self.pi @ (entropy(self.P) + self.C.min(1))))

    def without_memory(self, until: float) -> Generator[None, None, Array]:
        """Sweeps of `memoryless`; returns log m after the first few, still well inside, for others to start from."""
        first: Array | None = None
        for k, log_m in enumerate(memoryless.alternate(self.P, self.cost, self.pi), 1):
            self.steps += 1
            if k % LOOK_EVERY and perf_counter() < until:
                continue
            first = log_m if first is None else first
            witness = memoryless.witness(self.P, self.cost, self.pi, log_m)
            m = np.exp(log_m)[None]
            value = float((m * np.where(m > 0, reverse_cost(self.P, self.cost, witness.weights), 0)).sum())
            if k >= MOST_SWEEPS or self.offer(witness, value):
                self.reachable = min(self.reachable, attained(self.P, self.cost, witness.next, m) / NATS)
                k = MOST_SWEEPS
            yield
            if k == MOST_SWEEPS or not self.going(until):
                return first
        raise AssertionError("alternate never ends")

    def start(self, log_m: Array) -> interior.Iterate:
        witness = memoryless.witness(self.P, self.cost, self.pi, log_m)
        return interior.start(self.P, self.cost, witness.next, np.exp(log_m)[None], witness.alpha)

    def with_memory(
        self, x: interior.Iterate, until: float
    ) -> Generator[None, None, tuple[interior.Iterate, interior.Iterate]]:
        """Interior-point steps on one memory; returns the last iterate and one still well inside."""
        kept, centring = None, CENTRING
        for _ in range(MOST_STEPS):
            x = interior.step(self.P, self.cost, x, centring)
            centring = CENTRING if x.length > CENTRING else min(1.0, 2 * centring)
            self.steps += 1
            if kept is None and x.gap < KEEP_AT * max(x.g, LEAST_BITS):
                kept = x
            weights = weights_of(x.theta, np.isfinite(self.cost))
            alpha = improve(self.P, x.next, reverse_cost(self.P, self.cost, weights), x.alpha, 30)[1]
            settled = self.offer(Witness(x.next, weights, alpha), x.g + x.gap)
            yield
            if settled or not self.going(until):
                break
        self.reachable = min(self.reachable, attained(self.P, self.cost, x.next, x.m) / NATS)
        return x, kept or x

    def offer(self, witness: Witness, value: float) -> bool:
        """Keep a witness if it proves more. Is it as good as this memory allows? value: that, in nats."""
        bound = witness.bound(self.P, self.C)
        if bound > self.bound:
            self.bound, self.witness, self.memory = bound, witness, len(witness.next)
        return value / NATS - bound <= max(self.tolerance / 10 * bound, LEAST_BITS / 10)

    def going(self, until: float) -> bool:
        if self.bound >= min((1 - self.tolerance) * self.reachable, self.reachable - LEAST_BITS):
            self.outcome = Outcome.TIGHT
        return self.outcome is not Outcome.TIGHT and perf_counter() < until

    def fits(self, x: interior.Iterate) -> bool:
        S, Y, Z = x.m.shape
        return S * Y * Z * Z <= LARGEST_BLOCKS and S * Z <= LARGEST_SYSTEM
