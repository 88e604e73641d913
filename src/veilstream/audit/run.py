"""The whole audit of one policy: both settings, every adversary, the baselines at equal mean distortion."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from veilstream.artefact import Artefact
from veilstream.audit.settings import Options, Progress, Setting, Subject, examine
from veilstream.audit.traces import Ints, release, sampled
from veilstream.control.mechanism import check_fits
from veilstream.control.policy import Policy
from veilstream.errors import InputError
from veilstream.model.histories import TrueStates
from veilstream.model.problem import Average
from veilstream.solvers import solve
from veilstream.solvers.solution import mean_distortion

MAX_CELLS = 30_000_000  # numbers in one array of beliefs


@dataclass(frozen=True, eq=False)
class Audited:
    """A policy under audit, in one or two settings."""

    name: str
    leakage: float | None  # claimed, bits per step
    distortion: float
    settings: list[Setting]

    def to_json(self) -> dict[str, Any]:
        own = {"policy": self.name, "leakage": self.leakage, "distortion": self.distortion}
        return {**own, "settings": [s.to_json() for s in self.settings]}


def within(progress: Progress | None, first: float, last: float, label: str = "") -> Progress:
    """A part of the progress bar."""

    def tell(done: float, what: str) -> None:
        if progress:
            progress(first + (last - first) * done, label + what)

    return tell


def under_audit(
    what: Subject, policy: Policy, name: str, claimed: float | None, options: Options, progress: Progress
) -> Audited:
    """One policy in every setting there is data for."""
    chain = what.problem.chain
    half = 1.0 if what.sequences is None else 0.5
    data = sampled(chain, policy, options.steps, options.streams, options.seed)
    if options.burn_in >= options.steps:
        raise InputError(f"{options.steps} steps are too few to look back {max(options.lookbacks)}")
    settings = [examine(what, policy, data, "chain", options.burn_in, options, within(progress, 0, half))]
    if what.sequences is not None:
        paths = list(map(TrueStates.of(chain).along, what.sequences))
        copies = int(np.clip(MAX_CELLS // (sum(map(len, paths)) * len(chain)), 1, options.copies))
        data = release(policy, paths, copies, options.seed + 1, what.first)
        start = max(options.lookbacks)
        settings.append(examine(what, policy, data, "traces", start, options, within(progress, half, 1)))
    return Audited(name, claimed, mean_distortion(what.problem, policy), settings)


@dataclass(frozen=True, eq=False)
class Audit:
    """Everything an audit found; `verdict` puts it into words."""

    policy: Audited
    against: list[Audited]
    seconds: float
    options: Options
    unit: str = ""  # of distances between states
    cost_unit: str = ""  # of the distortion


def audit(
    artefact: Artefact,
    recorded: Sequence[Ints] | None = None,
    first: Sequence[int] | Ints | None = None,
    *,
    name: str = "policy",
    claimed: float | None = None,
    against: Sequence[str] = (),
    options: Options | None = None,
    progress: Progress | None = None,
) -> Audit:
    """What adversaries learn from a policy's releases, and from those of other methods at equal mean distortion.

    first: the public number of the first step of every recorded trace, for a chain with a clock.
    """
    started = time.perf_counter()
    options = options or Options()
    policy, problem = artefact.policy, artefact.problem
    if policy is None or problem is None:
        raise InputError("this file is a model without a policy; run `veil solve` on it first")
    check_fits(policy, problem)
    what = Subject(artefact)
    if recorded is not None:
        what = Subject.of(artefact, recorded, first, max(options.lookbacks))
    parts = 1 + len(against)
    own = under_audit(what, policy, name, claimed, options, within(progress, 0, 1 / parts))
    others = []
    for i, method in enumerate(against, 1):
        bar = within(progress, i / parts, (i + 1) / parts, f"{method}: ")
        bar(0.0, f"solving at {own.distortion:.4g} {artefact.unit}")
        equal = problem.under(Average(limit=own.distortion))
        other = solve(equal, method, seed=options.seed)
        others.append(under_audit(what, other.policy, method, other.leakage, replace(options, truth=False), bar))
    unit = "" if artefact.states is None else artefact.states.unit
    return Audit(own, others, time.perf_counter() - started, options, unit, artefact.unit)
