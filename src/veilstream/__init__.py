"""veilstream: share a time series and reveal as little as possible.

Names are imported when first used, so that a gateway that only releases loads no solver.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for those who read types; a test holds it against the table below
    from veilstream.apps.verbs.advise import Advice as Advice
    from veilstream.apps.verbs.advise import advise as advise
    from veilstream.apps.verbs.audit import audit as audit
    from veilstream.apps.verbs.judge import judge as judge
    from veilstream.apps.verbs.release import release as release
    from veilstream.apps.verbs.report import Report as Report
    from veilstream.apps.verbs.report import report as report
    from veilstream.artefact import Artefact as Artefact
    from veilstream.artefact import load as load
    from veilstream.artefact import save as save
    from veilstream.audit.judge import Judgement as Judgement
    from veilstream.audit.verdict import Assessment as Assessment
    from veilstream.control.belief import BeliefPolicy as BeliefPolicy
    from veilstream.control.controller import Controller as Controller
    from veilstream.control.controller import schedule as schedule
    from veilstream.control.evaluate import Evaluation as Evaluation
    from veilstream.control.evaluate import evaluate as evaluate
    from veilstream.control.policy import Policy as Policy
    from veilstream.control.release import Releaser as Releaser
    from veilstream.control.release import release_many as release_many
    from veilstream.data.fit import fit as fit
    from veilstream.data.model import FittedModel as FittedModel
    from veilstream.data.spec import Recording as Recording
    from veilstream.data.states import StateSpace as StateSpace
    from veilstream.errors import ImpossibleObservation as ImpossibleObservation
    from veilstream.errors import InputError as InputError
    from veilstream.model.builtin import builtin as builtin
    from veilstream.model.builtin import builtin_problem as builtin_problem
    from veilstream.model.chain import MarkovChain as MarkovChain
    from veilstream.model.problem import (
        Average as Average,
    )
    from veilstream.model.problem import (
        Both as Both,
    )
    from veilstream.model.problem import (
        Budget as Budget,
    )
    from veilstream.model.problem import (
        Instantaneous as Instantaneous,
    )
    from veilstream.model.problem import (
        Problem as Problem,
    )
    from veilstream.solvers.api import Curve as Curve
    from veilstream.solvers.api import curve as curve
    from veilstream.solvers.api import solve as solve
    from veilstream.solvers.solution import Solution as Solution
    from veilstream.solvers.start import Started as Started
    from veilstream.solvers.start import start as start

_HOMES = {
    "veilstream.apps.verbs.advise": ["Advice", "advise"],
    "veilstream.apps.verbs.audit": ["audit"],
    "veilstream.apps.verbs.judge": ["judge"],
    "veilstream.apps.verbs.release": ["release"],
    "veilstream.apps.verbs.report": ["Report", "report"],
    "veilstream.artefact": ["Artefact", "load", "save"],
    "veilstream.audit.judge": ["Judgement"],
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
    "veilstream.data.spec": ["Recording"],
    "veilstream.data.states": ["StateSpace"],
    "veilstream.errors": ["ImpossibleObservation", "InputError"],
    "veilstream.control.release": ["Releaser", "release_many"],
    "veilstream.solvers.api": ["Curve", "curve", "solve"],
    "veilstream.solvers.solution": ["Solution"],
    "veilstream.solvers.start": ["Started", "start"],
}
_EXTRA = {"polars": "data", "sklearn": "data"}  # where the libraries are that some names need
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__version__: str
__all__ = sorted([*_HOME, "__version__"])  # checkers read the imports above


def _register_environment() -> None:
    """Gymnasium has no plug-ins: where it is loaded, its registry learns the name of our environment."""
    gymnasium, name = sys.modules.get("gymnasium"), "veilstream/BeliefRelease-v0"
    if gymnasium is not None and name not in getattr(gymnasium, "registry", {name: None}):
        env = "veilstream.deep.env:BeliefRelease"
        gymnasium.register(name, env, vector_entry_point=f"{env}s")


_register_environment()


def _version() -> str:
    """Version of the installed package, which has it from the last tag."""
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
