"""A potential for every rung of a ladder: what `charge` is proved by.

    f_i(s,z) = D( a_i,s(.|z) || q_i(.|s) ),        f_i + T_i h_i - h_i = g_i   (nearly)

q_i is the output model of rung i in the long run, T_i the law of its next (memory, state), g_i its rate. Nothing has to
be converged for the charge to hold. The free constants of the h_i make every change to the first rung free: who leaves
it pays for both ways.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from veilstream.control.controller import Controller
from veilstream.control.stationary import LongRun, Step
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, Index, divergence, normalised

DIRECT = 1600  # (memory, state) pairs up to which the potential is solved for directly
ACCURACY = 1e-8  # relative, of the potential beyond that
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


def anchored(h: Array, first: int) -> Array:
    """The potentials with constants that make every change to the first rung free, and none negative."""
    return np.asarray(h + (h[first] - h).max((1, 2), keepdims=True))
