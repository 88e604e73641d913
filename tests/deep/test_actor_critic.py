"""actor-critic: Q and its plane against numpy and finite differences, a concave critic, and its warm start."""

import numpy as np
import pytest

import veilstream as vs
from oracles import cut_and_resumed, recomputed, same_curve
from veilstream.control import belief as network
from veilstream.control import policy
from veilstream.model.problem import expected_distortion, leakage, next_prior, output_law

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from veilstream.deep import actor_critic as ac  # noqa: E402
from veilstream.deep import networks as deep  # noqa: E402
from veilstream.deep import training  # noqa: E402
from veilstream.solvers.solution import Point, Status  # noqa: E402

pytestmark = pytest.mark.slow
SMALL = {"width": 8, "updates": 40, "streams": 8, "pieces": 6, "rank": 2, "sweeps": 2, "segments": 4}


@pytest.fixture(scope="module")
def toy():
    return vs.builtin_problem("grid2x3-toy", vs.Average(weight=3.0))


def double(model: deep.Model) -> deep.Model:
    return deep.Model(*(jnp.asarray(v, v.dtype if v.dtype == bool else float) for v in model))


def some(n: int, seed: int = 0):
    return np.random.default_rng(seed).dirichlet(np.ones(6), n)


# --- the pieces ------------------------------------------------------------------------------------------


def test_q_is_the_sum_over_every_release(toy):
    """L + weight D + sum_y p(y) V(b'_y), each next belief formed by the package's own Bayes step."""
    options = ac.ActorCritic(**SMALL)
    model = deep.Model.of(toy, 3.0)
    critic = np.random.default_rng(1).normal(size=(6, 6))
    b, a = some(4), np.random.default_rng(2).dirichlet(np.ones(6), (4, 6))
    tau = options.temperature
    expected = leakage(b, a) + 3 * expected_distortion(b, a, toy.distortion)
    for y in range(6):
        after = next_prior(b, a, np.full(4, y), toy.chain.transition)
        v = -tau * np.log(np.exp(-(after @ critic.T) / tau).sum(-1))
        expected += output_law(b, a)[:, y] * v
    q = ac.q_value(model, options, jnp.asarray(critic), jnp.asarray(b), jnp.asarray(a))
    assert np.allclose(q, expected, atol=1e-4)


def test_the_plane_touches_q_and_lies_above_it_elsewhere(toy):
    """alpha_b = dQ/db: <alpha_b, b> = Q(b,a), and Q(.,a) is concave, so that <alpha_b, c> >= Q(c,a)."""
    options = ac.ActorCritic(**SMALL)
    with jax.enable_x64(True):
        model = double(deep.Model.of(toy, 3.0))
        critic = jnp.asarray(np.random.default_rng(1).normal(size=(6, 6)))
        b, a = jnp.asarray(some(1)[0]), jnp.asarray(np.random.default_rng(2).dirichlet(np.ones(6), 6))
        q = lambda b: ac.q_value(model, options, critic, b, a)  # noqa: E731
        alpha = jax.grad(q)(b)
        assert float(alpha @ b) == pytest.approx(float(q(b)), abs=1e-9)
        for z in range(6):
            step = 1e-6 * jnp.eye(6)[z]
            assert float(alpha[z]) == pytest.approx(float(q(b + step) - q(b - step)) / 2e-6, abs=1e-5)
        assert all(float(alpha @ c) >= float(q(jnp.asarray(c))) - 1e-9 for c in some(50, seed=3))


def test_critic_is_concave_by_construction():
    options = ac.ActorCritic(**SMALL)
    critic = 5 * np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)
    v = lambda b: ac.value(options, b @ critic.T)  # noqa: E731
    b, c, t = some(300, 1), some(300, 2), np.random.default_rng(4).random((300, 1))
    assert (v(t * b + (1 - t) * c) >= t[:, 0] * v(b) + (1 - t[:, 0]) * v(c) - 1e-5).all()


@pytest.mark.parametrize("constraint", [vs.Average(weight=3.0), vs.Instantaneous(1)], ids=str)
def test_actor_gradient_by_finite_differences(constraint):
    problem = vs.builtin_problem("grid2x3-toy", constraint)
    options = ac.ActorCritic(**SMALL)
    with jax.enable_x64(True):
        model = double(deep.Model.of(problem, 3.0))
        state = ac.start(model, options, np.zeros((6, 6)), 0)
        actor = jax.tree.map(lambda v: jnp.asarray(v, float), state.actor)
        critic, b = jnp.asarray(state.critic, float), jnp.asarray(some(5))
        f = jax.jit(lambda v: ac.q_value(model, options, critic, b, ac.channel(model, options, v, b)).mean())
        direction = jax.tree.map(lambda v: jnp.asarray(np.random.default_rng(v.size).normal(size=v.shape)), actor)
        gradient = jax.grad(f)(actor)
        along = sum(jax.tree.leaves(jax.tree.map(lambda g, d: (g * d).sum(), gradient, direction)))
        shift = lambda h: f(jax.tree.map(lambda v, d: v + h * d, actor, direction))  # noqa: E731
        assert float(along) == pytest.approx(float(shift(1e-5) - shift(-1e-5)) / 2e-5, rel=1e-4, abs=1e-8)


