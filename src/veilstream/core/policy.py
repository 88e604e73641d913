"""Release policies. One protocol, run by simulator, environment, releaser, gateway and audit alike (`release`):

    memory = policy.start()             # policy.start(n) for n streams at once
    a = policy.channel(memory)          # |Z| x |Y|, rows sum to 1, zero where a limit forbids
    y ~ a[z]                            # z: the true state
    memory = policy.update(memory, y)   # of released data only
    memory = policy.skip(memory, k=1)   # k steps without a release

A memory is one numpy array; a leading axis, if there is one, runs over streams. `update` takes the channel that was
really used when another policy's was (a schedule, a ceiling); its own is the default.

Beyond the loop a policy says what it can do, and None where it cannot: nobody asks for its class. A new policy is a
subclass with its own `kind` in a file of its own; everything else has a default.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.core.chain import MarkovChain
from veilstream.core.feedback import Feedback
from veilstream.core.information import Array, Index
from veilstream.core.steady import LawStep, MemoryStep
from veilstream.errors import InputError

Memory = NDArray[Any]
Export = tuple[dict[str, Any], dict[str, NDArray[Any]]]  # JSON-able description, arrays by name

NO_LAW = "the policy's channel is not a law: its rows must be >= 0 and sum to 1"
MAX_TABLE = 4_000_000  # entries of a full table worth keeping in memory
ROW_TOLERANCE = 1e-6
MAX_DEPTH = 8  # policies inside policies


class Policy(ABC):
    """A frozen dataclass with a field `chain`, which it was made for: its channel need not use that, a meter does.

    >>> import veilstream as vs
    >>> policy = vs.solve("builtin:binary", weight=2.0).policy
    >>> isinstance(policy, vs.Policy), policy.n_states, policy.n_outputs
    (True, 2, 2)
    """

    kind: ClassVar[str]
    chain: MarkovChain | None

    def __init_subclass__(cls, kind: str = "", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if kind:
            cls.kind, KINDS[kind] = kind, cls

    # --- the loop --------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def n_states(self) -> int: ...

    @property
    @abstractmethod
    def n_outputs(self) -> int: ...

    @abstractmethod
    def start(self, n: int | None = None) -> Memory: ...

    @abstractmethod
    def channel(self, memory: Memory) -> Array: ...

    @abstractmethod
    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory: ...

    def skip(self, memory: Memory, k: int = 1) -> Memory:
        """A memory of releases alone stays as it is."""
        return memory

    def at(self, memory: Memory, phase: Index) -> Memory:
        """The same memory at another phase of the chain's public clock, for policies that look at it."""
        return memory

    @property
    def moves_by(self) -> Feedback | None:
        """How its public moves are made, where it makes any: between the rungs of a ladder."""
        return None

    @property
    def rungs(self) -> int:
        """Between how many."""
        return 1

    def rung(self, memory: Memory) -> Index:
        """The one it is on."""
        return np.zeros(np.shape(memory), dtype=np.int64)

    def moved(self, memory: Memory, way: Index) -> Memory:
        """One move that way, at a boundary of its rule."""
        return memory

    def own_meter(self, chain: MarkovChain) -> Any:
        """The meter of a policy that the exact one is not exact for."""
        return None

    # --- the file --------------------------------------------------------------------------------------

    @abstractmethod
    def export(self) -> Export:
        """All of it but the chain, which the file holds once."""

    @classmethod
    @abstractmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> "Policy":
        """What `export` described, made for the chain of its file."""

    def check(self) -> None:
        """Raises InputError unless the channels it can give are laws; called on what comes from a file."""
        with np.errstate(all="ignore"):
            first = np.asarray(self.channel(self.start()))
        off = np.abs(first.sum(-1) - 1) > ROW_TOLERANCE
        if first.shape != (self.n_states, self.n_outputs) or not (first >= 0).all() or off.any():
            raise InputError(NO_LAW)

    # --- what it can do ----------------------------------------------------------------------------------

    def made_for(self, chain: MarkovChain) -> Self:
        """The same policy, knowing which chain it was made for."""
        return replace(self, chain=chain)  # type: ignore[type-var]

    @property
    def remembers(self) -> int | None:
        """How many of the last releases; None where that is not what it remembers."""
        return None

    @property
    def n_memories(self) -> int | None:
        """Its memories are the numbers below this; None where they are not numbers, or too many."""
        return None

    @property
    def period(self) -> int:
        """Public phases: steps after which it is at the same point of its schedule again."""
        return 1

    def shares(self) -> "Sequence[tuple[float, Policy]]":
        """The policies it is made of, and the share of the time each runs."""
        return [(1.0, self)]

    def table(self, most: float = MAX_TABLE) -> Array | None:
        """a_s(y|z) of every memory s, S x |Z| x |Y|; None if there is none or it has more than `most` entries."""
        n = self.n_memories
        if n is None or n * self.n_states * self.n_outputs > most:
            return None
        return self.channel(np.arange(n))

    by_parts: ClassVar[bool] = False  # whether a row and a column cost less than a channel, and `update` needs none

    def rows(self, memory: Memory, z: Index) -> Array:
        """a_s(.|z) of n streams, each with its own memory and state, n x |Y|."""
        return np.asarray(self.channel(memory)[np.arange(len(z)), z])

    def columns(self, memory: Memory, y: Index) -> Array:
        """a_s(y|.) of n streams, each with its own memory and release, n x |Z|."""
        return np.asarray(self.channel(memory)[np.arange(len(y)), :, y])

    def phase(self, steps: Index, first: int = 0) -> Index:
        """Its public phase that many steps after the start of a stream; the start has the public number `first`."""
        return steps % self.period

    def phase_tables(self) -> Sequence[Array] | None:
        """Its table at each public phase, over memories that `next_memory` numbers; None where there is none."""
        table = self.table()
        return None if table is None else [table]

    def next_memory(self, s: Index, y: Index) -> Index:
        """s' = next(s, y), of the memories of `phase_tables`."""
        return self.update(s, y)

    def law_steps(self, chain: MarkovChain) -> Sequence[LawStep] | None:
        """One step of the law of (memory, state) for each public phase: what its long run is computed from."""
        table = self.table()
        if table is None:
            return None
        s, y = np.divmod(np.arange(len(table) * self.n_outputs), self.n_outputs)
        to = self.update(s, y).reshape(len(table), -1)
        each = [MemoryStep(chain.at(phase), table, to, int(self.start())) for phase in range(chain.phases)]
        return [each[phase] for phase in chain.around]

    def widened(self, window: int) -> "Policy | None":
        """The same policy, remembering `window` releases and using no more of them than before."""
        return None

    def output_model_at(self, windows: Index, y: Index) -> Array | None:
        """r(y|s) of windows s at least as long as its own, where it has an output model."""
        return None

    def release_cost(self) -> Array | None:
        """-log2 K(z,y): bits that a release costs now and later, where that is the same for every memory."""
        return None


KINDS: dict[str, type[Policy]] = {}


def restore(meta: Any, arrays: dict[str, NDArray[Any]], chain: MarkovChain, depth: int = 0) -> Policy:
    """The policy that `export` described."""
    if not isinstance(meta, dict) or depth > MAX_DEPTH:
        raise InputError("the policy's description is not readable")
    kind = meta.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"unknown kind of policy: {str(kind)[:40]!r}; if it is your own, import its module first")
    return KINDS[kind].restore({**meta, "depth": depth}, arrays, chain)
