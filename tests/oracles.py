"""Brute force: what the tests hold the package against."""

from itertools import product

import numpy as np

from veilstream.information import mutual_information


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


def plain_causal_ba(P, cost, sweeps, window=1):
    """The recursion of THEORY 4 as plainly as it can be written: loops over windows, no tricks."""
    Z, Y = cost.shape
    S = Y**window
    r, alpha, mu = np.full((S, Y), 1 / Y), np.zeros((S, Z)), np.full((S, Z), 1 / (S * Z))
    value = 0.0
    for _ in range(sweeps):
        new_alpha, new_mu, new_r = np.zeros((S, Z)), np.zeros((S, Z)), np.zeros((S, Y))
        for s in range(S):
            following = [(s * Y + y) % S for y in range(Y)]
            summand = np.stack([r[s, y] * np.exp2(-cost[:, y] - P @ alpha[following[y]]) for y in range(Y)], 1)
            N = summand.sum(1)
            a = summand / N[:, None]
            new_alpha[s] = -np.log2(N)
            m = mu[s][:, None] * a
            new_r[s] = m.sum(0) / max(m.sum(), 1e-300)
            for y in range(Y):
                new_mu[following[y]] += m[:, y] @ P
        value = float((mu * (new_alpha - alpha)).sum())
        alpha, mu, r = new_alpha - value, new_mu, new_r
    return value


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
