"""One body of data, every adversary: what each of them gets out of a policy's releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from veilstream.artefact import Artefact
from veilstream.audit.bayes import Beliefs, infer
from veilstream.audit.learned import Learned, against_best, chain_adversary, gap_between, gap_to, lstm
from veilstream.audit.lookback import window_law
from veilstream.audit.measures import NATS, Measure, anchor_places, measure, per_trace, surprise
from veilstream.audit.spec import AuditSpec
from veilstream.audit.traces import Ints, Traces
from veilstream.control.controller import Controller
from veilstream.control.policy import Policy
from veilstream.data.crossval import blocks_of
from veilstream.errors import ImpossibleObservation, InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, entropy
from veilstream.model.interval import Interval, ratio_interval
from veilstream.model.problem import Problem
from veilstream.shown import Progress, within
from veilstream.units import counted

FEW_TRACES = 12  # fewer are cut into pieces, so that some can be held out
PIECES = 30
WORK = 2e11  # steps x histories squared of following one chain: about a minute


@dataclass(frozen=True, eq=False)
class Setting:
    """Figures of every adversary on one body of data."""

    name: str  # "chain": drawn from the fitted chain; "traces": recorded
    traces: int
    steps: int
    leakage: Interval  # bits per step: mean of log2 a(y|z)/p(y), from the first step on
    distortion: Interval
    broken: int  # releases that a limit at every step forbids
    adversaries: dict[str, dict[str, Measure]]  # adversary -> released | nothing | truth
    expected: float  # bits: H(X_t | y^{t-1}) as the chain expects it, on these releases
    learned: list[Learned] = field(default_factory=list)
    copies: int = 1  # times that each trace was released anew; `steps` counts them all
    untried: tuple[int, ...] = ()  # orders whose chains have too many histories to be followed
    cut_from: int | None = None  # runs that were cut into these traces, where they were

    @property
    def size(self) -> str:
        """Streams drawn from the chain; runs of recorded data, or the pieces that a few of them were cut into."""
        each = f", each released {self.copies} times" if self.copies > 1 else ""
        what = "stream" if self.name == "chain" else "run" if self.cut_from is None else "piece"
        runs = "" if self.cut_from is None else f" of {counted(self.cut_from, 'run')}"
        return f"{counted(self.traces, what)}{runs}, {self.steps // self.copies:,} steps scored{each}"

    @property
    def on_releases(self) -> list[Learned]:
        """The networks that learned from releases."""
        return [one for one in self.learned if one.name == "LSTM"]

    def to_json(self) -> dict[str, Any]:
        return {
            "data": self.name,
            "traces": self.traces,
            "steps": self.steps,
            "leakage": self.leakage.to_json(),
            "distortion": self.distortion.to_json(),
            "broken": self.broken,
            "adversaries": {a: {k: m.to_json() for k, m in row.items()} for a, row in self.adversaries.items()},
            "expected_cross_entropy_nats": self.expected * NATS,
            "learned": [one.to_json() for one in self.learned],
        }


@dataclass(frozen=True, eq=False)
class Subject:
    """The file everything is measured against, and recorded traces that are long enough to look back."""

    artefact: Artefact
    sequences: tuple[Ints, ...] | None = None  # recorded traces, as symbols
    first: tuple[int, ...] = ()  # the public number of the first step of each
    cut_from: int | None = None  # runs that were cut into these, where they were too few

    @property
    def problem(self) -> Problem:
        assert self.artefact.problem is not None  # `audit` saw to it
        return self.artefact.problem

    @cached_property
    def distances(self) -> Array | None:
        """Between symbols; None where there are none."""
        if self.artefact.states is not None:
            return self.artefact.states.distances()
        square = len(self.problem.distortion) == self.problem.n_outputs == self.problem.chain.n_symbols
        return self.problem.distortion if square else None

    @classmethod
    def of(
        cls, artefact: Artefact, recorded: Sequence[Ints], first: Sequence[int] | Ints | None, lookback: int
    ) -> Self:
        """With recorded traces, from these `first` steps on: the long enough ones, cut in pieces where they are few."""
        steps = np.zeros(len(recorded), np.int64) if first is None else np.asarray(first, np.int64)
        runs = [(int(f), np.asarray(s, np.int64)) for f, s in zip(steps, recorded, strict=True) if len(s)]
        check_symbols([s for _, s in runs], artefact.chain.n_symbols)
        long = [(f, s) for f, s in runs if len(s) > lookback]
        if not long:
            raise InputError(
                f"every trace is too short for a look-back of {lookback}: the longest of {len(runs)} has "
                f"{max(len(s) for _, s in runs)} steps, at least {lookback + 1} are needed"
            )
        parts = in_pieces(long, lookback) if len(long) < FEW_TRACES else long
        begin, sequences = zip(*parts, strict=True)
        return cls(artefact, sequences, begin, None if len(parts) == len(long) else len(long))


def check_symbols(data: Sequence[Ints], n: int) -> None:
    """Raises unless there are traces, of symbols 0..n-1."""
    if not data:
        raise InputError("the data holds no traces; at least one with two steps in a row is needed")
    if min(s.min() for s in data) < 0 or max(s.max() for s in data) >= n:
        raise InputError(
            f"the policy and the data have different state spaces: the policy's states are 0..{n - 1}, "
            f"the data goes up to {max(int(s.max()) for s in data)}"
        )


def in_pieces(runs: list[tuple[int, Ints]], lookback: int) -> list[tuple[int, Ints]]:
    """Few runs, cut so that some of what is left can be held out."""
    ends = np.cumsum([len(s) for _, s in runs])
    flat = np.concatenate([s for _, s in runs])
    step = np.concatenate([f + np.arange(len(s)) for f, s in runs])
    places = blocks_of([np.arange(end - len(s), end) for end, (_, s) in zip(ends, runs, strict=True)], PIECES)
    return [(int(step[at[0]]), flat[at]) for at in places if len(at) > lookback] or runs


def examine(
    what: Subject, policy: Policy, data: Traces, name: str, start: int, options: AuditSpec, tell: Progress
) -> Setting:
    """All adversaries on one body of data, scored from step `start` on."""
    chain, problem = what.problem.chain, what.problem
    x = chain.symbols[data.z]
    mask = data.mask & (np.arange(x.shape[1]) >= start)
    tell(0.0, f"exact adversaries on data from the {name}")
    try:
        beliefs = infer(chain, policy, data)
        around = {k: (d, infer(chain, p, d)) for k, (p, d) in comparisons(chain, data).items()}
    except ImpossibleObservation:
        raise InputError(
            "the data holds a step the policy's chain gives probability zero; fit with smoothing > 0"
        ) from None
    anchors = anchor_places(x, data.mask, () if what.artefact.states is None else what.artefact.states.names)
    rows: dict[str, dict[str, Measure]] = {}
    for who in ("predictor", "filter", "smoother"):
        rows[who] = {}
        for case, (d, b) in {"released": (data, beliefs), **around}.items():
            path = b.path if who == "smoother" else None
            x_d = chain.symbols[d.z]
            rows[who][case] = measure(getattr(b, who), x_d, d, what.distances, path, anchors, start)
    distortion = problem.distortion[data.z, data.y]
    learned = learn(what, policy, data, beliefs, name, start, options, tell) if not options.quick else []
    return Setting(
        name,
        data.n_traces,
        int(mask.sum()),
        ratio_interval(*per_trace(beliefs.density, data, data.mask)),
        ratio_interval(*per_trace(distortion, data, mask)),
        int((~problem.allowed[data.z, data.y])[data.mask].sum()),
        rows,
        float(entropy(beliefs.predictor[mask]).mean()),
        learned,
        len(data.lengths) // data.n_traces,
        tuple(k for k, copies in followed(what, data, name, options).items() if not copies),
        what.cut_from if name == "traces" else None,
    )


def learn(
    what: Subject,
    policy: Policy,
    data: Traces,
    beliefs: Beliefs,
    name: str,
    start: int,
    options: AuditSpec,
    tell: Progress,
) -> list[Learned]:
    """LSTMs on releases and on the true past; on recorded traces also chains fitted to the training part."""
    chain = what.problem.chain
    n, x = chain.n_symbols, chain.symbols[data.z]
    mask = data.mask & (np.arange(x.shape[1]) >= start)
    bayes, _ = per_trace(surprise(beliefs.filter if options.current else beliefs.predictor, x), data, mask)
    orders = {k: copies for k, copies in followed(what, data, name, options).items() if copies}
    jobs = len(options.lookbacks) * (1 + options.truth) + len(orders)
    found: list[Learned] = []

    def part(label: str) -> Progress:
        return within(tell, len(found) / jobs, (len(found) + 1) / jobs, f"{label} on data from the {name}")

    shared: dict[str, Any] = {"start": start, "seeds": options.seeds, "seed": options.seed, "net": options.net}
    for m in options.lookbacks:
        bar = part(f"LSTM, look-back {m},")
        got = lstm(data, x, data.y, policy.n_outputs, n, m, current=options.current, progress=bar, **shared)
        law = window_law(chain, policy, m, options.current) if name == "chain" else None
        if law is not None:
            got = against_best(got, law, data, x, start, options.current)
        found.append(replace(got, gap=gap_to(bayes, got)))
    best = min(found, key=lambda one: one.cross_entropy.value)
    one = data.first_copies()
    past = chain.symbols[one.z]
    for m in options.lookbacks if options.truth else ():
        bar = part(f"LSTM on the true past, look-back {m},")
        found.append(lstm(one, past, past, n, n, m, name="LSTM, true past", progress=bar, **shared))
    for k, copies in orders.items():
        some, bar = data.first_copies(copies), part(f"chain of order {k}")
        late = some.mask & (np.arange(x.shape[1]) >= start)
        own = chain_adversary(k, chain, policy, some, what.sequences or (), late, options.seeds, options.seed, bar)
        found.append(own if options.current else replace(own, gap=gap_between(own, best)))
    return found


def followed(what: Subject, data: Traces, name: str, options: AuditSpec) -> dict[int, int]:
    """Order -> copies of every trace on which its chain can be followed in about a minute; 0: not even one."""
    chain, known = what.problem.chain, what.sequences or ()
    orders = [k for k in options.orders if not options.quick and name == "traces" and k >= chain.order]
    steps, copies = sum(map(len, known)), len(data.lengths) // data.n_traces
    return {k: min(copies, int(WORK / (steps * histories(known, k) ** 2))) for k in orders}


def histories(sequences: Sequence[Ints], order: int) -> int:
    """States of a chain of this order fitted to the sequences: what was seen of every length up to it."""
    seen: set[tuple[int, ...]] = set()
    for s in sequences:
        path = s.tolist()
        seen.update(tuple(path[i : i + m]) for m in range(1, order + 1) for i in range(len(path) - m + 1))
    return len(seen)


def comparisons(chain: MarkovChain, data: Traces) -> dict[str, tuple[Policy, Traces]]:
    """Policies and traces to compare with: nothing is released, or the true symbol is."""
    blind: Policy = Controller.of_table(np.ones((len(chain), 1)))
    open_: Policy = Controller.of_table(np.eye(chain.n_symbols)[chain.symbols])
    one = data.first_copies()
    return {
        "nothing": (blind, replace(one, y=np.zeros_like(one.y))),
        "truth": (open_, replace(one, y=chain.symbols[one.z])),
    }
