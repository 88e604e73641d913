"""One conformance suite for every kind of policy."""

import numpy as np
import pytest
from scipy import stats

import veilstream as vs
from oracles import sequence_information
from veilstream.core.belief import GreedyRule
from veilstream.core.local.pattern import Rows, pattern_of
from veilstream.core.local.policy import Sparse
from veilstream.core.policy import restore
from veilstream.core.problem import leakage, next_prior, output_law
from veilstream.core.rules import DirichletRule
from veilstream.core.sampled import SampledPolicy, dirichlet, uniform

CHAIN = vs.MarkovChain([[0.7, 0.3, 0.0], [0.1, 0.6, 0.3], [0.3, 0.0, 0.7]], initial=[0.5, 0.25, 0.25])
D = np.array([[0, 1.0], [1, 0], [2, 1]])


def table(window, seed=0):
    a = np.random.default_rng(seed).dirichlet(np.ones(2), (2**window, 3))
    return vs.WindowPolicy.of_table(a, window, first=0)


def greedy(weight=1.0):
    problem = vs.Problem(CHAIN, D, vs.Average(weight=weight))
    return vs.BeliefPolicy(CHAIN, GreedyRule(problem.cost(weight)))


RNG = np.random.default_rng(1)


def local(window, seed=2):
    """Random tables on what can occur: state 2 never shows the first symbol."""
    rng = np.random.default_rng(seed)
    allowed = Rows.of(np.array([[True, True], [True, True], [False, True]]))
    p = pattern_of(CHAIN.sparse, allowed, 2, window)
    windows = np.concatenate([[-1, -1], p.windows[p.output_window]])
    r = Sparse.of(windows, np.concatenate([[0, 1], p.output]), rng.random(len(windows)) + 0.01)
    base = [0, 0, 1, 1, 2], [0, 1, 0, 1, 1]
    keys, columns = np.array(base)
    if window > 1:
        keys = np.concatenate([keys, 3 * (p.kernel_tail + 1) + p.kernel_state])
        columns = np.concatenate([columns, p.kernel_output])
    return vs.LocalPolicy(r, Sparse.of(keys, columns, rng.random(len(keys)) + 0.01), (3, 2), window)


def sampled(seed=3):
    """Rows drawn anew from small concentrations; state 2 never shows the first symbol."""
    rng = np.random.default_rng(4)
    layers = [(rng.normal(size=(3, 4)), rng.normal(size=4)), (rng.normal(size=(4, 6)), rng.normal(size=6))]
    return SampledPolicy(CHAIN, DirichletRule(layers, np.array([[0, 0], [0, 0], [np.inf, 0]])), seed)


POLICIES = {
    "memoryless": table(0),
    "window 1": table(1),
    "window 2": table(2),
    "factored": vs.WindowPolicy(RNG.dirichlet([1, 1], 4), RNG.random((2, 3, 2)), 2),
    "local 0": local(0),
    "local 1": local(1),
    "local 2": local(2),
    "belief": greedy(),
    "sampled": sampled(),
    "schedule": vs.Schedule((table(1), greedy(), table(2, 3)), (2, 1, 1)),
    "schedule of local ones": vs.Schedule((local(1), local(2)), (2, 1)),
}


@pytest.fixture(params=POLICIES, ids=str)
def policy(request):
    return POLICIES[request.param]


def test_channels_are_laws(policy):
    memory = policy.start(7)
    for y in (0, 1, 1, 0):
        a = policy.channel(memory)
        assert a.shape == (7, 3, 2)
        assert (a >= 0).all()
        assert a.sum(-1) == pytest.approx(np.ones((7, 3)))
        memory = policy.update(memory, np.full(7, y))


def test_a_batch_is_many_single_streams(policy):
    rng = np.random.default_rng(0)
    ys = rng.integers(0, 2, (5, 4))
    memory = policy.start(4)
    singles = [policy.start() for _ in range(4)]
    for t in range(5):
        batch = policy.channel(memory)
        for i in range(4):
            assert batch[i] == pytest.approx(policy.channel(singles[i]), abs=1e-9)
        memory = policy.update(memory, ys[t])
        singles = [policy.update(m, ys[t, i]) for i, m in enumerate(singles)]
        if t == 2:
            memory, singles = policy.skip(memory, 2), [policy.skip(m, 2) for m in singles]


