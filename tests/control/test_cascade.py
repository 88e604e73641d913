"""Several audiences, one draw: every figure against the enumeration of all true states, fine and coarse releases."""

import numpy as np
import pytest

import veilstream as vs
from cascades import information, paths
from veilstream.control.accountant import Streams
from veilstream.control.automaton import Automaton
from veilstream.control.cascade import Behind, BehindFilter, Finer, joint
from veilstream.control.controller import Controller, cycle, schedule
from veilstream.control.mechanism import Mechanism
from veilstream.control.stationary import LongRun
from veilstream.errors import InputError
from veilstream.model.clock import Clock

Z, Y1, Y2 = 3, 3, 2
RNG = np.random.default_rng(32)
CHAIN = vs.MarkovChain(RNG.dirichlet(np.ones(Z), Z), initial=RNG.dirichlet(np.ones(Z)))
CLOCKED = vs.MarkovChain(RNG.dirichlet(np.ones(Z), (2, Z)), clock=Clock("steps", 2))
D = {n: RNG.random((Z, n)) for n in (Y2, Y1)}  # distances, by the number of coarse releases


def table(states, outputs, w=1, seed=0):
    rng = np.random.default_rng(seed)
    return Controller.of_table(rng.dirichlet(np.ones(outputs), (outputs**w, states)), w)


def grown(seed=0):
    """A memory made to measure: four states, each led to by one release."""
    rng = np.random.default_rng(seed)
    memory = Automaton(np.arange(4), np.array([[0, 1, 2], [3, 1, 2], [0, 1, 2], [3, 1, 2]]))
    table = rng.dirichlet(np.ones(3), (4, Z))
    return Controller(memory, np.ones((1, 4, 3)), table[None])


CASES = {
    "last release": (CHAIN, table(Z, Y1), table(Y1, Y2, seed=1)),
    "no memory": (CHAIN, table(Z, Y1, 0), table(Y1, Y2, 0, 1)),
    "two releases": (CHAIN, table(Z, Y1, 2), table(Y1, Y2, 2, 1)),
    "made to measure": (CHAIN, grown(), table(Y1, Y2, seed=1)),
    "coarser makes to measure": (CHAIN, table(Z, Y1), grown(2)),
    "schedules": (
        CHAIN,
        schedule([table(Z, Y1), table(Z, Y1, seed=5)], [1, 1]),
        schedule([table(Y1, Y2), table(Y1, Y2, seed=6)], [2, 1]),
    ),
    "clock": (CLOCKED, cycle([table(Z, Y1), table(Z, Y1, seed=5)]), table(Y1, Y2, seed=1)),
}


@pytest.fixture(params=CASES, scope="module")
def cascade(request):
    return CASES[request.param]


def every(chain, fine, coarse, steps):
    """Every path of two audiences; and the meter of the coarser one along each."""
    found = paths(chain, [fine, coarse], steps)
    stand_in = vs.Problem(
        vs.MarkovChain(np.full((Y1, Y1), 1 / Y1)), np.zeros((Y1, coarse.n_outputs)), vs.Average(weight=1)
    )
    mechanism = Mechanism(coarse, stand_in, meter=BehindFilter(Finer.of(chain, fine)))
    s, before = mechanism.start(len(found.p), steps[0]), None
    for k, t in enumerate(steps):
        if before is not None and t > before + 1:
            s = mechanism.skip(s, t - before - 1)
        s, before = mechanism.after(s, mechanism.look(s), found.releases[1][:, k]), t
    return found, s.total


@pytest.mark.parametrize("steps", [(0, 1, 2), (4, 5, 8)], ids=["in a row", "with a gap"])
def test_together_they_learn_what_the_finer_one_learns_and_the_meter_of_the_coarser_one_is_what_it_bounds(
    cascade, steps
):
    found, meter = every(*cascade, steps)
    p, x, (y1, y2), _ = found
    assert information(p, x, y1, y2) == pytest.approx(information(p, x, y1), abs=1e-9)
    coarse = information(p, y1, y2)
    assert p @ meter == pytest.approx(coarse, abs=1e-9)
    assert information(p, x, y2) <= coarse + 1e-12
    assert coarse > 0.01  # or nothing was tried


def test_both_audiences_are_one_controller(cascade):
    chain, fine, coarse = cascade
    both = joint(fine, coarse)
    both.check()
    one, two = paths(chain, [fine, coarse], (0, 1, 2)), paths(chain, [both], (0, 1, 2))
    pairs = one.releases[0] * coarse.n_outputs + one.releases[1]
    assert (one.x == two.x).all() and (pairs == two.releases[0]).all()
    np.testing.assert_allclose(one.p, two.p, rtol=1e-12)


def test_the_long_run_of_the_coarser_audience_is_that_of_the_whole(cascade):
    """By the stationary law of the controller of both, whose memories and releases are taken apart by hand."""
    chain, fine, coarse = cascade
    d, both = D[coarse.n_outputs], joint(fine, coarse)
    found, whole, bits, far = Behind(Finer.of(chain, fine), coarse).rates(d), LongRun(chain, both), [], []
    for step, mu in zip(whole.steps, whole.laws, strict=True):
        m = mu[..., None] * step.table()  # memories x Z x (Y1 Y2)
        m = m.reshape(*mu.shape, -1, coarse.n_outputs)
        s2 = coarser_memory(both, fine, coarse)
        law = np.zeros((len(coarse.automaton), m.shape[2], coarse.n_outputs))
        np.add.at(law, s2, m.sum(1))
        bits.append(sum(mutual(part) for part in law))
        far.append((m.sum((0, 2)) * d).sum())
    assert found.leakage == pytest.approx(np.mean(bits), abs=1e-9)
    assert found.distortion == pytest.approx(np.mean(far), abs=1e-9)


