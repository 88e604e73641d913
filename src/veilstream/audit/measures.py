"""From beliefs to numbers a person can read.

    cross-entropy   mean of -log P(x_t), in nats and bits: how surprised the adversary is by the truth
    top-1, top-3    how often the truth is the first guess, or among the first three
    error           mean distance from the truth to the guess that minimises the expected distance
    recovered       share of a trace where a whole-trace guess is right
    home, work      of the steps spent at the two most visited places, or guessed to be: the share that is both

Intervals are over traces: steps of one trace are not independent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.audit.attacks.attack import nearest
from veilstream.audit.bayes import infer
from veilstream.audit.spec import AuditSpec
from veilstream.audit.traces import Ints, Traces, sampled
from veilstream.control.policy import Policy
from veilstream.data.card import commonest
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array
from veilstream.model.interval import Interval, ratio_interval
from veilstream.units import counted

NATS = float(np.log(2))  # nats in a bit


@dataclass(frozen=True)
class Measure:
    """One adversary on one set of traces; intervals are over traces."""

    cross_entropy: Interval  # bits
    top1: float
    top3: float
    error: float | None  # in the unit of the distances
    recovered: float | None
    home: float | None
    work: float | None

    def to_json(self) -> dict[str, Any]:
        own = {k: v for k, v in self.__dict__.items() if k != "cross_entropy"}
        bits = self.cross_entropy.to_json()
        nats = self.cross_entropy.scaled(NATS).to_json()
        return {"cross_entropy_bits": bits, "cross_entropy_nats": nats, **own}


@dataclass(frozen=True, eq=False)
class Learned:
    """One learner: its cross-entropy on held-out traces (bits, interval over traces), and each seed's."""

    name: str
    lookback: int | None  # releases it looks at; None: all
    cross_entropy: Interval
    per_seed: tuple[float, ...]
    top1: float
    least: float | None = None  # bits: the best possible with this look-back, exactly, on data from the chain
    excess: Interval | None = None  # bits above that best predictor, scored on the same steps
    gap: Interval | None = None  # bits
    stopped: int = 0  # trainings that the clock ended
    loss: Array = field(default_factory=lambda: np.zeros(0), repr=False)  # per trace, bits summed
    count: Array = field(default_factory=lambda: np.zeros(0), repr=False)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "lookback": self.lookback,
            "cross_entropy_bits": self.cross_entropy.to_json(),
            "cross_entropy_nats": self.cross_entropy.scaled(NATS).to_json(),
            "per_seed_nats": [v * NATS for v in self.per_seed],
            "top1": self.top1,
            "least_nats": None if self.least is None else self.least * NATS,
            "excess_nats": None if self.excess is None else self.excess.scaled(NATS).to_json(),
            "model_gap_nats": None if self.gap is None else self.gap.scaled(NATS).to_json(),
        }


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


def surprise(belief: Array, x: Ints) -> Array:
    """-log2 P(x) of the truth, bits; infinite where the adversary had ruled it out."""
    with np.errstate(divide="ignore"):
        return -np.log2(np.take_along_axis(belief, x[..., None], -1)[..., 0])


def per_trace(values: Array, traces: Traces, mask: NDArray[np.bool_]) -> tuple[Array, Array]:
    """(sum, count) of `values` over the masked steps of every trace, copies together."""
    rows = np.where(mask, values, 0).sum(1)
    n = traces.n_traces
    sums = np.bincount(traces.origin, rows, n).astype(float)
    return sums, np.bincount(traces.origin, mask.sum(1), n).astype(float)


def hits(belief: Array, x: Ints) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether the truth is the first guess, and whether it is among the first three."""
    rank = (belief > np.take_along_axis(belief, x[..., None], -1)).sum(-1)
    return belief.argmax(-1) == x, rank < 3


def measure(
    belief: Array,
    x: Ints,
    traces: Traces,
    distances: Array | None = None,
    path: Ints | None = None,
    anchors: Sequence[int] | None = None,
    start: int = 0,
) -> Measure:
    """Score beliefs (streams x steps x symbols) against the true symbols x from step `start` on.

    path: whole-trace guesses for `recovered` and the anchors; the first guess of the belief if there is none.
    """
    mask = traces.mask & (np.arange(x.shape[1]) >= start)
    first, top3 = hits(belief, x)
    guess = belief.argmax(-1) if path is None else path
    found: list[float | None] = []
    for place in anchors or ():
        here, said = x[mask] == place, guess[mask] == place
        found.append(float((here & said).sum() / (here | said).sum()) if (here | said).any() else None)
    home, work = (*found, None, None)[:2]
    error = None if distances is None else float(distances[x, nearest(belief, distances)][mask].mean())
    return Measure(
        ratio_interval(*per_trace(surprise(belief, x), traces, mask)),
        float(first[mask].mean()),
        float(top3[mask].mean()),
        error,
        float((guess == x)[mask].mean()),
        home,
        work,
    )


def anchor_places(x: Ints, mask: NDArray[np.bool_], names: Sequence[str] = ()) -> tuple[int, int]:
    """Home and work: the states of that name, or else the two most visited places."""
    count = np.bincount(x[mask], minlength=max(2, len(names)))
    lower = [n.lower() for n in names]
    if "home" in lower and "work" in lower:
        return lower.index("home"), lower.index("work")
    first, second = np.argsort(-count, kind="stable")[:2]
    return int(first), int(second)


@dataclass(frozen=True)
class Guess:
    """Share of steps at which an adversary who knows chain and policy, and sees every release, identifies the state."""

    right: float
    right_se: float
    blind: float  # without any release: always the commonest (of the hour, where there is a clock)

    @classmethod
    def of(cls, chain: MarkovChain, policy: Policy, seed: int = 0) -> "Guess":
        """Estimated on what `veil audit --quick` draws from the chain, so that both say one figure."""
        streams, steps, _ = (work := AuditSpec(seed=seed)).sizes
        drawn = sampled(chain, policy, steps, streams, seed)
        guess = infer(chain, policy, drawn, whole=False).filter.argmax(-1)
        x, usual = chain.symbols[drawn.z], commonest(chain)
        step = drawn.first[:, None] + np.arange(steps)
        hits, blind = ((g == x)[:, work.burn_in :].mean(1) for g in (guess, usual[step % len(usual)]))
        return cls(float(hits.mean()), float(hits.std(ddof=1) / np.sqrt(len(hits))), float(blind.mean()))

    def words(self, thing: str) -> str:
        """A clause; thing: what a state is, a place or a level."""
        return (
            f"an adversary who sees every release identifies the {thing} in {self.right:.0%} of steps "
            f"({self.blind:.0%} without any release)"
        )

    def to_json(self) -> dict[str, Any]:
        return {"hit_rate": self.right, "hit_rate_se": self.right_se, "hit_rate_blind": self.blind}
