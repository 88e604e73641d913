"""Two more lower bounds, by other arguments than `solvers.bounds`: slow and simple, for cross-checks.

Both bound the divergence that an output model r gives away by the worst case of P_a(y^n) / r(y^n):
for every mechanism q,  objective(q) >= value of the soft-min recursion with r - max over y^n of log2 P_a / r.
"""

import itertools

import numpy as np


def genie(P, C, pi, k, sweeps=300):
    """Reveal the true state every k steps: (1/k) sum_x pi(x) V_k(P[x]), V_k bounded on the tree of all y^k."""
    return sum(p * _tree(P, C, P[x], k, sweeps) for x, p in enumerate(pi)) / k


def _tree(P, C, b, k, sweeps):
    Y = C.shape[1]
    nodes = [list(itertools.product(range(Y), repeat=t)) for t in range(k + 1)]
    r = {node: np.full(Y, 1 / Y) for level in nodes[:-1] for node in level}
    for _ in range(sweeps):
        alpha, a = {leaf: np.zeros(len(P)) for leaf in nodes[k]}, {}
        for level in reversed(nodes[:-1]):
            for s in level:
                x = np.stack([np.log2(r[s][y]) - C[:, y] - P @ alpha[(*s, y)] for y in range(Y)], 1)
                alpha[s] = -np.log2(np.exp2(x).sum(1))
                a[s] = np.exp2(x + alpha[s][:, None])
        prior, ratio, new = {(): b}, {(): 0.0}, {}
        for level in nodes[:-1]:
            for s in level:
                p = prior[s] @ a[s]
                new[s] = p + 1e-9
                for y in range(Y):
                    prior[(*s, y)] = (prior[s] * a[s][:, y]) @ P / max(p[y], 1e-300)
                    ratio[(*s, y)] = ratio[s] + np.log2(p[y] / r[s][y])
        value = b @ alpha[()] - max(ratio[leaf] for leaf in nodes[k])
        r = {s: p / p.sum() for s, p in new.items()}
    return value


def path_penalty(P, C, history, sweeps=500):
    """g - worst growth of P_a / r with r(y | last y); the belief `history` steps ago is any mix of rows of P."""
    Z, Y = C.shape
    r, alpha = np.full((Y, Y), 1 / Y), np.zeros((Y, Z))
    mu = np.full((Y, Z), 1 / (Y * Z))
    for _ in range(sweeps):
        x = np.log2(r)[:, None, :] - C[None] - (P @ alpha.T)[None]  # last y, z, y
        new = -np.log2(np.exp2(x).sum(2))
        a = np.exp2(x + new[:, :, None])
        g, r_used = (new - alpha).min(), r
        alpha = new - new.mean()
        m = mu[:, :, None] * a
        r = m.sum(1) + 1e-6
        r /= r.sum(1, keepdims=True)
        mu = m.sum(0).T @ P
    edges = {}
    for h in itertools.product(range(Y), repeat=history + 1):
        b = P.copy()  # every possible prior just after h[0], one per row
        for s, y in itertools.pairwise(h):
            b = (b * a[s][:, y]) @ P
            b /= b.sum(1, keepdims=True)
        edges[h] = np.log2((b @ a[h[-1]]).max(0) / r_used[h[-1]])
    V = dict.fromkeys(edges, 0.0)
    for _ in range(60):  # the largest mean weight of a cycle is at most the largest increment
        W = {h: max(w[y] + V[(*h[1:], y)] for y in range(Y)) for h, w in edges.items()}
        worst = max(W[h] - V[h] for h in V)
        V = W
    return g - worst
