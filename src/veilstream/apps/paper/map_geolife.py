"""(h) A true and a released GeoLife trajectory on a map: lambda 1, at most 5 km."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from veilstream.apps.paper.geolife import WHY, model
from veilstream.apps.paper.item import Desk, Finding, Item
from veilstream.apps.report.layout import east_north_km
from veilstream.apps.report.plots import draw_traces
from veilstream.apps.report.points import stretch
from veilstream.audit.traces import release
from veilstream.core.information import Array
from veilstream.core.problem import Average, Both, Instantaneous, Problem
from veilstream.data.states import StateSpace
from veilstream.solvers import solve

WEIGHT, LIMIT_KM, STEPS = 1.0, 5.0, 60
TRUE, SHOWN = "#0072B2", "#D55E00"


def make(desk: Desk) -> Finding:
    assert desk.geolife is not None
    desk.tell(0.0, "fitting")
    fitted = model(desk.geolife)
    d = fitted.states.distances()
    desk.tell(0.4, "solving")
    solution = solve(
        Problem(fitted.chain, d, Both(Average(weight=WEIGHT), Instantaneous(LIMIT_KM))), seed=desk.budget.seed
    )
    true = stretch(fitted.runs.sequences, STEPS)
    shown = release(solution.policy, [true], seed=desk.budget.seed).y[0]
    off = d[true, shown]
    desk.table(["step", "distance_km"], list(zip(range(1, len(true) + 1), off.tolist(), strict=True)))
    desk.figure(draw(fitted.states, true, shown))
    kept = bool((off <= LIMIT_KM + 1e-9).all())
    return Finding.judged(
        f"The released path differs in {int((off > 0).sum())} of {len(true)} steps and is never more than "
        f"{off.max():.2f} km off. In the long run {solution.distortion:.2f} km for {solution.leakage:.3f} bits per "
        f"step ({solution.level}).",
        f"One stretch of the recorded data, drawn once. {WHY}",
        optimum="yes" if kept and (off > 0).any() else "in part" if kept else "no",
    )


def draw(states: StateSpace, true: NDArray[np.int64], shown: NDArray[np.int64]) -> Figure:
    places = east_north_km(states)
    figure = Figure(figsize=(13, 5.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.25])
    used = np.unique(np.concatenate([true, shown]))
    draw_paths(left, places, true, shown, used)
    left.set_title("moves; grey: other stops", loc="left", fontsize=11)
    draw_traces(right, true, shown, states.names, 5 / 60)
    right.set_title("the same over time", loc="left", fontsize=11)
    figure.suptitle(f"GeoLife user 016, lambda {WEIGHT:g}, at most {LIMIT_KM:g} km", fontsize=12)
    return figure


def draw_paths(
    ax: Axes, places: Array, true: NDArray[np.int64], shown: NDArray[np.int64], used: NDArray[np.int64]
) -> None:
    ax.plot(*places.T, "o", color="#b4bec7", markersize=4, zorder=1)
    share = np.bincount(true, minlength=len(places)) / len(true), np.bincount(shown, minlength=len(places)) / len(shown)
    ax.scatter(places[:, 0], places[:, 1], s=600 * share[0], color=TRUE, alpha=0.5, lw=0, zorder=2)
    ax.scatter(places[:, 0], places[:, 1], s=600 * share[1], facecolor="none", edgecolor=SHOWN, linewidth=2, zorder=3)
    for path, colour, line, bend, label in ((true, TRUE, "-", 0.12, "true"), (shown, SHOWN, "--", 0.28, "released")):
        moves = {(int(a), int(b)) for a, b in pairwise(path) if a != b}
        ax.plot([], [], line, color=colour, label=label)
        for a, b in moves:
            ax.annotate("", places[b], places[a], zorder=2, arrowprops={"arrowstyle": "->", "color": colour, "ls": line,
                        "connectionstyle": f"arc3,rad={bend}", "alpha": 0.7})  # fmt: skip
    middle = (places[used].min(0) + places[used].max(0)) / 2
    half = max(np.ptp(places[used], axis=0).max() * 0.6, 0.3)
    ax.set(xlabel="east (km)", ylabel="north (km)", aspect="equal")
    ax.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    ax.grid(color="#e5e9ed", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1.0), fontsize=9)


ITEM = Item(
    "map-geolife",
    "GeoLife user 016: a true and a released trajectory",
    "With weight 1 and at most 5 km the released path differs from the true one and the limit holds.",
    make,
    needs_geolife=True,
)
