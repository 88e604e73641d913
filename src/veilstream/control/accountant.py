"""How much has leaked so far: accountants, each a function of released data alone.

*exact*     L(b, a) at the service provider's exact belief, a the channel really used: the sum is the information its
            releases carry, for chains of every order, starts and gaps included
*capacity*  max over all priors of L(., a_s): an upper bound for every chain, used where the chain is not known, or only
            guessed
*potential* an adaptive policy's: what holds in spite of what its moves reveal (`charge`)
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from veilstream.control.controller import Controller
from veilstream.control.feedback import MOVE_BITS
from veilstream.control.policy import LEAST, Lookup, Memory, Policy
from veilstream.model.chain import MarkovChain
from veilstream.model.histories import TrueStates
from veilstream.model.information import Array, Index, dot
from veilstream.model.problem import capacity, leakage, output_law, posterior, posterior_of

CLOSE, LEAST_LAW = 1e-3, 1e-9  # of the capacity of one channel: bits above the best, and of every release in its law
KEPT = 1 << 25  # numbers of laws that are kept


@dataclass(frozen=True, eq=False)
class Streams:
    """The public state of n streams."""

    memory: Memory  # n x ...
    belief: Array  # n x ...: what the meter keeps; n x 0 if nothing
    total: Array  # n, bits so far
    step: Index  # n, the public number of the next step

    def __getitem__(self, which: Any) -> "Streams":
        return Streams(self.memory[which], self.belief[which], self.total[which], self.step[which])

    def put(self, which: Any, new: "Streams") -> None:
        """These streams are now at this state."""
        self.memory[which], self.belief[which] = new.memory, new.belief
        self.total[which], self.step[which] = new.total, new.step


class Accountant:
    """What is kept of the releases of many streams, and charged for each; as it is, nothing: no belief and no bits."""

    def start(self, step: Index) -> Array:
        """The beliefs about n streams that begin at these public steps, n x ...; n x 0 if it keeps none."""
        return np.empty((len(step), 0))

    def charge(self, s: Streams, a: Array | None) -> tuple[Array, Array | None]:
        """Bits that the next release will add, and the output law: n, n x |Y|. a: None where tables do instead."""
        return np.zeros(len(s.step)), None

    def used(self, belief: Array, a: Array | None) -> Array | None:
        """The channel from the true states that a release is really drawn from, where a is the policy's."""
        return a

    def observe(
        self, s: Streams, a: Array | None, y: Index, a_y: Array | None = None, p_y: Array | None = None
    ) -> Array:
        """The beliefs after the release y. a_y: its column a(y|.), where a is not known, and p_y: p(y), n x 1."""
        return s.belief

    def skip(self, s: Streams, k: int) -> tuple[Array, Array]:
        """Bits that k steps without a release add, and the beliefs after them."""
        return np.zeros(len(s.step)), s.belief

    def silent(self, s: Streams) -> tuple[Array, Array]:
        """Bits and beliefs of a step at which nothing was released, though a reading came."""
        return self.skip(s, 1)

    def move(self, s: Streams, to: Memory, since: Index) -> tuple[Array, Array]:
        """Bits that a public move to these memories adds, `since` steps after the last release, and the beliefs."""
        return np.full(len(s.step), MOVE_BITS), s.belief


