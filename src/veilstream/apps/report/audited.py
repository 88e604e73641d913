"""The audit as a part of the report: what adversaries get out of the releases, and whether the claim stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilstream.errors import InputError
from veilstream.solvers.solution import Progress

if TYPE_CHECKING:
    from veilstream.artefact import Artefact
    from veilstream.audit.tables import Sheet

DEPTHS = ("quick", "full", "none")


@dataclass(frozen=True)
class Audited:
    """In words and tables; `words` alone where there was no audit, to say why."""

    words: str
    stands: bool | None = None
    sheets: list[Sheet] = field(default_factory=list)


def audited(
    artefact: Artefact,
    recorded: Sequence[NDArray[np.int64]] | None,
    depth: str = "quick",
    seed: int = 0,
    progress: Progress | None = None,
) -> Audited:
    """quick: the exact adversaries; full: learned ones too, which takes minutes; none: a word instead."""
    if depth not in DEPTHS:
        raise InputError(f"the audit must be one of {', '.join(DEPTHS)}, found {depth!r}")
    if depth == "none":
        return Audited("No audit was asked for.")
    from veilstream.audit import Options, audit, check, claim_of, verdict
    from veilstream.audit.tables import sheets

    assert artefact.problem is not None  # collect saw to it
    assert artefact.policy is not None
    states, options = artefact.states, Options(seed=seed)
    claim = claim_of(artefact.provenance, artefact.problem, artefact.policy)
    try:
        found = audit(
            artefact.problem,
            artefact.policy,
            recorded,
            name="this policy",
            claimed=None if claim is None else claim.leakage,
            distances=None if states is None else states.distances(),
            names=() if states is None else states.names,
            unit="" if states is None else states.unit,
            against=["planar-laplace"] if artefact.problem.allowed.all() else [],
            options=options if depth == "full" else options.quick(),
            progress=progress,
        )
    except InputError as error:
        return Audited(f"No audit was possible: {error}.")
    return Audited(verdict(found, claim, artefact.chain), check(found, claim).stands, sheets(found))
