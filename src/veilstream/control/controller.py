"""The finite policy: a table over a public memory and a public phase, stored without its largest axis.

    a_f(y|z,s) = r_f(y|s) K_f(z,y) / N_f(s,z)        s' = next(s, y)

r is the output model of memory s, K the kernel of its group (`automaton`), f the public phase. A window of releases, a
memory made to measure, a public clock and a time-sharing schedule are this one class with another automaton or more
phases: `Controller.of_table`, `schedule`. A memory is the number  place x |S| + s,  the place being that of the
step in a round of the clock; the phase at work there is turn[place].
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.control.automaton import Automaton, product
from veilstream.control.policy import NO_LAW, Export, Memory, Policy
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, Index, normalised

MAX_PLACES = 1 << 16  # steps in a round
MAX_CELLS = 1 << 28  # numbers that a policy from a file may unfold to: 2 GB
MAX_WINDOW = 32


@dataclass(frozen=True, eq=False)
class Controller(Policy, kind="controller"):
    """
    >>> import veilstream as vs
    >>> policy = vs.solve("builtin:binary", weight=2.0, window=1).policy
    >>> memory = policy.start()
    >>> a = policy.channel(memory)                         # |Z| x |Y|, rows sum to 1
    >>> memory = policy.update(memory, 0)                  # 0 was released
    >>> a.sum(1).round(6).tolist(), int(memory)
    ([1.0, 1.0], 0)
    """

    automaton: Automaton
    output_model: Array  # r: F x S x |Y|
    kernel: Array  # K: F x G x |Z| x |Y|
    first: int = 0  # the public memory a stream starts from
    turn: Index | None = None  # which phase is at work at each place of a round of steps; None: the phase is the place
    window: int | None = None  # the memory is that many releases; None: another one
    chain: MarkovChain | None = None

    def __post_init__(self) -> None:
        r, K = np.asarray(self.output_model, float), np.asarray(self.kernel, float)
        S, G, Y = len(self.automaton), len(self.automaton.to), self.automaton.n_outputs
        fits = r.ndim == 3 and K.ndim == 4 and r.shape[1:] == (S, Y) and K.shape[:2] == (len(r), G) and K.size > 0
        if not fits or K.shape[3] != Y:
            raise InputError(f"a memory of {S} states does not fit tables of shape {r.shape} and {K.shape}")
        if not 0 <= self.first < S:
            raise InputError(f"first must be one of the {S} memories, found {self.first}")
        turn = None if self.turn is None else np.asarray(self.turn)
        if turn is not None:
            row = turn.ndim == 1 and turn.dtype.kind in "iu" and 0 < len(turn) <= MAX_PLACES
            if not row or turn.min() < 0 or turn.max() >= len(r):
                raise InputError(f"a schedule must be a row of at most {MAX_PLACES} of its policy's {len(r)} phases")
        for name, x in (("output_model", r), ("kernel", K), ("turn", turn)):
            object.__setattr__(self, name, x)

    @classmethod
    def of_table(cls, table: ArrayLike, w: int = 0, first: int = 0) -> "Controller":
        """From a_s(y|z), |Y|^w x |Z| x |Y|, over the last w releases; a |Z| x |Y| matrix has no memory."""
        a = np.asarray(table, float)
        a = a[None] if a.ndim == 2 else a
        if not (a >= 0).all() or not np.allclose(a.sum(-1), 1, atol=1e-9):
            raise InputError("every row of a policy's table must be a probability law")
        S, Y = len(a), a.shape[-1]
        if Y**w != S:
            raise InputError(f"a window of {w} over {Y} releases has {Y**w} tables, found {S}")
        later = (np.arange(S)[:, None] * Y + np.arange(Y)) % S
        return cls(Automaton(np.arange(S), later), np.ones((1, S, Y)), a[None], first, window=w)

    # --- the loop --------------------------------------------------------------------------------------

    @property
    def n_states(self) -> int:
        return int(self.kernel.shape[2])

    @property
    def n_outputs(self) -> int:
        return int(self.kernel.shape[3])

    @property
    def phases(self) -> int:
        return len(self.output_model)

    @property
    def places(self) -> int:
        """Steps of a round after which it is at the same phase again."""
        return self.phases if self.turn is None else len(self.turn)

    @property
    def n_memories(self) -> int:
        return self.places * len(self.automaton)

    def start(self, n: int | None = None) -> Memory:
        return np.full((() if n is None else (n,)), self.first, dtype=np.int64)

    def _parts(self, memory: Memory) -> tuple[Index, Index, Index]:
        """Phase, state of the automaton, and its group."""
        place, s = np.divmod(np.asarray(memory, np.int64), len(self.automaton))
        return place if self.turn is None else self.turn[place], s, self.automaton.group[s]

    def channel(self, memory: Memory) -> Array:
        f, s, g = self._parts(memory)
        return normalised(self.output_model[f, s][..., None, :] * self.kernel[f, g])

    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory:
        if self.places == 1:
            return self.automaton.next(memory, y)
        place, s = np.divmod(np.asarray(memory, np.int64), len(self.automaton))
        return np.asarray((place + 1) % self.places * len(self.automaton) + self.automaton.next(s, np.asarray(y)))

    def skip(self, memory: Memory, k: int = 1) -> Memory:
        place, s = np.divmod(np.asarray(memory, np.int64), len(self.automaton))
        return np.asarray((place + k) % self.places * len(self.automaton) + s)

    def place_at(self, step: Index) -> Index:
        """The place in a round of steps with these public numbers: by the chain's clock, or counted."""
        if self.turn is None and self.chain is not None and self.chain.phases == self.phases:
            return self.chain.phase(step)
        return np.asarray(step) % self.places

    def phase_at(self, step: Index) -> Index:
        return self.place_at(step) if self.turn is None else self.turn[self.place_at(step)]

    def at(self, memory: Memory, step: Index) -> Memory:
        if self.places == 1:
            return memory
        return np.asarray(self.place_at(step) * len(self.automaton) + memory % len(self.automaton))

    # --- one row or column of it -------------------------------------------------------------------------

    @cached_property
    def normaliser(self) -> Array:
        """N: F x S x |Z|."""
        N = np.empty((*self.output_model.shape[:2], self.n_states))
        ends = np.searchsorted(self.automaton.group, np.arange(len(self.automaton.to) + 1))
        for g, (first, last) in enumerate(pairwise(ends.tolist())):  # no kernel is copied for its memories
            N[:, first:last] = self.output_model[:, first:last] @ self.kernel[:, g].swapaxes(-1, -2)
        return N

    def rows(self, memory: Memory, z: Index) -> Array:
        """a_s(.|z) of n streams, each with its own memory and state, n x |Y|."""
        f, s, g = self._parts(memory)
        return np.asarray(self.output_model[f, s] * self.kernel[f, g, z] / self.normaliser[f, s, z][:, None])

    def columns(self, memory: Memory, y: Index) -> Array:
        """a_s(y|.) of n streams, each with its own memory and release, n x |Z|."""
        f, s, g = self._parts(memory)
        share = self.output_model[f, s, y][:, None] / self.normaliser[f, s]
        return np.asarray(share * self.kernel[f, g, :, y])

    # --- the file --------------------------------------------------------------------------------------

    def export(self) -> Export:
        meta = {"kind": self.kind, "first": self.first, "window": self.window}
        arrays: dict[str, NDArray[Any]] = {"output_model": self.output_model, "kernel": self.kernel}
        arrays |= {"group": self.automaton.group, "to": self.automaton.to}
        return meta, arrays if self.turn is None else {**arrays, "turn": self.turn}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> "Controller":
        w = meta["window"]
        if not (w is None or (isinstance(w, int) and not isinstance(w, bool) and 0 <= w <= MAX_WINDOW)):
            raise InputError(f"window must be 0 to {MAX_WINDOW}, found {str(w)[:20]}")
        memory, turn = Automaton(arrays["group"], arrays["to"]), arrays.get("turn")
        found = cls(memory, arrays["output_model"], arrays["kernel"], int(meta["first"]), turn, w, chain)
        S, Y = len(memory), memory.n_outputs
        uneven = not memory.regular  # a kernel for each memory, in what is computed of it
        if found.phases * S * found.n_states * (Y if uneven else 1) > MAX_CELLS:
            raise InputError(f"a policy of {S} memories for {found.n_states} states is too large for a file")
        if turn is None and found.phases > 1 and found.phases != chain.phases:
            raise InputError(f"the policy has {found.phases} phases, its chain {chain.phases}")
        return found

    def check(self) -> None:
        N = self.normaliser
        if (self.output_model < 0).any() or (self.kernel < 0).any() or not np.isfinite(N).all() or not (N > 0).all():
            raise InputError(NO_LAW)

    # --- on another memory ---------------------------------------------------------------------------------

    def at_phase(self, phase: int) -> "Controller":
        """The policy at work at one phase, for all time."""
        one = slice(phase, phase + 1)
        return replace(self, output_model=self.output_model[one], kernel=self.kernel[one], turn=None, chain=None)

    def on(self, memory: Automaton, states: Index, first: int) -> "Controller":
        """The same policy on a memory that holds its own; states: which of its own each of those is."""
        r, K = self.output_model[:, states], self.kernel[:, self.automaton.group[states]]
        return replace(self, automaton=memory.apart, output_model=r, kernel=K, first=first)


