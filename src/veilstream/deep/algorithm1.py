"""Algorithm 1 of Erdemir, Dragotti and Gündüz, line by line: `method="a2c", mode="paper"`.

One stream, an update after every step, the raw TD error, no normalisation of anything:

    for each episode:  beta_0 uniform
      for t = 0 ... n:
        a_t ~ Dirichlet(xi(beta_t)), a row for every x_t, or for every pair (x_t, x_{t-1}) on `chain.lift(2)`
        C_t = L(beta_t, a_t) + weight (D(beta_t, a_t) - limit)  its cost
        y_t ~ p,  beta_{t+1} by Bayes                           the environment
        delta_t = C_t + gamma V(beta_{t+1}) - V(beta_t)         the TD error; `average`: - J, the running mean of C_t
        critic: descend delta_t^2          (the target held fixed)
        actor:  descend ln Dirichlet(a_t | xi(beta_t)) delta_t

Both networks see the belief of |W| entries (on pairs: on x_{t-1}, which fixes the law of the pair), have two hidden
layers, leaky ReLU or ReLU, and each an Adam of its own. As printed it cannot run; the least that makes it run, each
point with its counter-example in docs/errata.md:

    critic     descends; the printed theta + eta grad delta^2 climbs
    outputs    |Z| |Y| numbers, one for each entry of the action, where |W| are printed; `outputs="literal"`: |W|, one
               Dirichlet that all rows are drawn from
    activation softplus for the actor, none for the critic: the printed tanh gives negative concentrations, the printed
               softmax of one number is the constant 1, whose gradient is zero; `link="softmax"`: the two exchanged
    belief     beta_t <- beta_{t+1}, printed the other way round

What else the text can mean, each a switch: `average` puts the J of the paper's own Bellman equation into delta; `limit`
its D; `streams` lets roll-outs take turns, an update after a step of one (its "asynchronous"); and `credit="rows"`,
which the paper does not have, changes one thing: the score of row z is multiplied by A_z = <dQ/da_z, a_z - mean_z>,
from the model that the paper grants, and not by delta (as in `a2c`, whose networks differ too).

Rates are not published, nor the discount ("very close to 1"). Grid Q2 at weight 1, width 64, 400,000 steps, objective
of the mean and of sampled rows (optimum 1.601, uniform rows 2.53, one place always 1.80):
  discount 0.99: actor rate 3e-4 2.6-2.7 and 2.6-2.8 (three seeds), 3e-5 2.04 and 2.24;  0.9: 3e-5 1.78 and 1.85
"""

import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from veilstream.control.belief import HIGH, LEAST_XI, LOW, BeliefPolicy, DirichletRule, SampledPolicy, as_layers
from veilstream.control.policy import Policy
from veilstream.deep import networks as deep
from veilstream.deep import training
from veilstream.deep.learner import Learner
from veilstream.deep.networks import Layers, Model
from veilstream.deep.training import Report, TrainedPolicy
from veilstream.errors import Announcement, InputError
from veilstream.model.information import Array, normalised
from veilstream.model.problem import Problem

SLOPES = {"leaky-relu": 0.01, "relu": 0.0}
OVERHEAD_S, WEIGHT_S = 1e-4, 1e-8  # seconds of one update, and of each weight in it, on one core (width 64, width 3000)
LONG_S, FITTING_S = 3600.0, 600.0  # a run that is announced, and what is suggested


