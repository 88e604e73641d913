"""Public memories as automata: windows, memories made to measure, products; controllers on them against plain loops."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import veilstream as vs
from oracles import joint_law, random_chain, some_memory
from veilstream.audit.learned import window_law
from veilstream.control.automaton import Automaton, ByGroup, ByMemory, kernel_of, product, window
from veilstream.control.controller import Controller, aligned, cycle, schedule
from veilstream.control.stationary import LongRun, holds_all, rates
from veilstream.errors import InputError
from veilstream.model.problem import Average, Problem


@pytest.mark.parametrize("w", [0, 1, 2, 3])
def test_a_window_holds_the_last_releases(w):
    """Whatever it began with: after w releases equal pasts are equal memories, different pasts different ones."""
    Y, memory = 3, window(3, w)
    assert (len(memory), len(memory.to)) == (Y**w, Y ** max(w - 1, 0))
    ends = {}
    for start in range(len(memory)):
        for past in itertools.product(range(Y), repeat=w):
            s = start
            for y in past:
                s = int(memory.next(s, y))
            ends.setdefault(past, set()).add(s)
    assert all(len(found) == 1 for found in ends.values())
    assert len(set.union(*ends.values())) == Y**w


@pytest.mark.parametrize("w", [0, 1, 2])
def test_a_table_over_the_last_releases_is_numbered_oldest_first(w):
    rng = np.random.default_rng(w)
    table = rng.dirichlet(np.ones(3), (3**w, 4))
    policy, s = Controller.of_table(table, w), np.asarray(0)
    past = [0] * w
    for y in rng.integers(0, 3, 20):
        number = sum(3 ** (w - 1 - i) * p for i, p in enumerate(past))
        np.testing.assert_allclose(policy.channel(s), table[number], atol=1e-12)
        s, past = policy.update(s, y), [*past, y][len(past) + 1 - w :] if w else []
    assert policy.window == w


@pytest.mark.parametrize("seed", range(4))
def test_memories_that_go_on_alike_share_a_group_and_nothing_else_changes(seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 7, (4, 3))
    next = rows[rng.integers(0, 4, 7)]
    memory, was = Automaton.of(next)
    assert len(memory.to) == len(np.unique(next, axis=0)) and (np.diff(memory.group) >= 0).all()
    for s in range(7):
        for y in range(3):
            assert was[memory.next(s, y)] == next[was[s], y]
    assert (memory.apart.table == memory.table).all() and len(memory.apart.to) == 7


MEMORIES = {
    "none": window(2, 0),
    "two releases": window(2, 2),
    "made to measure": Automaton.of(np.array([[0, 2], [1, 2], [0, 3], [1, 2]]))[0],
    "groups of two sizes": Automaton.of(np.array([[1, 2], [0, 2], [1, 2]]))[0],
}


@pytest.mark.parametrize("kind", MEMORIES)
def test_products_with_a_kernel_are_sums_over_the_table(kind):
    """Of a kernel by group, and of one that a memory's own release has."""
    rng, memory = np.random.default_rng(0), MEMORIES[kind]
    S, Y, Z = len(memory), memory.n_outputs, 3
    B = rng.random((S, Z))
    K = B[memory.to].swapaxes(1, 2) if kind == "made to measure" else rng.random((len(memory.to), Z, Y))  # G x Z x Y
    kernel = kernel_of(memory, K)
    assert isinstance(kernel, ByMemory) == (kind == "made to measure")
    r, x, f = rng.random((S, Y)), rng.random((S, Z)), rng.random((Y, Z))
    k = K[memory.group]  # S x Z x Y
    np.testing.assert_allclose(kernel.normaliser(r), np.einsum("sy,szy->sz", r, k), atol=1e-12)
    np.testing.assert_allclose(kernel.back(x), np.einsum("sz,szy->sy", x, k), atol=1e-12)
    np.testing.assert_allclose(kernel.joint(r, x), np.einsum("sy,sz,szy->zy", r, x, k), atol=1e-12)
    np.testing.assert_allclose(kernel.by(f).normaliser(r), np.einsum("sy,szy,yz->sz", r, k, f), atol=1e-12)
    np.testing.assert_allclose(kernel.logs.normaliser(r), np.einsum("sy,szy->sz", r, k * np.log2(k)), atol=1e-12)
    arrived = np.zeros((S, Z))
    for s in range(S):
        for y in range(Y):
            arrived[memory.next(s, y)] += r[s, y] * x[s] * k[s, :, y]
    np.testing.assert_allclose(kernel.arrive(r, x), arrived, atol=1e-12)
    many = [np.stack([v, 2 * v]) for v in (r, x)]
    if isinstance(kernel, ByGroup):
        kernel = ByGroup(kernel.automaton, np.stack([kernel.K, kernel.K]))
    np.testing.assert_allclose(kernel.arrive(*many), np.stack([arrived, 4 * arrived]), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_a_product_follows_both_memories(seed):
    rng = np.random.default_rng(seed)
    one, other = window(2, 1), Automaton.of(rng.integers(0, 4, (4, 2)))[0]
    both, states = product(one, other, (0, 3))
    s = int(np.flatnonzero((states == (0, 3)).all(1))[0])
    a, b = 0, 3
    for y in rng.integers(0, 2, 50):
        s, a, b = both.next(s, y), one.next(a, y), other.next(b, y)
        assert states[s].tolist() == [a, b]


@pytest.mark.parametrize("join", [schedule, lambda policies, _: cycle(policies)])
def test_policies_of_different_memories_take_turns_on_one_that_holds_them_all(join):
    rng = np.random.default_rng(1)
    parts = [Controller.of_table(rng.dirichlet(np.ones(3), (3**w, 4)), w) for w in (1, 0, 2)] + [some_memory(rng)]
    whole, durations = join(parts, [2, 1, 3, 1]), [2, 1, 3, 1]
    turn = np.repeat(range(4), durations) if join is schedule else np.arange(4)
    s, own = whole.start(), [p.start() for p in parts]
    for t, y in enumerate(rng.integers(0, 3, 60)):
        now = turn[t % len(turn)]
        np.testing.assert_allclose(whole.channel(s), parts[now].channel(own[now]), atol=1e-12)
        s, own = whole.update(s, y), [p.update(m, y) for p, m in zip(parts, own, strict=True)]
    assert whole.window is None and schedule(parts[:3], [1, 1, 1]).window == 2
    alike = aligned([parts[0], parts[0]])
    assert len(alike[1].automaton) == 3  # nothing is made larger without need


@pytest.mark.parametrize("seed", range(4))
def test_its_long_run_is_that_of_its_table(seed):
    """Leakage, distortion, start-up and what is shown, from the stationary law of (memory, state) by plain loops."""
    rng = np.random.default_rng(seed)
    chain, d = vs.MarkovChain(random_chain(rng, 4)), rng.random((4, 3))
    policy = some_memory(rng)
    a, next, P = policy.table(), policy.automaton.table, chain.transition
    T = np.zeros((7, 4, 7, 4))
    for s, z, y in itertools.product(range(7), range(4), range(3)):
        T[s, z, next[s, y]] += a[s, z, y] * P[z]
    T = T.reshape(28, 28)
    mu = np.linalg.lstsq(np.vstack([T.T - np.eye(28), np.ones(28)]), np.eye(29)[-1], rcond=None)[0].reshape(7, 4)

    def told(mu):
        m = mu[..., None] * a
        given = m.sum(1, keepdims=True) / np.maximum(mu.sum(1), 1e-300)[:, None, None]
        return float((m * np.log2(a / np.where(given > 0, given, 1)))[m > 0].sum())

    found = LongRun(chain, policy)
    assert found.rates(d) == pytest.approx((told(mu), (mu[..., None] * a * d).sum()), abs=1e-9)
    np.testing.assert_allclose(found.joint, (mu[..., None] * a).sum(0), atol=1e-9)
    law, once = np.zeros((7, 4)), 0.0
    law[policy.first] = chain.initial
    for _ in range(400):
        once += told(law) - told(mu)
        law = (law.ravel() @ T).reshape(7, 4)
    assert found.startup_bits(d) == pytest.approx(once, abs=2e-3)


def test_without_a_clock_of_the_chain_phases_go_round_by_themselves():
    rng = np.random.default_rng(2)
    chain, parts = vs.MarkovChain(random_chain(rng, 4)), [some_memory(rng), some_memory(rng)]
    problem = Problem(chain, rng.random((4, 3)), Average(weight=1.0))
    found = rates(problem, cycle(parts))
    assert found == pytest.approx(rates(problem, schedule(parts, [1, 1])), abs=1e-9)
    assert abs(found.distortion - rates(problem, parts[0]).distortion) > 1e-3
    assert LongRun(chain, cycle(parts)).startup_bits(problem.distortion) is None


def test_draws_cost_what_is_computed_and_tell_no_more():
    rng = np.random.default_rng(5)
    chain = vs.MarkovChain(random_chain(rng, 4))
    policy = some_memory(rng)
    problem = Problem(chain, rng.random((4, 3)), Average(weight=1.0))
    found, drawn = rates(problem, policy), vs.evaluate(problem, policy, steps=400, streams=128)
    assert drawn.distortion == pytest.approx(found.distortion, abs=5 * drawn.distortion_se)
    assert drawn.leakage <= found.leakage + 5 * drawn.leakage_se


def test_it_comes_back_from_a_file(tmp_path):
    rng = np.random.default_rng(6)
    chain = vs.MarkovChain(random_chain(rng, 4))
    policy = some_memory(rng).made_for(chain)
    path = tmp_path / "p.veil"
    vs.save(path, policy, problem=Problem(chain, rng.random((4, 3)), Average(weight=1.0)))
    back = vs.load(path).policy
    assert isinstance(back, Controller) and back.first == policy.first and back.window is None
    assert (back.automaton.table == policy.automaton.table).all()
    np.testing.assert_allclose(back.channel(np.arange(7)), policy.channel(np.arange(7)), atol=1e-12)


def test_a_memory_that_is_none_is_refused():
    policy = some_memory(np.random.default_rng(7))
    memory = policy.automaton
    for group, to in (
        (memory.group, memory.to + 3),
        (memory.group, -memory.to - 1),
        (memory.group + 1, memory.to),
        (memory.group - 1, memory.to),
    ):
        with pytest.raises(InputError, match="does not have"):
            Automaton(group, to)
    with pytest.raises(InputError, match="group by group"):
        Automaton(memory.group[::-1], memory.to)
    for group, to in ((memory.group + 0.5, memory.to), (memory.group[:0], memory.to), (memory.group, memory.to[0])):
        with pytest.raises(InputError, match="does not fit"):
            Automaton(group, to)
    with pytest.raises(InputError, match="does not fit"):
        replace(policy, output_model=policy.output_model[:, :-1])
    with pytest.raises(InputError, match="first must be"):
        replace(policy, first=7)
    with pytest.raises(InputError, match="not a law"):
        replace(policy, kernel=-policy.kernel).check()


@pytest.mark.parametrize("current", [False, True])
def test_what_the_last_releases_tell_is_what_enumeration_says(current):
    """P(y_1, y_2, x): every path of three steps from the stationary law of (memory, state)."""
    rng = np.random.default_rng(8)
    chain = vs.MarkovChain(random_chain(rng, 3))
    policy = some_memory(rng, Z=3, Y=2, S=5)
    mu, a, P, next = joint_law(chain, policy), policy.table(), chain.transition, policy.automaton.table
    expected = np.zeros((4, 3))
    for s, z, y, z1, y1 in itertools.product(range(5), range(3), range(2), range(3), range(2)):
        p = mu[s, z] * a[s, z, y] * P[z, z1] * a[next[s, y], z1, y1]
        if current:
            expected[2 * y + y1, z1] += p
        else:
            expected[2 * y + y1] += p * P[z1]
    assert window_law(chain, policy, 2, current) == pytest.approx(expected, abs=1e-9)


def test_its_rows_and_columns_are_those_of_its_channels():
    rng = np.random.default_rng(3)
    for policy in (some_memory(rng), schedule([some_memory(rng), some_memory(rng, S=5)], [2, 1])):
        s = np.arange(policy.n_memories)
        z, y, channel = rng.integers(0, 4, len(s)), rng.integers(0, 3, len(s)), policy.channel(s)
        np.testing.assert_allclose(policy.rows(s, z), channel[s, z], atol=1e-12)
        np.testing.assert_allclose(policy.columns(s, y), channel[s, :, y], atol=1e-12)


def test_a_memory_of_one_state_that_forgets_nothing_holds_all():
    rng = np.random.default_rng(0)
    coin = vs.MarkovChain(np.tile([0.3, 0.7], (2, 1)))  # nothing to remember
    assert holds_all(coin, some_memory(rng, Z=2, Y=2, S=5))
