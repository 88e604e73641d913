"""Standard measures against enumeration on small chains; what is learned from two files covers the exact figures."""

from itertools import product

import numpy as np
import pytest
from scipy.spatial.distance import directed_hausdorff
from scipy.stats import binom

import veilstream as vs
from oracles import random_chain, sequence_information
from veilstream.audit.attacks import ATTACKS
from veilstream.audit.figures import Tally, at_place, auc
from veilstream.audit.mechanisms.hold import held
from veilstream.audit.pairs import Adversary, Aligned
from veilstream.audit.shapes import hausdorff, recall, visits
from veilstream.audit.traces import release, sampled
from veilstream.control.controller import Controller

STEPS = 5
LEVELS = np.array([0.0, 1.0, 3.0])
D = np.abs(LEVELS[:, None] - LEVELS)
NAMED = {"estimation_error": "filter", "trace_error": "smoother"}
FIGURES = ("vulnerability", "top3", "estimation_error", "trace_error")


def small(seed=3):
    rng = np.random.default_rng(seed)
    return vs.MarkovChain(random_chain(rng, 3, sticky=0.5))


def noisy(keep=0.7):
    return Controller.of_table(
        keep * np.eye(3) + (1 - keep) * np.array([[0.5, 0.5, 0], [0.3, 0.4, 0.3], [0, 0.6, 0.4]])
    )


def exact(chain, policy, n=STEPS):
    """Every figure by its definition, from all z^n and y^n."""
    bits, joint = sequence_information(chain, policy, n)
    Z, Y = policy.n_states, policy.n_outputs
    law = joint.reshape((Z,) * n + (Y,) * n)
    found = dict.fromkeys((*FIGURES, "bits"), 0.0)
    found["bits"] = bits / n
    for t in range(n):
        others = tuple(i for i in range(n) if i != t)
        whole = law.sum(others).reshape(Z, -1)  # of x_t and y^n
        now = law.sum((*others, *range(n + t + 1, 2 * n))).reshape(Z, -1)  # of x_t and y^t
        found["vulnerability"] += now.max(0).sum() / n
        found["top3"] += np.sort(now, 0)[-3:].sum() / n
        found["estimation_error"] += (D.T @ now).min(0).sum() / n
        found["trace_error"] += (D.T @ whole).min(0).sum() / n
    return found


@pytest.mark.parametrize("policy", [noisy(), held(noisy().table()[0], 2)], ids=["no memory", "held"])
def test_the_measures_are_those_of_enumeration(policy):
    chain = small()
    data = release(policy, list(chain.sample(STEPS, 6000, seed=1)), seed=2)
    if policy.turn is not None:  # copies start at any place of its round; here all at the first
        z = chain.sample(STEPS, 6000, seed=1)
        data = release(policy, list(z), seed=2)
        keep = data.first % policy.places == 0
        data = data.only(data.origin[keep])
        data.origin[:] = np.arange(len(data.origin))
    tally = Tally(chain.stationary, D)
    tally.add(chain, policy, data, D)
    true = exact(chain, policy)
    for name in FIGURES:
        seen = tally.interval(NAMED.get(name, name))
        reach = 2 * (seen.high - seen.low) / 2 + 1e-12  # four standard errors
        assert abs(seen.value - true[name]) <= reach, name


@pytest.mark.parametrize("policy", [noisy(), held(np.eye(3), 2)], ids=["no memory", "held"])
@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_has_a_smaller_error_than_the_smoother(name, policy):
    """Under the chain: paired on the same traces, beyond four standard errors."""
    chain = small()
    data = sampled(chain, policy, 40, 400, seed=5)
    tally = Tally(chain.stationary, D)
    tally.add(chain, policy, data, D)
    [(own, count)], [(best, _)] = tally.sums[name], tally.sums["smoother"]
    worse = (own - best) / count
    assert worse.mean() >= -4 * worse.std() / np.sqrt(len(worse))
    assert {"face value", "single release", "filter", "smoother", "Viterbi", "reconstruction"} == set(ATTACKS)


def test_a_single_release_is_guessed_by_bayes_rule():
    """In the long run the error of the best guess from (x, y) alone: sum_y min_g sum_x pi(x) a(y|x) d(x, g)."""
    chain, policy = small(), noisy()
    data = sampled(chain, policy, 60, 800, seed=6)
    tally = Tally(chain.stationary, D)
    tally.add(chain, policy, data, D)
    joint = chain.stationary[:, None] * policy.table()[0]
    seen = tally.interval("single release")
    assert abs(seen.value - (D.T @ joint).min(0).sum()) <= seen.high - seen.low


