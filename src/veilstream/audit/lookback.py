"""The best any adversary can do who looks at the last m releases only, without sampling.

For a window policy the joint law of (last m releases, z_t) follows from the stationary law of its own window by m - w
more steps that forget nothing:

    J(s.y, z') = sum_z J(s, z) a(y | z, last w of s) P(z, z')

The least cross-entropy with look-back m is then H(X_t | last m releases), and that of any other predictor q is
sum J log 1/q: an LSTM can approach the first and never pass it.
"""

import numpy as np

from veilstream.audit.bayes import by_symbol
from veilstream.core.chain import MarkovChain
from veilstream.core.information import Array, entropy
from veilstream.core.policy import Policy
from veilstream.core.steady import stationary_law, steps_of

MAX_CELLS = 1 << 24  # (window, state) pairs held at once


def window_law(chain: MarkovChain, policy: Policy, lookback: int, current: bool = False) -> Array | None:
    """P(last `lookback` releases, x_t), |Y|^m x symbols, oldest release first in base |Y|; None if too large to list,
    or where a public clock says more than releases do.

    current: the window ends with y_t, the release of the very step that is guessed; else with y_{t-1}.
    """
    Y = policy.n_outputs
    width = policy.remembers
    if policy.n_memories is None or width is None or Y ** max(lookback, width) * len(chain) > MAX_CELLS:
        return None
    if chain.phases > 1:
        return None
    [step] = steps_of(policy, chain)
    law = stationary_law(step, chain)  # own windows x Z
    own = len(law)
    while width < lookback or current:
        last = current and width >= lookback - 1
        grown = _step(policy, law, own)  # windows x Y x Z
        law = (grown if last else grown @ chain.transition).reshape(-1, len(chain))
        width += 1
        if last:
            break
    law = law.reshape(-1, Y**lookback, len(chain)).sum(0)  # forget what is older
    return by_symbol(chain, law)


def _step(policy: Policy, law: Array, own: int) -> Array:
    """P(window, y, z) for every window: joint with the release that follows."""
    grown = np.empty((len(law), policy.n_outputs, law.shape[1]))
    for s in range(own):
        a = policy.channel(np.asarray(s))  # Z x Y
        grown[s::own] = law[s::own, None, :] * a.T
    return grown


def least_cross_entropy(law: Array) -> float:
    """H(X_t | window) in bits."""
    return float(entropy(law.ravel()) - entropy(law.sum(1)))
