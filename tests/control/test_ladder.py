"""Limits kept by feedback: the guarantee for every sequence, the charge against enumeration, files and restarts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import veilstream as vs
from enumerated import enumerated
from oracles import random_chain, recorded
from veilstream.control.adaptive import Ladder
from veilstream.control.charge import (
    MOST_DOUBT,
    Charge,
    MeterState,
    Rung,
    long_run_law,
    output_model,
    projective_diameter,
    prove,
    without_clock,
)
from veilstream.control.controller import cycle
from veilstream.control.feedback import MOVE_BITS, Excess, Feedback
from veilstream.control.mechanism import Mechanism
from veilstream.control.policy import restore
from veilstream.control.release import Releaser, release_many
from veilstream.control.stationary import rates
from veilstream.model.chain import MarkovChain
from veilstream.model.clock import Clock
from veilstream.model.information import entropy


def run(rule, felt, first=0):
    """The rule alone, one stream: the excess after every step. felt: functions of the rung."""
    rung, account, seen = np.array([first]), Excess.new(rule, np.zeros(1, int)), []
    for t, far in enumerate(felt):
        step = np.array([t])
        rung = rule.moved(rung, account.way(rule.passed(account.last, step), rung))
        account.count(np.array([far(int(rung[0]))]), step)
        seen.append(float(account.excess[0]))
    return seen


def rule_of(rungs, every, debt, usual=None, **more):
    """A limit of 1, distances up to 3, rungs felt at 0.3 to 1.8."""
    return Feedback(every, 1.0, 3.0, np.linspace(0.3, 1.8, rungs), usual, debt, **more)


@given(
    rungs=st.integers(1, 20),
    every=st.integers(1, 6),
    debt=st.floats(0, 10),
    far=st.lists(st.floats(0, 5), min_size=1, max_size=200),
    first=st.integers(0, 19),
    share=st.floats(0.1, 1),
    gains=st.tuples(st.floats(0, 2), st.floats(0.5, 20), st.floats(0, 4)),
)
def test_no_sequence_passes_the_bound(rungs, every, debt, far, first, share, gains):
    """Whatever is felt above rung 0, and however the rule is tuned; rung 0 keeps the limit."""
    rule = rule_of(rungs, every, debt, share * every, part=gains[0], back=gains[1], theta=gains[2])
    felt = [lambda rung, d=d: d if rung else min(d, 1.0) for d in far]
    assert max(run(rule, felt, min(first, rungs - 1))) <= rule.overshoot + 1e-9


@pytest.mark.parametrize(("rungs", "every"), [(4, 4), (8, 5), (9, 3), (17, 2)])
def test_the_bound_is_attained(rungs, every):
    """From the top: as much in two periods as leaves theta W of excess and no move to the bottom, then the worst."""
    rule = rule_of(rungs, every, 0.0)
    assert rule.theta == 2.0  # periods that the excess is brought up to just that in
    fall = [lambda rung: 2.0] * (2 * every) + [lambda rung: 3.0 if rung else 1.0] * (40 * every)
    seen = run(rule, fall, rungs - 1)
    assert max(seen) == pytest.approx(rule.overshoot) == rule.theta * every + 2.0 * every
    assert seen[-1] <= rule.overshoot


def test_a_person_with_few_readings_is_corrected_as_fast_as_one_with_many():
    """Four readings in a period of 100 steps, felt at twice what each rung was: a usual period is the measure."""
    shares = np.array([0.3, 0.4, 0.6, 0.75, 0.82, 0.88, 0.92, 0.96, 1.0, 1.1])

    def mean(usual):
        rule, rung, met = Feedback(100, 1.0, 20.0, shares, usual), np.array([8]), []
        account = Excess.new(rule, np.zeros(1, int))
        for t in (100 * period + at for period in range(12) for at in (0, 20, 40, 60)):
            rung = rule.moved(rung, account.way(rule.passed(account.last, np.array([t])), rung))
            met.append(2 * shares[rung[0]])
            account.count(np.array([met[-1]]), np.array([t]))
        return np.mean(met)

    assert mean(4.0) < 1.15 < 1.5 < mean(None)


def seasons(amplitude, seed, weeks=52):
    """How far off one and the same rung is, week by week: a year with its noise, from winter or from summer on."""
    noise, year = np.random.default_rng(seed).normal(size=weeks), 2 * np.pi * np.arange(weeks) / 52 + np.pi * (seed % 2)
    return (1 - amplitude * np.cos(year)) * np.exp(0.08 * noise)


@pytest.mark.parametrize("amplitude", [0.0, 0.2, 0.4])
def test_a_year_costs_little_more_than_the_one_rung_that_is_right_in_hindsight(amplitude):
    """Rungs of 0.33 to 1.8 times the limit, bits -log2 of that: a rung that swings costs, since the curve is convex."""
    shares = np.array([0.33, 0.4, 0.6, 0.75, 0.82, 0.88, 0.92, 0.96, 1, 1.04, 1.08, 1.12, 1.18, 1.25, 1.35, 1.5, 1.8])
    rule, first, bits = Feedback(10, 1.0, 20.0, shares), 8, -np.log2(shares / 4)
    felt, told = [], []
    for seed in range(8):
        weeks, met = seasons(amplitude, seed), []
        far = [lambda rung, w=w, met=met: met.append(rung) or shares[rung] * w for w in np.repeat(weeks, 10)]
        run(rule, far, first)
        felt.append((shares[met] * np.repeat(weeks, 10)).mean())
        told.append(bits[met].mean() / np.interp(1 / weeks.mean(), shares, bits))
    assert max(felt) < 1.02
    assert np.mean(told) < 1.008


def test_what_rung_0_cannot_serve_is_all_that_is_added():
    rule, rng = rule_of(6, 3, 2.0), np.random.default_rng(0)
    for _ in range(50):
        far, unserved = rng.uniform(0, 3, 300), []

        def felt(d, unserved=unserved):
            return lambda rung: unserved.append(max(d - 1.0, 0) if rung == 0 else 0) or d

        assert max(run(rule, [felt(d) for d in far], 5)) <= rule.overshoot + sum(unserved) + 1e-9


def test_several_boundaries_in_a_gap_are_one_move():
    rule = rule_of(2, 10, 1.0)
    assert rule.passed(np.array([9, 9, 10, 5]), np.array([10, 95, 19, 5])).tolist() == [True, True, False, False]
    assert rule.passed(np.array([-1]), np.array([0])).all()  # steps before the epoch are numbered too


@pytest.mark.parametrize(
    "wrong",
    [
        {"every": 0},
        {"every": 1.5},
        {"limit": 0.0},
        {"most": 1.0},
        {"felt": []},
        {"felt": [0.5, 0.2]},
        {"felt": [float("nan")]},
        {"usual": 0.0},
        {"usual": 9.0},
        {"debt": -1.0},
        {"back": 0.0},
        {"theta": float("inf")},
    ],
)
def test_a_rule_that_cannot_be_is_refused(wrong):
    with pytest.raises(vs.InputError, match="ladder"):
        Feedback(**{"every": 2, "limit": 1.0, "most": 3.0, "felt": [0.2, 0.5], **wrong})


# --- the charge ----------------------------------------------------------------------------------------------


def small_ladder(rng, Z=2, Y=2, rungs=2, every=2, window=1, first=1):
    tables = [rng.dirichlet(np.full(Y, 0.6), (Y**window, Z)) for _ in range(rungs)]
    policies = tuple(vs.Controller.of_table(t, window) for t in tables)
    return Ladder(policies, Feedback(every, 0.4, 1.0, np.linspace(0.1, 0.9, rungs)), first)


def information(ladder, chain, d, presence):
    """I(X; Y, moves) and the mean charge, by enumeration."""
    problem = vs.Problem(chain, d, vs.Average(limit=0.4))
    found = enumerated(Mechanism(ladder.made_for(chain), problem), chain, np.array([c == "1" for c in presence]), d)
    return found.information, found.charged


@pytest.fixture(params=["little saved", "much saved"])
def saved(request, monkeypatch):
    """What streams have saved when they begin: with much of it moves are charged by the potential."""
    if request.param == "much saved":
        start = Charge.start

        def rich(self, step):
            return MeterState.of(start(self, step))._replace(truth=np.full(len(step), 1e6)).packed()

        monkeypatch.setattr(Charge, "start", rich)
    return request.param


@pytest.mark.parametrize("presence", ["11111", "11011", "10101", "1100000011"])
@pytest.mark.parametrize("seed", range(4))
def test_the_charge_is_never_below_the_information(seed, presence, saved):
    """Every reading, every release, every move of tiny ladders; gaps and the start included."""
    rng = np.random.default_rng(seed)
    chain = vs.MarkovChain(random_chain(rng, 2, sticky=0.7, floor=0.05))
    ladder = small_ladder(rng, rungs=3, every=1 + seed % 2)
    told, charged = information(ladder, chain, 1 - np.eye(2), presence)
    assert charged >= told - 1e-9
    assert told > 0.01  # or the comparison says nothing


@pytest.mark.parametrize("presence", ["11111", "10110"])
@pytest.mark.parametrize("seed", range(3))
def test_around_a_public_clock_too(seed, presence, saved):
    """Two states, three phases, a gap that passes some of them."""
    rng = np.random.default_rng(10 + seed)
    chain = clock_chain(rng)
    rungs = []
    for _ in range(2):
        tables = rng.dirichlet(np.full(2, 0.6), (3, 2, 2))
        rungs.append(cycle(tuple(vs.Controller.of_table(t, 1) for t in tables)))
    ladder = Ladder(tuple(rungs), Feedback(2, 0.4, 1.0, [0.1, 0.5]), 1).made_for(chain)
    told, charged = information(ladder, chain, 1 - np.eye(2), presence)
    assert charged >= told - 1e-9
    assert told > 0.01
    problem = vs.Problem(chain, np.zeros((2, 2)), vs.Average(weight=1.0))
    expected = [rates(problem, p).leakage for p in ladder.policies]
    assert ladder.own_meter(chain).rates == pytest.approx(expected, abs=1e-5)


def clock_chain(rng):
    cycle = np.stack([random_chain(rng, 2, sticky=s, floor=0.05) for s in (0.8, 0.2, 0.5)])
    return MarkovChain(cycle, clock=Clock("steps", 3))


def test_the_loop_of_a_ladder_around_a_clock_is_the_one_that_was_enumerated():
    """Releases, phases and bits of one stream through gaps, against the parts by hand."""
    rng = np.random.default_rng(3)
    chain = clock_chain(rng)
    rungs = [cycle(tuple(vs.Controller.of_table(t, 1) for t in rng.dirichlet(np.ones(2), (3, 2, 2)))) for _ in "ab"]
    ladder = Ladder(tuple(rungs), Feedback(4, 0.4, 1.0, [0.1, 0.5]), 1).made_for(chain)
    mechanism = Mechanism(ladder)
    s, phases = mechanism.start(1, 7), []
    for gap in (0, 0, 2, 0, 1):
        s = mechanism.skip(s, gap) if gap else s
        phases.append(int(s.memory[0]) % ladder.shared // 2)
        s, _ = mechanism.step(s, np.array([1]), np.array([0.3]))
    assert phases == [1, 2, 2, 0, 2]  # steps 7, 8, 11, 12, 14 modulo 3


def test_the_charge_holds_where_bits_of_the_filter_and_of_moves_do_not():
    """THEORY 10: nine states that never change, P(0) = 1/2; up shows 0, down the truth; down if x != 0."""
    initial = np.array([0.5] + [1 / 16] * 8)
    chain = vs.MarkovChain(np.eye(9), initial)
    truth, nothing = np.eye(9), np.tile(np.eye(9)[0], (9, 1))
    rule = Feedback(1, 0.5, 1.0, [0.0, 0.5])
    ladder = Ladder((vs.Controller.of_table(truth), vs.Controller.of_table(nothing)), rule, 1)
    told, charged = information(ladder, chain, 1 - np.eye(9), "11")
    assert told == pytest.approx(2.5)
    after_nothing = initial  # what the filter believes at the second step: the move has told it nothing
    naive = 1 + 0.5 * float(entropy(after_nothing))  # the bit of the move, and L(b, a) on the lower rung half the time
    assert naive == pytest.approx(2.25)
    assert charged >= 2.5


@pytest.mark.parametrize("seed", range(3))
def test_the_rate_of_a_rung_is_its_leakage_with_that_memory(seed):
    """g is a bound whatever the potential; solved for, it is I(Z;Y|S) of the rung in the long run."""
    rng = np.random.default_rng(seed)
    chain = vs.MarkovChain(random_chain(rng, 4, sticky=0.6, floor=0.02))
    ladder = small_ladder(rng, Z=4, Y=3, rungs=3)
    meter = ladder.own_meter(chain)
    problem = vs.Problem(chain, np.zeros((4, 3)), vs.Average(weight=1.0))
    expected = [rates(problem, p).leakage for p in ladder.policies]
    assert meter.rates == pytest.approx(expected, abs=1e-6)
    proof = prove(ladder.policies, ladder.first, chain)
    worse = proof._replace(potential=proof.potential + 0.01 * rng.random(proof.potential.shape))
    assert (Charge(ladder.policies, chain, worse).rates >= meter.rates - 1e-12).all()
    assert meter.change_bits[:, ladder.first] == pytest.approx(0.0)  # who left the first rung has paid for the way back
    assert (meter.change_bits[ladder.first] >= 0).all() and meter.change_bits[ladder.first].max() > 0.01


@pytest.mark.parametrize("seed", range(3))
def test_the_doubt_bounds_every_ratio_of_beliefs(seed):
    """Beliefs k steps after anything, and after releases that both have seen: b~ <= 2^d b."""
    rng = np.random.default_rng(seed)
    P = random_chain(rng, 4, sticky=0.5, floor=0.02)
    for k in (1, 3, 9):
        Pk = np.linalg.matrix_power(P, k)
        doubt, most = projective_diameter(Pk), 0.0
        for _ in range(300):
            one, other = rng.dirichlet(np.full(4, 0.1), 2) @ Pk
            for _ in range(3):
                most = max(most, float(np.log2(one / other).max()))
                seen = rng.dirichlet(np.ones(4))
                one, other = ((b * seen / (b * seen).sum()) @ P for b in (one, other))
        assert 0.1 * doubt < most <= doubt + 1e-9
    assert projective_diameter(np.eye(2)) == np.inf and projective_diameter(np.full((3, 2), 0.5)) == 0


def test_a_move_after_a_long_gap_costs_its_own_bits_and_one_without_a_gap_the_potential(saved):
    chain = vs.MarkovChain(random_chain(np.random.default_rng(0), 2, sticky=0.6, floor=0.05))
    ladder = small_ladder(np.random.default_rng(0), rungs=3, every=1000).made_for(chain)
    mechanism = Mechanism(ladder)
    meter, s = mechanism.meter, mechanism.start(3, 900)
    for _ in range(40):
        s, _ = mechanism.step(s, np.zeros(3, int), np.full(3, 0.5))
    near, far = (mechanism.skip(s, k) for k in (1, 200))
    apart = [projective_diameter(np.linalg.matrix_power(chain.transition, k)) for k in (2, 201)]
    assert apart[0] > MOST_DOUBT > apart[1]
    [by_filter, belief], [dear, _] = (meter.move(m, m.memory, np.full(3, k)) for m, k in ((far, 201), (near, 2)))
    assert by_filter == pytest.approx(np.full(3, MOVE_BITS)) and (MeterState.of(belief).doubt <= MOST_DOUBT).all()
    truth = MeterState.of(near.belief).truth - near.total
    assert dear == pytest.approx(truth) if saved == "little saved" and (truth < 6).all() else (dear > MOVE_BITS).all()


def test_the_potential_is_the_one_of_the_dense_system():
    """h - T h = f - g, solved from the whole matrix; static chains have many solutions, and any will do."""
    rng = np.random.default_rng(5)
    chain = vs.MarkovChain(random_chain(rng, 4, sticky=0.8, floor=0.02))
    [policy, _] = small_ladder(rng, Z=4, Y=3, rungs=2).policies
    rung, mu = Rung.of(policy, chain), long_run_law(policy, chain)[0]
    f = rung.loss(output_model(rung.table, mu[None]))[0]
    T = np.array([rung.ahead(e.reshape(f.shape)).ravel() for e in np.eye(f.size)]).T
    excess = (f - (mu * f).sum()).ravel()
    expected = np.linalg.solve(np.eye(f.size) - T + mu.ravel(), excess).reshape(f.shape)
    np.testing.assert_allclose(without_clock(excess.reshape(f.shape), rung, mu), expected, atol=1e-7)
    still = vs.MarkovChain(np.eye(4))
    assert np.isfinite(small_ladder(rng, Z=4, Y=3, rungs=2).own_meter(still).rates).all()


# --- in the loop -----------------------------------------------------------------------------------------------


CHAIN = vs.MarkovChain(random_chain(np.random.default_rng(1), 3, sticky=0.7, floor=0.05))
D = 1 - np.eye(3)
RUNGS = tuple(
    vs.Controller.of_table(np.tile((1 - e) * np.eye(3) + e * np.roll(np.eye(3), 1, 1), (3, 1, 1)), 1)
    for e in (0.0, 0.2, 0.5, 0.9)
)
LADDER = Ladder(RUNGS, Feedback(8, 0.3, 1.0, [0.0, 0.2, 0.5, 0.9]), 1)
PROBLEM = vs.Problem(CHAIN, D, vs.Average(limit=0.3))


def test_the_mean_is_kept_whatever_the_person_does():
    """A person whose every reading is felt at its worst: without the ladder rung 3 would feel 0.9."""
    x = np.tile(CHAIN.sample(2000, 1, seed=3), (4, 1))
    found = release_many(LADDER, x, PROBLEM, seed=0)
    mean = D[x, found.y].mean(1)
    assert (mean <= 0.3 + LADDER.feedback.overshoot / x.shape[1]).all()
    assert (mean > 0.25).all()  # and it is not kept by staying at the bottom


def test_one_stream_at_a_time_is_the_same_loop():
    x = CHAIN.sample(100, 1, seed=4)
    many = release_many(LADDER, x, PROBLEM, seed=7)
    one = Releaser(LADDER, PROBLEM, seed=7)
    assert [one.release(int(v)) for v in x[0]] == many.y[0].tolist()
    assert one.leaked_bits == pytest.approx(many.leaked_bits[0])
    with pytest.raises(vs.InputError, match="problem"):
        release_many(LADDER.made_for(CHAIN), x)


def test_under_a_ceiling_a_ladder_stops_looking_for_good():
    x = CHAIN.sample(400, 20, seed=5)
    found = release_many(LADDER, x, PROBLEM, ceiling=30.0, seed=0)
    assert (found.leaked_bits <= 30.0 + 1e-9).all()
    blind = release_many(LADDER, (x + 1) % 3, PROBLEM, ceiling=30.0, seed=0)
    late = slice(200, None)
    right = [(f.y[:, late] == x[:, late]).mean() for f in (found, blind)]
    assert right[0] == pytest.approx(right[1], abs=0.05)  # the same releases, whatever is true


def test_a_ladder_in_a_file_is_the_same_ladder(tmp_path):
    ladder = LADDER.made_for(CHAIN).proved(CHAIN)
    meta, arrays = ladder.export()
    again = restore(meta, arrays, CHAIN)
    memory = np.arange(ladder.n_memories)
    assert again.channel(memory) == pytest.approx(ladder.channel(memory))
    assert again.feedback == ladder.feedback
    assert again.own_meter(CHAIN).rates == pytest.approx(ladder.own_meter(CHAIN).rates)
    vs.save(tmp_path / "ladder.veil", ladder, problem=PROBLEM)
    loaded = vs.load(tmp_path / "ladder.veil").policy
    assert loaded.first == 1 and loaded.rungs == 4
    with pytest.raises(vs.InputError, match="proof"):
        restore(meta, {**arrays, "law": arrays["law"][:1]}, CHAIN)
    with pytest.raises(vs.InputError, match="rung"):
        restore({**meta, "first": 9}, arrays, CHAIN)
    with pytest.raises(vs.InputError, match="alike"):
        Ladder((RUNGS[0], vs.Controller.of_table(np.eye(3))), LADDER.feedback)
    with pytest.raises(vs.InputError, match="a rule for 4"):
        Ladder(RUNGS[:3], LADDER.feedback)
    with pytest.raises(vs.InputError, match="earlier rule; solve again"):
        restore({**meta, "feedback": {"every": 8, "limit": 0.3, "most": 1.0, "debt": 4.0}}, arrays, CHAIN)


def test_on_a_course_the_ladder_moves_as_it_would_for_the_person():
    """A stream that the chain did not foresee: felt 0.9 on every rung but the first."""
    z = [np.repeat([0, 1, 2], 200)]
    distances = [np.where(np.eye(3)[z[0]] > 0, 0.0, 0.9)]
    on = recorded(z, [np.zeros(600, int)], distances)
    found = on.leakage(LADDER, CHAIN)
    assert sum(found.rungs) == pytest.approx(1)
    assert found.moves > 10
    assert found.error <= 0.3 + LADDER.feedback.overshoot / 600
    still = on.leakage(RUNGS[3], CHAIN)
    assert still.error == pytest.approx(0.9 * 0.9, abs=0.05)
    boundaries = 600 // 8 - 1
    assert found.charged * 600 >= boundaries * MOVE_BITS  # every boundary has its bits
    assert found.bits * 600 >= boundaries * MOVE_BITS
