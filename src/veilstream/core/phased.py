"""Policies that differ by something public: the hour of the day, the rung of a ladder.

The parts number their memories alike (0..M-1, the same `update`), so one number holds all:

    memory = index M + m        index: which part is at work, m: the memory that they share

With every index counted in, such a policy is again one with a numbered memory: a table, an exact meter, a file.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.core.chain import MarkovChain
from veilstream.core.information import Array, Index
from veilstream.core.policy import Export, Memory, Policy, restore
from veilstream.errors import InputError


@dataclass(frozen=True, eq=False)
class Phased(Policy):
    policies: tuple[Policy, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "policies", tuple(self.policies))
        shapes = {(p.n_states, p.n_outputs, p.n_memories, p.remembers) for p in self.policies}
        if len(shapes) != 1 or self.policies[0].n_memories is None:
            raise InputError(f"the parts of a {self.kind} must be of one size and number their memories alike")

    @abstractmethod
    def following(self, index: Index, k: int) -> Index:
        """The index k steps later, as far as that is known beforehand."""

    # --- the loop --------------------------------------------------------------------------------------

    @property
    def chain(self) -> MarkovChain | None:  # type: ignore[override]
        return self.policies[0].chain

    def made_for(self, chain: MarkovChain) -> Self:
        return replace(self, policies=tuple(p.made_for(chain) for p in self.policies))

    @property
    def n_states(self) -> int:
        return self.policies[0].n_states

    @property
    def n_outputs(self) -> int:
        return self.policies[0].n_outputs

    @property
    def shared(self) -> int:
        """M: memories of every part."""
        assert self.policies[0].n_memories is not None
        return self.policies[0].n_memories

    @property
    def n_memories(self) -> int:
        return len(self.policies) * self.shared

    @property
    def remembers(self) -> int | None:
        return self.policies[0].remembers

    def widened(self, window: int) -> Self | None:
        wide = [p.widened(window) for p in self.policies]
        known = tuple(p for p in wide if p is not None)
        return replace(self, policies=known) if len(known) == len(wide) else None

    def index(self, memory: Memory) -> Index:
        """Which part is at work."""
        return np.asarray(memory // self.shared)

    def with_index(self, memory: Memory, index: Index) -> Memory:
        return np.asarray(index * self.shared + memory % self.shared)

    def start(self, n: int | None = None) -> Memory:
        return self.policies[0].start(n)

    def channel(self, memory: Memory) -> Array:
        index, m = np.divmod(memory, self.shared)
        if index.ndim == 0:
            return self.policies[int(index)].channel(m)
        a = np.empty((*index.shape, self.n_states, self.n_outputs))
        for i in np.unique(index):
            a[index == i] = self.policies[i].channel(m[index == i])
        return a

    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory:
        index, m = np.divmod(memory, self.shared)
        return np.asarray(self.following(index, 1) * self.shared + self.policies[0].update(m, y, channel))

    def skip(self, memory: Memory, k: int = 1) -> Memory:
        index, m = np.divmod(memory, self.shared)
        return np.asarray(self.following(index, k) * self.shared + self.policies[0].skip(m, k))

    # --- the file --------------------------------------------------------------------------------------

    def export(self) -> Export:
        parts = [p.export() for p in self.policies]
        arrays = {f"{i}.{k}": v for i, (_, part) in enumerate(parts) for k, v in part.items()}
        return {"kind": self.kind, "policies": [m for m, _ in parts]}, arrays

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> Self:
        return cls(restored_parts(meta, arrays, chain))

    def check(self) -> None:
        for part in self.policies:
            part.check()


def restored_parts(meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> tuple[Policy, ...]:
    """The policies inside a policy, from what its file says of them."""
    parts: Sequence[Any] = meta["policies"]
    own = [{k.removeprefix(f"{i}."): v for k, v in arrays.items() if k.startswith(f"{i}.")} for i in range(len(parts))]
    return tuple(restore(part, own[i], chain, meta["depth"] + 1) for i, part in enumerate(parts))
