"""A policy whose memory was made to measure: states s' = next(s, y), as many as pay, each led to by one release alone.

    a_s(y|z) = r(y|s) B(s',z) / N(s,z)        s' = next(s, y),  N the sum over y

B(s',z) is what it costs, now and later, that z shows the release of s'. The last w releases are such a memory too; this
one is finer where that tells more, coarser elsewhere, and is stored as two tables of |S| x |Y| and one of |S| x |Z|.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.core.chain import MarkovChain
from veilstream.core.factored import FactoredPolicy
from veilstream.core.information import Array, Index, normalised, xlog2
from veilstream.core.policy import Export, Memory
from veilstream.core.steady import LawStep, Moves, Opening, Rates
from veilstream.errors import InputError


def newest(next: Index) -> Index:
    """The release that leads to each memory; refused where two do, or none."""
    S, Y = next.shape
    if ((next < 0) | (next >= S)).any():
        raise InputError("the policy's memory leads to states that it does not have")
    led = np.zeros((S, Y), dtype=bool)
    led[next, np.arange(Y)] = True
    if (led.sum(1) != 1).any():
        raise InputError("every state of a policy's memory must be led to by one release")
    return np.asarray(led.argmax(1))


class KernelStep:
    """One step of the law of (memory, state) under r B / N; mu is S x Z.

    With R(s,s') = r(y|s) where s' = next(s,y) every line is a product of matrices, and no S x Y x Z array is made.
    """

    def __init__(self, chain: MarkovChain, r: Array, kernel: Array, next: Index, first: int) -> None:
        self.chain, self.r, self.B, self.next, self.first = chain, r, kernel, next, first
        self.moves, self.newest = Moves(chain), newest(next)
        self.R = spread(r, next)
        self.N = self.R @ kernel

    def __call__(self, mu: Array) -> Array:
        return self.moves.step((self.R.T @ (mu / self.N)) * self.B)

    def _led(self, share: Array, kernel: Array) -> Array:
        """sum_z share(s,z) kernel(s',z) for every s and y, S x Y."""
        return np.take_along_axis(share @ kernel.T, self.next, 1)

    def rates(self, mu: Array, d: Array) -> Rates:
        share = mu / self.N
        p_sy = self.r * self._led(share, self.B)
        p_s = p_sy.sum(1)
        log_a = xlog2(p_sy, self.r) + self.r * self._led(share, xlog2(self.B, self.B))
        leak = log_a.sum(1) - xlog2(mu, self.N).sum(1) - xlog2(p_sy, p_sy).sum(1) + xlog2(p_s, p_s)
        distortion = (self.r * self._led(share, self.B * d.T[self.newest])).sum()
        return Rates(float(np.maximum(leak, 0).sum()), float(distortion))

    def shown(self, mu: Array) -> Array:
        m = np.zeros((self.r.shape[1], mu.shape[1]))
        np.add.at(m, self.newest, (self.R.T @ (mu / self.N)) * self.B)
        return m.T

    def guess(self) -> Array:
        return np.tile(self.chain.stationary / len(self.r), (len(self.r), 1))

    def opening(self, initial: Array) -> Opening:
        mu = np.zeros_like(self.B)
        mu[self.first] = initial
        return Opening(mu)

    def solved(self) -> None:
        return None


def spread(r: Array, next: Index) -> Array:
    """R(s,s') = r(y|s) where s' = next(s,y); any axes before those."""
    S = len(next)
    R = np.zeros((*r.shape[:-1], S), dtype=r.dtype)
    R[..., np.arange(S)[:, None], next] = r
    return R


@dataclass(frozen=True, eq=False)
class MemoryPolicy(FactoredPolicy, kind="memory"):
    """A table over the states of a memory made to measure."""

    output_model: Array  # r: |S| x |Y|
    kernel: Array  # B: |S| x |Z|
    next: NDArray[np.int64]  # |S| x |Y|
    first: int = 0  # the public memory a stream starts from
    chain: MarkovChain | None = None

    def __post_init__(self) -> None:
        r, B, to = np.asarray(self.output_model, float), np.asarray(self.kernel, float), np.asarray(self.next)
        if r.ndim != 2 or B.ndim != 2 or to.shape != r.shape or len(B) != len(r) or to.dtype.kind not in "iu":
            raise InputError(f"a memory does not fit tables of shape {r.shape}, {B.shape} and {to.shape}")
        if not 0 <= self.first < len(r):
            raise InputError(f"first must be one of the {len(r)} memories, found {self.first}")
        newest(to)
        for name, x in (("output_model", r), ("kernel", B), ("next", to.astype(np.int64))):
            object.__setattr__(self, name, x)

    @cached_property
    def normaliser(self) -> Array:
        return np.asarray(spread(self.output_model, self.next) @ self.kernel)

    def kernel_rows(self, memory: Memory, z: Index) -> Array:
        return np.asarray(self.kernel[self.next[memory], z[:, None]])

    def kernel_columns(self, memory: Memory, y: Index) -> Array:
        return np.asarray(self.kernel[self.next[memory, y]])

    def channel(self, memory: Memory) -> Array:
        memory = np.asarray(memory, dtype=np.int64)
        a = self.output_model[memory][..., None] * self.kernel[self.next[memory]]  # ... x Y x Z
        return normalised(a.swapaxes(-1, -2))

    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory:
        return np.asarray(self.next[np.asarray(memory, dtype=np.int64), np.asarray(y)])

    def output_model_at(self, windows: Index, y: Index) -> Array:
        """Of all memories that the newest release leads to, the mean."""
        last, Y = newest(self.next), self.n_outputs
        model = np.zeros((Y, Y))
        np.add.at(model, last, self.output_model)
        return np.asarray((model / np.maximum(np.bincount(last, minlength=Y), 1)[:, None])[windows % Y, y])

    def export(self) -> Export:
        arrays = {"output_model": self.output_model, "kernel": self.kernel, "next": self.next}
        return {"kind": self.kind, "first": self.first}, arrays

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> "MemoryPolicy":
        return cls(arrays["output_model"], arrays["kernel"], arrays["next"], int(meta["first"]), chain)

    def law_steps(self, chain: MarkovChain) -> Sequence[LawStep]:
        each = [
            KernelStep(chain.at(phase), self.output_model, self.kernel, self.next, self.first)
            for phase in range(chain.phases)
        ]
        return [each[phase] for phase in chain.around]
