"""`vs.report`: one page about a policy that a person can open, read and print."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilstream.apps.report.card import chain_card, data_card
from veilstream.apps.report.content import Content, collect
from veilstream.apps.report.page import render
from veilstream.apps.report.spec import ReportSpec
from veilstream.apps.report.words import verdict
from veilstream.apps.verbs.flags import in_flags
from veilstream.artefact import Artefact
from veilstream.audit.source import LaterData, later_data
from veilstream.container import check_writable, write
from veilstream.control.limit_check import limits_json
from veilstream.data.reader_options import read_as_fitted
from veilstream.data.spec import DataSpec, documented
from veilstream.errors import InputError, need
from veilstream.shown import Progress, Rows, Shown, watching
from veilstream.solvers.api import artefact_of

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    from veilstream.control.replay import Course


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
    content: Content
    later: LaterData | None = None

    @property
    def verdict(self) -> str:
        """Every limit on later data first, then what is revealed."""
        limits = [check.words for check in self.content.limits]
        return " ".join([*limits, *self.content.changed, verdict(self.content)[0]])

    def to_json(self) -> dict[str, Any]:
        content, own = self.content, self.content.own
        return {
            "report": str(self.path),
            "bytes": self.size,
            "private": self.private,
            "leakage": own.point.leakage,
            "distortion": own.point.distortion,
            "leakage_lower": own.low,
            **({} if own.record is None else own.record.to_json()),
            **({} if self.later is None else self.later.to_json()),
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
    recorded traces and is PRIVATE; shareable draws its traces from the chain instead.

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
    check_writable(path)
    for library in ("jax", "optax") if spec.audit == "full" else ():
        need(library, "deep", "; or `audit='quick'`, which trains no network")
    with watching("report", progress) as tell:
        sequences, first, card, account, course, later = recorded(artefact, data, spec)
        content = collect(artefact, sequences, spec, card, account, tell, course, first, later)
    write(path, page := render(content).encode())
    return Report(path, len(page), not spec.shareable, content, later)


documented(report, ReportSpec)


def recorded(
    artefact: Artefact, data: Any, spec: DataSpec
) -> tuple[
    list[NDArray[int64]] | None,
    NDArray[int64] | None,
    list[tuple[str, str]],
    list[dict[str, Any]],
    Course | None,
    LaterData | None,
]:
    """Recorded symbols and their first steps, the data card, the account of the cleaning, the streams with their
    readings, and what became of them later."""
    if data is None:
        return None, None, chain_card(artefact), [], None, later_data(artefact)
    from veilstream.audit.source import course_of, recorded_runs

    readings = read_as_fitted(artefact.provenance, data, spec)
    runs = recorded_runs(readings, artefact)
    sequences = runs.sequences
    later = later_data(artefact, runs)  # numbers, which may be shared as the rest of them
    cut = artefact.recording.gaps == "split"  # by time; else as the files have them
    traces = len(set(runs.source.columns["trace"].tolist())) if cut else readings.n_traces
    card = [*data_card(artefact, traces, readings.frame.height, sequences), *chain_card(artefact)]
    account = [{**entry, "note": in_flags(entry["note"])} for entry in readings.account.to_json()]
    return sequences, runs.first, card, account, course_of(artefact, runs), later
