"""Laws of whole sequences as arrays: every x^n and y^n, and every policy that may look at all of its past.

A source is an array p(x_1 ... x_n); a policy a list of q_t(y_t | x^t, y^{t-1}), of shape (X,)*t + (Y,)*t. What a policy
does not look at is an axis of length 1.
"""

import numpy as np


def source(rng, symbols, n, order):
    """A random chain of exactly that order, from a random start: p(x^n)."""
    p = rng.dirichlet(np.ones(symbols**order)).reshape((symbols,) * order)
    q = rng.dirichlet(np.ones(symbols), (symbols,) * order)
    for t in range(order, n):
        p = p[..., None] * q.reshape((1,) * (t - order) + q.shape)
    return p


def random_policy(rng, symbols, outputs, n, look_back=None, allowed=None):
    """q_t looks at x_{t-look_back} ... x_t and all earlier releases; None: at everything."""
    policy = []
    for t in range(1, n + 1):
        seen = t if look_back is None else min(t, look_back + 1)
        q = rng.gamma(0.6, size=(1,) * (t - seen) + (symbols,) * seen + (outputs,) * t) + 1e-6
        if allowed is not None:
            q = q * allowed.reshape((1,) * (t - 1) + (symbols,) + (1,) * (t - 1) + (outputs,))
        policy.append(q / q.sum(-1, keepdims=True))
    return policy


def joint(p, policy):
    """P(x^n, y^n)."""
    n = len(policy)
    law = p.reshape(p.shape + (1,) * n)
    for t, q in enumerate(policy, 1):
        law = law * q.reshape(q.shape[:t] + (1,) * (n - t) + q.shape[t:] + (1,) * (n - t))
    return law


def of(law, xs, ys):
    """The marginal of x_t, t in xs, and y_t, t in ys (times from 1), other axes kept with length 1."""
    n = law.ndim // 2
    kept = {t - 1 for t in xs} | {n + t - 1 for t in ys}
    return law.sum(tuple(i for i in range(2 * n) if i not in kept), keepdims=True)


def entropy(law):
    p = law[law > 0]
    return float(-(p * np.log2(p)).sum())


def information(law, xs, t, given_x=()):
    """I(X_xs; Y_t | Y^{t-1}, X_given), bits."""
    past, a, c = range(1, t), {*xs, *given_x}, given_x
    with_y = [entropy(of(law, v, [*past, t])) - entropy(of(law, v, past)) for v in (a, c)]
    return with_y[1] - with_y[0]


def whole(law):
    """I(X^n; Y^n)."""
    times = range(1, law.ndim // 2 + 1)
    return entropy(of(law, times, ())) + entropy(of(law, (), times)) - entropy(law)


def windows(n, back):
    """For every t the times t-back ... t, as far as there are any."""
    return [(t, range(max(1, t - back), t + 1)) for t in range(1, n + 1)]


def simplified(law, back):
    """q'_t(y_t | x_{t-back}^t, y^{t-1}): the conditionals of a law, as a policy that looks at no more."""
    policy, n = [], law.ndim // 2
    for t, xs in windows(n, back):
        now, before = of(law, xs, range(1, t + 1)), of(law, xs, range(1, t))
        q = now / np.where(before > 0, before, 1)
        policy.append(q.reshape(q.shape[:t] + q.shape[n : n + t]))
    return policy


def distances(law, d):
    """E d(X_t, Y_t) for every t."""
    n = law.ndim // 2
    return [float((of(law, [t], [t]).reshape(d.shape) * d).sum()) for t in range(1, n + 1)]
