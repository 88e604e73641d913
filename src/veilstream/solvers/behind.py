"""A policy for an audience behind a finer one: designed on a stand-in, judged on the truth.

The solver sees an ordinary problem, the finer releases as a chain P(y1'|y1) with d2(y1,y2) = E[d(x,y2)|y1]. They are no
chain, so nothing that it says of a policy is believed: bits and distances are those of the law of (s2, s1, z)
(`control.cascade`), and a limit is met there, or on the recorded streams that it is about.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.artefact import Artefact
from veilstream.control.cascade import Behind, Finer
from veilstream.control.cascade_replay import BehindReplay
from veilstream.control.controller import Controller
from veilstream.control.limit_check import HeldOut
from veilstream.control.policy import Policy
from veilstream.control.replay import Replay
from veilstream.control.stationary import LARGE, rates
from veilstream.errors import Infeasible, InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array
from veilstream.model.problem import Average, Both, Constraint, Instantaneous, Problem, parts
from veilstream.solvers import solve, solver_of
from veilstream.solvers.search import RIGHT, ROUNDS, Trail, axis_of, meet
from veilstream.solvers.solution import Fact, Point, Progress, Solution, Solver
from veilstream.solvers.starts import constants

METHODS = ("causal-ba", "myopic")
ANYTHING = 1e-6  # of the chain to design with: anything may follow anything


@dataclass(frozen=True, eq=False)
class Audience:
    """Who sees releases made from finer ones: the finer policy, and the problem from the truth."""

    file: Artefact  # the finer policy's
    truth: Problem  # the person's chain, the distances d(z,y2), and what is asked
    _known: dict[Controller, Behind] = field(default_factory=dict, repr=False)

    @cached_property
    def finer(self) -> Finer:
        return Finer.through(self.file.person.chain, self.file.policies)

    @cached_property
    def problem(self) -> Problem:
        """To design with: chain and distances of the finer releases."""
        q = self.finer.law.sum(0)
        q = (q + ANYTHING / len(q)) / (1 + ANYTHING)
        P = (1 - ANYTHING) * self.finer.transition + ANYTHING * q
        chain = MarkovChain(P, name=self.truth.chain.name)
        believed = self.finer.law.T + ANYTHING * ANYTHING * self.truth.chain.stationary  # of a release never made: none
        d = (believed / believed.sum(1, keepdims=True)) @ self.truth.distortion
        return Problem(chain, d, self.truth.constraint, self._worst)

    @property
    def _worst(self) -> Array | None:
        """The farthest that a true state which can have shown y1 lies from y2."""
        limits = [c for c in parts(self.truth.constraint) if isinstance(c, Instantaneous)]
        if not limits:
            return None
        if self.file.problem is None or self.file.problem.every_step is None:
            raise InputError(
                "`max` behind a policy without a limit at every step: any true state may be behind each of its "
                "releases; solve the finer one with `max` too"
            )
        if isinstance(limits[0].limit, tuple):
            raise InputError("`max` behind a finer policy is one distance for all states")
        worst = self.truth.distortion if self.truth.worst is None else self.truth.worst
        return np.stack([worst[states].max(0) if states.any() else worst.max(0) for states in can_show(self.file).T])

    def run(self, policy: Policy) -> Behind:
        """The long run of whoever sees its releases alone."""
        assert isinstance(policy, Controller)
        if policy not in self._known:
            self._known.clear()  # one is large
            self._known[policy] = Behind(self.finer, policy)
        return self._known[policy]

    @property
    def is_large(self) -> bool:
        """Whether a memory made to measure would cost more than it gains."""
        return len(self.finer.last) * len(self.truth.chain) * self.finer.n_shown >= LARGE

    def judged(self, p: Point) -> Point:
        """The point as it is in truth."""
        return replace(p, **self.run(p.policy).rates(self.truth.distortion)._asdict())


def can_show(file: Artefact) -> NDArray[np.bool_]:
    """Which releases each true state may lead to, |Z| x |Y|."""
    assert file.problem is not None
    return file.problem.allowed if file.finer is None else can_show(file.finer) @ file.problem.allowed


@dataclass(frozen=True)
class InTruth(Solver):
    """A solver on the problem to design with, whose points are as they are in truth."""

    solver: Solver
    audience: Audience

    def at(
        self, problem: Problem, weights: Array, progress: Progress | None = None, warm: Point | None = None
    ) -> list[Point]:
        return [self.audience.judged(p) for p in self.solver.at(problem, weights, progress, warm)]


@dataclass(frozen=True, eq=False)
class Price:
    """What it costs to be behind another audience, and what both together learn."""

    audience: Audience
    finest: float  # bits per step that the finest audience's releases reveal, and so any of them together
    direct: Solution  # the best policy made from the truth with the same error in the long run

    def pays(self, leakage: float) -> float:
        """Relative."""
        return leakage / self.direct.leakage - 1 if self.direct.leakage > 0 else 0.0

    def facts(self, leakage: float) -> list[Fact]:
        best = self.direct
        found = [Fact("all audiences", self.finest, "bits per step, whoever sees all of them", "as the finest alone")]
        found.append(
            Fact("from the truth", best.leakage, "bits per step: the best of its own, this accurate", best.level)
        )
        if best.leakage_lower is not None:
            found.append(Fact("  at least", best.leakage_lower, "bits for any policy this accurate", "proved"))
        return [*found, Fact("pays", 100 * self.pays(leakage), "% more than the best from the truth", form="+.1f")]

    def to_json(self, leakage: float) -> dict[str, Any]:
        best = self.direct
        truth = {"leakage": best.leakage, "leakage_lower": best.leakage_lower, "distortion": best.distortion}
        return {
            "policy": self.audience.file.sha256,
            "coalition": self.finest,
            "from_truth": truth,
            "pays": self.pays(leakage),
        }

    def parts(self) -> dict[str, Any]:
        """What the policy's file holds beside its problem."""
        truth = self.audience.truth.distortion
        return {"states": self.audience.file.shown, "finer": self.audience.file, "truth": truth}


