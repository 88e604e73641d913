"""Proved lower bounds on what any causal release mechanism can do, better the longer they may take.

First the bound without memory, by `alternation`: a moment, at any size. Then the best that a memory can prove
(`potential`): that of a policy, from where it has settled, or none at all where that one forgets more than it gains.
The memory is split where it forgets most (`memory`), and so on, until the bound is within the tolerance of what a
mechanism attains or the time is up. The best bound so far stands. With a public clock the memories are the last
release and the last two, by `alternation` again, from the policy that is to be certified: its occupancies are nearly
the best.

A chain with several closed classes is bounded class by class: to name the class costs bits once, but no rate, so

    objective >= sum over classes k of law(k) * bound(k),     and transient states add nothing.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from veilstream.control.automaton import window
from veilstream.control.controller import Controller
from veilstream.control.stationary import Moves
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, Index, normalised
from veilstream.solvers.bounds import alternation, potential
from veilstream.solvers.bounds.pairs import MOST_STATES, Group, groups_of
from veilstream.solvers.bounds.witness import NATS, Witness, improve, reverse_cost
from veilstream.solvers.memory import attained, split
from veilstream.solvers.solution import Progress

LOOK_EVERY, MOST_SWEEPS, MOST_STEPS = (50, 10), (2000, 600), 100  # sweeps without and with a clock; Newton steps
WINDOWS = 1, 2  # releases remembered around a clock, one after the other
WHILE, HELPED = 50, 0.05  # sweeps around a clock, and the part of the gap that they must have closed to go on
LARGEST_ROUND = 8_000_000  # numbers in an array L x S x Y x Z
GROWTH = 1.5  # of the memory, from round to round
ENOUGH = 0.003  # relative: how far a memory is exploited before it is split, while the gap is larger than that
SHARE, FIRST = 0.3, 0.1  # and of the gap, when that is smaller; the same without memory, and where splitting is dear
MARGIN = 0.25  # of the gap: how far inside a finer memory starts
LITTLE = 0.5  # a bound below this part of what is reachable is next to nothing: chains of higher order without memory
LEAST_BITS = 1e-6  # a gap below this is none
LARGEST_PAIRS = 20_000_000  # numbers in an array S x Y x Z
LARGEST_BLOCKS = 40_000_000  # numbers in an array S x Z x Z
SECONDS_EACH = 3e-9, 2e-7, 1e-6  # to a first bound: a product S x Y x Z x Z, a number S x Y x Z, one of a likely pair
LARGE_PAIRS = 3_000_000  # numbers S x Y x Z from which a look at all pairs waits ...
WAITING = 0.02  # ... until the memory is this near to the most it can prove, relative
RAISES = 30, 8  # of the potential, by value iteration, before a bound is read off; where that is large


@dataclass(frozen=True, eq=False)
class Start:
    """Where a mechanism has settled: a memory, log occupancies, and the potential that goes with them, in nats.

    With the policy's own potential beta, alpha_s(z) = beta_s(z) + log mu(z|s) and theta = log m, every f of a pair
    (s,y) is the policy's value less what next(s,y) forgets, sum_z' P(z,z') log (b_sy P)(z') / mu(z'|next).
    """

    next: NDArray[np.int64]  # S x Y
    log_m: Array  # S x Y x Z; around a clock at each of its steps
    alpha: Array  # S x Z

    def within(self, z: NDArray[np.int64], cost: Array) -> "Start":
        """On these states alone, and the releases that their cost leaves them."""
        y = np.isfinite(cost).any(0)
        return Start(self.next[:, y], self.log_m[:, y][:, :, z], self.alpha[:, z])


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
    transition: Array | MarkovChain,
    cost: Array,
    *,
    upper: float | None = None,
    start: Start | Controller | None = None,
    seconds: float = 60.0,
    tolerance: float = 1e-3,
    progress: Progress | None = None,
) -> Certificate:
    """Bound leakage + cost from below, in bits per step, over all causal mechanisms, which may see the chain's clock.

    transition: Z x Z, or a chain. cost: Z x Y, weight * distortion in bits, infinite where a release is forbidden.
    upper: what a known policy attains; the search stops when the bound is within `tolerance` (relative) of it, or of a
    policy found here. start: where a policy for this cost has settled, with a clock the policy itself; without one
    memories grow from none.
    """
    began = perf_counter()
    chain, C = transition if isinstance(transition, MarkovChain) else MarkovChain(transition), np.asarray(cost, float)
    classes = [z for z in chain.closed_classes if chain.stationary[z].sum() > 0]
    shares = np.array([chain.stationary[z].sum() for z in classes])
    known = (upper, start) if len(classes) == 1 else (None, None)
    searches = [Search(*within(chain, C, known[1], z), tolerance, known[0]) for z in classes]

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


def within(
    chain: MarkovChain, C: Array, start: Start | Controller | None, z: Index
) -> tuple[MarkovChain, Array, Start | Controller | None]:
    """The same on a closed class of states alone."""
    if len(z) == len(chain):
        return chain, C, start
    P = normalised(chain.transition[np.ix_(z, z)])
    return MarkovChain(P), C[z], start.within(z, C[z]) if isinstance(start, Start) else None


class Search:
    """The best bound found so far for one closed class; `run` improves it."""

    def __init__(
        self,
        chain: MarkovChain,
        C: Array,
        start: Start | Controller | None,
        tolerance: float,
        known: float | None,
    ) -> None:
        may = np.isfinite(C).any(0)  # a release nobody may make is no release
        self.chain, self.C, self.laws = chain, C[:, may], chain.laws
        self.round = [normalised(chain.at(phase).transition) for phase in chain.around]
        self.P = self.round[0]  # without a clock
        self.products: Any = [Moves(csr_array(self.P))] if chain.phases == 1 and chain.is_sparse else self.round
        self.cost = self.C.T * NATS  # Y x Z
        self.tolerance, self.known = tolerance, known
        self.start = start if isinstance(start, Start) else None
        self.policy = start if isinstance(start, Controller) and may.all() else None
        pi = chain.stationary
        cheapest = float(pi @ self.C.min(1))
        constant = float((pi @ self.C).min())  # always the same release leaks nothing,
        truth = chain.entropy_rate + cheapest  # and always the cheapest at most the entropy rate
        self.reachable = min(constant, truth, np.inf if known is None else known)
        self.bound = cheapest * (1 - 1e-12)  # leakage is never negative
        self.witness: Witness | None = None  # None: the bound above
        self.memory = self.size = 1
        self.steps = 0
        self.last = False  # no larger memory fits
        self.outcome = Ending.TIME

    def run(self, until: float) -> Iterator[None]:
        """Yields after every piece of work; ends when the bound is tight, or nothing more can be done."""
        none = yield from self.alternate(0, until)
        if not self.going(until):
            return
        late = False
        if self.chain.phases > 1:
            late = yield from self.around(none, until)
        else:
            yield from self.grow(none, until)
        if self.outcome is Ending.TIME and perf_counter() < until and not late:
            self.outcome = Ending.SIZE

    def grow(self, none: Start, until: float) -> Iterator[None]:
        """The best that ever finer memories can prove."""
        groups = groups_of(self.P, self.cost)
        try:
            x = self.begun(groups, none, until)
            while x is not None and self.going(until):
                self.size, self.last = len(x.next), not self.fits(groups, len(x.next), GROWTH)
                x = yield from self.climb(x, until)
                if self.last or not self.going(until):
                    break
                x = self.split(x)
        except np.linalg.LinAlgError:
            self.outcome = Ending.PRECISION

    def around(self, none: Start, until: float) -> Generator[None, None, bool]:
        """With the last releases as a memory, while that helps; whether the time is too short for a first look."""
        Z, Y = self.C.shape
        for w in WINDOWS:
            if len(self.round) * Y ** (w + 1) * Z > LARGEST_ROUND or not self.going(until):
                break
            if perf_counter() + self.sweep_s * (alternation.LAPS + 2) * Y**w > until:
                return True
            m, before = None if self.policy is None else alternation.occupancies(self.chain, self.policy, w), self.bound
            self.size = Y**w
            yield from self.alternate(w, until, m if m is None else alternation.mixed(m, none.log_m, self.cost))
            if self.bound <= before:
                break
        return False

    def alternate(self, w: int, until: float, m: Array | None = None) -> Generator[None, None, Start]:
        """Sweeps on the memory of the last w releases, while they help; returns where they have led."""
        table, began, clock = window(len(self.cost), w).table, perf_counter(), self.chain.phases > 1
        own = before = -np.inf  # the best of this memory, now and a while ago
        setting = self.products, self.cost, table, self.laws
        for k, (log_m, alpha) in enumerate(alternation.alternate(*setting, m), 1):
            self.steps += 1
            if k % LOOK_EVERY[clock] and perf_counter() < until:
                continue
            laps = 2 if w == 0 and not clock else alternation.LAPS if k == 1 else alternation.MORE_LAPS
            witness, value = alternation.witness(*setting, log_m, alpha, laps)
            bound = self.offer(witness)
            own, settled = max(own, bound), self.near(bound, value, FIRST)
            if clock:
                settled = k % WHILE == 0 and own - before < HELPED * (self.reachable - own)
                before = own if k % WHILE == 0 else before
            if settled or k >= MOST_SWEEPS[clock] or not self.going(until):
                break
            yield
        if not clock:
            self.reach(attained(self.P, self.cost, table, np.exp(log_m[0])))
        self.sweep_s = (perf_counter() - began) / (2 * k * len(table))  # a state of it; half of it are looks
        yield
        return Start(table, log_m if clock else log_m[0], witness.alpha[0])

    def begun(self, groups: list[Group], none: Start, until: float) -> potential.Ascent | None:
        """The first memory to climb on: a policy's, where it forgets less than is gained by it, or none."""
        for given in (self.start, none):
            if given is not None and self.in_time(groups, given, until):
                x = potential.start(groups, given.next, given.log_m, given.alpha)
                if given is none or x.value >= self.bound * NATS or self.bound < LITTLE * self.reachable:
                    return x
        return None

    def climb(self, x: potential.Ascent, until: float) -> Generator[None, None, potential.Ascent]:
        """Steps on one memory; returns the last iterate."""
        large, share = x.size > LARGE_PAIRS, SHARE if x.own.all() else FIRST
        for _ in range(MOST_STEPS):
            x = potential.step(x)
            self.steps += 1
            settled = False
            if not large or perf_counter() > until or x.gap < WAITING * abs(x.g):
                x = potential.looked(x)
                w = x.weights
                rho = reverse_cost(self.P, self.cost, w)
                alpha = improve([self.P], x.next, rho[None], x.alpha[None], RAISES[large])
                settled = self.near(self.offer(Witness(x.next, w[None], alpha)), x.g + x.gap, share)
            yield
            if settled or not self.going(until):
                break
        if self.known is None or x.size * len(self.P) <= LARGE_PAIRS:
            self.reach(attained(self.P, self.cost, x.next, x.m))
        return x

    def split(self, x: potential.Ascent) -> potential.Ascent:
        """The same on a finer memory. Raises LinAlgError where nothing is left to split."""
        parent, table, weight = split(self.P, x.next, x.m, max(len(x.next) + 1, int(GROWTH * len(x.next))))
        if len(parent) == len(x.next):
            raise np.linalg.LinAlgError("the memory forgets nothing that can be told")
        margin = MARGIN * max(self.reachable - self.bound, LEAST_BITS) * NATS
        return potential.refined(x, parent, table, weight, margin)

    def offer(self, witness: Witness) -> float:
        """Keep a witness if it proves more; what it proves."""
        bound = witness.bound(self.products, self.C)
        if bound > self.bound:
            self.bound, self.witness, self.memory = bound, witness, len(witness.next)
        return bound

    def near(self, bound: float, value: float, share: float) -> bool:
        """Whether a bound is near the most that its memory can prove (value, in nats)."""
        enough = 0.0 if self.last else min(share * (self.reachable - bound), ENOUGH * bound)
        return bool(value / NATS - bound <= max(enough, 0.1 * self.tolerance * bound, 0.1 * LEAST_BITS))

    def reach(self, value: float) -> None:
        self.reachable = min(self.reachable, value / NATS)

    def going(self, until: float) -> bool:
        """There is time, and something left to prove."""
        if self.bound >= min((1 - self.tolerance) * self.reachable, self.reachable - LEAST_BITS):
            self.outcome = Ending.TIGHT
        return self.outcome is not Ending.TIGHT and perf_counter() < until

    def in_time(self, groups: list[Group], start: Start, until: float) -> bool:
        """Whether all pairs of a memory can be looked at, and the likely ones solved, before the time is up."""
        states, each = len(start.next), SECONDS_EACH
        pairs = [(states * len(x.release) * len(x.states), len(x.successors)) for x in groups]
        seconds = sum(n * (each[0] * to + each[1]) for n, to in pairs)
        work = max(min(len(x.states), MOST_STATES) for x in groups) ** 2
        seconds += each[2] * work * float((np.exp(start.log_m).sum(-1) > potential.USED).sum())
        return self.fits(groups, states) and perf_counter() + seconds < until

    def fits(self, groups: list[Group], states: int, growth: float = 1) -> bool:
        numbers = sum(len(x.release) * len(x.states) for x in groups)
        return bool(growth * states * numbers <= LARGEST_PAIRS and growth * states * self.P.size <= LARGEST_BLOCKS)
