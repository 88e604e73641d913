"""What both learned solvers share, in JAX: the Bayes step of `problem`, small networks, and Dirichlet rows.

The formulas are those of `veilstream.model.problem` (a test holds the two against each other); only the array library
differs, so that a whole training loop compiles and can be differentiated. Everything takes leading batch axes.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from veilstream.control.belief import LEAK
from veilstream.control.evaluate import controlled
from veilstream.model.problem import Problem

LN2 = float(np.log(2))
FORBIDDEN = -1e9  # a logit that never wins, and whose softmax is exactly 0 in single precision

Layers = list[tuple[jax.Array, jax.Array]]  # (weight in x out, bias) of each layer


class Model(NamedTuple):
    """A problem at one weight, as arrays of the device."""

    transition: jax.Array  # |Z| x |Z|
    initial: jax.Array  # |Z|
    distortion: jax.Array  # |Z| x |Y|
    allowed: jax.Array  # |Z| x |Y|, bool
    weight: jax.Array  # bits per unit of distortion; 0 under an instantaneous limit alone

    @classmethod
    def of(cls, problem: Problem, weight: float) -> "Model":
        single = [problem.chain.transition, problem.chain.initial, problem.distortion]
        P, initial, d = (jnp.asarray(v, jnp.float32) for v in single)
        return cls(P, initial, d, jnp.asarray(problem.allowed), jnp.float32(weight))

    @property
    def base_logits(self) -> jax.Array:
        """-cost in nats: where every actor starts."""
        return jnp.where(self.allowed, -LN2 * self.weight * self.distortion, FORBIDDEN)


# --- the Bayes step --------------------------------------------------------------------------------------


def xlog2(x: jax.Array, y: jax.Array) -> jax.Array:
    """x log2 y, and 0 (with gradient 0) wherever x = 0 or y = 0."""
    safe = (x > 0) & (y > 0)
    return jnp.where(safe, x * jnp.log2(jnp.where(safe, y, 1)), 0)


def step_cost(model: Model, b: jax.Array, a: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(leakage, distortion, output law) of channel a at belief b."""
    p = jnp.einsum("...z,...zy->...y", b, a)
    leakage = jnp.einsum("...z,...zy->...", b, xlog2(a, a)) - xlog2(p, p).sum(-1)
    return leakage, jnp.einsum("...z,...zy,zy->...", b, a, model.distortion), p


def next_belief(model: Model, b: jax.Array, a: jax.Array, y: jax.Array) -> jax.Array:
    """b' = m(.,y)/p(y) P."""
    m = b * jnp.take_along_axis(a, y[..., None, None], -1)[..., 0]
    return (m / m.sum(-1, keepdims=True)) @ model.transition


def draw(p: jax.Array, u: jax.Array) -> jax.Array:
    """The symbol at which the cumulative law passes u in [0, 1); never one of probability 0."""
    cumulative = jnp.cumsum(p, -1)
    total = cumulative[..., -1:]
    passed = jnp.minimum(u[..., None] * total, jnp.nextafter(total, jnp.zeros_like(total)))
    return (cumulative <= passed).sum(-1)


FIGURES = "leakage", "distortion", "objective", "mean_objective", "sample_objective"


class Rolled(NamedTuple):
    """What each stream of a roll-out gave, per step."""

    rates: jax.Array  # streams x 2: leakage, distortion
    off: jax.Array  # streams x |Z|: the mean belief less its expectation


def rollout(
    model: Model,
    first: jax.Array,
    channel: Callable[[jax.Array], jax.Array],
    streams: int,
    draws: int = 0,
    steps: int = 32,
    burn_in: int = 32,
) -> Rolled:
    """The steps after `burn_in`; y ~ p(y), on the same draws every time.

    draws: 0, and the rows are `channel` of the belief; DRAWS, and they are drawn with these concentrations.
    """
    size = model.distortion.shape
    keys = jax.random.split(jax.random.PRNGKey(0), burn_in + steps)

    def step(now: tuple[jax.Array, jax.Array], key: jax.Array) -> tuple[tuple[jax.Array, jax.Array], Rolled]:
        b, law = now
        u, a = uniform(key, (streams * (1 + draws * model.distortion.size),)), channel(b)
        if draws:
            a = jnp.exp(dirichlet_sample(u[streams:].reshape(draws, streams, *size), a, model.allowed))
        leakage, distortion, p = step_cost(model, b, a)
        after = next_belief(model, b, a, draw(p, u[:streams])), law @ model.transition
        return after, Rolled(jnp.stack([leakage, distortion], -1), b - law)

    _, seen = jax.lax.scan(step, (jnp.tile(first, (streams, 1)), first), keys)
    return Rolled(*(v[burn_in:].mean(0) for v in seen))