def behind(
    audience: Audience,
    method: str | Solver = "causal-ba",
    window: int | None = None,
    certify: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    replay: Replay | None = None,
    held_out: Replay | None = None,
    certify_seconds: float = 30.0,
    **options: Any,
) -> Solution:
    """The coarser policy that reveals least for what is asked, as `solvers.solve` finds an ordinary one."""
    if method not in METHODS:
        raise InputError(f"behind a finer policy the method is one of {', '.join(METHODS)}, found {method}")
    _check(audience)
    problem, recorded = audience.problem, None if replay is None else BehindReplay(audience.finer, replay)
    window = 1 if window is None and audience.is_large else window
    solver, name = solver_of(problem, method, seed=seed, window=window, **options)
    point, weight = _met(audience, solver, recorded, progress)
    run = audience.run(point.policy)
    found = Solution.of(problem, name, replace(point, startup_bits=run.startup_bits(audience.truth.distortion)), weight)
    found = replace(found, behind=_price(audience, found, certify, certify_seconds, progress))
    if recorded is not None:
        drawn = recorded.drawn()
        tried = drawn.leakage(found.policy, problem.chain)
        truth = recorded.streams.truth(audience.truth.chain)
        found = replace(found, record=replace(tried, error=recorded.error(found.policy), truth=truth))
    if held_out is not None:
        later = BehindReplay(audience.finer, held_out).drawn()
        found = replace(found, held_out=HeldOut.of(later, found.policy, problem))
    return found


def _met(
    audience: Audience, solver: Solver, recorded: BehindReplay | None, progress: Progress | None
) -> tuple[Point, float]:
    """The point that meets what is asked in truth, and its weight: from the one that would meet it on the stand-in."""
    problem, average = audience.problem, audience.problem.average
    judged = InTruth(solver, audience)
    if average is None or (isinstance(average, Average) and average.weight is not None):
        weight = 0.0 if average is None else float(average.weight)  # type: ignore[arg-type]
        return judged.at(problem, np.array([weight]), progress)[0], weight
    axis = axis_of(average, problem, recorded)  # type: ignore[arg-type]
    try:
        axis.check()
    except Infeasible as line:
        raise Infeasible(line.found, "allow more, or solve the finer policy with a smaller error") from None
    on_record = recorded is not None and not axis.budget  # where a point is judged by the streams alone
    found, weight = meet(problem, solver, average, progress, shares=False)
    found = found if on_record else audience.judged(found)
    if weight > 0 and not (axis.within(found) and axis.of(found) >= (1 - RIGHT[0]) * axis.limit):
        trail = Trail(axis, constants(problem, 1), [(weight, found)], exactly=True)
        trail.close_in(problem, solver if on_record else judged, ROUNDS, RIGHT[0])
        found = trail.best
        weight = trail.weight_of(found)
    return audience.judged(found), weight


def _check(audience: Audience) -> None:
    file, truth = audience.file, audience.truth
    if file.policy is None:
        raise InputError("`behind` needs a policy, found a model; make one: veil solve MODEL -o FINER.veil")
    own, chain = audience.finer.chain, truth.chain
    if own.cycle.shape != chain.cycle.shape or np.abs(own.cycle - chain.cycle).max() > 1e-9:
        raise InputError("the finer policy was made for another model; give the model that it was solved from")
    if truth.forbidden is not None or (file.problem is not None and file.problem.forbidden is not None):
        raise InputError("costs that forbid some releases (inf) do not go with several audiences: silence would show")


def _price(audience: Audience, found: Solution, certify: bool, seconds: float, progress: Progress | None) -> Price:
    direct = best_from_truth(
        audience.truth, found.distortion, certify=certify, certify_seconds=seconds, progress=progress
    )
    person = audience.file.person
    assert person.problem is not None and person.policy is not None
    return Price(audience, rates(person.problem, person.policy).leakage, direct)


def best_from_truth(truth: Problem, distortion: float, **options: Any) -> Solution:
    """The best policy that looks at the truth itself, with this mean error in the long run; options: of `solve`."""
    limit = Average(limit=distortion)
    inside = [c for c in parts(truth.constraint) if isinstance(c, Instantaneous)]
    asked: Constraint = Both(limit, inside[0]) if inside else limit
    return solve(truth.under(asked), **options)
