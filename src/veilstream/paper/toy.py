"""(d) The 2x3 toy: its transition matrix, and the best channel at the uniform belief, lambda 3."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from veilstream.builtin import builtin_problem
from veilstream.information import Array
from veilstream.paper.item import Desk, Finding, Item
from veilstream.policy import GreedyRule
from veilstream.problem import Average, expected_distortion, leakage
from veilstream.solvers import solve

WEIGHT = 3.0


def make(desk: Desk) -> Finding:
    problem = builtin_problem("grid2x3-toy", Average(weight=WEIGHT))
    P, n = problem.chain.transition, problem.n_states
    b = np.full(n, 1 / n) @ P  # the paper's belief is about the step before
    a = GreedyRule(problem.cost(WEIGHT), tolerance=1e-9)(b)
    best = solve(problem, certify=True, certify_seconds=desk.budget.certify_s, seed=desk.budget.seed)
    desk.table(
        ["true_cell", *(f"release_{y}" for y in range(n))],
        [[x, *map(float, row)] for x, row in enumerate(a)],
    )
    desk.figure(draw(P, a))
    bits, off = float(leakage(b, a)), float(expected_distortion(b, a, problem.distortion))
    random = int((a.max(1) < 0.99).sum())
    gap = 0.0 if best.gap is None else best.gap
    return Finding(
        f"At the uniform belief the best channel for that step is random in {random} of {n} rows ({bits:.3f} bits, "
        f"{off:.3f} cells; computed exactly). In the long run the best policy found leaks {best.leakage:.3f} bits at "
        f"{best.distortion:.3f} cells, within {100 * gap:.2f} % of the proved bound on the objective.",
        "in part" if random else "no",
        "Not deterministic, as stated. Its 36 rows are for pairs of states; an optimal channel needs the present one "
        "only, so ours has 6. Ours is the best channel for this step; the paper's also looks ahead.",
    )


def draw(P: Array, a: Array) -> Figure:
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    titles = ("transition matrix P(next | now)", f"best channel at the uniform belief, lambda {WEIGHT:g}")
    labels = (("next cell", "cell now"), ("released cell", "true cell"))
    for ax, table, title, (x, y) in zip(figure.subplots(1, 2), (P, a), titles, labels, strict=True):
        image = ax.imshow(table, cmap="YlGnBu", vmin=0, vmax=1)
        for (i, j), v in np.ndenumerate(table):
            ax.text(j, i, f"{v:.2f}", ha="center", va="center", fontsize=9, color="white" if v > 0.55 else "#22303c")
        ax.set(xlabel=x, ylabel=y)
        ax.set_title(title, loc="left", fontsize=11)
    figure.colorbar(image, ax=figure.axes, label="probability", shrink=0.85)
    return figure


ITEM = Item(
    "toy",
    "The 2x3 toy: transition matrix and actions",
    "At the uniform belief with weight 3 the learned actions are not deterministic (12 of 36 rows are printed).",
    make,
)
