"""What an attack has to go by, and what it is: a name and a guess."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from veilstream.audit.bayes import Beliefs
from veilstream.audit.traces import Ints, Traces
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array


@dataclass(frozen=True, eq=False)
class Evidence:
    """Releases of some traces, and what an adversary knows beside them."""

    chain: MarkovChain
    traces: Traces  # an attack looks at y alone
    beliefs: Beliefs  # of who knows chain and channel
    distances: Array  # between symbols
    felt: Array  # |X| x |Y|: from symbols to releases


@dataclass(frozen=True)
class Attack:
    """guess: streams x steps, a symbol each."""

    name: str
    what: str  # it does, in a phrase
    guess: Callable[[Evidence], Ints]


def nearest(belief: Array, distances: Array) -> Ints:
    """The guess with the least expected distance."""
    return np.asarray((belief @ distances).argmin(-1))
