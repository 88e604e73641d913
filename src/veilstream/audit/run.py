"""The whole audit of one policy: both settings, every adversary, the baselines at equal mean distortion."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from veilstream.audit.bayes import Beliefs, infer
from veilstream.audit.learned import Learned, chain_adversary, gap_to, lstm
from veilstream.audit.lookback import least_cross_entropy, window_law
from veilstream.audit.measures import (
    NATS,
    Interval,
    Measure,
    anchor_places,
    measure,
    per_trace,
    ratio_interval,
    surprise,
)
from veilstream.audit.traces import Ints, Traces, release, sampled
from veilstream.chain import MarkovChain
from veilstream.errors import ImpossibleObservation, InputError
from veilstream.evaluate import evaluate
from veilstream.information import Array
from veilstream.policy import Policy, Schedule, WindowPolicy
from veilstream.problem import Average, Problem
from veilstream.selection import blocks_of, walk
from veilstream.steady import rates, schedule_rates

if TYPE_CHECKING:
    from veilstream.audit.lstm import Lstm

Progress = Callable[[float, str], None]
FEW_TRACES = 12  # fewer are cut into pieces, so that some can be held out
PIECES = 30
MAX_CELLS = 30_000_000  # numbers in one array of beliefs


@dataclass(frozen=True)
class Options:
    """How much work to do. `quick` asks exact adversaries only, on less data, and needs no JAX."""

    lookbacks: tuple[int, ...] = (1, 5)
    current: bool = False  # the learner sees the current release too
    orders: tuple[int, ...] = (1, 2, 3)
    seeds: int = 3
    streams: int = 240
    steps: int = 300
    copies: int = 40  # of each recorded trace, released anew
    learn: bool = True
    seed: int = 0
    net: "Lstm | None" = None

    def __post_init__(self) -> None:
        least = {"seeds": 2, "streams": 6, "steps": 3, "copies": 1}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise InputError(f"{name} must be at least {low}, found {getattr(self, name)}")
        if not self.lookbacks or min(self.lookbacks) < 1:
            raise InputError(f"a look-back must be at least 1, found {min(self.lookbacks, default=0)}")
        if any(k < 1 for k in self.orders):
            raise InputError(f"an order must be at least 1, found {min(self.orders)}")

    def quick(self) -> "Options":
        return replace(self, learn=False, orders=(), streams=120, steps=200, copies=min(self.copies, 10))


@dataclass(frozen=True, eq=False)
class Setting:
    """What every adversary gets out of one body of data."""

    name: str  # "chain": drawn from the fitted chain; "traces": recorded
    traces: int
    steps: int
    leakage: Interval  # bits per step: mean of log2 a(y|z)/p(y), from the first step on
    distortion: Interval
    worst: float  # largest distortion of any step
    adversaries: dict[str, dict[str, Measure]]  # adversary -> released | nothing | truth
    expected: float  # bits: H(X_t | y^{t-1}) as the chain expects it, on these releases
    learned: list[Learned] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "data": self.name,
            "traces": self.traces,
            "steps": self.steps,
            "leakage": self.leakage.to_json(),
            "distortion": self.distortion.to_json(),
            "worst_distortion": self.worst,
            "adversaries": {a: {k: m.to_json() for k, m in row.items()} for a, row in self.adversaries.items()},
            "expected_cross_entropy_nats": self.expected * NATS,
            "learned": [one.to_json() for one in self.learned],
        }


@dataclass(frozen=True, eq=False)
class Audited:
    """A policy under audit, in one or two settings."""

    name: str
    leakage: float | None  # claimed, bits per step
    distortion: float
    settings: list[Setting]

    def to_json(self) -> dict[str, Any]:
        own = {"policy": self.name, "leakage": self.leakage, "distortion": self.distortion}
        return {**own, "settings": [s.to_json() for s in self.settings]}


@dataclass(frozen=True, eq=False)
class Subject:
    """The model everything is measured against."""

    problem: Problem
    distances: Array | None  # symbols x symbols
    names: tuple[str, ...] = ()
    sequences: tuple[Ints, ...] | None = None  # recorded traces, as symbols


def subject(problem: Problem, distances: Array | None, names: Sequence[str], recorded: Sequence[Ints] | None, lookback: int) -> Subject:
    """Checks the recorded traces and keeps those that are long enough to look back."""
    if recorded is None:
        return Subject(problem, distances, tuple(names))
    n = problem.chain.n_symbols
    data = [np.asarray(s, np.int64) for s in recorded if len(s)]
    if not data:
        raise InputError("the data holds no traces")
    if min(s.min() for s in data) < 0 or max(s.max() for s in data) >= n:
        raise InputError(
            f"the policy and the data have different state spaces: the policy's states are 0..{n - 1}, "
            f"the data goes up to {max(int(s.max()) for s in data)}"
        )
    long = [s for s in data if len(s) > lookback]
    if not long:
        raise InputError(
            f"every trace is too short for a look-back of {lookback}: the longest of {len(data)} has "
            f"{max(map(len, data))} steps, at least {lookback + 1} are needed"
        )
    if len(long) < FEW_TRACES:
        long = [s for s in blocks_of(long, PIECES) if len(s) > lookback] or long
    return Subject(problem, distances, tuple(names), tuple(long))


def examine(
    what: Subject, policy: Policy, name: str, claimed: float | None, options: Options, progress: Progress | None = None
) -> Audited:
    """One policy in every setting there is data for."""
    tell = progress or (lambda done, what: None)
    share = 1 / (1 if what.sequences is None else 2)
    chain = what.problem.chain
    data = sampled(chain, policy, options.steps, options.streams, options.seed)
    burn_in = max(options.steps // 3, *options.lookbacks)
    settings = [_setting(what, policy, data, "chain", burn_in, options, lambda f, s: tell(f * share, s))]
    if what.sequences is not None:
        paths = [walk(chain, s) for s in what.sequences]
        cells = sum(map(len, paths)) * len(chain)
        copies = int(np.clip(MAX_CELLS // cells, 1, options.copies))
        data = release(policy, paths, copies, options.seed + 1)
        start = max(options.lookbacks)
        settings.append(_setting(what, policy, data, "traces", start, options, lambda f, s: tell(share + f * share, s)))
    return Audited(name, claimed, mean_distortion(what.problem, policy), settings)


def _setting(
    what: Subject, policy: Policy, data: Traces, name: str, start: int, options: Options, tell: Progress
) -> Setting:
    chain, problem = what.problem.chain, what.problem
    x = chain.symbols[data.z]
    mask = data.mask & (np.arange(x.shape[1]) >= start)
    learners = len(options.lookbacks) * 2 * options.learn + len(options.orders) * (name == "traces") * options.learn
    tell(0.0, f"exact adversaries on data from the {name}")
    try:
        beliefs = infer(chain, policy, data)
        around = {k: (d, infer(chain, p, d)) for k, (p, d) in comparisons(chain, data).items()}
    except ImpossibleObservation:
        raise InputError("the data holds a step the policy's chain gives probability zero; fit with smoothing > 0") from None
    anchors = anchor_places(x, data.mask, what.names)
    rows: dict[str, dict[str, Measure]] = {}
    for who in ("predictor", "filter", "smoother"):
        rows[who] = {}
        for case, (d, b) in {"released": (data, beliefs), **around}.items():
            path = b.path if who == "smoother" else None
            x_d = chain.symbols[d.z]
            rows[who][case] = measure(getattr(b, who), x_d, d, what.distances, path, anchors, start)
    distortion = problem.distortion[data.z, data.y]
    learned = []
    if options.learn:
        inner = lambda f, s: tell((1 + f * learners) / (1 + learners), s)  # noqa: E731
        learned = _learn(what, policy, data, x, beliefs, name, start, options, inner)
    return Setting(
        name,
        data.n_traces,
        int(mask.sum()),
        ratio_interval(*per_trace(beliefs.density, data, data.mask)),
        ratio_interval(*per_trace(distortion, data, data.mask)),
        float(distortion[data.mask].max()),
        rows,
        _expected(beliefs, mask),
        learned,
    )


def _learn(
    what: Subject, policy: Policy, data: Traces, x: Ints, beliefs: Beliefs, name: str, start: int, options: Options,
    tell: Progress,
) -> list[Learned]:
    """LSTMs on releases and on the true past; on recorded traces also chains fitted to the training part."""
    chain = what.problem.chain
    n = chain.n_symbols
    mask = data.mask & (np.arange(x.shape[1]) >= start)
    own = beliefs.filter if options.current else beliefs.predictor
    bayes, _ = per_trace(surprise(own, x), data, mask)
    jobs: list[tuple[str, Callable[[Callable[[float], None]], Learned]]] = []
    for m in options.lookbacks:
        args = {"lookback": m, "start": start, "seeds": options.seeds, "seed": options.seed, "net": options.net}

        def on_releases(p: Callable[[float], None], args: dict[str, Any] = args, m: int = m) -> Learned:
            got = lstm(data, x, data.y, policy.n_outputs, n, current=options.current, progress=p, **args)
            law = window_law(chain, policy, m, options.current) if name == "chain" else None
            return replace(got, gap=gap_to(bayes, got), least=None if law is None else least_cross_entropy(law))

        def on_truth(p: Callable[[float], None], args: dict[str, Any] = args) -> Learned:
            one = data.first_copies()
            return lstm(one, chain.symbols[one.z], chain.symbols[one.z], n, n, name="LSTM, true past", progress=p, **args)

        jobs += [(f"LSTM, look-back {m}", on_releases), (f"LSTM on the true past, look-back {m}", on_truth)]
    for k in options.orders if name == "traces" and what.sequences is not None else ():
        if k >= chain.order:

            def by_chain(p: Callable[[float], None], k: int = k) -> Learned:
                few = data.first_copies(4)
                few_mask = few.mask & (np.arange(few.z.shape[1]) >= start)
                return chain_adversary(k, chain, policy, few, what.sequences or (), few_mask, options.seeds, options.seed)

            jobs.append((f"chain of order {k}", by_chain))
    found = []
    for i, (label, job) in enumerate(jobs):
        found.append(job(lambda f, i=i, label=label: tell((i + f) / len(jobs), f"{label} on data from the {name}")))
    return found


def _expected(beliefs: Beliefs, mask: Any) -> float:
    from veilstream.information import entropy

    return float(entropy(beliefs.predictor[mask]).mean())


def comparisons(chain: MarkovChain, data: Traces) -> dict[str, tuple[Policy, Traces]]:
    """The same adversary when nothing is released, and when the true symbol is."""
    blind: Policy = WindowPolicy.of_table(np.ones((len(chain), 1)))
    open_: Policy = WindowPolicy.of_table(np.eye(chain.n_symbols)[chain.symbols])
    one = data.first_copies()
    return {
        "nothing": (blind, replace(one, y=np.zeros_like(one.y))),
        "truth": (open_, replace(one, y=chain.symbols[one.z])),
    }


def mean_distortion(problem: Problem, policy: Policy) -> float:
    """Per step under the chain: exact where the policy's steady state can be computed."""
    if isinstance(policy, WindowPolicy):
        return rates(problem, policy).distortion
    if isinstance(policy, Schedule) and all(isinstance(p, WindowPolicy) for p in policy.policies):
        return schedule_rates(problem, policy)[1]
    return evaluate(problem, policy).distortion


