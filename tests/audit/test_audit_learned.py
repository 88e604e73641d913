"""The learned adversary, and chains learned from the same traces."""

import numpy as np
import pytest

import veilstream as vs
from veilstream.audit.bayes import infer
from veilstream.audit.learned import (
    against_best,
    chain_adversary,
    examples,
    gap_between,
    gap_to,
    least_cross_entropy,
    split,
    window_law,
)
from veilstream.audit.learned import lstm as learn
from veilstream.audit.measures import NATS, per_trace, surprise
from veilstream.audit.traces import release, sampled
from veilstream.control.controller import Controller

jax = pytest.importorskip("jax")
network = pytest.importorskip("veilstream.audit.lstm")
pytestmark = pytest.mark.slow
SMALL = {"units": 24, "dense": 24, "dropout": 0.1, "learning_rate": 5e-3, "batch": 64, "max_rounds": 40, "patience": 6}


@pytest.fixture(scope="module")
def sticky():
    """Three places that are hardly ever left, released with much noise: here looking back pays."""
    P = np.full((3, 3), 0.03) + 0.91 * np.eye(3)
    noise = 0.55 * np.eye(3) + 0.15
    return vs.MarkovChain(P), Controller.of_table(noise)


@pytest.mark.parametrize("lookback", [1, 4])
def test_on_data_from_the_chain_it_comes_within_3_percent_of_the_best_and_never_beats_it(sticky, lookback):
    chain, policy = sticky
    data = sampled(chain, policy, 150, 300, seed=1)
    got = learn(data, data.z, data.y, 3, 3, lookback, 50, net=network.Lstm(**SMALL))
    least = least_cross_entropy(window_law(chain, policy, lookback))
    assert got.cross_entropy.value < 1.03 * least
    assert got.cross_entropy.high > least
    paired = against_best(got, window_law(chain, policy, lookback), data, data.z, 50, False)
    assert paired.excess.high >= 0
    assert paired.excess.value < 0.03 * least
    bayes, _ = per_trace(
        surprise(infer(chain, policy, data, whole=False).predictor, data.z), data, data.z * 0 + np.arange(150) >= 50
    )
    assert gap_to(bayes, got).low <= 0  # the predictor that sees all releases is not beaten


def test_the_network_alone_is_never_below_the_best_possible(sticky):
    """Scored by the exact law of windows, without sampling: the difference is a divergence."""
    chain, policy = sticky
    law = window_law(chain, policy, 3)
    data = sampled(chain, policy, 100, 60)
    table = examples(data, data.z, data.y, 3, 3).table(3)
    net = network.train(table, table, 3, 3, network.Lstm(**SMALL))
    windows = np.stack(np.unravel_index(np.arange(27), (3, 3, 3)), -1)
    q = net.predict(windows)
    assert q.sum(1) == pytest.approx(1)
    assert -(law * np.log2(q)).sum() >= least_cross_entropy(law)


def test_the_current_release_helps(sticky):
    chain, policy = sticky
    data = sampled(chain, policy, 60, 120)
    with_, without = (
        learn(data, data.z, data.y, 3, 3, 1, 5, current=c, net=network.Lstm(**SMALL)) for c in (True, False)
    )
    assert with_.cross_entropy.value < without.cross_entropy.value
    assert with_.cross_entropy.value * NATS == pytest.approx(
        least_cross_entropy(window_law(chain, policy, 1, True)) * NATS, rel=0.05
    )


def test_cell_equals_the_textbook_loop():
    """The scanned LSTM against plain numpy."""
    net = network.Lstm(units=5, dense=4)
    params = network.initial(jax.random.key(0), 3, 2, net)
    windows = np.array([[0, 2, 1], [1, 1, 0]])
    p = {k: np.asarray(v, float) for k, v in params.items()}
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    for row, window in enumerate(windows):
        h = c = np.zeros(5)
        for y in window:
            i, f, g, o = np.split(p["Wx"][y] + h @ p["Wh"] + p["b"], 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        logits = np.maximum(h @ p["W1"] + p["b1"], 0) @ p["W2"] + p["b2"]
        law = np.exp(logits) / np.exp(logits).sum()
        assert np.exp(network.log_law(params, windows, 1.0)[row]) == pytest.approx(law, abs=1e-5)


def test_a_seed_gives_the_same_network_twice(sticky):
    chain, policy = sticky
    data = sampled(chain, policy, 30, 20)
    table = examples(data, data.z, data.y, 2, 2).table(3)
    net = network.Lstm(units=8, dense=8, max_rounds=3)
    one, again, other = (network.train(table, table, 3, 3, net, seed).history for seed in (4, 4, 5))
    assert one == pytest.approx(again, rel=1e-4)  # single precision
    assert one != pytest.approx(other, rel=1e-4)


def test_model_gap_is_found_where_the_chain_is_wrong_and_only_there():
    """A source that repeats a cycle of pairs: order 1 sees coin flips, order 2 and the network see all of it."""
    rng = np.random.default_rng(0)
    second = vs.MarkovChain.fit([np.tile([0, 0, 1, 1], 50)], 2, order=2, smoothing=0.05)
    sequences = [second.symbols[z] for z in second.sample(40, 30, rng)]
    chain = vs.MarkovChain.fit(sequences, 2)
    policy = Controller.of_table(0.9 * np.eye(2) + 0.05)
    data = release(policy, sequences, copies=5, seed=1)
    mask = data.mask & (np.arange(40) >= 4)
    bayes, _ = per_trace(surprise(infer(chain, policy, data, whole=False).predictor, data.z), data, mask)
    got = learn(data, data.z, data.y, 2, 2, 4, 4, net=network.Lstm(**SMALL))
    assert gap_to(bayes, got).low > 0.1
    by_order = [chain_adversary(k, chain, policy, data, sequences, mask) for k in (1, 2)]
    assert by_order[0].cross_entropy.low > by_order[1].cross_entropy.high
    assert gap_between(by_order[0], got).low > 0.1
    assert gap_between(by_order[1], got).low <= 0


def test_a_training_ends_by_the_clock_and_says_so(sticky):
    _, policy = sticky
    data = release(policy, [np.tile([0, 1, 2], 30)] * 6)
    args = (data, data.z, data.y, 3, 3, 1, 1, 2)
    assert learn(*args, net=network.Lstm(**SMALL, max_seconds=0.0)).stopped == 2
    assert learn(*args, net=network.Lstm(**SMALL)).stopped == 0


def test_every_trace_is_held_out_once_and_never_learned_from():
    parts = split(17, 3)
    assert sorted(np.concatenate([score for _, _, score in parts]).tolist()) == list(range(17))
    for learn_from, stop, score in parts:
        assert not set(score) & (set(learn_from) | set(stop))
        assert not set(learn_from) & set(stop)
        assert len(stop)
    with pytest.raises(vs.InputError, match="3 usable traces; 3 seeds need at least 6"):
        split(3, 3)


def test_windows_hold_the_past_only(sticky):
    _, policy = sticky
    data = release(policy, [np.array([0, 1, 2, 0, 1]), np.array([2, 2])])
    found = examples(data, data.z, data.z, 2, 2)
    assert found.windows.tolist() == [[0, 1], [1, 2], [2, 0]]
    assert found.x.tolist() == [2, 0, 1]
    assert set(found.trace.tolist()) == {0}
    assert examples(data, data.z, data.z, 2, 2, current=True).windows.tolist() == [[1, 2], [2, 0], [0, 1]]
    with pytest.raises(vs.InputError, match="too short to look back 7 steps: the longest has 5"):
        examples(data, data.z, data.z, 7, 7)
