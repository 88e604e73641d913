"""(c) How A2C converges on the 4x4 grid, Q2, lambda 1: the band over seeds, above the proved bound."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from veilstream.apps.paper.item import Desk, Finding, Item
from veilstream.apps.paper.learned import LIBRARY, trained
from veilstream.apps.paper.points import solved
from veilstream.apps.report.plots import STYLES
from veilstream.core.builtin import builtin_problem
from veilstream.core.information import Array
from veilstream.core.problem import Average
from veilstream.solvers.solution import Solution

WEIGHT = 1.0
SETTLED, NEAR = 0.002, 0.05  # relative: what the last quarter may gain, how far above the optimum counts as there


def make(desk: Desk) -> Finding:
    problem = builtin_problem("grid4x4-q2", Average(weight=WEIGHT))
    budget = desk.budget
    best = solved(desk, problem, certify=True)
    learned = []
    for run in range(budget.a2c_runs):
        desk.tell(run / budget.a2c_runs, f"seed {run + 1} of {budget.a2c_runs}")
        learned.append(trained(desk, problem, "a2c", run))
    steps, runs = by_seed([row for s in learned if s is not None for row in s.history])
    desk.table(
        ["roll_out_steps", *(f"objective_seed_{i}" for i in range(len(runs)))],
        [[int(t), *map(float, column)] for t, column in zip(steps, runs.T, strict=True)],
    )
    desk.figure(draw(steps, runs, best))
    above = runs[:, -1] / best.objective - 1
    still = (runs[:, -1 - runs.shape[1] // 4] - runs[:, -1]).mean() / best.objective
    settled, near = abs(still) <= SETTLED, above.max() <= NEAR
    return Finding(
        f"After {steps[-1]:,.0f} roll-out steps {len(runs)} seeds are {100 * above.min():.1f} to "
        f"{100 * above.max():.1f} % above the best policy found, {best.objective:.3f} (leakage + lambda x distortion), "
        f"which is within {100 * (best.gap or 0):.2f} % of the proved bound. The last quarter gained "
        f"{100 * still:.1f} %.",
        "yes" if settled and near else "in part" if (runs[:, -1] < runs[:, 0]).all() else "no",
        f"The paper's band settles; ours, with width {budget.a2c_width} (the paper's: 3000), "
        f"{'has settled' if settled else 'is still moving'}, {'near' if near else 'above'} the optimum. "
        "Ours counts steps, its iterations are of "
        "300 steps each. Its limit of 0.8 only shifts the cost.",
    )


def by_seed(history: list[dict[str, Any]]) -> tuple[Array, Array]:
    """(steps, seeds x steps): the objective of the deployed policy along the training."""
    seeds = sorted({row["seed"] for row in history})
    runs = np.array([[float(row["objective"]) for row in history if row["seed"] == seed] for seed in seeds])
    return np.array([row["step"] for row in history if row["seed"] == seeds[0]], float), runs


def draw(steps: Array, runs: Array, best: Solution) -> Figure:
    figure = Figure(figsize=(7.5, 4.6), layout="constrained")
    ax = figure.subplots()
    ax.fill_between(
        steps, runs.min(0), runs.max(0), color="#882255", alpha=0.3, lw=0, label=f"A2C, range of {len(runs)} seeds"
    )
    ax.plot(steps, runs.mean(0), color="#882255", label="A2C, mean")
    ax.axhline(best.objective, color=STYLES["causal-ba"][0], label=STYLES["causal-ba"][2])
    if best.lower_bound is not None:
        ax.axhline(best.lower_bound, color="#000000", ls=":", lw=1, label="no policy can be below (proved)")
    ax.set(xlabel="roll-out steps", ylabel="leakage + lambda x distortion (bits per step)")
    ax.set_title(f"Training on the 4x4 grid, Q2, lambda {WEIGHT:g}", loc="left", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    ax.ticklabel_format(axis="x", style="plain")
    ax.legend(frameon=False, fontsize=9)
    return figure


ITEM = Item(
    "convergence",
    "Convergence of A2C (4x4 grid, Q2, lambda 1)",
    "The cost settles after about 2500 iterations, with a band over runs.",
    make,
    needs=LIBRARY,
)
