"""PPO in one file, in the manner of cleanrl, on the belief MDP in JAX; compared by `evaluate` with the exact optimum.

    python examples/train_jax.py [--updates 300]

The environment is `veilstream/BeliefRelease-v0`, its steps written with `veilstream.deep.networks` so that roll-outs
compile. Actions are Gaussian, one number for each entry of the channel; all of them share one scalar advantage, as in
the paper and in any library: what an advantage for every row is worth can be read off beside `method="a2c"`.
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

import veilstream as vs
from veilstream.control.belief import BeliefPolicy
from veilstream.deep import networks as deep
from veilstream.deep.env import SPAN

STREAMS, HORIZON, EPOCHS, PARTS = 64, 32, 4, 4
GAMMA, TRACE, CLIP, RATE, WIDTH, SPREAD = 0.95, 0.9, 0.2, 1e-3, 64, -3.0


def channel(model, action):
    """`deep.env.channel_of`: 2^(10 action - cost), row by row."""
    bits = SPAN * jnp.clip(action, -1, 1).reshape(*action.shape[:-1], *model.distortion.shape)
    return jax.nn.softmax(jnp.log(2.0) * bits + model.base_logits, -1)


def density(mean, log_std, action):
    return (-0.5 * ((action - mean) / jnp.exp(log_std)) ** 2 - log_std).sum(-1)


def collect(model, nets, b, key):
    """HORIZON steps of every stream."""

    def step(b, key):
        k_a, k_y = jax.random.split(key)
        mean = deep.mlp(nets["actor"], b)
        action = mean + jnp.exp(nets["log_std"]) * jax.random.normal(k_a, mean.shape)
        a = channel(model, action)
        bits, distortion, p = deep.step_cost(model, b, a)
        after = deep.next_belief(model, b, a, deep.draw(p, jax.random.uniform(k_y, p.shape[:-1])))
        value = deep.mlp(nets["critic"], b)[..., 0]
        return after, (b, action, density(mean, nets["log_std"], action), value, -(bits + model.weight * distortion))

    return jax.lax.scan(step, b, jax.random.split(key, HORIZON))


def loss(nets, b, action, before, advantage, target):
    ratio = jnp.exp(density(deep.mlp(nets["actor"], b), nets["log_std"], action) - before)
    actor = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage).mean()
    return actor + 0.5 * ((deep.mlp(nets["critic"], b)[..., 0] - target) ** 2).mean()


@partial(jax.jit, static_argnums=1)
def update(model, optimiser, nets, memory, b, average, key):
    k_roll, k_parts = jax.random.split(key)
    b, (beliefs, actions, before, values, rewards) = collect(model, nets, b, k_roll)
    average = average + 0.05 * (rewards.mean() - average)

    # generalised advantage estimation, the mean reward taken off
    last = deep.mlp(nets["critic"], b)[..., 0]
    later = jnp.concatenate([values[1:], last[None]])
    delta = rewards - average + GAMMA * later - values
    _, advantage = jax.lax.scan(lambda g, d: (d + GAMMA * TRACE * g,) * 2, jnp.zeros(STREAMS), delta, reverse=True)
    target = advantage + values
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)

    # EPOCHS times through the batch, in PARTS
    flat = jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:]), (beliefs, actions, before, advantage, target))

    def part(state, rows):
        nets, memory = state
        gradient = jax.grad(loss)(nets, *(v[rows] for v in flat))
        change, memory = optimiser.update(gradient, memory, nets)
        return (optax.apply_updates(nets, change), memory), None

    order = jax.vmap(lambda k: jax.random.permutation(k, STREAMS * HORIZON))(jax.random.split(k_parts, EPOCHS))
    (nets, memory), _ = jax.lax.scan(part, (nets, memory), order.reshape(EPOCHS * PARTS, -1))
    return nets, memory, b, average, rewards.mean()


class Learned:
    """A trained agent as a rule: the belief in, the channel of its mean action out."""

    def __init__(self, model, nets):
        self.cost = np.where(model.allowed, 0.0, np.inf)
        self.run = jax.jit(lambda b: channel(model, deep.mlp(nets["actor"], b)))

    def __call__(self, belief):
        return np.asarray(self.run(jnp.asarray(belief)), float)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chain", default="grid4x4-q2")
    parser.add_argument("--lambda", dest="weight", type=float, default=1.0)
    parser.add_argument("--updates", type=int, default=600)
    asked = parser.parse_args()
    problem = vs.builtin_problem(asked.chain, vs.Average(weight=asked.weight))
    model, (n_z, n_y) = deep.Model.of(problem, asked.weight), problem.distortion.shape
    k_a, k_c, key = jax.random.split(jax.random.PRNGKey(0), 3)
    nets = {
        "actor": deep.mlp_init(k_a, [n_z, WIDTH, WIDTH, n_z * n_y], last=0.01),
        "critic": deep.mlp_init(k_c, [n_z, WIDTH, WIDTH, 1]),
        "log_std": jnp.full(n_z * n_y, SPREAD),
    }
    rate = optax.linear_schedule(RATE, 0.0, asked.updates * EPOCHS * PARTS)
    optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(rate))
    memory, b, average = optimiser.init(nets), jnp.tile(model.initial, (STREAMS, 1)), -2.0
    for i, k in enumerate(jax.random.split(key, asked.updates)):
        nets, memory, b, average, reward = update(model, optimiser, nets, memory, b, average, k)
        if i % max(1, asked.updates // 10) == 0:
            print(f"update {i}, {STREAMS * HORIZON * (i + 1):,} steps: objective {-float(reward):.3f} with exploration")
    ev, best = vs.evaluate(problem, BeliefPolicy(problem.chain, Learned(model, nets)), 100, 64), vs.solve(problem)
    objective = ev.leakage + asked.weight * ev.distortion
    print(
        f"trained {objective:.4f}, optimum {best.objective:.4f}: {100 * (objective / best.objective - 1):.1f} % above"
    )


if __name__ == "__main__":
    main()
