"""A2C, and as published, as points of a figure, where JAX is; estimates with 95 % intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduce.cache import ready
from reproduce.item import Budget, Desk
from reproduce.points import key_of, of_json, to_json
from veilstream import container
from veilstream.apps.report.plots import STYLES
from veilstream.control.belief import BeliefPolicy
from veilstream.control.policy import Policy, restore
from veilstream.model.information import Array
from veilstream.model.problem import Average, Problem
from veilstream.solvers import make_solver, solve
from veilstream.solvers.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LIBRARY = "jax"
METHODS = ("a2c",)
AS_PUBLISHED = "a2c-paper"  # a2c in the paper's mode, its sampled actions deployed
WITH_J, BY_ROWS = "a2c-paper-j", "a2c-paper-rows"  # the same, one more thing changed in each
PUBLISHED: dict[str, dict[str, Any]] = {
    AS_PUBLISHED: {},
    WITH_J: {"average": True},
    BY_ROWS: {"average": True, "credit": "rows"},
}
MEAN = "a2c-paper-mean"  # the same training, the mean of its Dirichlet deployed
POLICY = "policy"  # ending of a file
LEAST_SHOWN = 1e-3  # bits: three decimals are shown
MARKS = {"belief-greedy": "^", "a2c": "*", AS_PUBLISHED: "d"}


def available() -> bool:
    return find_spec(LIBRARY) is not None


def options_of(method: str, budget: Budget) -> dict[str, Any]:
    if method in PUBLISHED:
        more = {"steps": budget.paper_steps, "width": budget.paper_width, "segments": budget.segments}
        return {"mode": "paper", "deploy": "sample", **more, **PUBLISHED[method]}
    return {"updates": budget.a2c_updates, "segments": 2}


def told_of(method: str, budget: Budget, **more: Any) -> str:
    """The method and its budget, in a word."""
    if not available():
        return f"{STYLES[method][2]} (needs the extra deep)"
    o = options_of(method, budget) | more
    if method in PUBLISHED:
        return f"{called(method)} ({o['steps']:,} updates, one a step, width {o['width']})"
    seeds = "one seed" if budget.a2c_runs == 1 else f"{budget.a2c_runs} seeds"
    return f"{called(method)} ({o['updates']:,} updates, {seeds})"


def called(method: str) -> str:
    return STYLES[method][2]


def name_of(method: str) -> str:
    return "a2c" if method in PUBLISHED else method


def key_and_options(
    desk: Desk, problem: Problem, method: str, run: int, more: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    options = options_of(method, desk.budget) | more
    return key_of(problem, method, seed=desk.budget.seed + run, options=options), options


def trained(desk: Desk, problem: Problem, method: str, run: int = 0, **more: Any) -> Solution | None:
    """One training with one seed, kept; a cut one goes on from its last checkpoint. None without the extra `deep`.

    more: options beside those of the budget.
    """
    if not available():
        return None
    key, options = key_and_options(desk, problem, method, run, more)
    checkpoint = desk.place(key, "safetensors")

    def compute() -> dict[str, Any]:
        before: dict[str, Any] = {"checkpoint": str(ready(checkpoint)), "resume": checkpoint.exists()}
        solution = solve(problem, name_of(method), seed=desk.budget.seed + run, **options, **before)
        if method == AS_PUBLISHED:  # what tables share; others may have hidden layers of 3000
            keep_policy(desk.place(key, POLICY), solution.policy)
        return to_json(solution)

    figures = desk.kept(key, compute)
    _clear(checkpoint)
    return of_json(problem, figures)


def trained_policy(desk: Desk, problem: Problem, method: str, **more: Any) -> tuple[Policy, Solution]:
    """What `trained` gave as published, with its policy; trained again where that file is gone."""
    key, _ = key_and_options(desk, problem, method, 0, more)
    path = desk.place(key, POLICY)
    if not path.exists():
        desk.place(key, "json").unlink(missing_ok=True)
    solution = trained(desk, problem, method, **more)
    assert solution is not None  # asked for only where there is JAX
    return read_policy(path, problem), solution


def seeds(desk: Desk, problem: Problem, method: str = "a2c", **more: Any) -> list[Solution]:
    """Every seed of the budget."""
    found = [trained(desk, problem, method, run, **more) for run in range(desk.budget.a2c_runs)]
    return [s for s in found if s is not None]


def swept(
    desk: Desk, problem: Problem, method: str, weights: Sequence[float] | Array, shorter: bool = True, **more: Any
) -> list[tuple[Policy, Solution]]:
    """Trained at one weight after the other, each on from the networks before; after the first a quarter as long.

    Kept as a whole; a cut sweep goes on from the checkpoint of every weight.
    """
    if not available():
        return []
    at = [float(w) for w in weights]
    key, options = key_and_options(desk, problem, method, 0, more)
    key |= {"swept": at, "shorter": shorter}
    checkpoints = [desk.place({**key, "at": k}, "safetensors") for k in range(len(at))]
    policies = [desk.place({**key, "at": k}, POLICY) for k in range(len(at))]
    problems = [Problem(problem.chain, problem.distortion, Average(weight=w)) for w in at]

    def compute() -> list[dict[str, Any]]:
        from veilstream.deep.training import estimated

        learner: Any = make_solver(name_of(method), seed=desk.budget.seed, **options)
        figures, networks = [], None
        for k, (here, weight) in enumerate(zip(problems, at, strict=True)):
            desk.tell(k / len(at), f"{called(method)}, weight {weight:.2g}")
            place = ready(checkpoints[k])
            files: dict[str, Any] = {"checkpoint": str(place), "resume": place.exists()}
            now = replace(learner.shorter() if k and shorter else learner, **files)
            policy, curve, networks = now.learn(here, weight, None, networks)
            point = estimated(here, policy, desk.budget.seed, [{**row, "weight": weight} for row in curve])
            keep_policy(policies[k], policy)
            figures.append(to_json(Solution.of(here, method, point, weight)))
        return figures

    if not all(path.exists() for path in policies):
        desk.place(key, "json").unlink(missing_ok=True)
    figures = desk.kept(key, compute)
    for path in checkpoints:
        _clear(path)
    rows = zip(policies, problems, figures, strict=True)
    return [(read_policy(path, here), of_json(here, told)) for path, here, told in rows]


def mean_of(desk: Desk, policy: Policy, sampled: Solution) -> tuple[Policy, Solution]:
    """The same actor deployed by the mean of its Dirichlet, and its figures."""
    problem = sampled.problem
    mean = BeliefPolicy.restore(*policy.export(), problem.chain)  # the same rule, nothing drawn
    key = key_of(problem, MEAN, weight=sampled.weight, sampled=[sampled.leakage, sampled.distortion])

    def compute() -> dict[str, Any]:
        from veilstream.deep.training import estimated

        point = estimated(problem, mean, desk.budget.seed, [])
        return to_json(Solution.of(problem, MEAN, point, sampled.weight))

    return mean, of_json(problem, desk.kept(key, compute))


def keep_policy(path: Path, policy: Policy) -> None:
    meta, arrays = policy.export()
    container.write(ready(path), container.pack(meta, arrays))


def read_policy(path: Path, problem: Problem) -> Policy:
    return restore(*container.unpack(path, path.name), problem.chain)


def _clear(checkpoint: Path) -> None:
    for left in (checkpoint, *checkpoint.parent.glob(f".{checkpoint.name}.*.part")):
        left.unlink(missing_ok=True)  # large, and of no use once the figures are there


def said(s: Solution) -> str:
    within = 1.96 * s.leakage_se
    return f"{s.leakage:.3f} ± {within:.2g}" if within >= LEAST_SHOWN else f"{s.leakage:.3f}, ± below {LEAST_SHOWN:g}"


def draw_learned(ax: Axes, method: str, at: Iterable[float], solutions: Iterable[Solution]) -> None:
    """Marks with their 95 % intervals (often smaller than the mark)."""
    points = list(solutions)
    ax.errorbar(
        list(at),
        [s.leakage for s in points],
        [1.96 * s.leakage_se for s in points],
        fmt=MARKS[method],
        color=STYLES[method][0],
        markersize=7 if method == "belief-greedy" else 10,
        fillstyle="none" if method == "belief-greedy" else "full",
        zorder=4,
        label=f"{called(method)}, estimated ± 95 %",
    )


def draw_points(ax: Axes, curves: dict[str, list[Solution]]) -> None:
    """What is estimated, along the axis of distortion: belief-greedy and the learned methods, no line between them."""
    for method in MARKS:
        if points := curves.get(method):
            draw_learned(ax, method, [s.distortion for s in points], points)
