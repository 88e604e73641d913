"""Output models fitted to a law and a kernel: as good as many plain steps, and never worse than where they began."""

import numpy as np
import pytest

from veilstream.solvers.sweep import fitted, floored


def mixture(seed, rows=4, n_y=9, n_z=30, blurred=0.7):
    """better(r) for random rows mu(z|s) and a kernel whose columns overlap; and the likelihood of each row."""
    rng = np.random.default_rng(seed)
    mu = rng.dirichlet(np.full(n_z, 0.5), rows)
    K = np.exp(-blurred * np.abs(np.subtract.outer(np.linspace(0, 9, n_y), np.linspace(0, 9, n_z))))

    def likelihood(r):
        return (mu * np.log2(r @ K)).sum(-1, keepdims=True)

    def better(r):
        c = (mu / (r @ K)) @ K.T
        return floored(r * c), likelihood(r), c

    return better, likelihood, np.full((rows, n_y), 1 / n_y)


@pytest.mark.parametrize("seed", range(5))
def test_a_few_rounds_are_worth_many_plain_steps(seed):
    better, likelihood, r = mixture(seed)
    best = plain = r
    for k in range(20_000):
        best = better(best)[0]
        plain = best if k == 60 else plain
    few, first = fitted(better, r, 20)  # 41 steps
    assert first == pytest.approx(better(r)[2])
    assert few.sum(-1) == pytest.approx(1) and (few > 0).all()
    left, before = (likelihood(best) - likelihood(few)).sum(), (likelihood(best) - likelihood(plain)).sum()
    assert left < 0.5 * before
    assert (likelihood(fitted(better, r, 300)[0]) > likelihood(best) - 1e-6).all()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
def test_no_row_becomes_worse(seed, rounds):
    better, likelihood, r = mixture(seed)
    r = floored(np.random.default_rng(seed).dirichlet(np.full(r.shape[1], 0.2), len(r)))
    one = better(r)[0]
    assert (likelihood(fitted(better, r, rounds)[0]) >= likelihood(one) - 1e-12).all()


def test_without_rounds_it_is_one_step():
    better, _, r = mixture(0)
    assert fitted(better, r, 0)[0] == pytest.approx(better(r)[0])
