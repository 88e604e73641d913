"""The releaser: the right law, the right meter, a ceiling that holds; nothing depends on the truth but the draw."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from gatewaykit import policies, problem_of, window_policy
from veilstream.control.accountant import BeliefFilter, Streams
from veilstream.control.controller import Controller
from veilstream.control.evaluate import evaluate
from veilstream.control.mechanism import SILENT, Mechanism
from veilstream.control.release import Releaser, release_many
from veilstream.control.uniforms import SecureUniforms
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.distortion import hamming
from veilstream.model.histories import BLIND, TrueStates
from veilstream.model.problem import Average, Instantaneous, Problem, output_law

TINY = Problem(MarkovChain([[0.8, 0.2], [0.3, 0.7]]), hamming(2), Average(weight=1.0))


@pytest.mark.parametrize("kind", ["window", "belief", "schedule"])
def test_releases_and_meter_agree_with_evaluate(kind):
    problem = problem_of("grid2x3-toy")
    policy = policies(problem)[kind]
    n = 400 if kind == "window" else 100
    x = problem.chain.sample(80, n, seed=5)
    released = release_many(policy, x, problem, seed=6)
    promised = evaluate(problem, policy, steps=60, burn_in=20, streams=n, seed=7)
    error = np.hypot(released.leaked_bits.std(ddof=1) / np.sqrt(n), 80 * promised.leakage_se)
    assert released.leaked_bits.mean() == pytest.approx(promised.total_bits, abs=4 * error)
    shown = problem.distortion[x, released.y][:, 20:].mean(1)
    error = np.hypot(shown.std(ddof=1) / np.sqrt(n), promised.distortion_se)
    assert shown.mean() == pytest.approx(promised.distortion, abs=4 * error)


@pytest.mark.parametrize("meter", ["exact", "capacity"])
def test_a_draw_that_does_not_look_follows_the_output_law(meter):
    problem = problem_of("grid2x3-toy")
    policy = window_policy(problem)
    mechanism = Mechanism(policy, problem, meter=meter)
    streams = mechanism.start(60_000)
    _, y = mechanism.step(streams, np.full(60_000, BLIND), SecureUniforms()(60_000))
    a = policy.channel(policy.start())
    law = output_law(problem.chain.initial, a) if meter == "exact" else mechanism.meter._at(0, a)[1]
    assert chisquare(np.bincount(y, minlength=6), law * 60_000).pvalue > 1e-4


@pytest.mark.parametrize("meter", ["exact", "capacity"])
def test_the_ceiling_holds_and_nothing_looks_beyond_it(meter):
    problem = problem_of()
    policy = window_policy(problem)
    rng = np.random.default_rng(0)
    x = rng.integers(16, size=(2, 50, 60))
    x[1, :, :3] = x[0, :, :3]
    one, other = (release_many(policy, v, problem, ceiling=2.0, meter=meter, seed=4) for v in x)
    assert (one.leaked_bits < 2.0).all()  # and not put there: what it is beyond is not added
    assert one.leaked_bits.max() > 0.5
    free = release_many(policy, x[0], problem, meter=meter, seed=4)
    assert (free.leaked_bits > 2.0).all()
    # with the same uniforms and the same first releases, different truths now give the same releases
    same = (one.y[:, :3] == other.y[:, :3]).all(1) & np.isclose(one.leaked_bits, other.leaked_bits, rtol=1e-9)
    mechanism = Mechanism(policy, problem, ceiling=0.0, meter=meter)
    u = rng.random(50)
    ys = [mechanism.step(mechanism.start(50), z, u)[1] for z in (x[0, :, 0], x[1, :, 5])]
    np.testing.assert_array_equal(*ys)
    assert same.any()


def test_beyond_the_ceiling_the_belief_moves_by_the_chain_alone():
    problem = problem_of("grid2x3-toy")
    mechanism = Mechanism(window_policy(problem), problem, ceiling=0.0)
    start = mechanism.start(5)
    after, _ = mechanism.step(start, np.arange(5), SecureUniforms()(5))
    np.testing.assert_allclose(after.belief, start.belief @ problem.chain.transition, atol=1e-12)
    assert (after.total == 0).all()


def test_an_instantaneous_limit_that_cannot_be_kept_blind_makes_the_stream_silent():
    problem = problem_of("grid4x4-q2", Instantaneous(1))
    released = release_many(window_policy(problem), problem.chain.sample(40, 20), problem, ceiling=3.0)
    silent = released.y == SILENT
    assert silent.any()
    assert (released.leaked_bits <= 3.0).all()
    wide = problem_of("grid2x3-toy", Instantaneous(2))  # the middle cells are within 2 of every cell
    x = wide.chain.sample(40, 20)
    shown = release_many(window_policy(wide), x, wide, ceiling=1.0)
    assert (shown.y != SILENT).all()
    assert (wide.distortion[x, shown.y] <= 2).all()


def test_a_stream_that_may_show_nothing_without_looking_is_silent_among_others():
    """Every release is forbidden to some state: a draw that does not look is then none, and costs no bits."""
    problem = Problem(TINY.chain, hamming(2), Average(weight=1.0), forbidden=~np.eye(2, dtype=bool))
    mechanism = Mechanism(Controller.of_table(np.eye(2)), problem)
    start = mechanism.start(3)
    after, y = mechanism.step(start, np.array([1, BLIND, 0]), np.full(3, 0.5))
    assert y.tolist() == [1, SILENT, 0]
    assert after.total[1] == start.total[1] and (after.total[[0, 2]] > 0).all()
    np.testing.assert_allclose(after.belief[1], start.belief[1] @ TINY.chain.transition, atol=1e-12)


def test_skip_moves_the_belief_and_the_meter_stays():
    releaser = Releaser(window_policy(TINY), TINY, seed=0)
    releaser.release(1)
    bits, belief = releaser.leaked_bits, releaser._streams.belief
    releaser.skip(3)
    assert releaser.leaked_bits == bits
    np.testing.assert_allclose(releaser._streams.belief, belief @ np.linalg.matrix_power(TINY.chain.transition, 3))


def test_histories_fall_back_to_the_longest_one_known():
    x = MarkovChain([[0.9, 0.1], [0.5, 0.5]]).sample(12, 3, seed=1)
    chain = MarkovChain.fit(x, n_states=3, order=3)  # symbol 2 never occurs
    states = TrueStates.of(chain)
    index = {h: i for i, h in enumerate(chain.histories)}
    rng = np.random.default_rng(0)
    z, past = np.array([BLIND]), ()
    for symbol in rng.integers(3, size=300):
        past = (int(symbol), *past)[:3]
        expected = next(index[past[:k]] for k in range(len(past), 0, -1) if past[:k] in index)
        z = states(z, np.array([symbol]))
        assert z[0] == expected
    assert states(z, np.array([BLIND]))[0] == BLIND


def test_lifted_chain_releases_and_forgets_over_a_gap():
    lifted = problem_of("grid2x3-toy").chain.lift(2)
    problem = Problem(lifted, hamming(6), Average(weight=1.0))
    releaser = Releaser(window_policy(problem), problem)
    for symbol in [0, 1, 2, None, 5, 5]:
        assert 0 <= releaser.release(symbol) < 6
    releaser.skip()
    assert releaser._private[0] == BLIND


FORKING = """
import os
from veilstream.control.uniforms import SecureUniforms

