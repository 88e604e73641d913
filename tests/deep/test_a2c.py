"""a2c: gradients by finite differences, scan against a Python loop, Dirichlet against scipy, curves that repeat."""

import numpy as np
import pytest
from scipy import stats

import veilstream as vs
from oracles import cut_and_resumed, recomputed, same_curve
from veilstream.control import belief as network
from veilstream.control import policy
from veilstream.model.problem import expected_distortion, leakage, next_prior, output_law

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from veilstream.deep import a2c, training  # noqa: E402
from veilstream.deep import networks as deep  # noqa: E402

pytestmark = pytest.mark.slow
SMALL = {"width": 8, "steps": 2048, "streams": 8, "horizon": 8, "episode": 24, "segments": 4}


@pytest.fixture(scope="module")
def toy():
    return vs.builtin_problem("grid2x3-toy", vs.Average(weight=3.0))


@pytest.fixture(scope="module")
def limited():
    return vs.builtin_problem("grid2x3-toy", vs.Instantaneous(1))


# --- the pieces ------------------------------------------------------------------------------------------


def test_bayes_step_is_that_of_problem():
    rng = np.random.default_rng(0)
    problem = vs.builtin_problem("grid2x3-toy", vs.Both(vs.Average(weight=1.5), vs.Instantaneous(2)))
    model = deep.Model.of(problem, 1.5)
    b = rng.dirichlet(np.ones(6), 5)
    a = np.where(problem.allowed, rng.random((5, 6, 6)), 0)
    a /= a.sum(-1, keepdims=True)
    bits, distortion, p = deep.step_cost(model, jnp.asarray(b), jnp.asarray(a))
    assert np.allclose(bits, leakage(b, a), atol=1e-5)
    assert np.allclose(distortion, expected_distortion(b, a, problem.distortion), atol=1e-5)
    assert np.allclose(p, output_law(b, a), atol=1e-6)
    y = np.array([0, 1, 2, 3, 4])
    assert np.allclose(deep.next_belief(model, b, a, y), next_prior(b, a, y, problem.chain.transition), atol=1e-6)


@pytest.mark.parametrize("k", [0.05, 0.5, 1.0, 3.0, 40.0])
def test_gamma_sampler(k):
    n = 40_000
    sample = np.asarray(deep.log_gamma_sample(deep.uniform(jax.random.PRNGKey(1), (deep.DRAWS, n)), jnp.full(n, k)))
    # Kolmogorov-Smirnov on log G; what two rounds refuse (under 0.3 %) is within this distance
    distance = stats.kstest(sample, lambda v: stats.gamma(k).cdf(np.exp(v))).statistic
    assert distance < 1.95 / np.sqrt(n) + 0.003


def test_dirichlet_density_is_scipys_up_to_the_base_measure():
    k = np.array([[0.4, 2.0, 3.0, 9.0], [5.0, 1.0, 0.7, 9.0]])
    allowed = np.array([[True, True, True, False], [True, True, True, False]])
    u = deep.uniform(jax.random.PRNGKey(1), (deep.DRAWS, *k.shape))
    log_x = deep.dirichlet_sample(u, jnp.asarray(k, jnp.float32), jnp.asarray(allowed))
    x = np.exp(np.asarray(log_x, float))
    assert (x[~allowed] == 0).all()
    assert np.allclose(x.sum(-1), 1, atol=1e-6)
    x = x[:, :3] / x[:, :3].sum(-1, keepdims=True)
    expected = sum(stats.dirichlet(k[i, :3]).logpdf(x[i]) + np.log(x[i]).sum() for i in range(2))
    assert deep.dirichlet_log_density(log_x, jnp.asarray(k), jnp.asarray(allowed)) == pytest.approx(expected, rel=1e-4)


def test_draw_never_takes_what_cannot_happen():
    p = jnp.asarray([0.0, 0.25, 0.0, 0.75, 0.0])
    assert [int(deep.draw(p, jnp.asarray(u))) for u in (0.0, 0.2, 0.3, 0.9999999, 1.0)] == [1, 1, 3, 3, 3]


