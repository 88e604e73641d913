"""Public time sharing between policies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.core.chain import MarkovChain
from veilstream.core.information import Array, Index
from veilstream.core.phased import Parts, restored_parts
from veilstream.core.policy import Export, Memory, Policy
from veilstream.core.steady import LawStep
from veilstream.errors import InputError


@dataclass(frozen=True, eq=False)
class Schedule(Parts, kind="schedule"):
    """Policy i runs for durations[i] steps, in turn, for ever.

    The phase counts steps, released or not. Every part keeps its memory up to date all the time, so a switch loses
    nothing that was released. Memory: phase, then the parts' memories side by side.

        >>> import veilstream as vs
        >>> fine, coarse = (vs.solve("builtin:binary", weight=w).policy for w in (8.0, 0.5))
        >>> turns = vs.Schedule((fine, coarse), (1, 3))        # one accurate release in four
        >>> problem = vs.builtin_problem("binary", vs.Average(weight=1.0))
        >>> 0 < vs.evaluate(problem, turns, steps=40, streams=16).leakage < 0.5
        True
    """

    durations: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "durations", tuple(int(n) for n in self.durations))
        if len(self.policies) != len(self.durations) or min(self.durations, default=0) < 1:
            raise InputError("a schedule needs one duration of at least one step for each policy")

    @property
    def period(self) -> int:
        return sum(self.durations)

    @property
    def remembers(self) -> int | None:
        windows = [p.remembers for p in self.policies]
        return None if None in windows else max(w for w in windows if w is not None)

    def shares(self) -> Sequence[tuple[float, Policy]]:
        return [(n / self.period, p) for n, p in zip(self.durations, self.policies, strict=True)]

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

    def phase_tables(self) -> Sequence[Array] | None:
        """On the longest of the parts' windows; the first of them says how a stream starts."""
        wide = self._wide()
        tables = [None if p is None else p.table() for p in wide]
        turns = [t for t, n in zip(tables, self.durations, strict=True) for _ in range(n) if t is not None]
        return turns if len(turns) == self.period else None

    def next_memory(self, s: Index, y: Index) -> Index:
        first = self._wide()[0]
        assert first is not None
        return first.update(s, y)

    def _wide(self) -> "list[Policy | None]":
        longest = self.remembers
        return [None if longest is None else p.widened(longest) for p in self.policies]

    def law_steps(self, chain: MarkovChain) -> Sequence[LawStep] | None:
        """Of parts that remember releases: each step of the period, on the longest of their windows."""
        turns = list[LawStep]()
        if chain.phases > 1:
            return None  # two periods at once
        for wide, n in zip(self._wide(), self.durations, strict=True):
            steps = None if wide is None else wide.law_steps(chain)
            if steps is None:
                return None
            turns += list(steps) * n
        return turns

    def export(self) -> Export:
        meta, arrays = super().export()
        return {**meta, "durations": list(self.durations)}, arrays

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> "Schedule":
        return cls(restored_parts(meta, arrays, chain), tuple(meta["durations"]))
