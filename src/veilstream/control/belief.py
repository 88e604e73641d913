"""Policies whose memory is the service provider's exact belief; a rule turns it into a channel.

Learned rules are run by a numpy forward pass, without any deep-learning library: made by the solvers of the extra
`deep`, they are saved, restored and released by this file alone. A network sees n b - 1 (zero at the uniform belief),
has leaky ReLU between its layers and nothing after the last.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.control.policy import Export, Memory, Policy
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, normalised
from veilstream.model.problem import blahut_arimoto, next_prior

LEAK = 0.01  # slope of leaky ReLU below zero
LEAST_XI = 1e-2  # of one concentration: single precision has no smaller draws
LEAST_R = 1e-12  # of r(y) in `LookaheadRule`: training divides by squares of sums of it, in single precision
LOW, HIGH = 0.1, 1000.0  # of one concentration: beyond, single precision has no density left
CODES = np.uint64(1 << 53)  # codes are whole numbers that a float holds exactly
ODD = np.uint64(0x9E3779B97F4A7C15)
DRAWS = 5  # uniform numbers behind one gamma sample
Layers = tuple[tuple[Array, Array], ...]  # (weight in x out, bias) of each layer


def forward(layers: Layers, belief: Array, slope: float = LEAK) -> Array:
    """x -> max(x W + c, slope (x W + c)), layer by layer; the last is linear."""
    x = belief * belief.shape[-1] - 1
    for W, c in layers[:-1]:
        x = x @ W + c
        x = np.maximum(x, slope * x)
    W, c = layers[-1]
    return np.asarray(x @ W + c)


def as_layers(layers: Any) -> Layers:
    return tuple((np.asarray(W, float), np.asarray(c, float)) for W, c in layers)


class Rule(ABC):
    """From a belief to a channel: a frozen dataclass of numbers, arrays and the layers of a network."""

    name: ClassVar[str]
    cost: Array  # |Z| x |Y| bits, infinite where forbidden

    def __init_subclass__(cls, name: str, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls.name, RULES[name] = name, cls

    def __post_init__(self) -> None:
        if hasattr(self, "layers"):
            object.__setattr__(self, "layers", as_layers(self.layers))

    @abstractmethod
    def __call__(self, belief: Array) -> Array: ...

    def export(self) -> Export:
        """Layers in the single precision they were trained in."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        layers = own.pop("layers", ())
        arrays = {k: v for k, v in own.items() if isinstance(v, np.ndarray)}
        arrays |= {
            f"{k}{i}": v.astype(np.float32) for i, pair in enumerate(layers) for k, v in zip(PAIR, pair, strict=True)
        }
        return {"rule": self.name} | {k: v for k, v in own.items() if k not in arrays}, arrays

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> "Rule":
        own = dict[str, Any]()
        for f in fields(cls):  # type: ignore[arg-type]
            if f.name == "layers":
                n = sum(k.startswith(PAIR[0]) for k in arrays)
                own["layers"] = [[arrays[f"{k}{i}"] for k in PAIR] for i in range(n)]
            else:
                own[f.name] = f.type(meta[f.name]) if f.type in (int, float, str) else arrays[f.name]
        return cls(**own)


RULES: dict[str, type[Rule]] = {}
PAIR = "weight", "bias"
DRAWN = "dirichlet", "lookahead"  # rules that have concentrations


@dataclass(frozen=True, eq=False)
class GreedyRule(Rule, name="greedy"):
    """Blahut-Arimoto at the belief: the best channel for this step alone."""

    cost: Array  # |Z| x |Y| bits, infinite where forbidden
    tolerance: float = 1e-6

    def __call__(self, belief: Array) -> Array:
        return blahut_arimoto(belief, self.cost, tolerance=self.tolerance)[0]


