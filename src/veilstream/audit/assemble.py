"""The whole audit of a policy file: every adversary on data from the chain and on recorded data, the same for other
methods at equal mean distortion, and the file's claim against what was found."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.artefact import Artefact
from veilstream.audit.bayes import Beliefs, infer
from veilstream.audit.learned import against_best, chain_adversary, gap_between, gap_to, lstm, window_law
from veilstream.audit.measures import Learned, Measure, Setting, anchor_places, measure, per_trace, surprise
from veilstream.audit.mechanisms import MECHANISMS
from veilstream.audit.source import Recorded, other_states
from veilstream.audit.spec import AuditSpec
from veilstream.audit.traces import Ints, Traces, release, sampled
from veilstream.audit.verdict import Assessment, Audited, claim_of
from veilstream.control.controller import Controller
from veilstream.control.frame_ladder import Framed
from veilstream.control.mechanism import check_fits
from veilstream.control.policy import Policy
from veilstream.data.crossval import blocks_of
from veilstream.data.utility import Utility
from veilstream.errors import ImpossibleObservation, InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.histories import TrueStates
from veilstream.model.information import Array, entropy
from veilstream.model.interval import ratio_interval
from veilstream.model.problem import Average, Problem
from veilstream.shown import Progress, within
from veilstream.solvers import METHODS, solve
from veilstream.solvers.solution import mean_distortion
from veilstream.solvers.warnings import about_data, about_policy

MAX_CELLS = 30_000_000  # numbers in one array of beliefs
FEW_TRACES = 12  # fewer are cut into pieces, so that some can be held out
PIECES = 30
WORK = 2e11  # steps x histories squared of following one chain: about a minute


def audit_artefact(
    artefact: Artefact,
    data: Recorded | None = None,
    options: AuditSpec | None = None,
    *,
    name: str | None = None,
    progress: Progress | None = None,
) -> Assessment:
    """What adversaries learn from the releases of a policy file, and from those of other methods.

    name: what to call the policy; by default the method that made it.
    """
    started, options = time.perf_counter(), options or AuditSpec(quick=False)
    data = data or Recorded.nothing(artefact)
    if isinstance(artefact.policy, Framed):  # nobody's chain is behind it: what releases reveal is bounded, not guessed
        if options.against:
            raise InputError("`against` compares policies on a fitted chain, and a policy of veil start has none")
        own = Audited(name or "veil start", None, mean_error(data), [])
        return Assessment(artefact, own, [], options, None, (), data, time.perf_counter() - started)
    policy, problem = artefact.answer()
    claim = claim_of(artefact.provenance, problem, policy)
    warnings = [] if claim is None else about_policy(claim.leakage, problem.chain)
    check_fits(policy, problem)
    what, parts = Subject.of(artefact, data, options), 1 + len(options.against)
    claimed = None if claim is None else claim.leakage
    own = what.audited(policy, name or method_of(artefact), claimed, within(progress, 0, 1 / parts))
    assert own.distortion is not None  # of a policy on a chain
    others = []
    for i, method in enumerate(options.against, 1):
        bar = within(progress, i / parts, (i + 1) / parts, f"{method}: ")
        bar(0.0, f"solving at {own.distortion:.4g} {artefact.unit}")
        less = replace(what, options=replace(options, truth=False))
        others.append(less.audited(*rival(artefact, problem, method, own.distortion, options.seed), bar))
    lines = (*warnings, *data.warnings, *about_data(artefact.provenance))
    return Assessment(artefact, own, others, options, claim, lines, data, time.perf_counter() - started)


def rival(
    artefact: Artefact, problem: Problem, method: str, error: float, seed: int
) -> tuple[Policy, str, float | None]:
    """Another policy of this mean error, its name and its bits: one that is solved for, or a mechanism of the list."""
    if method in MECHANISMS and method not in METHODS:
        states, (one, chain) = artefact.states, (MECHANISMS[method], problem.chain)
        names = tuple(map(str, range(chain.n_symbols))) if states is None else states.names
        utility = Utility(chain, problem.distortion, artefact.unit, names, points=artefact.points)
        utility = utility if states is None else replace(utility, cost=artefact.cost)
        if not one.fits(utility):
            raise InputError(f"mechanism {method} is for {one.on}, which this policy is not about")
        return one.met(utility, error), method, None
    other = solve(problem.under(Average(limit=error)), method, seed=seed)
    return other.policy, method, other.leakage


def mean_error(data: Recorded) -> float | None:
    """On later data, else on what was recorded."""
    if data.later is not None:
        return data.later.figures.raw_distortion.value
    return None if data.record is None else data.record.error


def method_of(artefact: Artefact) -> str:
    """The method that the file says made it; what it says may be anything."""
    said = artefact.provenance.get("solution")
    name = str(said.get("method", "policy")) if isinstance(said, dict) else "policy"
    return name[:40] if name.isprintable() else "policy"


@dataclass(frozen=True, eq=False)
class Subject:
    """The file under audit, and recorded traces that are long enough to look back."""

    artefact: Artefact
    problem: Problem
    options: AuditSpec
    sequences: Sequence[Ints] = ()  # recorded traces, as symbols
    first: Sequence[int] = ()  # the public number of the first step of each
    cut_from: int | None = None  # runs that were cut into these, where they were too few

    @classmethod
    def of(cls, artefact: Artefact, data: Recorded, options: AuditSpec) -> Subject:
        """With the traces that are long enough, cut in pieces where they are few."""
        what, lookback = cls(artefact, artefact.answer()[1], options), max(options.lookbacks)
        if data.sequences is None:
            return what
        steps = np.zeros(len(data.sequences), np.int64) if data.first is None else np.asarray(data.first, np.int64)
        runs = [(int(f), np.asarray(s, np.int64)) for f, s in zip(steps, data.sequences, strict=True) if len(s)]
        check_symbols([s for _, s in runs], artefact.chain.n_symbols)
        long = [(f, s) for f, s in runs if len(s) > lookback]
        if not long:
            raise InputError(
                f"every trace is too short for a look-back of {lookback}: the longest of {len(runs)} has "
                f"{max(len(s) for _, s in runs)} steps, at least {lookback + 1} are needed"
            )
        parts = in_pieces(long, lookback) if len(long) < FEW_TRACES else long
        first, sequences = zip(*parts, strict=True)
        return replace(what, sequences=sequences, first=first, cut_from=None if len(parts) == len(long) else len(long))

    @cached_property
    def distances(self) -> Array | None:
        """Between symbols; None where there are none."""
        if self.artefact.states is not None:
            return self.artefact.states.distances()
        square = len(self.problem.distortion) == self.problem.n_outputs == self.problem.chain.n_symbols
        return self.problem.distortion if square else None

    def audited(self, policy: Policy, name: str, claimed: float | None, progress: Progress) -> Audited:
        """One policy in every setting there is data for."""
        chain, options = self.problem.chain, self.options
        streams, steps, copies = options.sizes
        data = sampled(chain, policy, steps, streams, options.seed)
        if options.burn_in >= steps:
            raise InputError(
                f"streams of {steps} steps are too short for a look-back of {max(options.lookbacks)}; give steps="
                f"{options.burn_in + 1} or more"
            )
        half = 0.5 if self.sequences else 1.0
        settings = [examine(self, policy, data, "chain", within(progress, 0, half))]
        if self.sequences:
            paths = list(map(TrueStates.of(chain).along, self.sequences))
            copies = int(np.clip(MAX_CELLS // (sum(map(len, paths)) * len(chain)), 1, copies))
            data = release(policy, paths, copies, options.seed + 1, self.first)
            settings.append(examine(self, policy, data, "traces", within(progress, half, 1)))
        return Audited(name, claimed, mean_distortion(self.problem, policy), settings)

    def start(self, name: str) -> int:
        """The step from which releases are scored: by then there is enough to look back on."""
        return self.options.burn_in if name == "chain" else max(self.options.lookbacks)

    def followed(self, data: Traces, name: str) -> dict[int, int]:
        """Order -> copies of every trace on which its chain can be followed in about a minute; 0: not even one."""
        lowest, known = self.problem.chain.order, self.sequences
        orders = [k for k in self.options.orders if not self.options.quick and name == "traces" and k >= lowest]
        steps, copies = sum(map(len, known)), len(data.lengths) // data.n_traces
        return {k: min(copies, int(WORK / (steps * histories(known, k) ** 2))) for k in orders}


def check_symbols(data: Sequence[Ints], n: int) -> None:
    """Raises unless there are traces, of symbols 0..n-1."""
    if not data:
        raise InputError("the data holds no traces; at least one with two steps in a row is needed")
    if min(s.min() for s in data) < 0 or max(s.max() for s in data) >= n:
        raise other_states(f"the policy's states are 0..{n - 1}, the data goes up to {max(int(s.max()) for s in data)}")


def in_pieces(runs: list[tuple[int, Ints]], lookback: int) -> list[tuple[int, Ints]]:
    """Few runs, cut so that some of what is left can be held out."""
    ends = np.cumsum([len(s) for _, s in runs])
    flat = np.concatenate([s for _, s in runs])
    step = np.concatenate([f + np.arange(len(s)) for f, s in runs])
    places = blocks_of([np.arange(end - len(s), end) for end, (_, s) in zip(ends, runs, strict=True)], PIECES)
    return [(int(step[at[0]]), flat[at]) for at in places if len(at) > lookback] or runs


def histories(sequences: Sequence[Ints], order: int) -> int:
    """States of a chain of this order fitted to the sequences: what was seen of every length up to it."""
    paths = [s.tolist() for s in sequences]
    return len({tuple(s[i : i + m]) for s in paths for m in range(1, order + 1) for i in range(len(s) - m + 1)})


# --- one body of data, every adversary ---------------------------------------------------------------------


def examine(what: Subject, policy: Policy, data: Traces, name: str, tell: Progress) -> Setting:
    """All adversaries on data drawn from the chain, or recorded ("traces")."""
    problem, chain, start = what.problem, what.problem.chain, what.start(name)
    mask = data.mask & (np.arange(data.z.shape[1]) >= start)
    tell(0.0, f"exact adversaries on data from the {name}")
    try:
        seen = {k: (d, infer(chain, p, d)) for k, (p, d) in comparisons(chain, policy, data).items()}
    except ImpossibleObservation:
        raise InputError(
            "the data holds a step the policy's chain gives probability zero; fit with smoothing > 0"
        ) from None
    names = () if what.artefact.states is None else what.artefact.states.names
    anchors = anchor_places(chain.symbols[data.z], data.mask, names)
    rows: dict[str, dict[str, Measure]] = {}
    for who in ("predictor", "filter", "smoother"):
        rows[who] = {}
        for case, (d, b) in seen.items():
            path = b.path if who == "smoother" else None
            rows[who][case] = measure(getattr(b, who), chain.symbols[d.z], d, what.distances, path, anchors, start)
    beliefs = seen["released"][1]
    return Setting(
        name,
        data.n_traces,
        int(mask.sum()),
        ratio_interval(*per_trace(beliefs.density, data, data.mask)),
        ratio_interval(*per_trace(problem.distortion[data.z, data.y], data, mask)),
        int((~problem.allowed[data.z, data.y])[data.mask].sum()),
        rows,
        float(entropy(beliefs.predictor[mask]).mean()),
        [] if what.options.quick else learn(what, policy, data, beliefs, name, mask, tell),
        len(data.lengths) // data.n_traces,
        tuple(k for k, copies in what.followed(data, name).items() if not copies),
        what.cut_from if name == "traces" else None,
    )


def learn(
    what: Subject,
    policy: Policy,
    data: Traces,
    beliefs: Beliefs,
    name: str,
    mask: NDArray[np.bool_],
    tell: Progress,
) -> list[Learned]:
    """LSTMs on releases and on the true past; on recorded traces also chains fitted to the training part."""
    chain, options, start = what.problem.chain, what.options, what.start(name)
    n, x = chain.n_symbols, chain.symbols[data.z]
    bayes, _ = per_trace(surprise(beliefs.filter if options.current else beliefs.predictor, x), data, mask)
    orders = {k: copies for k, copies in what.followed(data, name).items() if copies}
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
        own = chain_adversary(k, chain, policy, some, what.sequences, late, options.seeds, options.seed, bar)
        found.append(own if options.current else replace(own, gap=gap_between(own, best)))
    return found


def comparisons(chain: MarkovChain, policy: Policy, data: Traces) -> dict[str, tuple[Policy, Traces]]:
    """What was released, and to compare with: that nothing is, or the true symbol."""
    blind, open_ = np.ones((len(chain), 1)), np.eye(chain.n_symbols)[chain.symbols]
    one = data.first_copies()
    return {
        "released": (policy, data),
        "nothing": (Controller.of_table(blind), replace(one, y=np.zeros_like(one.y))),
        "truth": (Controller.of_table(open_), replace(one, y=chain.symbols[one.z])),
    }
