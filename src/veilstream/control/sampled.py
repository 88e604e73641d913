"""A belief policy whose channel is drawn anew at every step, as Algorithm 1 of the paper draws it in training.

    a_t(.|z) ~ Dirichlet(xi(b_t)(z,.)),  the draw made by numbers that follow from the releases so far and a public seed

So the channel is a function of released data alone: the provider knows it, the belief is exact, and what is leaked is
E L(b_t, a_t). Kept private the draw would leak less, as much as the mean of the rows does: L is convex in the channel.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.control.policy import Export, Memory, Policy
from veilstream.control.rules import DirichletRule
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, normalised
from veilstream.model.problem import next_prior

CODES = np.uint64(1 << 53)  # codes are whole numbers that a float holds exactly
ODD = np.uint64(0x9E3779B97F4A7C15)
DRAWS = 5  # uniform numbers behind one gamma sample


@dataclass(frozen=True, eq=False)
class SampledPolicy(Policy, kind="sampled"):
    """Its memory: the provider's belief, and behind it a code of the releases so far."""

    chain: MarkovChain
    rule: DirichletRule
    seed: int = 0

    @property
    def n_states(self) -> int:
        return len(self.rule.cost)

    @property
    def n_outputs(self) -> int:
        return int(self.rule.cost.shape[1])

    def start(self, n: int | None = None) -> Memory:
        first = np.append(self.chain.initial, after(np.uint64(self.seed), 0))
        return first if n is None else np.tile(first, (n, 1))

    def channel(self, memory: Memory) -> Array:
        xi = self.rule.concentration(memory[..., :-1])
        u = uniform(memory[..., -1].astype(np.uint64), DRAWS * self.rule.cost.size)
        return dirichlet(np.moveaxis(u.reshape(*xi.shape, DRAWS), -1, 0), xi)

    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory:
        a = self.channel(memory) if channel is None else channel
        b = next_prior(memory[..., :-1], a, y, self.chain.transition)
        return np.concatenate([b, after(memory[..., -1], y)[..., None]], -1)

    def skip(self, memory: Memory, k: int = 1) -> Memory:
        code = np.fmod(memory[..., -1] + k % int(CODES), float(CODES))
        return np.concatenate([self.chain.later(memory[..., :-1], k), code[..., None]], -1)

    def export(self) -> Export:
        meta, arrays = self.rule.export()
        return {**meta, "kind": self.kind, "seed": self.seed}, arrays

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> "SampledPolicy":
        return cls(chain, DirichletRule.restore(meta, arrays), int(meta["seed"]))


# --- draws that follow from a code -----------------------------------------------------------------------


def mixed(x: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014): 64 bits that look independent for every x."""
    with np.errstate(over="ignore"):
        x = np.asarray(x, np.uint64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def after(code: ArrayLike, y: ArrayLike) -> Array:
    """The code of the releases so far and y."""
    with np.errstate(over="ignore"):
        both = np.asarray(code).astype(np.uint64) + ODD * (np.asarray(y).astype(np.uint64) + np.uint64(1))
    return np.asarray((mixed(both) % CODES).astype(float))


def uniform(code: NDArray[np.uint64], n: int) -> Array:
    """n numbers in (0, 1) for every code."""
    with np.errstate(over="ignore"):
        bits = mixed(mixed(code)[..., None] + ODD * np.arange(1, n + 1, dtype=np.uint64))
    return (bits >> np.uint64(11)).astype(float) * 2.0**-53 + 2.0**-54


def dirichlet(u: Array, xi: Array) -> Array:
    """Rows from DRAWS uniform numbers an entry, exactly 0 where xi is; Marsaglia and Tsang as in `deep.networks`."""
    k = np.where(xi > 0, xi, 1.0)
    d = k + 2 / 3
    radius = np.sqrt(-2 * np.log(u[0]))
    log_g = np.zeros_like(k)  # what both rounds refuse (under 0.3 %) takes v = 1
    for x, v in ((radius * np.sin(2 * np.pi * u[1]), u[3]), (radius * np.cos(2 * np.pi * u[1]), u[2])):
        root = 1 + x / np.sqrt(9 * d)
        log_v = 3 * np.log(np.maximum(root, 1e-6))
        ok = (root > 0) & (np.log(v) < x**2 / 2 + d - d * root**3 + d * log_v)
        log_g = np.where(ok, log_v, log_g)
    log_g = np.where(xi > 0, np.log(d) + log_g + np.log(u[4]) / k, -np.inf)
    return normalised(np.exp(log_g - log_g.max(-1, keepdims=True)))
