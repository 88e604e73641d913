"""index.html: what the paper states, what we got, whether they agree."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape

from reproduce.item import BETTER, OPTIMUM, PUBLISHED, Ran

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem 1.25rem 4rem;
  color: #1c2733; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .4rem; }
dl { display: grid; grid-template-columns: 9rem 1fr; gap: .3rem 1rem; margin: .4rem 0 .8rem; }
dt { color: #5a6875; } dd { margin: 0; }
table { border-collapse: collapse; font-size: .85rem; margin: .4rem 0 .8rem; } .wide { overflow-x: auto; }
th, td { text-align: left; vertical-align: top; padding: .2rem .6rem .2rem 0; border-bottom: 1px solid #8886; }
th { color: #5a6875; font-weight: 500; } td { font-variant-numeric: tabular-nums; }
img { max-width: 100%; height: auto; background: #fff; }
.yes { color: #0b5e47; } .part { color: #7a4a00; } .no { color: #8c1d18; } .agree { font-weight: 650; }
@media (max-width: 36rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } }
@media (prefers-color-scheme: dark) { body { color: #e6ebf0; background: #12181f; } dt, th { color: #a3b0bc; }
  a { color: #7cc4f5; } .yes { color: #7fdcc0; } .part { color: #ffc266; } .no { color: #f2b8b5; } }
@media print { section { break-inside: avoid; } }
"""
CLASS = {"yes": "yes", "in part": "part", "no": "no"}


def page(outcomes: Sequence[Ran]) -> str:
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    csp = f"default-src 'none'; img-src 'self' file: data:; style-src 'sha256-{digest}'; base-uri 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{csp}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>The paper, item by item</title><style>{STYLE}</style></head><body>"
        "<h1>The paper, item by item</h1><p>Erdemir, Dragotti, Gündüz: Privacy-Aware Time-Series Data Sharing with "
        "Deep Reinforcement Learning. What it states, what veilstream gets, and whether they agree. Bits are per step. "
        "Bands are proved, exact curves computed exactly for the stated chain, ± are 95 % intervals. Pictures made "
        "from GeoLife must not be passed on.</p><p>The paper gives numbers for its GeoLife user and the toy; of its "
        "grids it draws curves, so what is compared there is what it says of them. For GeoLife its figures stand "
        "beside ours below, and they differ, also where its own method is trained here: neither its stops nor its step "
        'are published (<a href="#geolife-settings">the ways to 16 stops</a> that were tried).</p>'
        + _overview(outcomes)
        + "".join(_section(o) for o in outcomes)
        + "</body></html>\n"
    )


def _overview(outcomes: Sequence[Ran]) -> str:
    """Item by item the verdict on each method."""
    heads = ["item", PUBLISHED, BETTER, OPTIMUM, "s of processor time"]
    rows = []
    for o in outcomes:
        name = f'<a href="#{o.item.name}">{escape(o.item.title)}</a>'
        if o.finding is None:
            rows.append(f'<tr><td>{name}</td><td colspan="4">{escape(o.state)}</td></tr>')
            continue
        found = o.finding
        words = [found.verdicts.get(who, "") for who in heads[1:4]]
        cells = "".join(_cell(word) for word in words)
        if not any(words):
            cells = f'<td colspan="3">beyond the paper; the answer to what is asked there: {escape(found.agrees)}</td>'
        took = "" if o.cpu_s is None else f"{o.cpu_s:,.0f}"
        rows.append(f"<tr><td>{name}</td>{cells}<td>{took}</td></tr>")
    return f"<p>Whether what the paper states holds of each method by itself:</p>{_framed(heads, rows)}"


def _cell(word: str) -> str:
    return f'<td class="{CLASS.get(word, "part")}">{escape(word)}</td>'


def _framed(heads: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _section(outcome: Ran) -> str:
    item, found = outcome.item, outcome.finding
    asks, answers = ("beyond it we ask", "the answer") if item.beyond else ("the paper", "do they agree?")
    head = f'<section id="{item.name}"><h2>{escape(item.title)}</h2><dl><dt>{asks}</dt><dd>{escape(item.paper)}</dd>'
    if found is None:
        return f"{head}<dt>veilstream</dt><dd>{escape(outcome.state)}</dd></dl></section>"
    agree = f'<dd class="agree {CLASS.get(found.agrees, "part")}">{escape(found.agrees)}</dd>' + "".join(
        f'<dt>{escape(who)}</dt><dd class="{CLASS.get(word, "part")}">{escape(word)}</dd>'
        for who, word in found.verdicts.items()
    )
    took = "" if outcome.cpu_s is None else f" Took {outcome.cpu_s:,.0f} s of processor time."
    ran = f"<dt>what was run</dt><dd>{escape(found.ran + took)}</dd>" if found.ran else ""
    why = f"<dt>note</dt><dd>{escape(found.why)}</dd>" if found.why else ""
    links = " ".join(f'<a href="{item.name}.{ending}">{ending.upper()}</a>' for ending in ("csv", "png", "svg"))
    picture = f'<a href="{item.name}.svg"><img src="{item.name}.png" alt="{escape(item.title)}"></a>'
    rows = ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in found.table[1:]]
    table = _framed(found.table[0], rows) if rows else ""
    return (
        f"{head}<dt>veilstream</dt><dd>{escape(found.ours)}</dd><dt>{answers}</dt>{agree}{why}{ran}"
        f"<dt>files</dt><dd>{links}</dd></dl>{table}{picture}</section>"
    )