def test_scan_is_the_python_loop(toy):
    options = ac.ActorCritic(**SMALL)
    model = deep.Model.of(toy, 3.0)
    state = ac.start(model, options, np.zeros((6, 6)), 0)
    scanned, _ = ac.segment(model, options, state)
    step = jax.jit(lambda s: ac.update(model, options, s))
    for _ in range(options.length):
        state, _ = step(state)
    for one, other in zip(jax.tree.leaves(scanned), jax.tree.leaves(state), strict=True):
        assert np.allclose(one, other, rtol=1e-3, atol=1e-4)


def test_deployed_policy_is_the_actor_without_jax_and_survives_a_round_trip():
    problem = vs.builtin_problem("grid2x3-toy", vs.Both(vs.Average(weight=2.0), vs.Instantaneous(2)))
    options = ac.ActorCritic(**SMALL)
    model = deep.Model.of(problem, 2.0)
    actor = ac.start(model, options, np.zeros((6, 6)), 0).actor
    actor = jax.tree.map(lambda v: 2 * v + 0.1, actor)
    deployed = ac.deployed(problem, 2.0, options, actor)
    b = some(9)
    a = deployed.channel(b)
    assert np.allclose(a, ac.channel(model, options, actor, jnp.asarray(b)), atol=1e-5)
    assert (a[:, ~problem.allowed] == 0).all()
    again = policy.restore(*deployed.export(), problem.chain)
    assert isinstance(again.rule, network.LookaheadRule)
    assert again.channel(b) == recomputed(a)


# --- runs ------------------------------------------------------------------------------------------------


def test_close_to_the_optimum_of_the_binary_chain():
    problem = vs.builtin_problem("binary", vs.Average(weight=2.0))
    best = vs.solve(problem, method="causal-ba")
    learned = vs.solve(problem, method="actor-critic", updates=300, width=8, streams=16, segments=2)
    interval = 3 * (learned.leakage_se + 2 * learned.distortion_se)
    assert learned.objective < 1.01 * best.objective + interval
    assert learned.objective > best.objective * 0.99 - interval


def test_a_seed_repeats_and_a_cut_run_resumes_to_the_same_curve(toy, tmp_path):
    file = str(tmp_path / "run.safetensors")
    whole, resumed = cut_and_resumed(toy, "actor-critic", file, **SMALL)
    assert same_curve(resumed.history, whole.history)
    assert resumed.leakage == pytest.approx(whole.leakage, rel=1e-3)
    other = vs.builtin_problem("binary", vs.Average(weight=3.0))
    with pytest.raises(vs.InputError, match="is of another problem"):
        vs.solve(other, method="actor-critic", checkpoint=file, resume=True, **SMALL)


def test_never_worse_than_its_warm_start(toy):
    warm = vs.solve(toy, method="causal-ba", window=1)
    kept = vs.solve(toy, method="actor-critic", warm="causal-ba", **{**SMALL, "updates": 4, "sweeps": 1})
    assert kept.objective <= warm.objective * (1 + 1e-3) + 2 * (kept.leakage_se + 3 * kept.distortion_se)
    assert kept.history


def test_where_training_did_not_help_the_warm_start_is_returned(toy):
    best = vs.solve(toy, method="causal-ba", window=1)
    before = Point(best.policy, best.leakage, best.distortion)
    uniform = vs.Controller.of_table(np.full((6, 6), 1 / 6))
    after = training.estimated(toy, uniform, 0, [{"objective": 9.0}])
    chosen = ac.better(toy, 3.0, before, after, 0)
    assert chosen.policy is best.policy
    assert chosen.status is Status.UNCHANGED
    assert chosen.history == after.history
    assert ac.better(toy, 3.0, after, training.estimated(toy, best.policy, 0, []), 0).policy is best.policy


def test_warm_kernel_is_where_the_actor_starts(toy):
    warm = vs.solve(toy, method="causal-ba", window=1)
    bits = ac.lookahead_of(toy, 3.0, Point(warm.policy, warm.leakage, warm.distortion))
    K = np.exp2(-3.0 * toy.distortion - bits)
    expected = warm.policy.kernel[0, 0]
    assert np.allclose(K / K.sum(1, keepdims=True), expected / expected.sum(1, keepdims=True), atol=1e-9)


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ({"width": 0}, "actor-critic: width must be a number of at least 1, found 0"),
        ({"updates": 0}, "actor-critic: updates must be a number of at least 1, found 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number of at least 0, found nan"),
        ({"warm": "hot"}, "warm must be one of cold, causal-ba, myopic, found 'hot'"),
        ({"explore": 2.0}, "explore and follow are at most 1"),
    ],
)
def test_bad_option_is_one_line(toy, option, line):
    with pytest.raises(vs.InputError, match=line) as caught:
        vs.solve(toy, method="actor-critic", **option)
    assert "\n" not in str(caught.value)
