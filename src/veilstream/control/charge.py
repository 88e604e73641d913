"""What a ladder leaks, under the chain and in spite of what its moves reveal: the public meter under feedback.

Until its first move a ladder is an ordinary policy, and L(b,a) at the service provider's belief b is exact. A move
looks at the private excess, so after it she knows more than b. (Nine states that never change, P(0) = 1/2; the upper
rung always shows 0, the lower one the truth; down if x != 0: 2.5 bits leak, where the filter would charge 2.25 with the
bit of the move.) Each of these charges holds whatever moves have revealed, at every public moment, for ceilings too:

*filter*     What she believes, b~, is within a doubt d of b in Hilbert's projective metric: b~ <= 2^d b, and a step is
             charged 2^d L(b,a). Bayes' rule keeps that distance and P never raises it; k steps after the last release
             it is at most Delta(P^k), the largest distance of two rows, whatever was revealed before. So a move after a
             night without releases costs its own log2(5) bits and a little doubt.
*potential*  With q_i, f_i, h_i and T_i of rung i as in `potential`, g_i = max over (s,z) of f + T h - h,

                 E sum_t f  <=  sum_t g_{i_t} + sum over changes i -> j of max (h_j - h_i) + E_b h_i - min h,

             because z_t+1 is drawn from P(z_t, .) whatever the past has revealed. The last two terms are paid on
             entering, log2(5) bits at every move; a gap of k steps adds max (P^k h_i - h_i).
*truth*      Releases and moves reveal no more than the readings do. Entering, before any potential, pays for all that
             they have been spared so far; then a step costs what the true state would, and moves nothing.

Outside the filter b moves by P alone. Which charge is in force depends on steps, rungs and these numbers, all public. A
move leads to the filter where the doubt is small, else to the potential where staying, which a move may turn out to be,
can be paid from what has been saved so far (over what the truth would have been charged), else to the truth. On the
potential only the bottom rung is gone to whatever it costs: the limit rests on that; other ways are open where they can
be paid. A gap that leaves little doubt leads back to the filter.

For the potential of rung i (`prove`), f_i(s,z) = D( a_i,s(.|z) || q_i(.|s) ) and f_i + T_i h_i - h_i = g_i, nearly: q_i
is the output model of rung i in the long run, T_i the law of its next (memory, state), g_i its rate. Nothing has to be
converged for the charge to hold. The free constants of the h_i make every change to the first rung free: who leaves it
pays for both ways.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilstream.control.accountant import Accountant, Streams
from veilstream.control.controller import Controller
from veilstream.control.feedback import MOVE_BITS
from veilstream.control.policy import Memory
from veilstream.control.stationary import LongRun, Step
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, Index, divergence, dot, entropy, normalised
from veilstream.model.problem import leakage, output_law, posterior

ACCURACY, RESTART = 1e-10, 100  # of the potential, relative; directions kept while it is solved for
ROUNDS, SETTLED = 100, 1e-7  # of a public clock, and the change of the potential in one that counts as none
LEAST_LAW = 1e-9  # of what is shown at all, in an output model: keeps f finite


class Proof(NamedTuple):
    """What the potential's charge is made of; anybody can check it (`Charge` does), however it was found."""

    potential: Array  # R x M x |Z|: h_i, bits; a memory of M is (phase, s)
    law: Array  # R x M x |Y|: q_i


class Rung(NamedTuple):
    """One policy of a ladder, phase by phase."""

    table: Array  # phases x S x |Z| x |Y|
    to: Index  # S x |Y|: next(s,y)
    chain: MarkovChain

    @classmethod
    def of(cls, policy: Controller, chain: MarkovChain) -> "Rung":
        if policy.phases != chain.phases:
            raise InputError("a ladder around a clock needs policies that look at it")
        tables = [Step(chain.at(phase), policy, phase).table() for phase in range(chain.phases)]
        return cls(np.stack(tables), policy.automaton.table, chain)

    def loss(self, q: Array) -> Array:
        """f(s,z) = D( a_s(.|z) || q(.|s) ) at every phase."""
        return divergence(self.table, q[:, :, None, :])

    def ahead(self, h: Array, phase: int = 0) -> Array:
        """T h from this phase: what is expected of h, S x |Z|, at the next (memory, state)."""
        follow = (h @ self.chain.at(phase).transition.T)[self.to]
        return np.asarray(np.einsum("szy,syz->sz", self.table[phase], follow))


