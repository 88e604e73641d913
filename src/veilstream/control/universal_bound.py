"""Leakage that does not believe the chain.

**Any law.** Let y_t be drawn from a_t(.|z_t), z_t any function of the true past and a_t the channel really used, a
function of released data; let q(.|released past) be any law that is a function of released data. Then for every law of
X that does not react to Y, with p the true law of the next release given the past ones,

    I(X^n;Y^n) = E sum_t log2 a_t(y_t|z_t)/p(y_t|past) = E sum_t log2 a_t(y_t|z_t)/q(y_t|past) - E sum_t D(p||q)
              <= E sum_t log2 a_t(y_t|z_t)/q(y_t|past)

since D(p||q) >= 0. We take for q the output law of the fitted chain's filter: the chain is then no more than a guess of
what comes next, and a bad guess can only make the bound larger. Its mean over recorded streams that were not fitted
therefore estimates an upper bound on what releases tell of such streams, with no model in it. Under the chain it equals
start-up + rate.

**Any sequence.** Of a policy with memories s, let q_s be any law for each of them, V any numbers, and

    g = max over s, z of  D(a_s(.|z)||q_s) + sum_y a_s(y|z) V(next(s,y)) - V(s)

Summed along any sequence of true states the V cancel, so that by the inequality above no data whatever can make n
releases tell more than n g + span(V) bits, where a gap keeps the memory. With V = 0 and the best q_s this is the
largest of the channels' capacities, gap or not; V counts that a memory which tells much cannot always be come back to.
"""

from collections.abc import Sequence

import numpy as np

from veilstream.control.adaptive import Ladder
from veilstream.control.controller import Controller, controller_of
from veilstream.control.feedback import MOVE_BITS
from veilstream.control.policy import Policy
from veilstream.model.information import Array, Index, divergence
from veilstream.model.problem import capacity, output_law

MOST_ENTRIES = 4_000_000  # of a table whose worst case is looked for
ROUNDS, LEAST_ROUNDS, WORK = 300, 15, 40_000_000  # fewer rounds for larger tables: each of them gives a bound
ENOUGH = 1e-4  # relative: the bound falls by less than this in TEN rounds
TEN, ROUGH = 10, 1e-3


def worst_rate(policy: Policy) -> float | None:
    """Bits per step, released or missed, that no data whatever can exceed in the long run; None: too many memories."""
    if isinstance(policy, Ladder):  # the largest capacity on any rung, and what a move tells at every boundary
        parts = [rung.at_phase(phase) for rung in policy.policies for phase in range(rung.phases)]
        most = largest_capacity(parts)
        return None if most is None else most + MOVE_BITS / policy.feedback.every
    found = controller_of(policy)
    if found is None:
        return None
    if found.phases > 1:  # what a gap does to the phase is public, and may be anything: V = 0
        return largest_capacity([found.at_phase(phase) for phase in range(found.phases)])
    a = found.table(MOST_ENTRIES)
    return None if a is None else worst_of(a, found.automaton.table)[0]


def largest_capacity(parts: Sequence[Controller]) -> float | None:
    """Of all channels of these; a part that is soon known to have less is not looked at further."""
    most = 0.0
    for part in parts:
        a = part.table(MOST_ENTRIES)
        if a is None:
            return None
        if capacity(a, ROUGH, LEAST_ROUNDS)[0].max() > most:
            most = max(most, float(capacity(a, ROUGH, ROUNDS)[0].max()))
    return most


def worst_of(a: Array, to: Index) -> tuple[float, Array]:
    """g and V of the docstring, for channels a (S x |Z| x |Y|) and moves of the memory (S x |Y|).

    Arimoto's step for q and one step of value iteration for V in turn; every round gives a bound, the least is kept.
    """
    b, V = np.full(a.shape[:-1], 1 / a.shape[1]), np.zeros(len(a))
    best, at, found = np.inf, V, list[float]()
    for _ in range(int(np.clip(WORK // a.size, LEAST_ROUNDS, ROUNDS))):
        D = divergence(a, output_law(b, a)[:, None, :]) + (a * V[to][:, None, :]).sum(-1)  # S x |Z|
        top = D.max(-1)
        g = float((top - V).max())
        if g < best:
            best, at = g, V
        found.append(best)
        if len(found) > TEN and found[-TEN] - best <= ENOUGH * best:
            break
        b = b * np.exp2(D - top[:, None])
        b /= b.sum(-1, keepdims=True)
        V = (V + top - top.min() + V.min()) / 2  # half a step, or memories that take turns would never settle
    return max(best, 0.0), at
