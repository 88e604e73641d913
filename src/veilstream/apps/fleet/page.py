"""index.html of a fleet: the distribution over users, one curve each, a table, and who failed. No traces, no places."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.apps.fleet.summary import MEANINGS, felt, named, table_of
from veilstream.apps.report.content import number
from veilstream.apps.report.page import document, pairs, table
from veilstream.apps.report.words import LEVELS
from veilstream.control.limit_check import Verdict
from veilstream.model.interval import Interval
from veilstream.units import counted, noun

COLOURS = ("true", "released", "heat", "other")  # of the page's palette, one per unit
VERDICTS = {Verdict.BROKEN: "released", Verdict.NOT_SHOWN: "other", Verdict.KEPT: "heat"}
GRID = np.linspace(0, 1, 101)
MOST_LINES, MOST_SHARE = 30, 4.0  # of the chart of limits: users, and where it ends
BANNER = (
    "PRIVATE: this page names users and shows how predictable each is. It holds no trace and no place; "
    "the line of a user who failed may quote the field that could not be read. The .veil files beside it hold each "
    "user's model."
)


def page(told: dict[str, Any]) -> str:
    """The page from the content of fleet.json."""
    rows = sorted(told["rows"], key=lambda r: -r["leakage_share"])
    drawn = {"curves": _curves(rows), "limits": _against(rows)} if rows else {}
    failed = [*told["failed"].items(), *((name, "not reached before the run ended") for name in told["not_reached"])]
    sections = [_section(f"No policy for {len(failed)}", pairs(failed), ' class="failed"')] if failed else []
    if rows:
        sections += [f'<div class="pair">{_charts(rows, drawn)}</div>', _spread(told), _table(rows)]
    run = [("engine", told["engine"]), ("seed", str(told["seed"])), ("time", f"{told['seconds']:.0f} s")]
    sections += [
        _section("How sure each figure is", pairs([(str(k), v) for k, v in LEVELS.items()])),
        _section("This run", pairs([*run, ("kept from an earlier run", str(told["kept"]))])),
    ]
    worst = next((v for v in Verdict if told["limit_verdicts"][v]), None)  # of the users' limits, on later data
    limit = "" if worst is None else f'<p class="headline limit {worst.name.lower()}">{escape(told["limit_words"])}</p>'
    said = "".join(f"<li>{escape(s)}</li>" for s in sentences(told, rows))
    body = (
        f'<header><p class="brand">veilstream fleet</p><h1>One policy per user</h1>{limit}'
        f'<p class="headline" id="headline">{escape(headline(told, rows))}</p><ul class="verdict">{said}</ul></header>'
        f"<main>{''.join(sections)}</main>"
    )
    return document("fleet", f"PRIVATE: a fleet of {counted(told['users'], 'user')}", "private", BANNER, body, drawn)


def _section(title: str, body: str, kind: str = "") -> str:
    return f"<section{kind}><h2>{title}</h2>{body}</section>"


def headline(told: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "No user has a policy."
    middle = float(np.median([r["leakage_share"] for r in rows]))
    bad = len(told["failed"])
    end = f"; {bad} failed." if bad else "."
    seen = [found for r in rows if (found := named(r))]
    words = ""
    if seen:
        released, nothing = (float(np.median([one[who] for one in seen])) for who in ("released", "nothing"))
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


def shares(row: dict[str, Any]) -> NDArray[np.float64]:
    """One user's curve: error relative to revealing nothing, leakage relative to the truth."""
    most_d, most_l = row["blind_distortion"] or 1.0, row["entropy_rate"] or 1.0
    points = [((d if felt is None else felt) / most_d, leak / most_l) for d, leak, _, felt in row["curve"]]
    if row["may_hide_all"]:  # always the same release: no leakage at all
        points.append((1.0, 0.0))
    return np.array(sorted({(0.0, 1.0), *points}))


