"""Release policies. One protocol, run by simulator, environment, releaser, gateway and audit alike:

    memory = policy.start()             # policy.start(n) for n streams at once
    a = policy.channel(memory)          # |Z| x |Y|, rows sum to 1, zero where a limit forbids
    y ~ a[z]                            # z: the true state
    memory = policy.update(memory, y)   # of released data only
    memory = policy.skip(memory, k=1)   # k steps without a release

A memory is one numpy array; a leading axis, if there is one, runs over streams. `update` takes the channel that was
really used when another policy's was (a schedule, a ceiling); its own is the default.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.core.information import Array
from veilstream.core.local.policy import LocalPolicy
from veilstream.core.problem import advance, blahut_arimoto, next_prior
from veilstream.core.rules import LogitRule, LookaheadRule
from veilstream.errors import InputError

Memory = NDArray[Any]
Export = tuple[dict[str, Any], dict[str, Array]]  # JSON-able description, arrays by name


class Policy(Protocol):
    @property
    def n_states(self) -> int: ...
    @property
    def n_outputs(self) -> int: ...
    def start(self, n: int | None = None) -> Memory: ...
    def channel(self, memory: Memory) -> Array: ...
    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory: ...
    def skip(self, memory: Memory, k: int = 1) -> Memory: ...
    def export(self) -> Export: ...


@dataclass(frozen=True, eq=False)
class WindowPolicy:
    """A table over the last w released symbols s = (oldest, ..., newest), written in base |Y|.

        a_s(y|z) = r(y|s) K_s(z,y) / N(s,z)

    The kernel of an optimal policy does not depend on the oldest symbol, so K has |Y|^(w-1) entries (one for w <= 1)
    and the whole is stored without its |Y|^w x |Z| x |Y| product. A plain table is r = 1, K = table.
    """

    output_model: Array  # r: |Y|^w x |Y|
    kernel: Array  # K: n x |Z| x |Y|, used at s mod n
    window: int
    first: int = 0  # the public memory a stream starts from
    transition: Array | None = None  # the chain it was made for: the channel does not use it, a releaser's meter does
    initial: Array | None = None

    def __post_init__(self) -> None:
        r, K = np.asarray(self.output_model, float), np.asarray(self.kernel, float)
        n_y = r.shape[-1]
        if r.shape != (n_y**self.window, n_y) or K.ndim != 3 or K.shape[2] != n_y or len(r) % len(K):
            raise InputError(f"window {self.window} does not fit tables of shape {r.shape} and {K.shape}")
        if not 0 <= self.first < len(r):
            raise InputError(f"first must be one of the {len(r)} windows, found {self.first}")
        object.__setattr__(self, "output_model", r)
        object.__setattr__(self, "kernel", K)

    @classmethod
    def of_table(cls, table: ArrayLike, window: int = 0, first: int = 0) -> "WindowPolicy":
        """From a_s(y|z), |Y|^window x |Z| x |Y|; a |Z| x |Y| matrix is a channel without memory."""
        a = np.asarray(table, float)
        a = a[None] if a.ndim == 2 else a
        if not (a >= 0).all() or not np.allclose(a.sum(-1), 1, atol=1e-9):
            raise InputError("every row of a policy's table must be a probability law")
        return cls(np.ones((a.shape[-1] ** window, a.shape[-1])), a, window, first)

    @property
    def n_states(self) -> int:
        return self.kernel.shape[1]

    @property
    def n_outputs(self) -> int:
        return self.kernel.shape[2]

    def start(self, n: int | None = None) -> Memory:
        return np.full((() if n is None else (n,)), self.first, dtype=np.int64)

    def channel(self, memory: Memory) -> Array:
        a = self.output_model[memory][..., None, :] * self.kernel[memory % len(self.kernel)]
        return a / a.sum(-1, keepdims=True)

    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory:
        return (memory * self.n_outputs + np.asarray(y)) % len(self.output_model)

    def skip(self, memory: Memory, k: int = 1) -> Memory:
        return memory

    def export(self) -> Export:
        meta = {"kind": "window", "window": self.window, "first": self.first}
        arrays = {"output_model": self.output_model, "kernel": self.kernel}
        if self.transition is not None and self.initial is not None:
            arrays |= {"transition": self.transition, "initial": self.initial}
        return meta, arrays


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


@dataclass(frozen=True, eq=False)
class BeliefPolicy:
    """The channel is a function of the service provider's exact belief, b(z) = P(Z_t = z | releases so far)."""

    transition: Array
    initial: Array
    rule: Rule
    _shape: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_shape", self.rule(self.initial).shape)

    @property
    def n_states(self) -> int:
        return self._shape[0]

    @property
    def n_outputs(self) -> int:
        return self._shape[1]

    def start(self, n: int | None = None) -> Memory:
        return self.initial.copy() if n is None else np.tile(self.initial, (n, 1))

    def channel(self, memory: Memory) -> Array:
        return self.rule(memory)

    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory:
        return next_prior(memory, self.channel(memory) if channel is None else channel, y, self.transition)

    def skip(self, memory: Memory, k: int = 1) -> Memory:
        return advance(memory, self.transition, k)

    def export(self) -> Export:
        meta, arrays = self.rule.export()
        return {"kind": "belief", **meta}, {**arrays, "transition": self.transition, "initial": self.initial}


