"""What needs no map: the shapes of `solvers.baselines`, in the setting that has a given mean error."""

from functools import partial

from veilstream.audit.mechanisms.mechanism import ANY, VALUE, Emulation, Made
from veilstream.control.controller import Controller
from veilstream.data.utility import Utility
from veilstream.model.problem import Average
from veilstream.solvers.baselines import Baseline


def make(shape: str, utility: Utility, error: float) -> Made:
    limit = Average(limit=error)
    found = Baseline(shape, streams=2, steps=1).meet(utility.problem(limit), limit)
    assert found is not None and isinstance(found[0].policy, Controller)
    return Made([found[0].policy], utility.distortion)


MECHANISMS = [
    Emulation(name, what, source, ANY, partial(make, name), "the mean error", (0.5,), VALUE, of_blind=True)
    for name, what, source in (
        (
            "planar-laplace",
            "shows a state with a probability that falls exponentially with its distance",
            "planar Laplace on a finite set: the exponential mechanism, McSherry and Talwar, FOCS 2007",
        ),
        (
            "randomised-response",
            "shows the truth, or with some probability any state at all",
            "Warner, JASA 1965; k-ary as in Kairouz et al., NIPS 2014",
        ),
        ("rounding", "shows the middle of a zone of states", "spatial cloaking by fixed zones (k-median)"),
    )
]