def prove(rungs: Sequence[Controller], first: int, chain: MarkovChain) -> Proof:
    """An output model and a potential for every rung; first: the one a stream starts from."""
    if chain.order > 1:
        raise InputError("a ladder is for chains of order 1")
    laws, potentials = [], []
    for policy in rungs:
        rung = Rung.of(policy, chain)
        mu = long_run_law(policy, chain)
        q = output_model(rung.table, mu)
        laws.append(q.reshape(-1, policy.n_outputs))
        potentials.append(relative_value(rung.loss(q), rung, mu).reshape(-1, len(chain)))
    return Proof(anchored(np.array(potentials), first), np.array(laws))


def long_run_law(policy: Controller, chain: MarkovChain) -> Array:
    """mu(s,z) at every phase, phases x S x |Z|, each summing to its share of the round."""
    laws = LongRun(chain, policy).laws
    mu = np.zeros((chain.phases, *laws[0].shape))
    for phase, law in zip(chain.around.tolist(), laws, strict=True):
        mu[phase] += law / len(laws)
    return mu


def output_model(table: Array, mu: Array) -> Array:
    """q(y|s) of the long run, with a little of everything that s may show."""
    shown = (mu[..., None] * table).sum(-2)
    seen = shown.sum(-1, keepdims=True)
    r = np.where(seen > 0, shown / np.where(seen > 0, seen, 1), table.mean(-2))
    return normalised(r + LEAST_LAW * (table.max(-2) > 0))


def relative_value(f: Array, rung: Rung, mu: Array) -> Array:
    """h with f + T h - h = g, g = sum mu f: solved for, or around the clock by going back through its rounds."""
    g = float((mu * f).sum())
    if rung.chain.phases == 1:
        return without_clock(f[0] - g, rung, mu[0])[None]
    h, around = np.zeros_like(f), rung.chain.around.tolist()
    for _ in range(ROUNDS):
        before = h.copy()
        for phase, after in zip(reversed(around), [around[0], *around[:0:-1]], strict=True):
            h[phase] = f[phase] + rung.ahead(h[after], phase) - g
        h -= h.mean()
        if np.abs(h - before).max() < SETTLED:
            break
    return h


def without_clock(excess: Array, rung: Rung, mu: Array) -> Array:
    """h with h - T h = excess, and mean 0 under mu."""
    from scipy.sparse.linalg import LinearOperator, gmres

    flat, n = mu.ravel(), excess.size

    def left(v: Array) -> Array:
        return v - rung.ahead(v.reshape(excess.shape)).ravel() + flat @ v

    h, _ = gmres(LinearOperator((n, n), left), excess.ravel(), rtol=ACCURACY, restart=min(n, RESTART), maxiter=20)
    return np.asarray(h.reshape(excess.shape))


def anchored(h: Array, first: int) -> Array:
    """The potentials with constants that make every change to the first rung free, and none negative."""
    return np.asarray(h + (h[first] - h).max((1, 2), keepdims=True))


MOST_DOUBT = 0.5  # bits: steps cost at most 2^0.5 times what the filter says, or another charge is taken
NO_DOUBT = 0.05  # bits: so little that a stream that has saved nothing goes by the filter all the same
KEPT = 4096  # gaps and pairs of phases whose bits are kept
FILTER, POTENTIAL, TRUTH = 0.0, 1.0, 2.0


class MeterState(NamedTuple):
    """What the meter knows of n streams, in one array (`packed`)."""

    prior: Array  # n x |Z|: b, of the next state
    last: Array  # n x |Z|: the law of the state at the last release, after it
    age: Array  # n: steps since then; 0 before the first release
    doubt: Array  # n: d
    charge: Array  # n: FILTER, POTENTIAL or TRUTH
    truth: Array  # n: bits that the true states would have been charged so far
    sound: Array  # n: 1 while that is no estimate, and bounds what they reveal: until the potential is first used

    @classmethod
    def of(cls, packed: Array) -> "MeterState":
        Z = packed.shape[1] // 2 - 2
        return cls(packed[:, :Z], packed[:, Z : 2 * Z], *packed[:, 2 * Z :].T)

    def packed(self) -> Array:
        return np.concatenate([self.prior, self.last, np.stack(self[2:], -1)], -1)

    def where(self, which: NDArray[np.bool_], **new: Array | float) -> "MeterState":
        """With these numbers at these streams."""
        return self._replace(**{k: np.where(which, v, getattr(self, k)) for k, v in new.items()})


