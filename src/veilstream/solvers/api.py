"""What is asked of a model: limits as people say them, what they are about, and the policy file that answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from veilstream.artefact import BEHIND, Artefact, load, provenance
from veilstream.data.limits import Quantity, constraint_of, quantile_of, remedy
from veilstream.data.spec import Recording
from veilstream.data.utility import Utility
from veilstream.errors import Infeasible, InputError
from veilstream.model.builtin import builtin_problem
from veilstream.model.problem import Average, Problem
from veilstream.shown import Progress, Rows, Shown, caution, picture, watching
from veilstream.solvers import curve as curve_of
from veilstream.solvers import solve as solve_problem
from veilstream.solvers.search import axis_of
from veilstream.solvers.solution import Solution, Solver, mean_distortion
from veilstream.solvers.warnings import about_forbidden, about_later, about_limit, honest, quantile_in

BUILTIN = "builtin:"


class Fitted(Protocol):
    """What `fit` gives."""

    @property
    def artefact(self) -> Artefact: ...


Model = str | os.PathLike[str] | Artefact | Fitted


def solve(
    problem: Problem | Model,
    method: str | Solver | None = None,
    window: int | None = None,
    certify: bool = False,
    seed: int = 0,
    progress: Progress | bool | None = None,
    *,
    avg: Quantity = None,
    max: Quantity = None,
    weight: float | None = None,
    budget: float | None = None,
    feedback: str | int | None = None,
    max_bits: float | None = None,
    distortion: str = "felt",
    show: str | None = None,
    keep_total: bool = False,
    pairs: bool = False,
    behind: Model | None = None,
    **options: Any,
) -> Solution:
    """The release policy that leaks least for the utility asked for, as `veil solve` finds it.

    Of a model (what `fit` gives, a model file, "builtin:grid4x4-q2") with a limit:

        avg         mean distance at most: "500m", 0.5 (in the model's unit), "25%" of what revealing nothing costs
        max         at every step: "5km", "500m@99%" of the readings, "home=5km,*=500m"
        weight      bits per unit of distance; minimises leakage + weight * distortion
        budget      bits per step at most; the distance is minimised

    or of a `Problem`, which has its constraint.

        >>> import veilstream as vs
        >>> solution = vs.solve("builtin:grid4x4-q2", weight=1.0)
        >>> solution
        <Solution grid4x4-q2: 0.4408 bits per step at distortion 1.16, causal-ba>
        >>> same = vs.solve(vs.builtin_problem("grid4x4-q2", vs.Average(weight=1.0)))
        >>> same.leakage == solution.leakage
        True

    method      causal-ba, myopic, belief-greedy, planar-laplace, randomised-response, rounding, a2c, or a solver of
                your own
    window      released symbols the policy remembers; None: a memory made to measure
    certify     prove a lower bound that holds for every policy (`certify_seconds` of work)
    feedback    correct `avg` by a public move every "day", "week", ...: for long records; no more than max_bits
    distortion  felt (from readings to releases) or states, and squared, zero-one, or a CSV file of costs with names
    show        release points of a public grid this far apart ("1km"), "states", or the names of zones in a file
    keep_total  values: releases add up to the readings in the mean
    pairs       a release may look at the last true state too
    behind      a finer policy of the same model, or its file: releases are made from its releases, so that whoever
                sees both learns no more than from the finer ones
    progress    a bar in notebooks; True: also in a terminal, False: none, or a function (fraction, what)
    options     of the method; memory_gb=4 refuses what needs more; epsilon=2.0 (nats): no release is e^2 times likelier
                for one state than for another

    The `Solution` has `.leakage`, `.distortion`, `.lower_bound`, `.gap`, `.plot()` and `.save("policy.veil")`.
    """
    method = method or "causal-ba"
    if behind is not None and (feedback is not None or keep_total or pairs or isinstance(problem, Problem)):
        raise InputError("`behind` is for a model, and goes without `feedback`, `keep_total` and `pairs`")
    if isinstance(problem, Problem):
        _for_models_only(feedback, {"avg": avg, "max": max, "weight": weight, "budget": budget})
        options |= {"feedback": feedback, "max_bits": max_bits}
        with watching("solving", progress) as tell:
            return solve_problem(problem, method, window, certify, seed, tell, **options)
    if keep_total and feedback is not None:
        raise InputError("`keep_total` and `feedback` cannot be had together; give one of them")
    limit, quantile = quantile_of(max)
    utility, model = utility_of(problem, distortion, quantile, show, pairs)
    asked = feasible(utility, model, (avg, limit, weight, budget))
    total = utility.total() if keep_total else None
    recording = Recording() if model is None else model.recording
    every = recording.steps_in(feedback, "`feedback`") if isinstance(feedback, str) else feedback
    options |= {"replay": utility.replay, "held_out": utility.held_out, "total": total}
    with watching("solving", progress) as tell:
        if behind is not None:
            from veilstream.solvers.behind import Audience
            from veilstream.solvers.behind import behind as solve_behind

            options.pop("total")
            finer = artefact_of(behind, "no policy file {!r}; make one with veil solve MODEL -o FILE")
            found = solve_behind(Audience(finer, asked), method, window, certify, seed, tell, **options)
        else:
            options |= {"feedback": every, "max_bits": max_bits}
            found = solve_problem(asked, method, window, certify, seed, tell, **options)
    utility = utility if behind is None else replace(utility, between=None)  # of the truth, which it does not see
    found = honest(found, {} if model is None else model.provenance)
    said = {"`avg`": "" if avg is None else str(avg), "`max`": "" if limit is None else str(limit)}
    bare = [line for k, v in said.items() for line in about_limit(k, v, utility.unit, utility.blind)]
    found = replace(found, asked=Asked(utility, model, seed, _words(distortion, show, quantile)))
    lines = [*bare, *about_later(found), *about_forbidden(asked), *found.warnings]
    caution(lines)
    return replace(found, warnings=lines)


def _for_models_only(feedback: str | int | None, limits: dict[str, Any]) -> None:
    """Raises where a problem, which has its constraint, is given one."""
    for name in (k for k, v in limits.items() if v is not None):
        raise InputError(f"a problem has its constraint already; {name} is for a model")
    if isinstance(feedback, str):
        raise InputError(f"`feedback` of a problem is a number of steps, found {feedback!r}")


def _words(distortion: str, show: str | None, quantile: float = 1.0) -> dict[str, str]:
    """What the distortion and the releases are, as it was asked for."""
    words = {"distortion": distortion} | ({} if show is None else {"show": show})
    return words | ({} if quantile == 1 else {"quantile": f"{quantile:g}"})


def feasible(
    utility: Utility, model: Artefact | None, limits: tuple[Quantity, Quantity, float | None, float | None]
) -> Problem:
    """The problem with its limits, or the line that says what keeps them where its states are too coarse."""
    constraint = constraint_of(utility, *limits, "" if model is None else str(model.provenance.get("command", "")))
    try:
        asked = utility.problem(constraint)
        if isinstance(mean := asked.average, Average) and mean.limit is not None:
            axis_of(mean, asked, utility.replay).check(utility.unit)
    except Infeasible as line:
        raise Infeasible(line.found, remedy(utility, constraint)) from None
    return asked


def curve(
    problem: Problem | Model,
    weights: Any = None,
    method: str | Solver = "causal-ba",
    seed: int = 0,
    progress: Progress | bool | None = None,
    *,
    distortion: str = "felt",
    show: str | None = None,
    **options: Any,
) -> Curve:
    """The trade-off curve: for each weight the best of all policies found at any of them (24 weights by default).

    problem: a `Problem`, or a model as `solve` takes it, with the same distortion and show.

        >>> import veilstream as vs
        >>> curve = vs.curve("builtin:binary", weights=[0.5, 1.0, 4.0])
        >>> curve
        <Curve binary: 3 points of causal-ba, 0.051 to 0.41 bits per step>
        >>> [round(s.leakage, 2) for s in curve]
        [0.05, 0.14, 0.41]

    `curve.plot()` draws it.
    """
    with watching("curve", progress) as tell:
        if isinstance(problem, Problem):
            return Curve(curve_of(problem, weights, method, seed, tell, **options))
        utility, model = utility_of(problem, distortion, 1.0, show)
        found = curve_of(utility.problem(Average(weight=1.0)), weights, method, seed, tell, **options)
    words = _words(distortion, show)
    known = {} if model is None else model.provenance
    return Curve(replace(honest(s, known), asked=Asked(utility, model, seed, words)) for s in found)


class Curve(list[Solution], Shown):
    """The list of solutions that `curve` gives.

    >>> import veilstream as vs
    >>> vs.curve("builtin:binary", weights=[1.0, 4.0])
    <Curve binary: 2 points of causal-ba, 0.14 to 0.41 bits per step>
    """

    __repr__ = Shown.__repr__

    def plot(self, ax: Any = None) -> Any:
        """A matplotlib Figure: bits per step against distortion; ax: axes to draw on instead."""
        return picture("curve", self, ax)

    def about(self) -> tuple[str, Rows]:
        if not self:
            return "without points", []
        bits = [s.leakage for s in self]
        methods = ", ".join(dict.fromkeys(s.method for s in self))
        span = f"{min(bits):.2g} to {max(bits):.2g} bits per step"
        rows = [(f"{s.distortion:.3g} {s.unit}".rstrip(), f"{s.leakage:.4f} bits per step, {s.level}") for s in self]
        return f"{self[0].problem.chain.name}: {len(self)} points of {methods}, {span}", rows


def utility_of(
    model: Model,
    distortion: str = "felt",
    quantile: float = 1.0,
    show: str | None = None,
    pairs: bool = False,
) -> tuple[Utility, Artefact | None]:
    """What the limits of a model are about, and the model where it is a file's; see `Utility`.

    pairs: the same process on pairs of symbols, so that a release may look at x_t and x_{t-1}.
    """
    if isinstance(model, str) and model.startswith(BUILTIN):
        problem = builtin_problem(model.removeprefix(BUILTIN), Average(weight=1.0))
        chain = problem.chain.lift(2) if pairs else problem.chain
        return Utility(chain, problem.distortion, "", tuple(map(str, range(problem.n_outputs)))), None
    artefact = artefact_of(model, "no model file {!r}; make one with veil fit, or use builtin:grid4x4-q2")
    if artefact.finer is not None:
        raise InputError(f"{model if isinstance(model, str) else 'a model'}: {BEHIND}")
    states, solved = artefact.states, artefact.problem
    if pairs and (artefact.chain.histories is not None or artefact.chain.phases > 1):
        raise InputError("`pairs` needs a chain of order 1 without a clock: fit with `order=1` `cycle='none'`")
    chain = artefact.chain.lift(2) if pairs else artefact.chain
    if states is not None:
        return Utility.of(chain, states, artefact.record, distortion, quantile, artefact.held_out, show), artefact
    if solved is None:
        name = model if isinstance(model, str | os.PathLike) else "the model"
        artefact.answer()
        raise InputError(f"{name} has no states, so distances between them are unknown")
    return Utility(chain, solved.distortion, "", tuple(map(str, range(solved.n_outputs)))), artefact


def artefact_of(model: Any, absent: str = "no file {!r}") -> Artefact:
    """Of a path, of what `fit` or `solve` give, or as it is; absent: the line where there is no such file."""
    if isinstance(model, Artefact):
        return model
    if isinstance(model, str | os.PathLike):
        if not Path(model).is_file():
            raise InputError(absent.format(os.fspath(model)))
        return load(model)
    own = getattr(model, "artefact", None)
    if not isinstance(own, Artefact):
        raise InputError(f"a model, a solution or the path of a file is needed, found a {type(model).__name__}")
    return own


# --- the answer ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Asked:
    """What a solution answers: the model, and what its limits are about."""

    utility: Utility
    model: Artefact | None
    seed: int = 0
    words: Mapping[str, str] = field(default_factory=dict)  # what the distortion and the releases are, as it was told

    @property
    def unit(self) -> str:
        return self.utility.unit

    @property
    def quantile(self) -> float:
        """Of the readings of a state that a limit at every step is for."""
        return quantile_in(self.words)

    def between_states(self, solution: Solution) -> float | None:
        """The mean distance from state to release in the long run, where the distortion is another."""
        if self.utility.between is None:
            return None
        between = Problem(self.utility.chain, self.utility.between, Average(weight=0.0))
        return mean_distortion(between, solution.policy)

    def to_json(self, solution: Solution) -> dict[str, Any]:
        """The solution, and its mean distance between states where the limit is about another."""
        between = self.between_states(solution)
        found = solution.to_json() | ({} if between is None else {"state_distortion": between})
        return found | {"releases": solution.problem.n_outputs, "public_points": self.utility.points is not None}

    def parts(self, solution: Solution, command: str) -> dict[str, Any]:
        """What the policy's file holds: its states and where it came from; the readings stay with the model."""
        model, cost = self.model, self.utility.cost
        data = "" if model is None else model.provenance.get("data_sha256", "")
        made = provenance(command, self.seed, data, solution=self.to_json(solution), asked=dict(self.words))
        extra: dict[str, Any] = {"points": self.utility.points}
        if model is not None:
            made |= {k: model.provenance[k] for k in ("card", "reading", "start") if k in model.provenance}
            extra |= {"states": model.states, "recording": model.recording}
        if cost is not None:
            extra |= {"measure": cost.measure, "cost_unit": cost.unit}
        if solution.behind is not None:
            extra |= solution.behind.parts()
        return {"problem": solution.problem, "provenance": made, **extra}
