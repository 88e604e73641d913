"""Every path of a small cascade: true states, fine releases, coarse ones, each with its probability."""

from typing import NamedTuple

import numpy as np


class Paths(NamedTuple):
    p: np.ndarray  # n
    x: np.ndarray  # n x steps
    releases: list  # one array n x steps for each audience, the finest first
    memories: list


def paths(chain, policies, steps):
    """policies: the finest audience's first; each looks at the release before it. steps: their public numbers."""
    p, x = np.ones(1), np.empty((1, 0), int)
    releases = [np.empty((1, 0), int) for _ in policies]
    memories = [q.at(q.start(1), np.array([steps[0]])) for q in policies]
    before = None
    for t in steps:
        if before is None:
            law = np.broadcast_to(chain.initial_at(np.array([t])), (1, len(chain)))
        else:
            law = chain.later(np.eye(len(chain)), int(t - before), np.full(len(chain), before))[x[:, -1]]
            if t > before + 1:
                memories = [
                    q.at(q.skip(m, t - before - 1), np.full(len(m), t)) for q, m in zip(policies, memories, strict=True)
                ]
        i, now = np.nonzero(law > 0)
        p, x = p[i] * law[i, now], np.column_stack([x[i], now])
        releases, memories = [r[i] for r in releases], [m[i] for m in memories]
        seen = x[:, -1]
        for k, q in enumerate(policies):
            rows = q.channel(memories[k])[np.arange(len(seen)), seen]
            i, y = np.nonzero(rows > 0)
            p, x = p[i] * rows[i, y], x[i]
            releases, memories = [r[i] for r in releases], [m[i] for m in memories]
            releases[k] = np.column_stack([releases[k], y])
            memories[k] = q.at(q.update(memories[k], y), np.full(len(y), t + 1))
            seen = y
        before = t
    assert abs(p.sum() - 1) < 1e-12
    return Paths(p, x, releases, memories)


def entropy(p, *columns):
    """H of the columns together, bits."""
    _, which = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    law = np.bincount(which.ravel(), p)
    law = law[law > 0]
    return float(-(law * np.log2(law)).sum())


def information(p, one, *other):
    """I(one; other), bits."""
    return entropy(p, one) + entropy(p, *other) - entropy(p, one, *other)
