"""Randomness: from the operating system, never twice; with a seed, for tests alone."""

import os
from collections.abc import Callable

import numpy as np

from veilstream.model.information import Array

Uniforms = Callable[[int], Array]


class SecureUniforms:
    """53-bit uniforms in [0, 1) from the operating system's generator, fetched in blocks."""

    def __init__(self, block: int = 4096) -> None:
        self._block, self._pid = block, os.getpid()
        self._left: Array = np.empty(0)

    def __call__(self, n: int) -> Array:
        if self._pid != os.getpid():  # after a fork parent and child must not share draws
            self._left, self._pid = np.empty(0), os.getpid()
        if n > len(self._left):
            bits = np.frombuffer(os.urandom(8 * max(n, self._block)), dtype=np.uint64) >> np.uint64(11)
            self._left = bits.astype(np.float64) * 2.0**-53
        u, self._left = self._left[:n], self._left[n:]
        return u


def uniforms(seed: int | None = None) -> Uniforms:
    """The secure generator; with a seed a reproducible one, for tests only: whoever knows it can undo the noise."""
    return SecureUniforms() if seed is None else np.random.default_rng(seed).random
