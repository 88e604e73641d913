"""What a ladder leaks, under the chain and in spite of what its moves tell: the public meter under feedback.

After a move the belief of `ExactMeter` is no longer the service provider's: the move told her something about the past.
(Nine states that never change, P(0) = 1/2; the upper rung always shows 0, the lower one the truth; down if x != 0: 2.5
bits are told, where the filter would charge 2.25 with the bit of the move.) So the charge is made of numbers that do
not depend on what was told. With q_i(y|s) any output model of rung i and f_i(s,z) = D( a_i,s(.|z) || q_i(.|s) ),

    I(X; Y, moves) <= log2(3) boundaries + E sum_t f_{i_t}(s_t, z_t)        (chain rule, and p(y|past) replaced by q)

and for any function h_i(s,z), with T_i the law of the next (s,z) on rung i and g_i = max over (s,z) of f + T h - h,

    E sum_t f  <=  sum_t g_{i_t} + sum over changes i -> j of max (h_j - h_i) + E h_first(start) - min h,

because z_t+1 is drawn from P(z_t, .) whatever the past, moves included, has told. A gap of k steps adds
max (P^k h_i - h_i). Nothing has to be converged for this to hold; h solves (nearly) f + T h - h = g, so that g_i is
(nearly) the rate of rung i, and the free constants of the h_i are chosen so that one step up costs what it costs down.
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
from veilstream.core.steady import MemoryStep, stationary_law
from veilstream.errors import InputError

DIRECT = 1600  # (memory, state) pairs up to which the potential is solved for directly
ACCURACY = 1e-8  # relative, of the potential beyond that
LEAST_LAW = 1e-9  # of what is shown at all, in an output model: keeps f finite
GAPS_KEPT = 4096


class Proof(NamedTuple):
    """What a charge is made of; anybody can check it (`Charge.by` does), however it was found."""

    potential: Array  # R x M x |Z|: h_i, bits
    law: Array  # R x M x |Y|: q_i


@dataclass(frozen=True, eq=False)
class Charge(TableMeter):
    """Bits per step (g_i) and output law (q_i) by the memory; moves, gaps and the start by the potential h_i."""

    rungs: Phased
    chain: MarkovChain
    potential: Array  # R x M x |Z|: h_i
    bears_gaps: ClassVar[bool] = True

    @classmethod
    def by(cls, proof: Proof, rungs: Phased, chain: MarkovChain) -> "Charge":
        rates = []
        for policy, h, q in zip(rungs.policies, *proof, strict=True):
            table, to = _tables(policy)
            drift = _loss(table, q) + ahead(h, table, to, chain) - h
            rates.append(max(float(drift.max()), 0.0))
        law = proof.law.reshape(-1, rungs.n_outputs)
        return cls(np.repeat(rates, rungs.shared), law, rungs, chain, proof.potential)

    @property
    def rates(self) -> Array:
        """g_i: bits per step on each rung."""
        return self.bits[:: self.rungs.shared]

    @cached_property
    def start_bits(self) -> float:  # type: ignore[override]
        """What a stream owes from the start: the potential it begins with, over the least there is."""
        first = self.potential.reshape(-1, len(self.chain))[int(self.rungs.start())]
        return float(self.chain.initial @ first - self.potential.min())

    @cached_property
    def change_bits(self) -> Array:
        """R x R: a change from rung i to rung j, beside the bit of its boundary; never below 0."""
        h = self.potential
        return np.array([[max(float((b - a).max()), 0.0) for b in h] for a in h])

    def move_bits(self, before: Memory, after: Memory) -> Array:
        """Of moves at a boundary, whatever they are."""
        bits: Array = MOVE_BITS + self.change_bits[self.rungs.index(before), self.rungs.index(after)]
        return bits

    @cached_property
    def _gap(self) -> Callable[[int], Array]:
        def bits(k: int) -> Array:
            h = self.potential
            return np.asarray(np.maximum((self.chain.powers.expected(h, k) - h).max((1, 2)), 0))

        return lru_cache(GAPS_KEPT)(bits)

    def gap_bits(self, memory: Memory, k: int) -> Array:
        """Of k steps without a release."""
        return np.asarray(self._gap(int(k))[self.rungs.index(memory)])


def prove(rungs: Phased, chain: MarkovChain) -> Proof:
    """An output model and a potential for every rung."""
    if chain.order > 1 or chain.phases > 1:
        raise InputError("a ladder is for chains of order 1 without a clock")
    laws, potentials = [], []
    for policy in rungs.policies:
        table, to = _tables(policy)
        q, mu = output_model(policy, table, to, chain)
        laws.append(q)
        potentials.append(relative_value(_loss(table, q), table, to, chain, mu))
    return Proof(balanced(np.array(potentials)), np.array(laws))


def _tables(policy: Policy) -> tuple[Array, Index]:
    """a_s(y|z) and next(s,y) of a rung."""
    table = policy.table(np.inf)
    assert table is not None
    s, y = np.divmod(np.arange(len(table) * policy.n_outputs), policy.n_outputs)
    return table, np.asarray(policy.update(s, y)).reshape(len(table), -1)


def _loss(table: Array, q: Array) -> Array:
    """f(s,z) = D( a_s(.|z) || q(.|s) )."""
    return divergence(table, q[:, None, :])


def output_model(policy: Policy, table: Array, to: Index, chain: MarkovChain) -> tuple[Array, Array]:
    """q(y|s) of the long run, with a little of everything that s may show; and the law mu(s,z) of the long run."""
    mu = None
    if policy.remembers is not None and (steps := policy.law_steps(chain)) is not None:
        mu = stationary_law(steps[0], chain)
    if mu is None or mu.shape != table.shape[:2]:  # another layout
        mu = stationary_law(MemoryStep(chain, table, to, int(policy.start())), chain)
    shown = (mu[..., None] * table).sum(1)
    seen = shown.sum(1, keepdims=True)
    r = np.where(seen > 0, shown / np.where(seen > 0, seen, 1), table.mean(1))
    return normalised(r + LEAST_LAW * (table.max(1) > 0)), mu


def ahead(h: Array, table: Array, to: Index, chain: MarkovChain) -> Array:
    """T h: what is expected of h at the next (memory, state)."""
    return np.asarray(np.einsum("szy,syz->sz", table, (h @ chain.transition.T)[to]))


def relative_value(f: Array, table: Array, to: Index, chain: MarkovChain, mu: Array) -> Array:
    """h with f + T h - h = g, g = sum mu f, and mean 0 under mu."""
    g = float((mu * f).sum())
    (S, Z), flat = f.shape, mu.ravel()
    if f.size <= DIRECT:
        T = np.zeros((S, Z, S, Z))
        s, y = np.divmod(np.arange(S * to.shape[1]), to.shape[1])
        np.add.at(T, np.s_[s, :, to[s, y]], table[s, :, y][:, :, None] * chain.transition)  # type: ignore[arg-type]
        left_side = np.eye(S * Z) - T.reshape(S * Z, -1) + flat
        h, *_ = np.linalg.lstsq(left_side, (f - g).ravel(), rcond=None)  # a chain that never mixes has many solutions
        return np.asarray(h.reshape(S, Z))
    from scipy.sparse.linalg import LinearOperator, gmres

    def left(v: Array) -> Array:
        return v - ahead(v.reshape(S, Z), table, to, chain).ravel() + flat @ v

    h, _ = gmres(LinearOperator((S * Z, S * Z), left), (f - g).ravel(), rtol=ACCURACY, restart=60, maxiter=20)
    return np.asarray(h.reshape(S, Z))


def balanced(h: Array) -> Array:
    """The potentials, shifted so that a step up from each rung costs what the step down to it costs."""
    h = h.copy()
    for i in range(1, len(h)):
        up, down = (h[i] - h[i - 1]).max(), (h[i - 1] - h[i]).max()
        h[i] += (down - up) / 2
    return h
