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
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.control.feedback import Feedback
from veilstream.control.lookup import Lookup
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, Index

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
