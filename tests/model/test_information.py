import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import recomputed
from veilstream.model.information import binary_entropy, divergence, entropy, mutual_information, rows_times, xlog2

masses = st.lists(st.floats(0, 1), min_size=2, max_size=6).filter(lambda v: sum(v) > 0.1)
laws = masses.map(lambda v: np.array(v) / sum(v))


def test_zero_log_zero_is_zero_and_nothing_warns():
    with np.errstate(all="raise"):
        assert xlog2([0, 0, 2], [0, 5, 8]) == recomputed([0, 0, 6])


def test_closed_forms():
    assert entropy([0.5, 0.25, 0.25]) == recomputed(1.5)
    assert binary_entropy(0.5) == recomputed(1)
    assert divergence([1, 0], [0.5, 0.5]) == recomputed(1)
    assert divergence([0.5, 0.5], [1, 0]) == np.inf
    assert mutual_information(np.eye(4) / 4) == pytest.approx(2)


@given(laws, laws)
def test_inequalities(p, q):
    assert -1e-12 <= entropy(p) <= np.log2(len(p)) + 1e-12
    m = np.outer(p, q)
    assert abs(mutual_information(m)) < 1e-9
    assert divergence(p, p) == pytest.approx(0, abs=1e-12)


@pytest.mark.slow
def test_against_dit():
    dit = pytest.importorskip("dit")
    rng = np.random.default_rng(1)
    m = rng.dirichlet(np.ones(6)).reshape(2, 3)
    d = dit.Distribution([(str(i), str(j)) for i in range(2) for j in range(3)], m.ravel().tolist())
    assert mutual_information(m) == pytest.approx(dit.shannon.mutual_information(d, [0], [1]), abs=1e-9)


@pytest.mark.parametrize("shape", [(16, 16), (16, 3), (64, 64), (100, 70)])
@pytest.mark.parametrize("n", [0, 1, 1024, 1025, 5000])
def test_a_product_in_parts_is_the_product(shape, n):
    rng = np.random.default_rng(0)
    b, P = rng.random((n, shape[0])), rng.random(shape)
    plain = np.einsum("nz,zy->ny", b, P)
    np.testing.assert_allclose(rows_times(b, P), plain, rtol=1e-12)
    out = np.empty_like(plain)
    assert rows_times(b, P, out=out) is out and np.allclose(out, plain, rtol=1e-12)
    if n:
        np.testing.assert_allclose(rows_times(b[0], P), plain[0], rtol=1e-12)
        np.testing.assert_allclose(rows_times(b[None], P)[0], plain, rtol=1e-12)
