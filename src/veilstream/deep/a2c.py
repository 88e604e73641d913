"""Advantage actor-critic with Dirichlet rows, credit given row by row: the paper's method with its model put to use.

    a_t(.|z) ~ Dirichlet(kappa_t mean_z),  mean = channel(b_t)         the action: one channel row for every state z
    Q(b,a)   = C(b,a) + sum_y p(y) V(m(.,y)/p(y) P)                   C = L + weight D; every release, none is sampled
    A_z      = <dQ/da_z at the mean, a_z - mean_z>                    the advantage of row z
    actor:   descend sum_z A_z log Dirichlet(a_z | kappa_t mean_z)
    critic:  V(b) -> Q(b, mean) - g,  and  grad V(b) -> alpha_b = dQ/db at fixed rows
    y_t ~ p,  b_{t+1} = (m(., y_t) / p(y_t)) P                         the environment

Algorithm 1 multiplies the score of all |Z| rows by one TD error; here each row is told how good it was. A_z is linear
in a_z, so the mean of its product with the score is <dQ/da_z, d mean_z>: the gradient of Q through the mean, exactly
(a test holds it against brute force). `score="expected"` takes that mean in closed form, without noise. What is
deployed is the mean of the rows; kappa rises, so that sampled rows come close to it.

    channel   Blahut-Arimoto at b with a learned cost of what each release makes of the future (`belief.LookaheadRule`)
    V(b)      -tau log sum_k exp(-<alpha_k, b> / tau)                  concave in b, as the optimum is

With the rows fixed, Q is a linear function <alpha_b, b> that touches the backed-up value at b: one visited belief
teaches all |Z| coordinates of a plane (the alpha-vector of a POMDP), where the value alone teaches one. And
<alpha_k, b'_y> = <P alpha_k, m(.,y)> / p(y): the next beliefs are never formed, so 400 states cost |Z| |Y| pieces, not
|Y| |Z|^2, for each belief. The paper's form q(y | x_t, x_{t-1}, history) is the same code on `chain.lift(2)`.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from veilstream.control.belief import LEAST_R, LEAST_XI, BeliefPolicy, LookaheadRule, SampledPolicy, as_layers
from veilstream.control.policy import Policy
from veilstream.deep import networks as deep
from veilstream.deep import training
from veilstream.deep.learner import Learner
from veilstream.deep.networks import LN2, Layers, Model
from veilstream.deep.training import Report, TrainedPolicy
from veilstream.errors import InputError
from veilstream.model.problem import Problem

BATCH = 500_000  # |Z| |Y| entries in one batch of channels, unless `streams` is given


@dataclass(frozen=True)
class A2C(Learner):
    mode: str = "fast"  # `Algorithm1` is "paper"
    width: int = 64  # of the two hidden layers of the actor; the paper's is 3000
    updates: int = 500  # a step of every stream each
    streams: int = 0  # beliefs per update; 0: as many as BATCH allows, 16 to 256
    starts: int = 3  # networks of the first segment, of which the best goes on: one may end in a second optimum
    pieces: int = 64  # linear functions in the critic
    rank: int = 2  # directions in which the look-ahead depends on the belief
    sweeps: int = 5  # Blahut-Arimoto sweeps of the actor
    temperature: float = 0.05  # tau, bits
    concentration: float = 30.0  # kappa at the start
    last_concentration: float = 1000.0  # and at the end
    score: str = "expected"  # its mean over the action, in closed form; or "sampled"
    explore: float = 0.05  # share of releases drawn uniformly in training, so that the critic knows the surroundings
    discount: float = 1.0  # gamma; 1: the mean cost g is taken off, as in the paper's Bellman equation
    anneal: float = 3.0  # factor of the weight at the start; it falls to 1 by half of the updates
    learning_rate: float = 1e-2  # of the actor's network
    critic_rate: float = 0.15  # of all that is in bits: the critic, and the actor's look-ahead
    follow: float = 0.3  # step of the slow copy of the critic that the targets use
    deploy: str = "mean"  # or "sample": the action drawn at every step

    def __post_init__(self) -> None:
        least = dict.fromkeys(("width", "updates", "starts", "pieces", "rank", "sweeps", "segments", "runs"), 1)
        rising = {"concentration": 1, "last_concentration": self.concentration}
        training.check("a2c", self, temperature=1e-3, **rising, **least)
        training.check_choice("a2c", self, score=("sampled", "expected"), deploy=("mean", "sample"))
        if max(self.explore, self.follow, self.discount) > 1:
            raise InputError(
                f"a2c: explore, follow and discount are at most 1, found {self.explore:g}, {self.follow:g} and "
                f"{self.discount:g}"
            )

    @property
    def length(self) -> int:
        """Updates per segment."""
        return max(1, round(self.updates / self.segments))

    def shorter(self) -> "A2C":
        return replace(self, updates=max(1, self.updates // 4))

    def learn(
        self, problem: Problem, weight: float, report: Report = None, onward: "tuple[Actor, jax.Array] | None" = None
    ) -> TrainedPolicy:
        model = Model.of(problem, weight)
        run = training.Run.of("a2c", problem, weight, self.seed, self)
        streams = self.streams or int(np.clip(BATCH // problem.distortion.size, 16, 256))
        pure = replace(self, streams=streams, seed=0, checkpoint=None, resume=False, runs=1, deploy="mean")  # compiled
        others = self.starts - 1 if onward is None else 0

        def one(state: "State") -> tuple["State", training.Figures]:
            tried = [segment(model, pure, state)]
            if state.update == 0:
                seeds = jax.random.randint(state.key, (others,), 0, 2**31 - 1)
                tried += [segment(model, pure, start(model, pure, int(seed))) for seed in seeds]
            cost = [figures(end[0])["mean_objective"] if len(tried) > 1 else 0.0 for end in tried]
            state, g = tried[int(np.argmin(np.nan_to_num(cost, nan=np.inf)))]
            steps = (int(state.update) + others * pure.length) * streams  # of all starts
            return state, {"step": steps, "train_objective": float(g)}

        def figures(state: "State") -> training.Figures:
            return deep.figures(weight, measure(model, pure, state.actor), self.deploy)

        first = start(model, pure, self.seed)
        if onward is not None:
            memory = tuple(o.init(v) for o, v in zip(optimisers(pure), onward, strict=True))
            first = first._replace(actor=onward[0], critic=onward[1], slow=onward[1], optimisers=memory)
        last, curve = training.train(run, first, one, figures, pure.segments, self.checkpoint, self.resume, report)
        return TrainedPolicy(deployed(problem, weight, self, last.actor), curve, (last.actor, last.critic))


class Actor(NamedTuple):
    layers: Layers  # belief -> logits of the output law (|Y|), coefficients of the directions (|Y| x rank)
    lookahead: jax.Array  # |Z| x |Y| bits, what a release costs later
    directions: jax.Array  # |Z| x rank


class State(NamedTuple):
    actor: Actor
    critic: jax.Array  # pieces x |Z|
    slow: jax.Array  # the copy of the critic behind the targets
    optimisers: tuple[optax.OptState, optax.OptState]
    belief: jax.Array  # streams x |Z|
    update: jax.Array
    key: jax.Array


# --- actor, critic, and Q through the model --------------------------------------------------------------


def channel(model: Model, options: A2C, actor: Actor, b: jax.Array) -> jax.Array:
    """The formula of `belief.LookaheadRule`,  ... x |Z| x |Y|."""
    n_y = model.distortion.shape[1]
    out = deep.mlp(actor.layers, b)
    u = out[..., n_y:].reshape(*b.shape[:-1], n_y, options.rank)
    bits = actor.lookahead + jnp.einsum("...yk,zk->...zy", u, actor.directions)
    logits = model.base_logits - jnp.where(model.allowed, LN2 * bits, 0)
    K = jnp.exp(logits - jax.lax.stop_gradient(logits.max(-1, keepdims=True)))
    r = jnp.maximum(jax.nn.softmax(out[..., :n_y], -1), LEAST_R)
    for _ in range(options.sweeps):
        N = jnp.einsum("...y,...zy->...z", r, K)
        r = jnp.maximum(r * jnp.einsum("...z,...zy->...y", b / N, K), LEAST_R)
    a = r[..., None, :] * K
    return a / a.sum(-1, keepdims=True)


def value(options: A2C, along: jax.Array) -> jax.Array:
    """Soft minimum over the last axis: the pieces <alpha_k, b>."""
    return -options.temperature * jax.nn.logsumexp(-along / options.temperature, -1)


def q_value(model: Model, options: A2C, critic: jax.Array, b: jax.Array, a: jax.Array) -> jax.Array:
    """Q(b,a) for b of any mass (homogeneous of degree 1, so that its gradient in b is the plane alpha_b)."""
    leakage, distortion, p = deep.step_cost(model, b, a)
    mass = b.sum(-1)
    along = jnp.einsum("...z,...zy,zk->...yk", b, a, model.transition @ critic.T)
    later = (p * value(options, along / jnp.maximum(p, 1e-12)[..., None])).sum(-1)
    return leakage + deep.xlog2(mass, mass) + model.weight * distortion + options.discount * later


def actor_loss(
    model: Model, options: A2C, actor: Actor, b: jax.Array, log_a: jax.Array, kappa: jax.Array, slope: jax.Array
) -> jax.Array:
    """Its gradient is the update: sum_z A_z d log Dirichlet(a_z), or the mean of that over a; slope: dQ/da."""
    mean = channel(model, options, actor, b)
    if options.score == "expected":
        return (slope * mean).sum((-2, -1)).mean()
    fixed = jax.lax.stop_gradient(mean)
    advantage = (slope * (jnp.exp(log_a) - fixed)).sum(-1)
    score = deep.dirichlet_log_rows(log_a, jnp.maximum(kappa * mean, LEAST_XI), model.allowed)
    return (score * advantage).sum(-1).mean()


# --- training --------------------------------------------------------------------------------------------


def optimisers(options: A2C) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
    total = options.length * options.segments
    actor_rate = optax.cosine_decay_schedule(options.learning_rate, total)
    critic_rate = optax.cosine_decay_schedule(options.critic_rate, total, alpha=0.1)
    each = {"network": optax.adam(actor_rate), "bits": optax.adam(critic_rate)}
    actor = optax.multi_transform(each, Actor("network", "bits", "network"))  # type: ignore[arg-type]
    return optax.chain(optax.clip_by_global_norm(10.0), actor), optax.adam(critic_rate)


@partial(jax.jit, static_argnums=1)
def start(model: Model, options: A2C, seed: int) -> State:
    n_z, n_y = model.distortion.shape
    key, for_net, for_directions, for_critic = jax.random.split(jax.random.PRNGKey(seed), 4)
    sizes = [n_z, options.width, options.width, n_y * (1 + options.rank)]
    directions = 0.3 * jax.random.normal(for_directions, (n_z, options.rank))
    actor = Actor(deep.mlp_init(for_net, sizes, last=0.01), jnp.zeros((n_z, n_y)), directions)
    critic = 0.1 * jax.random.normal(for_critic, (options.pieces, n_z))
    memory = tuple(o.init(v) for o, v in zip(optimisers(options), (actor, critic), strict=True))
    b = jnp.tile(model.initial, (options.streams, 1))
    return State(actor, critic, critic, memory, b, jnp.zeros((), jnp.int32), key)


def act(
    model: Model, mean: jax.Array, kappa: jax.Array | float, b: jax.Array, key: jax.Array, explore: float
) -> tuple[jax.Array, jax.Array]:
    """(log a ~ Dirichlet(kappa mean), the belief after a release); a share of the releases is drawn uniformly."""
    n = b.size // b.shape[-1]
    u = deep.uniform(key, (deep.DRAWS * mean.size + n,))
    for_action, for_output = u[n:].reshape(deep.DRAWS, *mean.shape), u[:n].reshape(b.shape[:-1])
    log_a = deep.dirichlet_sample(for_action, jnp.maximum(kappa * mean, LEAST_XI), model.allowed)
    a = jnp.exp(log_a)
    p = jnp.einsum("...z,...zy->...y", b, a)
    drawn = jnp.where(p > 1e-6, (1 - explore) * p + explore / p.shape[-1], 0)
    return log_a, deep.next_belief(model, b, a, deep.draw(drawn, for_output))


def update(model: Model, options: A2C, state: State, _: None = None) -> tuple[State, jax.Array]:
    b, (step_actor, step_critic) = state.belief, optimisers(options)
    key, for_step = jax.random.split(state.key)

    # collect: rows around the mean, the release, Bayes
    share = state.update / (options.length * options.segments)
    model = model._replace(weight=model.weight * options.anneal ** jnp.maximum(0.0, 1 - 2 * share))
    kappa = options.concentration * (options.last_concentration / options.concentration) ** share
    mean = channel(model, options, state.actor, b)
    log_a, after = act(model, mean, kappa, b, for_step, options.explore)

    # advantage: Q at the mean, its plane in b and its slope in every row
    q, back = jax.vjp(partial(q_value, model, options, state.slow), b, mean)
    alpha, slope = back(jnp.ones_like(q))

    # actor: down the score of the rows, each times its advantage
    gradient = jax.grad(partial(actor_loss, model, options))(state.actor, b, log_a, kappa, slope)
    change, actor_memory = step_actor.update(gradient, state.optimisers[0])
    actor = optax.apply_updates(state.actor, change)

    # critic: towards Q - g and its plane
    g = (q - value(options, b @ state.slow.T)).mean()

    def misfit(critic: jax.Array) -> jax.Array:
        along = b @ critic.T
        plane = jax.nn.softmax(-along / options.temperature, -1) @ critic
        off: jax.Array = ((q - g - value(options, along)) ** 2).mean() + ((plane - alpha + g) ** 2 * b).sum(-1).mean()
        return off

    change, critic_memory = step_critic.update(jax.grad(misfit)(state.critic), state.optimisers[1])
    critic = optax.apply_updates(state.critic, change)
    critic = critic - value(options, critic @ model.initial)  # V(initial) = 0: only differences matter
    slow = state.slow + options.follow * (critic - state.slow)
    return State(actor, critic, slow, (actor_memory, critic_memory), after, state.update + 1, key), g


@partial(jax.jit, static_argnums=1)
def segment(model: Model, options: A2C, state: State) -> tuple[State, jax.Array]:
    """The updates between two points of the learning curve."""
    state, g = jax.lax.scan(partial(update, model, options), state, None, length=options.length)
    return state, g.mean()


@partial(jax.jit, static_argnums=1)
def measure(model: Model, options: A2C, actor: Actor) -> tuple[deep.Rolled, deep.Rolled]:
    """Roll-outs of the mean row and of sampled ones, on the same draws every time."""
    mean = partial(channel, model, options, actor)
    xi = lambda b: jnp.maximum(options.last_concentration * mean(b), LEAST_XI)  # noqa: E731
    streams = min(64, options.streams)
    return deep.rolled_both(model, model.initial, mean, xi, streams)


def deployed(problem: Problem, weight: float, options: A2C, actor: Actor) -> Policy:
    """The actor as a policy that needs no JAX: the mean of its rows, or rows drawn at every step."""
    cost = problem.cost(weight) + np.asarray(actor.lookahead, float)
    directions = np.asarray(actor.directions, float)
    rule = LookaheadRule(as_layers(actor.layers), cost, directions, options.sweeps, options.last_concentration)
    if options.deploy == "mean":
        return BeliefPolicy(problem.chain, rule)
    return SampledPolicy(problem.chain, rule, options.seed)
