"""Mechanisms and measures against implementations that others have published.

qif is the library of K. Chatzikokolakis, an author of planar Laplace; TPL (github.com/yangcao888/TPL) and Privkit
(BSD-3-Clause) are not packages that install lightly: their formulas are written down here anew.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chisquare, gamma, kstest

import veilstream as vs
from veilstream.audit.figures import Tally
from veilstream.audit.mechanisms.android_coarse import moved
from veilstream.audit.mechanisms.planar_laplace import channel
from veilstream.audit.traces import sampled
from veilstream.control.epsilon import Carried, step_epsilon
from veilstream.data.states import StateSpace
from veilstream.data.synthetic import city_chain
from veilstream.data.utility import Utility
from veilstream.model.lattice import KM_PER_DEGREE
from veilstream.solvers.baselines import planar_laplace, randomised_response

qif = pytest.importorskip("qif", reason="needs qif: pip install 'veilstream[dev]'")
RARE = 1e-6  # qif draws from the operating system: no seed, so a false alarm once in a million


@pytest.fixture(scope="module")
def city():
    return Utility.of(*city_chain())


@pytest.mark.parametrize("mean", [0.5, 2.0])
def test_planar_laplace_is_that_of_qif_by_chi_square(city, mean):
    """20,000 noisy points of each state, snapped as ours are."""
    n, a, places = 20_000, channel(city, mean), city.cost.states.coordinates
    sample = qif.mechanism.geo_ind.planar_laplace_sample
    noise = np.array([(p.x, p.y) for p in (sample(2 / mean) for _ in range(n))])
    assert kstest(np.hypot(*noise.T), gamma(2, scale=mean / 2).cdf).pvalue > RARE
    shown = city.points or city.cost.states
    for x, place in enumerate(places):
        seen, likely = np.bincount(shown.encode(moved(place, noise)), minlength=a.shape[1]), a[x] * n
        often = likely > 20
        found, expected = (np.append(v[often], v[~often].sum()) for v in (seen, likely))
        kept = expected > 0
        assert chisquare(found[kept], expected[kept] * found[kept].sum() / expected[kept].sum()).pvalue > RARE, x


def test_planar_laplace_on_a_grid_is_qifs_channel():
    """Theirs is integrated over each cell: 3 x 3 cells of 1 km at the equator, epsilon 1 per km."""
    rows, columns = np.divmod(np.arange(9), 3)
    cells = np.stack([rows, columns], 1) / KM_PER_DEGREE
    states = StateSpace("grid", cells, tuple("abcdefghi"), "km")
    u = replace(Utility.of(vs.MarkovChain(np.full((9, 9), 1 / 9)), states), points=None)
    theirs = np.asarray(qif.mechanism.geo_ind.planar_laplace_grid(3, 3, 1.0, 1.0))
    assert np.abs(channel(u, 2.0) - theirs).max() < 0.005


def test_randomised_response_and_the_exponential_mechanism_are_qifs_tables():
    problem = vs.builtin_problem("grid2x3-toy", vs.Average(weight=1.0))
    a, d = randomised_response(problem, 0.4), problem.distortion
    epsilon = step_epsilon(vs.Controller.of_table(a))
    assert np.allclose(a, qif.mechanism.d_privacy.randomized_response(len(a), epsilon), atol=1e-12)
    twice = 2 * 0.7 * np.log(2) * d  # theirs takes half of what it is given
    assert np.allclose(planar_laplace(problem, 0.7), qif.mechanism.d_privacy.exponential(6, lambda x, y: twice[x, y]))


def test_measures_of_one_release_are_qifs():
    """A chain without memory, where filter and smoother see one release each."""
    pi = np.array([0.5, 0.3, 0.2])
    chain = vs.MarkovChain(np.tile(pi, (3, 1)))
    a = np.array([[0.7, 0.2, 0.1], [0.3, 0.5, 0.2], [0.1, 0.3, 0.6]])
    policy, d = vs.Controller.of_table(a), np.abs(np.subtract.outer([0.0, 1.0, 3.0], [0.0, 1.0, 3.0]))
    tally = Tally(chain.stationary, d)
    tally.add(chain, policy, sampled(chain, policy, 40, 400, seed=7), d)
    theirs = {
        "vulnerability": qif.measure.bayes_vuln.posterior(pi, a),
        "filter": qif.measure.l_risk.posterior(lambda w, x: d[w, x], pi, a),
    }
    for name, exact in theirs.items():
        seen = tally.interval(name)
        assert abs(seen.value - exact) <= seen.high - seen.low, name
    assert step_epsilon(policy) == pytest.approx(
        qif.measure.d_privacy.smallest_epsilon(a, lambda x, y: float(x != y)), rel=1e-6
    )


def test_a_channel_of_qif_is_a_policy_that_can_be_judged():
    channel = np.asarray(qif.mechanism.d_privacy.randomized_response(2, 1.0))
    [row] = vs.judge(
        "builtin:binary", mechanism=[vs.Controller.of_table(channel)], certify_seconds=0.2, streams=40, steps=90
    ).rows
    assert row.error.value == pytest.approx(channel[0, 1])
    assert row.epsilon.step == pytest.approx(1.0)
    assert row.floor <= row.ours.leakage.value <= row.leakage.high


def test_the_estimation_error_is_privkits_adversary_error_on_the_same_traces(city):
    """Its AdversaryError: metres along a great circle of a ball of 6371.009 km, from true to guessed points."""
    chain, policy = city.chain, vs.Controller.of_table(channel(city, 2.0)[city.chain.symbols])
    data, places = sampled(chain, policy, 40, 30, seed=8), city.cost.states.coordinates
    tally = Tally(chain.stationary, city.cost.states.distances())
    beliefs = tally.add(chain, policy, data, city.distortion)
    guess = (beliefs.filter @ city.cost.states.distances()).argmin(-1)
    (lat, lon), (lat2, lon2) = (np.moveaxis(np.radians(places[at]), -1, 0) for at in (chain.symbols[data.z], guess))
    half = np.sin((lat2 - lat) / 2) ** 2 + np.cos(lat) * np.cos(lat2) * np.sin((lon2 - lon) / 2) ** 2
    metres = 2 * np.arcsin(np.sqrt(half)) * 6371009
    assert metres.mean() / 1000 == pytest.approx(tally.interval("filter").value, rel=1e-6)


def limit(q, d, epsilon):
    """The supremum of a leakage that grows by q and d: theorem 10 of TPL, as in its tools/theorem10.m."""
    e = np.exp(epsilon)
    if q == d:
        return epsilon
    if d > 0:
        return np.log((np.sqrt(4 * d * e * (1 - q) + (d + q * e - 1) ** 2) + d + q * e - 1) / (2 * d))
    return np.log((1 - q) * e / (1 - q * e)) if q < 1 and epsilon <= np.log(1 / q) else np.inf


@pytest.mark.parametrize(
    ("q", "d", "epsilon"),
    [(0.8, 0.0, 0.1), (0.8, 0.0, 0.314), (0.8, 0.1, 1.0), (0.6, 0.6, 1.0), (1.0, 0.0, 1.0), (0.9, 0.05, 0.1)],
)
def test_what_leakages_under_a_chain_come_to_is_the_published_supremum(q, d, epsilon):
    """Two states: one pair of rows, q against d, and d against q backed by their other entries."""
    P = np.array([[q, 1 - q], [d, 1 - d]])
    known = max(limit(q, d, epsilon), limit(1 - d, 1 - q, epsilon))
    assert Carried(P).settled(epsilon) == pytest.approx(known, rel=1e-6)
