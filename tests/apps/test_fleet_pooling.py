"""Pooling: the formula by a second way, and what it is worth to someone with 50 steps."""

import numpy as np
import pytest

from benchmarks.pooling import losses as losses_of
from fleetkit import perturbed
from real_data import METER, needs_meter
from veilstream.apps.fleet import pooling
from veilstream.apps.fleet.pooling import LIKENESS, PIECES, STRENGTHS, Pool
from veilstream.data.card import transition_counts
from veilstream.data.crossval import losses
from veilstream.model.chain import SMOOTHING, MarkovChain
from veilstream.model.information import normalised


def people(n_people, steps, seed, strength=30):
    rng = np.random.default_rng(seed)
    chains = [perturbed(rng, strength) for _ in range(n_people)]
    return chains, [[c.sample(steps, seed=rng)[0]] for c in chains]


def test_smoothing_by_a_matrix_is_the_posterior_mean():
    runs = [np.array([0, 1, 1, 2, 0, 1])]
    s = np.arange(1, 10).reshape(3, 3) / 4
    C = transition_counts(runs, 3)
    assert np.allclose(MarkovChain.fit(runs, 3, smoothing=s).transition, (C + s) / (C + s).sum(1, keepdims=True))
    lifted = MarkovChain.fit(runs, 3, order=2, smoothing=s)
    z = lifted.histories.index((1, 0))  # 0 then 1: followed by 1 once, and once by nothing
    follow = np.bincount(lifted.symbols, lifted.transition[z], minlength=3)
    assert np.allclose(follow, (np.array([0, 1, 0]) + s[1]) / (1 + s[1].sum()))
    with pytest.raises(ValueError, match="3 x 3"):
        MarkovChain.fit(runs, 3, smoothing=np.ones((2, 2)))


def test_the_choice_is_the_best_of_all_by_plain_loops():
    _, runs = people(4, 300, seed=1)
    runs[2] = [runs[2][0][:41]]  # she has 40 transitions: the others are cut to 32
    pool, n, who, size = Pool(runs, 6), 6, 2, 32
    found = np.zeros((len(LIKENESS), len(STRENGTHS)))
    for v in (0, 1, 3):
        x = runs[v][0]
        others = [runs[w][0] for w in range(4) if w != v]
        for i in range(PIECES):
            start = int((299 - size) * (i + 0.5) / PIECES)
            mine, test = x[start : start + size + 1], [x[: start + 1], x[start + size :]]
            for a, t in enumerate(LIKENESS):
                fit = np.array([np.concatenate(losses(MarkovChain.fit([o], n), [mine])).sum() for o in others])
                w = 2.0 ** (-t * (fit - fit.min()))
                while w.sum() ** 2 / (w**2).sum() < 0.999 * 3:  # all three of the others must count
                    t /= 2
                    w = 2.0 ** (-t * (fit - fit.min()))
                C = sum(wi * 3 / w.sum() * transition_counts([o], n) for wi, o in zip(w, others, strict=True))
                Q = (C + SMOOTHING) / (C + SMOOTHING).sum(1, keepdims=True)
                for b, k in enumerate(STRENGTHS):
                    chain = MarkovChain.fit([mine], n, smoothing=SMOOTHING + k * Q)
                    found[a, b] += np.concatenate(losses(chain, test)).mean() / PIECES / 3
    judges, table = pool._table(size)
    assert judges.tolist() == [0, 1, 3]
    assert np.allclose(table.mean(0), found, rtol=1e-9)
    prior = pool.prior(who)
    a, b = np.unravel_index(found.argmin(), found.shape)
    assert (prior.likeness, prior.strength) == (LIKENESS[a], STRENGTHS[b])
    assert prior.held_out["pooled"] == pytest.approx(found.min()) and prior.held_out["own"] == pytest.approx(
        found[0, 0]
    )
    assert np.allclose(prior.pseudo.sum(1), prior.strength)


