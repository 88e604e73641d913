"""index.html of a fleet: the distribution over users, one curve each, a table, and who failed. No traces, no places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from veilstream.apps.fleet.charts import (
    MOST_LINES,
    MOST_SHARE,
    VERDICTS,
    against_limits,
    colours,
    felt,
    strip,
    trade_offs,
)
from veilstream.apps.report.content import number
from veilstream.apps.report.page import asset, pairs, security_policy
from veilstream.apps.report.words import LEVELS
from veilstream.control.feedback import PERIODS
from veilstream.control.limit_check import TOLERANCE, Verdict
from veilstream.model.interval import Interval
from veilstream.solvers.solution import Level
from veilstream.units import counted, noun

BANNER = (
    "PRIVATE: this page names users and shows how predictable each is. It holds no trace and no place; "
    "the line of a user who failed may quote the field that could not be read. The .veil files beside it hold each "
    "user's model."
)


def page(told: dict[str, Any]) -> str:
    """The page from the content of fleet.json."""
    style, script = asset("page.css") + asset("fleet.css"), asset("fleet.js")
    rows = sorted(told["rows"], key=lambda r: -r["leakage_share"])
    sections = [_failed(told)]
    if rows:
        sections += [f'<div class="pair">{_curves(rows)}{_against(rows)}</div>', _strips(rows), _table(rows)]
    sections += [_about(told)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{security_policy(style, script)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">'
        f"<title>PRIVATE: a fleet of {counted(told['users'], 'user')}</title><style>{style}</style></head><body>"
        f'<p class="banner private" role="note">{BANNER}</p><header><p class="brand">veilstream fleet</p>'
        f"<h1>One policy per user</h1>{_limits(told)}"
        f'<p class="headline" id="headline">{escape(headline(told, rows))}</p>'
        f'<ul class="verdict">{"".join(f"<li>{escape(s)}</li>" for s in sentences(told, rows))}</ul></header>'
        f"<main>{''.join(sections)}</main><script>{script}</script></body></html>\n"
    )


def _limits(told: dict[str, Any]) -> str:
    """The first line: for how many users later data shows the limit kept, by the weakest."""
    worst = next((v for v in Verdict if told["limit_verdicts"][v]), None)
    return "" if worst is None else f'<p class="headline limit {worst.name.lower()}">{escape(told["limit_words"])}</p>'


def headline(told: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "No user has a policy."
    middle = float(np.median([r["leakage_share"] for r in rows]))
    bad = len(told["failed"])
    end = f"; {bad} failed." if bad else "."
    seen = [named for r in rows if (named := _named(r))]
    words = ""
    if seen:
        released, nothing = (float(np.median([named[who] for named in seen])) for who in ("released", "nothing"))
        things = {noun(r["unit"]) for r in rows}
        thing = things.pop() if len(things) == 1 else "state"
        words = (
            f"an adversary identifies the {thing} in {released:.0%} of steps ({nothing:.0%} without any release), and "
        )
    who = "1 user has a policy; " if len(rows) == 1 else f"{len(rows):,} users have a policy; for the median one "
    return f"{who}{words}releases reveal {1 - middle:.0%} less than the truth would{end}"


def _named(row: dict[str, Any]) -> dict[str, float]:
    """How often an adversary identifies her state, on her own traces where there are some: released, nothing."""
    seen = (row.get("audit") or {}).get("named", {})
    found: dict[str, float] = seen.get("traces") or seen.get("chain") or {}
    return found


def sentences(told: dict[str, Any], rows: Sequence[dict[str, Any]]) -> list[str]:
    found = []
    if rows:
        least, most = rows[-1], rows[0]
        found.append(
            f"From {least['leakage_share']:.1%} ({least['user']}) to {most['leakage_share']:.1%} ({most['user']}) of "
            f"what the truth reveals, {most['level']}."
        )
        gaps = [r["gap"] for r in rows if r["gap"] is not None]
        if gaps:
            found.append(
                f"No policy can do better by more than {max(gaps):.1%} of leakage and error together for anyone; "
                f"{float(np.median(gaps)):.1%} for the median user (proved)."
            )
        audited = [r for r in rows if r.get("audit")]
        if audited:
            bad = told["audit_contradicts"]
            found.append(
                f"The audit contradicts what the policy says of its chain for {', '.join(bad)}."
                if bad
                else f"Under the fitted chains the audit contradicts none of {len(audited)} policies (exact "
                "adversaries, estimated on samples)."
            )
    if told["not_reached"]:
        found.append(
            f"Interrupted before {counted(len(told['not_reached']), 'user')}; the same command goes on from here."
        )
    return [*found, *told["notes"]]


def _failed(told: dict[str, Any]) -> str:
    rows = [*told["failed"].items(), *((name, "not reached before the run ended") for name in told["not_reached"])]
    if not rows:
        return ""
    return f'<section class="failed"><h2>No policy for {len(rows)}</h2>{pairs(rows)}</section>'


def _curves(rows: Sequence[dict[str, Any]]) -> str:
    colour = colours([r["unit"] for r in rows])
    key = "".join(
        f'<li><svg viewBox="0 0 14 8"><line class="{c}" x1="0" x2="14" y1="4" y2="4" stroke-width="2"/></svg>'
        f"{escape(unit or 'no unit')}, {counted(sum(r['unit'] == unit for r in rows), 'user')}</li>"
        for unit, c in colour.items()
    )
    if len(rows) > 2:
        key += '<li><svg viewBox="0 0 14 8"><line class="middle" x1="0" x2="14" y1="4" y2="4"/></svg>median user</li>'
    return (
        f'<section><h2>What accuracy costs each user</h2><ul class="key">{key}</ul>'
        f'<figure class="chart">{trade_offs(rows)}<figcaption>One curve per user, computed exactly for her own chain; '
        "shares, so that different units can be compared. The dots are the policies.</figcaption></figure></section>"
    )


def _against(rows: Sequence[dict[str, Any]]) -> str:
    drawn = against_limits(rows)
    if not drawn:
        return ""
    key = "".join(
        f'<li><svg viewBox="0 0 14 8"><line class="{c}" x1="0" x2="14" y1="4" y2="4" stroke-width="2"/></svg>{v}</li>'
        for v, c in VERDICTS.items()
    )
    most = f" The {MOST_LINES} weakest of {len(rows):,} users are drawn." if len(rows) > MOST_LINES else ""
    return (
        f'<section><h2>Limits on later data</h2><ul class="key">{key}</ul><figure class="chart">{drawn}<figcaption>'
        f"What came out on data that nothing was fitted to, with its 95 % interval; the bar is the limit, and "
        f"what lies beyond {MOST_SHARE:.0%} is drawn there.{most}"
        "</figcaption></figure></section>"
    )


def _strips(rows: Sequence[dict[str, Any]]) -> str:
    units = [r["unit"] for r in rows]
    figures: list[tuple[str, str, str, Callable[[float], str], Sequence[dict[str, Any]]]] = [
        ("leakage", "bits per step on recorded data", "raw_leakage", number, rows),
        ("leakage", "of what the truth reveals", "leakage_share", lambda v: f"{v:.1%}", rows),
        ("entropy rate", "bits per step if nothing were hidden", "entropy_rate", number, rows),
        ("gap to the best possible", "proved", "gap", lambda v: f"{v:.2%}", rows),
        ("error", "of what revealing nothing costs", "distortion_share", lambda v: f"{v:.1%}", rows),
    ]
    for unit in sorted(set(units)):
        own = [r for r in rows if r["unit"] == unit]
        show = lambda v, unit=unit: f"{v:.3g} {unit}".strip()  # noqa: E731
        figures.append(("error", f"{unit or 'units'}, on recorded data", "raw_distortion", show, own))
    cells = "".join(
        f"<div><h3>{escape(title)} <small>{escape(what)}</small></h3>{drawn}</div>"
        for title, what, name, show, which in figures
        if (drawn := strip(which, name, show, units))
    )
    return (
        "<section><h2>Over all users</h2><p>One dot per user; the bar is the median.</p>"
        f'<div class="strips">{cells}</div></section>'
    )


Cell = tuple[str, Any]  # what is shown, and what a click on the head sorts by


def _figure(name: str, show: Callable[[float], str]) -> Callable[[dict[str, Any]], Cell]:
    """A number of the summary; empty where it is not known."""

    def cell(row: dict[str, Any]) -> Cell:
        value = row.get(name)
        return ("", None) if value is None else (show(value), value)

    return cell


def _limit(row: dict[str, Any]) -> Cell:
    """Every limit with its verdict; sorted by how weak it is."""
    found, verdict = row.get("limits", []), row.get("limit_verdict")
    said = "; ".join(f"{c['verdict']}: {c['asked']}" for c in found)
    return said, None if verdict is None else list(Verdict).index(Verdict(verdict))


def _later_error(row: dict[str, Any]) -> Cell:
    """On her held-out data, with its interval; *model only* where there is too little of it."""
    seen = _later(row, "raw_distortion")
    if seen is None:
        return str(Level.MODEL_ONLY), None
    return f"{seen.value:.3g} [{seen.low:.3g}, {seen.high:.3g}] {row['unit']}", seen.value


def _later_bits(row: dict[str, Any]) -> Cell:
    seen = _later(row, "leakage")
    return (
        ("", None) if seen is None else (f"{number(seen.value)} [{number(seen.low)}, {number(seen.high)}]", seen.value)
    )


def _later(row: dict[str, Any], name: str) -> Interval | None:
    """A figure of a user on her held-out data; None where that says too little about her."""
    held = row.get("held_out")
    return None if not held or held["level"] == Level.MODEL_ONLY else Interval.read(held[name])


def _clock(row: dict[str, Any]) -> Cell:
    """By day or by week, and its phases."""
    cycle = row.get("cycle")
    return ("", None) if not cycle else (f"{cycle['kind']}, {cycle['phases']} phases", cycle["phases"])


def _helped(row: dict[str, Any]) -> Cell:
    pool = row.get("pool")
    return ("", None) if not pool else (f"{pool['helpers']:.0f} x {pool['strength']:g}", pool["strength"])


def _identified(row: dict[str, Any]) -> Cell:
    seen = _named(row)
    return ("", None) if not seen else (f"{seen['nothing']:.0%} → {seen['released']:.0%}", seen["released"])


def _moves(row: dict[str, Any]) -> Cell:
    climbed, unit = row.get("feedback"), row["unit"]
    if not climbed or not climbed["rungs"]:
        return "", None
    used = [i for i, share in enumerate(climbed["rungs"]) if share > 0]
    most = climbed["limit"] + climbed["overshoot"] / (PERIODS * climbed["every"])
    said = f"at most {most:.3g} {unit} over {PERIODS} periods" if climbed["promised"] else "not promised"
    moved = f"{climbed['moves']:.0f} on rungs {used[0]} to {used[-1]}"
    return f"{moved}; limit {climbed['limit']:.3g} {unit}, {said}", climbed["moves"]


def _audited(row: dict[str, Any]) -> Cell:
    audit = row.get("audit")
    return ("" if not audit else "as claimed" if audit["stands"] else "CONTRADICTED"), None


@dataclass(frozen=True)
class Column:
    """Of the table over users: its head, what a user has there, and what the head means."""

    head: str
    cell: Callable[[dict[str, Any]], Cell]
    meaning: str = ""


COLUMNS = (
    Column(
        "limit",
        _limit,
        "what was asked for, and whether her later data shows it kept "
        f"(kept: its 95 % interval ends at most {100 * TOLERANCE:.0f} % above; broken: it lies above).",
    ),
    Column(
        "later: error",
        _later_error,
        "on her own latest traces or weeks, which nothing was fitted to (95 % "
        "interval); bits are an upper bound whatever the law of that data, <em>at most</em> what no data can exceed "
        "(proved).",
    ),
    Column("later: bits", _later_bits),
    Column("at most", _figure("worst_leakage", number)),
    Column(
        "error",
        lambda r: ("", None) if r["raw_distortion"] is None else (felt(r), r["raw_distortion"]),
        "from reading to release; <em>bits</em>: per step; both on her recorded data, starts and gaps included.",
    ),
    Column("bits", _figure("raw_leakage", lambda v: number(max(v, 0.0)))),
    Column(
        "of the truth",
        _figure("leakage_share", lambda v: f"{v:.1%}"),
        "bits as a share of what the truth would reveal on the same data.",
    ),
    Column(
        "long run: error",
        lambda r: (f"{r['distortion']:.3g} {r['unit']}", r["distortion"]),
        "the same, and bits, in the long run of her chain.",
    ),
    Column("long run: bits", _figure("leakage", number)),
    Column(
        "at least",
        _figure("leakage_lower", number),
        "no policy this accurate in the long run reveals less (proved).",
    ),
    Column("gap", _figure("gap", lambda v: f"{v:.2%}")),
    Column("entropy rate", _figure("entropy_rate", number)),
    Column("states", _figure("states", str)),
    Column("steps", _figure("steps", lambda v: f"{v:,}")),
    Column("clock", _clock, "her chain knows the hour, as everybody does."),
    Column(
        "helped by",
        _helped,
        "how many others, and the transitions per state they count for.",
    ),
    Column(
        "identified",
        _identified,
        "in how many steps of her recorded data an adversary who knows chain and policy "
        "identifies her state, without the releases → with them (estimated).",
    ),
    Column(
        "moves",
        _moves,
        "public ones between the rungs of a limit kept by feedback, and the rungs in use, on her "
        "recorded data; the limit on the mean, and what is promised of it whatever she does (proved, but for readings "
        "whose error exceeds the limit even on rung 0).",
    ),
    Column("level", lambda r: (str(r["level"]), None)),
    Column(
        "audit",
        _audited,
        "whether what is claimed of the fitted chain is what was measured on it; it says nothing about limits.",
    ),
)


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """Most revealing first; `data-v` is what a click on the head sorts by. A column empty for everyone is left out."""
    every = [(c, [c.cell(r) for r in rows]) for c in COLUMNS]
    shown = [(c, cells) for c, cells in every if any(text for text, _ in cells)]
    body = "".join(
        f'<tr><th scope="row">{escape(row["user"])}</th>'
        + "".join(
            f'<td data-head="{escape(c.head)}"{_value(cells[i][1])}>{escape(cells[i][0])}</td>' for c, cells in shown
        )
        + "</tr>"
        for i, row in enumerate(rows)
    )
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in ("user", *(c.head for c, _ in shown)))
    meant = " ".join(f"<em>{escape(c.head)}</em>: {c.meaning}" for c, _ in shown if c.meaning)
    return (
        f"<section><h2>User by user</h2><p>A click on a head sorts. {meant}</p>"
        '<div class="wide"><table class="sortable stack">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def _value(value: Any) -> str:
    return "" if value is None else f' data-v="{value:.8g}"'


def _about(told: dict[str, Any]) -> str:
    facts = [("engine", told["engine"]), ("seed", str(told["seed"])), ("time", f"{told['seconds']:.0f} s"),
             ("kept from an earlier run", str(told["kept"]))]  # fmt: skip
    levels = pairs([(str(k), v) for k, v in LEVELS.items()])
    sure = f"<section><h2>How sure each figure is</h2>{levels}</section>"
    return f"{sure}<section><h2>This run</h2>{pairs(facts)}</section>"
