"""Standard measures under their names, with intervals over traces.

    estimation error   E d(guess, x) of the best guess by the releases so far, or by all of them (Shokri et al. 2011);
                       of every attack (`attacks`), of which these two are the filter and the smoother
    vulnerability      E max_x P(x_t | releases): the first guess is right (Smith 2009)
    top 3              the truth is among the first three guesses
    multiplicative     vulnerability / that without any release: how many times better a first guess becomes
    path               share of steps at which the likeliest whole path is right (Viterbi)
    AUC                of P(at the place | all releases) as a score for being there: 0.5 says nothing
    odds               of being there, by all releases, while she is: the median, and beforehand

All are those of adversaries who know chain and policy (`bayes`) or, of files, have learned both (`pairs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.audit.attacks import ATTACKS
from veilstream.audit.attacks.attack import Evidence
from veilstream.audit.attacks.filtering import ATTACK as FILTER
from veilstream.audit.attacks.smoothing import ATTACK as SMOOTHER
from veilstream.audit.bayes import Beliefs, infer
from veilstream.audit.measures import hits, per_trace, surprise
from veilstream.audit.shapes import hausdorff, recall, visits
from veilstream.audit.traces import Ints, Traces
from veilstream.control.policy import Policy
from veilstream.data.states import StateSpace
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array
from veilstream.model.interval import Interval, finite, ratio_interval

SHAPES, NEAR_KM = ("hausdorff", "recall"), 0.2
MOST_PLACES, IN_USE = 3, "above the mean"  # what is looked at
LEAST_TRACES = 10  # with fewer no interval is given
Sums = tuple[Array, Array]  # of a figure: over the steps of each trace, and how many they are


@dataclass(frozen=True)
class Named:
    """What all releases together tell of one place."""

    place: str
    share: float  # of the time that is spent there
    auc: float
    odds: float  # median posterior odds while there
    before: float  # odds without any release

    def to_json(self) -> dict[str, Any]:
        return {k: finite(v) if isinstance(v, float) else v for k, v in self.__dict__.items()}


@dataclass(frozen=True)
class Figures:
    """What adversaries make of releases; per step, and over traces."""

    vulnerability: Interval
    prior: float  # vulnerability without any release
    top3: Interval
    attacks: Mapping[str, Interval]  # mean error of each; none where there are no distances
    shapes: Mapping[str, Mapping[str, Interval]]  # of each attack's guess of the whole trace: hausdorff, recall
    blind_error: float | None  # without any release
    path: Interval
    cross_entropy: Interval  # bits, of the truth given the releases so far
    places: tuple[Named, ...] = ()

    @property
    def estimation_error(self) -> Interval | None:
        """By the releases so far; None where there are no distances."""
        return self.attacks.get(FILTER.name)

    @property
    def trace_error(self) -> Interval | None:
        """By all releases."""
        return self.attacks.get(SMOOTHER.name)

    @property
    def multiplicative(self) -> float:
        """Multiplicative Bayes leakage."""
        return self.vulnerability.value / self.prior

    def to_json(self) -> dict[str, Any]:
        plain = {k: v for k, v in self.__dict__.items() if k not in ("places", "attacks", "shapes")}
        plain |= {"estimation_error": self.estimation_error, "trace_error": self.trace_error}
        return {
            **{k: v.to_json() if isinstance(v, Interval) else v for k, v in plain.items()},
            "multiplicative_leakage": self.multiplicative,
            "attacks": {name: v.to_json() for name, v in self.attacks.items()},
            "whole_traces": {name: {k: v.to_json() for k, v in own.items()} for name, own in self.shapes.items()},
            "places": [p.to_json() for p in self.places],
        }


class Tally:
    """The figures of several bodies of traces, added up."""

    def __init__(self, law: Array, distances: Array | None, near: float = 0.0) -> None:
        self.law, self.distances = law, distances  # the share of time of each symbol; between symbols
        self.near = near  # as good as the same place
        self.sums: dict[str, list[Sums]] = {}
        self.smooth: list[tuple[Array, Ints]] = []  # beliefs and truths of the steps scored

    def add(self, chain: MarkovChain, policy: Policy, traces: Traces, felt: Array, start: int = 0) -> Beliefs:
        """Traces as seen by who knows chain and policy, scored from step `start` on; felt: |X| x |Y|, to releases."""
        beliefs, x = infer(chain, policy, traces), chain.symbols[traces.z]
        mask = traces.mask & (np.arange(x.shape[1]) >= start)
        assert beliefs.smoother is not None and beliefs.path is not None
        first, top3 = hits(beliefs.filter, x)
        values = {
            "vulnerability": first,
            "top3": top3,
            "path": beliefs.path == x,
            "cross_entropy": surprise(beliefs.filter, x),
        }
        if self.distances is not None:
            seen = Evidence(chain, traces, beliefs, self.distances, felt)
            guesses = {name: attack.guess(seen) for name, attack in ATTACKS.items()}
            values |= {name: self.distances[x, guess] for name, guess in guesses.items()}
            self._whole(x, guesses, mask)
        for name, value in values.items():
            self.sums.setdefault(name, []).append(per_trace(value, traces, mask))
        self.smooth.append((beliefs.smoother[mask], x[mask]))
        return beliefs

    def _whole(self, x: Ints, guesses: Mapping[str, Ints], mask: NDArray[np.bool_]) -> None:
        """What each guess is as a whole, a row a trace."""
        assert self.distances is not None
        kept = mask.any(1)
        true, *seen = (visits(path, mask, len(self.law))[kept] for path in (x, *guesses.values()))
        for name, own in zip(guesses, seen, strict=True):
            found = hausdorff(self.distances, true, own), recall(self.distances, true, own, self.near)
            for shape, value in zip(SHAPES, found, strict=True):
                self.sums.setdefault(f"{shape} {name}", []).append((value, np.ones(len(value))))

    def interval(self, name: str) -> Interval:
        return over_traces(self.sums[name])

    def figures(self, places: Mapping[str, Ints]) -> Figures:
        """places: sets of states that are looked at one by one."""
        beliefs, x = (np.concatenate(part) for part in zip(*self.smooth, strict=True))
        d = self.distances
        return Figures(
            self.interval("vulnerability"),
            float(self.law.max()),
            self.interval("top3"),
            {} if d is None else {name: self.interval(name) for name in ATTACKS},
            {} if d is None else {n: {s: self.interval(f"{s} {n}") for s in SHAPES} for n in ATTACKS},
            None if d is None else float((self.law @ d).min()),
            self.interval("path"),
            self.interval("cross_entropy"),
            tuple(at_place(beliefs[:, i].sum(1), np.isin(x, i), name) for name, i in places.items()),
        )


def near(states: StateSpace | None) -> float:
    """How near to a place another is as good as it."""
    return NEAR_KM if states is not None and states.is_map else 0.0


def over_traces(sums: Sequence[Sums]) -> Interval:
    """A figure per step, over all traces of all bodies; without an interval where they are too few to resample."""
    total, count = (np.concatenate(part) for part in zip(*sums, strict=True))
    found = ratio_interval(total, count)
    return found if len(total) >= LEAST_TRACES else Interval(found.value, np.nan, np.nan)


def at_place(belief: Array, there: NDArray[np.bool_], name: str) -> Named:
    """belief: P(at the place | all releases) at each step."""
    share = float(there.mean())
    middle = float(np.median(belief[there])) if there.any() else 0.0
    odds = middle / (1 - middle) if middle < 1 else np.inf
    return Named(name, share, auc(belief, there), float(odds), share / (1 - share) if share < 1 else np.inf)


def auc(score: Array, there: NDArray[np.bool_]) -> float:
    """P(a step there scores above one elsewhere), ties counted half; nan where there is no step of one kind."""
    from scipy.stats import rankdata

    n, m = int(there.sum()), int((~there).sum())
    if not n or not m:
        return float(np.nan)
    return float((rankdata(score)[there].sum() - n * (n + 1) / 2) / (n * m))


def looked_at(law: Array, names: Sequence[str], states: StateSpace | None) -> dict[str, Ints]:
    """The most visited places; of values whether they are above their mean: a household in use, or asleep."""
    if states is not None and states.kind == "bins":
        level = states.coordinates[:, 0]
        return {IN_USE: np.flatnonzero(level > law @ level)}
    return {names[i]: np.array([i]) for i in np.argsort(-law, kind="stable")[:MOST_PLACES]}
