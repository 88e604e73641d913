"""The meter that believes nothing: the most that a release can tell, whatever the data is.

    C(a) = max over all laws b of the true state of L(b, a) <= max_z D(a_z||q)          for any law q of the release

By `any_law` the sum of these along a stream bounds what its releases tell, for every law of the data, starts and gaps
included: a is a function of released data alone, and so is q. For policies of which nobody can say that their chain is
the person's. q is found by Arimoto's steps, and whatever they have come to is a bound.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from veilstream.control.controller import Controller
from veilstream.control.meter import Streams, Unmetered
from veilstream.control.policy import Policy
from veilstream.model.information import Array, entropy

ROUNDS, CLOSE = 2000, 1e-3  # bits
LEAST = 1e-9  # of every release, in q: so that nothing is called impossible
KEPT = 1 << 25  # numbers of laws that are kept


def capacity_of(a: Array) -> tuple[float, Array]:
    """C(a) from above, and the output law q that shows it; a is |Z| x |Y|."""
    own = -entropy(a)
    b, q, bound = np.full(len(a), 1 / len(a)), np.full(a.shape[1], 1 / a.shape[1]), np.inf
    for _ in range(ROUNDS):
        p = (1 - LEAST) * (b @ a) + LEAST / a.shape[1]
        D = own - a @ np.log2(p)
        top = float(D.max())
        if top < bound:
            bound, q = top, p
        if top - float(b @ D) < CLOSE:
            break
        b = b * np.exp2(D - top)
        b /= b.sum()
    return max(bound, 0.0), q / q.sum()


@dataclass(frozen=True, eq=False)
class CapacityMeter(Unmetered):
    """C of the channel of each memory, found when it is first met."""

    policy: Policy
    known: "OrderedDict[int, tuple[float, Array]]" = field(default_factory=OrderedDict, repr=False)

    def read(self, s: Streams, a: Array | None) -> tuple[Array, Array]:
        assert a is not None
        memory = s.memory
        numbered = memory.ndim == 1 and memory.dtype.kind in "iu"
        found = [self._at(int(m), channel) for m, channel in zip(memory, a, strict=True)] if numbered else []
        found = found or [capacity_of(channel) for channel in a]
        return np.array([bits for bits, _ in found]), np.stack([law for _, law in found])

    def _at(self, memory: int, a: Array) -> tuple[float, Array]:
        if memory not in self.known:
            self.known[memory] = capacity_of(a)
            while len(self.known) * self.policy.n_outputs > KEPT:
                self.known.popitem(last=False)
        return self.known[memory]


def most_bits(policy: Policy) -> float:
    """Bits per step that no data whatever can exceed: over all memories where they are few enough to look at."""
    policy, Y = policy.resting, policy.n_outputs
    if isinstance(policy, Controller) and policy.places > 1:
        return max(most_bits(policy.at_phase(phase)) for phase in range(policy.phases))
    n = policy.n_memories
    if n is None or n * policy.n_states * Y > KEPT * 4:
        return float(np.log2(Y))
    return min(max(capacity_of(policy.channel(np.array([m]))[0])[0] for m in range(n)), float(np.log2(Y)))
