"""Learners on held-out traces: the LSTM, and chains of any order; and how much better they do than the model says.

Traces are split whole. Seed s holds out part s of the traces, takes a fifth of the rest for early stopping and learns
from what is left, so that over all seeds every trace is held out once. Intervals are bootstraps over traces.

    model gap = cross-entropy of the chain's own Bayes predictor - cross-entropy of the learner,   same steps

A gap above 0 means that real traces are easier to guess than the chain believes: the promise was about a model.

Windows of the last m releases: examples of them for a learner, and the best anyone can do who sees no more.

For a window policy the joint law of (last m releases, z_t) follows from the stationary law of its own window by m - w
more steps that forget nothing:

    J(s.y, z') = sum_z J(s, z) a(y | z, last w of s) P(z, z')

The least cross-entropy with look-back m is then H(X_t | last m releases), and that of any other predictor q is
sum J log 1/q: an LSTM can approach the first and never pass it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilstream.audit.bayes import infer
from veilstream.audit.measures import Learned, surprise
from veilstream.audit.traces import Ints, Traces
from veilstream.control.controller import controller_of
from veilstream.control.policy import Policy
from veilstream.control.stationary import LongRun
from veilstream.data.card import by_symbol
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.histories import TrueStates
from veilstream.model.information import Array, Index, entropy
from veilstream.model.interval import Interval, ratio_interval
from veilstream.shown import Progress, within

if TYPE_CHECKING:
    from veilstream.audit.lstm import Lstm

MAX_CELLS = 1 << 24  # (window, state) pairs held at once


@dataclass(frozen=True, eq=False)
class Examples:
    """Every scored step of some traces, copies included."""

    windows: Ints  # N x m
    x: Ints  # N
    trace: Ints  # N
    step: Ints  # N: a number for each step of each trace; the same in all copies

    def only(self, keep: NDArray[np.bool_]) -> "Examples":
        return Examples(self.windows[keep], self.x[keep], self.trace[keep], self.step[keep])

    def table(self, n_symbols: int) -> tuple[Ints, Array]:
        """Distinct windows, oldest release first, and N(window, x): how often each symbol was the truth after it."""
        distinct, row = np.unique(self.windows, axis=0, return_inverse=True)
        counts = np.bincount(row.ravel() * n_symbols + self.x, minlength=len(distinct) * n_symbols)
        return distinct, counts.reshape(-1, n_symbols).astype(float)


def examples(traces: Traces, x: Ints, seen: Ints, lookback: int, start: int, current: bool = False) -> Examples:
    """Windows of `seen` (releases, or the truth itself) before each step t >= start, with the truth x_t.

    current: the window ends with the release of step t itself, else with that of step t - 1.
    """
    if lookback < 1:
        raise InputError(f"look-back must be at least 1, found {lookback}")
    first = lookback - current
    if start < first:
        raise InputError(f"scoring from step {start} leaves no {lookback} releases to look back on")
    longest = int(traces.lengths.max())
    if longest <= start:
        raise InputError(
            f"every trace is too short to look back {lookback} steps: the longest has {longest}, "
            f"at least {start + 1} are needed"
        )
    t = np.arange(start, x.shape[1])
    windows = np.stack([seen[:, t - lookback + k + current] for k in range(lookback)], -1)  # streams x steps x m
    mask = traces.mask[:, t]
    step = traces.origin[:, None] * x.shape[1] + t
    return Examples(windows[mask], x[:, t][mask], np.repeat(traces.origin, mask.sum(1)), step[mask])


def window_law(chain: MarkovChain, policy: Policy, lookback: int, current: bool = False) -> Array | None:
    """P(last `lookback` releases, x_t), |Y|^m x symbols, oldest release first in base |Y|; None if too large to list,
    or where a public clock says more than releases do.

    current: the window ends with y_t, the release of the very step that is guessed; else with y_{t-1}.
    """
    found, Y = controller_of(policy), policy.n_outputs
    if found is None or chain.phases > 1 or found.places > 1:
        return None
    S = found.n_memories
    if S * Y**lookback * len(chain) > MAX_CELLS:
        return None
    [law] = LongRun(chain, found).laws  # of (own memory, state); then of (own memory and releases since, state)
    memory, releases = np.arange(S), np.zeros(S, dtype=np.int64)
    for k in range(lookback):
        joint = law[:, None] * found.channel(memory).swapaxes(1, 2)  # with the release that follows
        law = (joint if current and k == lookback - 1 else joint @ chain.transition).reshape(-1, len(chain))
        y = np.tile(np.arange(Y), len(memory))
        memory, releases = found.update(np.repeat(memory, Y), y), np.repeat(releases, Y) * Y + y
        alike, which = np.unique(memory * Y**lookback + releases, return_inverse=True)
        memory, releases = np.divmod(alike, Y**lookback)
        law = summed(law, which, len(alike))
    return by_symbol(chain, summed(law, releases, Y**lookback))


def summed(law: Array, groups: Index, n: int) -> Array:
    """Rows added up by group, n of them."""
    found = np.zeros((n, law.shape[1]))
    np.add.at(found, groups, law)
    return found


def least_cross_entropy(law: Array) -> float:
    """H(X_t | window) in bits."""
    return float(entropy(law.ravel()) - entropy(law.sum(1)))


# --- learners --------------------------------------------------------------------------------------------


HELD_FOR_STOPPING = 0.2
MIN_TRACES = 2  # per seed


def learned_of(
    name: str, traces: Traces, parts: Iterable[tuple[Array, Ints, Ints]], lookback: int | None = None
) -> Learned:
    """How a learner did on what each of its seeds held out; parts: for each P(x | what is seen), steps x symbols, the
    truth, and whose step it is."""
    loss, count = np.zeros((2, traces.n_traces))
    right, per_seed = 0, list[float]()
    for law, x, trace in parts:
        bits = surprise(law, x)
        loss += np.bincount(trace, bits, len(loss))
        count += np.bincount(trace, minlength=len(count))
        right += int((law.argmax(1) == x).sum())
        per_seed.append(float(bits.mean()))
    found = ratio_interval(loss, count)
    return Learned(name, lookback, found, tuple(per_seed), right / float(count.sum()), loss=loss, count=count)


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
    found, stopped = [], 0
    n, everything = int(unit.max()) + 1, np.arange(unit.max() + 1)
    parts = [(everything,) * 3] * seeds if hold_out == "none" else split(n, seeds, seed)
    for s, (learn, stop, score) in enumerate(parts):
        train_on, stop_by = (data.only(np.isin(unit, part)).table(n_symbols) for part in (learn, stop))
        inner = within(progress, s / seeds, (s + 1) / seeds)
        net_s = train(train_on, stop_by, n_outputs, n_symbols, net, seed * seeds + s, inner)
        stopped += net_s.stopped
        test = data.only(np.isin(unit, score))
        distinct, row = np.unique(test.windows, axis=0, return_inverse=True)
        found.append((net_s.predict(distinct)[row.ravel()], test.x, test.trace))
    return replace(learned_of(name, traces, found, lookback), stopped=stopped)


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
    x, found = chain.symbols[traces.z], []
    usable = np.unique(traces.origin[mask.any(1)])
    for s, (learn, stop, score) in enumerate(split(len(usable), seeds, seed)):
        if progress:
            progress(s / seeds, "")
        known = [sequences[i] for i in usable[np.concatenate([learn, stop])]]
        own = MarkovChain.fit(known, chain.n_symbols, order)
        rows = np.isin(traces.origin, usable[score])
        belief = infer(own, policy, traces.only(usable[score]), view_of(own, chain), whole=False).predictor
        scored = mask[rows]
        found.append((belief[scored], x[rows][scored], np.repeat(traces.origin[rows], scored.sum(1))))
    return learned_of(f"chain of order {order}", traces, found)


def view_of(own: MarkovChain, policy_chain: MarkovChain) -> Ints:
    """Which state of the policy's chain each state of another, of no lower order, is."""
    if own.order < policy_chain.order:
        raise InputError(f"an adversary of order {own.order} cannot follow a policy of order {policy_chain.order}")
    states, histories = TrueStates.of(policy_chain), own.histories or [(x,) for x in range(len(own))]
    return np.array([states.along(np.array(history[::-1]))[-1] for history in histories])
