"""The programme over the potential: what weights can prove for a pair, and the best potential of a policy's memory."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

import veilstream as vs
from benchmarks.limits import WEIGHT, fitted
from veilstream.control.automaton import window
from veilstream.model.builtin import builtin_problem
from veilstream.model.chain import MarkovChain
from veilstream.model.information import xlog2
from veilstream.model.problem import Average, Instantaneous, Problem
from veilstream.solvers.bounds import Ending, Witness, certify, pairs, potential, solutions
from veilstream.solvers.bounds.pairs import Piece, System
from veilstream.solvers.bounds.witness import NATS, improve, reverse_cost
from veilstream.solvers.memory import split


def a_pair(seed, n=5, sticky=0.0):
    rng = np.random.default_rng(seed)
    P = (1 - sticky) * rng.dirichlet(np.full(n, 0.7), n) + sticky * np.eye(n)
    return P, rng.normal(size=n)


def by_search(P, c):
    """min over laws b of b c + H(bP) - H(b), in nats, by a general-purpose search over log b."""

    def value(x):
        b = np.exp(x - x.max())
        b /= b.sum()
        return b @ c + (xlog2(b, b).sum() - xlog2(b @ P, b @ P).sum()) * np.log(2)

    return min(minimize(value, x, method="BFGS", options={"gtol": 1e-9}).fun for x in (np.zeros(len(c)), -c))


@pytest.mark.parametrize("sticky", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_what_weights_can_prove_is_the_least_over_beliefs(seed, sticky):
    P, c = a_pair(seed, sticky=sticky)
    found = pairs.solve(P, c[None], np.zeros((1, 5)), 30)
    assert found.value[0] == pytest.approx(by_search(P, c), abs=1e-7)
    f = pairs.balance(P, c[None], found.theta).f[0]
    assert np.ptp(f) < 1e-6  # equal for every state: nothing is left to gain


@pytest.mark.parametrize("seed", range(4))
def test_gradient_and_bend_are_those_of_finite_differences(seed):
    P, c = a_pair(seed, sticky=0.4)
    at = pairs.solve(P, c[None], np.zeros((1, 5)), 30)
    h, each = 1e-4, np.eye(5)

    def V(c):
        return pairs.solve(P, c[None], at.theta, 30).value[0]

    def b(c):
        return pairs.solve(P, c[None], at.theta, 30).b[0]

    gradient = [(V(c + h * e) - V(c - h * e)) / (2 * h) for e in each]
    bend = [-(b(c + h * e) - b(c - h * e)) / (2 * h) for e in each]
    np.testing.assert_allclose(at.b[0], gradient, atol=1e-6)
    order = np.argsort(at.at[0])
    np.testing.assert_allclose(at.bend[0][np.ix_(order, order)], bend, atol=1e-6)


def test_newton_at_the_likeliest_states_alone_leads_to_the_same(monkeypatch):
    P, c = a_pair(7, n=12, sticky=0.3)
    whole = pairs.solve(P, c[None], np.zeros((1, 12)), 30)
    monkeypatch.setattr(pairs, "MOST_STATES", 6)
    part = pairs.solve(P, c[None], np.zeros((1, 12)), 60)
    assert part.value[0] == pytest.approx(whole.value[0], abs=1e-5)
    assert pairs.balance(P, c[None], part.theta).f.min() <= whole.value[0] + 1e-9


def test_states_that_share_no_successor_are_parts_of_their_own():
    P = np.array([[0.5, 0.5, 0, 0], [0.4, 0.6, 0, 0], [0, 0, 0.3, 0.7], [0.1, 0, 0.2, 0.7]])
    cost = np.array([[0.0, 1, 2, np.inf], [0.0, np.inf, 1, 1], [3.0, 4, 5, np.inf]])
    found = {tuple(x.states.tolist()): x for x in pairs.groups_of(P, cost)}
    assert {states: x.release.tolist() for states, x in found.items()} == {(0, 1): [0, 2], (2,): [0, 2], (0, 2, 3): [1]}
    both = found[0, 1]
    assert both.successors.tolist() == [0, 1]
    np.testing.assert_array_equal(both.P, P[:2, :2])
    np.testing.assert_array_equal(both.cost, [[0, 1], [3, 4]])


def test_a_chain_of_order_two_has_a_group_for_every_last_symbol():
    """A state names the symbol before, so its successors tell it apart: many small groups."""
    rng = np.random.default_rng(5)
    chain = MarkovChain.fit([rng.integers(0, 3, 500)], 3, order=2, smoothing=0.1)
    found = pairs.groups_of(chain.transition, rng.random((3, len(chain))))
    assert [(len(x.successors), len(x.release)) for x in found] == [(3, 3)] * 3
    assert sum(len(x.states) for x in found) == len(chain)


@pytest.mark.parametrize("tied", [False, True])
def test_conjugate_gradients_solve_the_dense_system(tied):
    """Against the matrix made number by number, with potentials that move by themselves or together."""
    rng = np.random.default_rng(3)
    P, next = rng.dirichlet(np.ones(5), 5), rng.integers(0, 4, (4, 2))
    [group] = pairs.groups_of(P, rng.random((2, 5)))
    s, r = (i.ravel() for i in np.indices((4, 2)))
    at = np.sort(rng.permuted(np.tile(np.arange(5), (8, 1)), axis=1)[:, :3], axis=1)
    half = rng.normal(size=(8, 3, 3))
    E = half @ half.swapaxes(1, 2) + 0.1 * np.eye(3)
    own = rng.random((4, 5)) < 0.6 if tied else np.ones((4, 5), dtype=bool)
    system = System(own, [Piece(group, s, next[s, r], at, E)])
    L = np.zeros((8, 3, 21))  # from (alpha, g) to pairs and states
    for i, (s_i, to) in enumerate(zip(s, next[s, r], strict=True)):
        for k, z in enumerate(at[i]):
            L[i, k, 5 * to : 5 * to + 5] += P[z]
            L[i, k, 5 * s_i + z] -= 1
            L[i, k, 20] -= 1
    T = np.zeros((21, 26))  # own numbers, shared ones, g -> (alpha, g)
    T[20, 25] = 1
    for n, mine in enumerate(own.ravel()):
        T[n, n if mine else 20 + n % 5] = 1
    M = T.T @ np.einsum("nkx,nkl,nly->xy", L, E, L) @ T
    right = rng.normal(size=(4, 5))
    right -= right.mean()  # alpha + constant changes nothing: nothing may pull at it
    d, g = system.solve((right, 0.7), 1e-10, 500)
    expected = T @ np.linalg.lstsq(M, T.T @ np.append(right.ravel(), 0.7), rcond=1e-12)[0]
    assert g == pytest.approx(expected[20], rel=1e-6)
    np.testing.assert_allclose(d - d.mean(), expected[:20].reshape(4, 5) - expected[:20].mean(), rtol=1e-5)


def climbed(problem, weight, steps):
    """The bound after some steps from where a policy has settled, and the last iterate."""
    solution = vs.solve(problem, window=1)
    start = solutions.settled(solution)
    P, C = problem.chain.transition, problem.cost(weight)
    x = potential.start(pairs.groups_of(P, C.T * NATS), start.next, start.log_m, start.alpha)
    return solution, *stepped(P, C, x, steps)


def stepped(P, C, x, steps):
    best = -np.inf
    for _ in range(steps):
        x = potential.looked(potential.step(x))
        w = x.weights
        alpha = improve([P], x.next, reverse_cost(P, C.T * NATS, w)[None], x.alpha[None], 10)
        best = max(best, Witness(x.next, w[None], alpha).bound([P], C))
    return best, x


def least_of_a_memory(P, C, next):
    """min over mechanisms a_s(y|z) of E C + H(Z'|S,Y) - H(Z|S,Y) in bits, by a general-purpose search."""
    (S, Y), Z = next.shape, len(P)

    def value(x):
        a = softmax(x.reshape(S, Y, Z), 1)  # a line search may look very far out
        T = np.zeros((S * Z, S * Z))
        for s in range(S):
            for y in range(Y):
                T[s * Z : s * Z + Z, next[s, y] * Z : next[s, y] * Z + Z] += a[s, y][:, None] * P
        mu = np.linalg.lstsq(np.vstack([T.T - np.eye(S * Z), np.ones(S * Z)]), np.eye(S * Z + 1)[-1])[0]
        m = mu.reshape(S, 1, Z) * a
        p, ahead = m.sum(-1, keepdims=True), m @ P
        told = xlog2(m, m / p).sum() - xlog2(ahead, ahead / p).sum()  # H(Z'|S,Y) - H(Z|S,Y)
        return float((m * C.T).sum() + told)

    starts = np.random.default_rng(0).normal(size=(3, S * Y * Z))
    return min(minimize(value, x, method="BFGS", options={"gtol": 1e-7}).fun for x in starts)


@pytest.mark.parametrize("sticky", [0.0, 0.6])
def test_it_proves_the_least_that_any_mechanism_with_that_memory_pays(sticky):
    """Duality, on the last release of a chain of three states, from no policy at all."""
    rng = np.random.default_rng(11)
    P = (1 - sticky) * rng.dirichlet(np.ones(3), 3) + sticky * np.eye(3)
    C, next = 3.0 * (1 - np.eye(3)), window(3, 1).table
    x = potential.start(pairs.groups_of(P, C.T * NATS), next, np.log(np.full((3, 3, 3), 1 / 27)), np.zeros((3, 3)))
    best, x = stepped(P, C, x, 30)
    least = least_of_a_memory(P, C, next)
    assert best <= least + 1e-6
    assert best == pytest.approx(least, rel=1e-3)
    assert x.m.sum() == pytest.approx(1, abs=1e-9)


def test_a_finer_memory_goes_on_from_where_the_last_has_led():
    """Split from no memory: the bound of the finer one is higher, and it does not start anew."""
    problem = Problem(fitted(16, steps=4000).chain, fitted(16).distortion, Average(weight=WEIGHT))
    P, C = problem.chain.transition, problem.cost(WEIGHT)
    _, _, x = climbed(problem, WEIGHT, 8)
    before = x.g
    finer = potential.refined(x, *split(P, x.next, x.m, 24), 1e-3)
    assert len(finer.next) == 24
    assert finer.gap < 10 * 1e-3 + x.gap  # no further inside than was asked for, about
    best, y = stepped(P, C, finer, 12)
    assert y.g > before
    assert best <= vs.solve(problem).objective


@pytest.mark.parametrize("constraint", [Instantaneous(limit=1), Instantaneous(limit=2)])
def test_forbidden_releases_and_impossible_moves(constraint):
    problem = builtin_problem("grid4x4-q1", constraint)
    solution, best, _ = climbed(problem, 0.0, 12)
    assert 0.97 * solution.objective <= best <= solution.objective


def test_rare_states_may_move_together(monkeypatch):
    """With few numbers that move by themselves the bound is still one, and near."""
    problem = fitted(16, steps=4000)
    for name, value in (("SMALL", 10), ("SEVERAL", 20), ("USED", 1e-3), ("CLOSE", 0.0)):
        monkeypatch.setattr(potential, name, value)
    solution, best, x = climbed(problem, WEIGHT, 6)
    assert not x.own.all()
    assert x.n_active < 16 * 16
    assert 0.98 * solution.objective <= best <= solution.objective


def test_from_a_policy_f_is_its_value_less_what_the_memory_forgets():
    """f_sy(z) = g - sum_z' P(z,z') log (b_sy P)(z') / mu(z'|next), at theta = log m and alpha = beta + log mu."""
    problem = builtin_problem("grid2x3-toy", Average(weight=2.0))
    solution = vs.solve(problem, window=1, tolerance=1e-9)
    start = solutions.settled(solution)
    P, cost = problem.chain.transition, problem.cost(2.0).T * NATS
    m = np.exp(start.log_m)
    b = m / m.sum(2, keepdims=True)
    mu = m.sum((1, 2))
    law = m.sum(1) / mu[:, None]
    f = reverse_cost(P, cost, b) + (start.alpha @ P.T)[start.next] - start.alpha[:, None]
    forgotten = np.log((b @ P) / law[start.next]) @ P.T
    likely = m > 1e-6
    np.testing.assert_allclose((f + forgotten)[likely], solution.objective * NATS, rtol=2e-3)


def test_a_chain_of_order_two_is_proved_from_its_policy():
    """A state names the one before it: nothing is proved without memory, and the last two releases are enough."""
    rng, n = np.random.default_rng(2), 5
    moves, steps = rng.dirichlet(np.full(n, 0.3), (n, n)), [0, 0]
    for _ in range(2000):
        steps.append(int(rng.choice(n, p=moves[steps[-2], steps[-1]])))
    chain = MarkovChain.fit([np.array(steps)], n, order=2, smoothing=0.05)
    far = np.abs(np.arange(n)[:, None] - np.arange(n)).astype(float)
    solution = vs.solve(Problem(chain, far, Average(weight=1.0)))
    P, C = chain.transition, solution.problem.cost(1.0)
    alone = certify(P, C, upper=solution.objective, seconds=0.0)
    found = certify(P, C, upper=solution.objective, start=solutions.settled(solution), seconds=60, tolerance=5e-3)
    assert alone.lower_bound < 0.5 * solution.objective
    assert found.outcome is Ending.TIGHT
    assert 0.995 * solution.objective <= found.lower_bound <= solution.objective
