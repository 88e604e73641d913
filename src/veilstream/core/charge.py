"""What a ladder leaks, under the chain and in spite of what its moves tell: the public meter under feedback.

After a move the belief of `ExactMeter` is no longer the service provider's: the move told her something about the past.
(Nine states that never change, P(0) = 1/2; the upper rung always shows 0, the lower one the truth; down if x != 0: 2.5
bits are told, where the filter would charge 2.25 with the bit of the move.) So the charge is made of numbers that do
not depend on what was told. With q_i(y|s) any output model of rung i and f_i(s,z) = D( a_i,s(.|z) || q_i(.|s) ),

    I(X; Y, moves) <= log2(5) boundaries + E sum_t f_{i_t}(s_t, z_t)        (chain rule, and p(y|past) replaced by q)

and for any function h_i(s,z), with T_i the law of the next (s,z) on rung i and g_i = max over (s,z) of f + T h - h,

    E sum_t f  <=  sum_t g_{i_t} + sum over changes i -> j of max (h_j - h_i) + E h_first(start) - min h,

because z_t+1 is drawn from P(z_t, .) whatever the past, moves included, has told. A gap of k steps adds
max (P^k h_i - h_i). With a public clock f, T and h have a phase, and g_i one for each pair of phases that follow each
other, since that is public too.

Nothing has to be converged for this to hold; h solves (nearly) f + T h - h = g, so that g_i is (nearly) the rate of
rung i, and the free constants of the h_i are chosen so that one step up costs what it costs down.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from veilstream.core.chain import MarkovChain
from veilstream.core.feedback import MOVE_BITS
from veilstream.core.information import Array, Index, divergence, normalised
from veilstream.core.meter import TableMeter
from veilstream.core.phased import Phased
from veilstream.core.policy import Memory, Policy
from veilstream.core.steady import MemoryStep, law_at_phases, stationary_law
from veilstream.errors import InputError

DIRECT = 1600  # (memory, state) pairs up to which the potential is solved for directly
ACCURACY = 1e-8  # relative, of the potential beyond that
ROUNDS, SETTLED = 100, 1e-7  # of a public clock, and the change of the potential in one that counts as none
LEAST_LAW = 1e-9  # of what is shown at all, in an output model: keeps f finite
KEPT = 4096  # gaps and pairs of phases whose bits are kept


class Proof(NamedTuple):
    """What a charge is made of; anybody can check it (`Charge.by` does), however it was found."""

    potential: Array  # R x M x |Z|: h_i, bits; a memory of M is (phase, s)
    law: Array  # R x M x |Y|: q_i


class Rung(NamedTuple):
    """One policy of a ladder, phase by phase."""

    table: Array  # phases x S x |Z| x |Y|
    to: Index  # S x |Y|: next(s,y)
    chain: MarkovChain

    @classmethod
    def of(cls, policy: Policy, chain: MarkovChain) -> "Rung":
        table = policy.table(np.inf)
        assert table is not None
        S, Y = len(table) // chain.phases, policy.n_outputs
        s, y = np.divmod(np.arange(S * Y), Y)
        to = np.asarray(policy.update(s, y)).reshape(S, Y) % S
        return cls(table.reshape(chain.phases, S, *table.shape[1:]), to, chain)

    def loss(self, q: Array) -> Array:
        """f(s,z) = D( a_s(.|z) || q(.|s) ) at every phase."""
        return divergence(self.table, q[:, :, None, :])

    def ahead(self, h: Array, phase: int = 0) -> Array:
        """T h from this phase: what is expected of h, S x |Z|, at the next (memory, state)."""
        follow = (h @ self.chain.at(phase).transition.T)[self.to]
        return np.asarray(np.einsum("szy,syz->sz", self.table[phase], follow))


@dataclass(frozen=True, eq=False)
class Charge(TableMeter):
    """Output law by the memory; bits per step by rung and phases, of moves, gaps and the start by the potential."""

    rungs: Phased
    chain: MarkovChain
    proof: Proof
    bears_gaps: ClassVar[bool] = True

    @classmethod
    def by(cls, proof: Proof, rungs: Phased, chain: MarkovChain) -> "Charge":
        law = proof.law.reshape(-1, rungs.n_outputs)
        return cls(np.zeros(len(law)), law, rungs, chain, proof)

    @cached_property
    def h(self) -> Array:
        """R x phases x S x |Z|."""
        return self.proof.potential.reshape(len(self.rungs.policies), self.chain.phases, -1, len(self.chain))

    # --- steps -----------------------------------------------------------------------------------------

    @cached_property
    def _parts(self) -> list[tuple[Rung, Array]]:
        """Every rung with its loss."""
        parts = [Rung.of(p, self.chain) for p in self.rungs.policies]
        laws = self.proof.law.reshape(len(parts), self.chain.phases, -1, self.rungs.n_outputs)
        return [(rung, rung.loss(q)) for rung, q in zip(parts, laws, strict=True)]

    @cached_property
    def _rate(self) -> Callable[[int, int], Array]:
        def rates(phase: int, after: int) -> Array:
            return np.array(
                [
                    max(float((f[phase] + rung.ahead(h[after], phase) - h[phase]).max()), 0.0)
                    for (rung, f), h in zip(self._parts, self.h, strict=True)
                ]
            )

        return lru_cache(KEPT)(rates)

    def read(self, belief: Array, memory: Memory, a: Array | None, step: Index) -> tuple[Array, Array]:
        rung, phase, after = self.rungs.index(memory), self.chain.phase(step), self.chain.phase(step + 1)
        bits = np.empty(len(rung))
        for pair in {*zip(phase.tolist(), after.tolist(), strict=True)}:
            here = (phase == pair[0]) & (after == pair[1])
            bits[here] = self._rate(*pair)[rung[here]]
        return bits, self.law[memory]

    @property
    def rates(self) -> Array:
        """g_i: bits per step on each rung, the mean over a round of the clock."""
        around = self.chain.around.tolist()
        pairs = zip(around, [*around[1:], around[0]], strict=True)
        return np.asarray(np.mean([self._rate(*pair) for pair in pairs], axis=0))

    # --- what is no step -------------------------------------------------------------------------------

    def start_bits(self, step: Index) -> Array:
        """What a stream owes from the start: the potential it begins with, over the least there is."""
        rung, m = np.divmod(self.rungs.start(), self.rungs.shared)
        h = self.h[int(rung), self.chain.phase(step), int(m) % self.h.shape[2]]
        return np.asarray((self.chain.initial_at(step) * h).sum(-1) - self.h.min())

    @cached_property
    def change_bits(self) -> Array:
        """R x R x phases: a change from rung i to rung j, beside the bits of its boundary; never below 0."""
        return np.array([[np.maximum((b - a).max((1, 2)), 0) for b in self.h] for a in self.h])

    def move_bits(self, before: Memory, after: Memory) -> Array:
        """Of moves at a boundary, whatever they are."""
        phase = before % self.rungs.shared // self.h.shape[2]
        bits: Array = MOVE_BITS + self.change_bits[self.rungs.index(before), self.rungs.index(after), phase]
        return bits

    @cached_property
    def _gap(self) -> Callable[[int, int], Array]:
        def bits(k: int, step: int) -> Array:
            first, Z = np.full(len(self.chain), step), len(self.chain)
            phase, after = self.chain.phase(np.array([step, step + k]))
            moved = self.chain.later(np.eye(Z), k, first)  # P^k, around the clock
            return np.asarray(np.maximum((self.h[:, after] @ moved.T - self.h[:, phase]).max((1, 2)), 0))

        return lru_cache(KEPT)(bits)

    def gap_bits(self, memory: Memory, k: int, step: Index) -> Array:
        """Of k steps without a release, this the first of them."""
        found = np.empty(len(memory))
        since = step if self.chain.phases > 1 else np.zeros_like(step)
        for first in np.unique(since).tolist():
            here = since == first
            found[here] = self._gap(int(k), first)[self.rungs.index(memory[here])]
        return found


# --- finding it ----------------------------------------------------------------------------------------------


def prove(rungs: Phased, chain: MarkovChain) -> Proof:
    """An output model and a potential for every rung."""
    if chain.order > 1:
        raise InputError("a ladder is for chains of order 1")
    laws, potentials = [], []
    for policy in rungs.policies:
        rung = Rung.of(policy, chain)
        mu = long_run_law(policy, rung)
        q = output_model(rung.table, mu)
        laws.append(q.reshape(-1, policy.n_outputs))
        potentials.append(relative_value(rung.loss(q), rung, mu).reshape(-1, len(chain)))
    return Proof(balanced(np.array(potentials)), np.array(laws))


def long_run_law(policy: Policy, rung: Rung) -> Array:
    """mu(s,z) at every phase, phases x S x |Z|, each summing to its share of the round."""
    chain, shape = rung.chain, rung.table.shape[:3]
    steps = policy.law_steps(chain)
    laws = [] if steps is None else law_at_phases(steps, chain)
    if not laws or laws[0].shape != shape[1:]:  # another layout
        if chain.phases > 1:
            raise InputError("a ladder around a clock needs policies that remember releases")
        laws = [stationary_law(MemoryStep(chain, rung.table[0], rung.to, int(policy.start())), chain)]
    mu = np.zeros(shape)
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
    (S, Z), flat = excess.shape, mu.ravel()
    if excess.size <= DIRECT:
        T = np.zeros((S, Z, S, Z))
        s, y = np.divmod(np.arange(rung.to.size), rung.to.shape[1])
        moves = rung.table[0][s, :, y][:, :, None] * rung.chain.transition
        np.add.at(T, np.s_[s, :, rung.to[s, y]], moves)  # type: ignore[arg-type]
        left_side = np.eye(S * Z) - T.reshape(S * Z, -1) + flat
        h, *_ = np.linalg.lstsq(left_side, excess.ravel(), rcond=None)  # a chain that never mixes has many solutions
        return np.asarray(h.reshape(S, Z))
    from scipy.sparse.linalg import LinearOperator, gmres

    def left(v: Array) -> Array:
        return v - rung.ahead(v.reshape(S, Z)).ravel() + flat @ v

    h, _ = gmres(LinearOperator((S * Z, S * Z), left), excess.ravel(), rtol=ACCURACY, restart=60, maxiter=20)
    return np.asarray(h.reshape(S, Z))


def balanced(h: Array) -> Array:
    """The potentials, shifted so that a step up from each rung costs what the step down to it costs."""
    h = h.copy()
    for i in range(1, len(h)):
        up, down = (h[i] - h[i - 1]).max(), (h[i - 1] - h[i]).max()
        h[i] += (down - up) / 2
    return h