source = SecureUniforms()
source(1)  # a block is now waiting
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.write(write, source(8).tobytes())
    os._exit(0)
os.waitpid(child, 0)
print(source(8).tobytes().hex(), os.read(read, 64).hex())
"""  # in an interpreter of its own: threads of other tests and fork do not go together


def test_secure_uniforms_are_uniform_and_never_shared_with_a_child():
    source = SecureUniforms()
    u = source(100_000)
    assert u.min() >= 0
    assert u.max() < 1
    assert kstest(u, "uniform").pvalue > 1e-4
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True)
    parent, child = done.stdout.split()
    assert parent != child
    assert SecureUniforms()(5).tolist() != SecureUniforms()(5).tolist()


@pytest.mark.parametrize("bad", [99, 2, -2, 1.5, "home"])
def test_a_bad_symbol_is_refused_without_saying_which(bad):
    with pytest.raises(InputError) as error:
        Releaser(window_policy(TINY), TINY).release(bad)
    assert str(bad) not in str(error.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [({"ceiling": -1.0}, "ceiling"), ({"meter": "best"}, "unknown meter"), ({"problem": problem_of()}, "16")],
)
def test_bad_options_are_one_clear_line(options, says):
    with pytest.raises(InputError, match=says):
        Releaser(window_policy(TINY), **{"problem": TINY, **options})


def test_a_gateway_loads_no_solver_and_no_learning_library():
    code = (
        "import sys, veilstream.control.mechanism, veilstream.gateway.store, veilstream.gateway.core\n"
        "import veilstream.gateway.pipe\n"
        "import veilstream.gateway.mqtt, veilstream.gateway.http, veilstream.gateway.service\n"
        "bad = [m for m in sys.modules if m.startswith('veilstream.solvers') or "
        "m.split('.')[0] in ('jax', 'torch', 'sklearn', 'polars', 'matplotlib', 'gymnasium', 'typer')]\n"
        "print(bad); sys.exit(bool(bad))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_uniform_is_53_bits_of_the_systems_and_is_used_once(monkeypatch):
    asked = []

    def counting(n):
        asked.append(n)
        return b"".join((((7 * i + len(asked)) << 11) | 5).to_bytes(8, "little") for i in range(n // 8))

    monkeypatch.setattr("veilstream.control.uniforms.os.urandom", counting)
    source = SecureUniforms(block=4)
    drawn = [source(n).tolist() for n in (1, 3, 2, 6, 4)]
    expected = [[(7 * i + k) * 2.0**-53 for i in which] for k, which in ((1, [0]), (1, [1, 2, 3]), (2, [0, 1]))]
    assert drawn[:3] == expected and asked == [32, 32, 48, 32]
    assert drawn[3] == [(7 * i + 3) * 2.0**-53 for i in range(6)] and len(drawn[4]) == 4
    assert SecureUniforms()(1).shape == (1,) and asked[-1] == 8 * 4096


@pytest.mark.parametrize("ceiling", [None, 1.0])
def test_many_streams_in_turns_are_like_all_at_once(monkeypatch, ceiling):
    problem = problem_of("grid2x3-toy")
    policy, rng = window_policy(problem), np.random.default_rng(0)
    z, u = rng.integers(0, 6, (4, 11)), rng.random((4, 11))
    seen = []
    for cells in (1 << 24, 1, 36 * 4):
        monkeypatch.setattr("veilstream.control.mechanism.MOST_CELLS", cells)
        mechanism = Mechanism(policy, problem, ceiling)
        s, ys = mechanism.start(11), []
        for k in range(4):
            s, y = mechanism.step(s, z[k], u[k])
            ys.append(y.tolist())
        seen.append((ys, s.total.round(9).tolist(), s.belief.round(9).tolist(), s.step.tolist()))
    assert seen[0] == seen[1] == seen[2] and seen[0][3] == [4] * 11


def test_what_the_model_calls_impossible_is_not_released():
    """A truth that the chain rules out: its row offers only what cannot be, so the draw does not look."""
    chain = MarkovChain(np.eye(2), initial=[0.5, 0.5])
    problem = Problem(chain, hamming(2), Average(weight=1.0))
    mechanism = Mechanism(Controller.of_table(np.eye(2), 0), problem)
    assert not mechanism.possible
    s, y = mechanism.step(mechanism.start(2), np.array([0, 1]), np.array([0.3, 0.3]))
    assert y.tolist() == [0, 1]
    _, y = mechanism.step(s, np.array([1, 0]), np.array([0.9, 0.1]))  # they cannot have moved
    assert y.tolist() == [0, 1]
    mixed = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
    problem = Problem(chain, np.ones((2, 3)), Average(weight=1.0))
    mechanism = Mechanism(Controller.of_table(mixed, 0), problem)
    s, y = mechanism.step(mechanism.start(1), np.array([0]), np.array([0.1]))
    assert y.tolist() == [0]
    for u in (0.01, 0.5, 0.99):  # of the row of 1 only what state 0 could have shown is left
        assert mechanism.step(s, np.array([1]), np.array([u]))[1].tolist() == [1]
    assert Mechanism(window_policy(TINY), TINY).possible


def test_a_silent_step_and_a_gap_are_not_the_same_for_a_history():
    chain = MarkovChain.fit(problem_of("grid2x3-toy").chain.sample(400, 3), order=3, smoothing=0.1)
    meter = BeliefFilter.of(chain, window_policy(TINY))
    start = meter.start(np.zeros(2, int))

    def streams(belief):
        return Streams(np.zeros(2, int), belief, np.zeros(2), np.zeros(2, int))

    assert start[:, -1].tolist() == [0, 0] and start[:, :-1] == pytest.approx(np.tile(chain.initial, (2, 1)))
    known = [start]
    for _ in range(3):
        known.append(meter.silent(streams(known[-1]))[1])
    assert [b[0, -1] for b in known] == [0, 1, 2, 2]  # it knows the history again after two steps
    assert known[1][:, :-1] == pytest.approx(start[:, :-1] @ chain.transition)
    gone = meter.skip(streams(known[2]), 2)[1]
    assert gone[:, -1].tolist() == [0, 0]
    assert gone[:, :-1] == pytest.approx(known[2][:, :-1] @ chain.transition @ chain.transition)