def test_advantages_are_the_python_loop():
    delta = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    expected = np.zeros_like(delta)
    after = np.zeros(3)
    for t in reversed(range(7)):
        after = expected[t] = delta[t] + 0.6 * after
    assert np.allclose(a2c.advantages(jnp.asarray(delta), 0.6), expected, atol=1e-6)
    assert np.allclose(a2c.advantages(jnp.asarray(delta), 0.0), delta)  # the paper's: the TD error itself


@pytest.mark.parametrize("which", ["toy", "limited"])
def test_gradient_of_the_loss_by_finite_differences(which, request):
    problem = request.getfixturevalue(which)
    options = a2c.A2C(**SMALL, concentration=20)
    with jax.enable_x64(True):
        model = deep.Model(
            *(jnp.asarray(v, v.dtype if v.dtype == bool else float) for v in deep.Model.of(problem, 1.0))
        )
        state = a2c.start(model, options, 0)
        nets = jax.tree.map(lambda v: jnp.asarray(v, float), state.networks)
        b = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(6), 5))
        _, k = a2c.actor(model, options, nets.actor, b)
        log_a = deep.dirichlet_sample(deep.uniform(jax.random.PRNGKey(0), (deep.DRAWS, *k.shape)), k, model.allowed)
        advantage = jnp.asarray([1.0, -0.5, 0.3, 2.0, -1.0])
        f = jax.jit(lambda v: a2c.loss(model, options, v, b, log_a, advantage, advantage))
        gradient = jax.grad(f)(nets)
        direction = jax.tree.map(lambda v: jnp.asarray(np.random.default_rng(v.size).normal(size=v.shape)), nets)
        along = sum(jax.tree.leaves(jax.tree.map(lambda g, d: (g * d).sum(), gradient, direction)))
        shift = lambda h: f(jax.tree.map(lambda v, d: v + h * d, nets, direction))  # noqa: E731
        assert float(along) == pytest.approx(float(shift(1e-5) - shift(-1e-5)) / 2e-5, rel=1e-4)


def test_scan_is_the_python_loop(toy):
    options = a2c.A2C(**SMALL)
    model = deep.Model.of(toy, 3.0)
    state = a2c.start(model, options, 0)
    scanned, _ = a2c.segment(model, options, state)
    step = jax.jit(lambda s: a2c.update(model, options, s))
    for _ in range(options.updates):
        state, _ = step(state)
    for one, other in zip(jax.tree.leaves(scanned), jax.tree.leaves(state), strict=True):
        assert np.allclose(one, other, rtol=1e-3, atol=1e-4)


# --- runs ------------------------------------------------------------------------------------------------


def test_a_seed_repeats_its_curve_and_another_does_not(toy):
    curve = [vs.solve(toy, method="a2c", seed=s, **SMALL).history for s in (0, 0, 1)]
    assert same_curve(curve[0], curve[1])
    assert not same_curve(curve[0], curve[2])
    assert [row["step"] for row in curve[0]] == [512, 1024, 1536, 2048]


def test_cut_and_resumed_is_the_same_curve(toy, tmp_path):
    whole, resumed = cut_and_resumed(toy, "a2c", str(tmp_path / "run.safetensors"), **SMALL)
    assert same_curve(resumed.history, whole.history)
    assert resumed.leakage == pytest.approx(whole.leakage, rel=1e-3)


def test_training_improves_and_all_seeds_are_in_the_history(toy):
    start = a2c.start(deep.Model.of(toy, 3.0), a2c.A2C(**SMALL), 0)
    before = vs.evaluate(toy, a2c.deployed(toy, 3.0, start.networks))
    after = vs.solve(toy, method="a2c", runs=2, **{**SMALL, "steps": 12_000, "segments": 2})
    assert after.objective < before.leakage + 3 * before.distortion - 0.01
    assert [row["seed"] for row in after.history] == [0, 0, 1, 1]