@dataclass(frozen=True)
class Algorithm1(Learner):
    """The defaults are the paper's where it says: 5000 roll-outs of 300 steps, two layers of 3000, leaky ReLU."""

    mode: str = "paper"
    width: int = 3000
    steps: int = 1_500_000  # in all; each is an update
    episode: int = 300  # n: steps until the belief is uniform again
    activation: str = "leaky-relu"  # or relu, as on GeoLife
    discount: float = 0.99
    average: bool = False  # J in the TD error
    average_rate: float = 1e-3  # of the running mean J
    limit: float = 0.0  # the constant D of the paper's cost
    outputs: str = "rows"  # |Z| |Y| numbers; "literal": |W|
    link: str = "softplus"  # from outputs to concentrations; or softmax
    credit: str = "td"  # what multiplies the score: delta; "rows": the advantage of each row
    streams: int = 1  # roll-outs that take turns
    learning_rate: float = 3e-5
    critic_rate: float = 1e-3
    deploy: str = "sample"  # the action drawn at every step; "mean": of the Dirichlet
    segments: int = 40

    def __post_init__(self) -> None:
        training.check("a2c", self, **dict.fromkeys(("width", "steps", "episode", "streams", "segments", "runs"), 1))
        training.check_choice(
            "a2c", self, activation=tuple(SLOPES), deploy=("sample", "mean"), outputs=("rows", "literal"),
            link=("softplus", "softmax"), credit=("td", "rows"),
        )  # fmt: skip
        if not isinstance(self.average, bool):
            raise InputError(f"a2c: average must be true or false, found {self.average!r}")
        if max(self.discount, self.average_rate) > 1:
            raise InputError(
                f"a2c: discount and average_rate are at most 1, found {self.discount:g} and {self.average_rate:g}"
            )

    @property
    def length(self) -> int:
        """Updates, and steps, per segment."""
        return max(1, round(self.steps / self.segments))

    def shorter(self) -> "Algorithm1":
        return replace(self, steps=max(1, self.steps // 4))

    def learn(
        self, problem: Problem, weight: float, report: Report = None, onward: "Nets | None" = None
    ) -> TrainedPolicy:
        """The last state is deployed, as the paper has no other."""
        world = World.of(problem, weight)
        for line in announced(self, problem):
            warnings.warn(line, Announcement, stacklevel=2)
        run = training.Run.of("a2c", problem, weight, self.seed, self)
        pure = replace(self, seed=0, checkpoint=None, resume=False, runs=1, deploy="sample")  # what is compiled for

        def one(state: State) -> tuple[State, training.Figures]:
            state, cost = segment(world, pure, state)
            return state, {"step": int(state.step), "train_objective": float(cost)}

        def figures(state: State) -> training.Figures:
            return deep.figures(weight, measure(world, pure, state.networks.actor), self.deploy)

        first = start(world, pure, self.seed)
        if onward is not None:
            memory = tuple(o.init(v) for o, v in zip(optimisers(pure), onward, strict=True))
            first = first._replace(networks=onward, optimisers=memory)
        last, curve = training.train(run, first, one, figures, pure.segments, self.checkpoint, self.resume, report)
        return TrainedPolicy(deployed(problem, self, last.networks.actor), curve, last.networks)


def announced(options: Algorithm1, problem: Problem) -> list[str]:
    """What a run takes that takes long, and one that fits."""
    (n_z, n_y), w = problem.distortion.shape, problem.chain.n_symbols

    def seconds(width: int, steps: int) -> float:
        weights = 2 * width * (width + w) + width * (1 + (n_y if options.outputs == "literal" else n_z * n_y))
        return float(steps * (OVERHEAD_S + WEIGHT_S * weights))

    if (long := seconds(options.width, options.steps)) < LONG_S:
        return []
    fits = max(1000, round(FITTING_S / seconds(64, 1), -4))
    return [
        f"a2c as published, width {options.width} and {options.steps:,} updates, takes about {long / 3600:,.0f} hours "
        f"of one core; width=64 steps={min(options.steps, int(fits))} takes about {FITTING_S / 60:.0f} minutes"
    ]


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
    actor: Layers  # belief -> concentrations (|Z| |Y|, or |Y| for all rows), before their link
    critic: Layers  # belief -> value


class State(NamedTuple):
    networks: Nets
    optimisers: tuple[optax.OptState, optax.OptState]
    belief: jax.Array  # streams x |Z|
    average: jax.Array  # J
    step: jax.Array
    key: jax.Array


def xi(world: World, options: Algorithm1, layers: Layers, b: jax.Array) -> jax.Array:
    """The formula of `belief.DirichletRule.concentration`; forbidden entries are masked where it is used."""
    n_z, n_y = world.model.distortion.shape
    out = deep.mlp(layers, b @ world.entries, SLOPES[options.activation])
    out = jnp.broadcast_to(out.reshape(*b.shape[:-1], -1, n_y), (*b.shape[:-1], n_z, n_y))
    if options.link == "softmax":
        return jnp.maximum(jax.nn.softmax(jnp.where(world.model.allowed, out, deep.FORBIDDEN), -1), LEAST_XI)
    return jnp.clip(jax.nn.softplus(out), LOW, HIGH)


def mean_of(world: World, concentration: jax.Array) -> jax.Array:
    k = jnp.where(world.model.allowed, concentration, 0)
    return k / k.sum(-1, keepdims=True)


def value(world: World, options: Algorithm1, layers: Layers, b: jax.Array) -> jax.Array:
    return deep.mlp(layers, b @ world.entries, SLOPES[options.activation])[..., 0]


def optimisers(options: Algorithm1) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
    return optax.adam(options.learning_rate), optax.adam(options.critic_rate)


def start(world: World, options: Algorithm1, seed: int) -> State:
    """Random weights, nothing known about the cost: the first rows are near the uniform one."""
    n_w, (n_z, n_y) = world.entries.shape[1], world.model.distortion.shape
    key, for_actor, for_critic = jax.random.split(jax.random.PRNGKey(seed), 3)
    hidden = [options.width, options.width]
    networks = Nets(
        deep.mlp_init(for_actor, [n_w, *hidden, n_y if options.outputs == "literal" else n_z * n_y], last=0.1),
        deep.mlp_init(for_critic, [n_w, *hidden, 1], last=0.1),
    )
    memory = tuple(o.init(v) for o, v in zip(optimisers(options), networks, strict=True))
    b = jnp.tile(world.first, (options.streams, 1))
    return State(networks, memory, b, jnp.zeros(()), jnp.zeros((), jnp.int32), key)


# --- Algorithm 1 -----------------------------------------------------------------------------------------


def act(world: World, options: Algorithm1, actor: Layers, b: jax.Array, key: jax.Array) -> tuple[jax.Array, ...]:
    """(log a_t, leakage, distortion, beta_{t+1}) of one sampled action."""
    concentration = xi(world, options, actor, b)
    u = deep.uniform(key, (deep.DRAWS * concentration.size + 1,))
    log_a = deep.dirichlet_sample(u[1:].reshape(deep.DRAWS, *concentration.shape), concentration, world.model.allowed)
    leakage, distortion, p = deep.step_cost(world.model, b, jnp.exp(log_a))
    y = deep.draw(p, u[0])
    return log_a, leakage, distortion, deep.next_belief(world.model, b, jnp.exp(log_a), y)


def row_advantages(
    world: World, options: Algorithm1, critic: Layers, b: jax.Array, mean: jax.Array, a: jax.Array
) -> jax.Array:
    """A_z = <dQ/da_z at the mean, a_z - mean_z>,  Q(b,a) = C(b,a) + gamma sum_y p(y) V(next b)."""

    def q(a: jax.Array) -> jax.Array:
        leakage, distortion, p = deep.step_cost(world.model, b, a)
        after = (b[:, None] * a).T / jnp.maximum(p, 1e-12)[:, None] @ world.model.transition
        later = (p * value(world, options, critic, after)).sum()
        total: jax.Array = leakage + world.model.weight * distortion + options.discount * later
        return total

    slope: jax.Array = jax.grad(q)(mean)
    return (slope * (a - mean)).sum(-1)


def step(world: World, options: Algorithm1, state: State, _: None = None) -> tuple[State, jax.Array]:
    actor, critic = state.networks
    step_actor, step_critic = optimisers(options)
    turn, t = state.step % options.streams, state.step // options.streams

    # initialise the belief state
    b = jnp.where(t % options.episode == 0, world.first, state.belief[turn])

    # sample the action, perform it, sample an observation, calculate the next belief
    key, for_step = jax.random.split(state.key)
    log_a, leakage, distortion, after = act(world, options, actor, b, for_step)
    cost = leakage + world.model.weight * distortion
    paid = cost - world.model.weight * options.limit
    average = state.average + options.average_rate * (paid - state.average) if options.average else state.average

    # set the TD target, minimise delta^2
    target = paid - average + options.discount * value(world, options, critic, after)
    delta, slope = jax.value_and_grad(lambda v: target - value(world, options, v, b))(critic)
    change, critic_memory = step_critic.update(jax.tree.map(lambda g: 2 * delta * g, slope), state.optimisers[1])

    # minimise ln Dirichlet(a_t | xi) delta
    if options.credit == "rows":
        mean = mean_of(world, xi(world, options, actor, b))
        advantage = row_advantages(world, options, critic, b, mean, jnp.exp(log_a))
    else:
        advantage = delta

    def score(v: Layers) -> jax.Array:
        rows = deep.dirichlet_log_rows(log_a, xi(world, options, v, b), world.model.allowed)
        return (rows * advantage).sum()

    gradient = jax.grad(score)(actor)
    critic = optax.apply_updates(critic, change)
    change, actor_memory = step_actor.update(gradient, state.optimisers[0])
    actor = optax.apply_updates(actor, change)

    # update the belief state
    belief = state.belief.at[turn].set(after)
    return State(Nets(actor, critic), (actor_memory, critic_memory), belief, average, state.step + 1, key), cost


@partial(jax.jit, static_argnums=1)
def segment(world: World, options: Algorithm1, state: State) -> tuple[State, jax.Array]:
    """The steps between two points of the learning curve."""
    state, cost = jax.lax.scan(partial(step, world, options), state, None, length=options.length)
    return state, cost.mean()


@partial(jax.jit, static_argnums=1)
def measure(world: World, options: Algorithm1, actor: Layers) -> tuple[deep.Rolled, deep.Rolled]:
    """Roll-outs of the mean row and of sampled ones, on the same draws every time."""
    drawn = partial(xi, world, options, actor)
    return deep.rolled_both(world.model, world.first, lambda b: mean_of(world, drawn(b)), drawn, streams=64)


# --- the policy ------------------------------------------------------------------------------------------


def deployed(problem: Problem, options: Algorithm1, actor: Layers) -> Policy:
    """The actor as a policy that needs no JAX: on pairs its first layer takes the belief on pairs."""
    (W, c), *rest = [(np.asarray(W, float), np.asarray(c, float)) for W, c in actor]
    onto = entries(problem)
    scale = onto.shape[1] / onto.shape[0]  # |W| b onto - 1 = scale (|Z| b - 1) onto + (scale 1 onto - 1)
    whole = [(scale * onto @ W, c + (scale * onto.sum(0) - 1) @ W), *rest]
    if options.outputs == "literal":  # the same for every row
        (W, c), n_z = whole.pop(), problem.n_states
        whole.append((np.tile(W, (1, n_z)), np.tile(c, n_z)))
    rule = DirichletRule(as_layers(whole), problem.cost(0.0), SLOPES[options.activation], options.link)
    if options.deploy == "mean":
        return BeliefPolicy(problem.chain, rule)
    return SampledPolicy(problem.chain, rule, options.seed)