@dataclass(frozen=True, eq=False)
class LookaheadRule(Rule, name="lookahead"):
    """Blahut-Arimoto at the belief, with the learned cost of what each release makes of the future.

    r, u = f(b)                                                        r as a law, nowhere below LEAST_R
    K(z,y) = 2^-(cost(z,y) + sum_k u(y,k) directions(z,k))
    `sweeps` times:  N(z) = sum_y r K,   r(y) <- r(y) sum_z b K / N
    a(y|z) = r(y) K(z,y) / N(z)
    """

    layers: Layers  # |Z| -> |Y| + |Y| k
    cost: Array  # |Z| x |Y| bits: this step and the learned look-ahead; infinite where forbidden
    directions: Array  # |Z| x k
    sweeps: int
    kappa: float = 1000.0  # concentration of a row, where rows are drawn

    def concentration(self, belief: Array) -> Array:
        """xi(z,y) = kappa a(y|z), 0 where forbidden."""
        return np.where(np.isfinite(self.cost), np.maximum(self.kappa * self(belief), LEAST_XI), 0)

    def __call__(self, belief: Array) -> Array:
        n_y, rank = self.cost.shape[1], self.directions.shape[1]
        out = forward(self.layers, belief)
        u = out[..., n_y:].reshape(*belief.shape[:-1], n_y, rank)
        cost = self.cost + np.swapaxes(u @ self.directions.T, -1, -2)
        K = np.exp2(cost.min(-1, keepdims=True) - cost)
        r = np.exp(out[..., :n_y] - out[..., :n_y].max(-1, keepdims=True))
        r = np.maximum(r / r.sum(-1, keepdims=True), LEAST_R)
        for _ in range(self.sweeps):
            N = (K @ r[..., None])[..., 0]
            r = np.maximum(r * ((belief / N)[..., None, :] @ K)[..., 0, :], LEAST_R)
        a = r[..., None, :] * K
        return normalised(a)


@dataclass(frozen=True, eq=False)
class DirichletRule(Rule, name="dirichlet"):
    """xi(z,y) = ln(1 + e^f(b)(z,y)), kept to [LOW, HIGH]: the concentrations of a row; as a channel, their mean.

    link "softmax": xi(z,.) = softmax f(b)(z,.), at least LEAST_XI.
    """

    layers: Layers  # |Z| -> |Z| |Y|
    cost: Array  # |Z| x |Y| bits: only where it is infinite matters
    slope: float = LEAK
    link: str = "softplus"

    def concentration(self, belief: Array) -> Array:
        """xi(z,y), 0 where forbidden."""
        out = forward(self.layers, belief, self.slope).reshape(*belief.shape[:-1], *self.cost.shape)
        allowed = np.isfinite(self.cost)
        if self.link == "softmax":
            e = np.where(allowed, np.exp(out - out.max(-1, keepdims=True)), 0)
            return np.where(allowed, np.maximum(normalised(e), LEAST_XI), 0)
        return np.where(allowed, np.clip(np.logaddexp(0, out), LOW, HIGH), 0)

    def __call__(self, belief: Array) -> Array:
        return normalised(self.concentration(belief))


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
        return cls(chain, RULES[meta["rule"]].restore(meta, arrays))


@dataclass(frozen=True, eq=False)
class SampledPolicy(BeliefPolicy, kind="sampled"):
    """The channel is drawn anew at every step, as Algorithm 1 of the paper draws it in training.

        a_t(.|z) ~ Dirichlet(xi(b_t)(z,.)),  the draw made by numbers that follow from the releases and a public seed

    So the channel is a function of released data alone: the provider knows it, the belief is exact, and what is leaked
    is E L(b_t, a_t). Kept private the draw would leak less, as much as the mean of the rows does: L is convex in the
    channel. The memory is the belief, and behind it a code of the releases so far.
    """

    rule: DirichletRule | LookaheadRule
    seed: int = 0

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
        meta, arrays = super().export()
        return meta | {"seed": self.seed}, arrays

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> "SampledPolicy":
        if meta.get("rule") not in DRAWN:
            raise InputError(f"unknown rule of a sampled policy: {str(meta.get('rule'))[:40]!r}")
        return cls(chain, RULES[meta["rule"]].restore(meta, arrays), int(meta["seed"]))  # type: ignore[arg-type]


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