def test_instantaneous_limit_holds_with_probability_one(limited):
    options = a2c.A2C(**SMALL)
    model = deep.Model.of(limited, 0.0)
    state, _ = a2c.segment(model, options, a2c.start(model, options, 0))
    _, (_, log_a, _) = a2c.collect(model, options, state.networks, state.belief, state.key)
    assert (np.exp(np.asarray(log_a))[..., ~limited.allowed] == 0).all()  # in training
    deployed = a2c.deployed(limited, 0.0, state.networks)
    a = deployed.channel(np.random.default_rng(0).dirichlet(np.ones(6), 500))
    assert (a[..., ~limited.allowed] == 0).all()  # in deployment
    assert np.allclose(a.sum(-1), 1)


def test_deployed_policy_is_the_actor_without_jax_and_survives_a_round_trip(toy):
    options = a2c.A2C(**SMALL)
    model = deep.Model.of(toy, 3.0)
    nets = a2c.start(model, options, 0).networks
    nets = nets._replace(actor=jax.tree.map(lambda v: 3 * v + 0.1, nets.actor))
    deployed = a2c.deployed(toy, 3.0, nets)
    b = np.random.default_rng(0).dirichlet(np.ones(6), 9)
    assert np.allclose(deployed.channel(b), a2c.actor(model, options, nets.actor, jnp.asarray(b))[0], atol=1e-5)
    again = policy.restore(*deployed.export(), toy.chain)
    assert isinstance(again.rule, network.LogitRule)
    assert again.channel(b) == recomputed(deployed.channel(b))


def test_pair_form_of_the_paper_runs():
    base = vs.builtin_problem("grid2x3-toy", vs.Average(weight=3.0))
    pair = vs.Problem(base.chain.lift(2), base.distortion, base.constraint)
    solution = vs.solve(pair, method="a2c", **SMALL)
    assert solution.policy.n_states == 36
    assert np.isfinite(solution.objective)


# --- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ({"width": 0}, "a2c: width must be a number of at least 1, found 0"),
        ({"steps": 0}, "a2c: steps must be a number of at least 1, found 0"),
        ({"learning_rate": float("nan")}, "a2c: learning_rate must be a number of at least 0, found nan"),
        ({"width": 2.5}, "a2c: width must be a whole number, found 2.5"),
        ({"discount": 1.5}, "discount and trace must be at most 1"),
        ({"widht": 3}, "no option 'widht'"),
        ({"resume": True}, "resume needs the checkpoint"),
        ({"resume": True, "checkpoint": "nowhere.safetensors"}, "no checkpoint at nowhere.safetensors"),
    ],
)
def test_bad_option_is_one_line(toy, option, line):
    with pytest.raises(vs.InputError, match=line) as caught:
        vs.solve(toy, method="a2c", **option)
    assert "\n" not in str(caught.value)


def test_checkpoint_of_another_problem_or_run_is_refused(toy, tmp_path):
    file = str(tmp_path / "run.safetensors")
    vs.solve(toy, method="a2c", checkpoint=file, **SMALL)
    again = {**SMALL, "checkpoint": file, "resume": True}
    other = vs.builtin_problem("grid2x3-toy", vs.Average(weight=2.0))
    with pytest.raises(vs.InputError, match="is of another problem"):
        vs.solve(other, method="a2c", **again)
    with pytest.raises(vs.InputError, match="was made with width 8, found width 9"):
        vs.solve(toy, method="a2c", **{**again, "width": 9})
    with pytest.raises(vs.InputError, match="was made with seed 0, found seed 4"):
        vs.solve(toy, method="a2c", seed=4, **again)
    (tmp_path / "run.safetensors").write_bytes(b"not a checkpoint at all")
    with pytest.raises(vs.InputError, match="is not a checkpoint"):
        vs.solve(toy, method="a2c", **again)


def test_a_diverging_run_says_so(toy):
    run = training.Run.of("a2c", toy, 3.0, 0, a2c.A2C())
    with pytest.raises(vs.InputError, match="diverged in segment 1"):
        training.train(run, jnp.zeros(1), lambda s: (s, {}), lambda s: {"objective": float("nan")}, 2)
