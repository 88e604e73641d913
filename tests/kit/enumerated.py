"""Every reading, every release and every move of a small mechanism, driven through the real loop."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from veilstream.control.feedback import Excess
from veilstream.model.information import entropy


@dataclass
class Enumerated:
    """Means over all paths of one mechanism, in bits."""

    information: float  # I(X; Y, moves)
    charged: float  # the meter at the end
    truth: float  # H(X): what the readings themselves would reveal
    most: float  # the highest meter of any path
    first: float  # ... after the first release


def enumerated(mechanism, chain, presence, distances=None):
    """presence: which steps have a reading. distances: |X| x |Y|, what feedback counts."""
    policy, at = mechanism.policy, np.flatnonzero(presence)
    s = mechanism.start(1, at[0])
    rule = policy.moves_by
    account = None if rule is None else Excess.new(rule, s.step)
    p, x, seen, first = np.ones(1), np.empty((1, 0), int), [()], None
    for last, t in zip([None, *at[:-1]], at, strict=True):
        if last is not None and t > last + 1:
            s = mechanism.skip(s, int(t - last - 1))
        s = s if account is None else mechanism.move(s, account)
        law = chain.initial_at(np.array([t])) if last is None else between(chain, last, t)[x[:, -1]]
        i, x_t = np.nonzero(law > 0) if last is not None else np.nonzero(np.repeat(law, len(p), 0) > 0)
        p, x = p[i] * (law[i, x_t] if last is not None else law[0, x_t]), np.column_stack([x[i], x_t])
        s, seen, account = s[i], [seen[k] for k in i], taken(account, i)
        s, y, i, share = releases(mechanism, s, x_t)
        p, x, seen, account = p[i] * share, x[i], [seen[k] for k in i], taken(account, i)
        rung = policy.rung(s.memory) if account is not None else np.zeros(len(y), int)
        seen = [(*past, a, b) for past, a, b in zip(seen, y.tolist(), rung.tolist(), strict=True)]
        if account is not None:
            account.count(distances[x[:, -1], y], np.full(len(y), t))
        first = s.total.max() if first is None else first
    joint, of_y, of_x = defaultdict(float), defaultdict(float), defaultdict(float)
    for share, past, true in zip(p.tolist(), seen, map(tuple, x.tolist()), strict=True):
        joint[past, true] += share
        of_y[past] += share
        of_x[true] += share
    h_x, h_y, h = (float(entropy(np.array(list(law.values())))) for law in (of_x, of_y, joint))
    assert abs(p.sum() - 1) < 1e-9
    return Enumerated(h_x + h_y - h, float(p @ s.total), h_x, float(s.total.max()), float(first))


def between(chain, last, t):
    """The law of the state at step t given that at step `last`, |Z| x |Z|."""
    Z = len(chain)
    return chain.later(np.eye(Z), int(t - last), np.full(Z, last))


def releases(mechanism, s, z):
    """Every release of every stream: the uniform that leads to it is in the middle of its part of [0, 1]."""
    view = mechanism.look(s)
    rows = mechanism.policy.channel(s.memory)[np.arange(len(z)), z]
    if view.over is not None:
        rows = np.where(view.over[:, None], view.law, rows)
    ends = np.cumsum(rows, -1)
    i, y = np.nonzero(rows > 0)
    new, shown = mechanism.step(s[i], z[i], (ends - rows / 2)[i, y])
    assert shown.tolist() == y.tolist()
    return new, y, i, rows[i, y]


def taken(account, i):
    if account is None:
        return None
    return Excess(account.rule, account.excess[i], account.mark[i], account.last[i])
