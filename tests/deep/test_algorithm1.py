"""Algorithm 1 as in the paper: each line and option against an oracle, where it runs away, and that it learns."""

import numpy as np
import pytest

import veilstream as vs
from oracles import cut_and_resumed, same_curve
from veilstream.model.problem import expected_distortion, leakage, next_prior

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402

from veilstream.deep import algorithm1  # noqa: E402
from veilstream.deep import networks as deep  # noqa: E402

pytestmark = pytest.mark.slow
RATE = {"learning_rate": 3e-4}  # for tens of thousands of steps; the default is for millions
SMALL = {"mode": "paper", "width": 8, "steps": 800, "episode": 100, "segments": 4}


def problem_of(name, weight):
    return vs.builtin_problem(name, vs.Average(weight=weight))


@pytest.fixture(scope="module")
def toy():
    return problem_of("grid2x3-toy", 3.0)


def pairs(problem):
    return vs.Problem(problem.chain.lift(2), problem.distortion, problem.constraint)


# --- the lines of the algorithm --------------------------------------------------------------------------


@pytest.mark.parametrize("form", [lambda p: p, pairs], ids=["single", "pairs"])
def test_one_step_is_the_algorithm_written_out(toy, form):
    """The same draw, the cost and the Bayes step of the package, one gradient of the two losses as they are printed."""
    problem = form(toy)
    options = algorithm1.Algorithm1(width=8, discount=0.9)
    world = algorithm1.World.of(problem, 3.0)
    state = algorithm1.start(world, options, 0)
    state = state._replace(step=jnp.int32(7), belief=jnp.asarray(problem.chain.initial, jnp.float32)[None])
    _, for_step = jax.random.split(state.key)
    log_a, *_, after = jax.jit(lambda b, k: algorithm1.act(world, options, state.networks.actor, b, k))(
        state.belief[0], for_step
    )
    a, b = np.exp(np.asarray(log_a, float)), problem.chain.initial
    cost = leakage(b, a) + 3 * expected_distortion(b, a, problem.distortion)
    nearest = [next_prior(b, a, y, problem.chain.transition) for y in range(6)]
    assert min(np.abs(b2 - np.asarray(after)).max() for b2 in nearest) < 1e-5

    target = cost + 0.9 * algorithm1.value(world, options, state.networks.critic, after)
    delta = float(target - algorithm1.value(world, options, state.networks.critic, state.belief[0]))

    def printed(nets):
        v = algorithm1.value(world, options, nets.critic, state.belief[0])
        k = algorithm1.xi(world, options, nets.actor, state.belief[0])
        return (target - v) ** 2 + deep.dirichlet_log_rows(log_a, k, world.model.allowed).sum() * delta

    gradient = jax.jit(jax.grad(printed))(state.networks)
    moved, told = jax.jit(lambda s: algorithm1.step(world, options, s))(state)
    assert float(told) == pytest.approx(cost, rel=1e-4)
    assert np.allclose(moved.belief[0], after, atol=1e-6)  # beta_t <- beta_{t+1}
    for rate, g, one, other in zip(
        (options.learning_rate, options.critic_rate), gradient, state.networks, moved.networks, strict=True
    ):
        for g_i, x, y in zip(*map(jax.tree.leaves, (g, one, other)), strict=True):
            clear = np.abs(g_i) > 1e-5  # the first step of Adam: -rate g / (|g| + 1e-8)
            assert np.allclose((y - x)[clear], -rate * np.sign(g_i)[clear], rtol=0.02, atol=3e-7)


def test_an_episode_starts_from_the_uniform_belief(toy):
    for problem in (toy, pairs(toy)):
        world = algorithm1.World.of(problem, 3.0)
        expected = (toy.chain.transition / 6).sum(0) if problem is toy else None
        if expected is None:
            expected = [toy.chain.transition[h[1], h[0]] / 6 for h in problem.chain.histories]
        assert np.allclose(world.first, expected, atol=1e-6)


