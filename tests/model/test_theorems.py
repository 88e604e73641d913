"""The paper's theorems against every sequence there is: Theorem 1, Lemma 1, Theorem 2 as in docs/errata.md."""

import numpy as np
import pytest
from scipy.optimize import minimize

import veilstream as vs
from brute import distances, entropy, information, joint, of, random_policy, simplified, source, whole, windows
from oracles import random_chain, sequence_information
from veilstream.model.problem import blahut_arimoto

LINE = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
NEAR = LINE <= 1  # a limit at every step


def law_of(rng, symbols, outputs, n, order, look_back=None, allowed=None):
    return joint(source(rng, symbols, n, order), random_policy(rng, symbols, outputs, n, look_back, allowed))


# --- Theorem 1 and Lemma 1 -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("allowed", [None, NEAR], ids=["average", "instantaneous"])
def test_lemma_1_what_the_older_past_adds_is_never_negative(seed, allowed):
    """I(X^n;Y^n) = sum I(X_t,X_{t-1};Y_t|Y^{t-1}) + sum I(X^{t-2};Y_t|X_t,X_{t-1},Y^{t-1})."""
    law = law_of(np.random.default_rng(seed), 3, 3, 3, 1, allowed=allowed)
    pairs = sum(information(law, xs, t) for t, xs in windows(3, 1))
    older = information(law, [1], 3, given_x=(2, 3))
    assert older > 1e-4
    assert whole(law) == pytest.approx(pairs + older, abs=1e-9)


@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("allowed", [None, NEAR], ids=["average", "instantaneous"])
def test_theorem_1_forgetting_the_past_keeps_every_distance_and_leaks_no_more(seed, allowed, back):
    """back=1 is the paper's q(y|x_t,x_{t-1},y^{t-1}), back=0 the form of one symbol less."""
    rng = np.random.default_rng(seed)
    p = source(rng, 3, 3, 1)
    law = joint(p, random_policy(rng, 3, 3, 3, allowed=allowed))
    forgetful = joint(p, simplified(law, back))
    for t, xs in windows(3, back):
        assert np.allclose(of(law, xs, range(1, t + 1)), of(forgetful, xs, range(1, t + 1)), atol=1e-12)
    assert distances(forgetful, LINE) == pytest.approx(distances(law, LINE))
    if allowed is not None:
        assert all(of(forgetful, [t], [t]).reshape(3, 3)[~NEAR].max() == 0 for t in (1, 2, 3))
    assert whole(forgetful) == pytest.approx(sum(information(forgetful, xs, t) for t, xs in windows(3, back)))
    assert whole(forgetful) < whole(law)


def least(p, d, weight, look_back, allowed, seed=0):
    """min I(X^n;Y^n)/n + weight E d over every policy that looks so far back: brute force on all of its numbers."""
    n, (symbols, outputs) = p.ndim, d.shape
    shapes = [q.shape for q in random_policy(np.random.default_rng(0), symbols, outputs, n, look_back)]
    masks = [np.log(allowed + 1e-300).reshape((1,) * (t - 1) + (symbols,) + (1,) * (t - 1) + (outputs,))
             for t in range(1, n + 1)]  # fmt: skip
    ends = np.cumsum([int(np.prod(s[:-1])) for s in shapes])

    def value(logits):
        policy = []
        for part, shape, mask in zip(np.split(logits, ends[:-1]), shapes, masks, strict=True):
            both = np.stack([part, 0 * part], -1).reshape(shape) + mask
            q = np.exp(both - both.max(-1, keepdims=True))
            policy.append(q / q.sum(-1, keepdims=True))
        law = joint(p, policy)
        return whole(law) / n + weight * np.mean(distances(law, d))

    start = np.random.default_rng(seed).normal(size=ends[-1])
    return minimize(value, start, method="L-BFGS-B", options={"maxiter": 150, "maxfun": 60_000}).fun


@pytest.mark.slow
@pytest.mark.parametrize(("weight", "limit"), [(1.2, 9.0), (0.0, 1.3)], ids=["average", "instantaneous"])
def test_theorem_1_the_best_of_all_policies_looks_at_one_symbol(weight, limit):
    """Three states, three steps, two releases: 129 free rows, 57 in the paper's form, 21 in ours; one minimum."""
    d = np.array([[0.0, 2.0], [1.0, 1.3], [2.0, 0.0]])
    p = source(np.random.default_rng(3), 3, 3, 1)
    found = [least(p, d, weight, back, d <= limit) for back in (None, 1, 0)]
    assert found[0] > 0.02
    assert found[1:] == pytest.approx([found[0]] * 2, abs=2e-4)


