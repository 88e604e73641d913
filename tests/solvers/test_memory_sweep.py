"""Causal Blahut-Arimoto on any memory against plain loops; memories made to measure; limits met along the curve."""

import json
from pathlib import Path

import numpy as np
import pytest

import veilstream as vs
from oracles import plain_sweep, random_chain
from veilstream.control.automaton import Automaton, window
from veilstream.control.stationary import rates
from veilstream.model.information import binary_entropy
from veilstream.model.problem import Average, Budget, Problem
from veilstream.solvers import search
from veilstream.solvers.bounds import certify
from veilstream.solvers.causal_ba import CausalBA
from veilstream.solvers.sweep import Sweep

REFERENCE = json.loads((Path(__file__).parents[1] / "kit" / "reference.json").read_text())


def sticky(seed: int, n: int = 6) -> Problem:
    rng = np.random.default_rng(seed)
    P = 0.8 * np.eye(n) + 0.2 * rng.dirichlet(np.ones(n), n)
    at = rng.random((n, 2))
    d = np.linalg.norm(at[:, None] - at[None], axis=-1)
    return Problem(vs.MarkovChain(P), d, Average(weight=4.0))


def automaton(kind: str, Y: int) -> Automaton:
    if kind.startswith("window"):
        return window(Y, int(kind[-1]))
    rng = np.random.default_rng(5)
    next = rng.integers(0, 7, (7, Y))
    if kind == "groups of two sizes":
        next[1:3] = next[0]
    return Automaton.of(next)[0]