def test_on_pairs_the_networks_see_one_entry_for_every_symbol(toy):
    state = algorithm1.start(algorithm1.World.of(pairs(toy), 3.0), algorithm1.Algorithm1(width=8), 0)
    assert state.networks.actor[0][0].shape == (6, 8)  # |W| in
    assert state.networks.actor[-1][0].shape == (8, 216)  # |W|^3 out
    chain = vs.MarkovChain.fit([np.random.default_rng(0).integers(0, 3, 3000)], order=2)  # of order 2: all of it
    order2 = vs.Problem(chain, 1 - np.eye(3), vs.Average(weight=1.0))
    assert (algorithm1.entries(order2) == np.eye(len(chain))).all()


@pytest.mark.parametrize("deploy", ["mean", "sample"])
@pytest.mark.parametrize("activation", ["leaky-relu", "relu"])
def test_deployed_it_is_the_actor_without_jax(toy, deploy, activation):
    for problem in (toy, pairs(toy)):
        options = algorithm1.Algorithm1(width=8, activation=activation, deploy=deploy)
        world = algorithm1.World.of(problem, 3.0)
        layers = jax.tree.map(lambda v: 3 * v + 0.1, algorithm1.start(world, options, 0).networks.actor)
        policy = algorithm1.deployed(problem, options, layers)
        beta = np.random.default_rng(0).dirichlet(np.ones(6), 9)
        if problem is not toy:
            newest, older = np.array(problem.chain.histories).T
            beta = beta[:, older] * toy.chain.transition[older, newest]
        expected = np.asarray(algorithm1.xi(world, options, layers, jnp.asarray(beta)))
        assert np.allclose(policy.rule.concentration(beta), expected, rtol=1e-4)
        if deploy == "mean":
            assert np.allclose(policy.channel(beta), expected / expected.sum(-1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("deploy", ["mean", "sample"])
def test_a_limit_at_every_step_holds_with_probability_one(deploy):
    problem = vs.builtin_problem("grid2x3-toy", vs.Instantaneous(1))
    policy = vs.solve(problem, "a2c", deploy=deploy, **SMALL).policy
    memory = policy.start(50)
    for _ in range(5):
        a = policy.channel(memory)
        assert (a[..., ~problem.allowed] == 0).all() and a.sum(-1) == pytest.approx(1)
        memory = policy.update(memory, a[:, 0].argmax(-1))


# --- its options ------------------------------------------------------------------------------------------


def test_the_average_cost_and_the_limit_are_in_the_td_error(toy):
    """delta = C - weight limit - J + gamma V' - V, seen by what Adam's first step does to the critic's last bias."""
    world = algorithm1.World.of(toy, 3.0)
    for average, limit, cost_sign in ((False, 0.0, 1), (False, 9.0, -1), (True, 0.0, 1)):
        options = algorithm1.Algorithm1(width=8, average=average, average_rate=1.0, limit=limit, discount=0.0)
        state = algorithm1.start(world, options, 0)
        flat = jax.tree.map(jnp.zeros_like, state.networks.critic)
        state = state._replace(networks=state.networks._replace(critic=flat))
        moved, cost = jax.jit(lambda s, o=options: algorithm1.step(world, o, s))(state)
        bias = float(moved.networks.critic[-1][1][0])
        if average:  # J has just become C: nothing is left to learn
            assert float(moved.average) == pytest.approx(float(cost), rel=1e-5) and abs(bias) < 1e-4
        else:
            assert np.sign(bias) == cost_sign and float(moved.average) == 0


def test_one_dirichlet_for_all_rows_has_w_outputs_and_is_deployed_so(toy):
    options = algorithm1.Algorithm1(width=8, outputs="literal", deploy="mean")
    world = algorithm1.World.of(toy, 3.0)
    layers = algorithm1.start(world, options, 0).networks.actor
    assert layers[-1][0].shape == (8, 6)
    a = algorithm1.deployed(toy, options, jax.tree.map(lambda v: 3 * v + 0.1, layers)).channel(toy.chain.initial)
    assert np.allclose(a, a[0])


def test_softmax_gives_concentrations_of_sum_one_also_without_jax(toy):
    options = algorithm1.Algorithm1(width=8, link="softmax", deploy="mean")
    world = algorithm1.World.of(toy, 3.0)
    layers = jax.tree.map(lambda v: 3 * v + 0.1, algorithm1.start(world, options, 0).networks.actor)
    k = np.asarray(algorithm1.xi(world, options, layers, jnp.asarray(toy.chain.initial)))
    assert k.sum(-1) == pytest.approx(1, abs=0.06)
    assert np.allclose(algorithm1.deployed(toy, options, layers).rule.concentration(toy.chain.initial), k, rtol=1e-4)


def test_roll_outs_take_turns(toy):
    options = algorithm1.Algorithm1(width=8, streams=3)
    world = algorithm1.World.of(toy, 3.0)
    state = algorithm1.start(world, options, 0)
    one = jax.jit(lambda s: algorithm1.step(world, options, s)[0])
    for turn in range(4):
        before, state = state, one(state)
        assert [bool((x != y).any()) for x, y in zip(before.belief, state.belief, strict=True)] == [
            i == turn % 3 for i in range(3)
        ]


def test_the_advantage_of_a_row_is_the_slope_of_q_along_it(toy):
    options = algorithm1.Algorithm1(width=8, credit="rows")
    world = algorithm1.World.of(toy, 3.0)
    critic = algorithm1.start(world, options, 0).networks.critic
    rng = np.random.default_rng(0)
    b, mean, a = rng.dirichlet(np.ones(6)), rng.dirichlet(np.full(6, 9.0), 6), rng.dirichlet(np.ones(6), 6)
    found = algorithm1.row_advantages(world, options, critic, *(jnp.asarray(v, jnp.float32) for v in (b, mean, a)))

    def q(a):
        later = sum(
            (b @ a)[y] * float(algorithm1.value(world, options, critic, jnp.asarray(after, jnp.float32)))
            for y, after in ((y, next_prior(b, a, y, toy.chain.transition)) for y in range(6))
        )
        return leakage(b, a) + 3 * expected_distortion(b, a, toy.distortion) + 0.99 * later

    for z in range(6):
        along = np.zeros((6, 6))
        along[z] = (a - mean)[z]
        assert float(found[z]) == pytest.approx((q(mean + 1e-3 * along) - q(mean - 1e-3 * along)) / 2e-3, abs=2e-3)


def test_a_run_of_hours_is_announced_with_one_that_fits(toy):
    [line] = algorithm1.announced(algorithm1.Algorithm1(), toy)
    assert "width 3000 and 1,500,000 updates, takes about 76 hours" in line and "width=64 steps=" in line
    assert not algorithm1.announced(algorithm1.Algorithm1(width=64, steps=400_000), toy)


# --- where it runs away -----------------------------------------------------------------


def test_the_critic_as_printed_climbs_its_loss(toy, monkeypatch):
    """theta + eta grad delta^2: after 400 steps the TD errors are many times those of the critic that descends."""
    world = algorithm1.World.of(toy, 3.0)
    options = algorithm1.Algorithm1(width=8, steps=400, segments=1, learning_rate=0.0, critic_rate=1e-3)

    def misfit():
        state = algorithm1.start(world, options, 0)
        run = jax.jit(lambda s: jax.lax.scan(lambda s, _: algorithm1.step(world, options, s), s, None, length=400))
        state, _ = run(state)
        _, bits, units, after = algorithm1.act(world, options, state.networks.actor, state.belief[0], state.key)
        now, later = (algorithm1.value(world, options, state.networks.critic, b) for b in (state.belief[0], after))
        return abs(float(bits + 3 * units + 0.99 * later - now))

    descends = misfit()
    monkeypatch.setattr(algorithm1, "optimisers", lambda o: (optax.adam(0.0), optax.adam(-o.critic_rate)))
    assert misfit() > 3 * descends


def test_output_activations_as_printed_have_no_density_and_no_gradient():
    """tanh for the actor: concentrations below 0. Softmax for a critic of one number: the constant 1."""
    o = jnp.linspace(-2, 2, 9)
    assert (jnp.tanh(o) < 0).any()
    assert (jax.vmap(jax.grad(lambda v: jax.nn.softmax(v[None])[0]))(o) == 0).all()


# --- it learns -------------------------------------------------------------------------------------------


def parts_of_the_way(problem, weight, width, steps):
    """Of the way from the first objective to the optimum: (mean, sample) after so many steps."""
    best = vs.solve(vs.builtin_problem(problem.chain.name.split(" ")[0], problem.constraint), window=1).objective
    options = algorithm1.Algorithm1(width=width, steps=steps, segments=2)
    world = algorithm1.World.of(problem, weight)
    untrained = algorithm1.measure(world, options, algorithm1.start(world, options, 0).networks.actor)
    before = deep.figures(weight, untrained, "mean")
    end = vs.solve(problem, "a2c", mode="paper", width=width, steps=steps, segments=2, **RATE).history[-1]
    return [(before[k] - end[k]) / (before[k] - best) for k in ("mean_objective", "sample_objective")]


@pytest.mark.parametrize(
    ("name", "weight", "width", "steps"), [("grid2x2-q2", 1.0, 16, 24_000), ("grid2x3-toy", 3.0, 32, 30_000)]
)
def test_the_paper_s_form_covers_two_thirds_of_the_way_to_the_optimum(name, weight, width, steps):
    assert min(parts_of_the_way(problem_of(name, weight), weight, width, steps)) >= 2 / 3


def test_on_pairs_there_are_more_rows_to_learn_and_half_of_the_way_is_covered():
    mean, sample = parts_of_the_way(pairs(problem_of("grid2x2-q2", 1.0)), 1.0, 16, 24_000)
    assert sample >= 1 / 2 and mean > 0


def test_with_credit_by_rows_the_pair_form_learns_what_the_single_form_does():
    single = problem_of("grid2x2-q2", 1.0)
    best = vs.solve(single, window=1).objective
    for problem in (single, pairs(single)):
        learned = vs.solve(problem, "a2c", width=16, updates=100, streams=32, segments=1)
        assert learned.objective <= 1.01 * best


# --- runs ------------------------------------------------------------------------------------------------


def test_cut_and_resumed_is_the_same_curve_whatever_is_deployed(toy, tmp_path):
    file = str(tmp_path / "run.safetensors")
    whole, resumed = cut_and_resumed(toy, "a2c", file, **SMALL)
    assert same_curve(resumed.history, whole.history)
    assert [row["step"] for row in whole.history] == [200, 400, 600, 800]
    other = vs.solve(toy, "a2c", checkpoint=file, resume=True, deploy="mean", **SMALL)
    assert other.objective == pytest.approx(whole.history[-1]["mean_objective"], rel=0.05)


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ({"mode": "printed"}, "a2c: mode must be one of fast, paper, found 'printed'"),
        ({"mode": "paper", "deploy": "mode"}, "a2c: deploy must be one of sample, mean, found 'mode'"),
        ({"mode": "paper", "activation": "tanh"}, "a2c: activation must be one of leaky-relu, relu, found 'tanh'"),
        ({"mode": "paper", "average": 3}, "a2c: average must be true or false, found 3"),
        ({"mode": "paper", "link": "tanh"}, "a2c: link must be one of softplus, softmax, found 'tanh'"),
        ({"mode": "paper", "updates": 4}, "method a2c has no option 'updates'"),
    ],
)
def test_bad_option_is_one_line(toy, option, line):
    with pytest.raises(vs.InputError, match=line):
        vs.solve(toy, "a2c", **option)
