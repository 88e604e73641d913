"""Online release: the loop of `policy.py` on true data, with the public meter and its ceiling.

    a = policy.channel(memory);  y ~ a[z];  total += L(b, a);  memory, b <- update(y)

The meter, the ceiling and the memory are functions of released data alone. The true state z enters in one place, the
row of the channel that is drawn from, and every step does the same work whatever z is. z = -1 means "do not look":
y is then drawn from the output law p(y) = sum_z b(z) a(y|z).

Under a ceiling total + L(b, a) is tested before the draw. Beyond it y comes from the output law, restricted to what
every state may show, and the belief moves by P alone; where no output is open to every state the stream is silent
(y = -1) for that step.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.core.chain import MarkovChain, draw
from veilstream.core.information import Array, entropy
from veilstream.core.local.policy import LocalPolicy
from veilstream.core.policy import BeliefPolicy, Memory, Policy, Schedule, WindowPolicy
from veilstream.core.problem import Problem
from veilstream.errors import InputError
from veilstream.gateway.meter import ExactMeter, Meter, TableMeter, capacity_meter, window_table

BLIND = -1  # as a true state: draw without looking
MOST_CELLS = 1 << 24  # channel entries held at once: streams beyond that go in turn
SILENT = -1  # as a release: nothing was released at this step

Uniforms = Callable[[int], Array]
MeterName = Literal["exact", "table"]


class SecureUniforms:
    """53-bit uniforms in [0, 1) from the operating system's generator, fetched in blocks."""

    def __init__(self, block: int = 4096) -> None:
        self._block, self._pid = block, os.getpid()
        self._left: Array = np.empty(0)

    def __call__(self, n: int) -> Array:
        if self._pid != os.getpid():  # after a fork parent and child must not share draws
            self._left, self._pid = np.empty(0), os.getpid()
        if n > len(self._left):
            bits = np.frombuffer(os.urandom(8 * max(n, self._block)), dtype=np.uint64) >> np.uint64(11)
            self._left = bits.astype(np.float64) * 2.0**-53
        u, self._left = self._left[:n], self._left[n:]
        return u


def uniforms(seed: int | None = None) -> Uniforms:
    """The secure generator; with a seed a reproducible one, for tests only: whoever knows it can undo the noise."""
    return SecureUniforms() if seed is None else np.random.default_rng(seed).random


@dataclass(frozen=True, eq=False)
class TrueStates:
    """From the true symbols x of a stream to the states z of its chain, one symbol at a time.

    For order 1 they are the same. For order m the last z is the private memory (it stands for the last m symbols):
    z_t = following[z_{t-1}, x_t], the longest known beginning of the new history; after a gap z_t = first[x_t].
    """

    first: NDArray[np.int64]  # n_symbols
    following: NDArray[np.int64] | None  # |Z| x n_symbols; None for order 1

    @classmethod
    def of(cls, chain: MarkovChain) -> "TrueStates":
        n = chain.n_symbols
        if chain.histories is None:
            return cls(np.arange(n), None)
        longest: dict[tuple[int, ...], int] = {}
        for z in np.argsort(chain.initial):  # a beginning that is no state itself: its likeliest continuation
            h = chain.histories[z]
            longest |= {h[:k]: int(z) for k in range(1, len(h))}
        longest |= {h: z for z, h in enumerate(chain.histories)}
        following = np.empty((len(chain), n), dtype=np.int64)
        for z, h in enumerate(chain.histories):
            for x in range(n):
                new = (x, *h)[: chain.order]
                while new not in longest:
                    new = new[:-1]
                following[z, x] = longest[new]
        return cls(np.array([longest[(x,)] for x in range(n)]), following)

    def __call__(self, last: NDArray[np.int64], x: NDArray[np.int64]) -> NDArray[np.int64]:
        """z of each stream from its last z and its new x; BLIND in `last`: no usable past; in `x`: nothing read."""
        z = self.first[x]
        if self.following is not None:
            z = np.where(last == BLIND, z, self.following[last, x])
        return np.where(x == BLIND, BLIND, z)


@dataclass(frozen=True, eq=False)
class Streams:
    """The public state of n streams."""

    memory: Memory  # n x ...
    belief: Array  # n x |Z|; n x 0 if the meter keeps none
    total: Array  # n, bits so far

    def __getitem__(self, which: Any) -> "Streams":
        return Streams(self.memory[which], self.belief[which], self.total[which])


