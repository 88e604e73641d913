"""Proved lower bounds on what any causal release mechanism can do, better the longer they may take.

First the bound without memory, by `alternation`: a moment, at any size. Then, where one is given, from where a policy
that remembers the last releases has settled (`potential`), unless that memory forgets more than is gained. Then
memories made to measure: the best bound each can prove (`interior`), split where it forgets most (`memory`), and so on,
until the bound is within the tolerance of what a mechanism attains or the time is up. The best bound so far stands.

A chain with several closed classes is bounded class by class: to name the class costs bits once, but no rate, so

    objective >= sum over classes k of law(k) * bound(k),     and transient states add nothing.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.core.chain import MarkovChain
from veilstream.core.information import Array
from veilstream.solvers.bounds import alternation, interior, potential
from veilstream.solvers.bounds.pairs import ReleaseParts, weights
from veilstream.solvers.bounds.witness import NATS, SparseMatrix, Witness, improve, reverse_cost, weights_of
from veilstream.solvers.memory import attained, split, window_memory
from veilstream.solvers.solution import Progress

LOOK_EVERY, MOST_SWEEPS, MOST_STEPS = 50, 2000, 100
GROWTH = 1.5  # of the memory, from round to round
ENOUGH = 0.003  # relative: how far a memory is exploited before it is split, while the gap is larger than that
MARGIN = 0.5  # of the gap: how far inside a finer memory starts
LITTLE = 0.5  # a bound below this part of what is reachable is next to nothing: chains of higher order without memory
LEAST_BITS = 1e-6  # a gap below this is none
LARGEST_PAIRS = 20_000_000  # numbers in an array S x Y x Z
SECONDS_EACH = 9e-9, 9e-4  # of a product S x Y x Z x Z, and of an active pair, from a policy to its first bound
MOST_ACTIVE = 2_500  # pairs, about
LARGE_PAIRS = 3_000_000  # numbers S x Y x Z from which a look at all pairs waits ...
WAITING = 0.02  # ... until the memory is this near to the most it can prove, relative
LARGEST_SWEEP = 1_000_000  # numbers in an array S x Y x Z, alternated
LARGEST_BLOCKS = 6_000_000  # numbers in an array S x Y x Z x Z
LARGEST_SYSTEM = 4_000  # S x Z
CENTRING = 0.3
RAISES = 30  # of the potential, by value iteration, before a bound is read off


@dataclass(frozen=True, eq=False)
class Start:
    """Where a policy has settled: a memory, log occupancies, and the potential that goes with them, in nats.

    With the policy's own potential beta, alpha_s(z) = beta_s(z) + log mu(z|s) and theta = log m, every f of a pair
    (s,y) is the policy's value less what next(s,y) forgets, sum_z' P(z,z') log (b_sy P)(z') / mu(z'|next).
    """

    next: NDArray[np.int64]  # S x Y
    log_m: Array  # S x Y x Z
    alpha: Array  # S x Z


class Ending(StrEnum):
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
    outcome: Ending
    seconds: float
    history: list[dict[str, float]] = field(default_factory=list, repr=False)  # seconds, bound, memory
    witnesses: list[Any] = field(default_factory=list, repr=False)  # Witness per closed class; None: 0 leaks

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
    start: Start | None = None,
    seconds: float = 60.0,
    tolerance: float = 1e-3,
    progress: Progress | None = None,
) -> Certificate:
    """Bound leakage + cost from below, in bits per step, over all causal mechanisms.

    transition: Z x Z. cost: Z x Y, weight * distortion in bits, infinite where a release is forbidden.
    law: the long-run law of the chain, needed only where it depends on the start. upper: what a known policy
    attains; the search stops when the bound is within `tolerance` (relative) of it, or of a policy found here.
    start: where a policy for this cost has settled; without one memories grow from none.
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
    whole = len(classes) == 1 and len(classes[0]) == len(P) and np.isfinite(C).any(0).all()
    given = start if whole else None
    searches = [Search(MarkovChain(P[np.ix_(z, z)]), C[z], tolerance, goal, given) for z in classes]

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
    worst_last = [Ending.TIGHT, Ending.PRECISION, Ending.SIZE, Ending.TIME]
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

    def __init__(self, chain: MarkovChain, C: Array, tolerance: float, goal: float, start: Start | None) -> None:
        self.P, self.C = chain.transition, C[:, np.isfinite(C).any(0)]  # a release nobody may make is no release
        self.products: Any = SparseMatrix(chain.sparse) if chain.is_sparse else self.P
        self.cost = self.C.T * NATS  # Y x Z
        self.pi = chain.stationary
        self.tolerance, self.start = tolerance, start
        cheapest = float(self.pi @ self.C.min(1))
        constant = float((self.pi @ self.C).min())  # always the same release leaks nothing,
        truth = chain.entropy_rate + cheapest  # and always the cheapest at most the entropy rate
        self.reachable = min(goal, constant, truth)
        self.bound = cheapest * (1 - 1e-12)  # leakage is never negative
        self.witness: Witness | None = None  # None: the bound above
        self.memory = self.size = 1
        self.steps = 0
        self.last = False  # no larger memory fits
        self.outcome = Ending.TIME

    def run(self, until: float) -> Iterator[None]:
        """Yields after every piece of work; ends when the bound is tight, or nothing more can be done."""
        x = yield from self.alternation(window_memory(len(self.cost), 0), MOST_SWEEPS, until)
        if not self.going(until):
            return
        parts = ReleaseParts.of(self.P, self.cost)
        try:
            if self.start is not None and self.in_time(len(self.start.next), until):
                x = (yield from self.from_policy(self.start, parts, until)) or x
            if self.bound < LITTLE * self.reachable:
                x = yield from self.wider(x, until)
            still = interior.gauge(parts, len(self.cost)) if self.fits(len(x.next)) else np.zeros(0)
            while self.going(until):
                if not self.fits(len(x.next)):
                    self.outcome = Ending.SIZE
                    return
                self.size, self.last = len(x.next), not self.fits(len(x.next), GROWTH)
                x = yield from self.interior_point(x, still, until)
                x = self.split(x)
        except np.linalg.LinAlgError:
            self.outcome = Ending.PRECISION

    def split(self, x: interior.Iterate) -> interior.Iterate:
        """The same on a finer memory. Raises LinAlgError where nothing is left to split."""
        parent, table, weight = split(self.P, x.next, x.m, max(len(x.next) + 1, int(GROWTH * len(x.next))))
        if len(parent) == len(x.next):
            raise np.linalg.LinAlgError("the memory forgets nothing that can be told")
        margin = MARGIN * max(self.reachable - self.bound, LEAST_BITS) * NATS
        return interior.refined(x, parent, table, weight, margin)

    def from_policy(
        self, start: Start, parts: ReleaseParts, until: float
    ) -> Generator[None, None, interior.Iterate | None]:
        """On the memory of a policy, from there; returns where finer memories may start, None: nowhere."""
        Y = len(self.cost)
        y = potential.start(self.P, parts, start.next, start.log_m, start.alpha)
        if y.value < self.bound * NATS:  # it forgets too much
            return None
        self.size, self.last = len(y.next), not self.fits(len(y.next), GROWTH)
        for _ in range(MOST_STEPS):
            y = potential.step(self.P, y)
            self.steps += 1
            settled, late = False, perf_counter() > until
            if late or y.theta.size <= LARGE_PAIRS or y.gap < WAITING * abs(y.g):
                y = potential.looked(self.P, y)
                w = weights(y.parts, y.theta, Y)
                alpha = improve(self.P, y.next, reverse_cost(self.P, self.cost, w), y.alpha, RAISES)
                settled = self.offer(Witness(y.next, w, alpha), y.g + y.gap)
            yield
            if settled or not self.going(until):
                break
        if not self.going(until) or not self.fits(len(y.next), GROWTH):
            self.outcome = Ending.SIZE if self.going(until) else self.outcome
            return None
        return self.split(interior.start(self.P, self.cost, y.next, y.m, y.alpha))

    def wider(self, x: interior.Iterate, until: float) -> Generator[None, None, interior.Iterate]:
        """The last release or two as memory, by alternation, while that helps; returns where to go on from.

        Memories that grow from none are smaller and prove more, but where a state names the one before it they have
        far to grow until they prove anything.
        """
        Y, Z = self.cost.shape
        taken_over = False  # can the interior-point method go on from the last memory, with room to grow?
        for window in (1, 2):
            before, table = self.bound, window_memory(Y, window)
            room = self.fits(len(table), 2)
            if not self.going(until) or Y == 1 or len(table) * Y * Z > LARGEST_SWEEP or (taken_over and not room):
                break
            self.size, taken_over = len(table), room
            share = (0.15 if room else 0.7) * (until - perf_counter())
            found = yield from self.alternation(table, MOST_SWEEPS // 5, perf_counter() + share)
            if self.bound - before < 0.15 * (self.reachable - before):
                break
            x = found if room else x
        return x

    def alternation(
        self, table: NDArray[np.int64], sweeps: int, until: float
    ) -> Generator[None, None, interior.Iterate]:
        """Sweeps on one memory; returns where the interior-point method may start, well inside."""
        iterates, first, before = alternation.alternate(self.products, self.cost, table, self.pi), None, self.bound
        for k in count(1):
            log_m, alpha = next(iterates)
            self.steps += 1
            if k % LOOK_EVERY and perf_counter() < until:
                continue
            witness, value = alternation.witness(self.products, self.cost, table, self.pi, log_m, alpha)
            if first is None:
                first = interior.start(self.P, self.cost, table, np.exp(log_m), witness.alpha)
            settled = self.offer(witness, value)
            hopeless = k >= 3 * LOOK_EVERY and self.bound == before
            over = settled or hopeless or k >= sweeps or perf_counter() > until
            if over:
                self.reach(attained(self.P, self.cost, table, np.exp(log_m)))
            yield
            if over or not self.going(until):
                break
        assert first is not None
        return first

    def interior_point(
        self, x: interior.Iterate, still: Array, until: float
    ) -> Generator[None, None, interior.Iterate]:
        """Interior-point steps on one memory; returns the last iterate."""
        centring = CENTRING
        for _ in range(MOST_STEPS):
            gap = max(centring * x.gap, 0.02 * self.tolerance * self.bound * NATS)  # no closer than needed
            x = interior.step(self.P, self.cost, still, x, gap)
            centring = CENTRING if x.length > CENTRING else min(1.0, 2 * centring)
            self.steps += 1
            w = weights_of(x.theta, np.isfinite(self.cost))
            alpha = improve(self.P, x.next, reverse_cost(self.P, self.cost, w), x.alpha, RAISES)
            settled = self.offer(Witness(x.next, w, alpha), x.g + x.gap)
            yield
            if settled or not self.going(until):
                break
        self.reach(attained(self.P, self.cost, x.next, x.m))
        return x

    def offer(self, witness: Witness, value: float) -> bool:
        """Keep a witness if it proves more. Is it near the most this memory can prove (value, in nats)?"""
        bound = witness.bound(self.products, self.C)
        if bound > self.bound:
            self.bound, self.witness, self.memory = bound, witness, len(witness.next)
        enough = 0.0 if self.last else min(0.1 * (self.reachable - bound), ENOUGH * bound)
        return bool(value / NATS - bound <= max(enough, 0.1 * self.tolerance * bound, 0.1 * LEAST_BITS))

    def reach(self, value: float) -> None:
        self.reachable = min(self.reachable, value / NATS)

    def going(self, until: float) -> bool:
        """There is time, and something left to prove."""
        if self.bound >= min((1 - self.tolerance) * self.reachable, self.reachable - LEAST_BITS):
            self.outcome = Ending.TIGHT
        return self.outcome is not Ending.TIGHT and perf_counter() < until

    def in_time(self, states: int, until: float) -> bool:
        """Whether all pairs of a policy's memory can be looked at, before the time is up."""
        Y, Z = self.cost.shape
        ready = perf_counter() + SECONDS_EACH[0] * states * Y * Z * Z + SECONDS_EACH[1] * min(states * Y, MOST_ACTIVE)
        return bool(states * Y * Z <= LARGEST_PAIRS and ready < until)

    def fits(self, states: int, growth: float = 1) -> bool:
        Y, Z = self.cost.shape
        return bool(growth * states * Y * Z * Z <= LARGEST_BLOCKS and growth * states * Z <= LARGEST_SYSTEM)
