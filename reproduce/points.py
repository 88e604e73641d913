"""Points of the figures, each kept in its own file: solved, certified, trained, rolled out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, cast

from reproduce.item import Desk
from veilstream.control.evaluate import Evaluation, evaluate
from veilstream.control.policy import Policy
from veilstream.errors import InputError
from veilstream.model.information import Array
from veilstream.model.problem import Problem, fingerprint
from veilstream.solvers import curve, solve
from veilstream.solvers.baselines import SHAPES, Baseline
from veilstream.solvers.bounds import certify_curve
from veilstream.solvers.solution import Level, Point, Solution, Status

KEPT = (
    "method",
    "leakage",
    "distortion",
    "weight",
    "lower_bound",
    "leakage_lower",
    "startup_bits",
    "level",
    "leakage_se",
    "distortion_se",
    "status",
    "seconds",
    "history",
    "warnings",
)
SETTINGS = 14  # strengths tried of what people use today
LOOK = {"steps": 60, "streams": 64}  # roll-outs by which one of them is chosen


class NotKept:
    """Stands where the policy was: a file holds figures only."""


def key_of(problem: Problem, method: str, **more: Any) -> dict[str, Any]:
    return {
        "problem": fingerprint(problem, 0.0),
        "constraint": repr(problem.constraint),
        "method": method,
        **more,
    }


def solved(desk: Desk, problem: Problem, method: str = "causal-ba", certify: bool = False, **options: Any) -> Solution:
    """`solve`, kept; certified within the budget if asked."""
    seconds = desk.budget.certify_s if certify else 0.0
    key = key_of(problem, method, certify_s=seconds, seed=desk.budget.seed, options=options)

    def compute() -> dict[str, Any]:
        more: dict[str, Any] = {"certify": True, "certify_seconds": seconds} if certify else {}
        return to_json(solve(problem, method, seed=desk.budget.seed, **more, **options))

    return of_json(problem, desk.kept(key, compute))


def curved(
    desk: Desk, problem: Problem, weights: Sequence[float] | Array, method: str = "causal-ba", certify: bool = False
) -> list[Solution]:
    """`curve`, kept; certified within the budget if asked."""
    at = [float(w) for w in weights]
    seconds = desk.budget.certify_s * len(at) if certify else 0.0
    key = key_of(problem, method, certify_s=seconds, seed=desk.budget.seed, weights=at)

    def compute() -> list[dict[str, Any]]:
        found = curve(problem, at, method, seed=desk.budget.seed)
        return [to_json(s) for s in (certify_curve(found, seconds) if certify else found)]

    return [of_json(problem, told) for told in desk.kept(key, compute)]


def rolled(desk: Desk, problem: Problem, steps: int, streams: int, method: str = "causal-ba") -> Evaluation:
    """Roll-outs of the policy that `solved` finds."""
    key = key_of(problem, method, roll_outs=[streams, steps], seed=desk.budget.seed)

    def compute() -> dict[str, Any]:
        policy = solve(problem, method, seed=desk.budget.seed).policy
        return asdict(evaluate(problem, policy, steps, streams, seed=desk.budget.seed))

    return Evaluation(**desk.kept(key, compute))


def today(desk: Desk, problem: Problem, shape: str) -> list[Point]:
    """A family of what people use today; under a limit at every step, the one member that leaks least."""
    free = bool(problem.allowed.all())
    key = key_of(problem, shape, settings=SETTINGS, seed=desk.budget.seed, **({} if free else {"looked_at": LOOK}))

    def compute() -> list[dict[str, Any]]:
        if free:
            found = Baseline(shape, settings=SETTINGS, seed=desk.budget.seed).family(problem)
        else:
            found = [within(problem, shape, desk.budget.seed)]
        return [{"leakage": p.leakage, "distortion": p.distortion, "leakage_se": p.leakage_se} for p in found]

    return [Point(_no_policy(), level=Level.ESTIMATED, **told) for told in desk.kept(key, compute)]


def within(problem: Problem, shape: str, seed: int) -> Point:
    """The member of a family that leaks least under a limit at every step: found by a short look, then measured."""
    found, whole = least_within(problem, Baseline(shape, settings=SETTINGS, seed=seed, **LOOK)), Baseline(shape)
    ev = evaluate(problem, found.policy, whole.steps, whole.streams, seed=seed)
    return replace(found, leakage=ev.leakage, leakage_se=ev.leakage_se)


def least_within(problem: Problem, family: Baseline) -> Point:
    """Forbidden releases struck out, rows made whole again, and of all settings the one that leaks least.

    A setting that leaves some state nothing to release is passed over.
    """
    shape, found = SHAPES[family.shape][0], []
    for strength in family.strengths(problem):
        a = shape(problem, float(strength)) * problem.allowed
        if (a.sum(1) > 0).all():
            found.append(family.point(problem, a / a.sum(1, keepdims=True)))
    if not found:
        raise InputError(f"{family.shape} cannot keep a limit of {problem.constraint} in any setting")
    return min(found, key=lambda p: p.leakage)


def to_json(s: Solution) -> dict[str, Any]:
    return {name: getattr(s, name) for name in KEPT}


def of_json(problem: Problem, told: dict[str, Any]) -> Solution:
    more = {"level": Level(told["level"]), "status": Status(told["status"])}
    return Solution(problem=problem, policy=_no_policy(), **{**told, **more})


def _no_policy() -> Policy:
    return cast(Policy, NotKept())