def mutual(m):
    """sum m log2 m/(p q) with the weight of the part: its share of I(Y1;Y2|S2)."""
    total, outer = m.sum(), np.outer(m.sum(1), m.sum(0))
    inside = m > 0
    return float((m[inside] * np.log2(m[inside] * total / outer[inside])).sum())


def coarser_memory(both, fine, coarse):
    """Which memory of the coarser one each of both is: followed from the start."""
    found = {both.first: coarse.first}
    queue = [both.first]
    for s in queue:
        for y in range(both.n_outputs):
            to = int(both.automaton.table[s, y])
            if to not in found:
                found[to] = int(coarse.automaton.table[found[s], y % coarse.n_outputs])
                queue.append(to)
    return np.array([found.get(s, 0) for s in range(len(both.automaton))])  # others have no mass


def test_start_up_bits_are_the_sum_of_what_the_first_steps_tell_beyond_the_rate():
    _, fine, coarse = CASES["last release"]
    run = Behind(Finer.of(CHAIN, fine), coarse)
    mu, rate, total = run.steps[0].opening(CHAIN.initial), run.rates(D[Y2]).leakage, 0.0
    for _ in range(200):
        total += run.steps[0].rates(mu, D[Y2]).leakage - rate
        mu = run.steps[0](mu)
    assert run.startup_bits(D[Y2]) == pytest.approx(total, abs=2e-3)


def test_the_chain_to_design_with_is_how_often_one_fine_release_follows_another(cascade):
    chain, fine, _ = cascade
    finer = Finer.of(chain, fine)
    steps = finer.run.steps
    start = np.concatenate([np.ravel(v) for v in finer.run.laws]).reshape(len(steps), -1)
    pairs = np.zeros((Y1, Y1))
    for k, step in enumerate(steps):
        a, then = step.table(), steps[(k + 1) % len(steps)].table()
        mu = start[k].reshape(a.shape[:2])
        for s in range(len(a)):
            for y in range(Y1):
                to = int(finer.policy.automaton.table[s, y])
                pairs[y] += (mu[s] * a[s, :, y]) @ step.chain.transition @ then[to]
    np.testing.assert_allclose(finer.transition, pairs / pairs.sum(1, keepdims=True), atol=1e-9)


def test_a_third_audience_adds_nothing_and_its_meter_holds_too():
    _, fine, coarse = CASES["last release"]
    third = table(Y2, 2, seed=9)
    found = paths(CHAIN, [fine, coarse, third], (0, 1, 2))
    p, x, (y1, y2, y3), _ = found
    assert information(p, x, y1, y2, y3) == pytest.approx(information(p, x, y1), abs=1e-9)
    finer = Finer.of(CHAIN, fine).then(coarse)
    stand_in = vs.Problem(vs.MarkovChain(np.full((Y2, Y2), 1 / Y2)), np.zeros((Y2, 2)), vs.Average(weight=1))
    mechanism = Mechanism(third, stand_in, meter=BehindFilter(finer))
    s = mechanism.start(len(p))
    for k in range(3):
        s = mechanism.after(s, mechanism.look(s), y3[:, k])
    assert p @ s.total == pytest.approx(information(p, y2, y3), abs=1e-9)
    assert Behind(finer, third).rates(D[Y2]).leakage <= Behind(Finer.of(CHAIN, fine), coarse).rates(D[Y2]).leakage


def test_the_meter_of_an_audience_that_came_later_begins_from_what_it_missed():
    """I(Y1; Y2) where the coarser releases begin once the finer ones have run for long."""
    _, fine, coarse = CASES["last release"]
    chain = vs.MarkovChain(CHAIN.transition)
    finer = Finer.of(chain, fine)
    mu = finer.run.laws[0]  # (s1, z)
    late = BehindFilter(finer)
    b = late.settled(np.array([7]))
    np.testing.assert_allclose(b.reshape(mu.shape), mu, atol=1e-12)
    again = late.settled(np.array([7]))
    shown = mu[..., None] * fine.channel(np.arange(len(mu)))
    q = shown.sum((0, 1))
    s = Streams(coarse.start(1), again, np.zeros(1), np.array([7]))
    bits, law = late.charge(s, coarse.channel(s.memory))
    np.testing.assert_allclose(law[0], q @ coarse.channel(coarse.first), atol=1e-9)
    assert bits[0] == pytest.approx(mutual(q[:, None] * coarse.channel(coarse.first)), abs=1e-9)


def test_what_is_no_finite_policy_of_order_one_is_refused():
    ladder = vs.solve("builtin:binary", avg=0.1, feedback=10)
    with pytest.raises(InputError, match="finite policy"):
        Finer.of(ladder.problem.chain, ladder.policy)
    lifted = CHAIN.lift(2)
    with pytest.raises(InputError, match="order 1"):
        Finer.of(lifted, table(len(lifted), 2))
