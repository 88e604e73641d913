"""A policy that looks at the public clock of its chain: one part for every phase."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from veilstream.core.chain import MarkovChain
from veilstream.core.information import Array, Index
from veilstream.core.phased import Phased
from veilstream.core.policy import Memory
from veilstream.core.steady import LawStep
from veilstream.errors import InputError


@dataclass(frozen=True, eq=False)
class ClockPolicy(Phased, kind="clock"):
    """Part phi is at work at phase phi. The loop tells the phase (`at`): a day may have 23 or 25 hours."""

    def following(self, index: Index, k: int) -> Index:
        return np.asarray((index + k) % len(self.policies))

    def at(self, memory: Memory, phase: Index) -> Memory:
        return self.with_index(memory, phase)

    def phase(self, steps: Index, first: int = 0) -> Index:
        if self.chain is None or self.chain.phases == 1:
            return (first + steps) % len(self.policies)
        return self.chain.phase(first + steps)

    def phase_tables(self) -> Sequence[Array] | None:
        tables = [p.table() for p in self.policies]
        known = [t for t in tables if t is not None]
        return known if len(known) == len(tables) else None

    def next_memory(self, s: Index, y: Index) -> Index:
        return self.policies[0].update(s, y)

    def law_steps(self, chain: MarkovChain) -> Sequence[LawStep] | None:
        """One for each step of a round of the clock, on the memory that the parts share."""
        if chain.phases != len(self.policies):
            return None
        found = [p.law_steps(chain.at(phase)) for phase, p in enumerate(self.policies)]
        turns = [steps[0] for steps in found if steps is not None]
        return [turns[phase] for phase in chain.around] if len(turns) == len(found) else None

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> Self:
        if len(meta["policies"]) != chain.phases:
            raise InputError(f"the policy has {len(meta['policies'])} phases, its chain {chain.phases}")
        return super().restore(meta, arrays, chain)