def controller_of(policy: Policy) -> Controller | None:
    """The finite policy that it is while it makes no public move; None where its memories are not few numbers."""
    policy = policy.resting
    if isinstance(policy, Controller):
        return policy
    table = policy.table()
    if table is None:
        return None
    S, _, Y = table.shape
    s, y = np.divmod(np.arange(S * Y), Y)
    memory = Automaton(np.arange(S), np.asarray(policy.update(s, y)).reshape(S, Y))
    return Controller(memory, np.ones((1, S, Y)), table[None], int(policy.start()), chain=policy.chain)


def release_cost(policy: Policy) -> Array | None:
    """-log2 K(z,y): bits that a release costs now and later, where that is the same for every memory."""
    if not isinstance(policy, Controller) or policy.kernel.shape[:2] != (1, 1):
        return None
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log2(policy.kernel[0, 0]))


def schedule(policies: Sequence[Controller], durations: Sequence[int]) -> Controller:
    """Policy i for durations[i] steps, in turn, for ever; every step counts, released or not.

    All share one memory, so a switch loses nothing that was released.

    >>> import veilstream as vs
    >>> truth, coin = (vs.Controller.of_table(a) for a in ([[1, 0], [0, 1]], [[0.5, 0.5], [0.5, 0.5]]))
    >>> both = vs.schedule([truth, coin], [2, 1])          # the truth for two steps, a coin for one
    >>> memory = both.skip(both.start(), 2)
    >>> both.channel(memory).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    if len(policies) != len(durations) or min(durations, default=0) < 1:
        raise InputError("a schedule needs one duration of at least one step for each policy")
    turn = np.repeat(np.arange(len(policies)), durations)
    return replace(cycle(policies), turn=turn)


def cycle(policies: Sequence[Controller]) -> Controller:
    """Policy i at phase i of the chain's public clock."""
    if any(not isinstance(p, Controller) or p.places > 1 for p in policies):
        raise InputError("policies that take turns must be finite (vs.Controller) and have no clock of their own")
    chains = [p.chain for p in policies if p.chain is not None]
    if any(not np.array_equal(chains[0].transition, other.transition) for other in chains[1:]):
        raise InputError("policies that take turns must be made for one chain")
    alike = aligned(policies)
    r, K = (np.concatenate([getattr(p, k) for p in alike]) for k in ("output_model", "kernel"))
    return replace(alike[0], output_model=r, kernel=K, chain=chains[0] if chains else None)


def aligned(policies: Sequence[Controller]) -> list[Controller]:
    """The same policies on one memory, which holds what each of them remembers."""
    first, *others = policies
    memory, states, start = first.automaton, [np.arange(len(first.automaton))], first.first
    for policy in others:
        own = policy.automaton
        if np.array_equal(own.to, memory.to) and np.array_equal(own.group, memory.group):
            states.append(np.arange(len(own)))
        else:
            memory, both = product(memory, own, (start, policy.first))
            start = int(np.flatnonzero((both == (start, policy.first)).all(1))[0])
            states = [*(s[both[:, 0]] for s in states), both[:, 1]]
    if memory is first.automaton:
        return [replace(p, automaton=memory, first=start) for p in policies]
    windows = [p.window for p in policies]
    longest = None if None in windows else max(w for w in windows if w is not None)
    pairs = zip(policies, states, strict=True)
    return [replace(p.on(memory, s, start), window=longest) for p, s in pairs]
