"""Causal Blahut-Arimoto on memories made to measure, and limits met by moving along the curve."""

import json
from pathlib import Path

import numpy as np
import pytest
from veilstream.core.memory import MemoryPolicy
from veilstream.solvers.memory_sweep import MemorySweep

import veilstream as vs
from oracles import random_chain
from veilstream.core.information import binary_entropy
from veilstream.core.problem import Average, Budget, Problem
from veilstream.core.stationary import rates
from veilstream.solvers import search
from veilstream.solvers.bounds import certify
from veilstream.solvers.causal_ba import CausalBA, starting_models
from veilstream.solvers.memory import window_memory
from veilstream.solvers.sweep import Sweep

REFERENCE = json.loads((Path(__file__).parents[1] / "kit" / "reference.json").read_text())


def sticky(seed: int, n: int = 6) -> Problem:
    rng = np.random.default_rng(seed)
    P = 0.8 * np.eye(n) + 0.2 * rng.dirichlet(np.ones(n), n)
    at = rng.random((n, 2))
    d = np.linalg.norm(at[:, None] - at[None], axis=-1)
    return Problem(vs.MarkovChain(P), d, Average(weight=4.0))


@pytest.mark.parametrize("window", [1, 2])
def test_on_the_last_releases_it_is_the_sweep_for_windows(window):
    problem, at = sticky(0, 4), np.zeros(2, dtype=int)
    weights = np.array([2.0, 5.0])
    plain = Sweep(problem, problem.cost(weights), window)
    own = MemorySweep(problem, problem.cost(weights), window_memory(4, window))
    r = np.repeat(starting_models(problem, window, 1, 0)[0, 1:2], 2, 0)
    t, u = plain.start(r.copy()), own.start(r.copy())
    at = np.arange(2)
    for _ in range(12):
        (t, value, slack), (u, value_, slack_) = plain(t, at), own(u, at)
    assert value_ == pytest.approx(value, abs=1e-9) and slack_ == pytest.approx(slack, abs=1e-9)
    for name in ("r", "alpha", "mu"):
        assert getattr(u, name) == pytest.approx(plain.by_window(getattr(t, name)), abs=1e-8)
    found, found_ = plain.result(t, 1)[1], own.result(u, 1)[1]
    assert found_ == pytest.approx(found, abs=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_a_finer_memory_starts_as_good_as_the_coarse_one(seed):
    problem = sticky(seed)
    point = CausalBA(window=1).points(problem, np.array([4.0]))[0]
    tables, S = point.warm[1], problem.n_outputs
    tables.r, tables.alpha, tables.mu = (
        x.swapaxes(1, 2).reshape(1, S, -1) for x in (tables.r, tables.alpha, tables.mu)
    )
    coarse = MemorySweep(problem, problem.cost(np.array([4.0])), window_memory(S, 1))
    memory, finer = coarse.finer(tables, 11)
    assert len(memory) == 11
    policy, found = MemorySweep(problem, problem.cost(np.array([4.0])), memory).result(finer, 0)
    assert found.leakage + 4 * found.distortion <= point.objective(4.0) * (1 + 1e-6)
    assert isinstance(policy, MemoryPolicy)


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
    [there] = solver.points(problem, np.array([5.0]))
    near = solver.near(problem, 4.0, there)
    [afresh] = solver.points(problem, np.array([4.0]))
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
    calls, original = [], CausalBA.near
    limit = vs.solve(problem).distortion * 1.1

    def counted(self, problem, weight, point):
        calls.append(weight)
        return original(self, problem, weight, point)

    monkeypatch.setattr(CausalBA, "near", counted)
    point, _ = search.meet(problem, CausalBA(), Average(limit=limit))
    assert point.distortion == pytest.approx(limit, rel=2e-3) and point.distortion <= limit * (1 + 1e-9)
    assert len(calls) <= 2 * search.ROUNDS + search.ROUGHLY


def test_random_chains_meet_their_limits():
    rng = np.random.default_rng(3)
    for _ in range(3):
        chain = vs.MarkovChain(random_chain(rng, 5))
        d = np.abs(np.arange(5)[:, None] - np.arange(5)).astype(float)
        blind = float((chain.stationary @ d).min())
        s = vs.solve(Problem(chain, d, Average(limit=0.4 * blind)))
        assert s.distortion <= 0.4 * blind * (1 + 1e-6)
        assert s.distortion >= 0.4 * blind * (1 - 5e-3)
