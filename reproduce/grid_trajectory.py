"""(e) A true and a released trajectory of five steps on the 4x4 grid."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from reproduce.item import Desk, Finding, Item
from veilstream.audit.traces import release
from veilstream.model.builtin import builtin_problem
from veilstream.model.distortion import grid_points
from veilstream.model.problem import Average
from veilstream.solvers import solve

STEPS, WEIGHT = 5, 1.0


def make(desk: Desk) -> Finding:
    problem = builtin_problem("grid4x4-q2", Average(weight=WEIGHT))
    solution = solve(problem, seed=desk.budget.seed)
    start = problem.chain.sample(STEPS, seed=desk.budget.seed)[0]
    traces = release(solution.policy, [start], seed=desk.budget.seed)
    true, shown = traces.z[0], traces.y[0]
    d = problem.distortion[true, shown]
    desk.table(
        ["step", "true_cell", "released_cell", "distance"],
        list(zip(range(1, STEPS + 1), true + 1, shown + 1, d, strict=True)),
    )
    desk.figure(draw(true, shown))
    return Finding.judged(
        f"The two paths differ in {int((d > 0).sum())} of {STEPS} steps, by {d.mean():.1f} cells on average in this "
        f"draw; in the long run {solution.distortion:.2f} cells for {solution.leakage:.3f} bits per step "
        f"({solution.level}).",
        "One draw, to look at; the paper gives no numbers for it.",
        optimum="yes" if (d > 0).any() else "no",
        ran="the exact solver, one draw of five steps; A2C was not run.",
    )


def draw(true: NDArray[np.int64], shown: NDArray[np.int64]) -> Figure:
    figure = Figure(figsize=(6, 5.6), layout="constrained")
    ax = figure.subplots()
    at = grid_points(4, 4)[:, ::-1]  # x to the right, y down
    ax.plot(*at.T, "s", color="#e5e9ed", markersize=46, zorder=0)
    for cell, (x, y) in enumerate(at):
        ax.text(x + 0.27, y + 0.26, str(cell + 1), fontsize=8, color="#6b7884", ha="right")
    for path, colour, line, shift, label in (
        (true, "#0072B2", "-", -0.09, "true"),
        (shown, "#D55E00", "--", 0.09, "released"),
    ):
        x, y = at[path].T + shift
        bend = np.linspace(-0.16, 0.16, len(path))  # so that staying and coming back can be told apart
        ax.plot(x + bend, y - bend, line, color=colour, marker="o", markersize=9, label=label, zorder=2)
        for t, (p, q) in enumerate(zip(x + bend, y - bend, strict=True)):
            ax.annotate(str(t + 1), (p, q), ha="center", va="center", fontsize=7, color="white", zorder=3)
    ax.set(xlim=(-0.6, 3.6), ylim=(3.6, -0.6), aspect="equal", xlabel="column", ylabel="row")
    ax.set_xticks(range(4))
    ax.set_yticks(range(4))
    ax.set_title(f"Q2, lambda {WEIGHT:g}: five steps, numbered", loc="left", fontsize=11)
    ax.legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.12))
    ax.spines[["top", "right"]].set_visible(False)
    return figure


ITEM = Item(
    "grid-trajectory",
    "A true and a released trajectory (4x4 grid, n = 5)",
    "The released path is near the true one and differs from it.",
    make,
)
