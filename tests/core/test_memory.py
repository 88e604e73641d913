"""Policies with a memory made to measure, against windows, plain tables and draws."""

import numpy as np
import pytest
from veilstream.core.memory import MemoryPolicy

import veilstream as vs
from oracles import random_chain
from veilstream.audit.lookback import window_law
from veilstream.core.controller import Controller
from veilstream.core.information import normalised
from veilstream.core.problem import Average, Problem
from veilstream.core.stationary import MemoryStep, mean_joint, rates, startup_bits, stationary_law
from veilstream.errors import InputError
from veilstream.solvers.memory import window_memory


def some_memory(rng, Z=4, Y=3, S=7):
    """r, B and next at random: every state led to by one release."""
    newest = np.arange(S) % Y
    next = np.stack([rng.choice(np.flatnonzero(newest == y), S) for y in range(Y)], 1)
    for s in range(S):  # none that nothing leads to
        next[rng.integers(S), newest[s]] = s
    missing = [s for s in range(S) if not (next == s).any()]
    for k, s in enumerate(missing):
        next[k, newest[s]] = s
    return normalised(rng.random((S, Y))), rng.random((S, Z)) + 0.01, next


@pytest.mark.parametrize("window", [1, 2, 3])
def test_the_last_releases_are_such_a_memory(window):
    rng = np.random.default_rng(window)
    Z, Y = 4, 3
    chain = vs.MarkovChain(random_chain(rng, Z))
    r, B = normalised(rng.random((Y**window, Y))), rng.random((Y**window, Z)) + 0.01
    kernel = B.reshape(-1, Y, Z).swapaxes(1, 2)
    plain = Controller(r, kernel, window)
    policy = MemoryPolicy(r, B, window_memory(Y, window))
    s, y = np.arange(Y**window), rng.integers(0, Y, Y**window)
    np.testing.assert_allclose(policy.channel(s), plain.channel(s), atol=1e-12)
    assert (policy.update(s, y) == plain.update(s, y)).all()
    problem = Problem(chain, rng.random((Z, Y)), Average(weight=1.0))
    assert rates(problem, policy) == pytest.approx(rates(problem, plain), abs=1e-9)
    assert mean_joint(chain, policy) == pytest.approx(mean_joint(chain, plain), abs=1e-9)
    found = rates(problem, plain).leakage
    assert startup_bits(problem, policy, found) == pytest.approx(startup_bits(problem, plain, found), abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_its_long_run_is_that_of_its_table(seed):
    rng = np.random.default_rng(seed)
    chain = vs.MarkovChain(random_chain(rng, 4))
    r, B, next = some_memory(rng)
    policy = MemoryPolicy(r, B, next, first=2)
    plain = MemoryStep(chain, policy.channel(np.arange(len(r))), next, 2)
    d = rng.random((4, 3))
    law = stationary_law(plain, chain)
    expected = plain.rates(law, d)
    assert rates(Problem(chain, d, Average(weight=1.0)), policy) == pytest.approx(expected, abs=1e-9)
    assert mean_joint(chain, policy) == pytest.approx(plain.shown(law), abs=1e-9)


def test_draws_cost_what_is_computed_and_tell_no_more():
    rng = np.random.default_rng(5)
    chain = vs.MarkovChain(random_chain(rng, 4))
    policy = MemoryPolicy(*some_memory(rng))
    problem = Problem(chain, rng.random((4, 3)), Average(weight=1.0))
    found, drawn = rates(problem, policy), vs.evaluate(problem, policy, steps=400, streams=128)
    assert drawn.distortion == pytest.approx(found.distortion, abs=5 * drawn.distortion_se)
    assert drawn.leakage <= found.leakage + 5 * drawn.leakage_se


def test_it_comes_back_from_a_file(tmp_path):
    rng = np.random.default_rng(6)
    chain = vs.MarkovChain(random_chain(rng, 4))
    policy = MemoryPolicy(*some_memory(rng), first=3).made_for(chain)
    path = tmp_path / "p.veil"
    vs.save(path, policy, problem=Problem(chain, rng.random((4, 3)), Average(weight=1.0)))
    back = vs.load(path).policy
    assert isinstance(back, MemoryPolicy) and back.first == 3 and (back.next == policy.next).all()
    np.testing.assert_allclose(back.channel(np.arange(7)), policy.channel(np.arange(7)), atol=1e-12)


def test_a_memory_that_is_none_is_refused():
    rng = np.random.default_rng(7)
    r, B, next = some_memory(rng)
    with pytest.raises(InputError, match="does not have"):
        MemoryPolicy(r, B, next + 3)
    with pytest.raises(InputError, match="one release"):
        MemoryPolicy(r, B, np.zeros_like(next))
    with pytest.raises(InputError, match="does not fit"):
        MemoryPolicy(r, B, next[:-1])
    with pytest.raises(InputError, match="first must be"):
        MemoryPolicy(r, B, next, first=7)
    with pytest.raises(InputError):
        MemoryPolicy(r, -B, next).check()


@pytest.mark.parametrize("current", [False, True])
def test_what_the_last_releases_tell_is_what_enumeration_says(current):
    """P(y_1, y_2, x): every path of three steps from the stationary law of (memory, state)."""
    rng = np.random.default_rng(8)
    chain = vs.MarkovChain(random_chain(rng, 3))
    r, B, next = some_memory(rng, Z=3, Y=2, S=5)
    policy = MemoryPolicy(r, B, next)
    [step] = policy.law_steps(chain)
    mu, a, P = stationary_law(step, chain), policy.channel(np.arange(5)), chain.transition
    expected = np.zeros((4, 3))
    for s in range(5):
        for z in range(3):
            for y in range(2):
                for z1 in range(3):
                    for y1 in range(2):
                        p = mu[s, z] * a[s, z, y] * P[z, z1] * a[next[s, y], z1, y1]
                        if current:
                            expected[2 * y + y1, z1] += p
                        else:
                            expected[2 * y + y1] += p * P[z1]
    assert window_law(chain, policy, 2, current) == pytest.approx(expected, abs=1e-9)


def test_its_rows_and_columns_are_those_of_its_channels():
    rng = np.random.default_rng(3)
    policy = MemoryPolicy(*some_memory(rng))
    s = np.arange(policy.n_memories)
    z, y, channel = rng.integers(0, 4, len(s)), rng.integers(0, 3, len(s)), policy.channel(s)
    np.testing.assert_allclose(policy.rows(s, z), channel[s, z], atol=1e-12)
    np.testing.assert_allclose(policy.columns(s, y), channel[s, :, y], atol=1e-12)
