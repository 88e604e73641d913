"""Actor-critic through the known model: the actor is differentiated through the exact sum over releases.

    actor   a = Blahut-Arimoto at b with a learned look-ahead cost          (`belief.LookaheadRule`)
    critic  V(b) = -tau log sum_k exp(-<alpha_k, b> / tau)                  concave in b, as the optimum is
    Q(b,a) = L(b,a) + weight D(b,a) + sum_y p(y) V(m(.,y)/p(y) P)           no sampled y: |Y| next beliefs at once

    actor:   descend E Q(b, a(b))
    critic:  V(b) -> Q(b,a) - g,  and  grad V(b) -> alpha_b = dQ/db at fixed a

The second critic target is what makes it work. With the channel held fixed, Q is a linear function <alpha_b, b> that
touches the backed-up value at b: one visited belief teaches all |Z| coordinates of a plane (the alpha-vector of a
POMDP), where the value alone teaches one. A critic fitted to values only is right where the policy goes and wrong in
the directions the actor asks about (one seed, grid Q2 at weight 1: 1.1 % above the optimum against 0.2 %).

<alpha_k, b'_y> = <P alpha_k, m(.,y)> / p(y): the next beliefs are never formed, so 400 states cost
|Z| |Y| pieces, not |Y| |Z|^2, for each belief.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from veilstream.control.belief import BeliefPolicy, LookaheadRule, as_layers
from veilstream.control.controller import release_cost
from veilstream.deep import networks as deep
from veilstream.deep import training
from veilstream.deep.learner import Learner
from veilstream.deep.networks import LN2, Layers, Model
from veilstream.deep.training import Report, TrainedPolicy
from veilstream.errors import InputError
from veilstream.model.information import Array
from veilstream.model.problem import Problem
from veilstream.solvers.causal_ba import CausalBA, myopic
from veilstream.solvers.solution import Point, Progress, Status

WARM = {"cold": None, "causal-ba": partial(CausalBA, window=1), "myopic": myopic}
MOST_BITS = 100.0  # a release that costs more counts as costing this
BATCH = 8_000_000  # |Z| |Y| entries in one batch of channels, unless `streams` is given


@dataclass(frozen=True)
class ActorCritic(Learner):
    method: ClassVar[str] = "actor-critic"
    width: int = 64  # of the two hidden layers of the actor
    updates: int = 2000
    streams: int = 0  # beliefs per update; 0: as many as BATCH allows, 16 to 256
    pieces: int = 64  # linear functions in the critic
    rank: int = 8  # directions in which the look-ahead depends on the belief
    sweeps: int = 3  # Blahut-Arimoto sweeps of the actor
    temperature: float = 0.05  # tau, bits
    explore: float = 0.3  # share of releases drawn uniformly in training, so that the critic knows the surroundings
    learning_rate: float = 3e-3
    critic_rate: float = 1e-2
    follow: float = 0.02  # step of the slow copy of the critic that the targets use
    segments: int = 10
    warm: str = "cold"  # or a method of small memory to start from: causal-ba, myopic
    seed: int = 0
    checkpoint: str | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        least = dict.fromkeys(("width", "updates", "pieces", "rank", "sweeps", "segments"), 1)
        training.check("actor-critic", self, temperature=1e-3, **least)
        if self.explore > 1 or self.follow > 1:
            raise InputError(f"actor-critic: explore and follow are at most 1, found {self.explore:g}, {self.follow:g}")
        if self.warm not in WARM:
            raise InputError(f"actor-critic: warm must be one of {', '.join(WARM)}, found {self.warm!r}")

    @property
    def length(self) -> int:
        """Updates per segment."""
        return max(1, round(self.updates / self.segments))

    def at(
        self, problem: Problem, weights: Array, progress: Progress | None = None, warm: Point | None = None
    ) -> list[Point]:
        """For each weight the learned policy, or its warm start where training did not improve on it."""
        found = []
        for i, weight in enumerate(weights):
            before = warm_start(self, problem, weight)
            share = (i / len(weights), (i + 1) / len(weights))
            report = training.tell(progress, share, self.segments, problem, weight)
            named = replace(self, checkpoint=training.numbered(self.checkpoint, i if len(weights) > 1 else None))
            got = learn(problem, weight, named, before, report)
            after = training.estimated(problem, got.policy, self.seed, got.curve)
            found.append(after if before is None else better(problem, weight, before, after, self.seed))
        return found

    def trained(self, problem: Problem, weight: float, report: Report, onward: Any) -> TrainedPolicy:
        before = None if onward is not None else warm_start(self, problem, weight)
        return learn(problem, weight, self, before, report, onward)

    def shorter(self) -> "ActorCritic":
        return replace(self, updates=max(1, self.updates // 4))


def warm_start(options: ActorCritic, problem: Problem, weight: float) -> Point | None:
    """What to start from, where that was asked for."""
    maker = WARM[options.warm]
    return None if maker is None else maker(seed=options.seed).at(problem, np.array([weight]))[0]


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


def channel(model: Model, options: ActorCritic, actor: Actor, b: jax.Array) -> jax.Array:
    """The formula of `belief.LookaheadRule`,  ... x |Z| x |Y|."""
    n_y = model.distortion.shape[1]
    out = deep.mlp(actor.layers, b)
    u = out[..., n_y:].reshape(*b.shape[:-1], n_y, options.rank)
    bits = actor.lookahead + jnp.einsum("...yk,zk->...zy", u, actor.directions)
    logits = model.base_logits - jnp.where(model.allowed, LN2 * bits, 0)
    K = jnp.exp(logits - jax.lax.stop_gradient(logits.max(-1, keepdims=True)))
    r = jax.nn.softmax(out[..., :n_y], -1)
    for _ in range(options.sweeps):
        N = jnp.einsum("...y,...zy->...z", r, K)
        r = jnp.maximum(r * jnp.einsum("...z,...zy->...y", b / N, K), 1e-30)
    a = r[..., None, :] * K
    return a / a.sum(-1, keepdims=True)


def value(options: ActorCritic, along: jax.Array) -> jax.Array:
    """Soft minimum over the last axis: the pieces <alpha_k, b>."""
    return -options.temperature * jax.nn.logsumexp(-along / options.temperature, -1)


def q_value(model: Model, options: ActorCritic, critic: jax.Array, b: jax.Array, a: jax.Array) -> jax.Array:
    """Q(b,a) for b of any mass (homogeneous of degree 1, so that its gradient in b is the plane alpha_b)."""
    leakage, distortion, p = deep.step_cost(model, b, a)
    mass = b.sum(-1)
    along = jnp.einsum("...z,...zy,zk->...yk", b, a, model.transition @ critic.T)
    later = (p * value(options, along / jnp.maximum(p, 1e-12)[..., None])).sum(-1)
    return leakage + deep.xlog2(mass, mass) + model.weight * distortion + later


# --- training --------------------------------------------------------------------------------------------


def optimisers(options: ActorCritic) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
    total = options.length * options.segments
    actor_rate = optax.cosine_decay_schedule(options.learning_rate, total)
    critic_rate = optax.cosine_decay_schedule(options.critic_rate, total, alpha=0.1)
    return optax.chain(optax.clip_by_global_norm(10.0), optax.adam(actor_rate)), optax.adam(critic_rate)


def start(model: Model, options: ActorCritic, lookahead: Array, seed: int) -> State:
    n_z, n_y = model.distortion.shape
    key, for_net, for_directions, for_critic = jax.random.split(jax.random.PRNGKey(seed), 4)
    sizes = [n_z, options.width, options.width, n_y * (1 + options.rank)]
    directions = 0.3 * jax.random.normal(for_directions, (n_z, options.rank))
    actor = Actor(deep.mlp_init(for_net, sizes, last=0.01), jnp.asarray(lookahead, jnp.float32), directions)
    critic = 0.1 * jax.random.normal(for_critic, (options.pieces, n_z))
    memory = tuple(o.init(v) for o, v in zip(optimisers(options), (actor, critic), strict=True))
    b = jnp.tile(model.initial, (options.streams, 1))
    return State(actor, critic, critic, memory, b, jnp.zeros((), jnp.int32), key)


def update(model: Model, options: ActorCritic, state: State, _: None = None) -> tuple[State, jax.Array]:
    b = state.belief
    step_actor, step_critic = optimisers(options)

    # actor: down the gradient of Q, through the channel, the Bayes step and the slow critic
    def q_of(actor: Actor) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        a = channel(model, options, actor, b)
        q = q_value(model, options, state.slow, b, a)
        return q.mean(), (a, q)

    gradient, (a, q) = jax.grad(q_of, has_aux=True)(state.actor)
    change, actor_memory = step_actor.update(gradient, state.optimisers[0])
    actor = optax.apply_updates(state.actor, change)

    # critic: towards Q - g and its plane
    alpha = jax.vmap(jax.grad(partial(q_value, model, options, state.slow)))(b, a)
    g = (q - value(options, b @ state.slow.T)).mean()

    def misfit(critic: jax.Array) -> jax.Array:
        v, slope = jax.vmap(jax.value_and_grad(lambda b: value(options, critic @ b)))(b)
        off: jax.Array = ((q - g - v) ** 2).mean() + ((slope - alpha + g) ** 2 * b).sum(-1).mean()
        return off

    change, critic_memory = step_critic.update(jax.grad(misfit)(state.critic), state.optimisers[1])
    critic = optax.apply_updates(state.critic, change)
    critic = critic - value(options, critic @ model.initial)  # V(initial) = 0: only differences matter
    slow = state.slow + options.follow * (critic - state.slow)

    # next beliefs: some releases are drawn uniformly among the possible ones
    key, for_output = jax.random.split(state.key)
    p = jnp.einsum("...z,...zy->...y", b, a)
    p = jnp.where(p > 1e-6, (1 - options.explore) * p + options.explore / p.shape[-1], 0)
    b = deep.next_belief(model, b, a, deep.draw(p, deep.uniform(for_output, p.shape[:-1])))
    return State(actor, critic, slow, (actor_memory, critic_memory), b, state.update + 1, key), g


@partial(jax.jit, static_argnums=1)
def segment(model: Model, options: ActorCritic, state: State) -> tuple[State, jax.Array]:
    state, g = jax.lax.scan(partial(update, model, options), state, None, length=options.length)
    return state, g.mean()


@partial(jax.jit, static_argnums=1)
def measure(model: Model, options: ActorCritic, actor: Actor) -> tuple[jax.Array, jax.Array]:
    """(leakage, distortion), on the same draws every time."""
    streams = 4 * options.streams if model.distortion.size <= 4096 else options.streams
    return deep.rollout(model, partial(channel, model, options, actor), jax.random.PRNGKey(0), streams, 64, 16)


# --- from a problem to a policy --------------------------------------------------------------------------


def learn(
    problem: Problem,
    weight: float,
    options: ActorCritic,
    before: Point | None = None,
    report: Report = None,
    onward: tuple[Actor, jax.Array] | None = None,
) -> TrainedPolicy:
    """One training at one weight; onward: actor and critic of another weight to start from."""
    model = Model.of(problem, weight)
    run = training.Run.of("actor-critic", problem, weight, options.seed, options)
    streams = options.streams or int(np.clip(BATCH // problem.distortion.size, 16, 256))
    pure = replace(options, streams=streams, seed=0, checkpoint=None, resume=False)

    def one(state: State) -> tuple[State, training.Figures]:
        state, g = segment(model, pure, state)
        return state, {"step": int(state.update) * streams, "train_objective": float(g)}

    def figures(state: State) -> training.Figures:
        return deep.figures(weight, *measure(model, pure, state.actor))

    first = start(model, pure, lookahead_of(problem, weight, before), options.seed)
    if onward is not None:
        memory = tuple(o.init(v) for o, v in zip(optimisers(pure), onward, strict=True))
        first = first._replace(actor=onward[0], critic=onward[1], slow=onward[1], optimisers=memory)
    best, curve = training.train(run, first, one, figures, pure.segments, options.checkpoint, options.resume, report)
    return TrainedPolicy(deployed(problem, weight, pure, best.actor), curve, (best.actor, best.critic))


def lookahead_of(problem: Problem, weight: float, before: Point | None) -> Array:
    """What the kernel of a warm start says about the future: -log2 K - cost; zero from cold."""
    cost = None if before is None else release_cost(before.policy)
    if cost is None:
        return np.zeros(problem.distortion.shape)
    bits = np.where(problem.allowed, np.minimum(cost, MOST_BITS) - weight * problem.distortion, 0)
    return np.asarray(bits - bits.min(1, keepdims=True))


def deployed(problem: Problem, weight: float, options: ActorCritic, actor: Actor) -> BeliefPolicy:
    """The actor as a policy that needs no JAX."""
    cost = problem.cost(weight) + np.asarray(actor.lookahead, float)
    rule = LookaheadRule(as_layers(actor.layers), cost, np.asarray(actor.directions, float), options.sweeps)
    return BeliefPolicy(problem.chain, rule)


def better(problem: Problem, weight: float, before: Point, after: Point, seed: int) -> Point:
    """The lower objective of the two, both by `evaluate` on the same draws; the learning curve is kept."""
    again = training.estimated(problem, before.policy, seed, after.history)
    if again.objective(weight) <= after.objective(weight):
        return replace(before, status=Status.UNCHANGED, history=after.history)
    return after
