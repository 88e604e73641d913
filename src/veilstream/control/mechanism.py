"""THE release loop: the protocol of `policy` on true data, with a meter and its ceiling.

    view = look(memory, b)          the channel a, the output law p, and the bits L(b, a) this step will add
    y ~ a[z]                        the draw
    memory, b <- after(view, y)     and the bits are added up

A gateway and a releaser draw from the row of the true state; a simulation that needs no true state draws from p; an
adversary is told y. All of them run these three lines and no others: `replay.replay` along recorded streams.

The meter, the ceiling and the memory are functions of released data alone. The true state z enters in one place, the
row of the channel that is drawn from, and every step does the same work whatever z is. z = BLIND means "do not look":
y is then drawn from the output law p(y) = sum_z b(z) a(y|z).

Under a ceiling total + L(b, a) is tested before the draw. Beyond it the channel has one row for all states, the output
law restricted to what every state may show: nothing is added, and the belief moves by P alone. Where no output is open
to every state the stream is silent (y = SILENT) for that step.
"""

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.control.accountant import Accountant, BeliefFilter, Capacity, Streams
from veilstream.control.adaptive import Ladder
from veilstream.control.controller import Controller
from veilstream.control.feedback import BOTTOM, DOWN, HALF, STAY, UP, WAYS, Excess
from veilstream.control.policy import Lookup, Policy
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain, draw
from veilstream.model.histories import BLIND, TrueStates
from veilstream.model.information import Array, Index, dot
from veilstream.model.problem import Problem

MOST_CELLS = 1 << 24  # channel entries held at once
SILENT = -1  # as a release: nothing was released at this step

MeterName = Literal["exact", "capacity"]


class View(NamedTuple):
    """What anybody who saw the releases knows before the next one."""

    channel: Array | None  # the policy's, n x |Z| x |Y|; None where draws and meter are look-ups by memory
    used: Array | None  # from the true states, as it is really used: see BeliefFilter
    law: Array | None  # n x |Y|; None if the meter has none
    bits: Array  # n, that the release will add
    over: NDArray[np.bool_] | None = None  # n, beyond the ceiling: nobody looks; None where no stream is


