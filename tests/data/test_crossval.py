"""Fitted chains against known truth: error rates, order, held-out loss, dead ends."""

import numpy as np
import pytest

from veilstream.data.card import describe, newest_symbol_chain, transition_counts
from veilstream.data.crossval import blocks_of, cross_validate, held_out_losses, losses, select_order
from veilstream.data.steps import link_dead_ends
from veilstream.data.synthetic import city, household, synthetic
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.histories import TrueStates


def order_two(n_states=3, seed=1):
    """A source whose next symbol depends on the last two."""
    rng = np.random.default_rng(seed)
    law = rng.dirichlet(np.full(n_states, 0.4), (n_states, n_states))

    def sample(steps, seed):
        rng = np.random.default_rng(seed)
        x = [0, 1]
        for u in rng.random(steps - 2):
            x.append(int(np.searchsorted(np.cumsum(law[x[-1], x[-2]]), u)))
        return np.minimum(np.array(x), n_states - 1)

    return sample


def test_transition_error_falls_as_one_over_root_n():
    chain = MarkovChain(np.random.default_rng(0).dirichlet(np.ones(6), 6))
    lengths = np.array([1_000, 4_000, 16_000, 40_000])
    errors = []
    for n in lengths:
        fits = [MarkovChain.fit(chain.sample(n // 40, streams=40, seed=s), 6) for s in range(8)]
        errors.append(np.sqrt(np.mean([(f.transition - chain.transition) ** 2 for f in fits])))
    slope = np.polyfit(np.log(lengths), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.08)
    rows = chain.stationary * lengths[-1]  # and the size is the binomial one
    expected = np.sqrt(np.mean(chain.transition * (1 - chain.transition) / rows[:, None]))
    assert errors[-1] == pytest.approx(expected, rel=0.2)


def test_smoothing_keeps_entries_positive_and_hardly_moves_the_entropy_rate():
    source = household(5_000)
    raw, smooth = (MarkovChain.fit([source.path], 6, smoothing=s) for s in (0.0, 1e-3))
    assert (smooth.transition > 0).all()
    assert abs(smooth.entropy_rate - raw.entropy_rate) < 1e-3


def test_household_truth_is_recovered():
    source = household(60_000, seed=2)
    fitted = MarkovChain.fit([source.states.encode(source.points)], 6)
    rows = np.bincount(source.path[:-1], minlength=6)
    error = np.abs(fitted.transition - source.chain.transition)
    assert (error < 5 * np.sqrt(0.25 / rows)[:, None]).all()
    assert fitted.entropy_rate == pytest.approx(source.chain.entropy_rate, abs=0.02)


@pytest.mark.parametrize("make", [city, household])
def test_synthetic_readings_encode_to_the_true_path(make):
    source = make(3_000)
    assert (source.states.encode(source.points) == source.path).all()
    assert (np.diff(source.t_s) > 0).all()
    assert (np.floor(source.t_s / source.period_s) == source.t_s[0] // source.period_s + np.arange(3_000)).all()


def test_unknown_synthetic_sources_are_refused():
    with pytest.raises(InputError, match="is one of city, household"):
        synthetic("village")


def test_order_selection_finds_order_two():
    sample = order_two()
    order, tried = select_order([sample(6_000, seed=3)], 3, max_order=3)
    assert order == 2
    assert tried[0].loss - tried[1].loss > 0.05
    chain = MarkovChain.fit([sample(6_000, seed=3)], 3, order=2)
    fresh = np.concatenate(losses(chain, [sample(20_000, seed=4)]))
    assert fresh.mean() == pytest.approx(tried[1].loss, abs=0.05)
    assert fresh.mean() == pytest.approx(chain.entropy_rate, abs=0.05)


def test_order_selection_keeps_order_one_where_that_is_the_truth():
    chain = MarkovChain(np.random.default_rng(5).dirichlet(np.ones(4), 4))
    assert select_order([chain.sample(4_000, seed=6)[0]], 4, max_order=3)[0] == 1


@pytest.mark.parametrize("order", [1, 2, 3])
def test_quick_held_out_losses_equal_those_of_the_chain(order):
    sample = order_two(4, seed=8)
    train = [sample(40, s) for s in range(6)]
    test = [sample(30, s) for s in range(10, 14)]
    chain = MarkovChain.fit(train, 4, order)
    quick = held_out_losses(train, test, 4, order, 1e-3)
    np.testing.assert_allclose(quick, np.concatenate(losses(chain, test)), atol=1e-9)


def test_held_out_loss_of_the_truth_is_the_entropy_rate():
    source = household(30_000, seed=4)
    cv = cross_validate([source.path], 6)
    assert cv.loss == pytest.approx(source.chain.entropy_rate, abs=3 * cv.loss_se + 0.01)
    assert cv.loss_se < 0.03


def test_walk_falls_back_to_the_longest_known_history():
    chain = MarkovChain.fit([np.array([0, 1, 0, 1, 2])], 3, order=2)
    z = TrueStates.of(chain).along([2, 2, 0, 1])
    assert [chain.histories[i] for i in z] == [(2,), (2,), (0,), (1, 0)]


def test_blocks_hold_every_transition_once_at_most():
    sequences = [np.arange(100), np.arange(3), np.arange(1)]
    blocks = blocks_of(sequences)
    assert sum(map(len, blocks)) == 103
    assert all(len(b) > 1 for b in blocks)
    assert len(blocks) >= 30


def test_card_of_a_small_example():
    sequences = [np.array([0, 0, 1, 0]), np.array([2, 0])]
    chain = MarkovChain.fit(sequences, 4)
    card = describe(chain, sequences)
    assert card.self_transition == pytest.approx(1 / 4)
    assert card.moves == 3
    assert card.never_left == (3,)
    assert card.never_entered == (2, 3)
    assert card.row_counts.tolist() == [2, 1, 1, 0]
    assert card.thin_rows == 4
    assert card.entropy_data == pytest.approx(0.5)  # H(1/2) on two of four transitions


def test_dead_ends_are_led_to_where_the_stream_is_seen_next():
    runs = [np.array([0, 1, 0, 2]), np.array([1, 0, 1]), np.array([3, 3])]
    links = link_dead_ends(runs, np.array([0, 0, 0]), 5)
    C = transition_counts([*runs, *links], 4)
    reach = np.linalg.matrix_power(np.eye(4) + C, 4) > 0
    assert reach.all()
    assert links[0].tolist() == [2, 1]
    whole = [np.array([0, 1, 0])]
    assert link_dead_ends(whole, np.array([0]), 2) == []


def test_links_stay_within_a_stream():
    runs = [np.array([0, 1]), np.array([2, 3])]
    links = link_dead_ends(runs, np.array([0, 1]), 4)
    assert sorted(link.tolist() for link in links) == [[1, 0], [3, 2]]


def test_a_lifted_chain_seen_through_its_newest_symbol():
    chain = MarkovChain(np.random.default_rng(0).dirichlet(np.ones(4), 4))
    law, transition = newest_symbol_chain(chain.lift(2))
    np.testing.assert_allclose(law, chain.stationary, atol=1e-9)
    np.testing.assert_allclose(transition, chain.transition, atol=1e-9)
