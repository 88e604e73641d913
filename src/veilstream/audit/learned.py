"""Learners on held-out traces: the LSTM, and chains of any order; and how much better they do than the model says.

Traces are split whole. Seed s holds out part s of the traces, takes a fifth of the rest for early stopping and learns
from what is left, so that over all seeds every trace is held out once. Intervals are bootstraps over traces.

    model gap = cross-entropy of the chain's own Bayes predictor - cross-entropy of the learner,   same steps

A gap above 0 means that real traces are easier to guess than the chain believes: the promise was about a model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from veilstream.audit.bayes import infer
from veilstream.audit.lookback import examples, least_cross_entropy
from veilstream.audit.measures import NATS, surprise
from veilstream.audit.traces import Ints, Traces
from veilstream.control.policy import Policy
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array
from veilstream.model.interval import Interval, ratio_interval
from veilstream.shown import Progress, within

if TYPE_CHECKING:
    from veilstream.audit.lstm import Lstm

HELD_FOR_STOPPING = 0.2
MIN_TRACES = 2  # per seed


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


@dataclass(eq=False)
class Scores:
    """How a learner did on what each of its seeds held out."""

    loss: Array  # per trace, bits summed
    count: Array  # per trace, steps
    right: float = 0.0  # steps at which the first guess was the truth
    per_seed: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, traces: Traces) -> "Scores":
        return cls(*np.zeros((2, traces.n_traces)))

    def add(self, law: Array, x: Ints, trace: Ints) -> None:
        """The steps that one seed held out: P(x | what is seen), steps x symbols, the truth, and whose step it is."""
        bits = surprise(law, x)
        self.loss += np.bincount(trace, bits, len(self.loss))
        self.count += np.bincount(trace, minlength=len(self.count))
        self.right += float((law.argmax(1) == x).sum())
        self.per_seed.append(float(bits.mean()))

    def learned(self, name: str, lookback: int | None = None) -> Learned:
        top1, seeds = float(self.right / self.count.sum()), tuple(self.per_seed)
        found = ratio_interval(self.loss, self.count)
        return Learned(name, lookback, found, seeds, top1, loss=self.loss, count=self.count)


def split(n_traces: int, seeds: int, seed: int = 0) -> list[tuple[Ints, Ints, Ints]]:
    """(learn from, stop by, score on) for every seed; of traces, or of whatever else is held out whole."""
    if seeds < 2:
        raise InputError(f"at least 2 seeds are needed, each holding out its part of the traces; found {seeds}")
    if n_traces < MIN_TRACES * seeds:
        raise InputError(f"{n_traces} usable traces; {seeds} seeds need at least {MIN_TRACES * seeds}")
    order = np.random.default_rng(seed).permutation(n_traces)
    parts = []
    for s in range(seeds):
        rest = order[np.arange(n_traces) % seeds != s]
        stop = max(1, round(HELD_FOR_STOPPING * len(rest)))
        parts.append((rest[stop:], rest[:stop], order[s::seeds]))
    return parts


def against_best(learned: Learned, law: Array, traces: Traces, x: Ints, start: int, current: bool) -> Learned:
    """With the best possible for its look-back: P(window, x) exactly, on data from the chain."""
    m = learned.lookback or 1
    data = examples(traces, x, traces.y, m, start, current)
    n_outputs = round(len(law) ** (1 / m))
    code = data.windows @ n_outputs ** np.arange(m)[::-1]
    rows = law[code]
    bits = surprise(rows / rows.sum(1, keepdims=True), data.x)
    best = np.bincount(data.trace, bits, traces.n_traces)
    excess = ratio_interval(learned.loss - best, learned.count)
    return replace(learned, least=least_cross_entropy(law), excess=excess)


def gap_to(bayes_loss: Array, learned: Learned) -> Interval:
    """Bayes minus learner, paired by trace, bits per step."""
    return ratio_interval(bayes_loss - learned.loss, learned.count)


def gap_between(chain: Learned, learner: Learned) -> Interval:
    """Model gap against a chain fitted to the training traces: neither has seen the traces it is scored on."""
    step = np.divide(chain.loss, chain.count, out=np.zeros_like(chain.loss), where=chain.count > 0)
    return ratio_interval(step * learner.count - learner.loss, learner.count)


def lstm(
    traces: Traces,
    x: Ints,
    seen: Ints,
    n_outputs: int,
    n_symbols: int,
    lookback: int,
    start: int,
    seeds: int = 3,
    seed: int = 0,
    current: bool = False,
    net: "Lstm | None" = None,
    name: str = "LSTM",
    hold_out: str = "trace",
    progress: Progress | None = None,
) -> Learned:
    """The paper's adversary: guess x_t from the last `lookback` of `seen`, scored from step `start` on.

    hold_out: whole traces, single steps ("step": the rest of a trace is then known, an easier task), or "none": every
    network is scored on what it learned from, which is no measure of an adversary, but may be what others report.
    """
    from veilstream.audit.lstm import train

    data = examples(traces, x, seen, lookback, start, current)
    _, unit = np.unique(data.trace if hold_out == "trace" else data.step, return_inverse=True)
    found, stopped = Scores.of(traces), 0
    n, everything = int(unit.max()) + 1, np.arange(unit.max() + 1)
    parts = [(everything,) * 3] * seeds if hold_out == "none" else split(n, seeds, seed)
    for s, (learn, stop, score) in enumerate(parts):
        train_on, stop_by = (data.only(np.isin(unit, part)).table(n_symbols) for part in (learn, stop))
        inner = within(progress, s / seeds, (s + 1) / seeds)
        net_s = train(train_on, stop_by, n_outputs, n_symbols, net, seed * seeds + s, inner)
        stopped += net_s.stopped
        test = data.only(np.isin(unit, score))
        distinct, row = np.unique(test.windows, axis=0, return_inverse=True)
        found.add(net_s.predict(distinct)[row.ravel()], test.x, test.trace)
    return replace(found.learned(name, lookback), stopped=stopped)


def chain_adversary(
    order: int,
    chain: MarkovChain,
    policy: Policy,
    traces: Traces,
    sequences: Sequence[Ints],
    mask: NDArray[np.bool_],
    seeds: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
) -> Learned:
    """The exact predictor whose chain, of this order, was fitted to the training traces alone (no early stopping)."""
    x, found = chain.symbols[traces.z], Scores.of(traces)
    usable = np.unique(traces.origin[mask.any(1)])
    for s, (learn, stop, score) in enumerate(split(len(usable), seeds, seed)):
        if progress:
            progress(s / seeds, "")
        known = [sequences[i] for i in usable[np.concatenate([learn, stop])]]
        own = MarkovChain.fit(known, chain.n_symbols, order)
        rows = np.isin(traces.origin, usable[score])
        belief = infer(own, policy, traces.only(usable[score]), view_of(own, chain), whole=False).predictor
        scored = mask[rows]
        found.add(belief[scored], x[rows][scored], np.repeat(traces.origin[rows], scored.sum(1)))
    return found.learned(f"chain of order {order}")


def view_of(own: MarkovChain, policy_chain: MarkovChain) -> Ints:
    """Which state of the policy's chain each state of another, of no lower order, is."""
    if own.order < policy_chain.order:
        raise InputError(f"an adversary of order {own.order} cannot follow a policy of order {policy_chain.order}")
    if policy_chain.histories is None:
        return own.symbols
    index = {h: i for i, h in enumerate(policy_chain.histories)}
    found = []
    for history in own.histories or [(x,) for x in range(len(own))]:
        context = history[: policy_chain.order]
        while context not in index:
            context = context[:-1]
        found.append(index[context])
    return np.array(found)
