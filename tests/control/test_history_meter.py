"""The meter of chains of order m > 1, held by enumeration: what the releases carry, starts and gaps included."""

import itertools

import numpy as np
import pytest

import veilstream as vs
from veilstream.control.mechanism import Mechanism
from veilstream.model.histories import TrueStates


def xor_chain():
    """x_t = x_{t-1} xor x_{t-2}, nearly always: no two successive symbols say anything, three say all."""
    histories = tuple(itertools.product((0, 1), repeat=2))
    P = np.zeros((4, 4))
    for i, (new, old) in enumerate(histories):
        for x in (0, 1):
            P[i, histories.index((x, new))] = 0.95 if x == new ^ old else 0.05
    return vs.MarkovChain(P, histories=histories)


def fitted(order):
    x = np.random.default_rng(order).integers(0, 2, 60)
    x[2::3] = x[1::3][: len(x[2::3])]
    return vs.MarkovChain.fit([x], 2, order=order, smoothing=0.1)


CHAINS = {
    "xor": xor_chain(),
    "fitted, order 2": fitted(2),
    "fitted, order 3": fitted(3),
    "lifted, order 3": vs.builtin("binary").lift(3),
    "order 1": vs.builtin("binary"),
}
PRESENT = {"all": "11111", "every second": "10101", "a gap": "11001", "late": "00111"}


def windowed(chain):
    rng = np.random.default_rng(3)
    return vs.Controller.of_table(rng.dirichlet([0.3, 0.3], (2, len(chain))), 1)


def information(chain, mechanism, present):
    """(I(X^n; Y), mean of the meter) over all true state paths and all releases of the steps that are present."""
    states = TrueStates.of(chain)
    paths = [((z,), p) for z, p in enumerate(chain.initial)]
    for _ in present[1:]:
        paths = [((*h, z), p * q) for h, p in paths for z, q in enumerate(chain.transition[h[-1]]) if p * q > 0]
    rows = []  # of every true path: the row it is drawn from at each step, -1 where there is no reading
    for h, _ in paths:
        last, row = np.array([-1]), []
        for z, there in zip(h, present, strict=True):
            last = states(last, chain.symbols[[z]]) if there == "1" else np.array([-1])
            row.append(int(last[0]))
        rows.append(row)
    weight, rows = np.array([p for _, p in paths]), np.array(rows)
    information = metered = 0.0
    for y in itertools.product(range(2), repeat=present.count("1")):
        shown, s, likelihood = iter(y), mechanism.start(1), np.ones(len(weight))
        for t, there in enumerate(present):
            if there == "0":
                s = mechanism.skip(s)
                continue
            view, out = mechanism.look(s), np.array([next(shown)])
            likelihood *= view.channel[0, rows[:, t], out[0]]
            s = mechanism.after(s, view, out)
        p_y = weight @ likelihood
        metered += p_y * s.total[0]
        information += (weight * likelihood) @ np.log2(np.where(likelihood > 0, likelihood / p_y, 1))
    return information, metered


@pytest.mark.parametrize("present", PRESENT.values(), ids=PRESENT)
@pytest.mark.parametrize("name", CHAINS)
def test_the_meter_is_the_information_for_every_order_with_starts_and_gaps(name, present):
    chain = CHAINS[name]
    problem = vs.Problem(chain, 1 - np.eye(2), vs.Average(weight=1.0))
    true, metered = information(chain, Mechanism(windowed(chain), problem), present)
    assert metered == pytest.approx(true, abs=1e-9)


def test_a_belief_policys_own_belief_is_that_of_the_channel_used():
    """Its memory is the provider's belief: after a gap the provider knows that the history is not."""
    chain = CHAINS["xor"]
    problem = vs.Problem(chain, 1 - np.eye(2), vs.Average(weight=1.0))
    policy = vs.solve(problem, "belief-greedy", steps=3, streams=2).policy
    mechanism = Mechanism(policy, problem)
    s = mechanism.skip(mechanism.start(1), 2)
    for y in (0, 1, 1):
        s = mechanism.after(s, mechanism.look(s), np.array([y]))
        assert s.memory[0] == pytest.approx(s.belief[0, :-1])


@pytest.mark.parametrize("k", [1, 2, 3, 17, 10**6, 8 * 10**15])
def test_a_law_stays_a_law_after_any_number_of_steps(k):
    rng = np.random.default_rng(0)
    chain = vs.MarkovChain(0.999 * np.eye(5) + 0.001 * rng.dirichlet(np.ones(5), 5))
    b = rng.dirichlet(np.ones(5), 3)
    after = chain.later(b, k)
    assert after.sum(-1) == pytest.approx(np.ones(3), abs=1e-12)
    if k < 100:
        assert after == pytest.approx(b @ np.linalg.matrix_power(chain.transition, k), abs=1e-12)
    else:
        slow = np.linalg.eig(chain.transition.T)
        stationary = slow[1][:, slow[0].real.argmax()].real
        assert after == pytest.approx(np.tile(stationary / stationary.sum(), (3, 1)), abs=1e-6)


def test_many_different_gaps_cost_no_more_products_than_the_longest_has_bits():
    """A message of 2.8 kB with a gap of its own at every step took 2.8 s at 400 states."""
    rng = np.random.default_rng(0)
    chain = vs.MarkovChain(0.999 * np.eye(5) + 0.001 * rng.dirichlet(np.ones(5), 5))
    for k in range(1, 600):
        chain.later(rng.dirichlet(np.ones(5), 1), k)
    assert len(chain._round(chain.around)._doublings) == (599).bit_length()
