"""(d) The 2x3 toy: its transition matrix, and the actions at the uniform belief, lambda 3, in both forms.

The paper's belief is about x_{t-1}, ours about the state z_t that the channel looks at: its uniform belief is uniform
times P, on x_t for q(y | x_t) and on pairs for its own q(y | x_t, x_{t-1}), which is the same problem on pairs.

With look-ahead the action is the minimum of L(b, a) + lambda D(b, a) + sum_y <P alpha_y, m(., y)>, where alpha_y is
what the exact solver's policy of memory 1 costs from there on: Blahut-Arimoto at b with its kernel's cost, -log2 K.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduce.item import NO, NOT_RUN, PART, YES, Desk, Finding, Item
from reproduce.learned import AS_PUBLISHED, available, options_of, told_of
from reproduce.points import key_of, solved
from veilstream.control.belief import BeliefPolicy, GreedyRule
from veilstream.control.controller import release_cost
from veilstream.control.evaluate import Evaluation, evaluate
from veilstream.model.builtin import builtin_problem
from veilstream.model.information import Array
from veilstream.model.problem import Average, Problem, expected_distortion, leakage
from veilstream.solvers import solve
from veilstream.solvers.solution import Solution

WEIGHT = 3.0
LIMIT = 0.6  # the paper's, cells on average
NEAR = 0.02  # probability
PAPER = {  # (x_t, x_{t-1}): release 1..6; 12 of its 36 rows are printed
    (1, 1): (0.19, 0.06, 0.22, 0.18, 0.23, 0.12),
    (1, 2): (0.21, 0.19, 0.28, 0.09, 0.06, 0.17),
    (1, 3): (0.19, 0.13, 0.18, 0.19, 0.28, 0.03),
    (1, 4): (0.30, 0.24, 0.17, 0.07, 0.07, 0.15),
    (1, 5): (0.03, 0.05, 0.51, 0.01, 0.25, 0.15),
    (1, 6): (0.22, 0.14, 0.13, 0.16, 0.21, 0.14),
    (6, 1): (0.03, 0.07, 0.21, 0.21, 0.32, 0.16),
    (6, 2): (0.18, 0.13, 0.35, 0.10, 0.16, 0.08),
    (6, 3): (0.21, 0.08, 0.18, 0.12, 0.13, 0.28),
    (6, 4): (0.18, 0.05, 0.19, 0.36, 0.14, 0.08),
    (6, 5): (0.31, 0.14, 0.30, 0.07, 0.16, 0.02),
    (6, 6): (0.09, 0.29, 0.21, 0.16, 0.01, 0.24),
}


def make(desk: Desk) -> Finding:
    problem = builtin_problem("grid2x3-toy", Average(weight=WEIGHT))
    pair = Problem(problem.chain.lift(2), problem.distortion, problem.constraint)
    P, n = problem.chain.transition, problem.n_states
    b = np.full(n, 1 / n) @ P
    names = [(new + 1, old + 1) for new, old in pair.chain.histories or ()]
    b_pair = np.array([P[old - 1, new - 1] / n for new, old in names])
    now = GreedyRule(problem.cost(WEIGHT), tolerance=1e-9)(b)
    desk.tell(0.2, "look-ahead")
    rule = lookahead(problem, desk.budget.seed)
    ahead, ahead_pair = rule(b), lookahead(pair, desk.budget.seed)(b_pair)
    best = solved(desk, problem, certify=True)
    reached = evaluate(problem, BeliefPolicy(problem.chain, rule), 100, 64, seed=desk.budget.seed)
    desk.tell(0.6, "A2C")
    learned = learned_action(desk, problem, b, "a2c")
    desk.tell(0.7, "A2C as published")
    published = learned_action(desk, pair, b_pair, AS_PUBLISHED)
    tables = {"this step alone": now, "with look-ahead": ahead, "a2c": learned}
    rows: list[list[Any]] = [
        [name, x + 1, "", *map(float, row)] for name, a in tables.items() if a is not None for x, row in enumerate(a)
    ]
    by_name = sorted(zip(names, ahead_pair, strict=True), key=lambda at: at[0])
    rows += [["with look-ahead, pairs", *at, *map(float, row)] for at, row in by_name]
    if published is not None:
        rows += [["a2c as published, mean", *at, *map(float, row)] for at, row in zip(names, published, strict=True)]
    rows += [["the paper's", *at, *row] for at, row in PAPER.items()]
    desk.table(["action", "x_now", "x_before", *(f"release_{y + 1}" for y in range(n))], rows)
    printed = np.array([row for at, row in by_name if at in PAPER])
    desk.figure(draw(P, now, ahead, printed))
    spread = pair_spread(dict(by_name))
    step = (float(leakage(b, ahead)), float(expected_distortion(b, ahead, problem.distortion)))
    row_of = None if published is None else dict(zip(names, published, strict=True))
    as_published = None if row_of is None else np.array([row_of[at] for at in PAPER])
    found = judge(problem, now, ahead, printed, spread, step, best, reached, learned, as_published)
    of_pairs = told_of(AS_PUBLISHED, desk.budget)
    ran = f"the exact solver (memory 1, states and pairs); {told_of('a2c', desk.budget)}; {of_pairs} on pairs."
    return replace(found, ran=ran)


def lookahead(problem: Problem, seed: int) -> GreedyRule:
    """Blahut-Arimoto whose cost holds what the exact policy of memory 1 pays later."""
    policy = solve(problem, window=1, seed=seed).policy
    cost = release_cost(policy)
    assert cost is not None  # a window of one has it
    return GreedyRule(cost, tolerance=1e-9)


def learned_action(desk: Desk, problem: Problem, b: Array, method: str) -> Array | None:
    """What the learned policy does at the belief (the mean of its Dirichlet); None without the extra `deep`."""
    if not available():
        return None
    options = options_of(method, desk.budget) | ({"deploy": "mean"} if method == AS_PUBLISHED else {})
    key = key_of(problem, method, seed=desk.budget.seed, options=options, at=b.tolist())
    found = desk.kept(key, lambda: solve(problem, "a2c", seed=desk.budget.seed, **options).policy.channel(b).tolist())
    return np.array(found)


def pair_spread(rows: dict[tuple[int, int], Array]) -> float:
    """How much the rows of pairs with the same x_t differ: one symbol less loses nothing, so they need not."""
    by_now: dict[int, list[Array]] = {}
    for (now, _), row in rows.items():
        by_now.setdefault(now, []).append(row)
    return max(float(np.ptp(np.array(group), axis=0).max()) for group in by_now.values())


def mean_distance(problem: Problem, rows: Array) -> float:
    """Mean cells of the printed rows, pairs weighted as at the uniform belief."""
    P = problem.chain.transition
    weight = np.array([P[old - 1, new - 1] for new, old in PAPER])
    at = np.array([problem.distortion[new - 1] for new, _ in PAPER])
    return float((weight / weight.sum()) @ (rows * at).sum(1))


def judge(
    problem: Problem,
    now: Array,
    ahead: Array,
    printed: Array,
    spread: float,
    step: tuple[float, float],
    best: Solution,
    reached: Evaluation,
    learned: Array | None,
    published: Array | None,
) -> Finding:
    random, n = int((ahead.max(1) < 0.99).sum()), len(ahead)
    ours, theirs = (mean_distance(problem, np.array(rows)) for rows in (printed, list(PAPER.values())))
    gap = 0.0 if best.gap is None else best.gap
    objective = reached.leakage + WEIGHT * reached.distortion
    error = 1.96 * (reached.leakage_se + WEIGHT * reached.distortion_se)
    critic = (
        "A2C was not run (pip install 'veilstream[deep]')"
        if learned is None
        else f"A2C's action differs from it by at most {np.abs(learned - ahead).max():.2f}"
    )
    told = np.array(list(PAPER.values()))
    if published is None:
        itself, of_it = NOT_RUN, ""
    else:
        itself = random_rows(published, told)
        of_it = (
            f" A2C as published: the printed rows of its mean are {mean_distance(problem, published):.2f} cells off, "
            f"and differ from the paper's by {np.abs(published - told).mean():.2f} on average."
        )
    return Finding.judged(
        f"At the uniform belief the action with look-ahead is random in {random} of {n} rows ({step[0]:.3f} bits, "
        f"{step[1]:.3f} cells in that step); it differs from the best for this step alone by at most "
        f"{np.abs(ahead - now).max():.2f}; {critic}. Looking ahead so at every step costs {objective:.3f} ± "
        f"{error:.3f} in the long run; the best policy found {best.objective:.3f} ({best.leakage:.3f} bits, "
        f"{best.distortion:.3f} cells), within {100 * gap:.2f} % of the proved bound.{of_it}",
        f"Not deterministic, as stated. For pairs of states ours has 36 rows too, which "
        f"{'do not depend' if spread < NEAR else 'depend'} on x_t-1 (they differ by at most {spread:.3f}): the present "
        f"state is enough. The printed rows are far from ours: their mean distance is {theirs:.2f} cells, ours "
        f"{ours:.2f}, where the paper's own limit is {LIMIT:g}; at 3 bits a cell no good policy strays so far.",
        published=itself,
        better=NOT_RUN if learned is None else random_rows(learned, None),
        optimum=random_rows(ahead, None) if np.abs(printed - told).max() >= NEAR else YES,
    )


def random_rows(a: Array, told: Array | None) -> str:
    """Not deterministic, as stated; and, where they can be compared, near the printed rows."""
    if (a.max(1) >= 0.99).all():
        return NO
    return YES if told is not None and np.abs(a - told).max() < NEAR else PART


def draw(P: Array, now: Array, ahead: Array, printed: Array) -> Figure:
    figure = Figure(figsize=(13, 10), layout="constrained")
    grid = figure.add_gridspec(2, 6, height_ratios=[1, 1.5])
    cells = [str(i + 1) for i in range(len(P))]
    pairs = [f"{now}, {old}" for now, old in PAPER]
    tables = (
        (grid[0, 0:2], P, "transition matrix P(next | now)", "next cell", "cell now", cells),
        (grid[0, 2:4], now, "best for this step alone", "released cell", "true cell", cells),
        (grid[0, 4:6], ahead, "with look-ahead", "released cell", "true cell", cells),
        (grid[1, 0:3], printed, "with look-ahead, pairs", "released cell", "true cell now, before", pairs),
        (grid[1, 3:6], np.array(list(PAPER.values())), "the paper's table", "released cell", "", pairs),
    )
    for place, table, title, x, y, names in tables:
        show(figure.add_subplot(place), table, title, x, y, names)
    figure.suptitle(
        f"The 2x3 toy at the uniform belief, lambda {WEIGHT:g} bits a cell; singles above, pairs below", fontsize=12
    )
    return figure


def show(ax: Axes, table: Array, title: str, x: str, y: str, names: list[str]) -> None:
    """Probabilities as numbers on colour."""
    ax.imshow(table, cmap="YlGnBu", vmin=0, vmax=1, aspect="auto")
    for (i, j), v in np.ndenumerate(table):
        ax.text(j, i, f"{v:.2f}", ha="center", va="center", fontsize=9, color="white" if v > 0.55 else "#22303c")
    ax.set_xticks(range(table.shape[1]), [str(j + 1) for j in range(table.shape[1])])
    ax.set_yticks(range(len(table)), names)
    ax.set(xlabel=x, ylabel=y)
    ax.set_title(title, loc="left", fontsize=11)


ITEM = Item(
    "toy",
    "The 2x3 toy: transition matrix and actions",
    "At the uniform belief with weight 3 the learned actions are not deterministic (12 of 36 rows are printed).",
    make,
)