@dataclass(frozen=True, eq=False)
class BeliefFilter(Accountant):
    """L(b, a) at the belief b' = m(.,y)/p(y) P of whoever knows the chain and sees the releases.

    For a chain of order m > 1 (`of`) the releaser must learn the history at the start and after every gap: k symbols
    after one it draws from the row of phi_k(z), not of z, so the channel from the true states is a(y|phi_k(z)). How
    long ago the gap was is public; it is kept beside the belief, in a last column.
    """

    chain: MarkovChain
    view: Index | None = None  # which state of the policy each state of the chain is; None: they are the same
    lookup: Lookup | Controller | None = None  # where rows and columns of channels can be looked up
    charges: bool = True  # False: for whoever reckons the bits of a release himself, and for adversaries
    after_gap: Index | None = None  # (m - 1) x |Z|: phi_1, ..., phi_{m-1}; None for order 1

    @classmethod
    def of(cls, chain: MarkovChain, policy: Policy, charges: bool = True) -> "BeliefFilter":
        """Of the releases of a mechanism made for this chain."""
        if chain.order > 1:
            return cls(chain, charges=charges, after_gap=TrueStates.of(chain).after_gap(chain))
        large = policy if isinstance(policy, Controller) and not charges else None
        return cls(chain, None, policy.lookup or large, charges)

    def law(self, belief: Array) -> Array:
        """b, of what is kept."""
        return belief if self.after_gap is None else belief[:, :-1]

    def _with(self, law: Array, before: Array | None = None) -> Array:
        """What is kept, from the law; before: what was, a symbol earlier."""
        if self.after_gap is None:
            return law
        known = np.zeros(len(law)) if before is None else np.minimum(before[:, -1] + 1, len(self.after_gap))
        return np.concatenate([law, known[:, None]], -1)

    def start(self, step: Index) -> Array:
        return self._with(self.chain.initial_at(step))

    def seen(self, a: Array | None) -> Array:
        """The channel from the states of the chain."""
        assert a is not None
        return a if self.view is None else a[..., self.view, :]

    def used(self, belief: Array, a: Array | None) -> Array | None:
        for k, phi in enumerate(() if self.after_gap is None else self.after_gap):
            if a is not None and (now := belief[:, -1].astype(int) == k).any():
                a = np.where(now[:, None, None], a[:, phi], a)
        return a

    def charge(self, s: Streams, a: Array | None) -> tuple[Array, Array | None]:
        b, free = self.law(s.belief), np.zeros(len(s.step))
        if not self.charges:
            return free, None if a is None else output_law(b, self.seen(a))
        if not isinstance(self.lookup, Lookup):
            return leakage(b, self.seen(a)), output_law(b, self.seen(a))
        p = self.lookup.output_law(b, s.memory) if a is None else output_law(b, self.seen(a))
        given = dot(b, self.lookup.noise.take(s.memory, 0))
        log_p = np.log2(p if self.lookup.positive else np.maximum(p, LEAST))
        return np.maximum(-dot(p, log_p) - given, 0), p  # I = H(Y) - H(Y|Z)

    def observe(
        self, s: Streams, a: Array | None, y: Index, a_y: Array | None = None, p_y: Array | None = None
    ) -> Array:
        b = self.law(s.belief)
        found = posterior(b, self.seen(a), y) if a_y is None else posterior_of(b, a_y, p_y)
        return self._with(self.chain.moved(found, s.step), s.belief)

    def skip(self, s: Streams, k: int) -> tuple[Array, Array]:
        return np.zeros(len(s.step)), self._with(self.chain.later(self.law(s.belief), k, s.step))

    def silent(self, s: Streams) -> tuple[Array, Array]:
        later = self.chain.later(self.law(s.belief), 1, s.step)
        return np.zeros(len(s.step)), self._with(later, s.belief)


@dataclass(frozen=True, eq=False)
class Capacity(Accountant):
    """The most that a release can tell, whatever the data is: C of the channel of each memory, when it is first met.

    By `universal_bound` the sum along a stream bounds what its releases tell, for every law of the data, starts and
    gaps included: for policies of which nobody can say that their chain is the person's.
    """

    policy: Policy
    known: "OrderedDict[int, tuple[Array, Array]]" = field(default_factory=OrderedDict, repr=False)

    def charge(self, s: Streams, a: Array | None) -> tuple[Array, Array]:
        assert a is not None
        if s.memory.ndim == 1 and s.memory.dtype.kind in "iu":
            found = [self._at(int(m), channel) for m, channel in zip(s.memory, a, strict=True)]
        else:
            found = [worst_case(channel) for channel in a]
        return np.array([bits for bits, _ in found]), np.stack([law for _, law in found])

    def _at(self, memory: int, a: Array) -> tuple[Array, Array]:
        if memory not in self.known:
            self.known[memory] = worst_case(a)
            while len(self.known) * self.policy.n_outputs > KEPT:
                self.known.popitem(last=False)
        return self.known[memory]


def worst_case(a: Array) -> tuple[Array, Array]:
    """C(a) of one channel, with a little of every release in its law so that nothing is called impossible."""
    return capacity(a, CLOSE, least=LEAST_LAW)
