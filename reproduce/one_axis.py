"""The grids' figures as the paper draws them: Q0, Q1 and Q2 on one axis, colours for chains, marks for methods.

Below, how far every point lies above what was proved: there the certified band can be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from veilstream.apps.report.plots import STYLES
from veilstream.model.information import Array

COLOURS = {"q0": "#D55E00", "q1": "#009E73", "q2": "#0072B2"}
MARKS = {
    "myopic": "x",
    "belief-greedy": "^",
    "a2c": "*",
    "a2c-paper": "d",
    "planar-laplace": "s",
    "rounding": "D",
}
HOLLOW = ("belief-greedy", "planar-laplace", "rounding")
LEAST = 1e-4  # bits: what is nearer to the bound is drawn here


def panels(title: str, x: str) -> tuple[Figure, Axes, Axes]:
    """(figure, leakage, above what was proved)."""
    figure = Figure(figsize=(9.5, 9), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[1.7, 1])
    top.set_title(title, loc="left", fontsize=11)
    top.set_ylabel("leakage (bits per step)")
    bottom.set(ylabel="above the proved bound (bits)", xlabel=x, yscale="log")
    told = f"the same, less what no policy can be below (proved); {LEAST:.4f} and less stand at {LEAST:.4f}"
    bottom.set_title(told, loc="left", fontsize=10)
    for ax in (top, bottom):
        ax.spines[["top", "right"]].set_visible(False)
    return figure, top, bottom


def draw_optimum(top: Axes, bottom: Axes, chain: str, x: Sequence[float] | Array, bits: Array, low: Array) -> None:
    """The best policies found, and the band down to what was proved."""
    colour = COLOURS[chain]
    top.plot(x, bits, "-", color=colour, lw=1.8, zorder=2)
    top.fill_between(x, low, bits, color=colour, alpha=0.25, lw=0)
    gap = np.maximum(bits - low, LEAST)
    bottom.plot(x, gap, "-", color=colour, lw=1.5)
    bottom.fill_between(x, LEAST, gap, color=colour, alpha=0.25, lw=0)


def draw_method(
    top: Axes, bottom: Axes, chain: str, method: str, x: Iterable[float], bits: Iterable[float], low: Iterable[float]
) -> None:
    """Points of one method, no line between them."""
    x, bits, low = (np.array(list(v), float) for v in (x, bits, low))
    fill = "none" if method in HOLLOW else "full"
    for ax, v in ((top, bits), (bottom, np.maximum(bits - low, LEAST))):
        ax.plot(x, v, MARKS[method], color=COLOURS[chain], ms=9 if method == "a2c" else 6, fillstyle=fill, zorder=3)


def legends(top: Axes, optimum: str, methods: Sequence[str], names: dict[str, str] | None = None) -> None:
    """Chains by colour on the right above, methods by mark beside them."""
    lines = [top.plot([], [], "-", color=colour)[0] for colour in COLOURS.values()]
    first = top.legend(
        lines,
        [f"{optimum}, {c.upper()}" for c in COLOURS],
        frameon=False,
        fontsize=9,
        loc="upper right",
        title="the optimum, certified band",
        title_fontsize=9,
    )
    top.add_artist(first)
    marks = [
        top.plot([], [], MARKS[m], color="#444444", ms=6, fillstyle="none" if m in HOLLOW else "full")[0]
        for m in methods
    ]
    names = names or {}
    labels = [names.get(m, STYLES[m][2]) for m in methods]
    top.legend(marks, labels, frameon=False, fontsize=9, loc="upper right", bbox_to_anchor=(0.74, 1.0))
