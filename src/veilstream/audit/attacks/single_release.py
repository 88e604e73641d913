"""One release at a time: the best guess from it and the share of time of each state (Shokri's attack without a chain).

P(x|y) is counted from the beliefs: how often y was shown while the filter believed in x.
"""

import numpy as np

from veilstream.audit.attacks.attack import Attack, Evidence, nearest
from veilstream.audit.traces import Ints


def guess(seen: Evidence) -> Ints:
    mask, y = seen.traces.mask, seen.traces.y
    joint = np.zeros((seen.felt.shape[1], seen.beliefs.filter.shape[-1]))
    np.add.at(joint, y[mask], seen.beliefs.filter[mask])
    return nearest(joint, seen.distances)[y]


ATTACK = Attack("single release", "the best guess from each release alone", guess)
