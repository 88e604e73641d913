"""veilstream: share a time series and reveal as little as possible.

Names are imported when first used, so that a gateway that only releases loads no solver.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for those who read types; a test holds it against the table below
    from veilstream.artefact import Artefact, load, save
    from veilstream.core.belief import BeliefPolicy
    from veilstream.core.builtin import builtin, builtin_problem
    from veilstream.core.chain import MarkovChain
    from veilstream.core.evaluate import Evaluation, evaluate
    from veilstream.core.local.policy import LocalPolicy
    from veilstream.core.policy import Policy
    from veilstream.core.problem import Average, Both, Budget, Instantaneous, Problem
    from veilstream.core.release import Releaser, release_many
    from veilstream.core.schedule import Schedule
    from veilstream.core.window import WindowPolicy
    from veilstream.data.recording import Recording
    from veilstream.data.states import StateSpace
    from veilstream.errors import ImpossibleObservation, InputError
    from veilstream.solvers import Solution, curve, solve

_HOMES = {
    "veilstream.artefact": ["Artefact", "load", "save"],
    "veilstream.core.builtin": ["builtin", "builtin_problem"],
    "veilstream.core.chain": ["MarkovChain"],
    "veilstream.core.evaluate": ["Evaluation", "evaluate"],
    "veilstream.core.belief": ["BeliefPolicy"],
    "veilstream.core.local.policy": ["LocalPolicy"],
    "veilstream.core.policy": ["Policy"],
    "veilstream.core.problem": ["Average", "Both", "Budget", "Instantaneous", "Problem"],
    "veilstream.data.recording": ["Recording"],
    "veilstream.data.states": ["StateSpace"],
    "veilstream.errors": ["ImpossibleObservation", "InputError"],
    "veilstream.core.release": ["Releaser", "release_many"],
    "veilstream.core.schedule": ["Schedule"],
    "veilstream.core.window": ["WindowPolicy"],
    "veilstream.solvers": ["Solution", "curve", "solve"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__version__: str
__all__ = [
    "Artefact",
    "Average",
    "BeliefPolicy",
    "Both",
    "Budget",
    "Evaluation",
    "ImpossibleObservation",
    "InputError",
    "Instantaneous",
    "LocalPolicy",
    "MarkovChain",
    "Policy",
    "Problem",
    "Recording",
    "Releaser",
    "Schedule",
    "Solution",
    "StateSpace",
    "WindowPolicy",
    "__version__",
    "builtin",
    "builtin_problem",
    "curve",
    "evaluate",
    "load",
    "release_many",
    "save",
    "solve",
]


def _register_environment() -> None:
    """Gymnasium has no plug-ins: where it is loaded, its registry learns the name of our environment."""
    gymnasium, name = sys.modules.get("gymnasium"), "veilstream/BeliefRelease-v0"
    if gymnasium is not None and name not in getattr(gymnasium, "registry", {name: None}):
        gymnasium.register(name, entry_point="veilstream.learning.env:BeliefRelease")


_register_environment()


def _version() -> str:
    """Of the installed package; pyproject.toml is the one place where it is written."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("veilstream")
    except PackageNotFoundError:  # run from a source tree
        return "0"


def __getattr__(name: str) -> Any:
    _register_environment()
    if name == "__version__":
        return _version()
    if name not in _HOME:
        raise AttributeError(f"module 'veilstream' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
