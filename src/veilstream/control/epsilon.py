"""Local differential privacy of a finite policy, beside its bits: epsilon in nats, as the field states it.

    one step     e_0 = max over s, y, z, z' of log a_s(y|z) / a_s(y|z')         infinite where a limit forbids
    w steps      at most w e_0, whatever the law of the data
    the chain    what one state at one step can change, since its neighbours in time tell of it as well

The last is the temporal privacy leakage of Cao, Yoshikawa, Xiao and Xiong (ICDE 2017), with P^ the chain run backwards:

    backward(t) = L_P^(backward(t-1)) + e_0      forward(t) = L_P(forward(t+1)) + e_0      both = their sum - e_0
    L_P(e) = max over rows q, d of P and 1 <= x <= 2.718^e of log (q x) / (d x)

a linear-fractional programme: x is as large as may be where q/d is largest and 1 elsewhere (`Carried`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from veilstream.control.controller import Controller, controller_of
from veilstream.control.policy import Policy
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array
from veilstream.model.interval import finite

CELLS = 4_000_000  # of pairs of rows, sorted at once
LARGEST = 500.0  # nats: beyond it e^e is no number worth having
FINE = 1.02  # steps of the search for what many releases come to


@dataclass(frozen=True)
class Epsilon:
    """In nats; infinite where a release rules a state out."""

    step: float  # one release, any law
    event: float  # one state of a long stream, under the chain: the limit of many steps

    def window(self, steps: int) -> float:
        """What so many releases together can change, whatever the law."""
        return self.step * steps

    def to_json(self) -> dict[str, Any]:
        return {"step": finite(self.step), "event": finite(self.event)}

    @classmethod
    def of(cls, chain: MarkovChain, policy: Policy) -> Epsilon | None:
        """None where the policy is no table."""
        found = controller_of(policy)
        if found is None:
            return None
        step = step_epsilon(found)
        return cls(step, event_epsilon(chain, step))


def step_epsilon(policy: Controller) -> float:
    """max over memories, releases and pairs of states of log a_s(y|z) / a_s(y|z')."""
    worst = 0.0
    for memory in range(policy.n_memories):
        a = policy.channel(np.asarray(memory))
        a = a[:, a.max(0) > 0]  # what is never released tells nothing
        if not (a > 0).all():
            return float(np.inf)
        worst = max(worst, float((np.log(a.max(0)) - np.log(a.min(0))).max()))
    return worst


class Carried:
    """L_P(e): how much of a leakage of e nats about the next state is one about this state.

    The best x is e^e for the first few states in the order of q/d, whatever e is: so the sums of the q and the d there
    are made once, and of all of them only those that no other beats in both.
    """

    def __init__(self, P: Array) -> None:
        corners, rows = [np.zeros((1, 2))], max(1, CELLS // P.size)
        for at in range(0, len(P), rows):
            d, q = np.broadcast_arrays(P[None], P[at : at + rows, None])
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                order = np.argsort(-np.where(q > 0, q / d, 0.0), axis=-1)
            sums = [np.cumsum(np.take_along_axis(x, order, -1), -1).ravel() for x in (d, q)]
            corners.append(_unbeaten(np.stack(sums, 1)))
        self.d, self.q = _unbeaten(np.concatenate(corners)).T

    def __call__(self, epsilon: float) -> float:
        gain = np.expm1(epsilon)
        return float(np.log((self.q * gain + 1) / (self.d * gain + 1)).max())

    def settled(self, epsilon: float) -> float:
        """The least e with e = L_P(e) + epsilon: what many steps come to; infinite where they grow for ever."""
        from scipy.optimize import brentq

        def short(e: float) -> float:
            return self(e) + epsilon - e

        low = epsilon
        while low < LARGEST:
            high = min(low * FINE, LARGEST)
            if short(high) <= 0:
                return float(brentq(short, low, high)) if short(low) > 0 else low
            low = high
        return float(np.inf)


def _unbeaten(points: Array) -> Array:
    """Those of the points (d, q) that have a larger q than all with a smaller d."""
    points = points[np.lexsort((-points[:, 1], points[:, 0]))]
    before = np.maximum.accumulate(np.append(-1.0, points[:-1, 1]))
    return np.asarray(points[points[:, 1] > before])


def backwards(chain: MarkovChain) -> Array:
    """P^(z,z') = P(Z_t = z' | Z_t+1 = z) in the long run."""
    pi = chain.stationary
    seen = pi[:, None] * chain.transition
    total = np.maximum(seen.sum(0), 1e-300)
    return np.asarray((seen / total).T)


def temporal(chain: MarkovChain, epsilon: float, steps: int) -> Array:
    """Temporal privacy leakage at each of so many steps, every release being epsilon-private by itself."""
    behind, ahead = [epsilon], [epsilon]
    back, on = Carried(backwards(chain)), Carried(chain.transition)
    for _ in range(steps - 1):
        behind.append(back(behind[-1]) + epsilon)
        ahead.append(on(ahead[-1]) + epsilon)
    return np.asarray(np.add(behind, ahead[::-1]) - epsilon)


def event_epsilon(chain: MarkovChain, epsilon: float) -> float:
    """The temporal privacy leakage in the middle of a stream without end; infinite where it grows for ever.

    With a public clock: of the chain that does not look at it, as a stream without its hours is judged.
    """
    if not 0 < epsilon < LARGEST:
        return epsilon
    return sum(Carried(P).settled(epsilon) for P in (chain.transition, backwards(chain))) - epsilon
