"""Leakage without believing the chain, against every sequence there is; held-out figures and their halves."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilstream as vs
from oracles import random_chain, recomputed, recorded
from veilstream.control.adaptive import Ladder
from veilstream.control.feedback import MOVE_BITS, Feedback
from veilstream.control.limit_check import COPIES, HeldOut
from veilstream.control.mechanism import Mechanism
from veilstream.control.universal_bound import worst_of, worst_rate
from veilstream.model.histories import TrueStates
from veilstream.model.information import mutual_information
from veilstream.model.problem import capacity


def a_policy(rng, window, Y=2, Z=2):
    return vs.Controller.of_table(rng.dirichlet(0.5 * np.ones(Y), (Y**window, Z)), window)


def along(policy, chain, x, gaps, y):
    """Probability of the releases y for the true symbols x, and the sum of densities on the way."""
    mechanism = Mechanism(policy.made_for(chain))
    find, s, last, p, bits = TrueStates.of(chain), mechanism.start(1), np.array([-1]), 1.0, 0.0
    for x_t, gap, y_t in zip(x, gaps, y, strict=True):
        if gap:
            s, last = mechanism.skip(s, int(gap)), np.array([-1])
        last = find(last, np.array([x_t]))
        view, y_t = mechanism.look(s), np.array([y_t])
        p *= float(view.channel[0, last[0], y_t[0]])
        bits += float(mechanism.density(s, view, last, y_t)[0])
        s = mechanism.after(s, view, y_t)
    return p, bits


def enumerated(law, policy, chain, gaps):
    """Of a source with this law over whole sequences: I(X^n;Y^n), and the mean of the density."""
    n, shape = len(gaps), law.shape
    joint, mean = np.zeros((law.size, policy.n_outputs**n)), 0.0
    for i, x in enumerate(itertools.product(*map(range, shape))):
        for j, y in enumerate(itertools.product(range(policy.n_outputs), repeat=n)):
            p, bits = along(policy, chain, x, gaps, y)
            joint[i, j] = law[x] * p
            mean += law[x] * p * bits
    return float(mutual_information(joint)), mean


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), window=st.integers(0, 2), order=st.integers(1, 2), spread=st.floats(0.05, 2))
def test_whatever_the_law_the_bound_is_never_below_what_is_told(seed, window, order, spread):
    """Sources over whole sequences, remembering all of their past; chains that know nothing of them."""
    rng = np.random.default_rng(seed)
    chain = vs.MarkovChain.fit([rng.integers(0, 2, 40)], 2, order=order)
    law = rng.dirichlet(spread * np.ones(2**4)).reshape((2,) * 4)
    gaps = [0, *rng.integers(0, 2, 3)]
    told, bound = enumerated(law, a_policy(rng, window, Z=len(chain)), chain, gaps)
    assert told <= bound + 1e-9


def test_under_its_own_chain_the_bound_is_what_is_told():
    rng = np.random.default_rng(3)
    chain = vs.MarkovChain(random_chain(rng, 2, sticky=0.5, floor=0.05))
    law = chain.initial
    for _ in range(3):
        law = law[..., None] * chain.transition
    told, bound = enumerated(law, a_policy(rng, 1), chain, [0] * 4)
    assert bound == pytest.approx(told, abs=1e-9)


def test_what_a_course_measures_is_that_mean():
    """One recorded stream is a law that is certain of itself: its releases tell nothing, the bound is their density."""
    rng = np.random.default_rng(4)
    chain, policy = vs.MarkovChain(random_chain(rng, 2, sticky=0.5, floor=0.05)), a_policy(rng, 1)
    x, gaps = np.array([0, 1, 1, 0]), np.array([0, 0, 2, 0])
    law = np.zeros((2,) * 4)
    law[tuple(x)] = 1
    told, bound = enumerated(law, policy, chain, gaps)
    found = recorded([x], [gaps], [np.zeros((4, 2))]).leakage(policy, chain)
    assert told == pytest.approx(0, abs=1e-12)
    assert found.bits * 4 == pytest.approx(bound, abs=16 * found.bits_se + 1e-3)


def test_a_row_that_the_chain_calls_impossible_is_drawn_from_its_law_and_counts_so():
    chain = vs.MarkovChain(np.eye(2), initial=[1.0, 0.0])
    policy = vs.Controller.of_table(np.eye(2)).made_for(chain)
    mechanism = Mechanism(policy)
    s = mechanism.start(2)
    view = mechanism.look(s)
    assert mechanism.density(s, view, np.array([0, 1]), np.array([0, 0])).tolist() == [0.0, 0.0]


def n_letter_capacity(policy, n):
    """The most that n releases can tell, over every law of the source: one channel from sequences to sequences."""
    Z, Y = policy.n_states, policy.n_outputs
    whole = np.zeros((Z**n, Y**n))
    for i, z in enumerate(itertools.product(range(Z), repeat=n)):
        for j, y in enumerate(itertools.product(range(Y), repeat=n)):
            p, s = 1.0, policy.start()
            for z_t, y_t in zip(z, y, strict=True):
                p, s = p * policy.channel(s)[z_t, y_t], policy.update(s, y_t)
            whole[i, j] = p
    return float(capacity(whole, 1e-5)[0])


@pytest.mark.parametrize("seed", range(4))
def test_no_source_makes_releases_tell_more_than_the_worst_case(seed):
    policy = a_policy(np.random.default_rng(seed), 1)
    a = policy.table()
    g, V = worst_of(a, np.tile(np.arange(2), (2, 1)))
    for n in (1, 2, 4):
        assert n_letter_capacity(policy, n) <= n * g + np.ptp(V) + 1e-4
    assert g <= capacity(a)[0].max() + 1e-6
    assert worst_rate(policy) == recomputed(g)


def test_without_memory_the_worst_case_is_the_capacity_and_a_schedule_is_bounded_by_its_parts():
    rng = np.random.default_rng(5)
    one, two = a_policy(rng, 0, 3, 3), a_policy(rng, 1, 3, 3)
    assert worst_rate(one) == pytest.approx(float(capacity(one.table())[0][0]), rel=1e-3)
    assert worst_rate(vs.Controller.of_table(np.eye(4))) == pytest.approx(2.0)
    assert worst_rate(vs.Controller.of_table(np.full((4, 4), 0.25))) == 0.0
    most = max(float(capacity(x.table())[0].max()) for x in (one, two))
    assert worst_rate(vs.schedule((one, two), (3, 1))) == pytest.approx(most, rel=1e-3)


def with_units(lengths=(60, 40)):
    rng = np.random.default_rng(6)
    z = [rng.integers(0, 2, n) for n in lengths]
    gaps = [np.concatenate([[0], rng.integers(0, 3, n - 1)]) for n in lengths]
    units = [np.arange(n) // 10 for n in lengths]
    return recorded(z, gaps, [rng.random((n, 2)) for n in lengths], units=units, unit="weeks")


def test_held_out_figures_are_means_with_intervals_over_whole_units():
    rng, on = np.random.default_rng(7), with_units()
    chain, policy = vs.MarkovChain(random_chain(rng, 2, sticky=0.5, floor=0.05)), a_policy(rng, 1)
    d = rng.random((2, 2))
    found = HeldOut.of(on, policy, vs.Problem(chain, d, vs.Average(weight=1.0)))
    assert (found.units, found.unit, found.level) == (6, "weeks", "model only")
    assert found.raw_distortion.value == pytest.approx(on.error(policy))
    assert found.distortion.value == pytest.approx(on.under(d).error(policy))
    assert found.leakage.value == pytest.approx(on.leakage(policy, chain, COPIES * on.n_steps).bits)
    per_unit = on.errors(policy)
    of = on.units
    means = [per_unit[of == u].mean() for u in range(6)]
    for figure in (found.raw_distortion, found.distortion, found.leakage):
        assert figure.low < figure.value < figure.high
    assert min(means) <= found.raw_distortion.low and found.raw_distortion.high <= max(means)
    assert found == HeldOut.of(on, policy, vs.Problem(chain, d, vs.Average(weight=1.0)))
    told = found.to_json()
    assert told["traces"] == 6 and set(told["leakage"]) == {"value", "low", "high"}
    assert HeldOut.read(told) == found and HeldOut.read(told | {"leakage": "no"}) is None


def test_a_ladder_moves_by_what_is_felt_whatever_else_is_told():
    """Distances counted double are twice as far on the same draws: they must not drive the moves."""
    rng, on = np.random.default_rng(8), with_units((400, 300))
    chain, d = vs.MarkovChain(random_chain(rng, 2, sticky=0.5, floor=0.05)), 1 - np.eye(2)
    felt = on.under(d)
    truth, coin = np.eye(2) * 0.98 + 0.01, np.full((2, 2), 0.5)
    rungs = tuple(vs.Controller.of_table(a) for a in (truth, (truth + coin) / 2, coin))
    ladder = Ladder(rungs, Feedback(10, 0.2, 1.0, [0.01, 0.25, 0.5]), 1).made_for(chain)
    found = HeldOut.of(felt, ladder, vs.Problem(chain, 2 * d, vs.Average(weight=1.0)))
    assert found.distortion.value == pytest.approx(2 * found.raw_distortion.value)
    assert found.raw_distortion.value == pytest.approx(0.2, abs=0.05)
    most = float(capacity(truth)[0]) + MOVE_BITS / 10
    assert worst_rate(ladder) == pytest.approx(most, rel=1e-3) and worst_rate(ladder) > found.leakage.high
    upside = Ladder(rungs[::-1], ladder.feedback, 1).made_for(chain)  # whichever rung tells most
    assert worst_rate(upside) == pytest.approx(most, rel=1e-3)


def test_halves_are_the_earlier_and_the_later_units():
    on = with_units()
    first, second = on.halves()
    assert np.bincount(first.stream).tolist() == [30, 30] and np.bincount(second.stream).tolist() == [30, 10]
    assert first.units.max() == 2 and second.units.min() == 3
    assert [first.step[rows][0] for rows in first.streams] == [0, 0] and second.step[0] == 30 + on.gaps[:31].sum()
    assert (first.gaps[:30] == on.gaps[:30]).all() and second.gaps[0] == 0
    assert (on.n_units, first.n_units, second.n_units) == (6, 3, 3)
    assert [half.n_units for half in on.halves(4)] == [2, 4]  # enough to say something, where that leaves half as many
    assert [half.n_units for half in on.halves(5)] == [3, 3]
    assert (second.gaps[1:30] == on.gaps[31:60]).all() and (second.distances[30:] == on.distances[90:]).all()
