"""What a mechanism is to a judge: a name, its source, and a finite policy for each of its settings.

It is given the state of the model, as our own policies are, and shows points of its own or those of the model. What it
keeps for long and draws only once (the offset of a phone, the noise of a place) is drawn several times here, one policy
for each: an adversary learns such a draw in time, and I(X;Y) <= I(X;Y|draw), equal in the long run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from veilstream.control.controller import Controller
from veilstream.control.stationary import rates
from veilstream.data.states import StateSpace
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array
from veilstream.model.problem import Average, Problem
from veilstream.units import parse_quantity

DRAWS = 8  # of what is drawn once and kept
MAP, VALUES, ANY = "positions", "values", "anything"


@dataclass(frozen=True, eq=False)
class Made:
    """A mechanism at one setting. policies: one, or one for each draw of what it keeps."""

    policies: Sequence[Controller]
    distortion: Array  # |X| x |Y|
    chain: MarkovChain | None = None  # whose states it looks at, where these are not the model's
    shown: NDArray[np.float64] | None = None  # where its releases lie; None: they are the model's

    def problem(self, chain: MarkovChain) -> Problem:
        return Problem(self.chain or chain, self.distortion, Average(weight=1.0))


@dataclass(frozen=True)
class Emulation:
    """A family of policies, one for each setting."""

    name: str
    what: str  # it does, in a sentence
    source: str  # whose public description it follows
    on: str  # MAP, VALUES or ANY
    make: Callable[[Utility, float], Made]
    setting: str  # what its number is
    settings: tuple[float, ...]  # that are judged where none is asked for
    unit: str = ""  # of the setting; VALUE: that of the values
    of_blind: bool = False  # whether `settings` are shares of the error of revealing nothing
    whole: bool = False  # whether settings are whole numbers

    def fits(self, utility: Utility) -> bool:
        """Whether it can be put on such data."""
        states = None if utility.cost is None else utility.cost.states
        kind = ANY if states is None or states.kind == "names" else MAP if states.is_map else VALUES
        return self.on in (ANY, kind)

    def unit_of(self, utility: Utility) -> str:
        return utility.unit if self.unit == VALUE else self.unit

    def usual(self, utility: Utility) -> list[float]:
        """The settings that are judged where none is asked for."""
        return [s * utility.blind for s in self.settings] if self.of_blind else list(self.settings)

    def read(self, text: str, utility: Utility) -> float:
        """A setting as somebody writes it."""
        found = parse_quantity(text, self.unit_of(utility), f"mechanism {self.name}:")
        if found <= 0:
            raise InputError(f"mechanism {self.name}: {self.setting} must be larger than zero, found {text!r}")
        return found

    def met(self, utility: Utility, error: float) -> Controller:
        """The setting with the largest mean error up to this one (else the least), showing the model's releases; of
        what it draws once, the first draw."""
        usual = self.usual(utility)[0]
        settings = np.arange(1.0, MOST_WHOLE) if self.whole else np.geomspace(usual / WIDE, usual * WIDE, TRIES)
        found = []
        for setting in settings:
            try:
                made = on_releases(self.make(utility, float(setting)), utility)
            except InputError:  # of settings that it cannot have
                continue
            if made.chain is not None:
                raise InputError(f"mechanism {self.name} looks at several steps; veil judge can put it beside ours")
            found.append((rates(made.problem(utility.chain), made.policies[0]).distortion, made.policies[0]))
        within = [one for one in found if one[0] <= error * (1 + CLOSE)]
        return max(within or [min(found, key=lambda one: one[0])], key=lambda one: one[0])[1]

    def label(self, setting: float, utility: Utility) -> str:
        return f"{self.name} {setting:.3g} {self.unit_of(utility)}".rstrip()


VALUE = "value"
MOST_WHOLE, WIDE, TRIES, CLOSE = 32, 50, 60, 1e-3


def on_releases(made: Made, utility: Utility) -> Made:
    """The same, every release of its own moved to the nearest of the model's."""
    if made.shown is None:
        return made
    to = np.eye(utility.distortion.shape[1])[releases_of(utility).encode(made.shown)]
    first = made.policies[0].channel(np.asarray(0))  # what has points of its own has no memory
    return Made([Controller.of_table(first @ to)], utility.distortion)


def places_of(utility: Utility) -> StateSpace:
    """The states; asked by mechanisms that fit alone."""
    assert utility.cost is not None
    return utility.cost.states


def distances_to(utility: Utility, shown: NDArray[np.float64]) -> Array:
    """From the readings of every state, or its centre where there are none, to points of a mechanism's own."""
    states, cost = places_of(utility), utility.cost
    assert cost is not None
    names = tuple(map(str, range(len(shown))))
    edges = None if states.is_map else np.arange(len(shown) - 1.0)  # nothing is encoded by these
    own = replace(cost, shown=StateSpace("grid" if states.is_map else "bins", shown, names, states.unit, edges))
    if utility.record is None:
        return own.distances_from(states.coordinates)
    return utility.record.felt(states, 1.0, own)[0]


def showing(utility: Utility, draws: NDArray[np.float64]) -> Made:
    """Every state shows a point of its own: draws x |X| x coordinates."""
    shown, at = np.unique(draws.reshape(-1, draws.shape[-1]), axis=0, return_inverse=True)
    table = np.eye(len(shown))[at.reshape(draws.shape[:2])]
    return Made([on_states(utility, a) for a in table], distances_to(utility, shown), shown=shown)


def on_states(utility: Utility, a: Array) -> Controller:
    """The channel of symbols, |X| x |Y|, as one of the chain's states."""
    return Controller.of_table(a[utility.chain.symbols])


def releases_of(utility: Utility) -> StateSpace:
    """What the model itself releases: its public points, or its states."""
    return places_of(utility) if utility.points is None else utility.points


def law_of(utility: Utility) -> Array:
    """The share of time of each symbol."""
    return np.bincount(utility.chain.symbols, utility.chain.stationary, utility.chain.n_symbols).astype(float)
