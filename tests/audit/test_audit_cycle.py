"""Adversaries who know the hour, against enumeration; an audit and a report of a policy with a clock."""

from itertools import product

import numpy as np
import pytest

import veilstream as vs
from oracles import random_chain
from veilstream.apps.report.content import collect
from veilstream.apps.report.day import by_the_hour
from veilstream.apps.report.page import render
from veilstream.apps.specs import ReportSpec
from veilstream.audit.assemble import audit_artefact
from veilstream.audit.bayes import infer
from veilstream.audit.source import Recorded
from veilstream.audit.spec import AuditSpec
from veilstream.audit.traces import Traces, sampled
from veilstream.control.controller import cycle
from veilstream.model.chain import MarkovChain
from veilstream.model.clock import Clock

HOURS = Clock("day", 24, 3600.0, 0.0, "Europe/London")


def cyclic(phases, states, clock=None, seed=0):
    rng = np.random.default_rng(seed)
    P = [random_chain(rng, states, sticky=0.5 * (i % 2), floor=0.02) for i in range(phases)]
    return MarkovChain(P, clock=clock or Clock("steps", phases))


@pytest.mark.parametrize("first", [0, 2, 7])
def test_filter_smoother_and_path_know_the_hour(first):
    chain, n = cyclic(3, 2), 4
    tables = np.random.default_rng(1).dirichlet(np.ones(2), (3, 2, 2))
    policy = cycle(tuple(vs.Controller.of_table(t, 1) for t in tables)).made_for(chain)
    y = np.array(list(product(range(2), repeat=n)))
    data = Traces(np.zeros_like(y), y, np.full(len(y), n), np.arange(len(y)), np.full(len(y), first))
    seen = infer(chain, policy, data)
    paths = np.array(list(product(range(2), repeat=n)))
    for row, ys in enumerate(y):
        joint = np.empty(len(paths))
        for k, z in enumerate(paths):
            p, last = chain.law_by_phase[first % 3][z[0]], 0
            for t in range(n):
                p *= tables[(first + t) % 3, last, z[t], ys[t]]
                p *= chain.cycle[(first + t) % 3][z[t], z[t + 1]] if t + 1 < n else 1
                last = ys[t]
            joint[k] = p
        joint /= joint.sum()
        truth = np.array([[joint[paths[:, t] == x].sum() for x in range(2)] for t in range(n)])
        assert seen.smoother[row] == pytest.approx(truth, abs=1e-12)
        assert seen.filter[row, -1] == pytest.approx(truth[-1], abs=1e-12)
        assert joint[(paths == seen.path[row]).all(1)] == pytest.approx(joint.max())


@pytest.fixture(scope="module")
def solved():
    distance = np.abs(np.subtract.outer(np.arange(3), np.arange(3))).astype(float)
    return vs.solve(vs.Problem(cyclic(24, 3, HOURS), distance, vs.Average(weight=1.0)))


def test_an_audit_stands_and_a_wrong_hour_costs_the_adversary(solved):
    chain, policy = solved.problem.chain, solved.policy
    start = 365 * 24 * 40
    z = chain.sample(120, 30, 3, first=start)
    found = audit_artefact(
        solved.artefact,
        Recorded.symbols(solved.artefact, list(z), [start] * 30),
        options=AuditSpec(streams=60, steps=120, copies=4, lookbacks=(2,)),
    )
    for setting in found.policy.settings:
        low, high = setting.leakage.low, setting.leakage.high
        assert low - 0.02 < solved.leakage < high + 0.02
    data = sampled(chain, policy, 60, 48, 1)
    right = infer(chain, policy, data, whole=False)
    plain = vs.MarkovChain(chain.transition)
    wrong = infer(plain, policy, data, whole=False)
    mask = (np.arange(48)[:, None], np.arange(60)[None], data.z)
    assert -np.log2(right.filter[mask]).mean() < -np.log2(wrong.filter[mask]).mean()


def test_streams_begin_all_around_a_clock_that_has_more_steps_than_there_are_streams():
    chain = cyclic(60, 2)
    policy = cycle((vs.Controller.of_table(np.eye(2)),) * 60).made_for(chain)
    data = sampled(chain, policy, 2, 12)
    assert list(data.first) == list(range(0, 60, 5))


@pytest.mark.slow
def test_the_report_draws_one_day(solved, tmp_path):
    error, bits = by_the_hour(solved.problem, solved.policy)
    assert bits.mean() == pytest.approx(solved.leakage, rel=1e-3)
    assert error.mean() == pytest.approx(solved.distortion, rel=1e-3)
    states = vs.StateSpace("bins", np.arange(3.0)[:, None], ("low", "mid", "high"), "kWh", np.array([0.5, 1.5]))
    vs.save(tmp_path / "p.veil", solved.policy, problem=solved.problem, states=states, period_s=3600.0)
    options = ReportSpec(shareable=True, points=3, seconds=0.1, audit="none")
    page = render(collect(solved.artefact, Recorded.nothing(solved.artefact), options))
    assert "One day" in page
    assert "24 phases a day, Europe/London" in page
    assert page.count('"kind":"error"') == page.count('"kind":"bits"') == 1
    plain = vs.solve(
        vs.Problem(vs.MarkovChain(solved.problem.chain.transition), solved.problem.distortion, vs.Average(weight=1.0))
    )
    assert by_the_hour(plain.problem, plain.policy) is None
