"""Mechanisms of others: what every one of them promises, and each against its published description."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import veilstream as vs
from veilstream.audit.judge import Judge, operating
from veilstream.audit.mechanisms import MECHANISMS
from veilstream.audit.mechanisms.android_coarse import OF_ACCURACY
from veilstream.audit.mechanisms.grid import snapped
from veilstream.audit.mechanisms.hold import held
from veilstream.audit.mechanisms.mechanism import law_of
from veilstream.audit.mechanisms.meshtastic import masked
from veilstream.audit.mechanisms.planar_laplace import channel
from veilstream.audit.spec import JudgeSpec
from veilstream.data.synthetic import city_chain, household_chain
from veilstream.data.utility import Utility
from veilstream.model.distortion import haversine
from veilstream.model.information import entropy
from veilstream.solvers.api import utility_of


@cache
def utility(source):
    if source == "builtin":
        return utility_of("builtin:grid2x3-toy")[0]
    chain, states = {"city": city_chain, "household": household_chain}[source]()
    return Utility.of(chain, states)


QUICK = JudgeSpec(streams=60, steps=150)
SOURCES = ("city", "household", "builtin")
CASES = [(m, s) for m in MECHANISMS.values() for s in SOURCES if m.fits(utility(s))]


def test_every_mechanism_fits_some_model_and_names_its_source():
    assert {m.name for m, _ in CASES} == set(MECHANISMS)
    assert all(m.source and m.what and m.setting for m in MECHANISMS.values())


@pytest.mark.parametrize(("mechanism", "source"), CASES, ids=lambda v: getattr(v, "name", v))
def test_a_mechanism_is_finite_policies_with_distances_to_all_they_show(mechanism, source):
    u = utility(source)
    for setting in mechanism.usual(u):
        made = mechanism.make(u, setting)
        chain = made.chain or u.chain
        assert len(made.distortion) == chain.n_symbols
        assert made.distortion.shape[1] == made.policies[0].n_outputs
        assert np.isfinite(made.distortion).all()
        assert (made.distortion >= 0).all()
        for policy in made.policies:
            policy.check()
            assert policy.n_states == len(chain)
        error, bits, _ = operating(made.problem(u.chain), made.policies[:1], QUICK)
        assert error.value >= 0
        assert bits.low <= u.chain.entropy_rate * 1.01  # never more than the truth


def test_the_smallest_settings_show_nearly_the_truth():
    u = utility("city")
    for name, setting in [("grid", 0.01), ("android-coarse", 0.01), ("meshtastic", 24), ("hold", 1), ("laplace", 1e-3)]:
        made = MECHANISMS[name].make(u, setting)
        assert operating(made.problem(u.chain), made.policies[:1], QUICK)[0].value < 0.2, name


def test_a_grid_moves_a_place_by_at_most_half_a_cell_each_way():
    places = np.random.default_rng(0).uniform([-60, -170], [60, 170], (500, 2))
    shown = snapped(places, 2.0)
    away = np.array([haversine(a, b)[0, 0] for a, b in zip(places[:, None], shown[:, None], strict=True)])
    assert away.max() < 1.005 * np.sqrt(2)
    assert len(np.unique(shown[:, 0])) < len(places)


def test_precision_bits_are_those_of_the_firmware():
    """In plain whole numbers, two's complement, as the C code has them."""
    for degrees in (48.137154, -47.0000001, 11.575382, -125.0):
        whole = round(degrees * 1e7)
        for bits in (1, 10, 13, 16, 31):
            word = (whole & 0xFFFFFFFF) & (0xFFFFFFFF << (32 - bits)) & 0xFFFFFFFF
            sent = (word + (1 << (31 - bits))) & 0xFFFFFFFF
            sent -= (sent >> 31) << 32
            assert masked(np.array(degrees), bits) * 1e7 == pytest.approx(sent)


def test_planar_laplace_keeps_geo_indistinguishability():
    u, mean = utility("city"), 2.0
    a, d = channel(u, mean), u.cost.states.distances()
    ratio = np.log(a[:, None] / a[None]).max(-1)
    assert (ratio <= 2 / mean * d + 1e-3).all()


def test_an_offset_is_a_quarter_of_the_accuracy_and_is_kept():
    u = utility("city")
    made = MECHANISMS["android-coarse"].make(u, 2.0)
    assert OF_ACCURACY == 0.25
    assert len(made.policies) > 1
    assert all(set(p.table().ravel()) == {0.0, 1.0} for p in made.policies)  # given its offset nothing is random


def test_a_zone_hides_home_and_shows_what_is_outside():
    u = utility("city")
    made = MECHANISMS["privacy-zones"].make(u, 0.5)
    [table] = made.policies[0].table()
    hidden = table[:, -1] == 1
    home, work = np.argsort(-law_of(u))[:2]
    assert hidden[home]
    assert hidden[work]
    assert not hidden.all()
    assert (table[~hidden].argmax(1) == np.flatnonzero(~hidden)).all()


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_what_is_held_reveals_the_entropy_of_a_longer_step(steps):
    """I = H(X_k | X_0) / k for every k-th truth: closed form."""
    chain = vs.MarkovChain([[0.8, 0.15, 0.05], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
    problem = vs.Problem(chain, 1 - np.eye(3), vs.Average(weight=1.0))
    _, bits, level = operating(problem, [held(np.eye(3), steps)], QUICK)
    exact = chain.stationary @ entropy(np.linalg.matrix_power(chain.transition, steps)) / steps
    assert bits.value == pytest.approx(exact, rel=1e-6)
    assert level == "computed exactly"


def test_a_mean_of_two_levels_reveals_the_entropy_of_their_sum():
    """Independent levels 0, 1, 2: H(X + X') / 2, where a release of its own exists for every mean."""
    chain = vs.MarkovChain(np.full((3, 3), 1 / 3))
    levels = np.arange(3.0)
    states = vs.StateSpace("bins", levels[:, None], ("a", "b", "c"), "kWh", [0.5, 1.5])
    shown = vs.StateSpace("bins", np.arange(0, 2.5, 0.5)[:, None], tuple("pqrst"), "kWh", [0.25, 0.75, 1.25, 1.75])
    u = replace(Utility.of(chain, states), points=shown)
    u = replace(u, distortion=np.abs(levels[:, None] - shown.coordinates.T))
    made = MECHANISMS["mean"].make(u, 2)
    _, bits, _ = operating(made.problem(chain), made.policies, QUICK)
    assert bits.value == pytest.approx(entropy([1 / 9, 2 / 9, 3 / 9, 2 / 9, 1 / 9]) / 2, rel=0.03)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("gird", "did you mean grid?"),
        ("noise", "is for values"),
        ("grid=-1km", "larger than zero"),
        ("grid=2kWh", "must be one of"),
        ("meshtastic=13.5", "whole number"),
        ("hold=1.5", "whole number"),
    ],
)
def test_a_mechanism_that_cannot_be_is_one_line(asked, line):
    judge = Judge(utility("city"), JudgeSpec(mechanism=[asked]))
    with pytest.raises(vs.InputError, match=line.replace("?", r"\?")):
        [judge.mechanism(*one) for one in judge.asked()]
