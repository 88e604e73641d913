"""A2C (as published, and fast) and actor-critic as points of a figure, where JAX is; estimates with 95 % intervals."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from veilstream.apps.paper.cache import ready
from veilstream.apps.paper.item import Budget, Desk
from veilstream.apps.paper.points import key_of, of_json, to_json
from veilstream.apps.report.plots import STYLES
from veilstream.core.problem import Problem
from veilstream.solvers import solve
from veilstream.solvers.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LIBRARY = "jax"
METHODS = ("actor-critic", "a2c")
AS_PUBLISHED = "a2c-paper"  # a2c in the paper's mode, its sampled actions deployed
MARKS = {"belief-greedy": "^", "actor-critic": "P", "a2c": "*", AS_PUBLISHED: "d"}


def available() -> bool:
    return find_spec(LIBRARY) is not None


def options_of(method: str, budget: Budget) -> dict[str, Any]:
    if method == "actor-critic":
        return {"updates": budget.critic_updates}
    if method == AS_PUBLISHED:
        more = {"steps": budget.paper_steps, "width": budget.paper_width, "segments": budget.a2c_segments}
        return {"mode": "paper", "deploy": "sample", **more}
    return {"steps": budget.a2c_steps, "width": budget.a2c_width, "segments": budget.a2c_segments}


def trained(desk: Desk, problem: Problem, method: str, run: int = 0, **more: Any) -> Solution | None:
    """One training with one seed, kept; a cut one goes on from its last checkpoint. None without the extra `deep`.

    more: options beside those of the budget.
    """
    if not available():
        return None
    options, seed = options_of(method, desk.budget) | more, desk.budget.seed + run
    key = key_of(problem, method, seed=seed, options=options)
    checkpoint = desk.place(key, "safetensors")

    def compute() -> dict[str, Any]:
        before: dict[str, Any] = {"checkpoint": str(ready(checkpoint)), "resume": checkpoint.exists()}
        return to_json(solve(problem, "a2c" if method == AS_PUBLISHED else method, seed=seed, **options, **before))

    figures = desk.kept(key, compute)
    for left in (checkpoint, *checkpoint.parent.glob(f".{checkpoint.name}.*.part")):
        left.unlink(missing_ok=True)  # large, and of no use once the figures are there
    return of_json(problem, figures)


def said(s: Solution) -> str:
    return f"{s.leakage:.3f} ± {1.96 * s.leakage_se:.2g}"


def draw_learned(ax: Axes, method: str, at: Iterable[float], solutions: Iterable[Solution]) -> None:
    """Marks with their 95 % intervals (often smaller than the mark)."""
    colour, _, label = STYLES[method]
    points = list(solutions)
    ax.errorbar(
        list(at),
        [s.leakage for s in points],
        [1.96 * s.leakage_se for s in points],
        fmt=MARKS[method],
        color=colour,
        markersize=7 if method == "belief-greedy" else 10,
        fillstyle="none" if method == "belief-greedy" else "full",
        zorder=4,
        label=f"{label}, estimated ± 95 %",
    )


def draw_points(ax: Axes, curves: dict[str, list[Solution]]) -> None:
    """What is estimated, along the axis of distortion: belief-greedy and the learned methods, no line between them."""
    for method in MARKS:
        if points := curves.get(method):
            draw_learned(ax, method, [s.distortion for s in points], points)
