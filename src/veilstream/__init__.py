"""veilstream: share a time series and reveal as little as possible.

Names are imported when first used, so that a gateway that only releases loads no solver.
"""

import sys
from importlib import import_module
from typing import Any

_HOMES = {
    "veilstream.artefact": ["Artefact", "load", "save"],
    "veilstream.builtin": ["builtin_problem"],
    "veilstream.chain": ["MarkovChain"],
    "veilstream.errors": ["ImpossibleObservation", "InputError"],
    "veilstream.local_policy": ["LocalPolicy"],
    "veilstream.policy": ["BeliefPolicy", "Schedule", "WindowPolicy"],
    "veilstream.problem": ["Average", "Both", "Budget", "Instantaneous", "Problem"],
    "veilstream.release": ["Releaser", "release_many"],
    "veilstream.solvers": ["Solution", "curve", "solve"],
    "veilstream.states": ["StateSpace"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

# modules that share their name with the function they hold: bound now, or importing the module would hide it
from veilstream.builtin import builtin  # noqa: E402
from veilstream.evaluate import Evaluation, evaluate  # noqa: E402

__all__ = ["Evaluation", "builtin", "evaluate", *_HOME]


def _register_environment() -> None:
    """Gymnasium has no plug-ins: where it is loaded, its registry learns the name of our environment."""
    gymnasium, name = sys.modules.get("gymnasium"), "veilstream/BeliefRelease-v0"
    if gymnasium is not None and name not in getattr(gymnasium, "registry", {name: None}):
        gymnasium.register(name, entry_point="veilstream.env:BeliefRelease")


_register_environment()


def __getattr__(name: str) -> Any:
    _register_environment()
    if name not in _HOME:
        raise AttributeError(f"module 'veilstream' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
