"""Standard measures under their names, with intervals over traces.

    estimation error   min over guesses of E d(guess, x), by the releases so far, or by all of them (Shokri et al. 2011)
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

from veilstream.audit.bayes import Beliefs
from veilstream.audit.measures import errors, hits, per_trace, surprise
from veilstream.audit.traces import Ints, Traces
from veilstream.model.information import Array
from veilstream.model.interval import Interval, finite, ratio_interval

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
    estimation_error: Interval | None  # by the releases so far; None where there are no distances
    trace_error: Interval | None  # by all of them
    blind_error: float | None  # without any
    path: Interval
    cross_entropy: Interval  # bits, of the truth given the releases so far
    places: tuple[Named, ...] = ()

    @property
    def multiplicative(self) -> float:
        """Multiplicative Bayes leakage."""
        return self.vulnerability.value / self.prior

    def to_json(self) -> dict[str, Any]:
        own = {k: v.to_json() if isinstance(v, Interval) else v for k, v in self.__dict__.items() if k != "places"}
        return {**own, "multiplicative_leakage": self.multiplicative, "places": [p.to_json() for p in self.places]}


class Tally:
    """The figures of several bodies of traces, added up."""

    def __init__(self, law: Array, distances: Array | None) -> None:
        self.law, self.distances = law, distances  # the share of time of each symbol; between symbols
        self.sums: dict[str, list[Sums]] = {}
        self.smooth: list[tuple[Array, Ints]] = []  # beliefs and truths of the steps scored

    def add(self, beliefs: Beliefs, x: Ints, traces: Traces, start: int = 0) -> None:
        """Score beliefs against the truth x, streams x steps, from step `start` on."""
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
            values["estimation_error"] = errors(beliefs.filter, x, self.distances)
            values["trace_error"] = errors(beliefs.smoother, x, self.distances)
        for name, value in values.items():
            self.sums.setdefault(name, []).append(per_trace(value, traces, mask))
        self.smooth.append((beliefs.smoother[mask], x[mask]))

    def interval(self, name: str) -> Interval:
        return over_traces(self.sums[name])

    def figures(self, names: Mapping[int, str]) -> Figures:
        """names: of the places that are looked at one by one."""
        beliefs, x = (np.concatenate(part) for part in zip(*self.smooth, strict=True))
        d = self.distances
        return Figures(
            self.interval("vulnerability"),
            float(self.law.max()),
            self.interval("top3"),
            None if d is None else self.interval("estimation_error"),
            None if d is None else self.interval("trace_error"),
            None if d is None else float((self.law @ d).min()),
            self.interval("path"),
            self.interval("cross_entropy"),
            tuple(at_place(beliefs[:, i], x == i, name) for i, name in names.items()),
        )


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


def commonest(law: Array, names: Sequence[str], most: int = 3) -> dict[int, str]:
    """The places that are looked at: the most visited ones."""
    return {int(i): names[i] for i in np.argsort(-law, kind="stable")[:most]}
