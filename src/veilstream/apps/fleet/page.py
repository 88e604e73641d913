"""index.html of a fleet: the distribution over users, one curve each, a table, and who failed. No traces, no places."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import numpy as np

from veilstream.apps.fleet import figures
from veilstream.apps.fleet.charts import (
    MOST_LINES,
    MOST_SHARE,
    VERDICTS,
    against_limits,
    colours,
    trade_offs,
)
from veilstream.apps.report import svg
from veilstream.apps.report.content import number
from veilstream.apps.report.page import asset, pairs, security_policy, table
from veilstream.apps.report.words import LEVELS
from veilstream.control.limit_check import Verdict
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
        sections += [f'<div class="pair">{_curves(rows)}{_against(rows)}</div>', _spread(told), _table(rows)]
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
    seen = [named for r in rows if (named := figures.named(r))]
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
    units = [r["unit"] for r in rows]
    key = [(c, f"{unit or 'no unit'}, {counted(units.count(unit), 'user')}") for unit, c in colours(units).items()]
    key += [("middle", "median user")] if len(rows) > 2 else []
    return (
        f"<section><h2>What accuracy costs each user</h2>{svg.legend(key)}"
        f'<figure class="chart">{trade_offs(rows)}<figcaption>One curve per user, computed exactly for her own chain; '
        "shares, so that different units can be compared. The dots are the policies.</figcaption></figure></section>"
    )


def _against(rows: Sequence[dict[str, Any]]) -> str:
    drawn = against_limits(rows)
    if not drawn:
        return ""
    key = svg.legend((c, str(v)) for v, c in VERDICTS.items())
    most = f" The {MOST_LINES} weakest of {len(rows):,} users are drawn." if len(rows) > MOST_LINES else ""
    return (
        f'<section><h2>Limits on later data</h2>{key}<figure class="chart">{drawn}<figcaption>'
        f"What came out on data that nothing was fitted to, with its 95 % interval; the bar is the limit, and "
        f"what lies beyond {MOST_SHARE:.0%} is drawn there.{most}"
        "</figcaption></figure></section>"
    )


SPREAD: dict[str, tuple[str, Callable[[float], str]]] = {
    "raw_leakage": ("bits per step on recorded data", number),
    "leakage_share": ("of what the truth reveals", lambda v: f"{v:.1%}"),
    "entropy_rate": ("bits per step if nothing were hidden", number),
    "gap": ("gap to the best possible, proved", lambda v: f"{v:.2%}"),
    "distortion_share": ("error, of what revealing nothing costs", lambda v: f"{v:.1%}"),
    "raw_distortion": ("error on recorded data", lambda v: f"{v:.3g}"),
}


def _spread(told: dict[str, Any]) -> str:
    """Quantiles over the users of each unit."""
    rows = []
    for unit, spread in told["spread"].items():
        for name, (label, show) in SPREAD.items():
            if name in spread:
                who = label + (f" ({unit})" if name == "raw_distortion" and unit else "")
                group = f"{counted(spread['users'], 'user')}" + (f" in {unit}" if unit else "")
                rows.append((who, group, *map(show, spread[name].values())))
    quantiles = next(iter(told["spread"].values()))["entropy_rate"]
    drawn = table(("figure", "of", *(q.replace("_", " ") for q in quantiles)), rows, "figures")
    return f"<section><h2>Over all users</h2>{drawn}</section>"


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """Most revealing first; `data-v` is what a click on the head sorts by."""
    shown = figures.table(rows)
    drawn = table(
        ("user", *shown),
        [(row["user"], *(column[i] for column in shown.values())) for i, row in enumerate(rows)],
        "sortable stack",
    )
    meant = " ".join(f"<em>{h}</em>: {figures.MEANINGS[h]}" for h in shown if h in figures.MEANINGS)
    return f"<section><h2>User by user</h2><p>A click on a head sorts. {meant}</p>{drawn}</section>"


def _about(told: dict[str, Any]) -> str:
    facts = [("engine", told["engine"]), ("seed", str(told["seed"])), ("time", f"{told['seconds']:.0f} s"),
             ("kept from an earlier run", str(told["kept"]))]  # fmt: skip
    levels = pairs([(str(k), v) for k, v in LEVELS.items()])
    sure = f"<section><h2>How sure each figure is</h2>{levels}</section>"
    return f"{sure}<section><h2>This run</h2>{pairs(facts)}</section>"
