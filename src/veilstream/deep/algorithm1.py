"""Algorithm 1 of Erdemir, Dragotti and Gündüz, line by line: `method="a2c", mode="paper"`.

One stream, an update after every step, the raw TD error, no normalisation of anything:

    for each episode:  beta_0 uniform
      for t = 0 ... n:
        a_t ~ Dirichlet(xi(beta_t)), a row for every x_t, or for every pair (x_t, x_{t-1}) on `chain.lift(2)`
        C_t = L(beta_t, a_t) + weight D(beta_t, a_t)            its cost
        y_t ~ p,  beta_{t+1} by Bayes                           the environment
        delta_t = C_t + gamma V(beta_{t+1}) - V(beta_t)         the TD error
        critic: descend delta_t^2          (the target held fixed)
        actor:  descend ln Dirichlet(a_t | xi(beta_t)) delta_t

Both networks see the belief of |W| entries (on pairs: on x_{t-1}, which fixes the law of the pair), have two hidden
layers, leaky ReLU or ReLU, and each an Adam of its own. As printed it cannot run; the least that makes it run, each
point with its counter-example in docs/errata.md:

    critic     descends; the printed theta + eta grad delta^2 climbs
    outputs    |Z| |Y| numbers, one for each entry of the action, where |W| are printed
    activation softplus for the actor, none for the critic: the printed tanh gives negative concentrations, the printed
               softmax of one number is the constant 1, whose gradient is zero
    belief     beta_t <- beta_{t+1}, printed the other way round

The constant -weight limit of the paper's cost moves only the critic and is left out. Rates are not published, nor the
discount ("very close to 1"). Grid Q2 at weight 1, width 64, 400,000 steps, objective of the mean and of sampled rows
(optimum 1.601, uniform rows 2.53, one place always 1.80):
  discount 0.99: actor rate 3e-4 2.6-2.7 and 2.6-2.8 (three seeds), 3e-5 2.04 and 2.24;  0.9: 3e-5 1.78 and 1.85
`A2C` is the same idea made fast: see there what was added.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from veilstream.control.belief import HIGH, LOW, BeliefPolicy, DirichletRule, SampledPolicy, as_layers
from veilstream.control.policy import Policy
from veilstream.deep import networks as deep
from veilstream.deep import training
from veilstream.deep.learner import Learner
from veilstream.deep.networks import Layers, Model
from veilstream.deep.training import Report, TrainedPolicy
from veilstream.errors import InputError
from veilstream.model.information import Array, normalised
from veilstream.model.problem import Problem
from veilstream.solvers.solution import Point, Progress

SLOPES = {"leaky-relu": 0.01, "relu": 0.0}


@dataclass(frozen=True)
class Algorithm1(Learner):
    """The defaults are the paper's where it says: 5000 roll-outs of 300 steps, two layers of 3000, leaky ReLU."""

    method: ClassVar[str] = "a2c"
    mode: str = "paper"
    width: int = 3000
    steps: int = 1_500_000  # in all; each is an update
    episode: int = 300  # n: steps until the belief is uniform again
    activation: str = "leaky-relu"  # or relu, as on GeoLife
    discount: float = 0.99
    learning_rate: float = 3e-5
    critic_rate: float = 1e-3
    deploy: str = "sample"  # the action drawn at every step; "mean": of the Dirichlet
    segments: int = 40
    runs: int = 1
    seed: int = 0
    checkpoint: str | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        training.check("a2c", self, **dict.fromkeys(("width", "steps", "episode", "segments", "runs"), 1))
        for name, known in (("activation", tuple(SLOPES)), ("deploy", ("sample", "mean"))):
            if getattr(self, name) not in known:
                raise InputError(f"a2c: {name} must be one of {', '.join(known)}, found {getattr(self, name)!r}")
        if self.discount > 1:
            raise InputError(f"a2c: discount must be at most 1, found {self.discount:g}")

    @property
    def updates(self) -> int:
        """Updates, and steps, per segment."""
        return max(1, round(self.steps / self.segments))

    def at(
        self, problem: Problem, weights: Array, progress: Progress | None = None, warm: Point | None = None
    ) -> list[Point]:
        return training.best_of_runs(self, learn, problem, weights, progress)

    def trained(self, problem: Problem, weight: float, report: Report, onward: Any) -> TrainedPolicy:
        return learn(problem, weight, self, report, onward)

    def shorter(self) -> "Algorithm1":
        return replace(self, steps=max(1, self.steps // 4))


class World(NamedTuple):
    """The problem as the paper sees it."""

    model: Model
    entries: jax.Array  # |Z| x |W|: which entry of the paper's belief a state belongs to
    first: jax.Array  # |Z|: the law of the first state, the belief before it uniform

    @classmethod
    def of(cls, problem: Problem, weight: float) -> "World":
        chain = problem.chain
        before = normalised(1 / np.bincount(chain.symbols)[chain.symbols])  # every symbol alike
        first = before @ chain.transition
        single = jnp.asarray(entries(problem), jnp.float32), jnp.asarray(first, jnp.float32)
        return cls(Model.of(problem, weight), *single)


def entries(problem: Problem) -> Array:
    """On pairs of a first-order chain the law of x_{t-1} fixes that of (x_t, x_{t-1}): its |W| entries are enough."""
    chain = problem.chain
    if chain.histories is not None and all(len(h) == 2 for h in chain.histories):
        newest, older = np.array(chain.histories).T
        onto = np.eye(chain.n_symbols)
        ahead = chain.transition @ onto[newest]  # the law of the next symbol
        of_newest = normalised(onto[newest].T + 1e-300) @ ahead
        if np.allclose(ahead, of_newest[newest]):
            return np.asarray(onto[older])
    return np.eye(len(chain))


class Nets(NamedTuple):
    actor: Layers  # belief -> concentrations (|Z| |Y|), before their link
    critic: Layers  # belief -> value


class State(NamedTuple):
    networks: Nets
    optimisers: tuple[optax.OptState, optax.OptState]
    belief: jax.Array  # |Z|
    step: jax.Array
    key: jax.Array


def xi(world: World, options: Algorithm1, layers: Layers, b: jax.Array) -> jax.Array:
    """The formula of `belief.DirichletRule.concentration`; forbidden entries are masked where it is used."""
    out = deep.mlp(layers, b @ world.entries, SLOPES[options.activation])
    return jnp.clip(jax.nn.softplus(out.reshape(*b.shape[:-1], *world.model.distortion.shape)), LOW, HIGH)


def value(world: World, options: Algorithm1, layers: Layers, b: jax.Array) -> jax.Array:
    return deep.mlp(layers, b @ world.entries, SLOPES[options.activation])[..., 0]


def optimisers(options: Algorithm1) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
    return optax.adam(options.learning_rate), optax.adam(options.critic_rate)


def start(world: World, options: Algorithm1, seed: int) -> State:
    """Random weights, nothing known about the cost: the first rows are near the uniform one."""
    n_w, n_out = world.entries.shape[1], world.model.distortion.size
    key, for_actor, for_critic = jax.random.split(jax.random.PRNGKey(seed), 3)
    hidden = [options.width, options.width]
    networks = Nets(
        deep.mlp_init(for_actor, [n_w, *hidden, n_out], last=0.1),
        deep.mlp_init(for_critic, [n_w, *hidden, 1], last=0.1),
    )
    memory = tuple(o.init(v) for o, v in zip(optimisers(options), networks, strict=True))
    return State(networks, memory, world.first, jnp.zeros((), jnp.int32), key)


# --- Algorithm 1 -----------------------------------------------------------------------------------------


def act(world: World, options: Algorithm1, actor: Layers, b: jax.Array, key: jax.Array) -> tuple[jax.Array, ...]:
    """(log a_t, leakage, distortion, beta_{t+1}) of one sampled action; leading axes are streams."""
    concentration = xi(world, options, actor, b)
    n = b.size // b.shape[-1]
    u = deep.uniform(key, (deep.DRAWS * concentration.size + n,))
    for_action, for_output = u[n:].reshape(deep.DRAWS, *concentration.shape), u[:n].reshape(b.shape[:-1])
    log_a = deep.dirichlet_sample(for_action, concentration, world.model.allowed)
    leakage, distortion, p = deep.step_cost(world.model, b, jnp.exp(log_a))
    y = deep.draw(p, for_output)
    return log_a, leakage, distortion, deep.next_belief(world.model, b, jnp.exp(log_a), y)


def step(world: World, options: Algorithm1, state: State, _: None = None) -> tuple[State, jax.Array]:
    actor, critic = state.networks
    step_actor, step_critic = optimisers(options)

    # initialise the belief state
    b = jnp.where(state.step % options.episode == 0, world.first, state.belief)

    # sample the action, perform it, sample an observation, calculate the next belief
    key, for_step = jax.random.split(state.key)
    log_a, leakage, distortion, after = act(world, options, actor, b, for_step)
    cost = leakage + world.model.weight * distortion

    # set the TD target, minimise delta^2
    target = cost + options.discount * value(world, options, critic, after)
    delta, slope = jax.value_and_grad(lambda v: target - value(world, options, v, b))(critic)
    change, critic_memory = step_critic.update(jax.tree.map(lambda g: 2 * delta * g, slope), state.optimisers[1])
    critic = optax.apply_updates(critic, change)

    # minimise ln Dirichlet(a_t | xi) delta
    def score(v: Layers) -> jax.Array:
        return deep.dirichlet_log_density(log_a, xi(world, options, v, b), world.model.allowed)

    change, actor_memory = step_actor.update(
        jax.tree.map(lambda g: delta * g, jax.grad(score)(actor)), state.optimisers[0]
    )
    actor = optax.apply_updates(actor, change)

    # update the belief state
    return State(Nets(actor, critic), (actor_memory, critic_memory), after, state.step + 1, key), cost


@partial(jax.jit, static_argnums=1)
def segment(world: World, options: Algorithm1, state: State) -> tuple[State, jax.Array]:
    """The steps between two points of the learning curve."""
    state, cost = jax.lax.scan(partial(step, world, options), state, None, length=options.updates)
    return state, cost.mean()


@partial(jax.jit, static_argnums=1)
def measure(world: World, options: Algorithm1, actor: Layers) -> tuple[jax.Array, jax.Array]:
    """(leakage, distortion) of the mean row and of sampled ones, 2 x 2, on the same draws every time."""

    def mean(b: jax.Array) -> jax.Array:
        k = jnp.where(world.model.allowed, xi(world, options, actor, b), 0)
        return k / k.sum(-1, keepdims=True)

    def sampled(b: jax.Array, key: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        _, leakage, distortion, after = act(world, options, actor, b, key)
        return after, (leakage.mean(), distortion.mean())

    b = jnp.tile(world.first, (64, 1))
    _, drawn = jax.lax.scan(sampled, b, jax.random.split(jax.random.PRNGKey(0), 80))
    one = deep.rollout(world.model, mean, jax.random.PRNGKey(0), streams=64, steps=64, burn_in=16)
    return jnp.stack(one), jnp.stack([v[16:].mean() for v in drawn])


# --- from a problem to a policy --------------------------------------------------------------------------


def deployed(problem: Problem, options: Algorithm1, actor: Layers) -> Policy:
    """The actor as a policy that needs no JAX: on pairs its first layer takes the belief on pairs."""
    (W, c), *rest = [(np.asarray(W, float), np.asarray(c, float)) for W, c in actor]
    onto = entries(problem)
    scale = onto.shape[1] / onto.shape[0]  # |W| b onto - 1 = scale (|Z| b - 1) onto + (scale 1 onto - 1)
    whole = [(scale * onto @ W, c + (scale * onto.sum(0) - 1) @ W), *rest]
    rule = DirichletRule(as_layers(whole), problem.cost(0.0), SLOPES[options.activation])
    if options.deploy == "mean":
        return BeliefPolicy(problem.chain, rule)
    return SampledPolicy(problem.chain, rule, options.seed)


def learn(
    problem: Problem, weight: float, options: Algorithm1, report: Report = None, onward: Nets | None = None
) -> TrainedPolicy:
    """One seed at one weight; the last state is deployed, as the paper has no other."""
    world = World.of(problem, weight)
    run = training.Run.of("a2c", problem, weight, options.seed, options)
    pure = replace(options, seed=0, checkpoint=None, resume=False, runs=1, deploy="sample")  # what is compiled for

    def one(state: State) -> tuple[State, training.Figures]:
        state, cost = segment(world, pure, state)
        return state, {"step": int(state.step), "train_objective": float(cost)}

    def figures(state: State) -> training.Figures:
        both = measure(world, pure, state.networks.actor)
        mean, sample = (deep.figures(weight, *v) for v in both)
        told = mean if options.deploy == "mean" else sample
        return {**told, "mean_objective": mean["objective"], "sample_objective": sample["objective"]}

    first = start(world, pure, options.seed)
    if onward is not None:
        memory = tuple(o.init(v) for o, v in zip(optimisers(pure), onward, strict=True))
        first = first._replace(networks=onward, optimisers=memory)
    last, curve = training.train(
        run, first, one, figures, pure.segments, options.checkpoint, options.resume, report, last=True
    )
    return TrainedPolicy(deployed(problem, options, last.networks.actor), curve, last.networks)
