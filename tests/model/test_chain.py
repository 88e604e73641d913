import numpy as np
import pytest

import veilstream as vs
from oracles import random_chain
from veilstream.model.chain import draw
from veilstream.model.distortion import euclidean, grid_points, hamming, haversine, manhattan


def test_stationary_law_is_the_long_run_of_the_chain():
    P = random_chain(np.random.default_rng(0), 12, sticky=0.9, density=0.3)
    chain = vs.MarkovChain(P)
    assert chain.stationary @ P == pytest.approx(chain.stationary)
    assert np.linalg.matrix_power(P, 2**16)[0] == pytest.approx(chain.stationary, abs=1e-9)


def test_reducible_chain_settles_by_its_initial_law():
    P = np.array([[0.5, 0.25, 0.25, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]])
    chain = vs.MarkovChain(P, initial=[1, 0, 0, 0])
    assert [c.tolist() for c in chain.closed_classes] == [[1], [2, 3]] or len(chain.closed_classes) == 2
    assert chain.stationary == pytest.approx([0, 0.5, 0.25, 0.25])
    assert chain.period == 2
    assert len(chain.warnings) == 3  # reducible, transient, periodic


def test_entropy_rate_of_the_binary_chain():
    assert vs.builtin("binary").entropy_rate == pytest.approx(0.4689955935892812)


def test_sampling_has_the_law_of_the_chain():
    chain = vs.builtin("grid2x3-toy")
    z = chain.sample(400, streams=300, seed=3)
    counts = np.zeros((6, 6))
    np.add.at(counts, (z[:, :-1].ravel(), z[:, 1:].ravel()), 1)
    expected = counts.sum(1, keepdims=True) * chain.transition
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert chi2 < 30 + 5 * np.sqrt(2 * 30)  # 30 degrees of freedom


def test_draw_never_takes_a_symbol_of_law_zero():
    law = np.array([[0.0, 0.3, 0.7, 0.0]])
    assert draw(law, np.array([0.0])).tolist() == [1]
    assert draw(law, np.array([np.nextafter(1, 0)])).tolist() == [2]
    tiny = np.array([[1 / 3, 1 / 3, 1 / 3, 0.0]])
    assert draw(tiny, np.array([np.nextafter(1, 0)])).tolist() == [2]


def test_lift_is_the_same_process():
    chain = vs.MarkovChain([[0.5, 0.5, 0], [0.2, 0.3, 0.5], [0, 1, 0]])
    pair = chain.lift(2)
    assert len(pair) == 6  # only the pairs that can occur
    assert pair.order == 2
    assert pair.entropy_rate == pytest.approx(chain.entropy_rate)
    law = np.zeros(3)
    np.add.at(law, pair.symbols, pair.stationary)
    assert law == pytest.approx(chain.stationary)


@pytest.mark.slow
def test_fit_recovers_the_chain_as_one_over_root_n():
    chain = vs.builtin("grid2x3-toy")
    errors = []
    for n in (2_000, 32_000):
        fits = [vs.MarkovChain.fit(chain.sample(n, seed=s)).transition for s in range(4)]
        errors.append(np.abs(np.array(fits) - chain.transition).mean())
    assert 2.5 < errors[0] / errors[1] < 6.5  # sixteen times the data, a quarter of the error


def test_fit_of_order_two_sees_what_order_one_cannot():
    rng = np.random.default_rng(0)
    x = [0, 1]
    for _ in range(20_000):
        x.append(int(x[-2] ^ (rng.random() < 0.1)))  # depends on the last but one
    first, second = vs.MarkovChain.fit([x]), vs.MarkovChain.fit([x], order=2)
    assert first.entropy_rate > 0.95
    assert second.entropy_rate == pytest.approx(0.469, abs=0.02)
    assert (second.transition.sum(1) == pytest.approx(1)) and second.order == 2


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: vs.MarkovChain([[0.5, 0.47], [0.5, 0.5]]), "row 0 sums to 0.97"),
        (lambda: vs.MarkovChain([[1.5, -0.5], [0.5, 0.5]]), "negative"),
        (lambda: vs.MarkovChain([[np.nan, 1], [0.5, 0.5]]), "finite"),
        (lambda: vs.MarkovChain([[1.0, 0.0]]), "square"),
        (lambda: vs.MarkovChain([[0.5, 0.5], [1.0]]), "equal length"),
        (lambda: vs.MarkovChain([]), "empty"),
        (lambda: vs.MarkovChain(np.eye(2), initial=[1, 0, 0]), "one entry per state"),
        (lambda: vs.MarkovChain.fit([]), "no data"),
        (lambda: vs.MarkovChain.fit([[0, 5]], n_states=3), "0..2"),
        (lambda: vs.MarkovChain.fit([[0, 1]], smoothing=-1), "smoothing"),
        (lambda: vs.MarkovChain.fit([[0, 1]], order=0), "order"),
        (lambda: vs.builtin("grid4x4-q3"), "did you mean"),
    ],
)
def test_bad_input_is_one_clear_line(make, says):
    with pytest.raises(vs.InputError, match=says) as error:
        make()
    assert "\n" not in str(error.value)


def test_distances():
    assert manhattan(grid_points(2, 3))[0].tolist() == [0, 1, 2, 1, 2, 3]
    assert euclidean([[0, 0]], [[3, 4]]).item() == 5
    assert hamming(2).tolist() == [[0, 1], [1, 0]]
    assert haversine([[48.8566, 2.3522]], [[51.5074, -0.1278]]).item() == pytest.approx(343.6, abs=0.5)  # Paris, London
    assert manhattan([1.0, 4.0]).tolist() == [[0, 3], [3, 0]]