@dataclass(frozen=True, eq=False)
class Schedule:
    """Public time sharing: policy i runs for durations[i] steps, in turn, for ever.

    The phase counts steps, released or not. Every part keeps its memory up to date all the time, so a switch loses
    nothing that was released. Memory: phase, then the parts' memories side by side.
    """

    policies: tuple[Policy, ...]
    durations: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "policies", tuple(self.policies))
        object.__setattr__(self, "durations", tuple(int(n) for n in self.durations))
        if len(self.policies) != len(self.durations) or min(self.durations, default=0) < 1:
            raise InputError("a schedule needs one duration of at least one step for each policy")

    @property
    def n_states(self) -> int:
        return self.policies[0].n_states

    @property
    def n_outputs(self) -> int:
        return self.policies[0].n_outputs

    @property
    def period(self) -> int:
        return sum(self.durations)

    def active(self, phase: ArrayLike) -> NDArray[np.int64]:
        """Which policy runs at this phase."""
        return np.searchsorted(np.cumsum(self.durations), np.asarray(phase) % self.period, side="right")

    def start(self, n: int | None = None) -> Memory:
        return self._pack(np.zeros(() if n is None else n), [p.start(n) for p in self.policies])

    def channel(self, memory: Memory) -> Array:
        phase, parts = self._unpack(memory)
        which = self.active(phase)
        if which.ndim == 0:
            return self.policies[int(which)].channel(parts[int(which)])
        a = np.empty((*which.shape, self.n_states, self.n_outputs))
        for i in np.unique(which):
            a[which == i] = self.policies[i].channel(parts[i][which == i])
        return a

    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory:
        a = self.channel(memory) if channel is None else channel
        phase, parts = self._unpack(memory)
        return self._pack(phase + 1, [p.update(m, y, a) for p, m in zip(self.policies, parts, strict=True)])

    def skip(self, memory: Memory, k: int = 1) -> Memory:
        phase, parts = self._unpack(memory)
        return self._pack(phase + k, [p.skip(m, k) for p, m in zip(self.policies, parts, strict=True)])

    def _pack(self, phase: Memory, parts: Sequence[Memory]) -> Memory:
        phase = (phase % self.period).astype(float)
        return np.concatenate([phase[..., None], *(m if m.ndim > phase.ndim else m[..., None] for m in parts)], -1)

    def _unpack(self, memory: Memory) -> tuple[Memory, list[Memory]]:
        parts, at = [], 1
        for policy in self.policies:
            one = policy.start()
            width = one.shape[0] if one.ndim else 1
            part = memory[..., at : at + width].astype(one.dtype)
            parts.append(part if one.ndim else part[..., 0])
            at += width
        return memory[..., 0], parts

    def export(self) -> Export:
        parts = [p.export() for p in self.policies]
        arrays = {f"{i}.{k}": v for i, (_, part) in enumerate(parts) for k, v in part.items()}
        return {"kind": "schedule", "durations": list(self.durations), "policies": [m for m, _ in parts]}, arrays


def knowing(policy: Policy, transition: Array, initial: Array) -> Policy:
    """The same policy, telling a releaser which chain it was made for."""
    if isinstance(policy, WindowPolicy | LocalPolicy):
        return replace(policy, transition=transition, initial=initial)
    if isinstance(policy, Schedule):
        return replace(policy, policies=tuple(knowing(p, transition, initial) for p in policy.policies))
    return policy


RULES: dict[str, Callable[[dict[str, Any], dict[str, Array]], Rule]] = {
    "greedy": lambda meta, arrays: GreedyRule(arrays["cost"], float(meta["tolerance"])),
    "logit": LogitRule.restore,
    "lookahead": LookaheadRule.restore,
}


def restore(meta: dict[str, Any], arrays: dict[str, Array]) -> Policy:
    """The policy that `export` described."""
    match meta.get("kind"):
        case "window":
            known = arrays.get("transition"), arrays.get("initial")
            tables = arrays["output_model"], arrays["kernel"]
            return WindowPolicy(*tables, int(meta["window"]), int(meta["first"]), *known)
        case "belief" if meta.get("rule") in RULES:
            return BeliefPolicy(arrays["transition"], arrays["initial"], RULES[meta["rule"]](meta, arrays))
        case "local":
            return LocalPolicy.restore(meta, arrays)
        case "schedule":
            parts = []
            for i, part in enumerate(meta["policies"]):
                own = {k.removeprefix(f"{i}."): v for k, v in arrays.items() if k.startswith(f"{i}.")}
                parts.append(restore(part, own))
            return Schedule(tuple(parts), tuple(meta["durations"]))
    raise InputError(f"unknown kind of policy: {meta.get('kind')!r} {meta.get('rule', '')}".rstrip())
