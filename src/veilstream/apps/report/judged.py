"""The page of a judgement: mechanisms side by side, no trace and no coordinate in it."""

from collections.abc import Iterator
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

from veilstream.apps.report.page import document, pairs, table
from veilstream.apps.report.words import LEVELS
from veilstream.audit.attacks import ATTACKS
from veilstream.audit.judge import Judged, Judgement
from veilstream.audit.tables import JUDGED, judged

PRIVATE = "PRIVATE: this page says how predictable a person is and names her places. It holds no trace."
SHAREABLE = "Shareable: this page is about a public chain and holds nobody's data."
MOST_ODDS = 1000
KEY = [
    ("released", "the mechanism"),
    ("true", "ours at the same error"),
    ("heat", "the floor (proved)"),
]


def page(found: Judgement) -> str:
    """One self-contained HTML file."""
    sheet = judged(found)
    line = '<svg viewBox="0 0 14 8"><line class="{}" x1="0" x2="14" y1="4" y2="4" stroke-width="2"/></svg>{}'
    key = "".join(f"<li>{line.format(kind, escape(words))}</li>" for kind, words in KEY)
    chart = (
        f'<ul class="key">{key}</ul><figure class="chart"><div id="judged" class="plot"></div><figcaption>Bits per '
        "step along a whole trace; with each name its mean error.</figcaption></figure>"
    )
    head = [f"{before}, ours" if name == "ours" else name for before, name in pairwise(("", *sheet.head))]
    figures = table(head, [cells for cells, _ in sheet.rows], "figures stack")
    body = [
        _section("What each reveals", chart),
        _section("In figures", f'{figures}<p class="legend">{escape(JUDGED)}</p>'),
        _section("Place by place", _places(found)),
        _section("Attack by attack", _attacks(found)),
        _section("What each does", pairs([(row.label, described(row)) for row in found.rows])),
        _section("How sure each figure is", pairs(list(_levels(found)))),
    ]
    warnings = "".join(f'<p class="warning"><b>!</b> {escape(one)}</p>' for one in found.warnings)
    header = (
        f'<header><p class="brand">veilstream judge</p><h1>{escape(found.name)}</h1>'
        f'<p class="headline">{escape(found.headline)}</p>{warnings}</header>'
    )
    banner, kind = (PRIVATE, "private") if found.private else (SHAREABLE, "shareable")
    title = f"What mechanisms reveal: {found.name}"
    return document("judge", title, kind, banner, f"{header}<main>{''.join(body)}</main>", drawn(found))


def _section(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>{body}</section>"


def described(row: Judged) -> str:
    """What it does, and whose public description says so."""
    return f"{row.what} ({row.source})" if row.source else row.what


def drawn(found: Judgement) -> dict[str, Any]:
    """What the script draws: a line for each mechanism."""
    return {
        "unit": found.unit,
        "truth": found.truth,
        "rows": [
            {
                "name": row.label,
                "error": f"{row.error.value:.3g} {found.unit}".rstrip(),
                "bits": [
                    v if np.isfinite(v) else row.leakage.value
                    for v in (row.leakage.low, row.leakage.value, row.leakage.high)
                ],
                "ours": None if row.ours is None else row.ours.leakage.value,
                "floor": row.floor,
            }
            for row in found.rows
        ],
    }


def _places(found: Judgement) -> str:
    """AUC and odds of the most visited places, by all releases."""
    known = {p.place: p for row in found.rows for p in row.figures.places}
    head = ("mechanism", *(f"{name}: {what}" for name in known for what in ("AUC", "odds")))
    rows = [("no release", *(cell for p in known.values() for cell in ("0.50", odds(p.before))))]
    for row in found.rows:
        own = {p.place: p for p in row.figures.places}
        cells = [(f"{own[name].auc:.2f}", odds(own[name].odds)) if name in own else ("", "") for name in known]
        rows.append((row.label, *(cell for pair in cells for cell in pair)))
    said = (
        "All releases together: AUC of the score for being there (0.5 says nothing, 1 everything), and the median odds "
        "of being there while she is."
    )
    return f"<p>{said}</p>{table(head, rows, 'figures stack')}"


def _attacks(found: Judgement) -> str:
    """How far each attack is off, on average."""
    head = ("mechanism", *ATTACKS, "no release")
    rows = [
        (row.label, *(f"{v.value:.3g}" for v in f.attacks.values()), f"{f.blind_error:.3g}")
        for row in found.rows
        if (f := row.figures).blind_error is not None
    ]
    homes = [
        (row.label, *(f"{own['recall'].value:.0%}" for own in row.figures.shapes.values()))
        for row in found.rows
        if row.figures.shapes
    ]
    said = "; ".join(f"{attack.name}: {attack.what}" for attack in ATTACKS.values())
    unit = f", in {found.unit}" if found.unit else ""
    return (
        f"<p>Mean distance from the truth to the guess{unit}. {escape(said)}.</p>{table(head, rows, 'figures stack')}"
        f"<p>Of the two most visited {found.thing}s of a trace, home and work, the share that is among the two most "
        f"visited of the guess.</p>{table(head[:-1], homes, 'figures stack')}"
    )


def odds(value: float) -> str:
    """Three digits; beyond a thousand the number says nothing more."""
    return f"{value:.3g}" if value < MOST_ODDS else f"> {MOST_ODDS}"


def _levels(found: Judgement) -> Iterator[tuple[str, str]]:
    for row in found.rows:
        kept = f", over {row.draws} draws of what it keeps, which the adversary knows" if row.draws > 1 else ""
        yield row.label, f"bits {row.level}{kept}; adversaries estimated on samples; floor proved for the fitted chain"
    yield from ((str(k), v) for k, v in LEVELS.items())