def test_multiplicative_leakage_is_the_ratio_of_two_vulnerabilities():
    chain, policy = small(), noisy()
    data = sampled(chain, policy, 30, 50)
    tally = Tally(chain.stationary, D)
    tally.add(chain, policy, data, D)
    found = tally.figures({"home": np.array([0])})
    assert found.prior == pytest.approx(chain.stationary.max())
    assert found.multiplicative == pytest.approx(found.vulnerability.value / chain.stationary.max())
    assert found.trace_error.value <= found.estimation_error.value <= found.blind_error
    assert 0.5 < found.places[0].auc <= 1


def test_auc_is_the_share_of_pairs_in_the_right_order():
    rng = np.random.default_rng(0)
    score, there = rng.integers(0, 6, 60) / 5, rng.random(60) < 0.3
    pairs = [(a > b) + 0.5 * (a == b) for a, b in product(score[there], score[~there])]
    assert auc(score, there) == pytest.approx(np.mean(pairs))
    assert np.isnan(auc(score, np.zeros(60, bool)))


def test_odds_are_the_median_while_there():
    found = at_place(np.array([0.8, 0.75, 0.9, 0.1, 0.2, 0.0]), np.array([1, 1, 1, 0, 0, 0], bool), "clinic")
    assert found.odds == pytest.approx(4)
    assert found.before == pytest.approx(1)


# --- two files ---------------------------------------------------------------------------------------------


def files(policy, traces=150, seed=0, streams=1):
    """What two files of such traces hold, after they were read."""
    chain = small()
    data = release(policy, list(chain.sample(STEPS, traces, seed=seed)), seed=seed + 1)
    states = vs.StateSpace("bins", LEVELS[:, None], ("a", "b", "c"), "kWh", [0.5, 2.0])
    x, y = data.z.ravel(), data.y.ravel()
    where = list(np.arange(len(x)).reshape(traces, STEPS))
    return Aligned(states, LEVELS[:, None], x, y, D[x, y], where, np.arange(traces) % streams)


def covered(seeds):
    """How often the interval of each figure holds the exact one."""
    true, policy = exact(small(), noisy()), noisy()
    true["error"] = small().stationary @ (policy.table()[0] * D).sum(1)
    hits = dict.fromkeys(true, 0)
    for seed in seeds:
        found = Adversary(files(policy, seed=2 * seed)).learned(("a", "b", "c"))
        intervals = {name: getattr(found.figures, name) for name in FIGURES}
        for name, v in {**intervals, "bits": found.bits, "error": found.error}.items():
            hits[name] += v.low - 1e-12 <= true[name] <= v.high + 1e-12
    return hits


@pytest.mark.slow
def test_what_is_learned_from_two_files_covers_the_exact_figures():
    """95 of 100 are meant; of 40 fewer than 34 happen once in 250 where that is so."""
    hits = covered(range(40))
    assert binom.cdf(33, 40, 0.95) < 1 / 250
    assert min(hits.values()) >= 34, hits


def test_a_reconstruction_is_exact_where_releases_say_all_and_blind_where_they_say_nothing():
    chain = small()
    for a, error in ((np.eye(3), 0.0), (np.full((3, 3), 1 / 3), float((chain.stationary @ D).min()))):
        data = sampled(chain, Controller.of_table(a), 60, 100, seed=9)
        tally = Tally(chain.stationary, D)
        tally.add(chain, Controller.of_table(a), data, D)
        seen = tally.interval("reconstruction")
        assert abs(seen.value - error) <= 2 * (seen.high - seen.low) + 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_shapes_of_a_trace_are_those_of_their_definitions(seed):
    rng = np.random.default_rng(seed)
    points = rng.random((6, 2))
    d = np.hypot(*np.moveaxis(points[:, None] - points, -1, 0))
    x, g = rng.integers(0, 6, (2, 4, 7))
    mask = np.arange(7) < np.array([7, 5, 3, 1])[:, None]
    true, guessed = visits(x, mask, 6), visits(g, mask, 6)
    for row in range(4):
        a, b = points[x[row, mask[row]]], points[g[row, mask[row]]]
        both = max(directed_hausdorff(a, b)[0], directed_hausdorff(b, a)[0])
        assert hausdorff(d, true, guessed)[row] == pytest.approx(both)
        assert true[row].tolist() == np.bincount(x[row, mask[row]], minlength=6).tolist()
    assert recall(d, true, true, 0.0).tolist() == [1.0] * 4
    home = np.array([[5, 3, 1, 0, 0, 0]])
    assert recall(d, home, np.array([[9, 0, 2, 0, 0, 0]]), 0.0).tolist() == [0.5]  # home, and a place that is not work
    assert recall(d, home, np.array([[0, 0, 0, 4, 4, 0]]), 9.0).tolist() == [1.0]  # anything is near