def rolled_both(
    model: Model,
    first: jax.Array,
    mean: Callable[[jax.Array], jax.Array],
    xi: Callable[[jax.Array], jax.Array],
    streams: int,
) -> tuple[Rolled, Rolled]:
    """`rollout` of the mean of Dirichlet rows and of sampled ones."""
    return rollout(model, first, mean, streams), rollout(model, first, xi, streams, DRAWS)


def figures(weight: float, rolled: tuple[Rolled, Rolled], deploy: str) -> dict[str, float]:
    """A point of a learning curve, from the mean of the rows and from sampled ones."""
    if not all(bool(jnp.isfinite(v).all()) for r in rolled for v in r):
        return dict.fromkeys(FIGURES, math.nan)  # of a training that diverged
    rates = [controlled(np.asarray(r.rates, float), np.asarray(r.off))[0] for r in rolled]
    mean, sample = (bits + weight * units for bits, units in rates)
    bits, units = rates[0 if deploy == "mean" else 1]
    return dict(zip(FIGURES, (bits, units, bits + weight * units, mean, sample), strict=True))


# --- networks --------------------------------------------------------------------------------------------


def mlp_init(key: jax.Array, sizes: list[int], last: float = 1.0) -> Layers:
    """He-normal weights, zero biases; the last layer is scaled by `last`."""
    layers = []
    for i, (k, n, m) in enumerate(zip(jax.random.split(key, len(sizes) - 1), sizes[:-1], sizes[1:], strict=True)):
        scale = (last if i == len(sizes) - 2 else 1.0) * np.sqrt(2 / n)
        layers.append((scale * jax.random.normal(k, (n, m)), jnp.zeros(m)))
    return layers


def mlp(layers: Layers, b: jax.Array, slope: float = LEAK) -> jax.Array:
    """`rules.forward` of a belief: leaky ReLU between the layers, none after the last."""
    x = b * b.shape[-1] - 1
    for W, c in layers[:-1]:
        x = jax.nn.leaky_relu(x @ W + c, slope)
    W, c = layers[-1]
    return x @ W + c


# --- Dirichlet rows --------------------------------------------------------------------------------------


DRAWS = 5  # uniform numbers behind one gamma sample


def uniform(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """In (0, 1): never 0, so that its logarithm is finite."""
    return jax.random.uniform(key, shape, jnp.float32, minval=2.0**-24)


def log_gamma_sample(u: jax.Array, concentration: jax.Array) -> jax.Array:
    """log G, G ~ Gamma(concentration), by Marsaglia and Tsang (2000) in two vectorised rounds; u: DRAWS x shape.

        d = k + 2/3,  v = (1 + x/sqrt(9d))^3,  accept if log u < x^2/2 + d - d v + d log v
        Gamma(k) = Gamma(k + 1) U^(1/k)

    Shape k + 1 > 1 is accepted with probability > 0.95 a round; what both rounds refuse (under 0.3 %) takes v = 1.
    All randomness comes in as one array: a call of the generator takes longer to compile than all the rest.
    """
    d = concentration + 2 / 3
    x = jnp.sqrt(2.0) * jax.lax.erf_inv(2 * u[:2] - 1)
    root = 1 + x / jnp.sqrt(9 * d)
    log_v = 3 * jnp.log(jnp.maximum(root, 1e-6))
    ok = (root > 0) & (jnp.log(u[2:4]) < x**2 / 2 + d - d * root**3 + d * log_v)
    log_v = jnp.where(ok[0], log_v[0], jnp.where(ok[1], log_v[1], 0))
    return jnp.log(d) + log_v + jnp.log(u[4]) / concentration


def dirichlet_sample(u: jax.Array, concentration: jax.Array, allowed: jax.Array) -> jax.Array:
    """log of Dirichlet rows, FORBIDDEN where not allowed."""
    g = jnp.where(allowed, log_gamma_sample(u, concentration), FORBIDDEN)
    return jnp.where(allowed, jax.nn.log_softmax(g, -1), FORBIDDEN)


def dirichlet_log_rows(log_x: jax.Array, concentration: jax.Array, allowed: jax.Array) -> jax.Array:
    """log Dirichlet(x | concentration) of every row, nats, up to the constant sum_y -log x of the sample."""
    k = jnp.where(allowed, concentration, 0)
    terms = jnp.where(allowed, concentration * log_x - jax.lax.lgamma(concentration), 0)
    return terms.sum(-1) + jax.lax.lgamma(k.sum(-1))
