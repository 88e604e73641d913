"""Several audiences, one draw: a coarser release is drawn from the finer one, never from the truth.

    y1 ~ a(.|z, s1)        s1' = next(s1, y1)        the finer audience, as ever
    y2 ~ c(.|y1, s2)       s2' = next(s2, y2)        the coarser one, its memory of its own releases alone

The coarser policy is an ordinary controller whose states are the symbols y1. Both together are one again (`joint`),

    r((y1,y2)|s1,s2) = r1(y1|s1) c(y2|y1,s2)         with the kernel and the normaliser of the finer one

so a(y1,y2|z) = a(y1|z) c(y2|y1): given y1 the coarser release says nothing more, and whoever sees both learns what the
finer audience learns, I(X;Y1,Y2) = I(X;Y1). Whoever sees the coarser ones alone faces a hidden chain (s1,z), z the
state before and s1 the finer memory. With the law b(s1,z) given her releases, and y1 read off s1',

    shown(s1',z) = sum over next(s1,y1) = s1' of b(s1,z) a(y1|z,s1)          q(y1) = its sum over z
    L(q, c)      bits that the next coarser release tells of y1: no less than what it tells of x
    b'(s1',z')   = sum_z shown(s1',z) c(y2|y1,s2) P(z,z') / p(y2)

The same with the stationary law of (s2,s1,z) gives her rate and distances (`Behind`). Nothing of this believes that
the finer releases are a chain: they are none.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import lcm

import numpy as np

from veilstream.control.accountant import Accountant, Streams
from veilstream.control.automaton import Automaton, kernel_of, product, window
from veilstream.control.controller import MAX_PLACES, Controller, controller_of
from veilstream.control.policy import Policy
from veilstream.control.stationary import LARGE, LongRun, Rates, Step, long_run
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, Index
from veilstream.model.problem import leakage, output_law

MOST_CELLS = 1 << 25  # numbers in a law of (s2,s1,z), or in the tables of a joint mechanism


@dataclass(frozen=True, eq=False)
class Finer:
    """A finer audience's policy on a person's chain, as whoever sees what is made of its releases knows it.

    >>> import veilstream as vs
    >>> solution = vs.solve("builtin:binary", avg=0.1, window=1)
    >>> finer = Finer.of(solution.problem.chain, solution.policy)
    >>> finer.last.tolist(), finer.law.round(3).tolist()
    ([0, 1], [[0.45, 0.05], [0.05, 0.45]])
    """

    chain: MarkovChain
    policy: Controller  # its memory names the last release
    last: Index  # S1: the symbol that the coarser policy looks at, of the release that led to each memory
    n_shown: int  # symbols that it may look at
    _moves: dict[tuple[int, int], Array] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, chain: MarkovChain, policy: Policy, shows: Index | None = None) -> "Finer":
        """shows: the symbol of each release, where that is another; raises InputError where it is no finite policy."""
        found = controller_of(policy)
        if policy.moves_by is not None or found is None or chain.order > 1 or long_run(chain, found) is None:
            raise InputError(
                "only a finite policy for a chain of order 1 can have an audience behind it: no frame of veil start, "
                "no feedback, no order 2 or more"
            )
        shows = np.arange(found.n_outputs) if shows is None else shows
        own, last = found, found.automaton.newest
        if last is None:
            memory, both = product(found.automaton, window(found.n_outputs, 1), (found.first, 0))
            start = int(np.flatnonzero((both == (found.first, 0)).all(1))[0])
            own, last = found.on(memory, both[:, 0], start), both[:, 1]
        return cls(chain, own, shows[last], int(shows.max()) + 1)

    @classmethod
    def through(cls, chain: MarkovChain, policies: Sequence[Policy]) -> "Finer":
        """What is known of the last of these audiences, the finest first."""
        found = cls.of(chain, policies[0])
        for coarse in policies[1:]:
            assert isinstance(coarse, Controller)
            found = found.then(coarse)
        return found

    def then(self, coarse: Controller) -> "Finer":
        """The same with a coarser audience, for one that is coarser still."""
        pairs = joint(self.policy, coarse, self.of_release)
        return Finer.of(self.chain, pairs, np.tile(np.arange(coarse.n_outputs), self.policy.n_outputs))

    @cached_property
    def of_release(self) -> Index:
        """The symbol of each of its releases."""
        found = np.zeros(self.policy.n_outputs, np.int64)
        found[np.tile(np.arange(self.policy.n_outputs), len(self.last))] = self.last[
            self.policy.automaton.table.ravel()
        ]
        return found

    @cached_property
    def run(self) -> LongRun:
        return LongRun(self.chain, self.policy)

    @cached_property
    def law(self) -> Array:
        """m(z,y1) in the long run, |Z| x |Y1|, by the symbols that are looked at."""
        return self.by_symbol(self.run.joint.T, self.of_release).T

    @cached_property
    def transition(self) -> Array:
        """P(y1'|y1), as often as one follows the other: a chain to design with, and no more."""
        pairs = np.zeros((self.n_shown, self.n_shown))
        around = self.run.steps
        for k, (step, mu) in enumerate(zip(around, self.run.laws, strict=True)):
            shown, then = step.kernel.arrive(step.r, mu / step.N), around[(k + 1) % len(around)]
            for y in range(self.n_shown):  # those that have just shown y, a step later
                now = np.where((self.last == y)[:, None], shown, 0) @ step.moves
                pairs[y] += self.by_symbol(then.shown(now).sum(0), self.of_release) / len(around)
        total = pairs.sum(1, keepdims=True)
        return np.where(total > 0, pairs / np.where(total > 0, total, 1), pairs.sum(0) / pairs.sum())

    def by_symbol(self, p: Array, of: Index) -> Array:
        """Sums over the first axis by the symbols `of` its places."""
        found = np.zeros((self.n_shown, *p.shape[1:]))
        np.add.at(found, of, p)
        return found

    def moves(self, f: int, z: int) -> Array:
        """P(s1'|s1) of one true state in one phase, S1 x S1'."""
        if (f, z) not in self._moves:
            own, S1 = self.policy, len(self.policy.automaton)
            moves = kernel_of(own.automaton, own.kernel[f][:, [z]])
            each = np.eye(S1)[..., None] / own.normaliser[f, :, z][:, None, None]  # S1 x S1 x 1, one memory each
            self._moves[f, z] = moves.arrive(own.output_model[f], each)[..., 0]
        return self._moves[f, z]

    def seen(self, coarse: Controller) -> Controller:
        """The coarser policy as a function of the finer memory s1'."""
        return replace(coarse, kernel=coarse.kernel[:, :, self.last], chain=None)


def joint(finer: Controller, coarse: Controller, shows: Index | None = None) -> Controller:
    """Both audiences' releases as those of one controller: (y1, y2) is number y1 |Y2| + y2."""
    shows = np.arange(finer.n_outputs) if shows is None else shows
    S1, Y1, S2, Y2 = len(finer.automaton), finer.n_outputs, len(coarse.automaton), coarse.n_outputs
    if S1 * S2 * Y1 * Y2 > MOST_CELLS:
        raise InputError(f"{S1} x {S2} memories and {Y1} x {Y2} releases are too many for one table of all audiences")
    one, other = finer.automaton, coarse.automaton
    s1, s2 = (v.ravel() for v in np.indices((S1, S2)))
    group = one.group[s1] * len(other.to) + other.group[s2]
    order = np.argsort(group, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    y1, y2 = (v.ravel() for v in np.indices((Y1, Y2)))
    g1, g2 = (v.ravel() for v in np.indices((len(one.to), len(other.to))))
    to = number[one.to[g1][:, y1] * S2 + other.to[g2][:, y2]]
    s1, s2 = s1[order], s2[order]
    phases, turn = list[tuple[int, int]](), list[int]()
    for f1, f2 in round_of(finer, coarse):
        if (f1, f2) not in phases:
            phases.append((f1, f2))
        turn.append(phases.index((f1, f2)))
    r, K = [], []
    for f1, f2 in phases:
        c = coarse.at_phase(f2).channel(np.arange(S2))  # S2 x |X| x Y2
        r.append(finer.output_model[f1][s1][:, y1] * c[:, shows][s2[:, None], y1, y2])
        K.append(finer.kernel[f1][g1][:, :, y1])
    own = finer.turn is None and coarse.places == 1  # the phase is the place, as the finer one's
    first = int(number[finer.first * S2 + coarse.first])
    tables = np.stack(r), np.stack(K)
    return Controller(Automaton(group[order], to), *tables, first, None if own else np.array(turn), chain=finer.chain)


def round_of(finer: Controller, coarse: Controller) -> list[tuple[int, int]]:
    """The phases of both at each step of their common round."""
    n = lcm(finer.places, coarse.places)
    if n > MAX_PLACES:
        raise InputError(
            f"the rounds of {finer.places} and {coarse.places} steps have no common one under {MAX_PLACES}"
        )
    turns = [np.arange(p.places) if p.turn is None else p.turn for p in (finer, coarse)]
    return [(int(turns[0][k % finer.places]), int(turns[1][k % coarse.places])) for k in range(n)]


# --- what the coarser audience alone learns ----------------------------------------------------------------


class BehindStep:
    """One step of the law of (s2,s1,z), (S2 S1) x |Z|, as `stationary.Step` is one of (s,z)."""

    def __init__(self, finer: Step, coarse: Step) -> None:
        self.finer, self.coarse = finer, coarse
        self.shape = len(coarse.automaton), len(finer.automaton), len(finer.chain)

    def _shown(self, mu: Array) -> Array:
        """The law once the finer release is drawn, |Z| x S2 x S1'."""
        after = self.finer.kernel.arrive(self.finer.r, mu.reshape(self.shape) / self.finer.N)
        return np.moveaxis(after, -1, 0)

    def __call__(self, mu: Array) -> Array:
        led = self.coarse.kernel.arrive(self.coarse.r, self._shown(mu) / self.coarse.N)
        return np.moveaxis(led, 0, -1).reshape(mu.shape) @ self.finer.moves

    def rates(self, mu: Array, d: Array) -> Rates:
        """I(Y1;Y2|s2), and the mean of d(z,y2)."""
        shown = self._shown(mu)
        bits = self.coarse.rates(shown.sum(0), np.zeros((self.shape[1], self.coarse.automaton.n_outputs))).leakage
        return Rates(bits, float((self.joint(shown) * d).sum()))

    def joint(self, shown: Array) -> Array:
        """m(z,y2), |Z| x |Y2|."""
        return np.asarray(self.coarse.kernel.joint(self.coarse.r, shown / self.coarse.N).sum(1))

    def shown(self, mu: Array) -> Array:
        return self.joint(self._shown(mu))

    def guess(self) -> Array:
        pairs = self.shape[0] * self.shape[1]
        return np.tile(self.finer.chain.stationary / pairs, (pairs, 1))

    def opening(self, initial: Array) -> Array:
        mu = np.zeros((self.shape[0] * self.shape[1], self.shape[2]))
        mu[self.coarse.first * self.shape[1] + self.finer.first] = initial
        return mu


class Behind(LongRun):
    """The long run of whoever sees the coarser releases alone: rates, laws, start-up bits as of any controller."""

    def __init__(self, finer: Finer, coarse: Controller) -> None:
        seen, own, chain = finer.seen(coarse), finer.policy, finer.chain
        if len(seen.automaton) * len(own.automaton) * len(chain) > MOST_CELLS:
            raise InputError("too many memories for a law of both audiences; give the coarser policy `window=1`")
        if chain.phases > 1 and seen.places > 1:
            raise InputError("behind a policy with a public clock the coarser one can have no rounds of its own")
        self.chain, self.policy = chain, seen
        if chain.phases > 1:
            around = [(f if own.phases > 1 else 0, 0, f) for f in chain.around.tolist()]
        else:
            around = [(f1, f2, 0) for f1, f2 in round_of(own, seen)]
        made = {
            (f1, f2, f): BehindStep(Step(chain.at(f), own, f1), Step(chain.at(f), seen, f2))
            for f1, f2, f in dict.fromkeys(around)
        }
        self.steps = [made[phases] for phases in around]  # type: ignore[misc]  # they do what a `Step` does
        self._guess = near(finer, coarse) if len(around) == 1 else None

    def startup_bits(self, d: Array) -> float | None:
        """None too where the law is large: the first steps are many, and each would be looked at."""
        return None if self.laws[0].size >= LARGE else super().startup_bits(d)


def near(finer: Finer, coarse: Controller) -> Array:
    """A law of (s2,s1,z) to begin from: P(s2|y1), as if finer releases were a chain, by the law of (s1,z)."""
    believed = MarkovChain(finer.transition)
    [step], [law] = (run := LongRun(believed, coarse)).steps, run.laws
    after = step.kernel.arrive(step.r, law / step.N)  # S2 x |Y1|
    share = after.sum(0)
    given = np.where(share > 0, after / np.where(share > 0, share, 1), 1 / len(after))
    return np.asarray((given[:, finer.last, None] * finer.run.laws[0]).reshape(-1, len(finer.chain)))


@dataclass(frozen=True, eq=False)
class BehindFilter(Accountant):
    """L(q, c) at the belief of whoever sees the coarser releases alone: the sum bounds what they tell of x."""

    finer: Finer

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self.finer.policy.automaton), len(self.finer.chain)

    def start(self, step: Index) -> Array:
        b = np.zeros((len(step), *self._shape))
        b[:, self.finer.policy.first] = self.finer.chain.initial_at(step)
        return b.reshape(len(step), -1)

    def settled(self, step: Index) -> Array:
        """The beliefs about finer streams that have run for long, of which nothing was seen."""
        laws, places = self.finer.run.laws, self._places(step)
        return np.stack([laws[k].ravel() for k in places])

    def _places(self, step: Index) -> Index:
        """The place of each step in the round of the finer policy's long run."""
        run, chain = self.finer.run, self.finer.chain
        if chain.phases > 1:
            return np.asarray((chain.phase(step)[:, None] == chain.around).argmax(1))
        return np.asarray(self.finer.policy.place_at(step) % len(run.steps))

    def shown(self, s: Streams) -> Array:
        """The law once the finer release is drawn, n x S1' x |Z|."""
        b, places = s.belief.reshape(-1, *self._shape), self._places(s.step)
        found = np.empty_like(b)
        for k in np.unique(places).tolist():
            step, at = self.finer.run.steps[k], places == k
            found[at] = step.kernel.arrive(step.r, b[at] / step.N)
        return found

    def _moved(self, shown: Array, step: Index) -> Array:
        n, S1, Z = shown.shape
        return self.finer.chain.moved(shown.reshape(-1, Z), np.repeat(step, S1)).reshape(n, -1)

    def charge(self, s: Streams, a: Array | None) -> tuple[Array, Array | None]:
        assert a is not None
        q = self.finer.by_symbol(self.shown(s).sum(-1).T, self.finer.last).T
        return leakage(q, a), output_law(q, a)

    def observe(
        self, s: Streams, a: Array | None, y: Index, a_y: Array | None = None, p_y: Array | None = None
    ) -> Array:
        assert a is not None
        shown = self.shown(s) * a[np.arange(len(y)), :, y][:, self.finer.last, None]
        return self._moved(shown / shown.sum((1, 2), keepdims=True), s.step)

    def skip(self, s: Streams, k: int) -> tuple[Array, Array]:
        b, (S1, Z) = s.belief, self._shape
        law = b.reshape(-1, Z)
        share = law.sum(-1, keepdims=True)  # of the memory: what is later is a law again, and so must be what is now
        later = share * self.finer.chain.later(law / np.where(share > 0, share, 1), k, np.repeat(s.step, S1))
        return np.zeros(len(s.step)), np.where(share > 0, later, 0).reshape(b.shape)

    def silent(self, s: Streams) -> tuple[Array, Array]:
        """The finer release was drawn, though nothing was made of it."""
        return np.zeros(len(s.step)), self._moved(self.shown(s), s.step)