class Mechanism:
    """A policy with its meter and ceiling: everything about releasing that is the same for all streams."""

    def __init__(
        self,
        policy: Policy,
        problem: Problem | None = None,
        ceiling: float | None = None,
        meter: MeterName | Accountant = "exact",
        sighted: bool | None = None,
    ) -> None:
        """sighted: for many streams, that no true state will be BLIND, or (False) that all will be: then the row of the
        state, or the output law, is all there is to draw from, and tables do instead of a channel of each stream."""
        check_asked(policy, problem, ceiling)
        self.policy, self.ceiling = policy, ceiling
        self.meter = accountant(policy, problem, meter) if isinstance(meter, str) else meter
        chain = policy.chain if problem is None else problem.chain
        # with every state possible no release is impossible, and that need not be looked after
        self.possible = chain is not None and every_state_possible(chain)
        self.safe = None if problem is None or problem.forbidden is None else problem.open  # without looking
        self.table = policy.table()
        self.sighted = sighted
        self.lookup = self._lookup() if sighted is not None and self.safe is None else None
        self.true_states = TrueStates.plain(policy.n_states) if chain is None else TrueStates.of(chain)
        self.open = np.ones(policy.n_outputs, bool) if problem is None else problem.allowed.all(0)

    def _lookup(self) -> Lookup | Controller | None:
        """What gives rows and columns of channels by memory, where these do instead of a channel of every stream."""
        if type(self.meter) is Accountant:
            return self.policy if self.sighted and isinstance(self.policy, Controller) else None
        possible = self.possible or not self.sighted
        return self.meter.lookup if possible and isinstance(self.meter, BeliefFilter) else None

    def start(self, n: int, step: ArrayLike = 0) -> Streams:
        """n streams that begin at these public steps."""
        first = np.broadcast_to(np.asarray(step, np.int64), n).copy()
        memory, belief = self.policy.at(self.policy.start(n), first), self.meter.start(first)
        return Streams(memory, belief, np.zeros(n), first)

    def skip(self, s: Streams, k: int = 1) -> Streams:
        """k steps without a release."""
        bits, belief = self.meter.skip(s, k)
        return Streams(self.policy.at(self.policy.skip(s.memory, k), s.step + k), belief, s.total + bits, s.step + k)

    def move(self, s: Streams, account: Excess) -> Streams:
        """The public moves of streams that passed a boundary since their last release."""
        assert isinstance(self.policy, Ladder)  # nothing else moves
        return moved(self.policy, self.meter, self.ceiling, s, account)

    def step(self, s: Streams, z: Index, u: Array) -> tuple[Streams, Index]:
        """One step of every stream: true states z (BLIND: do not look), uniforms u -> new state, releases y."""
        most = max(1, MOST_CELLS // (self.policy.n_states * self.policy.n_outputs))
        if self.lookup is not None or len(z) <= most:
            view = self.look(s)
            y = self.draw(s, view, z, u)
            return self.after(s, view, y), y
        parts = [self.step(s[i : i + most], z[i : i + most], u[i : i + most]) for i in range(0, len(z), most)]
        joined = (np.concatenate([getattr(p, k) for p, _ in parts]) for k in Streams.__annotations__)
        return Streams(*joined), np.concatenate([y for _, y in parts])

    def look(self, s: Streams) -> View:
        a = None
        if self.lookup is None:
            a = self.table[s.memory] if self.table is not None else self.policy.channel(s.memory)
        used = self.meter.used(s.belief, a)
        bits, law = self.meter.charge(s, used)
        if self.ceiling is None or not (over := s.total + bits > self.ceiling).any():
            return View(a, used, law, bits)
        assert law is not None
        if self.lookup is not None:
            used = self.policy.channel(s.memory)
        shown = np.where(self.open, law, 0)
        shown = np.where(shown.any(-1, keepdims=True), shown, law)  # of a stream that will be silent
        law = np.where(over[:, None], shown / shown.sum(-1, keepdims=True), law)
        if used is not None:  # a channel whose rows are all alike reveals nothing: its Bayes step is b P
            used = np.where(over[:, None, None], law[:, None, :], used)
        return View(a, used, law, np.where(over, 0, bits), over)

    def draw(self, s: Streams, view: View, z: Index, u: Array) -> Index:
        """y ~ a[z], or from the output law where z is BLIND or beyond the ceiling: of that only what every state may
        show, or SILENT."""
        y = self._drawn(s, view, z, u)
        if view.over is None:
            return y
        assert view.law is not None
        silent = ~(view.law[:, self.open] > 0).any(-1)
        return np.where(view.over, np.where(silent, SILENT, draw(view.law, u)), y)

    def _drawn(self, s: Streams, view: View, z: Index, u: Array) -> Index:
        if self.sighted is False and view.law is not None:
            return draw(view.law, u)
        if isinstance(self.lookup, Lookup):
            return self.lookup.draw(s.memory, z, u)
        if self.lookup is not None:
            return draw(self.lookup.rows(s.memory, z), u)
        assert view.channel is not None
        seen = self.table[s.memory, z] if self.table is not None else view.channel[np.arange(len(z)), z]
        if view.law is None:
            return draw(seen, u)
        blind = z == BLIND
        if not self.possible:
            seen = np.where(view.law > 0, seen, 0)  # nothing the model calls impossible
            blind |= ~seen.any(-1)
        law = view.law if self.safe is None else np.where(self.safe, view.law, 0)
        y = draw(np.where(blind[:, None], law, seen), u)
        return y if self.safe is None else np.where(blind & ~law.any(-1), SILENT, y)

    def column(self, s: Streams, view: View, y: Index) -> Array:
        """a(y|.) of the releases y, n x |Z|."""
        if self.lookup is not None:
            return self.lookup.columns(s.memory, y)
        assert view.channel is not None
        return np.asarray(view.channel[np.arange(len(y)), :, y])

    def density(self, s: Streams, view: View, z: Index, y: Index) -> Array:
        """log2 a(y|z)/q(y) of each stream, a the row that y was really drawn from: what q calls impossible is left out.

        Its mean bounds what releases reveal, whatever the law of the data (`universal_bound`). 0 where the meter keeps
        no output law.
        """
        if self.lookup is not None and isinstance(self.meter, BeliefFilter):  # beliefs hold every state possible
            a_y = self.lookup.columns(s.memory, y)
            return np.asarray(np.log2(a_y[np.arange(len(z)), z] / dot(s.belief, a_y)))
        if view.law is None or view.channel is None:
            return np.zeros(len(y))
        each = np.arange(len(z))
        row = np.where(view.law > 0, view.channel[each, z], 0)
        total, q = row.sum(-1), view.law[each, y]
        # a row that is all impossible is drawn from the law itself, and reveals nothing
        return np.asarray(np.log2(np.where(total > 0, row[each, y] / np.where(total > 0, total, 1), q) / q))

    def after(self, s: Streams, view: View, y: Index) -> Streams:
        """The public state after the releases y (SILENT: what was known before, a step later)."""
        if (self.safe is None and view.over is None) or not (silent := y == SILENT).any():
            return self._after(s, view, y)
        assert view.law is not None
        after = self._after(s, view, np.where(silent, view.law.argmax(-1), y))
        bits, belief = self.meter.silent(s)
        after.memory[silent] = self.policy.at(self.policy.skip(s.memory), s.step + 1)[silent]
        after.belief[silent] = belief[silent]
        added = silent if view.over is None else silent & ~view.over
        after.total[added] = (s.total + bits)[added]
        return after

    def _after(self, s: Streams, view: View, y: Index) -> Streams:
        memory = self.policy.update(s.memory, y, view.used)
        column = p_y = None
        if self.lookup is not None and view.used is None and isinstance(self.meter, BeliefFilter):
            column = self.lookup.columns(s.memory, y)
            p_y = None if view.law is None else np.take_along_axis(view.law, y[:, None], -1)
        belief, total = self.meter.observe(s, view.used, y, column, p_y), s.total + view.bits
        if view.over is not None and self.policy.moves_by is not None:  # its charge is one sum: it ends for good
            total = np.where(view.over, np.maximum(total, self.ceiling), total)  # type: ignore[arg-type]
        return Streams(self.policy.at(memory, s.step + 1), belief, total, s.step + 1)


def moved(policy: Any, meter: Accountant, ceiling: float | None, s: Streams, account: Excess) -> Streams:
    """The public moves of streams that passed a boundary since their last release; policy: one with feedback.

    The account is private, and leaves through these moves alone. A way beyond the ceiling, or that the meter has no
    price for (infinite), is not open, and the next one towards staying is taken instead; which ones are is public.
    """
    due, since = account.rule.passed(account.last, s.step), s.step - account.last
    if not due.any():
        return s
    to = [policy.moved(s.memory, np.full(len(due), way)) for way in WAYS]
    priced = [meter.move(s, memory, since) for memory in to]
    open = [s.total + bits < (np.inf if ceiling is None else ceiling) for bits, _ in priced]
    due = due & open[STAY]
    way = account.way(due, policy.rung(s.memory))
    for closed, other in ((BOTTOM, HALF), (HALF, DOWN), (DOWN, STAY), (UP, STAY)):
        way = np.where((way == closed) & ~open[closed], other, way)
    each = np.arange(len(way))
    bits, memory = np.choose(way, [bits for bits, _ in priced]), np.stack(to)[way, each]
    belief = np.stack([belief for _, belief in priced])[way, each]
    belief = np.where(due[:, None], belief, s.belief)
    return Streams(memory, belief, s.total + np.where(due, bits, 0), s.step)


def every_state_possible(chain: MarkovChain) -> bool:
    """At every step, whatever was released: then no release can be impossible."""
    return bool((chain.rarest > 0).all() and (chain.initial > 0).all())


def check_asked(policy: Policy, problem: Problem | None, ceiling: float | None) -> None:
    """Raises InputError unless the policy is for the problem, and the ceiling can be kept."""
    if problem is not None:
        check_fits(policy, problem)
    if ceiling is not None and not ceiling >= 0:
        raise InputError(f"ceiling must be a number of bits >= 0, found {ceiling}")
    if ceiling is not None and problem is None:
        raise InputError("a ceiling needs the problem the policy was made for (problem=...)")


def check_fits(policy: Policy, problem: Problem) -> None:
    if (policy.n_states, policy.n_outputs) != problem.distortion.shape:
        raise InputError(
            f"the policy is for {policy.n_states} states and {policy.n_outputs} releases, "
            f"the problem has {problem.n_states} and {problem.n_outputs}"
        )


def accountant(policy: Policy, problem: Problem | None, meter: str) -> Accountant:
    """The meter of that name."""
    if meter not in get_args(MeterName):
        raise InputError(f"unknown meter {meter!r}; known: {', '.join(get_args(MeterName))}")
    chain = policy.chain if problem is None else problem.chain
    if meter == "capacity" or (chain is None and policy.n_memories is not None):
        return Capacity(policy)
    if chain is None:
        raise InputError("the meter needs the chain: pass problem=...")
    return policy.own_meter(chain) if isinstance(policy, Ladder) else BeliefFilter.of(chain, policy)