def true_loss(chain, P):
    """Expected bits per step of a model P on data from the chain: exact, no held-out sample needed."""
    return float(-(chain.stationary[:, None] * chain.transition * np.log2(P)).sum())


def fifty_steps(chains, runs, who):
    cut = [r if v != who else [r[0][:50]] for v, r in enumerate(runs)]
    pool = Pool(cut, 6)
    own = pool.counts[who] + SMOOTHING
    population = pool.population(pool.counts[who], np.delete(np.arange(len(runs)), who), 0.0)
    pooled = normalised(own + pool.prior(who).pseudo)
    return [true_loss(chains[who], P) for P in (normalised(own), population, pooled)]


@pytest.mark.parametrize(("strength", "better"), [(10, 10), (100, 6)], ids=["unlike", "alike"])
def test_with_fifty_steps_pooled_beats_own_and_population(strength, better):
    """Twelve invented households around one chain, of which each in turn has 50 steps.

    Where all are alike the population is nearly the truth and 50 steps add little: better on average, not for each.
    """
    chains, runs = people(12, 2000, seed=3, strength=strength)
    own, population, pooled = np.array([fifty_steps(chains, runs, who) for who in range(12)]).T
    assert pooled.mean() < population.mean() < own.mean()
    assert (pooled < own).all() and (pooled < population).sum() >= better
    assert (pooled - population).max() < 0.05


def test_likeness_finds_the_two_kinds_of_people():
    """Two clusters: the population lies between them and helps nobody; those alike do."""
    rng = np.random.default_rng(4)
    kinds = [perturbed(rng, 3), perturbed(rng, 3)]
    chains = [kinds[i % 2] for i in range(10)]
    runs = [[c.sample(2000, seed=rng)[0]] for c in chains]
    cut = [[runs[0][0][:50]], *runs[1:]]
    pool = Pool(cut, 6)
    prior = pool.prior(0)
    assert prior.likeness > 0
    w = pool.weights(pool.counts[0], np.arange(1, 10), prior.likeness)
    assert w[1::2].sum() > 0.95  # persons 2, 4, 6, 8 are of her kind
    own, population, pooled = fifty_steps(chains, runs, 0)
    assert pooled < population and pooled < own


@pytest.mark.slow
@needs_meter
def test_with_fifty_steps_of_a_real_meter():
    """Each London household cut to 50 of its steps, the rest held out."""
    from veilstream.data.fitting import fit_model
    from veilstream.data.sources import read
    from veilstream.data.spec import FitSpec

    model = fit_model(read([str(METER)], unit="kWh"), FitSpec(cycle="none"))
    n = len(model.states)
    runs = [[s for s, u in zip(model.runs.sequences, model.runs.streams, strict=True) if u == v] for v in range(20)]
    found = [losses_of(runs, n, who, steps=50, place=1 / 3) for who in range(20)]
    own, population, pooled = np.array(found).T
    assert pooled.mean() < population.mean() - 0.1 and pooled.mean() < own.mean() - 1
    assert ((pooled < own) & (pooled < population)).sum() >= 16


def test_the_edges_of_a_pool():
    _, runs = people(3, 100, seed=5)
    nothing = Pool([[runs[0][0][:1]], runs[1], runs[2]], 6).prior(0)
    assert nothing.pseudo.min() > 0 and np.allclose(nothing.pseudo.sum(1), nothing.strength)
    two = Pool([runs[0], [runs[1][0][:3]]], 6)
    assert np.isfinite(two.prior(0).pseudo).all() and np.isfinite(two.prior(1).pseudo).all()
    empty = Pool([[np.array([1])], [np.array([2])]], 6).prior(0)  # nobody has a transition
    assert np.isfinite(empty.pseudo).all()
    assert pooling._size(0) == 1 and pooling._size(49) == 64 and pooling._size(17_000) == 16_384
