"""Policies over numbered memories, stored without their largest axis: a_s(y|z) = r(y|s) k_s(z,y) / N(s,z).

A whole table has |S| |Z| |Y| entries; r and N have |S| |Y| and |S| |Z|, and of the kernel k one row or one column is
all that a step of one stream asks for.
"""

from abc import abstractmethod
from functools import cached_property

import numpy as np

from veilstream.core.information import Array, Index
from veilstream.core.policy import NO_LAW, Memory, Policy
from veilstream.errors import InputError


class FactoredPolicy(Policy):
    """What is the same for windows and for memories made to measure."""

    output_model: Array  # r: |S| x |Y|
    kernel: Array  # its axis of states is the second
    first: int  # the public memory a stream starts from

    @property
    def n_states(self) -> int:
        return int(self.kernel.shape[1])

    @property
    def n_outputs(self) -> int:
        return int(self.output_model.shape[1])

    @property
    def n_memories(self) -> int:
        return len(self.output_model)

    def start(self, n: int | None = None) -> Memory:
        return np.full((() if n is None else (n,)), self.first, dtype=np.int64)

    @cached_property
    @abstractmethod
    def normaliser(self) -> Array:
        """N(s,z), |S| x |Z|."""

    @abstractmethod
    def kernel_rows(self, memory: Memory, z: Index) -> Array:
        """k_s(z,.), n x |Y|."""

    @abstractmethod
    def kernel_columns(self, memory: Memory, y: Index) -> Array:
        """k_s(.,y), n x |Z|."""

    def rows(self, memory: Memory, z: Index) -> Array:
        rows: Array = self.output_model[memory] * self.kernel_rows(memory, z) / self.normaliser[memory, z][:, None]
        return rows

    def columns(self, memory: Memory, y: Index) -> Array:
        share = self.output_model[memory, y][:, None] / self.normaliser[memory]
        return np.asarray(share * self.kernel_columns(memory, y))

    def check(self) -> None:
        N = self.normaliser
        if (self.output_model < 0).any() or (self.kernel < 0).any() or not np.isfinite(N).all() or not (N > 0).all():
            raise InputError(NO_LAW)