def test_export_and_restore(policy):
    again = restore(*policy.export(), CHAIN)
    m1, m2 = policy.start(), again.start()
    for y in (1, 0, 0, 1):
        assert policy.channel(m1) == pytest.approx(again.channel(m2))
        m1, m2 = policy.update(m1, y), again.update(m2, y)


def test_sequence_information_is_the_sum_of_the_steps(policy):
    """I(Z^n;Y^n), by enumeration, = sum over t of E L(b_t, a_t): the identity everything rests on."""
    n = 4
    whole, _ = sequence_information(CHAIN, policy, n)
    total, beliefs = 0.0, [(1.0, CHAIN.initial, policy.start())]
    for _ in range(n):
        new = []
        for p, b, memory in beliefs:
            a = policy.channel(memory)
            total += p * leakage(b, a)
            for y, p_y in enumerate(output_law(b, a)):
                if p_y > 0:
                    new.append((p * p_y, next_prior(b, a, y, CHAIN.transition), policy.update(memory, y)))
        beliefs = new
    assert total == pytest.approx(whole, abs=1e-9)


def test_skipping_a_belief_is_marginalising():
    policy = greedy()
    b = policy.start()
    a = policy.channel(b)
    mean = sum(p * policy.update(b, y) for y, p in enumerate(output_law(b, a)))
    assert policy.skip(b) == pytest.approx(mean)
    assert policy.skip(b, 3) == pytest.approx(policy.skip(policy.skip(policy.skip(b))))


def test_sampled_rows_are_dirichlet_with_the_concentrations_of_the_rule():
    k = np.array([0.2, 1.0, 7.0, 40.0])
    codes = np.arange(1, 20_001).astype(np.uint64)
    rows = dirichlet(np.moveaxis(uniform(codes, 20).reshape(-1, 4, 5), -1, 0), np.tile(k, (len(codes), 1)))
    for i in range(4):  # what two rounds refuse (under 0.3 %) is within this distance
        distance = stats.kstest(rows[:, i], stats.beta(k[i], k.sum() - k[i]).cdf).statistic
        assert distance < 1.95 / np.sqrt(len(codes)) + 0.003
    assert np.abs(np.corrcoef(rows[:-1, 2], rows[1:, 2])[0, 1]) < 0.03  # neighbouring codes


def test_a_sampled_channel_follows_from_releases_and_seed_alone():
    policy, forbidden = sampled(), ~np.isfinite(sampled().rule.cost)
    one, other = policy.update(policy.start(), 1), policy.update(policy.start(), 1)
    assert (policy.channel(one) == policy.channel(other)).all()
    assert (policy.channel(one)[forbidden] == 0).all()
    assert np.abs(policy.channel(one) - policy.channel(policy.update(policy.start(), 0))).max() > 0.01
    assert np.abs(policy.channel(policy.start()) - sampled(5).channel(sampled(5).start())).max() > 0.01
    assert policy.skip(one, 5) == pytest.approx(policy.skip(policy.skip(one, 2), 3))


def test_a_schedule_counts_skipped_steps():
    schedule = POLICIES["schedule"]
    memory = schedule.start()
    assert schedule.active(memory[0]) == 0
    assert schedule.active(schedule.skip(memory, 2)[0]) == 1
    assert schedule.active(schedule.skip(memory, 3)[0]) == 2
    assert schedule.active(schedule.skip(memory, 4)[0]) == 0


def test_bad_tables_and_unknown_kinds():
    with pytest.raises(vs.InputError, match="probability law"):
        vs.WindowPolicy.of_table([[0.5, 0.4]])
    with pytest.raises(vs.InputError, match="does not fit"):
        vs.WindowPolicy(np.ones((3, 2)), np.ones((1, 3, 2)), 1)
    with pytest.raises(vs.InputError, match="unknown kind"):
        restore({"kind": "oracle"}, {}, CHAIN)
    with pytest.raises(vs.InputError, match="schedule"):
        vs.Schedule((table(0),), (0,))
