"""The Gymnasium environment: its own checker, the Bayes step as oracle, and its JAX twin."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import veilstream as vs
from veilstream.deep.env import BeliefRelease, action_of, channel_of
from veilstream.model.problem import expected_distortion, leakage, next_prior

NAME = "veilstream/BeliefRelease-v0"
CONSTRAINTS = [
    vs.Average(weight=1.0),
    vs.Instantaneous(2),
    vs.Both(vs.Average(weight=0.5), vs.Instantaneous(3)),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)
@pytest.mark.parametrize("name", ["grid4x4-q2", "grid2x3-toy", "binary"])
def test_gymnasium_accepts_it(name, constraint):
    check_env(gymnasium.make(NAME, problem=vs.builtin_problem(name, constraint)).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("first", ["veilstream", "gymnasium"])
def test_made_by_name_whichever_is_imported_first(first):
    other = {"veilstream": "gymnasium", "gymnasium": "veilstream"}[first]
    code = (
        f"import {first}, {other}; p = veilstream.builtin_problem('binary', veilstream.Average(weight=1.0));"
        f"gymnasium.make('{NAME}', problem=p)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)
def test_a_step_is_the_bayes_step(constraint):
    problem = vs.builtin_problem("grid2x3-toy", constraint)
    env = BeliefRelease(problem, steps=5)
    b, _ = env.reset(seed=3)
    assert np.allclose(b, problem.chain.initial)
    belief = problem.chain.initial
    for t in range(5):
        action = env.action_space.sample()
        b, reward, terminated, truncated, info = env.step(action)
        a = info["channel"]
        assert (a[~problem.allowed] == 0).all()
        cost = leakage(belief, a) + env.weight * expected_distortion(belief, a, problem.distortion)
        assert reward == pytest.approx(-float(cost))
        belief = next_prior(belief, a, info["released"], problem.chain.transition)
        assert np.allclose(b, belief, atol=1e-6)
        assert not terminated
        assert truncated == (t == 4)


def test_zero_action_is_the_memoryless_channel_and_the_mapping_inverts():
    problem = vs.builtin_problem("grid2x3-toy", vs.Both(vs.Average(weight=1.0), vs.Instantaneous(2)))
    cost = problem.cost(1.0)
    K = np.exp2(-cost)
    assert np.allclose(channel_of(np.zeros(cost.size), cost), K / K.sum(1, keepdims=True))
    rng = np.random.default_rng(0)
    a = np.where(problem.allowed, rng.random(cost.shape) + 0.01, 0)
    a /= a.sum(1, keepdims=True)
    assert np.allclose(channel_of(action_of(a, cost), cost), a, atol=1e-6)


def test_total_reward_is_minus_the_leakage_that_evaluate_finds():
    problem = vs.builtin_problem("binary", vs.Instantaneous(0))  # only the truth may be released
    env = BeliefRelease(problem, steps=400)
    env.reset(seed=0)
    rewards = [env.step(env.action_space.sample())[1] for _ in range(400)]
    assert np.mean(rewards[1:]) == pytest.approx(-problem.chain.entropy_rate, rel=1e-6)


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)
def test_many_streams_take_the_steps_of_one(constraint):
    problem = vs.builtin_problem("grid2x3-toy", constraint)
    many = gymnasium.make_vec(NAME, num_envs=3, problem=problem, steps=4, vectorization_mode="vector_entry_point")
    seen, _ = many.reset(seed=1)
    assert seen in many.observation_space and many.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    belief = np.tile(problem.chain.initial, (3, 1))
    for t in range(4):
        actions = many.action_space.sample()
        seen, reward, terminated, truncated, info = many.step(actions)
        for i in range(3):
            a = channel_of(actions[i], many.unwrapped.one.cost)
            cost = leakage(belief[i], a) + many.unwrapped.one.weight * expected_distortion(
                belief[i], a, problem.distortion
            )
            assert reward[i] == pytest.approx(-float(cost), abs=1e-6)
            belief[i] = next_prior(belief[i], a, info["released"][i], problem.chain.transition)
        assert np.allclose(seen, belief, atol=1e-6) and not terminated.any() and truncated.all() == (t == 3)
    seen, reward, *_ = many.step(actions)
    assert np.allclose(seen, problem.chain.initial, atol=1e-7) and (reward == 0).all()


@pytest.mark.slow
def test_jax_twin_takes_the_same_steps():
    pytest.importorskip("jax")
    import jax.numpy as jnp

    from veilstream.deep import networks as deep

    problem = vs.builtin_problem("grid2x3-toy", vs.Both(vs.Average(weight=0.7), vs.Instantaneous(2)))
    env = BeliefRelease(problem)
    env.reset(seed=1)
    model = deep.Model.of(problem, 0.7)
    b = jnp.tile(model.initial, (3, 1))
    for _ in range(4):
        action = env.action_space.sample()
        _, reward, _, _, info = env.step(action)
        a = jnp.asarray(np.tile(info["channel"], (3, 1, 1)), jnp.float32)
        bits, distortion, _ = deep.step_cost(model, b, a)
        assert np.allclose(-(bits + model.weight * distortion), reward, atol=1e-5)
        b = deep.next_belief(model, b, a, jnp.full(3, info["released"]))
        assert np.allclose(b, env.belief, atol=1e-5)


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (lambda p: BeliefRelease("grid"), "problem must be"),
        (lambda p: BeliefRelease(p, steps=0), "steps must be a whole number >= 1, found 0"),
        (lambda p: BeliefRelease(p, span=float("nan")), "span must be"),
        (
            lambda p: BeliefRelease(vs.builtin_problem("binary", vs.Average(limit=0.1))),
            "the environment needs a weight",
        ),
    ],
)
def test_bad_input_is_one_line(made, line):
    with pytest.raises(vs.InputError, match=line) as caught:
        made(vs.builtin_problem("binary", vs.Average(weight=1.0)))
    assert "\n" not in str(caught.value)
