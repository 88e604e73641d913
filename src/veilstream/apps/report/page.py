"""One self-contained HTML file: no request leaves it, nothing in it runs but its own small script.

The content-security-policy names the script and the style by their hashes and forbids all else.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.apps.report import words
from veilstream.apps.report.content import Content, facts, table_head, table_rows
from veilstream.apps.report.day import day_part
from veilstream.apps.report.layout import crowd, east_north_km, lower_curve
from veilstream.apps.report.points import distinct
from veilstream.apps.verbs.flags import in_flags
from veilstream.audit.tables import LEGEND, sheets
from veilstream.audit.verdict import Assessment
from veilstream.data.states import StateSpace
from veilstream.model.information import Array

PRIVATE = "PRIVATE: this page shows recorded traces. Do not pass it on; veil report --shareable makes one you can."
SHAREABLE = (
    "Shareable: no recorded trace is in this page; its example was drawn from the chain. "
    "It does show the model (states, their distances, how often each is visited) and what later data gave, in numbers."
)
PLAIN = {
    "versions": "made with",
    "asked": "asked",
    "data_sha256": "data sha-256",
}  # of the provenance: said as names and values
FACTS = ("figure", "value", "of what, and how sure")
FLAG = "--shareable"  # stays on its line
Cell = str | tuple[str, Any]  # what is shown, and what a click on the head sorts by
HIDDEN = {"command", "data_sha256", "reading"}  # of the provenance, in a shareable page: they may name a person's files


def render(content: Content) -> str:
    """The report."""
    headline, sentences = words.verdict(content)
    shareable, name = content.spec.shareable, content.artefact.chain.name
    day, drawn = day_part(content.problem, content.own.point.policy, content.unit)
    limits = [f'<p class="headline limit {c.verdict.name.lower()}">{escape(c.words)}</p>' for c in content.limits]
    limits += [f'<p class="limit broken">{escape(line)}</p>' for line in content.changed]
    steps = [(e.step, f"{e.count:,}", in_flags(e.note)) for e in content.given.account]
    account = table(("step", "count", "what happened"), steps)
    trace = "the data given, released afresh at each operating point"
    trace = "a trace drawn from the chain; no recorded data" if shareable else trace
    parts = {
        "name": escape("What this policy reveals" if shareable else f"What this policy reveals: {name}"),
        "limits": "".join(limits),
        "headline": escape(headline),
        "sentences": "".join(f"<li>{escape(s)}</li>" for s in sentences),
        "warnings": "".join(f'<p class="warning"><b>!</b> {escape(s)}</p>' for s in content.warnings),
        "last": str(len(content.spots) - 1),
        "start": str(content.spots.index(content.own)),
        "facts": table(FACTS, facts(content.own), "facts", "This policy"),  # the slider rewrites it, as the baselines
        "example": f"The liveliest {len(content.path)} steps of {trace}.",
        "day": day,
        "baselines": table(table_head(content), table_rows(content.own), "stack"),
        "audit": _audit(content.audit),
        "card": pairs([*words.data_card(content.artefact, content.given), *words.chain_card(content.artefact)]),
        "account": f"<details><summary>From file to trace, step by step</summary>{account}</details>" if steps else "",
        "levels": pairs([(str(k), v) for k, v in words.LEVELS.items()]),
        "unsaid": "".join(f"<li>{escape(s)}</li>" for s in words.UNSAID),
        "provenance": pairs(_provenance(content)),
        "glossary": pairs(list(words.GLOSSARY.items())),
    }
    title = "Shareable report" if shareable else f"PRIVATE report: {name}"
    banner, kind = (SHAREABLE, "shareable") if shareable else (PRIVATE, "private")
    return document("page", title, kind, banner, filled("report.html", parts), payload(content) | {"day": drawn})


def document(name: str, title: str, kind: str, banner: str, body: str, data: object) -> str:
    """A page with the style and the script of that name, and what the script draws."""
    style = "".join(map(asset, dict.fromkeys(("page.css", f"{name}.css"))))
    script = asset("tools.js") + asset(f"{name}.js")
    said = escape(banner).replace(FLAG, f"<span>{FLAG}</span>")
    parts = {
        "policy": security_policy(style, script),
        "title": escape(title),
        "style": style,
        "banner": f'<p class="banner {kind}" role="note">{said}</p>',
        "body": body,
        "data": embed(data),
        "script": script,
    }
    return filled("page.html", parts)


def filled(name: str, parts: Mapping[str, str]) -> str:
    """A template with its parts; what is put in is never looked at again."""
    head, *pieces = asset(name).split("{{")
    named = (piece.partition("}}") for piece in pieces)
    return head + "".join(parts[key] + rest for key, _, rest in named)


def embed(value: object) -> str:
    """JSON that no HTML parser can mistake for markup."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def asset(name: str) -> str:
    return (files("veilstream.apps.report") / "assets" / name).read_text(encoding="utf-8")


def source_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def security_policy(style: str, script: str) -> str:
    """This style and this script by their hashes, pictures inside the page, and nothing else."""
    return (
        f"default-src 'none'; style-src '{source_hash(style)}'; script-src '{source_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def pairs(rows: Sequence[tuple[str, str]]) -> str:
    body = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in rows)
    return f"<dl>{body}</dl>" if body else ""


