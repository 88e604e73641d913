"""The move kernel: its formula, and that held-out loss speaks of data that was not looked at."""

import numpy as np
import pytest

from veilstream.data.card import transition_counts
from veilstream.data.crossval import (
    FOLDS,
    MoveKernel,
    blocks_of,
    choose_moves,
    cross_validate,
    fold_of,
    held_out_losses,
    losses,
)
from veilstream.data.fitting import fit_model
from veilstream.data.readings import from_arrays
from veilstream.data.spec import FitSpec
from veilstream.data.states import StateSpace
from veilstream.data.synthetic import household
from veilstream.model.chain import MarkovChain


def street(n=30, steps=400, seed=0):
    """Cells 1 km apart in a row, and a walk that stays or moves to a neighbour."""
    states = StateSpace("grid", np.arange(n)[:, None] * [0.009, 0.0], tuple(map(str, range(n))), "km")
    rng = np.random.default_rng(seed)
    return states, np.clip(n // 2 + np.cumsum(rng.choice([-1, 0, 0, 0, 1], steps)), 0, n - 1)


def by_hand(distance, kind, C, length, weight):
    """The formula of the module, one entry at a time."""
    n = len(C)
    S = np.zeros((n, n))
    for x in range(n):
        alike = [z for z in range(n) if kind[z] == kind[x]]
        q = sum(C[z, z] for z in alike) / max(1, sum(C[z].sum() for z in alike))
        stay = (C[x, x] + 10 * q) / (C[x].sum() + 10)
        pull = [0.0 if z == x else np.exp(-distance[x, z] / length) * (C[:, z].sum() - C[z, z] + 0.3) for z in range(n)]
        for z in range(n):
            K = stay if z == x else (1 - stay) * pull[z] / sum(pull)
            S[x, z] = weight * (0.97 * K + 0.03 / n)
    return S


def test_the_kernel_is_its_formula():
    states, walk = street(8, 60)
    distance, kind = states.distances(), np.array([0, 0, 0, 1, 1, 1, 1, 1])
    found, _ = choose_moves([walk], states, 3)
    S = found([walk])
    expected = by_hand(distance, kind, transition_counts([walk], 8), found.length, found.weight)
    np.testing.assert_allclose(S, expected, rtol=1e-9)
    np.testing.assert_allclose(S.sum(1), found.weight)


def test_states_a_world_apart_still_have_a_law():
    """exp(-distance/length) is 0 in floating point; the nearest of the others is what counts."""
    near = np.exp([[-np.inf, 0.0, -1e5], [0.0, -np.inf, -1e5], [0.0, -50.0, -np.inf]])
    S = MoveKernel(near, np.zeros(3, np.int64), 1.0, 1.0)([])
    np.testing.assert_allclose(S.sum(1), 1)
    assert (S > 0).all()
    states = StateSpace("places", [[0, 0], [0, 0.001], [80, 170]], ("a", "b", "c"), "km")
    found, loss = choose_moves([np.array([0, 1] * 40 + [2] * 9)], states, 3)
    assert np.isfinite(loss)
    assert (found([np.array([0, 1])]) > 0).all()


def test_it_learns_a_street_from_little():
    states, walk = street()
    _, loss = choose_moves([walk], states, len(states))
    assert loss < cross_validate([walk], len(states), smoothing=1e-3).loss - 0.2
    truth = np.where(np.diff(walk) == 0, np.log2(5 / 3), np.log2(5)).mean()  # of the law that made the walk
    assert abs(loss - truth) < 0.1


def test_its_loss_is_that_of_cross_validation():
    states, walk = street()
    found, loss = choose_moves([walk], states, len(states))
    assert cross_validate([walk], len(states), smoothing=found).loss == pytest.approx(loss)


def test_no_fold_is_looked_at_before_it_is_predicted():
    """Whatever is put in place of a fold's data, the chain that predicts it is the same."""
    states, walk = street(12)
    near, _ = choose_moves([walk], states, len(states))
    blocks, seen = blocks_of([walk]), []
    cross_validate([walk], 12, smoothing=lambda train: (seen.append(train), near(train))[1])
    fold = fold_of(blocks, FOLDS, 0)
    assert len(seen) == FOLDS
    for k, train in enumerate(seen):
        expected = [b for b, f in zip(blocks, fold, strict=True) if f != k]
        assert all(np.array_equal(a, b) for a, b in zip(train, expected, strict=True))


@pytest.mark.parametrize("order", [1, 2])
def test_losses_with_a_matrix_of_pseudo_counts_are_those_of_the_fitted_chain(order):
    _, walk = street(6, 200)
    train, test = [walk[:120]], [walk[120:]]
    S = MoveKernel(np.ones((6, 6)) - np.eye(6), np.zeros(6, np.int64), 1.0, 3.0)(train)
    chain = MarkovChain.fit(train, 6, order, S)
    np.testing.assert_allclose(held_out_losses(train, test, 6, order, S), losses(chain, test)[0])


def test_values_take_it_from_little_data_and_leave_it_with_much():
    for steps, taken in ((120, True), (20_000, False)):
        source = household(steps)
        readings = from_arrays(source.t_s, source.points, "kWh")
        model = fit_model(readings, FitSpec(edges=tuple(source.states.edges), cycle="none"))
        assert (model.account.count("unseen moves") > 0) == taken
        assert (model.chain.transition > 0).all()


def test_it_can_be_asked_for_and_refused():
    source = household(2_000)
    for moves in (True, False):
        model = fit_model(
            from_arrays(source.t_s, source.points, "kWh"), FitSpec(smoothing="moves" if moves else 0.001, cycle="none")
        )
        assert any(e.step == "unseen moves" for e in model.account.entries) == moves