@dataclass(frozen=True, eq=False)
class Charge(Accountant):
    """Bits by the filter, the potential or the truth."""

    policies: Sequence[Controller]  # the rungs of a ladder, on one memory
    chain: MarkovChain
    proof: Proof

    @property
    def shared(self) -> int:
        """M: memories of every rung; those of the ladder are  rung x M + that of the controller."""
        return self.policies[0].n_memories

    @cached_property
    def h(self) -> Array:
        """R x phases x S x |Z|."""
        return self.proof.potential.reshape(len(self.policies), self.chain.phases, -1, len(self.chain))

    # --- a step ----------------------------------------------------------------------------------------

    def start(self, step: Index) -> Array:
        b, none = self.chain.initial_at(step), np.zeros(len(step))
        return MeterState(b, b, none, none, none + FILTER, none, none + 1).packed()

    def charge(self, s: Streams, a: Array | None) -> tuple[Array, Array]:
        assert a is not None
        now = MeterState.of(s.belief)
        by_filter = np.exp2(now.doubt) * leakage(now.prior, a)
        as_truth = np.maximum(now.truth + self._true_bits(now, s.step) - s.total, 0)
        bits = np.choose(now.charge.astype(int), [by_filter, self._rates_at(s), as_truth])
        return bits, output_law(now.prior, a)

    def observe(
        self, s: Streams, a: Array | None, y: Index, a_y: Array | None = None, p_y: Array | None = None
    ) -> Array:
        assert a is not None
        now = MeterState.of(s.belief)
        seen = np.where(now.charge[:, None] == FILTER, posterior(now.prior, a, y), now.prior)
        prior, truth = self.chain.moved(seen, s.step), now.truth + self._true_bits(now, s.step)
        return now._replace(prior=prior, last=seen, age=np.ones_like(truth), truth=truth).packed()

    def _true_bits(self, now: MeterState, step: Index) -> Array:
        """What the true state at this step would be charged: its entropy, given the one at the last release."""
        bits = entropy(now.prior)  # before the first release
        for k in np.unique(now.age[now.age > 0]).astype(int).tolist():
            here, last = now.age == k, step[now.age == k] - k
            each = self._one_step[self.chain.phase(last)] if k == 1 else self._after(k, last).entropies
            bits[here] = dot(now.last[here], each)
        return np.asarray(np.exp2(now.doubt) * bits)

    def _rates_at(self, s: Streams) -> Array:
        rung, phase, after = s.memory // self.shared, self.chain.phase(s.step), self.chain.phase(s.step + 1)
        bits = np.empty(len(rung))
        for pair in {*zip(phase.tolist(), after.tolist(), strict=True)}:
            here = (phase == pair[0]) & (after == pair[1])
            bits[here] = self._rate(*pair)[rung[here]]
        return bits

    @cached_property
    def _rate(self) -> Callable[[int, int], Array]:
        parts = [Rung.of(p, self.chain) for p in self.policies]
        laws = self.proof.law.reshape(len(parts), self.chain.phases, -1, self.policies[0].n_outputs)
        losses = [rung.loss(q) for rung, q in zip(parts, laws, strict=True)]

        def rates(phase: int, after: int) -> Array:
            steps = zip(parts, losses, self.h, strict=True)
            excess = [(f[phase] + rung.ahead(h[after], phase) - h[phase]).max() for rung, f, h in steps]
            return np.maximum(excess, 0.0)

        return lru_cache(KEPT)(rates)

    @cached_property
    def rates(self) -> Array:
        """g_i: bits per step on each rung, the mean over a round of the clock."""
        around = self.chain.around.tolist()
        pairs = zip(around, [*around[1:], around[0]], strict=True)
        return np.asarray(np.mean([self._rate(*pair) for pair in pairs], axis=0))

    # --- what is no step -------------------------------------------------------------------------------

    def skip(self, s: Streams, k: int) -> tuple[Array, Array]:
        now, bits = MeterState.of(s.belief), np.zeros(len(s.step))
        gone = now._replace(prior=self.chain.later(now.prior, k, s.step), age=now.age + k * (now.age > 0))
        unsure = (now.charge != FILTER) | (now.doubt > 0)
        if not unsure.any():
            return bits, gone.packed()
        after = self._after(k, s.step)
        doubt = np.minimum(after.doubt, np.where(now.charge == FILTER, now.doubt, np.inf))
        back, potential = unsure & (doubt <= MOST_DOUBT), now.charge == POTENTIAL
        back &= (now.charge != TRUTH) | (doubt <= NO_DOUBT)
        gap = np.take_along_axis(after.gap, (s.memory // self.shared)[:, None], -1)[:, 0]
        bits[potential & ~back] = gap[potential & ~back]
        return bits, gone.where(back, charge=FILTER, doubt=doubt).packed()

    def move(self, s: Streams, to: Memory, since: Index) -> tuple[Array, Array]:
        now, phase = MeterState.of(s.belief), self.chain.phase(s.step)
        rung, goal = s.memory // self.shared, to // self.shared
        saved, doubt = np.maximum(now.truth - s.total, 0), np.empty(len(since))
        for k in np.unique(since).tolist():
            here = since == k
            doubt[here] = self._after(k, s.step[here] - k).doubt
        h = self.proof.potential[rung, s.memory % self.shared]
        enter = np.exp2(now.doubt) * (dot(now.prior, h) - self.h.min())
        stay = np.where(now.charge == POTENTIAL, 0, enter) + MOVE_BITS
        change = stay + self.change_bits[rung, goal, phase]
        closed = np.where(rung == 0, stay > saved, (change > saved) & (goal != 0) & (goal != rung))
        free, spent = (now.charge == TRUTH) | (now.age == 0), (now.sound == 1) & (saved < stay)
        little = (doubt <= MOST_DOUBT) & ((saved >= MOVE_BITS) | (doubt <= NO_DOUBT) | (now.sound == 0))
        alone = np.where(spent, np.minimum(MOVE_BITS, saved), MOVE_BITS)
        bits = np.select([free, little, spent], [0, alone, saved], np.where(closed, np.inf, change))
        charge = np.select([free, little, spent], [now.charge, FILTER, TRUTH], POTENTIAL)
        doubt = np.where((charge == FILTER) & ~free, doubt, now.doubt * free)
        return bits, now._replace(charge=charge, doubt=doubt, sound=now.sound * (charge != POTENTIAL)).packed()

    @property
    def entry_bits(self) -> float:
        """What the potential costs on entering, in the long run of the first rung."""
        return float(-self.h.min())  # there h is 0 on average

    @cached_property
    def change_bits(self) -> Array:
        """R x R x phases: what a change from rung i to rung j adds to the potential; never below 0."""
        return np.array([[np.maximum((b - a).max((1, 2)), 0) for b in self.h] for a in self.h])

    # --- k steps of the chain ----------------------------------------------------------------------------

    def _after(self, k: int, first: Index) -> "Ahead":
        """Of the k steps from each of these on: n x ..."""
        starts, at = np.unique(first if self.chain.phases > 1 else np.zeros_like(first), return_inverse=True)
        return Ahead(*(np.stack(v)[at] for v in zip(*(self._ahead(k, one) for one in starts.tolist()), strict=True)))

    @cached_property
    def _ahead(self) -> Callable[[int, int], "Ahead"]:
        def ahead(k: int, first: int) -> Ahead:
            powers = self.chain.later(np.eye(len(self.chain)), k, np.full(len(self.chain), first))
            phase, after = self.chain.phase(np.array([first, first + k]))
            gap = (self.h[:, after] @ powers.T - self.h[:, phase]).max((1, 2))
            return Ahead(entropy(powers), np.array(projective_diameter(powers)), np.maximum(gap, 0))

        return lru_cache(KEPT)(ahead)

    @cached_property
    def _one_step(self) -> Array:
        """H(P(z,.)) at every phase."""
        return np.stack([entropy(self.chain.at(phase).transition) for phase in range(self.chain.phases)])


class Ahead(NamedTuple):
    """What k steps of the chain do, P^k."""

    entropies: Array  # |Z|: H(P^k(z,.))
    doubt: Array  # Delta(P^k)
    gap: Array  # R: max (P^k h_i - h_i) of every rung


def projective_diameter(P: Array) -> float:
    """Delta(P) = max over rows z, z' and columns i, j of log2 P(z,i) P(z',j) / P(z',i) P(z,j), bits (Birkhoff)."""
    if not (P > 0).all():
        return np.inf
    logs = np.log2(P)
    return max(float(np.ptp(logs - row, axis=1).max()) for row in logs)
