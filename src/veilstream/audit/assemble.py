"""The whole audit of a policy file: every adversary on data from the chain and on recorded data, the same for other
methods at equal mean distortion, and the file's claim against what was found."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from veilstream.artefact import Artefact
from veilstream.audit.settings import Subject, examine
from veilstream.audit.source import Recorded
from veilstream.audit.spec import AuditSpec
from veilstream.audit.traces import release, sampled
from veilstream.audit.verdict import Assessment, Audited, claim_of
from veilstream.control.mechanism import check_fits
from veilstream.control.policy import Policy
from veilstream.errors import InputError
from veilstream.model.histories import TrueStates
from veilstream.model.problem import Average
from veilstream.shown import Progress, within
from veilstream.solvers import solve
from veilstream.solvers.solution import mean_distortion
from veilstream.solvers.warnings import about_data, about_policy

MAX_CELLS = 30_000_000  # numbers in one array of beliefs


def audit_artefact(
    artefact: Artefact,
    data: Recorded | None = None,
    options: AuditSpec | None = None,
    *,
    name: str | None = None,
    progress: Progress | None = None,
) -> Assessment:
    """What adversaries learn from the releases of a policy file, and from those of other methods.

    name: what to call the policy; by default the method that made it.
    """
    started, options = time.perf_counter(), options or AuditSpec(quick=False)
    policy, problem = artefact.answer()
    data = data or Recorded.nothing(artefact)
    claim = claim_of(artefact.provenance, problem, policy)
    warnings = [] if claim is None else about_policy(claim.leakage, problem.chain)
    check_fits(policy, problem)
    what, parts = Subject(artefact), 1 + len(options.against)
    if data.sequences is not None:
        what = Subject.of(artefact, data.sequences, data.first, max(options.lookbacks))
    claimed = None if claim is None else claim.leakage
    own = under_audit(what, policy, name or method_of(artefact), claimed, options, within(progress, 0, 1 / parts))
    others = []
    for i, method in enumerate(options.against, 1):
        bar = within(progress, i / parts, (i + 1) / parts, f"{method}: ")
        bar(0.0, f"solving at {own.distortion:.4g} {artefact.unit}")
        other = solve(problem.under(Average(limit=own.distortion)), method, seed=options.seed)
        others.append(under_audit(what, other.policy, method, other.leakage, replace(options, truth=False), bar))
    lines = (*warnings, *data.warnings, *about_data(artefact.provenance))
    return Assessment(artefact, own, others, options, claim, lines, data, time.perf_counter() - started)


def under_audit(
    what: Subject, policy: Policy, name: str, claimed: float | None, options: AuditSpec, progress: Progress
) -> Audited:
    """One policy in every setting there is data for."""
    chain = what.problem.chain
    half = 1.0 if what.sequences is None else 0.5
    streams, steps, copies = options.sizes
    data = sampled(chain, policy, steps, streams, options.seed)
    if options.burn_in >= steps:
        raise InputError(
            f"streams of {steps} steps are too short for a look-back of {max(options.lookbacks)}; give steps="
            f"{options.burn_in + 1} or more"
        )
    settings = [examine(what, policy, data, "chain", options.burn_in, options, within(progress, 0, half))]
    if what.sequences is not None:
        paths = list(map(TrueStates.of(chain).along, what.sequences))
        copies = int(np.clip(MAX_CELLS // (sum(map(len, paths)) * len(chain)), 1, copies))
        data = release(policy, paths, copies, options.seed + 1, what.first)
        start = max(options.lookbacks)
        settings.append(examine(what, policy, data, "traces", start, options, within(progress, half, 1)))
    return Audited(name, claimed, mean_distortion(what.problem, policy), settings)


def method_of(artefact: Artefact) -> str:
    """The method that the file says made it; what it says may be anything."""
    said = artefact.provenance.get("solution")
    name = str(said.get("method", "policy")) if isinstance(said, dict) else "policy"
    return name[:40] if name.isprintable() else "policy"
