"""Release policies. One protocol, run by simulator, environment, releaser, gateway and audit alike (`release`):

    memory = policy.start()             # policy.start(n) for n streams at once
    a = policy.channel(memory)          # |Z| x |Y|, rows sum to 1, zero where a limit forbids
    y ~ a[z]                            # z: the true state
    memory = policy.update(memory, y)   # of released data only
    memory = policy.skip(memory, k=1)   # k steps without a release

A memory is one numpy array; a leading axis, if there is one, runs over streams. `update` takes the channel that was
really used when another policy's was (a schedule, a ceiling); its own is the default.

A policy with few memories, which are numbers, has a `table`: what is computed of finite policies is computed of that
(`controller.controller_of`). A new policy is a subclass with its own `kind` in a file of its own; everything else has a
default.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.control.feedback import Feedback
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, Index, entropy, rows_times
from veilstream.model.problem import output_law

LEAST = 1e-300  # p log2 p is 0 there
FEW = 8  # streams a memory below which they are not worth sorting


@dataclass(frozen=True, eq=False)
class Lookup:
    """What can be looked up by memory, of a policy that is a table."""

    table: Array  # a_s(y|z), S x |Z| x |Y|

    @cached_property
    def positive(self) -> bool:
        """Whether every release is possible whatever the belief is."""
        return bool((self.table > 0).all())

    @cached_property
    def noise(self) -> Array:
        """H(a_s(.|z)), S x |Z|."""
        return entropy(self.table)

    @cached_property
    def _by_release(self) -> Array:
        """a_s(y|.), S x |Y| x |Z|."""
        return np.ascontiguousarray(np.swapaxes(self.table, 1, 2))

    def rows(self, memory: Index, z: Index) -> Array:
        """a_s(.|z), n x |Y|."""
        return np.asarray(self.table[memory, z])

    def columns(self, memory: Index, y: Index) -> Array:
        """a_s(y|.), n x |Z|."""
        S, Y, Z = self._by_release.shape
        found: Array = self._by_release.reshape(S * Y, Z).take(memory * Y + y, 0)
        return found

    def output_law(self, b: Array, memory: Index) -> Array:
        """sum_z b(z) a_s(y|z): many streams together by memory, one product each; few of them one by one."""
        S = len(self.table)
        if len(b) < FEW * S:
            return output_law(b, self.table[memory])
        order = np.argsort(memory.astype(np.uint16 if S <= 1 << 16 else np.int64), kind="stable")
        p, at, end = np.empty((len(b), self.table.shape[2])), b.take(order, 0), 0
        for a, n in zip(self.table, np.bincount(memory, minlength=S).tolist(), strict=True):
            start, end = end, end + n
            rows_times(at[start:end], a, out=p[start:end])
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return p.take(back, 0)

    @cached_property
    def _cumulative(self) -> Array:
        """Cumulative a_s(.|z), (S |Z|) x |Y|.

        From the last possible symbol on they are infinite, so that no uniform below 1 falls off the end.
        """
        sums = np.cumsum(self.table, -1)
        whole = np.where(sums >= sums[..., -1:], np.inf, sums / sums[..., -1:])
        return np.ascontiguousarray(whole.reshape(-1, sums.shape[-1]))

    def draw(self, memory: Index, z: Index, u: Array) -> Index:
        """y ~ a_s(.|z), n."""
        row = self._cumulative.take(memory * self.table.shape[1] + z, 0)
        passed = (row <= u[:, None]).astype(np.float32)  # counted by a product: a sum takes four times as long
        return np.asarray(passed @ np.ones(row.shape[1], np.float32), np.int64)


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

    def at(self, memory: Memory, step: Index) -> Memory:
        """The same memory at the step with this public number, for policies that look at a clock."""
        return memory

    @property
    def moves_by(self) -> Feedback | None:
        """How its public moves are made, where it makes any: between the rungs of a ladder (`ladder`)."""
        return None

    @property
    def resting(self) -> "Policy":
        """The policy that it is while it makes no public move."""
        return self

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
    def window(self) -> int | None:
        """How many of the last releases it remembers; None where that is not what it remembers."""
        return None

    @property
    def n_memories(self) -> int | None:
        """Its memories are the numbers below this; None where they are not numbers, or too many."""
        return None

    @cached_property
    def lookup(self) -> Lookup | None:
        """Its table, to look up what streams need of it."""
        table = self.table()
        return None if table is None else Lookup(table)

    def table(self, most: float = MAX_TABLE) -> Array | None:
        """a_s(y|z) of every memory s, S x |Z| x |Y|; None if there is none or it has more than `most` entries."""
        n = self.n_memories
        if n is None or n * self.n_states * self.n_outputs > most:
            return None
        return self.channel(np.arange(n))


KINDS: dict[str, type[Policy]] = {}


def restore(meta: Any, arrays: dict[str, NDArray[Any]], chain: MarkovChain, depth: int = 0) -> Policy:
    """The policy that `export` described."""
    if not isinstance(meta, dict) or depth > MAX_DEPTH:
        raise InputError("the policy's description is not readable")
    kind = meta.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(
            f"unknown kind of policy: {str(kind)[:40]!r}; one of an earlier version is made anew by veil solve, "
            "one of your own needs its module imported first"
        )
    return KINDS[kind].restore({**meta, "depth": depth}, arrays, chain)