# --- Theorem 2, corrected --------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "n"), [(2, 4), (3, 5)])
@pytest.mark.parametrize("seed", range(3))
def test_theorem_2_corrected_on_a_chain_of_that_order(order, n, seed):
    """Policies of m+1 symbols: the sum over m+1 of them. Policies of m: the printed sum. Nothing lost by either."""
    rng = np.random.default_rng(seed)
    p = source(rng, 2, n, order)
    d = np.array([[0.0, 1.0], [1.0, 0.0]])
    by_order = p.sum(tuple(range(n - order - 1))).reshape(2, -1, 2)  # x_{t-m}; what lies between; x_t
    nexts = by_order / by_order.sum(-1, keepdims=True)
    assert np.abs(nexts[0] - nexts[1]).max() > 0.05  # not of a lower order

    longer = joint(p, random_policy(rng, 2, 2, n, order))
    assert whole(longer) == pytest.approx(sum(information(longer, xs, t) for t, xs in windows(n, order)))
    assert whole(longer) > sum(information(longer, xs, t) for t, xs in windows(n, order - 1)) + 1e-4  # as printed

    shorter = joint(p, random_policy(rng, 2, 2, n, order - 1))
    assert whole(shorter) == pytest.approx(sum(information(shorter, xs, t) for t, xs in windows(n, order - 1)))

    law = joint(p, random_policy(rng, 2, 2, n))
    for back in (order, order - 1):
        forgetful = joint(p, simplified(law, back))
        assert distances(forgetful, d) == pytest.approx(distances(law, d))
        assert whole(forgetful) < whole(law)
    too_short = joint(p, simplified(law, order - 2))  # m - 1 symbols change what is released
    assert np.abs(of(too_short, [n], range(1, n + 1)) - of(law, [n], range(1, n + 1))).max() > 1e-4


def test_on_a_chain_of_order_2_the_solver_counts_the_bits_of_the_symbols():
    """The sum of L(b,a) on pairs of states is I(X^n;Y^n), by enumeration of symbols."""
    rng = np.random.default_rng(0)
    q = rng.dirichlet([1, 1], (2, 2))  # of x_{t-1} and x_t, older first
    pairs = [(new, old) for new in (0, 1) for old in (0, 1)]
    P = np.array([[q[old, new, x] if new == y_old else 0.0 for x, y_old in pairs] for new, old in pairs])
    chain = vs.MarkovChain(P, None, tuple(pairs), "order 2")
    policy = vs.solve(vs.Problem(chain, 1 - np.eye(2), vs.Average(weight=2.0)), window=2).policy
    bits, _ = sequence_information(chain, policy, 3)
    p = np.zeros((2,) * 4)  # x_0 ... x_3: z_1 = (x_1, x_0)
    for (new, old), mass in zip(pairs, chain.initial, strict=True):
        p[old, new] = mass * q[old, new][:, None] * q[new, :, :]
    law = np.zeros((2,) * 7)
    for ys in np.ndindex(2, 2, 2):
        memory, part = policy.start(), p.copy()
        for t, y in enumerate(ys):
            a = policy.channel(memory)[:, y]
            table = np.array([[a[pairs.index((new, old))] for new in (0, 1)] for old in (0, 1)])
            part = part * table.reshape((1,) * t + (2, 2) + (1,) * (2 - t))
            memory = policy.update(memory, y)
        law[(..., *ys)] = part
    assert bits == pytest.approx(entropy(law.sum((4, 5, 6))) + entropy(law.sum((0, 1, 2, 3))) - entropy(law), abs=1e-9)


# --- the pair form, and the sequential myopic policy -----------------------------------------------------


@pytest.mark.parametrize("constraint", [vs.Average(weight=1.5), vs.Instantaneous(1)], ids=str)
def test_the_pair_form_has_the_optimum_of_the_single_form(constraint):
    chain = vs.MarkovChain(random_chain(np.random.default_rng(2), 4, sticky=0.3, floor=0.01))
    d = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
    single = vs.solve(vs.Problem(chain, d, constraint), window=2)
    pair = vs.solve(vs.Problem(chain.lift(2), d, constraint), window=2)
    assert pair.objective == pytest.approx(single.objective, rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "weight"), [("grid2x3-toy", 3.0), ("grid4x4-q2", 1.0)])
def test_the_sequential_myopic_policy_from_a_uniform_start_settles_at_ours(name, weight):
    """Alternating minimisation at each of n = 300 steps, as in the paper, by the law of (x_t, y_{t-1}) at that step."""
    problem = vs.builtin_problem(name, vs.Average(weight=weight))
    P, n = problem.chain.transition, problem.n_states
    law = np.full((1, n), 1 / n)  # nothing released yet x first symbol uniform
    bits, units = [], []
    for _ in range(300):
        b = law / law.sum(1, keepdims=True)
        a, _ = blahut_arimoto(b, problem.cost(weight), tolerance=1e-5)
        m = law[..., None] * a  # y_{t-1}, x_t, y_t
        p = m.sum(1, keepdims=True) / law.sum(1)[:, None, None]
        bits.append((m * np.log2(np.where(m > 0, a / np.where(p > 0, p, 1), 1))).sum())
        units.append((m * problem.distortion).sum())
        before, law = law, np.maximum(m.sum(0).T @ P, 1e-15)
        if before.shape == law.shape and np.abs(law - before).max() < 1e-12:
            break  # every later step is this one
    bits, units = (v + v[-1:] * (300 - len(v)) for v in (bits, units))
    ours = vs.solve(problem, "myopic")
    settled = np.mean(bits[100:]) + weight * np.mean(units[100:])
    assert settled == pytest.approx(ours.objective, rel=5e-3)
    assert np.mean(bits) + weight * np.mean(units) == pytest.approx(ours.objective, rel=2e-2)  # start and all
    best = vs.solve(problem, window=1)
    assert best.objective <= settled * (1 + 1e-3) <= 1.03 * best.objective
