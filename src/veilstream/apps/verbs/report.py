"""`vs.report`: one page about a policy that a person can open, read and print."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from veilstream.apps.report import anywhere, audiences
from veilstream.apps.report.content import Content, collect
from veilstream.apps.report.page import render
from veilstream.apps.report.words import verdict
from veilstream.apps.specs import ReportSpec
from veilstream.audit.assemble import audit_artefact
from veilstream.audit.audiences import Audiences, audit_audiences
from veilstream.audit.source import Recorded
from veilstream.audit.spec import AuditSpec
from veilstream.audit.verdict import Assessment
from veilstream.container import check_writable, write
from veilstream.control.frame_ladder import Framed
from veilstream.control.limit_check import limits_json
from veilstream.data.fit import read_as_fitted
from veilstream.data.spec import documented
from veilstream.errors import InputError, need
from veilstream.shown import Progress, Rows, Shown, watching
from veilstream.solvers.api import artefact_of


@dataclass(frozen=True, eq=False, repr=False)
class Report(Shown):
    """A page that was written, and what is on it; `report` makes it.

    >>> import tempfile, veilstream as vs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     solution = vs.solve("builtin:binary", avg=0.1)
    ...     page = vs.report(solution, out=f"{folder}/a.html", shareable=True, points=3, seconds=0, audit="none")
    >>> page.private, page.size < 10**6
    (False, True)
    """

    path: Path
    size: int  # bytes
    private: bool
    content: Content | Assessment | Audiences  # an assessment where nobody's chain is behind the policy

    @property
    def verdict(self) -> str:
        """Every limit on later data first, then what is revealed."""
        if not isinstance(self.content, Content):
            return self.content.words
        limits = [check.words for check in self.content.limits]
        return " ".join([*limits, *self.content.changed, verdict(self.content)[0]])

    def to_json(self) -> dict[str, Any]:
        page = {"report": str(self.path), "bytes": self.size, "private": self.private}
        if not isinstance(self.content, Content):
            return {**page, **self.content.to_json()}
        content, own = self.content, self.content.own
        return {
            **page,
            "leakage": own.point.leakage,
            "distortion": own.point.distortion,
            "leakage_lower": own.point.leakage_lower,
            **({} if own.point.record is None else own.point.record.to_json()),
            **({} if content.later is None else content.later.to_json()),
            **limits_json(content.limits),
            "level": str(own.point.level),
            "verdict": self.verdict,
            "warnings": content.warnings,
            "audit_stands": None if isinstance(content.audit, str) else content.audit.stands,
        }

    def about(self) -> tuple[str, Rows]:
        kind = "PRIVATE" if self.private else "shareable"
        rows = [("verdict", self.verdict), *(("!", line) for line in self.content.warnings)]
        return f"{kind}, {self.size / 1e6:.1f} MB in {self.path}; open it in a browser", rows


def report(
    policy: Any,
    data: Any = None,
    out: str | os.PathLike[str] = "report.html",
    *,
    spec: ReportSpec | None = None,
    progress: Progress | bool | None = None,
    **options: Any,
) -> Report:
    """Write one self-contained page: what the policy reveals, what it costs, and how sure that is.

    policy is a `Solution`, an `Artefact` or the path of a policy file; data what `fit` takes. A page with data shows
    recorded traces and is PRIVATE; shareable draws its traces from the chain instead. Of a policy behind another it is
    about all audiences.

        >>> import tempfile, veilstream as vs
        >>> solution = vs.solve("builtin:binary", avg=0.1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = vs.report(solution, out=f"{folder}/page.html", shareable=True, points=3, seconds=0, audit="none")
        ...     page.path.read_text()[:15]
        '<!doctype html>'

    spec holds the choices below, as a `ReportSpec`; those given by name win over it.

    CHOICES
    """
    spec = replace(spec or ReportSpec(), **options)
    if data is None and not spec.shareable:
        raise InputError(
            "the report shows recorded traces: give `data='SOURCE'`, or `shareable=True` for traces of the chain"
        )
    artefact = artefact_of(policy, "no policy file {!r}; make one with veil solve MODEL --avg 1km -o FILE")
    path = Path(out)
    check_writable(path, "report.html")
    for library in ("jax", "optax") if spec.audit == "full" else ():
        need(library, "deep", "; or `audit='quick'`, which trains no network")
    with watching("report", progress) as tell:
        given, person = Recorded.nothing(artefact), artefact.person
        if data is not None:
            given = Recorded.of(person, read_as_fitted(person.provenance, data, spec))
        content: Content | Assessment | Audiences
        if artefact.finer is not None:
            own = Recorded.nothing(artefact) if spec.shareable else given
            content = audit_audiences(artefact, own, AuditSpec(seed=spec.seed), tell)
        elif isinstance(artefact.policy, Framed):
            given = replace(Recorded.nothing(artefact), later=given.later) if spec.shareable else given
            content = audit_artefact(artefact, given, AuditSpec(seed=spec.seed), progress=tell)
        else:
            content = collect(artefact, given, spec, tell)
    drawn = render(content) if isinstance(content, Content) else RENDER[type(content)](content, spec)
    write(path, page := drawn.encode())
    return Report(path, len(page), not spec.shareable, content)


RENDER: dict[type, Callable[..., str]] = {Assessment: anywhere.render, Audiences: audiences.render}
documented(report, ReportSpec)
