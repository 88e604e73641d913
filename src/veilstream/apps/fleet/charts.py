"""The pictures of the summary as SVG text: one curve per user, one dot per user. They scale, and need no script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 480.0, 330.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 20.0, 12.0, 42.0
COLOURS = ("true", "released", "heat", "other")  # of the page's palette, one per unit
GRID = np.linspace(0, 1, 101)
SAME = 0.01  # a relative spread under which all are drawn in one place


def colours(units: Sequence[str]) -> dict[str, str]:
    return {unit: COLOURS[i % len(COLOURS)] for i, unit in enumerate(sorted(set(units)))}


def shares(row: dict[str, Any]) -> NDArray[np.float64]:
    """Her curve: the distance felt as a share of revealing nothing, leakage as one of the truth, which is on it too."""
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
        at = min(r["distortion_share"], 1.0), min(r["leakage_share"], 1.0)
        told = f"{r['user']}: {felt(r)}, {r['leakage']:.4f} bits per step in the long run"
        parts.append(
            f'<circle class="at-{colour[r["unit"]]}" cx="{x(at[0]):.1f}" cy="{y(at[1]):.1f}" r="3.5">'
            f"<title>{escape(told)}</title></circle>"
        )
    label = "Leakage against distortion, one curve per user"
    return f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def felt(row: dict[str, Any]) -> str:
    """How far off a release is, on the record where there is one."""
    far = row["distortion"] if row["raw_distortion"] is None else row["raw_distortion"]
    return f"{far:.3g} {row['unit']}".strip()


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
        f'<text x="{x(1) - 4:.1f}" y="{y(1) + 14:.1f}" text-anchor="end">leakage, of what the truth tells</text>'
    )
    return "".join(parts)


def _path(points: NDArray[np.float64], x: Callable[[float], float], y: Callable[[float], float]) -> str:
    """Clipped to the frame."""
    inside = [(d, leak) for d, leak in points if d <= 1.0 + 1e-9]
    return "M" + "L".join(f"{x(d):.1f} {y(min(leak, 1.0)):.1f}" for d, leak in inside)


def strip(rows: Sequence[dict[str, Any]], name: str, show: Callable[[float], str], units: Sequence[str]) -> str:
    """One dot per user along a line from the least to the most, and the median."""
    values = [(r[name], r) for r in rows if r[name] is not None]
    if not values:
        return ""
    colour = colours(units)
    numbers = np.array([v for v, _ in values], float)
    low, high, middle = float(numbers.min()), float(numbers.max()), float(np.median(numbers))

    def at(value: float) -> str:
        return f"{2 + 96 * ((value - low) / (high - low) if high - low > SAME * abs(high) else 0.5):.2f}%"

    dots = "".join(
        f'<circle class="at-{colour[r["unit"]]}" cx="{at(v)}" cy="12" r="5">'
        f"<title>{escape(r['user'])}: {escape(show(v))}</title></circle>"
        for v, r in values
    )
    told = f"least {show(low)}, median {show(middle)}, most {show(high)}"
    return (
        f'<svg width="100%" height="24" role="img" aria-label="{escape(told)}"><line class="grid" x1="1%" x2="99%" '
        f'y1="12" y2="12"/>{dots}<line class="middle" x1="{at(middle)}" x2="{at(middle)}" y1="1" y2="23"/></svg>'
        f'<p class="ends"><span>{escape(show(low))}</span><span><b>{escape(show(middle))}</b></span>'
        f"<span>{escape(show(high))}</span></p>"
    )
