"""Learned rules, run by a numpy forward pass: from a belief to a channel, without any deep-learning library.

All are made by the solvers of the extra `deep`; saved, restored and released they need only this file.
A network sees n b - 1 (zero at the uniform belief), has leaky ReLU between its layers and nothing after the last.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from veilstream.model.information import Array, normalised

LEAK = 0.01  # slope of leaky ReLU below zero
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


def pack(layers: Layers) -> dict[str, Array]:
    """By name, in the single precision they were trained in."""
    named = {f"weight{i}": W for i, (W, _) in enumerate(layers)} | {f"bias{i}": c for i, (_, c) in enumerate(layers)}
    return {name: v.astype(np.float32) for name, v in named.items()}


def unpack(arrays: dict[str, Array]) -> Layers:
    n = sum(name.startswith("weight") for name in arrays)
    return as_layers((arrays[f"weight{i}"], arrays[f"bias{i}"]) for i in range(n))


@dataclass(frozen=True, eq=False)
class LogitRule:
    """a(y|z) = 2^(-cost(z,y) + f(b)(z,y) / ln 2) / N(z): the network moves the logits of every row."""

    layers: Layers  # |Z| -> |Z| |Y|
    cost: Array  # |Z| x |Y| bits, infinite where forbidden

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", as_layers(self.layers))

    def __call__(self, belief: Array) -> Array:
        logits = forward(self.layers, belief).reshape(*belief.shape[:-1], *self.cost.shape) - np.log(2) * self.cost
        a = np.exp(logits - logits.max(-1, keepdims=True))
        return normalised(a)

    def export(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return {"rule": "logit"}, {**pack(self.layers), "cost": self.cost}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> "LogitRule":
        return cls(unpack(arrays), arrays["cost"])


@dataclass(frozen=True, eq=False)
class LookaheadRule:
    """Blahut-Arimoto at the belief, with the learned cost of what each release makes of the future.

    r, u = f(b)
    K(z,y) = 2^-(cost(z,y) + sum_k u(y,k) directions(z,k))
    `sweeps` times:  N(z) = sum_y r K,   r(y) <- r(y) sum_z b K / N
    a(y|z) = r(y) K(z,y) / N(z)
    """

    layers: Layers  # |Z| -> |Y| + |Y| k
    cost: Array  # |Z| x |Y| bits: this step and the learned look-ahead; infinite where forbidden
    directions: Array  # |Z| x k
    sweeps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", as_layers(self.layers))

    def __call__(self, belief: Array) -> Array:
        n_y, rank = self.cost.shape[1], self.directions.shape[1]
        out = forward(self.layers, belief)
        u = out[..., n_y:].reshape(*belief.shape[:-1], n_y, rank)
        cost = self.cost + np.swapaxes(u @ self.directions.T, -1, -2)
        K = np.exp2(cost.min(-1, keepdims=True) - cost)
        r = np.exp(out[..., :n_y] - out[..., :n_y].max(-1, keepdims=True))
        r /= r.sum(-1, keepdims=True)
        for _ in range(self.sweeps):
            N = (K @ r[..., None])[..., 0]
            r = np.maximum(r * ((belief / N)[..., None, :] @ K)[..., 0, :], 1e-30)
        a = r[..., None, :] * K
        return normalised(a)

    def export(self) -> tuple[dict[str, Any], dict[str, Array]]:
        arrays = {**pack(self.layers), "cost": self.cost, "directions": self.directions}
        return {"rule": "lookahead", "sweeps": self.sweeps}, arrays

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> "LookaheadRule":
        return cls(unpack(arrays), arrays["cost"], arrays["directions"], int(meta["sweeps"]))


LOW, HIGH = 0.1, 1000.0  # of one concentration: beyond, single precision has no density left


@dataclass(frozen=True, eq=False)
class DirichletRule:
    """xi(z,y) = ln(1 + e^f(b)(z,y)), kept to [LOW, HIGH]: the concentrations of a row; as a channel, their mean."""

    layers: Layers  # |Z| -> |Z| |Y|
    cost: Array  # |Z| x |Y| bits: only where it is infinite matters
    slope: float = LEAK

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", as_layers(self.layers))

    def concentration(self, belief: Array) -> Array:
        """xi(z,y), 0 where forbidden."""
        out = forward(self.layers, belief, self.slope).reshape(*belief.shape[:-1], *self.cost.shape)
        return np.where(np.isfinite(self.cost), np.clip(np.logaddexp(0, out), LOW, HIGH), 0)

    def __call__(self, belief: Array) -> Array:
        return normalised(self.concentration(belief))

    def export(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return {"rule": "dirichlet", "slope": self.slope}, {**pack(self.layers), "cost": self.cost}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> "DirichletRule":
        return cls(unpack(arrays), arrays["cost"], float(meta["slope"]))
