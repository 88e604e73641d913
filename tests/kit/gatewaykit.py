"""What the tests of release, store and gateways share: small policies, artefacts, a broker on loopback."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from veilstream.artefact import Artefact, save
from veilstream.control.belief import BeliefPolicy, GreedyRule
from veilstream.control.controller import Controller, schedule
from veilstream.control.policy import Policy
from veilstream.data.states import StateSpace
from veilstream.gateway.core import Core
from veilstream.gateway.scheduler import Serving
from veilstream.gateway.space import Space
from veilstream.gateway.store import MEMORY, Store
from veilstream.model.builtin import builtin_problem
from veilstream.model.chain import MarkovChain
from veilstream.model.problem import Average, Problem

NEEDS_MOSQUITTO = pytest.mark.service("mosquitto")


def problem_of(name: str = "grid4x4-q2", constraint=None) -> Problem:
    return builtin_problem(name, constraint or Average(weight=1.0))


def window_policy(problem: Problem, seed: int = 0, sharpness: float = 1.0) -> Controller:
    """Some policy of window 1 that keeps the problem's limits: near releases likelier, different after each release."""
    favour = np.random.default_rng(seed).dirichlet(np.ones(problem.n_outputs), problem.n_outputs)
    table = favour[:, None, :] * np.where(problem.allowed, np.exp(-sharpness * problem.distortion), 0)[None]
    return Controller.of_table(table / table.sum(-1, keepdims=True), 1)


def policies(problem: Problem) -> dict[str, Policy]:
    """One of each kind that a releaser meets."""
    chain = problem.chain
    greedy = BeliefPolicy(chain, GreedyRule(problem.cost(1.0), tolerance=1e-3))
    window = window_policy(problem)
    other = window_policy(problem, 1)
    return {"window": window, "belief": greedy, "schedule": schedule((window, other), (2, 4))}


def places(n: int = 16) -> StateSpace:
    """A grid of named places, about a kilometre apart."""
    side = int(np.ceil(np.sqrt(n)))
    at = [(39.9 + 0.01 * (i // side), 116.3 + 0.01 * (i % side)) for i in range(n)]
    return StateSpace("places", np.array(at), tuple(f"place {i}" for i in range(n)), "km")


def artefact(path: Path, seed: int = 0, states: StateSpace | None = None, name="grid4x4-q2", **more) -> Artefact:
    problem = problem_of(name)
    return save(path, window_policy(problem, seed), problem=problem, states=states, **more)


def levels(path: Path, unit: str) -> Artefact:
    """Three levels of some value."""
    states = StateSpace("bins", np.array([[0.1], [0.5], [2.0]]), ("low", "mid", "high"), unit, np.array([0.3, 1.0]))
    problem = Problem(MarkovChain(np.full((3, 3), 1 / 3)), states.distances(), Average(weight=1.0))
    return save(path, window_policy(problem), problem=problem, states=states, period_s=60.0)


@contextlib.contextmanager
def core_of(
    art: Artefact, store: str | Path = MEMORY, ceiling=None, meter=None, uniforms=None, now=time.time, **serving
) -> Iterator[Core]:
    space = Space(art, ceiling, meter)
    core = Core({"": space}, Store(store, {"": space.binding}), Serving(**serving), uniforms=uniforms, now=now)
    try:
        yield core
    finally:
        core.close()


class Outbox:
    """An outlet: every release goes out on one topic, and nobody sends it."""

    def compose(self, told):
        return [(s.name, "out", message) for s, message in told if message is not None]

    def wake(self) -> None:
        pass