@dataclass(frozen=True, eq=False)
class Audit:
    """Everything an audit found; `verdict` puts it into words."""

    policy: Audited
    against: list[Audited]
    seconds: float
    options: Options
    unit: str = ""


def audit(
    problem: Problem,
    policy: Policy,
    recorded: Sequence[Ints] | None = None,
    *,
    name: str = "policy",
    claimed: float | None = None,
    distances: Array | None = None,
    names: Sequence[str] = (),
    unit: str = "",
    against: Sequence[str] = (),
    options: Options | None = None,
    progress: Progress | None = None,
) -> Audit:
    """What adversaries learn from a policy's releases, and from those of other methods at equal mean distortion."""
    from veilstream.solvers import solve

    started = time.perf_counter()
    options = options or Options()
    tell = progress or (lambda done, what: None)
    if distances is None and len(problem.distortion) == problem.n_outputs == problem.chain.n_symbols:
        distances = problem.distortion
    what = subject(problem, distances, names, recorded, max(options.lookbacks))
    parts = 1 + len(against)
    found = [examine(what, policy, name, claimed, options, lambda f, s: tell(f / parts, s))]
    level = found[0].distortion
    for i, method in enumerate(against, 1):
        tell(i / parts, f"solving {method} at {level:.4g} {unit}")
        other = solve(Problem(problem.chain, problem.distortion, Average(limit=level)), method, seed=options.seed)
        found.append(
            examine(
                what, other.policy, method, other.leakage, options,
                lambda f, s, i=i, method=method: tell((i + f) / parts, f"{method}: {s}"),
            )
        )
    return Audit(found[0], found[1:], time.perf_counter() - started, options, unit)
