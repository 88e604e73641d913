"""Policies whose memory is the service provider's exact belief; a rule turns it into a channel."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.control.policy import Export, Memory, Policy
from veilstream.control.rules import DirichletRule, LogitRule, LookaheadRule
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array
from veilstream.model.problem import blahut_arimoto, next_prior


class Rule(Protocol):
    """From a belief to a channel: what tells belief policies apart."""

    def __call__(self, belief: Array) -> Array: ...
    def export(self) -> Export: ...


@dataclass(frozen=True, eq=False)
class GreedyRule:
    """Blahut-Arimoto at the belief: the best channel for this step alone."""

    cost: Array  # |Z| x |Y| bits, infinite where forbidden
    tolerance: float = 1e-6

    def __call__(self, belief: Array) -> Array:
        return blahut_arimoto(belief, self.cost, tolerance=self.tolerance)[0]

    def export(self) -> Export:
        return {"rule": "greedy", "tolerance": self.tolerance}, {"cost": self.cost}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> "GreedyRule":
        return cls(arrays["cost"], float(meta["tolerance"]))


RULES: dict[str, Callable[[dict[str, Any], dict[str, Array]], Rule]] = {
    "dirichlet": DirichletRule.restore,
    "greedy": GreedyRule.restore,
    "logit": LogitRule.restore,
    "lookahead": LookaheadRule.restore,
}


@dataclass(frozen=True, eq=False)
class BeliefPolicy(Policy, kind="belief"):
    """The channel is a function of the service provider's exact belief, b(z) = P(Z_t = z | releases so far).

    >>> import veilstream as vs
    >>> solution = vs.solve("builtin:binary", method="belief-greedy", weight=2.0)
    >>> type(solution.policy).__name__, solution.policy.channel(solution.policy.start()).shape
    ('BeliefPolicy', (2, 2))
    """

    chain: MarkovChain
    rule: Rule
    _shape: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_shape", self.rule(self.chain.initial).shape)

    @property
    def n_states(self) -> int:
        return self._shape[0]

    @property
    def n_outputs(self) -> int:
        return self._shape[1]

    def start(self, n: int | None = None) -> Memory:
        return self.chain.initial.copy() if n is None else np.tile(self.chain.initial, (n, 1))

    def channel(self, memory: Memory) -> Array:
        return self.rule(memory)

    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory:
        return next_prior(memory, self.channel(memory) if channel is None else channel, y, self.chain.transition)

    def skip(self, memory: Memory, k: int = 1) -> Memory:
        return self.chain.later(memory, k)

    def export(self) -> Export:
        meta, arrays = self.rule.export()
        return {"kind": self.kind, **meta}, arrays

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> "BeliefPolicy":
        if meta.get("rule") not in RULES:
            raise InputError(f"unknown rule of a belief policy: {str(meta.get('rule'))[:40]!r}")
        return cls(chain, RULES[meta["rule"]](meta, arrays))
