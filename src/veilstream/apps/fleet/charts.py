"""The pictures of the summary as SVG text: one curve per user, one dot per user. They scale, and need no script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.apps.fleet.figures import felt
from veilstream.control.limit_check import Verdict
from veilstream.model.interval import Interval

WIDTH, HEIGHT = 480.0, 330.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 20.0, 12.0, 42.0
COLOURS = ("true", "released", "heat", "other")  # of the page's palette, one per unit
GRID = np.linspace(0, 1, 101)
LINE, MOST_LINES, MOST_SHARE = 22.0, 30, 4.0  # of the chart of limits: height, users, and where it ends
VERDICTS = {Verdict.BROKEN: "released", Verdict.NOT_SHOWN: "other", Verdict.KEPT: "heat"}  # of the page's palette


def colours(units: Sequence[str]) -> dict[str, str]:
    return {unit: COLOURS[i % len(COLOURS)] for i, unit in enumerate(sorted(set(units)))}


def shares(row: dict[str, Any]) -> NDArray[np.float64]:
    """Her curve: the error as a share of revealing nothing, leakage as one of the truth, which is on it too."""
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


def trade_offs(rows: Sequence[dict[str, Any]]) -> str:
    """Leakage against distortion, both as shares, so that km and kWh stand side by side."""
    colour = colours([r["unit"] for r in rows])

    def x(share: float) -> float:
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(share: float) -> float:
        return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)

    parts = [_axes(x, y)]
    for r in rows:
        line = _path(shares(r), x, y)
        parts.append(f'<path class="one {colour[r["unit"]]}" d="{line}"><title>{escape(r["user"])}</title></path>')
    if len(rows) > 2:
        parts.append(f'<path class="median" d="{_path(median_curve(rows), x, y)}"><title>median user</title></path>')
    for r in rows:
        at = r["distortion_share"], r["leakage"] / (r["entropy_rate"] or 1.0)
        told = f"{r['user']}: {felt(r)}, {r['leakage']:.4f} bits per step in the long run"
        parts.append(
            f'<circle class="at-{colour[r["unit"]]}" cx="{x(at[0]):.1f}" cy="{y(at[1]):.1f}" r="3.5">'
            f"<title>{escape(told)}</title></circle>"
        )
    label = "Leakage against distortion, one curve per user"
    return f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def against_limits(rows: Sequence[dict[str, Any]]) -> str:
    """Later data with its interval, as a share of the limit, a line per user, weakest first; "" where none has any."""
    found = [
        (r["user"], c, Interval.read(c["later"]))
        for r in rows
        for c in r.get("limits", ())[:1]
        if c["later"] and c["limit"] > 0
    ]
    if not found:
        return ""
    found.sort(
        key=lambda one: (list(Verdict).index(Verdict(one[1]["verdict"])), -one[1]["later"]["value"] / one[1]["limit"])
    )
    shown = [(user, c, seen.scaled(1 / c["limit"])) for user, c, seen in found[:MOST_LINES] if seen is not None]
    most = min(max(1.5, *(seen.high for _, _, seen in shown)), MOST_SHARE)
    tall, left = TOP + LINE * len(shown) + BOTTOM, LEFT + 60

    def x(share: float) -> float:
        return left + min(share / most, 1.0) * (WIDTH - left - RIGHT)

    bottom = tall - BOTTOM
    parts = [f'<path class="middle" d="M{x(1):.1f} {TOP:g}V{bottom:g}"/>']
    for share in np.arange(0, most + 1e-9, 0.5 if most <= 2 else 1.0 if most <= 5 else 2.0):
        parts.append(f'<path class="grid" d="M{x(share):.1f} {TOP:g}V{bottom:g}"/>')
        text = f'x="{x(share):.1f}" y="{bottom + 15:.1f}" text-anchor="middle" class="soft"'
        parts.append(f"<text {text}>{share:.0%}</text>")
    for i, (user, c, seen) in enumerate(shown):
        y, kind = TOP + LINE * (i + 0.5), VERDICTS[Verdict(c["verdict"])]
        parts.append(
            f'<text x="{left - 6:g}" y="{y + 4:.1f}" text-anchor="end" class="soft">{escape(user[:14])}</text>'
        )
        parts.append(
            f'<path class="{kind}" stroke-width="2" d="M{x(seen.low):.1f} {y:.1f}H{x(seen.high):.1f}"/>'
            f'<circle class="at-{kind}" cx="{x(seen.value):.1f}" cy="{y:.1f}" r="4">'
            f"<title>{escape(user)}: {escape(c['words'])}</title></circle>"
        )
    middle, label = (left + WIDTH - RIGHT) / 2, "later data, as a share of the limit"
    parts.append(f'<text x="{middle:.0f}" y="{tall - 8:g}" text-anchor="middle">{label}</text>')
    return f'<svg viewBox="0 0 {WIDTH:g} {tall:g}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _axes(x: Callable[[float], float], y: Callable[[float], float]) -> str:
    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        text = f"{share:.0%}"
        parts.append(
            f'<path class="grid" d="M{x(share):.1f} {y(0):.1f}V{y(1):.1f}M{x(0):.1f} {y(share):.1f}H{x(1):.1f}"/>'
        )
        parts.append(f'<text x="{x(share):.1f}" y="{y(0) + 15:.1f}" text-anchor="middle" class="soft">{text}</text>')
        parts.append(f'<text x="{x(0) - 5:.1f}" y="{y(share) + 4:.1f}" text-anchor="end" class="soft">{text}</text>')
    middle = (x(0) + x(1)) / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{HEIGHT - 8:g}" text-anchor="middle">error, of what revealing nothing costs</text>'
    )
    parts.append(
        f'<text x="{x(1) - 4:.1f}" y="{y(1) + 14:.1f}" text-anchor="end">leakage, of what the truth reveals</text>'
    )
    return "".join(parts)


def _path(points: NDArray[np.float64], x: Callable[[float], float], y: Callable[[float], float]) -> str:
    """Clipped to the frame."""
    inside = [(d, leak) for d, leak in points if d <= 1.0 + 1e-9]
    return "M" + "L".join(f"{x(d):.1f} {y(min(leak, 1.0)):.1f}" for d, leak in inside)
