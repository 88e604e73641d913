"""Adversaries who know chain and policy (the paper's threat model), exactly, for any policy and many streams at once.

The channel at step t is a function of y^{t-1}, so the policy's own loop gives it to whoever sees the releases:

    predictor   P(z_t | y^{t-1}) = b_t                         b_1 the chain's initial law
    filter      P(z_t | y^t)     = b_t a_t(y_t|.) / p(y_t)     then b_{t+1} = filter P
    smoother    P(z_t | y^n)     = filter_t(z) sum_z' P(z,z') smoother_{t+1}(z') / b_{t+1}(z')
    Viterbi     argmax P(z^n | y^n), by max-product in logarithms

A release the adversary's model gives probability zero raises ImpossibleObservation: there is no belief to go on with.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from veilstream.audit.traces import Ints, Traces
from veilstream.control.accountant import BeliefFilter
from veilstream.control.controller import Controller
from veilstream.control.loop import Seen, replay
from veilstream.control.mechanism import Mechanism
from veilstream.control.policy import Policy
from veilstream.data.card import by_symbol
from veilstream.errors import ImpossibleObservation
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array

CELLS = 20_000_000  # numbers held at once


@dataclass(frozen=True, eq=False)
class Beliefs:
    """The adversary's beliefs about the true symbols; entries beyond a stream's end mean nothing."""

    predictor: Array  # streams x steps x symbols
    filter: Array
    smoother: Array | None
    path: Ints | None  # streams x steps, symbols of the likeliest path
    density: Array  # streams x steps, log2 a(y_t|z_t) / p(y_t): its mean is the leakage. It identifies z: never shown


def infer(chain: MarkovChain, policy: Policy, traces: Traces, view: Ints | None = None, whole: bool = True) -> Beliefs:
    """Run the adversary along the releases.

    view: which state of the policy each state of the adversary's chain is (they are the same unless told).
    whole: also smoother and path, which look at the whole trace.
    """
    size = max(1, CELLS // (len(chain) * max(len(chain), policy.n_outputs, traces.y.shape[1])))
    parts = [_infer(chain, policy, traces.rows(at, at + size), view, whole) for at in range(0, len(traces.y), size)]
    joined: list[Any] = [None if f[0] is None else np.concatenate(f) for f in zip(*parts, strict=True)]
    return Beliefs(*joined)


def _infer(chain: MarkovChain, policy: Policy, traces: Traces, view: Ints | None, whole: bool) -> tuple[Any, ...]:
    prior = np.zeros((*traces.y.shape, len(chain)))
    likelihood = np.zeros_like(prior)  # a_t(y_t | z) of the adversary's states
    true = np.ones(traces.y.shape)  # a_t(y_t | z_t)
    # a column of each channel is enough where the policy can give it: the whole is |Y| times as much work
    parts = policy if view is None and isinstance(policy, Controller) else None
    follower = BeliefFilter(chain, view, parts, charges=False)
    mechanism = Mechanism(policy, meter=follower, sighted=None if parts is None else True)

    def observe(seen: Seen) -> None:
        column = mechanism.column(seen.before, seen.view, seen.y)
        prior[seen.rows, seen.t] = seen.before.belief
        likelihood[seen.rows, seen.t] = column if view is None else column[:, view]
        true[seen.rows, seen.t] = column[np.arange(len(column)), traces.z[seen.rows, seen.t]]

    replay(mechanism, traces.z, observe, y=traces.y, first=traces.first, lengths=traces.lengths)
    post = prior * likelihood
    p_y = post.sum(-1)  # of the release seen; 0 beyond a stream's end
    post /= np.where(p_y > 0, p_y, 1)[..., None]
    density = np.log2(true / np.where(p_y > 0, p_y, 1))
    smooth = path = None
    if whole:
        smooth = by_symbol(chain, _smooth(chain, traces, prior, post))
        path = chain.symbols[_viterbi(chain, traces, likelihood)]
    return by_symbol(chain, prior), by_symbol(chain, post), smooth, path, density


def _smooth(chain: MarkovChain, traces: Traces, prior: Array, post: Array) -> Array:
    smooth = post.copy()
    for t in range(traces.y.shape[1] - 2, -1, -1):
        n = traces.active(t + 1)
        later, b = smooth[:n, t + 1], prior[:n, t + 1]
        ratio = np.divide(later, b, out=np.zeros_like(b), where=b > 0)
        phase = chain.phase(traces.first[:n] + t)
        for i in np.unique(phase):
            here = np.flatnonzero(phase == i)
            smooth[here, t] = post[here, t] * (ratio[here] @ chain.at(i).transition.T)
    return np.asarray(smooth / np.maximum(smooth.sum(-1, keepdims=True), 1e-300))


def _viterbi(chain: MarkovChain, traces: Traces, likelihood: Array) -> Ints:
    with np.errstate(divide="ignore"):
        log_a, log_b = np.log2(likelihood), np.log2(chain.initial_at(traces.first))
        log_P = np.log2([chain.at(phase).transition.T for phase in range(chain.phases)])  # F x z' x z
    streams, steps = traces.y.shape
    came_from = np.zeros(likelihood.shape, np.int32)
    score = log_b + log_a[:, 0]  # streams x Z; a stream that has ended keeps its last
    for t in range(1, steps):
        n = traces.active(t)
        moves = log_P[0] if chain.phases == 1 else log_P[chain.phase(traces.first[:n] + t - 1)]
        reach = score[:n, None] + moves  # n x z' x z: the maximum is along the axis that lies together in memory
        best = reach.argmax(-1)
        came_from[:n, t] = best
        score[:n] = np.take_along_axis(reach, best[..., None], -1)[..., 0] + log_a[:n, t]
    if not np.isfinite(score.max(-1)).all():
        raise ImpossibleObservation("no path of the chain explains the releases seen")
    path = np.zeros((streams, steps), np.int64)
    path[np.arange(streams), traces.lengths - 1] = score.argmax(-1)
    for t in range(steps - 2, -1, -1):
        n = traces.active(t + 1)
        path[:n, t] = came_from[np.arange(n), t + 1, path[:n, t + 1]]
    return path
