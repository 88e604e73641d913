"""The page of a cascade: what each audience learns, and one stretch of a trace as each of them sees it."""

from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from veilstream.apps.report import words
from veilstream.apps.report.anywhere import SOURCE
from veilstream.apps.report.layout import east_north_km
from veilstream.apps.report.page import HIDDEN, PRIVATE, SHAREABLE, document, filled, pairs, table
from veilstream.apps.report.points import MAX_STEPS, example_steps, liveliest
from veilstream.apps.specs import ReportSpec
from veilstream.audit.audiences import Audiences, Cascade, drawn
from veilstream.audit.tables import WHO_SEES
from veilstream.audit.tables import audiences as sheets
from veilstream.audit.traces import release
from veilstream.data.states import StateSpace
from veilstream.errors import InputError
from veilstream.model.information import Index
from veilstream.solvers.solution import Level

LATE = (
    "Bits about the present state that late releases reveal under the fitted chain, by how late they come; estimated "
    "on data drawn from it."
)
LEVELS = [(str(k), words.LEVELS[k]) for k in (Level.PROVED, Level.COMPUTED, Level.ESTIMATED)]


def render(found: Audiences, spec: ReportSpec) -> str:
    """The report of all audiences."""
    shown, shareable = example(found, spec), spec.shareable
    limits = [f'<p class="headline limit {c.verdict.name.lower()}">{escape(c.words)}</p>' for c in found.limits]
    said = found.words.split("\n")[len(found.limits) :]
    told = SOURCE - HIDDEN if shareable else SOURCE
    tables = "".join(
        f"<h3>{escape(sheet.title)}</h3>" + table(sheet.head, [cells for cells, _ in sheet.rows], "figures stack")
        for sheet in sheets(found)
    )
    titles = [panel["title"] for panel in shown["panels"]]
    plots = "".join(
        f'<figure><div id="map-{k}" class="plot"></div><figcaption>{escape(title)}</figcaption></figure>'
        for k, title in enumerate(titles)
    )
    whose = "a trace drawn from the chain" if shareable else "the data given"
    caption = f"The liveliest {shown['steps']} steps of {whose}, and one draw of the releases of them."
    parts = {
        "name": "What each audience learns",
        "limits": "".join(limits),
        "sentences": "".join(f"<li>{escape(line)}</li>" for line in said if line),
        "facts": f'{tables}<p class="legend">{escape(WHO_SEES)}</p>',
        "figure": f'<section><h2>What each of them sees</h2><div class="trio">{plots}</div><p>{caption}</p></section>'
        f'<section><h2>What is known about now</h2><figure><div id="now" class="plot"></div><figcaption>{LATE}'
        "</figcaption></figure></section>",
        "levels": pairs(LEVELS),
        "provenance": pairs(
            [(f"audience {k}, sha-256", file.sha256) for k, file in enumerate(Cascade.of(found.artefact).files, 1)]
            + [(k, str(v)) for k, v in found.artefact.provenance.items() if k in told]
        ),
    }
    title = "Shareable report" if shareable else "PRIVATE report"
    banner, kind = (SHAREABLE, "shareable") if shareable else (PRIVATE, "private")
    return document("audiences", title, kind, banner, filled("frame.html", parts), shown)


def example(found: Audiences, spec: ReportSpec) -> dict[str, Any]:
    """The liveliest stretch, true and as each audience sees it: in km from the middle of the places, or as numbers."""
    what = Cascade.of(found.artefact)
    chain, person, data = what.finers[0].chain, found.artefact.person, found.data
    sequences, first = data.sequences, data.first
    if spec.shareable:
        sequences, first = [chain.sample(10 * MAX_STEPS, seed=spec.seed)[0]], None
    if not sequences:
        raise InputError("the report shows recorded traces: give `data`, or `shareable` to draw them from the chain")
    which, at = liveliest(sequences, example_steps(person.period_s))
    path = np.asarray(sequences[which][at : at + example_steps(person.period_s)])
    begin = at + (0 if first is None else int(first[which]))
    seen, rng = release(what.policies[0], [path], seed=spec.seed, first=[begin]), np.random.default_rng(spec.seed)
    rows = [path, seen.y[0]]
    for policy in what.policies[1:]:
        seen = drawn(policy, replace(seen, z=seen.y), rng)
        rows.append(seen.y[0])
    states = person.states
    kinds = [states, *(file.shown for file in what.files)]
    panels = []
    for k, (symbols, points) in enumerate(zip(rows, kinds, strict=True)):
        row = found.rows[k - 1] if k else None
        off = "" if row is None else f": error {row.error:.3g} {row.unit}".rstrip()
        panels.append({"title": f"audience {k}{off}" if k else "truth", **panel(symbols, states, points)})
    return {
        "unit": "" if states is None else states.unit,
        "map": states is not None and states.is_map,
        "steps": len(path),
        "panels": panels,
        "delays": list(found.delays),
        "now": [{"name": row.name, "bits": [v.value for v in row.now]} for row in found.rows if row.now],
    }


def panel(symbols: Index, states: StateSpace | None, points: StateSpace | None) -> dict[str, Any]:
    """Where these symbols lie: names of zones, km from the middle of the states, values, or numbers."""
    if states is None or points is None:
        return {"at": symbols[:, None].tolist()}
    if states.is_map and not points.is_map:
        return {"at": [points.names[y] for y in symbols], "names": list(points.names)}
    where = east_north_km(states, points)[symbols] if states.is_map else points.decode(symbols)
    return {"at": np.round(where, 3).tolist()}
