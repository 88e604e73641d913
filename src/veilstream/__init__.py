"""veilstream: share a time series and reveal as little as possible.

Names are imported when first used, so that a gateway that only releases loads no solver.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for those who read types; a test holds it against the table below
    from veilstream.apps.verbs.advise import Advice, advise
    from veilstream.apps.verbs.audit import audit
    from veilstream.apps.verbs.release import release
    from veilstream.apps.verbs.report import Report, report
    from veilstream.apps.verbs.transformer import ReleaseTransformer
    from veilstream.artefact import Artefact, load, save
    from veilstream.audit.verdict import Assessment
    from veilstream.control.belief import BeliefPolicy
    from veilstream.control.controller import Controller, schedule
    from veilstream.control.evaluate import Evaluation, evaluate
    from veilstream.control.mechanism import Releaser, release_many
    from veilstream.control.policy import Policy
    from veilstream.data.fit import fit
    from veilstream.data.model import FittedModel
    from veilstream.data.recording import Recording
    from veilstream.data.states import StateSpace
    from veilstream.errors import ImpossibleObservation, InputError
    from veilstream.model.builtin import builtin, builtin_problem
    from veilstream.model.chain import MarkovChain
    from veilstream.model.problem import Average, Both, Budget, Instantaneous, Problem
    from veilstream.solvers.api import curve, solve
    from veilstream.solvers.curves import Curve
    from veilstream.solvers.solution import Solution

_HOMES = {
    "veilstream.apps.verbs.advise": ["Advice", "advise"],
    "veilstream.apps.verbs.audit": ["audit"],
    "veilstream.apps.verbs.release": ["release"],
    "veilstream.apps.verbs.report": ["Report", "report"],
    "veilstream.apps.verbs.transformer": ["ReleaseTransformer"],
    "veilstream.artefact": ["Artefact", "load", "save"],
    "veilstream.audit.verdict": ["Assessment"],
    "veilstream.model.builtin": ["builtin", "builtin_problem"],
    "veilstream.model.chain": ["MarkovChain"],
    "veilstream.control.controller": ["Controller", "schedule"],
    "veilstream.control.evaluate": ["Evaluation", "evaluate"],
    "veilstream.control.belief": ["BeliefPolicy"],
    "veilstream.control.policy": ["Policy"],
    "veilstream.model.problem": ["Average", "Both", "Budget", "Instantaneous", "Problem"],
    "veilstream.data.fit": ["fit"],
    "veilstream.data.model": ["FittedModel"],
    "veilstream.data.recording": ["Recording"],
    "veilstream.data.states": ["StateSpace"],
    "veilstream.errors": ["ImpossibleObservation", "InputError"],
    "veilstream.control.mechanism": ["Releaser", "release_many"],
    "veilstream.solvers.api": ["curve", "solve"],
    "veilstream.solvers.curves": ["Curve"],
    "veilstream.solvers.solution": ["Solution"],
}
_EXTRA = {"polars": "data", "sklearn": "data"}  # where the libraries are that some names need
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__version__: str
__all__ = [
    "Advice",
    "Artefact",
    "Assessment",
    "Average",
    "BeliefPolicy",
    "Both",
    "Budget",
    "Controller",
    "Curve",
    "Evaluation",
    "FittedModel",
    "ImpossibleObservation",
    "InputError",
    "Instantaneous",
    "MarkovChain",
    "Policy",
    "Problem",
    "Recording",
    "ReleaseTransformer",
    "Releaser",
    "Report",
    "Solution",
    "StateSpace",
    "__version__",
    "advise",
    "audit",
    "builtin",
    "builtin_problem",
    "curve",
    "evaluate",
    "fit",
    "load",
    "release",
    "release_many",
    "report",
    "save",
    "schedule",
    "solve",
]


def _register_environment() -> None:
    """Gymnasium has no plug-ins: where it is loaded, its registry learns the name of our environment."""
    gymnasium, name = sys.modules.get("gymnasium"), "veilstream/BeliefRelease-v0"
    if gymnasium is not None and name not in getattr(gymnasium, "registry", {name: None}):
        gymnasium.register(name, entry_point="veilstream.deep.env:BeliefRelease")


_register_environment()


def _version() -> str:
    """Of the installed package, which has it from the last tag."""
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
    try:
        home = import_module(_HOME[name])
    except ModuleNotFoundError as missing:
        extra = _EXTRA.get((missing.name or "").partition(".")[0])
        if extra is None:
            raise
        from veilstream.errors import InputError

        line = f"veilstream.{name} needs {missing.name}: pip install 'veilstream[{extra}]'"
        raise InputError(line) from None
    return getattr(home, name)


class _Package(ModuleType):
    """`audit` is a room of the package and a verb of its users: imports find the room, an attribute is the verb."""

    @property
    def audit(self) -> Any:
        return __getattr__("audit")

    @audit.setter
    def audit(self, room: ModuleType) -> None:
        """By `import veilstream.audit`; imports look in `sys.modules`, so nothing is lost."""


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted(__all__)