class Mechanism:
    """A policy with its meter and ceiling: everything about releasing that is the same for all streams."""

    def __init__(
        self,
        policy: Policy,
        problem: Problem | None = None,
        ceiling: float | None = None,
        meter: MeterName = "exact",
    ) -> None:
        if problem is not None and (policy.n_states, policy.n_outputs) != (problem.n_states, problem.n_outputs):
            raise InputError(
                f"the policy is for {policy.n_states} states and {policy.n_outputs} outputs, "
                f"the problem has {problem.n_states} and {problem.n_outputs}"
            )
        if ceiling is not None and not ceiling >= 0:
            raise InputError(f"ceiling must be a number of bits >= 0, found {ceiling}")
        if ceiling is not None and problem is None:
            raise InputError("a ceiling needs the problem the policy was made for (problem=...)")
        self.policy, self.ceiling = policy, ceiling
        self.table = window_table(policy)
        self.meter = _meter(policy, problem, meter, self.table)
        # with every entry positive no release is impossible, and that need not be looked after
        self.positive = (
            self.table is not None
            and problem is not None
            and bool(
                (self.table > 0).all() and (problem.chain.transition > 0).all() and (problem.chain.initial > 0).all()
            )
        )
        self.drawn: Array | None = None
        if self.table is not None and isinstance(self.meter, TableMeter):
            self.drawn = cumulative_rows(self.table, self.meter.law)
        self.true_states = TrueStates.of(problem.chain if problem is not None else _identity(policy.n_states))
        self.open = np.ones(policy.n_outputs, bool) if problem is None else problem.allowed.all(0)

    def start(self, n: int) -> Streams:
        return Streams(self.policy.start(n), self.meter.start(n), np.zeros(n))

    def skip(self, streams: Streams, k: int = 1) -> Streams:
        """k steps without a release."""
        memory, belief = self.policy.skip(streams.memory, k), self.meter.skip(streams.belief, k)
        return Streams(memory, belief, streams.total)

    def step(self, s: Streams, z: NDArray[np.int64], u: Array) -> tuple[Streams, NDArray[np.int64]]:
        """One step of every stream: true states z (BLIND: do not look), uniforms u -> new state, releases y."""
        most = max(1, MOST_CELLS // (self.policy.n_states * self.policy.n_outputs))
        if self.table is not None or len(z) <= most:
            return self._step(s, z, u)
        parts = [self._step(s[i : i + most], z[i : i + most], u[i : i + most]) for i in range(0, len(z), most)]
        memory, belief, total = (np.concatenate([getattr(p, k) for p, _ in parts]) for k in Streams.__annotations__)
        return Streams(memory, belief, total), np.concatenate([y for _, y in parts])

    def _step(self, s: Streams, z: NDArray[np.int64], u: Array) -> tuple[Streams, NDArray[np.int64]]:
        if self.drawn is not None:  # channel, law and bits depend on the window alone: one look-up each
            a = None
            bits, law = self.meter.read(s.belief, s.memory, a)
            y = (self.drawn[s.memory, z] <= u[:, None]).sum(-1)
        else:
            a = self.table[s.memory] if self.table is not None else self.policy.channel(s.memory)
            bits, law = self.meter.read(s.belief, s.memory, a)
            seen = self.table[s.memory, z] if self.table is not None else a[np.arange(len(z)), z]
            blind = z == BLIND
            if not self.positive:
                seen = np.where(law > 0, seen, 0)  # nothing the model calls impossible
                blind |= ~seen.any(-1)
            y = draw(np.where(blind[:, None], law, seen), u)
        if self.ceiling is None:
            return self._after(s, y, a, s.total + bits), y
        return self._under_ceiling(s, y, a, bits, law, u)

    def _after(self, s: Streams, y: NDArray[np.int64], a: Array | None, total: Array) -> Streams:
        return Streams(self.policy.update(s.memory, y, a), self.meter.after(s.belief, a, y), total)

    def _under_ceiling(
        self, s: Streams, y: NDArray[np.int64], a: Array | None, bits: Array, law: Array, u: Array
    ) -> tuple[Streams, NDArray[np.int64]]:
        """The step where some streams may not look any more; which ones is public."""
        over = s.total + bits > (np.inf if self.ceiling is None else self.ceiling)
        if not over.any():
            return self._after(s, y, a, s.total + bits), y
        silent = over & ~(law[:, self.open] > 0).any(-1)
        shown = np.where(self.open, law, 0)
        shown[silent] = law[silent]
        y = np.where(over, draw(shown, u), y)
        if a is not None:  # a channel whose rows are all alike tells nothing: its Bayes step is b P
            a = np.where(over[:, None, None], (shown / shown.sum(-1, keepdims=True))[:, None, :], a)
        after = self._after(s, y, a, np.where(over, s.total, s.total + bits))
        skipped = self.skip(s)
        after.memory[silent], after.belief[silent] = skipped.memory[silent], skipped.belief[silent]
        return after, np.where(silent, SILENT, y)


def cumulative_rows(table: Array, law: Array) -> Array:
    """Cumulative a_s(.|z) with the output law as one more row, where z = BLIND finds it:  S x (|Z| + 1) x |Y|.

    From the last possible symbol on they are infinite, so that no uniform below 1 falls off the end.
    """
    rows = np.where(law[:, None, :] > 0, table, 0)  # nothing the model calls impossible
    rows = np.where(rows.any(-1, keepdims=True), rows, law[:, None, :])
    sums = np.cumsum(np.concatenate([rows, law[:, None, :]], 1), -1)
    return np.where(sums >= sums[..., -1:], np.inf, sums / sums[..., -1:])


def _meter(policy: Policy, problem: Problem | None, meter: MeterName, table: Array | None) -> Meter:
    if meter not in ("exact", "table"):
        raise InputError(f"unknown meter {meter!r}; known: exact, table")
    if meter == "table":
        if table is None or problem is None or not isinstance(policy, WindowPolicy):
            raise InputError("the table meter needs a window policy of moderate size and its problem")
        return TableMeter.of(table, problem.chain, policy)
    if problem is not None:
        noise = None if table is None else entropy(table)
        return ExactMeter(problem.chain.transition, problem.chain.initial, noise)
    P, initial = _chain_of(policy)
    if P is not None and initial is not None:
        return ExactMeter(P, initial)
    if table is None:
        raise InputError("the meter needs the chain: pass problem=...")
    return capacity_meter(table)


def _chain_of(policy: Policy) -> tuple[Array, Array] | tuple[None, None]:
    """The chain that a policy carries, if there is one."""
    if isinstance(policy, BeliefPolicy):
        return policy.transition, policy.initial
    if isinstance(policy, WindowPolicy | LocalPolicy) and policy.transition is not None and policy.initial is not None:
        return policy.transition, policy.initial
    if isinstance(policy, Schedule):
        return next((c for c in map(_chain_of, policy.policies) if c[0] is not None), (None, None))
    return None, None


def _identity(n: int) -> MarkovChain:
    return MarkovChain(np.full((n, n), 1 / n))


class Releaser:
    """One stream. `release(x)` gives what may be shown instead of the true symbol x.

    A policy from `solve` knows its chain, and the meter is exact. For a bare window policy without `problem` it
    charges each step the capacity of the channel, an upper bound for every chain.
    """

    def __init__(
        self,
        policy: Policy,
        problem: Problem | None = None,
        *,
        ceiling: float | None = None,
        meter: MeterName = "exact",
        seed: int | None = None,
    ) -> None:
        self.mechanism = Mechanism(policy, problem, ceiling, meter)
        self._streams, self._uniforms = self.mechanism.start(1), uniforms(seed)
        self._private = np.array([BLIND])  # the last true state: leaves through the channel only

    @property
    def leaked_bits(self) -> float:
        """The public meter: sum of L(b_t, a_t) so far."""
        return float(self._streams.total[0])

    def release(self, x: int | None) -> int | None:
        """The release for the true symbol x (None: nothing was read); None: the stream is silent at this step."""
        symbol = _checked_symbols(BLIND if x is None else x, len(self.mechanism.true_states.first), BLIND)
        z = self.mechanism.true_states(self._private, symbol.reshape(1))
        self._streams, y = self.mechanism.step(self._streams, z, self._uniforms(1))
        self._private = z
        return None if y[0] == SILENT else int(y[0])

    def skip(self, k: int = 1) -> None:
        """k steps without a release."""
        self._streams = self.mechanism.skip(self._streams, k)
        self._private = np.array([BLIND])


@dataclass(frozen=True, eq=False)
class Released:
    """What `release_many` gives: y is streams x steps (SILENT where nothing was released)."""

    y: NDArray[np.int64]
    leaked_bits: Array  # per stream


def release_many(
    policy: Policy,
    x: ArrayLike,
    problem: Problem | None = None,
    *,
    ceiling: float | None = None,
    meter: MeterName = "exact",
    seed: int | None = None,
) -> Released:
    """Many streams at once: true symbols x, streams x steps, each stream from its own start."""
    mechanism, source = Mechanism(policy, problem, ceiling, meter), uniforms(seed)
    x = np.asarray(x)
    if x.ndim != 2:
        raise InputError(f"x must be streams x steps, found {x.ndim} axes")
    x = _checked_symbols(x, len(mechanism.true_states.first), 0)
    streams, z = mechanism.start(len(x)), np.full(len(x), BLIND)
    y = np.empty(x.shape, dtype=np.int64)
    for t in range(x.shape[1]):
        z = mechanism.true_states(z, x[:, t])
        streams, y[:, t] = mechanism.step(streams, z, source(len(x)))
    return Released(y, streams.total)


def _checked_symbols(x: ArrayLike, n: int, lowest: int) -> NDArray[np.int64]:
    """`x` as symbols 0..n-1; the line for bad ones does not say what they were."""
    x = np.asarray(x)
    if x.dtype.kind not in "iu" or (x.size and (x.min() < lowest or x.max() >= n)):
        raise InputError(f"a true symbol must be an integer from 0 to {n - 1} (use StateSpace.encode for readings)")
    return x.astype(np.int64)
