"""The meters: what is charged, the textbook's capacity, the law of a draw that does not look."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from gatewaykit import policies, problem_of, window_policy
from oracles import recomputed
from veilstream.control.accountant import Accountant, BeliefFilter, Streams
from veilstream.control.controller import Controller
from veilstream.control.mechanism import Mechanism
from veilstream.control.policy import restore
from veilstream.control.release import Releaser, release_many
from veilstream.errors import InputError
from veilstream.model.builtin import builtin_problem
from veilstream.model.chain import MarkovChain
from veilstream.model.distortion import hamming
from veilstream.model.information import mutual_information
from veilstream.model.problem import Average, Problem, capacity, output_law
from veilstream.solvers import solve

TINY = Problem(MarkovChain([[0.8, 0.2], [0.3, 0.7]]), hamming(2), Average(weight=1.0))


def forced(releaser: Releaser, policy, ys, xs) -> list[float]:
    """Feed xs while choosing the uniforms so that ys come out; the meter after every step."""
    memory, shown = policy.start(), []
    for y, x in zip(ys, xs, strict=True):
        row = np.cumsum(policy.channel(memory)[x])
        low = 0.0 if y == 0 else row[y - 1]
        releaser._uniforms = lambda n, u=(low + row[y]) / 2: np.array([u])
        assert releaser.release(x) == y
        memory = policy.update(memory, y)
        shown.append(releaser.leaked_bits)
    return shown


@pytest.mark.parametrize("kind", ["window", "belief", "schedule"])
def test_mean_of_the_meter_is_the_mutual_information(kind):
    """E total = I(X^n; Y^n) by enumeration of all x^n and y^n."""
    policy, n = policies(TINY)[kind], 4
    P, p0 = TINY.chain.transition, TINY.chain.initial
    joint = np.zeros((2**n, 2**n))
    expected = 0.0
    for j, ys in enumerate(itertools.product(range(2), repeat=n)):
        for i, xs in enumerate(itertools.product(range(2), repeat=n)):
            memory, p = policy.start(), p0[xs[0]]
            for t, (x, y) in enumerate(zip(xs, ys, strict=True)):
                p *= policy.channel(memory)[x, y] * (P[xs[t - 1], x] if t else 1)
                memory = policy.update(memory, y)
            joint[i, j] = p
        total = forced(Releaser(policy, TINY), policy, ys, ys)[-1]
        expected += joint[:, j].sum() * total
    assert joint.sum() == pytest.approx(1)
    assert expected == pytest.approx(mutual_information(joint), abs=1e-9)


def test_two_true_traces_with_the_same_releases_show_the_same_meter():
    problem = problem_of()
    policy, rng = window_policy(problem), np.random.default_rng(3)
    ys = rng.integers(16, size=40)
    one, other = rng.integers(16, size=(2, 40))
    assert (one != other).any()
    for meter in ("exact", "capacity"):
        shown = [forced(Releaser(policy, problem, meter=meter), policy, ys, xs) for xs in (one, other)]
        assert shown[0] == recomputed(shown[1])


def test_capacity_is_charged_where_the_chain_is_unknown():
    problem = problem_of("grid2x3-toy")
    policy, x = window_policy(problem), problem.chain.sample(50, 1, seed=1)[0]
    known, unknown = Releaser(policy, problem, seed=1), Releaser(policy, seed=1)
    for symbol in x:
        known.release(int(symbol))
        before = unknown.leaked_bits
        unknown.release(int(symbol))
        assert 0 <= unknown.leaked_bits - before <= np.log2(6) + 1e-9
    assert unknown.leaked_bits >= known.leaked_bits


def test_a_policy_needs_its_chain_for_a_meter():
    big = Controller.of_table(np.full((1, 2, 2), 0.5))
    assert Releaser(big).leaked_bits == 0  # by its capacity
    with pytest.raises(InputError, match="ceiling"):
        Releaser(big, ceiling=1.0)


def test_a_solved_policy_meters_itself_exactly():
    """The contract's plain call, Releaser(policy): the chain comes with the policy, also after a round trip."""
    problem = builtin_problem("grid2x3-toy", Average(weight=2.0))
    policy = solve(problem).policy
    x = problem.chain.sample(200, seed=3)[0]
    again = restore(*policy.export(), problem.chain)
    ours, told, again = Releaser(policy, seed=1), Releaser(policy, problem, seed=1), Releaser(again, seed=1)
    for symbol in x:
        assert ours.release(int(symbol)) == told.release(int(symbol)) == again.release(int(symbol))
    assert ours.leaked_bits == pytest.approx(told.leaked_bits)
    assert ours.leaked_bits == pytest.approx(again.leaked_bits)


