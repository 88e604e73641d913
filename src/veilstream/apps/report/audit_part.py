"""The audit as a part of the report: what adversaries get out of the releases, and whether the file's claim holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilstream.control.replay import OnCourse
from veilstream.errors import InputError
from veilstream.solvers.solution import Progress

if TYPE_CHECKING:
    from veilstream.artefact import Artefact
    from veilstream.audit.source import LaterData
    from veilstream.audit.tables import Sheet

DEPTHS = ("quick", "full", "none")


@dataclass(frozen=True)
class AuditPart:
    """In words and tables; `words` alone where there was no audit, to say why."""

    words: str
    stands: bool | None = None
    sheets: list[Sheet] = field(default_factory=list)
    warnings: tuple[str, ...] = ()


def audit_part(
    artefact: Artefact,
    recorded: Sequence[NDArray[np.int64]] | None,
    depth: str = "quick",
    seed: int = 0,
    progress: Progress | None = None,
    record: OnCourse | None = None,
    first: Sequence[int] | NDArray[np.int64] | None = None,
    later: LaterData | None = None,
) -> AuditPart:
    """quick: the exact adversaries; full: learned ones too, which takes minutes; none: a word instead."""
    if depth not in DEPTHS:
        raise InputError(f"the audit must be one of {', '.join(DEPTHS)}, found {depth!r}")
    if depth == "none":
        return AuditPart("No audit was asked for.")
    from veilstream.audit.assemble import audit_artefact
    from veilstream.audit.settings import Options
    from veilstream.audit.tables import sheets

    options = Options(seed=seed)
    assert artefact.problem is not None  # collect saw to it
    try:
        found = audit_artefact(
            artefact,
            sequences=recorded,
            record=record,
            later=later,
            first=first,
            name="this policy",
            against=["planar-laplace"] if artefact.problem.allowed.all() else [],
            options=options if depth == "full" else options.quick(),
            progress=progress,
        )
    except InputError as error:
        return AuditPart(f"No audit was possible: {error}.")
    return AuditPart(found.words, found.stands, sheets(found), found.warnings)