def median_curve(rows: Sequence[dict[str, Any]]) -> NDArray[np.float64]:
    """The median user's share at every distortion that half of the users can have."""
    at = np.array([np.interp(GRID, shares(r)[:, 0], shares(r)[:, 1], right=np.nan) for r in rows])
    enough = np.isfinite(at).mean(0) >= 0.5
    return np.stack([GRID[enough], np.nanmedian(at[:, enough], 0)], axis=1)


def colours(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    return {unit: COLOURS[i % len(COLOURS)] for i, unit in enumerate(sorted({r["unit"] for r in rows}))}


def _curves(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the script draws of every user's trade-off."""
    colour = colours(rows)
    users = [
        {
            "name": r["user"],
            "kind": colour[r["unit"]],
            "curve": shares(r).round(4).tolist(),
            "at": [r["distortion_share"], r["leakage"] / (r["entropy_rate"] or 1.0)],
            "title": f"{r['user']}: {felt(r)}, {r['leakage']:.4f} bits per step in the long run",
        }
        for r in rows
    ]
    return {"users": users, "median": median_curve(rows).round(4).tolist() if len(rows) > 2 else None}


def _against(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """What the script draws of the limits: a line per user, weakest first; None where no user has later data."""
    seen = [(r["user"], c, Interval.read(c["later"])) for r in rows for c in (r.get("limits") or ())[:1]]
    found = [(who, c, v.scaled(1 / c["limit"])) for who, c, v in seen if v is not None and c["limit"] > 0]
    found.sort(key=lambda one: (list(Verdict).index(Verdict(one[1]["verdict"])), -one[2].value))
    users = [
        {"name": who, "kind": VERDICTS[Verdict(c["verdict"])], "seen": [v.low, v.value, v.high],
         "title": f"{who}: {c['words']}"}
        for who, c, v in found[:MOST_LINES]
    ]  # fmt: skip
    most = min(max([1.5, *(v.high for _, _, v in found[:MOST_LINES])]), MOST_SHARE)
    return {"users": users, "most": most, "label": "later data, as a share of the limit"} if users else None


def _charts(rows: Sequence[dict[str, Any]], drawn: dict[str, Any]) -> str:
    units = [r["unit"] for r in rows]
    key = [(c, f"{unit or 'no unit'}, {counted(units.count(unit), 'user')}") for unit, c in colours(rows).items()]
    key += [("middle", "median user")] if len(rows) > 2 else []
    more = f" The {MOST_LINES} weakest of {len(rows):,} users are drawn." if len(rows) > MOST_LINES else ""
    made = (
        "One curve per user, computed exactly for her own chain; shares, so that different units can be compared. The "
        "dots are the policies."
    )
    later = (
        "What came out on data that nothing was fitted to, with its 95 % interval; the bar is the limit, and what lies "
        f"beyond {MOST_SHARE:.0%} is drawn there.{more}"
    )
    verdicts = [(c, str(v)) for v, c in VERDICTS.items()]
    first = _chart("curves", "What accuracy costs each user", key, made)
    return first + (_chart("limits", "Limits on later data", verdicts, later) if drawn["limits"] else "")


def _chart(name: str, title: str, key: Sequence[tuple[str, str]], caption: str) -> str:
    line = '<svg viewBox="0 0 14 8"><line class="{}" x1="0" x2="14" y1="4" y2="4" stroke-width="2"/></svg>{}'
    legend = "".join(f"<li>{line.format(kind, escape(words))}</li>" for kind, words in key)
    plot = f'<figure class="chart"><div id="{name}" class="plot"></div><figcaption>{caption}</figcaption></figure>'
    return _section(title, f'<ul class="key">{legend}</ul>{plot}')


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
    return _section("Over all users", drawn)


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """Most revealing first; `data-v` is what a click on the head sorts by."""
    shown = table_of(rows)
    drawn = table(
        ("user", *shown),
        [(row["user"], *(column[i] for column in shown.values())) for i, row in enumerate(rows)],
        "sortable stack",
    )
    meant = " ".join(f"<em>{h}</em>: {MEANINGS[h]}" for h in shown if h in MEANINGS)
    return _section("User by user", f"<p>A click on a head sorts. {meant}</p>{drawn}")