@pytest.mark.parametrize(
    ("channel", "bits", "prior"),
    [
        ([[0.9, 0.1], [0.1, 0.9]], 1 - 0.4689955935892812, [0.5, 0.5]),
        ([[1.0, 0.0], [0.5, 0.5]], np.log2(5 / 4), [0.6, 0.4]),  # the Z channel
        ([[1.0, 0.0], [0.0, 1.0]], 1.0, [0.5, 0.5]),
        ([[0.3, 0.7], [0.3, 0.7]], 0.0, [0.5, 0.5]),
    ],
)
def test_capacity_is_the_textbooks(channel, bits, prior):
    a = np.array([channel, [[0.9, 0.1], [0.1, 0.9]]])  # a batch: one must not disturb the other
    found, law = capacity(a)
    assert found.shape == (2,) and found[0] == pytest.approx(bits, abs=1e-5) and found[0] >= bits - 1e-12
    assert law[0] == pytest.approx(prior @ a[0], abs=2e-3) and law.sum(-1) == pytest.approx(1)
    assert capacity(a, rounds=1)[0][0] >= bits - 1e-12  # from above, wherever it stops


def test_meters_that_charge_nothing_still_know_the_output_law_or_nothing():
    problem, rng = problem_of("grid2x3-toy"), np.random.default_rng(3)
    b, a = rng.dirichlet(np.ones(6), 4), rng.dirichlet(np.ones(6), (4, 6))
    memory, step, y = np.zeros(4, int), np.zeros(4, int), rng.integers(0, 6, 4)
    s = Streams(memory, b, np.zeros(4), step)
    bits, law = BeliefFilter(problem.chain, charges=False).charge(s, a)
    assert bits.tolist() == [0] * 4 and law == pytest.approx(output_law(b, a))
    nothing = Accountant()
    empty = nothing.start(step)
    s = replace(s, belief=empty)
    assert empty.shape == (4, 0) and nothing.charge(s, a)[1] is None
    assert nothing.charge(s, a)[0].tolist() == [0] * 4 and nothing.used(empty, a) is a
    kept = nothing.observe(s, a, y), nothing.skip(s, 2)[1], nothing.silent(s)[1]
    assert all(found is empty for found in kept)


def test_capacity_of_a_batch_stops_when_the_last_channel_is_found():
    easy, hard = [[0.9, 0.1], [0.1, 0.9]], [[0.99, 0.01], [0.6, 0.4]]
    alone, _ = capacity(np.array([hard]))
    for batch in ([easy, hard], [hard, easy], [easy, easy, hard]):
        found, _ = capacity(np.array(batch))
        assert found[batch.index(hard)] == pytest.approx(alone[0], abs=2e-6)
        assert found[batch.index(easy)] == pytest.approx(1 - 0.4689955935892812, abs=2e-6)


@pytest.mark.parametrize("ceiling", [None, 3.0])
@pytest.mark.parametrize("streams", [3, 300])
def test_many_streams_sorted_by_memory_are_metered_as_one_by_one(streams, ceiling):
    """The oracle: the loop as it is for any policy, told what was released."""
    problem = problem_of()
    policy, steps = window_policy(problem), 12
    x = problem.chain.sample(steps, streams, 1)
    found = release_many(policy, x, problem, ceiling=ceiling, seed=2)
    plain = Mechanism(policy, problem, ceiling)
    s, over = plain.start(streams), np.zeros(streams, bool)
    for t in range(steps):
        view = plain.look(s)
        over |= False if view.over is None else view.over
        s = plain.after(s, view, found.y[:, t])
    np.testing.assert_allclose(s.total[~over], found.leaked_bits[~over], rtol=1e-12)
    assert (found.leaked_bits <= (np.inf if ceiling is None else ceiling)).all() and over.any() == (ceiling is not None)
