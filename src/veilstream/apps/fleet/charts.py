"""The pictures of the summary as SVG text: one curve per user, one dot per user. They scale, and need no script."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.apps.fleet.figures import felt
from veilstream.apps.report import svg
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


def trade_offs(rows: Sequence[dict[str, Any]]) -> str:
    """Leakage against distortion, both as shares, so that km and kWh stand side by side."""
    colour = colours([r["unit"] for r in rows])

    def x(share: float) -> float:
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(share: float) -> float:
        return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)

    parts = _axes(x, y)
    parts += [svg.path(f"one {colour[r['unit']]}", _line(shares(r), x, y), r["user"]) for r in rows]
    if len(rows) > 2:
        parts.append(svg.path("median", _line(median_curve(rows), x, y), "median user"))
    for r in rows:
        at = x(r["distortion_share"]), y(r["leakage"] / (r["entropy_rate"] or 1.0))
        title = f"{r['user']}: {felt(r)}, {r['leakage']:.4f} bits per step in the long run"
        parts.append(svg.dot(f"at-{colour[r['unit']]}", *at, title))
    return svg.picture(WIDTH, HEIGHT, "Leakage against distortion, one curve per user", parts)


def against_limits(rows: Sequence[dict[str, Any]]) -> str:
    """Later data with its interval, as a share of the limit, a line per user, weakest first; "" where none has any."""
    found = [
        (r["user"], c, Interval.read(c["later"]))
        for r in rows
        for c in (r.get("limits") or ())[:1]
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

    bottom, label = tall - BOTTOM, "later data, as a share of the limit"
    parts = [svg.path("middle", f"M{x(1):.1f} {TOP:g}V{bottom:g}")]
    for share in np.arange(0, most + 1e-9, 0.5 if most <= 2 else 1.0 if most <= 5 else 2.0):
        parts.append(svg.path("grid", f"M{x(share):.1f} {TOP:g}V{bottom:g}"))
        parts.append(svg.text(x(share), bottom + 15, f"{share:.0%}"))
    for i, (user, c, seen) in enumerate(shown):
        y, kind = TOP + LINE * (i + 0.5), VERDICTS[Verdict(c["verdict"])]
        parts.append(svg.text(left - 6, y + 4, user[:14], "end"))
        parts.append(svg.path(kind, f"M{x(seen.low):.1f} {y:.1f}H{x(seen.high):.1f}", more=' stroke-width="2"'))
        parts.append(svg.dot(f"at-{kind}", x(seen.value), y, f"{user}: {c['words']}", 4))
    parts.append(svg.text((left + WIDTH - RIGHT) / 2, tall - 8, label, kind=""))
    return svg.picture(WIDTH, tall, label, parts)


def _axes(x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        lines = f"M{x(share):.1f} {y(0):.1f}V{y(1):.1f}M{x(0):.1f} {y(share):.1f}H{x(1):.1f}"
        parts += [svg.path("grid", lines), svg.text(x(share), y(0) + 15, f"{share:.0%}")]
        parts.append(svg.text(x(0) - 5, y(share) + 4, f"{share:.0%}", "end"))
    parts.append(svg.text((x(0) + x(1)) / 2, HEIGHT - 8, "error, of what revealing nothing costs", kind=""))
    return [*parts, svg.text(x(1) - 4, y(1) + 14, "leakage, of what the truth reveals", "end", "")]


def _line(points: NDArray[np.float64], x: Callable[[float], float], y: Callable[[float], float]) -> str:
    """Clipped to the frame."""
    inside = [(d, leak) for d, leak in points if d <= 1.0 + 1e-9]
    return "M" + "L".join(f"{x(d):.1f} {y(min(leak, 1.0)):.1f}" for d, leak in inside)
