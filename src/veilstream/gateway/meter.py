"""How much has leaked so far: three meters, each a function of released data alone.

*exact*     L(b, a) at the service provider's exact belief: the sum is the information its releases carry
*table*     L(mu_s, a_s) per window s of a window policy, mu_s the stationary law of the state given s: one look-up per
            step. Its mean is I(Z_t; Y_t | last w releases), an upper bound on the rate; start-up bits are not in it
*capacity*  max over all priors of L(., a_s): an upper bound for every chain, used where the chain is not known
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from veilstream.core.chain import MarkovChain
from veilstream.core.information import Array, divergence, entropy
from veilstream.core.policy import Memory, Policy, WindowPolicy
from veilstream.core.problem import advance, leakage, next_prior, output_law
from veilstream.core.steady import stationary_joint

MAX_TABLE = 4_000_000  # entries of a window policy's full table worth keeping in memory


class Meter(Protocol):
    needs_channel: bool

    def start(self, n: int) -> Array: ...
    def read(self, belief: Array, memory: Memory, a: Array | None) -> tuple[Array, Array]:
        """Bits this step will add, and the output law: n, n x |Y|."""
        ...

    def after(self, belief: Array, a: Array | None, y: NDArray[np.int64]) -> Array: ...
    def skip(self, belief: Array, k: int) -> Array: ...


@dataclass(frozen=True, eq=False)
class ExactMeter:
    """L(b, a) with b' = next_prior(b, a, y)."""

    transition: Array
    initial: Array
    noise: Array | None = None  # H(a_s(.|z)) of every window s, |Y|^w x |Z|, where the policy is a table
    needs_channel = True

    def start(self, n: int) -> Array:
        return np.tile(self.initial, (n, 1))

    def read(self, belief: Array, memory: Memory, a: Array | None) -> tuple[Array, Array]:
        assert a is not None
        p = output_law(belief, a)
        if self.noise is None:
            return leakage(belief, a), p
        return np.maximum(entropy(p) - (belief * self.noise[memory]).sum(-1), 0), p  # I = H(Y) - H(Y|Z)

    def after(self, belief: Array, a: Array | None, y: NDArray[np.int64]) -> Array:
        assert a is not None
        return next_prior(belief, a, y, self.transition)

    def skip(self, belief: Array, k: int) -> Array:
        return advance(belief, self.transition, k)


@dataclass(frozen=True, eq=False)
class TableMeter:
    """Bits and output law looked up by the window."""

    bits: Array  # |Y|^w
    law: Array  # |Y|^w x |Y|
    needs_channel = False

    @classmethod
    def of(cls, table: Array, chain: MarkovChain, policy: WindowPolicy) -> "TableMeter":
        mu = stationary_joint(chain, policy)
        mass = mu.sum(1, keepdims=True)
        b = np.where(mass > 0, mu / np.where(mass > 0, mass, 1), chain.initial)  # a window that never occurs
        return cls(leakage(b, table), output_law(b, table))

    def start(self, n: int) -> Array:
        return np.empty((n, 0))

    def read(self, belief: Array, memory: Memory, a: Array | None) -> tuple[Array, Array]:
        return self.bits[memory], self.law[memory]

    def after(self, belief: Array, a: Array | None, y: NDArray[np.int64]) -> Array:
        return belief

    def skip(self, belief: Array, k: int) -> Array:
        return belief


def capacity_meter(table: Array) -> TableMeter:
    """The same look-up, charged at each channel's capacity."""
    bits, b = capacity(table)
    return TableMeter(bits, output_law(b, table))


def capacity(a: Array, tolerance: float = 1e-6, max_iterations: int = 2000) -> tuple[Array, Array]:
    """C(a) = max_b L(b, a) from above, and the prior found (Arimoto 1972).

    b <- b 2^D(a_z||p) / sum,    C <= max_z D(a_z||p)
    """
    b = np.full(a.shape[:-1], 1 / a.shape[-2])
    for _ in range(max_iterations):
        D = divergence(a, output_law(b, a)[..., None, :])  # ... x |Z|
        if (D.max(-1) - (b * D).sum(-1)).max() < tolerance:
            break
        b = b * np.exp2(D - D.max(-1, keepdims=True))
        b /= b.sum(-1, keepdims=True)
    return D.max(-1), b


def window_table(policy: Policy) -> Array | None:
    """a_s(y|z) of every window s, |Y|^w x |Z| x |Y|, or None if the policy has none or it is too large to keep."""
    if not isinstance(policy, WindowPolicy):
        return None
    windows = len(policy.output_model)
    if windows * policy.n_states * policy.n_outputs > MAX_TABLE:
        return None
    return policy.channel(np.arange(windows))
