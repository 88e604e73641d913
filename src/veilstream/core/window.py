"""A policy that remembers the last w releases: a table, stored without its largest axis."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.core.chain import MarkovChain
from veilstream.core.factored import FactoredPolicy
from veilstream.core.information import Array, Index, normalised
from veilstream.core.policy import Export, Memory
from veilstream.core.steady import LawStep, WindowStep
from veilstream.errors import InputError

MAX_WINDOW = 32


@dataclass(frozen=True, eq=False)
class WindowPolicy(FactoredPolicy, kind="window"):
    """A table over the last w released symbols s = (oldest, ..., newest), written in base |Y|.

        a_s(y|z) = r(y|s) K_s(z,y) / N(s,z)

    The kernel of an optimal policy does not depend on the oldest symbol, so K has |Y|^(w-1) entries (one for w <= 1)
    and the whole is stored without its |Y|^w x |Z| x |Y| product. A plain table is r = 1, K = table.

        >>> import veilstream as vs
        >>> policy = vs.solve("builtin:binary", weight=2.0, window=1).policy
        >>> memory = policy.start()
        >>> a = policy.channel(memory)                         # |Z| x |Y|, rows sum to 1
        >>> memory = policy.update(memory, 0)                  # 0 was released
        >>> a.sum(1).round(6).tolist(), int(memory)
        ([1.0, 1.0], 0)
    """

    output_model: Array  # r: |Y|^w x |Y|
    kernel: Array  # K: n x |Z| x |Y|, used at s mod n
    window: int  # w
    first: int = 0  # the public memory a stream starts from
    chain: MarkovChain | None = None

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
    def remembers(self) -> int:
        return self.window

    @cached_property
    def normaliser(self) -> Array:
        N, n = np.empty((len(self.output_model), self.n_states)), len(self.kernel)
        for k, K in enumerate(self.kernel):
            N[k::n] = self.output_model[k::n] @ K.T
        return N

    def kernel_rows(self, memory: Memory, z: Index) -> Array:
        return np.asarray(self.kernel[memory % len(self.kernel), z])

    def kernel_columns(self, memory: Memory, y: Index) -> Array:
        return np.asarray(self.kernel[memory % len(self.kernel), :, y])

    def channel(self, memory: Memory) -> Array:
        a = self.output_model[memory][..., None, :] * self.kernel[memory % len(self.kernel)]
        return normalised(a)

    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory:
        after: Memory = (memory * self.n_outputs + np.asarray(y)) % len(self.output_model)
        return after

    def export(self) -> Export:
        meta = {"kind": self.kind, "window": self.window, "first": self.first}
        return meta, {"output_model": self.output_model, "kernel": self.kernel}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> "WindowPolicy":
        window = checked_window(meta)
        return cls(arrays["output_model"], arrays["kernel"], window, int(meta["first"]), chain)

    def law_steps(self, chain: MarkovChain) -> Sequence[LawStep]:
        each = [
            WindowStep(chain.at(phase), self.output_model, self.kernel, self.window, self.first)
            for phase in range(chain.phases)
        ]
        return [each[phase] for phase in chain.around]

    def widened(self, window: int) -> "WindowPolicy":
        copies = self.n_outputs ** (window - self.window)
        return replace(self, output_model=np.tile(self.output_model, (copies, 1)), window=window)

    def output_model_at(self, windows: Index, y: Index) -> Array:
        return self.output_model[windows % len(self.output_model), y]

    def release_cost(self) -> Array | None:
        with np.errstate(divide="ignore"):
            return -np.log2(self.kernel[0]) if len(self.kernel) == 1 else None


def checked_window(meta: dict[str, Any]) -> int:
    """The window that a description asks for, before anything is built from it."""
    window = meta["window"]
    if not isinstance(window, int) or not 0 <= window <= MAX_WINDOW:
        raise InputError(f"window must be 0..{MAX_WINDOW}, found {str(window)[:20]}")
    return window
