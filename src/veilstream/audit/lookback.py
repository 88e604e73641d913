"""The best any adversary can do who looks at the last m releases only, without sampling.

For a window policy the joint law of (last m releases, z_t) follows from the stationary law of its own window by m - w
more steps that forget nothing:

    J(s.y, z') = sum_z J(s, z) a(y | z, last w of s) P(z, z')

The least cross-entropy with look-back m is then H(X_t | last m releases), and that of any other predictor q is
sum J log 1/q: an LSTM can approach the first and never pass it.
"""

import numpy as np

from veilstream.audit.bayes import by_symbol
from veilstream.control.controller import controller_of
from veilstream.control.policy import Policy
from veilstream.control.stationary import LongRun
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, Index, entropy

MAX_CELLS = 1 << 24  # (window, state) pairs held at once


def window_law(chain: MarkovChain, policy: Policy, lookback: int, current: bool = False) -> Array | None:
    """P(last `lookback` releases, x_t), |Y|^m x symbols, oldest release first in base |Y|; None if too large to list,
    or where a public clock says more than releases do.

    current: the window ends with y_t, the release of the very step that is guessed; else with y_{t-1}.
    """
    found, Y = controller_of(policy), policy.n_outputs
    if found is None or chain.phases > 1 or found.places > 1:
        return None
    S = found.n_memories
    if S * Y**lookback * len(chain) > MAX_CELLS:
        return None
    [law] = LongRun(chain, found).laws  # of (own memory, state); then of (own memory and releases since, state)
    memory, releases = np.arange(S), np.zeros(S, dtype=np.int64)
    for k in range(lookback):
        joint = law[:, None] * found.channel(memory).swapaxes(1, 2)  # with the release that follows
        law = (joint if current and k == lookback - 1 else joint @ chain.transition).reshape(-1, len(chain))
        y = np.tile(np.arange(Y), len(memory))
        memory, releases = found.update(np.repeat(memory, Y), y), np.repeat(releases, Y) * Y + y
        alike, which = np.unique(memory * Y**lookback + releases, return_inverse=True)
        memory, releases = np.divmod(alike, Y**lookback)
        law = summed(law, which, len(alike))
    return by_symbol(chain, summed(law, releases, Y**lookback))


def summed(law: Array, groups: Index, n: int) -> Array:
    """Rows added up by group, n of them."""
    found = np.zeros((n, law.shape[1]))
    np.add.at(found, groups, law)
    return found


def least_cross_entropy(law: Array) -> float:
    """H(X_t | window) in bits."""
    return float(entropy(law.ravel()) - entropy(law.sum(1)))
