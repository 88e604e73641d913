"""The meter by enumeration: information <= meter <= what the truth would reveal, and no ceiling is passed."""

import numpy as np
import pytest

import veilstream as vs
from enumerated import enumerated
from oracles import random_chain
from veilstream.control.adaptive import Ladder
from veilstream.control.automaton import Automaton
from veilstream.control.belief import GreedyRule
from veilstream.control.charge import NO_DOUBT
from veilstream.control.controller import Controller, cycle
from veilstream.control.feedback import Feedback
from veilstream.control.mechanism import Mechanism
from veilstream.model.chain import MarkovChain
from veilstream.model.clock import Clock


def table(rng, n, window=1):
    return vs.Controller.of_table(rng.dirichlet(np.full(n, 0.6), (n**window, n)), window)


def ladder(rng, n, every):
    """The truth, and two random rungs above it."""
    rungs = vs.Controller.of_table(np.tile(np.eye(n), (n, 1, 1)), 1), table(rng, n), table(rng, n)
    return Ladder(rungs, Feedback(every, 0.4, 1.0, [0.1, 0.5, 0.9]), 1)


def by_clock(rng, n):
    return cycle(tuple(table(rng, n) for _ in range(3)))


def memory(rng, n):
    """Two memories for every release."""
    s, y = np.divmod(np.arange(2 * n * n), n)
    to = (y + n * ((s + y) % 2)).reshape(2 * n, n)
    automaton, _ = Automaton.of(to)
    K = rng.uniform(0.05, 1, (1, len(automaton.to), n, n))
    return Controller(automaton, rng.dirichlet(np.ones(n), (1, 2 * n)), K)


KINDS = {
    "memoryless": lambda rng, n, chain: table(rng, n, 0),
    "window 1": lambda rng, n, chain: table(rng, n, 1),
    "window 2": lambda rng, n, chain: table(rng, n, 2),
    "memory": lambda rng, n, chain: memory(rng, n),
    "belief": lambda rng, n, chain: vs.BeliefPolicy(chain, GreedyRule(2.0 * (1 - np.eye(n)))),
    "schedule": lambda rng, n, chain: vs.schedule((table(rng, n), table(rng, n, 2)), (2, 1)),
    "clock": lambda rng, n, chain: by_clock(rng, n),
    "ladder, a move at every step": lambda rng, n, chain: ladder(rng, n, 1),
    "ladder, a move at every other step": lambda rng, n, chain: ladder(rng, n, 2),
    "ladder around a clock": lambda rng, n, chain: Ladder(
        (by_clock(rng, n), by_clock(rng, n)), Feedback(2, 0.4, 1.0, [0.1, 0.5]), 1
    ),
}
PRESENCE = {2: ["11111", "11011", "1000000011"], 3: ["1111", "10011", "1100000001"]}


def chain_of(rng, n, kind):
    sticky = rng.uniform(0.2, 0.9, 3)
    if "clock" in kind:
        return MarkovChain(
            np.stack([random_chain(rng, n, sticky=s, floor=0.05) for s in sticky]), clock=Clock("steps", 3)
        )
    return vs.MarkovChain(random_chain(rng, n, sticky=sticky[0], floor=0.05))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(20))
def test_the_meter_lies_between_the_information_and_the_truth(seed, kind):
    """Two states and five readings, for every fourth chain three and four; with a short gap, a long one, or none."""
    rng, n = np.random.default_rng(seed), 3 if seed % 4 == 3 else 2
    chain, d = chain_of(rng, n, kind), 1 - np.eye(n)
    policy, problem = KINDS[kind](rng, n, chain).made_for(chain), vs.Problem(chain, d, vs.Average(limit=0.4))
    presence = np.array([c == "1" for c in PRESENCE[n][seed % 3]])
    found = enumerated(Mechanism(policy, problem), chain, presence, d)
    assert found.information <= found.charged + 1e-9
    assert found.charged <= found.truth * 2**NO_DOUBT + 1e-9
    assert found.first <= np.log2(n) + 1e-9
    if "ladder" not in kind:
        assert found.charged == pytest.approx(found.information, abs=1e-9)
    ceiling = rng.uniform(0, 1.2) * found.charged
    capped = enumerated(Mechanism(policy, problem, ceiling), chain, presence, d)
    assert capped.most <= ceiling + 1e-9
    assert capped.information <= capped.charged + 1e-9
