"""THE release loop: the protocol of `policy` on true data, with a meter and its ceiling.

    view = look(memory, b)          the channel a, the output law p, and the bits L(b, a) this step will add
    y ~ a[z]                        the draw
    memory, b <- after(view, y)     and the bits are added up

A gateway and a releaser draw from the row of the true state; a simulation that needs no true state draws from p; an
adversary is told y. All of them run these three lines and no others.

The meter, the ceiling and the memory are functions of released data alone. The true state z enters in one place, the
row of the channel that is drawn from, and every step does the same work whatever z is. z = BLIND means "do not look":
y is then drawn from the output law p(y) = sum_z b(z) a(y|z).

Under a ceiling total + L(b, a) is tested before the draw. Beyond it y comes from the output law, restricted to what
every state may show, and the belief moves by P alone; where no output is open to every state the stream is silent
(y = SILENT) for that step.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from veilstream.control.accountant import Accountant, BeliefFilter, Capacity, Channels, Streams, TableMeter
from veilstream.control.adaptive import Ladder
from veilstream.control.controller import Controller
from veilstream.control.feedback import BOTTOM, DOWN, HALF, STAY, UP, WAYS, Excess
from veilstream.control.policy import Policy
from veilstream.control.uniforms import uniforms
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain, draw
from veilstream.model.histories import BLIND, TrueStates
from veilstream.model.information import Array, Index
from veilstream.model.problem import Problem, capacity

MOST_CELLS, AT_HAND = 1 << 24, 1 << 16  # channel entries held at once; belief entries that stay in a processor's cache
SILENT = -1  # as a release: nothing was released at this step

MeterName = Literal["exact", "table", "capacity"]


class View(NamedTuple):
    """What anybody who saw the releases knows before the next one."""

    channel: Array | None  # the policy's, n x |Z| x |Y|; None where draws and meter are look-ups by memory
    used: Array | None  # from the true states, as it is really used: see BeliefFilter
    law: Array | None  # n x |Y|; None if the meter has none
    bits: Array  # n, that the release will add


class Mechanism:
    """A policy with its meter and ceiling: everything about releasing that is the same for all streams."""

    def __init__(
        self,
        policy: Policy,
        problem: Problem | None = None,
        ceiling: float | None = None,
        meter: MeterName | Accountant = "exact",
        sighted: bool = False,
    ) -> None:
        """sighted: no true state will be BLIND, so that its row is all there is to draw from; for many streams."""
        check_asked(policy, problem, ceiling)
        self.policy, self.ceiling = policy, ceiling
        self.table = policy.table()
        self.meter = accountant(policy, problem, meter, self.table) if isinstance(meter, str) else meter
        # with every entry positive no release is impossible, and that need not be looked after
        chain = policy.chain if problem is None else problem.chain
        possible = chain is not None and every_state_possible(chain)
        self.positive = possible and self.table is not None and bool((self.table > 0).all())
        self.safe = None if problem is None or problem.forbidden is None else problem.open  # without looking
        self.drawn: Array | None = None  # cumulative rows by memory
        self.lookup: Channels | Controller | None = None  # then nobody asks for a channel of every stream
        if self.safe is None:
            self.drawn, self.lookup = self._look_ups(sighted, possible)
        self.true_states = TrueStates.plain(policy.n_states) if chain is None else TrueStates.of(chain)
        self.open = np.ones(policy.n_outputs, bool) if problem is None else problem.allowed.all(0)

    def _look_ups(self, sighted: bool, possible: bool) -> tuple[Array | None, Channels | Controller | None]:
        """Cumulative rows by memory, and columns of channels, where these do instead of a channel of every stream."""
        if self.table is not None and isinstance(self.meter, TableMeter):
            return Channels(self.table).cumulative(self.meter.law), None
        if sighted and isinstance(self.meter, BeliefFilter):
            found = self.meter.lookup
            if isinstance(found, Channels) and self.positive:
                return found.cumulative(found.table[:, 0]), found
            return None, found if isinstance(found, Controller) and possible else None
        plain = sighted and type(self.meter) is Accountant
        return None, self.policy if plain and isinstance(self.policy, Controller) else None

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
        """The public moves of streams that passed a boundary since their last release.

        The account is private, and leaves through these moves alone. A way beyond the ceiling, or that the meter has no
        price for (infinite), is not open, and the next one towards staying is taken instead; which ones are is public.
        """
        due, since = account.rule.passed(account.last, s.step), s.step - account.last
        if not due.any():
            return s
        policy = self.policy
        assert isinstance(policy, Ladder)  # nothing else moves
        to = [policy.moved(s.memory, np.full(len(due), way)) for way in WAYS]
        priced = [self.meter.move(s, memory, since) for memory in to]
        open = [s.total + bits < (np.inf if self.ceiling is None else self.ceiling) for bits, _ in priced]
        due = due & open[STAY]
        way = account.way(due, policy.rung(s.memory))
        for closed, other in ((BOTTOM, HALF), (HALF, DOWN), (DOWN, STAY), (UP, STAY)):
            way = np.where((way == closed) & ~open[closed], other, way)
        bits, memory = np.choose(way, [bits for bits, _ in priced]), np.choose(way, to)
        belief = np.stack([belief for _, belief in priced])[way, np.arange(len(way))]
        belief = np.where(due[:, None], belief, s.belief)
        return Streams(memory, belief, s.total + np.where(due, bits, 0), s.step)

    def step(self, s: Streams, z: Index, u: Array) -> tuple[Streams, Index]:
        """One step of every stream: true states z (BLIND: do not look), uniforms u -> new state, releases y."""
        most = max(1, MOST_CELLS // (self.policy.n_states * self.policy.n_outputs))
        if self.drawn is not None or len(z) <= most:
            return self._step(s, z, u)
        parts = [self._step(s[i : i + most], z[i : i + most], u[i : i + most]) for i in range(0, len(z), most)]
        joined = (np.concatenate([getattr(p, k) for p, _ in parts]) for k in Streams.__annotations__)
        return Streams(*joined), np.concatenate([y for _, y in parts])

    def _step(self, s: Streams, z: Index, u: Array) -> tuple[Streams, Index]:
        view = self.look(s)
        y = self.draw(s, view, z, u)
        if self.safe is None or not (silent := y == SILENT).any():
            return self._settled(s, view, y, u)
        assert view.law is not None
        after, y = self._settled(s, view, np.where(silent, view.law.argmax(-1), y), u)
        self._quiet(s, after, silent)
        return after, np.where(silent, SILENT, y)

    def _settled(self, s: Streams, view: View, y: Index, u: Array) -> tuple[Streams, Index]:
        return (self.after(s, view, y), y) if self.ceiling is None else self._under_ceiling(s, view, y, u)

    def _quiet(self, s: Streams, after: Streams, silent: Index) -> None:
        """Streams that released nothing: what was known before, a step later."""
        bits, belief = self.meter.silent(s)
        after.memory[silent] = self.policy.at(self.policy.skip(s.memory), s.step + 1)[silent]
        after.belief[silent] = belief[silent]
        after.total[silent] = (s.total + bits)[silent]

    def look(self, s: Streams) -> View:
        a = None
        if self.drawn is None and self.lookup is None:
            a = self.table[s.memory] if self.table is not None else self.policy.channel(s.memory)
        used = self.meter.used(s.belief, a)
        bits, law = self.meter.charge(s, used)
        return View(a, used, law, bits)

    def draw(self, s: Streams, view: View, z: Index, u: Array) -> Index:
        """y ~ a[z], or from the output law where z is BLIND: of that only what is forbidden to no state, or SILENT."""
        if self.drawn is not None:  # channel, law and bits depend on the memory alone: one look-up each
            S, rows, Y = self.drawn.shape
            row = self.drawn.reshape(S * rows, Y).take(s.memory * rows + z % rows, 0)
            passed = (row <= u[:, None]).astype(np.float32)  # counted by a product: a sum takes four times as long
            return np.asarray(passed @ np.ones(Y, np.float32), np.int64)
        if self.lookup is not None:
            return draw(self.lookup.rows(s.memory, z), u)
        assert view.channel is not None
        seen = self.table[s.memory, z] if self.table is not None else view.channel[np.arange(len(z)), z]
        if view.law is None:
            return draw(seen, u)
        blind = z == BLIND
        if not self.positive:
            seen = np.where(view.law > 0, seen, 0)  # nothing the model calls impossible
            blind |= ~seen.any(-1)
        law = view.law if self.safe is None else np.where(self.safe, view.law, 0)
        y = draw(np.where(blind[:, None], law, seen), u)
        return y if self.safe is None else np.where(blind & ~law.any(-1), SILENT, y)

    def after(self, s: Streams, view: View, y: Index) -> Streams:
        memory = self.policy.update(s.memory, y, view.used)
        column = p_y = None
        if self.lookup is not None and view.used is None and isinstance(self.meter, BeliefFilter):
            column = self.lookup.columns(s.memory, y)
            p_y = None if view.law is None else np.take_along_axis(view.law, y[:, None], -1)
        belief = self.meter.observe(s, view.used, y, column, p_y)
        return Streams(self.policy.at(memory, s.step + 1), belief, s.total + view.bits, s.step + 1)

    def _under_ceiling(self, s: Streams, view: View, y: Index, u: Array) -> tuple[Streams, Index]:
        """The step where some streams may not look any more; which ones is public."""
        over = s.total + view.bits > (np.inf if self.ceiling is None else self.ceiling)
        if not over.any():
            return self.after(s, view, y), y
        a, law = view.used if self.lookup is None else self.policy.channel(s.memory), view.law
        assert law is not None
        silent = over & ~(law[:, self.open] > 0).any(-1)
        shown = np.where(self.open, law, 0)
        shown[silent] = law[silent]
        y = np.where(over, draw(shown, u), y)
        if a is not None:  # a channel whose rows are all alike tells nothing: its Bayes step is b P
            a = np.where(over[:, None, None], (shown / shown.sum(-1, keepdims=True))[:, None, :], a)
        after = self.after(s, View(a, a, law, np.where(over, 0, view.bits)), y)
        after.memory[silent] = self.policy.at(self.policy.skip(s.memory), s.step + 1)[silent]
        after.belief[silent] = self.meter.silent(s)[1][silent]
        if self.policy.moves_by is not None and self.ceiling is not None:  # its charge is one sum: it ends for good
            after.total[over] = np.maximum(after.total[over], self.ceiling)
        return after, np.where(silent, SILENT, y)


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


def accountant(policy: Policy, problem: Problem | None, meter: str, table: Array | None) -> Accountant:
    """The meter of that name."""
    if meter not in get_args(MeterName):
        raise InputError(f"unknown meter {meter!r}; known: {', '.join(get_args(MeterName))}")
    if meter == "capacity":
        return Capacity(policy)
    chain = policy.chain if problem is None else problem.chain
    if meter == "table":
        if table is None or problem is None:
            raise InputError("the table meter needs a window policy of moderate size and its problem")
        if problem.chain.order > 1 or problem.chain.phases > 1 or problem.forbidden is not None:
            raise InputError(
                "the table meter is for chains of order 1 without a clock and policies that forbid no confusions; use "
                "the exact one"
            )
        return TableMeter.of(table, problem.chain, policy)
    if chain is None:
        if table is None:
            raise InputError("the meter needs the chain: pass problem=...")
        return TableMeter(*capacity(table))
    if isinstance(policy, Ladder):
        return policy.own_meter(chain)
    return BeliefFilter.of(chain, None if table is None else Channels(table))


class Releaser:
    """One stream. `release(x)` gives what may be shown instead of the true symbol x.

    A policy from `solve` knows its chain, and the meter is exact. For a bare window policy without `problem` it
    charges each step the capacity of the channel, an upper bound for every chain. `step`: the public number of the
    first step, for a chain with a clock.

        >>> import veilstream as vs
        >>> solution = vs.solve("builtin:binary", avg=0.1)
        >>> releaser = vs.Releaser(solution.policy)            # draws come from the system's secure generator
        >>> shown = [releaser.release(x) for x in (0, 0, 1, None, 1)]
        >>> set(shown) <= {0, 1}, releaser.leaked_bits > 0
        (True, True)
    """

    def __init__(
        self,
        policy: Policy,
        problem: Problem | None = None,
        *,
        ceiling: float | None = None,
        meter: MeterName = "exact",
        seed: int | None = None,
        step: int = 0,
    ) -> None:
        self.mechanism = Mechanism(policy, problem, ceiling, meter)
        self._streams, self._uniforms = self.mechanism.start(1, step), uniforms(seed)
        self._private = np.array([BLIND])  # the last true state: leaves through the channel only
        self._feeling = Feeling(self.mechanism, problem, self._streams)

    @property
    def leaked_bits(self) -> float:
        """The public meter: sum of L(b_t, a_t) so far."""
        return float(self._streams.total[0])

    def release(self, x: int | None) -> int | None:
        """The release for the true symbol x (None: nothing was read); None: the stream is silent at this step."""
        symbol = _checked_symbols(BLIND if x is None else x, len(self.mechanism.true_states.first), BLIND)
        z = self.mechanism.true_states(self._private, symbol.reshape(1))
        self._streams, y = self._feeling.step(self._streams, z, self._uniforms(1))
        self._private = z
        return None if y[0] == SILENT else int(y[0])

    def skip(self, k: int = 1) -> None:
        """k steps without a release."""
        self._streams = self.mechanism.skip(self._streams, k)
        self._private = np.array([BLIND])


@dataclass(frozen=True, eq=False)
class Released:
    """What `release_many` gives: y is streams x steps (SILENT where nothing was released)."""

    y: Index
    leaked_bits: Array  # per stream


def release_many(
    policy: Policy,
    x: ArrayLike,
    problem: Problem | None = None,
    *,
    ceiling: float | None = None,
    meter: MeterName = "exact",
    seed: int | None = None,
    step: ArrayLike = 0,
) -> Released:
    """Many streams at once: true symbols x, streams x steps, each stream from its own start (at these public steps).

    >>> import veilstream as vs
    >>> solution = vs.solve("builtin:binary", avg=0.1)
    >>> vs.release_many(solution.policy, [[0, 0, 1], [1, 1, 1]]).y.shape
    (2, 3)
    """
    mechanism, source = Mechanism(policy, problem, ceiling, meter, sighted=True), uniforms(seed)
    x = np.asarray(x)
    if x.ndim != 2:
        raise InputError(f"x must be streams x steps, found {x.ndim} axes")
    x = _checked_symbols(x, len(mechanism.true_states.first), 0)
    streams, z, most = mechanism.start(len(x), step), np.full(len(x), BLIND), max(1, AT_HAND // policy.n_states)
    y, parts = np.empty(x.shape, dtype=np.int64), [slice(i, i + most) for i in range(0, len(x), most)]
    feelings = [Feeling(mechanism, problem, streams[part]) for part in parts]
    for t in range(x.shape[1]):
        u = source(len(x))
        for part, feeling in zip(parts, feelings, strict=True):
            z[part] = mechanism.true_states(z[part], x[part, t])
            now, y[part, t] = feeling.step(streams[part], z[part], u[part])
            streams.put(part, now)
    return Released(y, streams.total)


class Feeling:
    """Feedback where only states are known: distances are the problem's. Without a ladder there is nothing to do."""

    def __init__(self, mechanism: Mechanism, problem: Problem | None, s: Streams) -> None:
        rule = mechanism.policy.moves_by
        self.mechanism, self.account, self.distances = mechanism, None, np.zeros((0, 0))
        if rule is not None and problem is None:
            raise InputError("a ladder needs the problem it was made for (problem=...): its moves depend on distances")
        if rule is not None and problem is not None:
            self.account, self.distances = Excess.new(rule, s.step), problem.distortion

    def step(self, s: Streams, z: Index, u: Array) -> tuple[Streams, Index]:
        """A step of the mechanism, with the move before it and the distance after it."""
        if self.account is None:
            return self.mechanism.step(s, z, u)
        s = self.mechanism.move(s, self.account)
        after, y = self.mechanism.step(s, z, u)
        self.account.count(np.where((z == BLIND) | (y == SILENT), np.nan, self.distances[z, y]), s.step)
        return after, y


def _checked_symbols(x: ArrayLike, n: int, lowest: int) -> Index:
    """`x` as symbols 0..n-1; the line for bad ones does not say what they were."""
    x = np.asarray(x)
    if x.dtype.kind not in "iu" or (x.size and (x.min() < lowest or x.max() >= n)):
        raise InputError(f"a true symbol must be an integer from 0 to {n - 1} (use StateSpace.encode for readings)")
    return x.astype(np.int64)
