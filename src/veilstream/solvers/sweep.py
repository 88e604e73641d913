"""One sweep of causal Blahut-Arimoto, as an array program over a batch of weights and starts.

A memory s belongs to a group g of memories that go on alike, s' = to(g,y) (`automaton`). With cost C in bits, at the
public phase f, alpha+ the potential of the phase that follows:

    K(g,z,y)   = 2^-( C(z,y) + sum_z' P_f(z,z') alpha+_to(g,y)(z') )    value of what follows
    N(s,z)     = sum_y r(y|s) K(g,z,y),   a_s(y|z) = r(y|s) K(g,z,y) / N(s,z)
    r(y|s)     <- sum_z mu(s,z) a_s(y|z) / mu(s)                        output model: one step, or several (`fitted`)
    alpha_s(z) <- -log2 N(s,z) - gain                                   backward; the gain keeps alpha bounded
    mu(s,z)    <- law of the next (s,z) under a                         forward

Every line is a product of matrices for each group, and no |S| x |Z| x |Y| array is made. With a public clock one sweep
goes once around backward, then once around forward. Where a phase lasts several steps, or is followed by different ones
(Friday's last by Saturday's first), what follows is taken as a public chain of phases with the frequencies F of the
clock, alpha+ = sum_psi F(f,psi) alpha_psi: exact where every step of a day has a phase of its own; in any case what is
found is judged step by step on the true round.

Shapes: B batch, F phases, S memories in G groups, Y outputs, Z states.

A batch of runs (`Runs`) is driven until each has settled: a few plain sweeps first, then sweeps that fit the output
models to law and kernel before these move on (`fitted`: nearly all of the way is in them, and a model that is half
fitted holds up the rest); a look at convergence every so often. A run leaves the batch when it has settled.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from veilstream.control.automaton import Automaton, ByGroup, ByMemory, Kernel
from veilstream.control.controller import Controller
from veilstream.control.stationary import LongRun, Moves, Rates
from veilstream.model.information import Array, Index, normalised
from veilstream.model.problem import Problem
from veilstream.solvers.memory import split
from veilstream.solvers.solution import Progress

FARTHEST, LEAP = 30.0, 10.0  # of a step thrown ahead: its length in steps, and its size in log r
UNSEEN = 1e-250  # the law of a memory below which its output model is left alone
FLOOR = 1e-9  # least output probability r(y|s): a deployed policy never makes a release impossible


@dataclass
class Tables:
    """What a sweep improves, B x F x S x (Y or Z)."""

    r: Array
    alpha: Array
    mu: Array

    def __len__(self) -> int:
        return len(self.r)

    def take(self, index: Index) -> "Tables":
        return type(self)(*(x[index] for x in vars(self).values()))

    def put(self, index: Index, part: "Tables") -> None:
        for own, new in zip(vars(self).values(), vars(part).values(), strict=True):
            own[index] = new


class Sweep:
    """The recursion for one chain, one memory and a batch of costs (B x Z x Y).

    `look_ahead=False` keeps alpha at zero: the myopic policy, Blahut-Arimoto at every memory and nothing beyond.
    """

    def __init__(
        self,
        problem: Problem,
        cost: Array,
        automaton: Automaton,
        window: int | None = None,
        look_ahead: bool = True,
        dtype: Any = np.float64,
    ) -> None:
        chain = problem.chain
        if not automaton.regular and automaton.newest is None:
            automaton = automaton.apart
        self.problem, self.automaton, self.window, self.look_ahead = problem, automaton, window, look_ahead
        self.dtype = np.dtype(dtype)
        self.moves = [Moves.of(chain.at(phase), dtype) for phase in range(chain.phases)]
        self.absorption = chain.absorption
        periodic = chain.phases == 1 and chain.period > 1
        self.lazy = self.dtype.type(0.5 if periodic else 1.0)  # half steps: a periodic law would never settle
        self.cost = cost.astype(dtype, copy=False).swapaxes(-1, -2)  # B x Y x Z
        F = np.zeros((chain.phases, chain.phases))
        np.add.at(F, (chain.around, np.roll(chain.around, -1)), 1)
        self.share = (F.sum(1) / len(chain.around)).astype(dtype)  # of the time, in each phase
        self.follows = [[(int(j), F[i, j] / F[i].sum()) for j in np.flatnonzero(F[i])] for i in range(len(F))]
        self.precedes = [[(int(i), F[i, j] / F[:, j].sum()) for i in np.flatnonzero(F[:, j])] for j in range(len(F))]

    def start(self, r: Array) -> Tables:
        """From output models r, B x S x Y or B x F x S x Y; no value yet, every memory equally likely."""
        chain, phases = self.problem.chain, len(self.moves)
        r = np.repeat(r[:, None], phases, 1) if r.ndim == 3 else r
        laws = np.stack([chain.at(phase).stationary for phase in range(phases)])[:, None] / len(self.automaton)
        mu = np.tile(laws.astype(self.dtype), (len(r), 1, len(self.automaton), 1))
        return Tables(r.astype(self.dtype, copy=False), np.zeros_like(mu), mu)

    def kernel(self, ahead: Array, phase: int, index: Index) -> tuple[Kernel, Array]:
        """K, scaled so that its largest entry for each z (and group) is 1, and that scale in bits, B x (S or 1) x Z."""
        memory, after = self.automaton, ahead @ self.moves[phase].T
        cost = self.cost[index]
        if not memory.regular:
            follow = cost[:, memory.newest] + after
            low = follow.min(1, keepdims=True)
            return ByMemory(memory, np.exp2(low - follow)), low
        follow = cost[:, None] + (after[:, None] if memory.is_last else after[:, memory.to])  # B x G x Y x Z
        low = follow.min(2, keepdims=True)
        scale = low if len(memory.to) == 1 else np.repeat(low, len(memory) // len(memory.to), 2)
        return ByGroup(memory, np.exp2(low - follow)), scale.reshape(len(low), -1, low.shape[-1])

    def _ahead(self, phase: int, alpha: Sequence[Array]) -> Array:
        """The potential of what follows this phase, B x S x Z."""
        if not self.look_ahead:
            return np.zeros_like(alpha[phase])
        return mixture([(weight, alpha[j]) for j, weight in self.follows[phase]])

    def __call__(self, t: Tables, index: Index, rounds: int = 0) -> tuple[Tables, Array, Array]:
        """One sweep of the batch entries `index`, r fitted in so many rounds (`fitted`).

        Returns the new tables, the value per step, and how far r was from the best for its mu and alpha: Blahut's
        bound sum_s mu(s) max_y log2 c_s(y), both in bits, per batch entry.
        """
        phases = range(len(self.moves))
        r, alpha, mu = ([x[:, f] for f in phases] for x in (t.r, t.alpha, t.mu))
        K, N = dict[int, Kernel](), dict[int, Array]()
        value, slack = np.zeros((2, len(t)))
        for f in reversed(phases):  # output model, backward
            K[f], low = self.kernel(self._ahead(f, alpha), f, index)
            r[f], left = self.fit(r[f], mu[f], K[f], rounds)
            N[f] = K[f].normaliser(r[f])
            change = low - np.log2(N[f]) - alpha[f]  # T alpha - alpha
            gained = mu[f] * change
            value += self.share[f] * gained.sum((1, 2), dtype=float)
            slack += self.share[f] * left
            if self.look_ahead:
                gain = gains(mu[f].sum(1), gained.sum(1), self.absorption)
                alpha[f] = alpha[f] + self.lazy * (change - gain.astype(self.dtype)[:, None])
        for f in phases:  # forward
            arrived = [(w, K[j].arrive(r[j], mu[j] / N[j]) @ self.moves[j]) for j, w in self.precedes[f]]
            law = mu[f] + self.lazy * (mixture(arrived) - mu[f])
            mu[f] = law / law.sum((1, 2), keepdims=True)
        return Tables(*(x[0][:, None] if len(x) == 1 else np.stack(x, 1) for x in (r, alpha, mu))), value, slack

    def fit(self, r: Array, mu: Array, K: Kernel, rounds: int) -> tuple[Array, Array]:
        """A better output model for this law and kernel, and how far the old one was from the best, in bits."""
        seen = mu.sum(-1, keepdims=True)

        def better(r: Array) -> tuple[Array, Array, Array]:
            N = K.normaliser(r)
            c = np.divide(K.back(mu / N), seen, out=np.ones_like(r), where=seen > UNSEEN)
            return floored(r * c), (mu * np.log2(N)).sum(-1, keepdims=True), c

        r, c = fitted(better, r, rounds)
        return r, (seen[..., 0] * np.log2(np.maximum(c.max(-1), 1))).sum(1)

    def _tables(self, K: Kernel) -> Array:
        """By group, as a policy keeps them: B x G x Z x Y."""
        by_y = K.K if isinstance(K, ByGroup) else K.B[:, self.automaton.to]
        return by_y.swapaxes(-1, -2)

    def _policy(self, t: Tables, tables: Array, i: int) -> Controller:
        """tables: B x F x G x Z x Y."""
        first = int(t.mu[i].mean(0).sum(-1).argmax())
        return Controller(self.automaton, t.r[i], tables[i], first, window=self.window, chain=self.problem.chain)

    def result(self, t: Tables, i: int) -> tuple[Controller, Rates]:
        """The policy that run i has found, and its rates in the long run."""
        one, at = t.take(np.array([i])), np.array([i])
        alpha = list(one.alpha.swapaxes(0, 1))
        kernels = [self.kernel(self._ahead(f, alpha), f, at)[0] for f in range(len(self.moves))]
        policy, chain = self._policy(one, np.stack([self._tables(K) for K in kernels], 1), 0), self.problem.chain
        guess = one.mu[0, chain.around[0]].astype(float)
        return policy, LongRun(chain, policy, guess / guess.sum()).rates(self.problem.distortion)

    def only(self, i: int) -> Self:
        """For the cost of run i alone."""
        one = copy(self)
        one.cost = self.cost[i : i + 1]
        return one

    def refined(self, t: Tables, n_states: int) -> "tuple[Sweep, Tables]":
        """The same with a finer memory, split where it forgets most; for one run on a chain without a clock."""
        memory = self.automaton
        K = self._tables(self.kernel(t.alpha[:, 0], 0, np.zeros(1, int))[0])[0].swapaxes(-1, -2)  # G x Y x Z
        a = t.r[0, 0][..., None] * K[memory.group]  # S x Y x Z
        m = a * (t.mu[0, 0] / a.sum(1))[:, None]
        parent, to, weight = split(self.problem.chain.transition, memory.table, m.astype(float), n_states)
        finer, order = Automaton.of(to)
        share = weight / np.maximum(np.bincount(parent, weight)[parent], 1e-300)
        r, alpha, mu = (x[:, :, parent[order]] for x in (t.r, t.alpha, t.mu))
        mu = mu * share[order].astype(self.dtype)[:, None]
        sweep = Sweep(self.problem, self.cost.swapaxes(-1, -2), finer, None, self.look_ahead, self.dtype)
        return sweep, Tables(r, alpha, mu / mu.sum((2, 3), keepdims=True))


def mixture(parts: Sequence[tuple[float, Array]]) -> Array:
    """sum of weight x array; the weights sum to 1."""
    if len(parts) == 1:
        return parts[0][1]
    return np.asarray(sum(x.dtype.type(weight) * x for weight, x in parts))


def floored(r: Array) -> Array:
    """r with no entry below FLOOR, normalised."""
    return normalised(np.maximum(r, FLOOR))


def gains(mu: Array, change: Array, absorption: Array) -> Array:
    """The value per step in each closed class of the chain, spread over the states that lead there; all B x Z."""
    in_class = mu @ absorption
    return ((change @ absorption) / np.maximum(in_class, 1e-300)) @ absorption.T


def fitted(better: Callable[[Array], tuple[Array, Array, Array]], r: Array, rounds: int) -> tuple[Array, Array]:
    """The output model, nearer to the best for this law and kernel; and the first c.

    better: one step of Blahut and Arimoto's, r c, with the likelihood of each row before it and c. A convex problem for
    each row, on which these steps are slow: so in every round log r is thrown ahead along its last two moves (SQUAREM,
    Varadhan & Roland 2008), row by row, and where a row is worse for it that is taken back.

        l0, l1, l2 = log r,   u = l1 - l0,   v = (l2 - l1) - u,   step = |u| / |v| in [1, FARTHEST]
        l = l0 + 2 step u + step^2 v                               step = 1 gives l2 back
    """
    r1, _, first = better(r)
    for _ in range(rounds):
        r2, before, _ = better(r1)
        l0, l1, l2 = np.log(r), np.log(r1), np.log(r2)
        u = l1 - l0
        v = l2 - l1 - u
        size = (r * u * u).sum(-1, keepdims=True) / np.maximum((r * v * v).sum(-1, keepdims=True), 1e-30)
        step = np.clip(np.sqrt(size), 1, FARTHEST).astype(r.dtype, copy=False)
        ahead = normalised(np.exp(np.clip(l0 + step * (2 * u + step * v), l2 - LEAP, l2 + LEAP)))
        r3, after, _ = better(ahead)
        worse = after < before
        r, r1 = np.where(worse, r1, ahead), np.where(worse, r2, r3)
    return r1, first


PLAIN, ROUNDS = 10, 2  # sweeps before the output models are fitted: there is no value yet; rounds of fitting in one
BEGIN, WARM, LOOK = 30, 5, 10  # sweeps before the first look, afresh and from another weight; between looks
NOTHING = 1e-5  # bits: differences of this size times the tolerances count as none
SLACK = 500  # tolerances: Blahut's bound on what a better output model could still gain, far more than it does


class Runs:
    """`tables` change in place. After `converge`: the `history` of values, which runs are `done`."""

    def __init__(self, sweep: Sweep, tables: Tables, tolerance: float, warm: bool = False) -> None:
        """warm: the tables had settled at another weight."""
        self.sweep, self.tables, self.tolerance, self.warm = sweep, tables, tolerance, warm
        self.history: list[tuple[int, Array]] = []  # sweep, value of every run
        self.done = np.zeros(len(tables), dtype=bool)
        self.value = np.full(len(tables), np.inf)
        self.live = np.arange(len(tables))
        self.now = tables.take(self.live)  # of the live runs

    def converge(self, max_sweeps: int, progress: Progress | None = None) -> None:
        begin = WARM if self.warm else BEGIN
        for k in range(max_sweeps):
            if not self.live.size:
                return
            self.now, now, slack = self.sweep(self.now, self.live, ROUNDS if self.warm or k >= PLAIN else 0)
            if k == begin - LOOK:
                self.value[self.live] = now
            if k >= begin and (k - begin) % LOOK == 0:
                self.look(k, now, slack)
                if progress:
                    share = 1 - len(self.live) / len(self.tables)
                    memory = "memory" if self.sweep.window is None else f"window {self.sweep.window}"
                    progress(share, f"{memory}, sweep {k}: {len(self.live)} runs live")
        if self.live.size:
            self.tables.put(self.live, self.now)

    def look(self, k: int, now: Array, slack: Array) -> None:
        """Who has settled; the others go on."""
        close = self.tolerance * (np.abs(now) + NOTHING)
        settled = (np.abs(now - self.value[self.live]) < close) & (slack < SLACK * close)
        self.value[self.live] = now
        self.history.append((k, self.value.copy()))
        self.tables.put(self.live, self.now)
        self.done[self.live[settled]] = True
        self.live, self.now = self.live[~settled], self.now.take(np.flatnonzero(~settled))