def table(
    head: Sequence[str], rows: Iterable[Sequence[Cell]], kind: str = "", caption: str = "", styles: Sequence[str] = ()
) -> str:
    """Rows of cells, the first of each its head; of a row of two the second fills the width. styles: its class."""
    heads = "".join(f'<th scope="col">{escape(h)}</th>' for h in head)
    body = ""
    for i, (first, *rest) in enumerate(rows):
        cells = ""
        for name, cell in zip(head[1:], rest, strict=False):
            text, value = cell if isinstance(cell, tuple) else (cell, None)
            wide = f' colspan="{len(head) - 1}"' if len(rest) == 1 < len(head) - 1 else f' data-head="{escape(name)}"'
            sort = "" if value is None else f' data-v="{value:.8g}"'
            cells += f"<td{wide}{sort}>{escape(text)}</td>"
        own = f' class="{styles[i]}"' if styles else ""
        body += f'<tr{own}><th scope="row">{escape(str(first))}</th>{cells}</tr>'
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    inner = f"{said}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table class="{kind}">{inner}</table></div>'


def _audit(found: Assessment | str) -> str:
    """The words of the audit and its tables; a claim that fails is bold."""
    if isinstance(found, str):
        return f"<p>{escape(found)}</p>"
    first, *rest = escape(found.words).splitlines()
    out = ["<p>" + "</p><p>".join([first if found.stands else f"<strong>{first}</strong>", *rest]) + "</p>"]
    for sheet in sheets(found):
        styles = ["own" if strong else "other" for _, strong in sheet.rows]
        out.append(table(sheet.head, [cells for cells, _ in sheet.rows], "figures", sheet.title, styles))
    return "".join(out) + f'<p class="legend">{escape(LEGEND)}</p>'


def _provenance(content: Content) -> list[tuple[str, str]]:
    artefact, hidden = content.artefact, HIDDEN if content.spec.shareable else set()
    rows = [("policy sha-256", artefact.sha256)]
    for key, value in artefact.provenance.items():
        if value not in (None, "", {}) and key != "card" and key not in hidden:
            rows.append(_told(key, value))
    gaps = [s.gap for s in content.solutions if s.gap is not None]
    if gaps:
        rows.append(("certificate gaps on the curve", f"{100 * min(gaps):.2f} to {100 * max(gaps):.2f} %"))
    if artefact.study_only:
        rows.append(("study only", "; ".join(artefact.study_only)))
    return rows


def _told(key: str, value: Any) -> tuple[str, str]:
    """One entry of the provenance, in words where it has a form that is known."""
    if key == "solution" and isinstance(value, dict):
        told = {k: value.get(k) for k in ("method", "window", "weight", "status", "seconds")}  # the limit: above
        short = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in told.items() if v is not None}
        return "solved by", ", ".join(f"{k} {v}" for k, v in short.items())
    if key in PLAIN and isinstance(value, dict):
        return PLAIN[key], ", ".join(f"{k} {v}" for k, v in value.items())
    return PLAIN.get(key, key), value if isinstance(value, str) else json.dumps(value)


# --- what the script draws ---------------------------------------------------------------------------------


def payload(content: Content) -> dict[str, Any]:
    """JSON for the figures. No coordinates on the earth, only km from the middle; no true value if shareable."""
    states = content.artefact.states
    places = east_north_km(states) if states is not None and states.is_map else None
    near = crowd(places, content.law) if places is not None else None
    points = content.artefact.points
    D, L = _found(content)
    grid = np.linspace(0, D.max() or 1.0, 200)
    return {
        "unit": content.unit,
        "hours": (content.artefact.period_s or 0) / 3600,
        "names": content.names,
        "levels_in": "" if states is None else states.unit,
        "truth": _r(content.artefact.chain.entropy_rate),
        "law": _r(content.law),
        "places": None if places is None else _r(places),
        "near": None if near is None else near.tolist(),
        "values": states is not None and not states.is_map,  # the low ones stand at the bottom
        "shown": None if states is None or points is None else _shown(states, points, content.artefact.cost.lies_at),
        "true": content.path.tolist(),
        "sampled": content.spec.shareable,
        "curve": {"d": _r(D), "l": _r(L), "x": _r(grid), "low": _r(lower_curve(content.solutions, grid))},
        "laplace": [[_r(p.distortion), _r(p.leakage)] for p in content.family],
        "own": next(i for i, s in enumerate(content.spots) if s.own),
        "spots": [
            {
                "d": _r(s.point.distortion),
                "l": _r(s.point.leakage),
                "headline": words.headline(content, s),
                "short": words.short(content, s),
                "facts": facts(s),
                "rivals": table_rows(s),
                "released": s.released.tolist(),
                "posterior": _bytes(s.posterior),
                "channel": _bytes(s.channel),
                "channel_level": s.channel_level,
                "command": s.command,
            }
            for s in content.spots
        ],
    }


def _shown(states: StateSpace, points: StateSpace, at: NDArray[np.int64]) -> dict[str, Any]:
    """The public points: what to call each, where it is, and the state it lies at."""
    where = None
    if states.is_map:
        where = _r(east_north_km(states, points) if points.is_map else east_north_km(states)[at])
    names = [str(k) for k in range(len(points))] if points.is_map else points.names
    return {"names": names, "places": where, "at": at.tolist(), "zones": states.is_map and not points.is_map}


def _found(content: Content) -> tuple[Array, Array]:
    """The curve of all policies found; the report's own is part of it where it lies below the rest."""
    D, L = np.array([(s.distortion, s.leakage) for s in distinct(content.solutions)]).T
    own = content.own.point
    if D[0] < own.distortion < D[-1] and own.leakage < np.interp(own.distortion, D, L):
        at = int(np.searchsorted(D, own.distortion))
        D, L = np.insert(D, at, own.distortion), np.insert(L, at, own.leakage)
    return D, L


def _r(value: Any) -> Any:
    """Five digits are enough for a picture."""
    return [_r(v) for v in value] if np.ndim(value) else float(f"{value:.5g}")


def _bytes(probabilities: Array) -> str:
    """One byte each, row by row."""
    return base64.b64encode(np.round(255 * np.clip(probabilities, 0, 1)).astype(np.uint8).tobytes()).decode()