KINDS = ["window 0", "window 1", "window 2", "made to measure", "groups of two sizes"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sweep_is_the_plain_recursion_whatever_the_memory(kind):
    """Twelve sweeps of two weights at once, against loops over memory, state and release for each of them."""
    problem, weights, Y = sticky(0, 4), np.array([2.0, 5.0]), 4
    memory = automaton(kind, Y)
    sweep, S, at = Sweep(problem, problem.cost(weights), memory), len(memory), np.arange(2)
    r = np.random.default_rng(1).dirichlet(np.ones(Y), (2, S))
    t = sweep.start(r)
    plain = [(r[i], np.zeros((S, 4)), np.tile(problem.chain.stationary / S, (S, 1))) for i in range(2)]
    for _ in range(12):
        t, value, _ = sweep(t, at)
        for i in range(2):
            *tables, expected = plain_sweep(problem.chain.transition, problem.cost(weights[i]), memory.table, *plain[i])
            plain[i] = tables
            assert value[i] == pytest.approx(expected, abs=1e-9)
    for i in range(2):
        for found, expected in zip((t.r, t.alpha, t.mu), plain[i], strict=True):
            np.testing.assert_allclose(found[i, 0], expected, atol=1e-8)
    policy, found = sweep.result(t, 1)
    assert found == pytest.approx(rates(problem, policy), abs=1e-8)
    a = policy.channel(np.arange(S))
    r, alpha, _ = plain[1]
    ahead = np.einsum("zx,syx->szy", problem.chain.transition, alpha[memory.table])
    K = np.exp2(-problem.cost(5.0) - ahead)
    np.testing.assert_allclose(a, r[:, None] * K / (r[:, None] * K).sum(-1, keepdims=True), atol=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_a_finer_memory_starts_as_good_as_the_coarse_one(seed):
    problem = sticky(seed)
    point = CausalBA(window=1).at(problem, np.array([4.0]))[0]
    sweep, tables = point.warm
    finer, start = sweep.refined(tables, 11)
    assert len(finer.automaton) == 11 and finer.window is None
    policy, found = finer.result(start, 0)
    assert found.leakage + 4 * found.distortion <= point.objective(4.0) * (1 + 1e-6)
    assert len(policy.automaton) == 11 and start.mu.sum() == pytest.approx(1)


@pytest.mark.parametrize("seed", range(2))
def test_a_refined_memory_begins_with_the_coarse_policy(seed):
    """Both halves of a state that was split behave as it did: the same releases have the same channels."""
    problem = sticky(seed)
    sweep, tables = CausalBA(window=1).at(problem, np.array([4.0]))[0].warm
    finer, start = sweep.refined(tables, 9)
    coarse, fine = sweep.result(tables, 0)[0], finer.result(start, 0)[0]
    rng = np.random.default_rng(seed)
    own, other = coarse.start(), fine.start()
    for t, y in enumerate(rng.integers(0, 6, 40)):
        own, other = coarse.update(own, y), fine.update(other, y)
        if t:  # the first memory need not be one of the other's
            np.testing.assert_allclose(fine.channel(other), coarse.channel(own), atol=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_a_memory_made_to_measure_beats_the_last_release_and_keeps_above_the_proof(seed):
    problem = sticky(seed)
    one = vs.solve(problem, window=1)
    grown = vs.solve(problem)
    assert grown.objective <= one.objective * (1 + 1e-9)
    assert grown.leakage == pytest.approx(rates(problem, grown.policy).leakage, abs=1e-9)
    proved = certify(problem.chain.transition, problem.cost(4.0), upper=grown.objective, seconds=1.0)
    assert proved.lower_bound <= grown.objective
    wide = vs.solve(problem, window=3)
    assert grown.objective <= wide.objective * (1 + 5e-4)


def test_somewhere_it_is_clearly_better():
    gains = [1 - vs.solve(sticky(s)).objective / vs.solve(sticky(s), window=1).objective for s in range(2)]
    assert max(gains) > 5e-4


@pytest.mark.parametrize("seed", range(3))
def test_from_another_weight_the_same_is_found(seed):
    problem, solver = sticky(seed), CausalBA(window=1)
    [there] = solver.at(problem, np.array([5.0]))
    [near] = solver.at(problem, np.array([4.0]), warm=there)
    [afresh] = solver.at(problem, np.array([4.0]))
    assert near.objective(4.0) == pytest.approx(afresh.objective(4.0), rel=2e-3)


@pytest.mark.parametrize("row", REFERENCE["average"][::3], ids=lambda r: f"{r['chain']} {r['lam']}")
def test_a_limit_leads_back_to_the_weight_it_came_from(row):
    """At the distortion of a reference point no more leaks than there: the limit is met, and well."""
    free = vs.solve(vs.builtin_problem(row["chain"], vs.Average(weight=row["lam"])))
    if free.distortion == pytest.approx(0, abs=1e-6) or free.leakage == pytest.approx(0, abs=1e-6):
        pytest.skip("an end of the curve, not a limit")
    s = vs.solve(vs.builtin_problem(row["chain"], vs.Average(limit=free.distortion)))
    assert s.distortion <= free.distortion * (1 + 1e-6)
    assert s.leakage <= free.leakage * 1.004 + 1e-4


@pytest.mark.parametrize("seed", range(3))
def test_a_budget_is_used_up(seed):
    problem = sticky(seed)
    middle = vs.solve(problem)
    s = vs.solve(Problem(problem.chain, problem.distortion, Budget(middle.leakage)))
    assert s.leakage <= middle.leakage * (1 + 1e-6)
    assert s.distortion <= middle.distortion * 1.003


def test_a_limit_on_coins_costs_what_shannon_says():
    chain = vs.MarkovChain(np.full((2, 2), 0.5))
    s = vs.solve(Problem(chain, 1 - np.eye(2), Average(limit=0.2)))
    assert s.distortion <= 0.2 * (1 + 1e-6)
    assert s.leakage == pytest.approx(1 - binary_entropy(0.2), rel=3e-3)


def test_the_search_takes_few_weights(monkeypatch):
    problem = sticky(1, 8)
    calls, original = [], CausalBA.at
    limit = vs.solve(problem).distortion * 1.1

    def counted(self, problem, weights, progress=None, warm=None):
        calls.extend([] if warm is None else weights)
        return original(self, problem, weights, progress, warm)

    monkeypatch.setattr(CausalBA, "at", counted)
    point, _ = search.meet(problem, CausalBA(), Average(limit=limit))
    assert point.distortion == pytest.approx(limit, rel=2e-3) and point.distortion <= limit * (1 + 1e-9)
    assert len(calls) <= 2 * search.ROUNDS


def test_random_chains_meet_their_limits():
    rng = np.random.default_rng(3)
    for _ in range(3):
        chain = vs.MarkovChain(random_chain(rng, 5))
        d = np.abs(np.arange(5)[:, None] - np.arange(5)).astype(float)
        blind = float((chain.stationary @ d).min())
        s = vs.solve(Problem(chain, d, Average(limit=0.4 * blind)))
        assert s.distortion <= 0.4 * blind * (1 + 1e-6)
        assert s.distortion >= 0.4 * blind * (1 - 5e-3)
