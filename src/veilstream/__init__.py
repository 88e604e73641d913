"""veilstream: share a time series and reveal as little as possible.

Names are imported when first used, so that a gateway that only releases loads no solver.
"""

import sys
from importlib import import_module
from typing import Any

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

__all__ = ["__version__", *_HOME]
__version__: str


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
