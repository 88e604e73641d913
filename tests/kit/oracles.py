"""Brute force: what the tests hold the package against."""

from itertools import product

import numpy as np
import pytest

import veilstream as vs
from veilstream.control.automaton import Automaton
from veilstream.control.controller import Controller
from veilstream.control.replay import Replay
from veilstream.control.stationary import LongRun
from veilstream.model.information import mutual_information, normalised


def recorded(states, gaps, distances, first=None, units=None, unit="traces"):
    """Recorded streams, from a list of each."""
    first = [0] * len(states) if first is None else first
    step = [f + np.arange(len(g)) + np.cumsum(g) for f, g in zip(first, gaps, strict=True)]
    stream = np.repeat(np.arange(len(states)), [len(z) for z in states])
    columns = (np.concatenate(x) for x in (step, states, distances))
    return Replay(stream, *columns, None if units is None else np.concatenate(units), unit)


def sequence_information(chain, policy, n):
    """I(Z^n; Y^n) by enumerating every (z^n, y^n), from the protocol alone."""
    Z, Y = policy.n_states, policy.n_outputs
    joint = np.zeros((Z**n, Y**n))
    for j, ys in enumerate(product(range(Y), repeat=n)):
        memory, channels = policy.start(), []
        try:
            for y in ys:
                a = policy.channel(memory)
                channels.append(a)
                memory = policy.update(memory, y)
        except RuntimeError:  # an impossible observation: probability zero
            continue
        for i, zs in enumerate(product(range(Z), repeat=n)):
            p = chain.initial[zs[0]] * channels[0][zs[0], ys[0]]
            for t in range(1, n):
                p *= chain.transition[zs[t - 1], zs[t]] * channels[t][zs[t], ys[t]]
            joint[i, j] = p
    return float(mutual_information(joint)), joint


def classical_rate(prior, cost, iterations=20000):
    """min over a of I + E cost for a memoryless source: the textbook Blahut-Arimoto."""
    K = np.exp2(-cost)
    r = np.full(cost.shape[1], 1 / cost.shape[1])
    for _ in range(iterations):
        r = r * ((prior / (K @ r)) @ K)
    return float(-(prior @ np.log2(K @ r)))


def random_chain(rng, n, sticky=0.0, density=1.0, floor=0.0):
    """A random transition matrix, as sticky and as sparse as asked for."""
    W = rng.gamma(0.5, size=(n, n)) * (rng.random((n, n)) < density)
    W[np.arange(n), rng.permutation(n)] += 0.1
    P = (1 - sticky) * W / W.sum(1, keepdims=True) + sticky * np.eye(n) + floor
    return P / P.sum(1, keepdims=True)


def joint_law(chain, policy):
    """mu(s,z): the stationary law of (memory, state)."""
    [law] = LongRun(chain, policy).laws
    return law


def dense_law(chain, policy):
    """The same from its transition matrix, made number by number."""
    a, next, P = policy.channel(np.arange(policy.n_memories)), policy.automaton.table, chain.transition
    S, Z, Y = a.shape
    T = np.zeros((S, Z, S, Z))
    for s, z, y in product(range(S), range(Z), range(Y)):
        T[s, z, next[s, y]] += a[s, z, y] * P[z]
    balance = np.vstack([T.reshape(S * Z, -1).T - np.eye(S * Z), np.ones(S * Z)])
    return np.linalg.lstsq(balance, np.eye(S * Z + 1)[-1], rcond=None)[0].reshape(S, Z)


def some_memory(rng, Z=4, Y=3, S=7):
    """A controller with a random memory in which some states go on alike."""
    next = rng.integers(0, S, (S, Y))
    next[np.arange(Y), np.arange(Y)] = np.arange(Y)  # not all lead to the same few
    next[-1], next[-2] = next[0], next[1]
    memory, _ = Automaton.of(next)
    r, K = normalised(rng.random((1, S, Y))), rng.random((1, len(memory.to), Z, Y)) + 0.01
    return Controller(memory, r, K, first=int(rng.integers(S)))


def plain_sweep(P, C, next, r, alpha, mu):
    """One sweep of causal Blahut-Arimoto in plain loops: (r, alpha, mu) of one memory, and the value per step."""
    S, Y = next.shape
    Z = len(P)
    new_r, law, change = np.zeros((S, Y)), np.zeros((S, Z)), np.zeros((S, Z))
    K = np.zeros((S, Z, Y))
    for s in range(S):
        for z in range(Z):
            for y in range(Y):
                K[s, z, y] = 2.0 ** -(C[z, y] + sum(P[z, z1] * alpha[next[s, y], z1] for z1 in range(Z)))
    for s in range(S):
        for y in range(Y):
            new_r[s, y] = sum(mu[s, z] * r[s, y] * K[s, z, y] / (r[s] @ K[s, z]) for z in range(Z)) / mu[s].sum()
        new_r[s] = np.maximum(new_r[s], 1e-9) / np.maximum(new_r[s], 1e-9).sum()
        for z in range(Z):
            N = new_r[s] @ K[s, z]
            change[s, z] = -np.log2(N) - alpha[s, z]
            for y in range(Y):
                law[next[s, y]] += mu[s, z] * new_r[s, y] * K[s, z, y] / N * P[z]
    value = float((mu * change).sum())
    return new_r, alpha + change - value, law / law.sum(), value


def recomputed(value):
    """The same formula evaluated a second time: equal up to rounding, not bit by bit.

    The order in which a product is summed depends on the processor's kernels, the threads, the batch and the layout in
    memory. A sum of n terms moves by at most n ulp (2e-16 each); the sums here have hundreds, and conditioning takes
    another few digits.
    """
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def same_curve(one, other):
    """Two training curves of the same run: single precision (6e-8), and every update builds on the last."""
    return [row.keys() for row in one] == [row.keys() for row in other] and all(
        a[k] == pytest.approx(b[k], rel=1e-3) for a, b in zip(one, other, strict=True) for k in a
    )


def cut_and_resumed(problem, method, file, **options):
    """A training, and the same one with a key pressed in the middle, gone on from its checkpoint: both solutions."""

    def cut(fraction, what):
        if fraction >= 0.5:
            raise KeyboardInterrupt

    whole = vs.solve(problem, method, **options)
    with pytest.raises(KeyboardInterrupt):
        vs.solve(problem, method, checkpoint=file, progress=cut, **options)
    return whole, vs.solve(problem, method, checkpoint=file, resume=True, **options)
