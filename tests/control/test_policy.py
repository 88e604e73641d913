"""One conformance suite for every kind of policy."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

import veilstream as vs
from oracles import recomputed, sequence_information, some_memory
from veilstream.control.adaptive import Ladder
from veilstream.control.automaton import window
from veilstream.control.belief import DirichletRule, GreedyRule, SampledPolicy, dirichlet, uniform
from veilstream.control.controller import Controller, controller_of, cycle, release_cost
from veilstream.control.feedback import Feedback
from veilstream.control.policy import Policy, restore
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.clock import Clock
from veilstream.model.information import normalised
from veilstream.model.problem import leakage, next_prior, output_law

CHAIN = vs.MarkovChain([[0.7, 0.3, 0.0], [0.1, 0.6, 0.3], [0.3, 0.0, 0.7]], initial=[0.5, 0.25, 0.25])
D = np.array([[0, 1.0], [1, 0], [2, 1]])


def table(w, seed=0):
    a = np.random.default_rng(seed).dirichlet(np.ones(2), (2**w, 3))
    return vs.Controller.of_table(a, w, first=0)


def greedy(weight=1.0):
    problem = vs.Problem(CHAIN, D, vs.Average(weight=weight))
    return vs.BeliefPolicy(CHAIN, GreedyRule(problem.cost(weight)))


RNG = np.random.default_rng(1)


def sampled(seed=3):
    """Rows drawn anew from small concentrations; state 2 never shows the first symbol."""
    rng = np.random.default_rng(4)
    layers = [(rng.normal(size=(3, 4)), rng.normal(size=4)), (rng.normal(size=(4, 6)), rng.normal(size=6))]
    return SampledPolicy(CHAIN, DirichletRule(layers, np.array([[0, 0], [0, 0], [np.inf, 0]])), seed)


def factored(w, seed=1):
    """An output model for every window, a kernel for every group of them."""
    rng, memory = np.random.default_rng(seed), window(2, w)
    return Controller(memory, rng.dirichlet([1, 1], (1, 2**w)), rng.random((1, len(memory.to), 3, 2)), window=w)


def around(phases=3):
    """A chain with a public clock whose phases are alike: CHAIN, whatever the hour."""
    return MarkovChain([CHAIN.transition] * phases, clock=Clock("steps", phases))


def ladder():
    return Ladder((table(1), table(1, 4), table(1, 5)), Feedback(4, 0.3, 1.0, [0.1, 0.4, 0.6]), 1)


POLICIES = {
    "memoryless": table(0),
    "window 1": table(1),
    "window 2": table(2),
    "window 1, factored": factored(1),
    "window 2, factored": factored(2),
    "made to measure": some_memory(np.random.default_rng(2), Z=3, Y=2, S=5),
    "clock": cycle([factored(1), factored(1, 2), factored(1, 3)]).made_for(around()),
    "schedule": vs.schedule((table(1), factored(0), table(2, 3)), (2, 1, 1)),
    "belief": greedy(),
    "sampled": sampled(),
    "ladder": ladder(),
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
    again = restore(*policy.export(), policy.chain or CHAIN)
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
    assert policy.channel(one) == recomputed(policy.channel(other))
    assert (policy.channel(one)[forbidden] == 0).all()
    assert np.abs(policy.channel(one) - policy.channel(policy.update(policy.start(), 0))).max() > 0.01
    assert np.abs(policy.channel(policy.start()) - sampled(5).channel(sampled(5).start())).max() > 0.01
    assert policy.skip(one, 5) == pytest.approx(policy.skip(policy.skip(one, 2), 3))


@pytest.mark.parametrize("kind", ["schedule", "clock"])
def test_rounds_go_by_the_public_step_whether_something_is_released_or_not(kind):
    policy = POLICIES[kind]
    s, rng = policy.start(), np.random.default_rng(0)
    skipped = np.asarray(policy.skip(s, 3 * policy.places))
    assert skipped == s
    for t in range(12):
        place, phase = int(s) // len(policy.automaton), policy.phase_at(np.asarray(t))
        assert place == policy.place_at(np.asarray(t)) == t % policy.places
        a = normalised(policy.output_model[phase, s % len(policy.automaton)] * policy.at_phase(int(phase)).kernel[0])
        assert policy.channel(s) == pytest.approx(a[policy.automaton.group[s % len(policy.automaton)]])
        assert policy.at(policy.start(), np.asarray(t)) // len(policy.automaton) == place
        s = policy.skip(s) if t % 3 == 1 else policy.update(s, rng.integers(0, 2))


def test_a_schedule_counts_skipped_steps():
    schedule = POLICIES["schedule"]
    memory = schedule.start()
    for skipped, phase in ((0, 0), (1, 0), (2, 1), (3, 2), (4, 0)):
        assert schedule.turn[schedule.skip(memory, skipped) // len(schedule.automaton)] == phase
    assert schedule.phase_at(np.arange(6)).tolist() == [0, 0, 1, 2, 0, 0]


def test_every_finite_policy_is_a_controller_while_it_rests(policy):
    found = controller_of(policy)
    if found is None:
        assert policy.n_memories is None
        return
    own, other, rng = policy.start(), found.start(), np.random.default_rng(1)
    for y in rng.integers(0, 2, 12):
        assert found.channel(other) == pytest.approx(policy.channel(own))
        own, other = policy.update(own, y), found.update(other, y)


def test_only_one_kernel_has_a_cost_of_its_own():
    assert 2.0 ** -release_cost(POLICIES["window 1, factored"]) == pytest.approx(
        POLICIES["window 1, factored"].kernel[0, 0]
    )
    for name in ("window 2, factored", "clock", "schedule", "belief", "ladder"):
        assert release_cost(POLICIES[name]) is None


def test_bad_tables_and_unknown_kinds():
    with pytest.raises(vs.InputError, match="probability law"):
        vs.Controller.of_table([[0.5, 0.4]])
    with pytest.raises(vs.InputError, match="has 2 tables, found 4"):
        vs.Controller.of_table(np.full((4, 3, 2), 0.5), 1)
    for r, K in (((1, 3, 2), (1, 1, 3, 2)), ((1, 2, 2), (1, 2, 3, 2)), ((2, 2, 2), (1, 1, 3, 2)), ((2, 2), (1, 3, 2))):
        with pytest.raises(vs.InputError, match="does not fit"):
            vs.Controller(window(2, 1), np.ones(r), np.ones(K))
    with pytest.raises(vs.InputError, match="unknown kind"):
        restore({"kind": "oracle"}, {}, CHAIN)
    for policies, durations in (((table(0),), (0,)), ((table(0),), (1, 1)), ((), ())):
        with pytest.raises(vs.InputError, match="one duration"):
            vs.schedule(policies, durations)
    with pytest.raises(vs.InputError, match="no clock of their own"):
        vs.schedule((POLICIES["schedule"], table(1)), (1, 1))
    with pytest.raises(vs.InputError, match="must be finite"):
        vs.schedule((table(1), greedy()), (1, 1))
    with pytest.raises(vs.InputError, match="one chain"):
        vs.schedule((table(1).made_for(CHAIN), table(1).made_for(vs.MarkovChain(np.eye(3)))), (1, 1))
    for turn in ([0, 3], [-1], []):
        with pytest.raises(vs.InputError, match="3 phases"):
            replace(POLICIES["clock"], turn=np.array(turn, int))


# --- what a policy says unless it says otherwise -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Two(Policy):
    """Two memories, its last release; a channel that may be wrong."""

    laws: np.ndarray  # 2 x |Z| x |Y|
    chain: MarkovChain | None = None
    n_states, n_outputs, n_memories = 3, 2, 2

    def start(self, n=None):
        return np.ones(() if n is None else n, np.int64)

    def channel(self, memory):
        return self.laws[memory]

    def update(self, memory, y, channel=None):
        return np.asarray(y, np.int64)

    def export(self):
        return {}, {}

    @classmethod
    def restore(cls, meta, arrays, chain):
        raise NotImplementedError


LAW = np.array([[[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]], [[0.1, 0.9], [1.0, 0.0], [0.5, 0.5]]])


def test_a_channel_that_is_no_law_is_refused():
    Two(LAW).check()
    off = np.array([0, 1.0])
    Two(LAW + 1e-7 * off).check()
    wrongs = LAW + 1e-3 * off, LAW - 1e-3 * off, LAW * np.array([-1, 1]), LAW + np.array([-1, 1])
    for wrong in (*wrongs, LAW[:, :2], np.ones((2, 3, 1))):
        with pytest.raises(InputError, match="not a law"):
            Two(wrong).check()
    with pytest.raises(InputError, match="not a law"):
        Two(LAW * [[[1]], [[np.nan]]]).check()
    Two(LAW * [[[np.nan]], [[1]]]).check()  # it looks at the channel that it starts with


def test_what_a_policy_with_few_memories_says_by_itself():
    policy = Two(LAW)
    np.testing.assert_array_equal(policy.table(), LAW)
    assert policy.table(most=12) is not None and policy.table(most=11) is None  # 2 x 3 x 2
    memory = np.array([1, 0])
    assert policy.skip(memory, 7).tolist() == policy.at(memory, np.array([3, 1])).tolist() == [1, 0]
    assert policy.made_for(CHAIN).chain is CHAIN and policy.window is None
    assert policy.moves_by is None and policy.resting is policy
    found = controller_of(policy)
    assert found.first == 1 and found.automaton.table.tolist() == [[0, 1], [0, 1]]


class Many(Two):
    n_memories = None


def test_a_policy_without_numbered_memories_has_no_tables():
    policy = Many(LAW)
    assert policy.table() is None and controller_of(policy) is None


def test_policies_inside_policies_end_somewhere():
    meta, arrays = table(1).export()
    for depth, fits in ((0, True), (8, True), (9, False)):
        if fits:
            assert restore(meta, arrays, CHAIN, depth).n_outputs == 2
        else:
            with pytest.raises(InputError, match="not readable"):
                restore(meta, arrays, CHAIN, depth)
    for wrong in (None, [], "controller", {"kind": 7}, {"kind": "x"}, {}):
        with pytest.raises(InputError):
            restore(wrong, arrays, CHAIN)
