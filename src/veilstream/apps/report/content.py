"""Everything the report says, as plain data: computed once here, drawn by `page`."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.apps.report.layout import lower_curve
from veilstream.apps.report.points import (
    FEW,
    MAX_STEPS,
    Elsewhere,
    Rival,
    apart,
    curve_constraint,
    distinct,
    example_steps,
    liveliest,
    mean_channel,
    slopes,
)
from veilstream.apps.specs import ReportSpec
from veilstream.artefact import Artefact
from veilstream.audit.assemble import audit_artefact
from veilstream.audit.bayes import infer
from veilstream.audit.measures import Guess
from veilstream.audit.source import LaterData, Recorded
from veilstream.audit.spec import AuditSpec
from veilstream.audit.traces import release
from veilstream.audit.verdict import Assessment
from veilstream.control.feedback import Feedback
from veilstream.control.limit_check import LimitCheck
from veilstream.control.policy import Policy
from veilstream.data.card import newest_symbol_chain
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.histories import TrueStates
from veilstream.model.information import Array
from veilstream.model.problem import Average, Both, Instantaneous, Problem
from veilstream.solvers import curve, default_weights
from veilstream.solvers.api import Asked
from veilstream.solvers.baselines import Baseline
from veilstream.solvers.bounds import certify_curve
from veilstream.solvers.solution import RECORD, Fact, Level, Point, Progress, Solution, Status
from veilstream.solvers.warnings import about_data, about_policy, honest_point, level, limits_of
from veilstream.units import noun

MAX_CELLS = 1_500_000  # bytes of posteriors and channels in a page, over all operating points
RECORD_STEPS = 4_000  # of recorded data up to which every point is released on it
RECORD_DRAWS = 40_000
NEAR = 0.01  # share of the axes within which a point of the curve stands for the policy itself
NOT_OF_A_POINT = ("objective", "releases", "start-up")  # facts of a solution that say nothing of its place on the curve


@dataclass(frozen=True)
class Spot:
    """A place on the slider: a policy, and what an adversary who knows it and the chain makes of the example."""

    point: Solution  # its `leakage_lower`: bits below which no policy this accurate can be, by the whole curve
    own: bool
    released: NDArray[np.int64]  # steps
    posterior: Array  # steps x symbols: P(true symbol | releases up to then), computed exactly
    guess: Guess  # on data drawn from the chain
    channel: Array
    channel_level: str  # how sure the channel is
    felt: float | None = None  # mean error on the recorded data, also where the bits there are too much work
    rivals: Sequence[Rival] = ()
    command: str = ""  # that makes it

    @property
    def error(self) -> float:
        """Mean error: on the recorded data where that is known, else in the long run."""
        return self.point.distortion if self.felt is None else self.felt

    @property
    def less(self) -> float:
        """Share of what the truth would reveal that is kept back: on the recorded data where that is known."""
        on_record = None if self.point.record is None else self.point.record.kept_back
        truth = max(self.point.problem.chain.entropy_rate, 1e-9)
        return float(np.clip(1 - self.point.leakage / truth, 0.0, 1.0)) if on_record is None else on_record

    def facts(self) -> list[Fact]:
        """Its figures as the terminal words them, and how often the adversary is right."""
        found = [f for f in self.point.facts() if f.label not in NOT_OF_A_POINT]
        if self.felt is not None and self.point.record is None:
            found.insert(0, Fact("error", self.felt, f"{self.point.unit} on average", RECORD))
        who = f"% of steps, by an adversary who sees every release; {self.guess.blind:.0%} without any release"
        right, se = 100 * self.guess.right, 100 * self.guess.right_se
        return [*found, Fact("identified", right, who, str(Level.ESTIMATED), se, ".0f")]


@dataclass(frozen=True)
class Content:
    """The report."""

    artefact: Artefact
    problem: Problem
    spec: ReportSpec
    unit: str
    names: tuple[str, ...]
    path: NDArray[np.int64]  # true symbols of the example
    law: Array  # share of time of each symbol
    spots: list[Spot]
    solutions: list[Solution]
    family: list[Point]  # planar Laplace, for the picture
    audit: Assessment | str  # or why there is none
    given: Recorded  # the data, whether it is shown or not

    @property
    def later(self) -> LaterData | None:
        """Figures of the policy on later data; they may be shared like the others."""
        return self.given.later

    @cached_property
    def limits(self) -> list[LimitCheck]:
        """Whether later data shows them kept."""
        return limits_of(self.artefact, None if self.later is None else self.later.figures)

    @property
    def warnings(self) -> list[str]:
        """Warnings that must stand beside the figures."""
        own = self.own.point
        lines = [*about_policy(own.leakage, self.artefact.chain), *about_data(self.artefact.provenance)]
        return list(dict.fromkeys([*lines, *(() if isinstance(self.audit, str) else self.audit.warnings)]))

    @property
    def thing(self) -> str:
        """The noun for a state: place, level or state."""
        return noun("" if self.artefact.states is None else self.artefact.states.unit)

    @property
    def own(self) -> Spot:
        return next(s for s in self.spots if s.own)

    @property
    def rule(self) -> Feedback | None:
        """By which a limit on the mean is kept; None: by none."""
        return None if self.artefact.policy is None else self.artefact.policy.moves_by

    @property
    def changed(self) -> list[str]:
        """A line where the person has changed."""
        return [] if self.later is None else self.later.changed(self.unit)


def collect(artefact: Artefact, given: Recorded, spec: ReportSpec, progress: Progress | None = None) -> Content:
    """All the numbers. Data is needed unless the report is shareable; then none of it but `later` is used."""
    (policy, problem), chain, known = artefact.answer(), artefact.chain, artefact.provenance
    data = replace(Recorded.nothing(artefact), later=given.later) if spec.shareable else given
    sequences, replay = data.sequences, data.replay
    if spec.shareable:
        sequences = [chain.symbols[chain.sample(10 * MAX_STEPS, seed=spec.seed)[0]]]
    if not sequences:
        raise InputError("the report shows recorded traces: give `data`, or `shareable` to draw them from the chain")
    names = tuple(map(str, range(problem.n_outputs))) if artefact.states is None else tuple(artefact.states.names)
    asked = Asked(Utility(chain, problem.distortion, artefact.unit, names, points=artefact.points), artefact)
    free = problem.under(curve_constraint(problem.constraint))
    own = given_policy(problem, policy, known)
    solutions = _certified_curve(free, own, spec, artefact, progress)
    others = [s for s in distinct(solutions) if apart(s, own, solutions) >= NEAR]
    room = MAX_CELLS // (len(others) + 1) - chain.n_symbols * problem.n_outputs
    shown = int(np.clip(room // chain.n_symbols, FEW, example_steps(artefact.period_s)))
    which, at = liveliest(sequences, shown)
    path = np.asarray(sequences[which][at : at + shown])
    begin = at + (0 if data.first is None else int(data.first[which]))
    z = TrueStates.of(chain).along(path)
    elsewhere = Elsewhere.of(problem, spec.seed)

    def spot(point: Solution) -> Spot:
        mine, record = point is own, data.record if point is own else None
        if not mine and replay is not None and replay.n_steps <= RECORD_STEPS:
            record = replay.whole(point.policy, chain, RECORD_DRAWS)
        felt = record.error if record is not None else None if replay is None else replay.error(point.policy)
        low = min(float(lower_curve(solutions, np.array([point.distortion]))[0]), point.leakage)
        later = data.later.figures if mine and data.later is not None else None
        traces = release(point.policy, [z], seed=spec.seed, first=[begin])
        return Spot(
            replace(point, leakage_lower=low, lower_bound=None, record=record, held_out=later, asked=asked),
            mine,
            traces.y[0],
            infer(chain, point.policy, traces, whole=False).filter[0],
            Guess.of(chain, point.policy, spec.seed),
            *mean_channel(chain, point.policy, spec.seed),
            felt,
            elsewhere.at(point, known, mine),
            command_of(artefact, None if mine else point.weight, spec.shareable),
        )

    spots: list[Spot] = []
    for point in sorted([own, *others], key=lambda s: (s.distortion, -s.leakage)):
        if progress:
            progress((len(spots) + 1) / (len(others) + 1), "examples")
        spots.append(spot(point))
    return Content(
        artefact,
        free,
        spec,
        artefact.unit,
        names,
        path,
        newest_symbol_chain(chain)[0],
        spots,
        solutions,
        Baseline("planar-laplace", settings=16, seed=spec.seed).family(problem.under(Average(weight=1.0)), progress),
        audited(artefact, data, spec, progress),
        given,
    )


def given_policy(problem: Problem, policy: Policy, provenance: Mapping[str, Any]) -> Solution:
    """The policy of a file as the answer that it is."""
    p = honest_point(Point.of(problem, policy), provenance)
    own: dict[str, Any] = {k: getattr(p, k) for k in ("leakage", "distortion", "startup_bits", "level", "leakage_se")}
    return Solution(
        problem, "this policy", policy, weight=0.0, lower_bound=None, leakage_lower=None, seconds=0.0,
        distortion_se=p.distortion_se, status=Status.GIVEN, **own,
    )  # fmt: skip


def audited(artefact: Artefact, data: Recorded, spec: ReportSpec, progress: Progress | None = None) -> Assessment | str:
    """By exact adversaries, or learned ones too; a line where there is none."""
    if spec.audit == "none":
        return "No audit was asked for."
    assert artefact.problem is not None  # collect saw to it
    against = ("planar-laplace",) if artefact.problem.allowed.all() else ()
    work = AuditSpec(quick=spec.audit != "full", against=against, seed=spec.seed)
    try:
        return audit_artefact(artefact, data, work, name="this policy", progress=progress)
    except InputError as error:
        return f"No audit was possible: {error}."


def _certified_curve(
    free: Problem, own: Solution, spec: ReportSpec, artefact: Artefact, progress: Progress | None
) -> list[Solution]:
    """The curve by weight, with two more points beside the policy, so that the band is narrow where it lies."""
    solutions = curve(free, default_weights(free, spec.points), seed=spec.seed, progress=progress)
    near = [w for w in slopes(solutions, own.distortion) if w not in {s.weight for s in solutions}]
    if near:
        solutions += curve(free, near, seed=spec.seed)
    solutions = certify_curve(sorted(solutions, key=lambda s: s.weight), spec.seconds, progress)
    return [replace(s, level=level(s.level, artefact.provenance)) for s in solutions]


def command_of(artefact: Artefact, weight: float | None, shareable: bool) -> str:
    """The command that makes a point of the curve; for the policy itself the one that made it, where it may be told."""
    assert artefact.problem is not None
    constraint, states = artefact.problem.constraint, artefact.states
    if weight is None:
        told = artefact.provenance.get("command")
        hidden = shareable or not (isinstance(told, str) and told)
        return f"that of this policy ({constraint.told(artefact.unit)})" if hidden else str(told)
    words = ["veil", "solve", "MODEL", "--weight", f"{weight:.4g}", *asked_words(artefact.provenance.get("asked"))]
    if isinstance(constraint, Both | Instantaneous):
        limit = constraint.limit if isinstance(constraint, Instantaneous) else constraint.instantaneous.limit
        unit, each = artefact.unit, limit if isinstance(limit, tuple) else ()
        names = map(str, range(len(each))) if states is None else states.names
        texts = [f"{name}={one:g}{unit}" for name, one in zip(names, each, strict=False)]
        words += ["--max", ",".join(texts) or f"{limit:g}{unit}"]
    return shlex.join([*words, "-o", "policy.veil"])


def asked_words(said: Any) -> list[str]:
    """The flags that say what the distortion and the releases are, where they were told; a file may say anything."""
    told = said if isinstance(said, dict) else {}
    pairs = [(f"--{field}", told.get(field)) for field in ("distortion", "show")]
    return [word for flag, v in pairs if isinstance(v, str) and v != "felt" and v.isprintable() for word in (flag, v)]


def table_head(content: Content) -> list[str]:
    """Column heads of the table of rivals, in the long run of the chain."""
    return ["method", f"error ({content.unit})" if content.unit else "error", "bits per step", "times this", "level"]


def table_rows(spot: Spot) -> list[list[str]]:
    """Rows of the table of rivals, as text; a row of two cells says why there are no numbers."""
    own, rows = spot.point.leakage, []
    for b in spot.rivals:
        if b.leakage is None or b.distortion is None:
            rows.append([b.label, b.note])
            continue
        spread = f" ± {1.96 * b.leakage_se:.2g}" if b.leakage_se else ""
        times = f"{b.leakage / own:.1f}" if own > 1e-6 else ""
        note = b.level + (f"; {b.note}" if b.note else "")
        rows.append([b.label, number(b.distortion), number(b.leakage) + spread, times, note])
    return rows


def facts(spot: Spot) -> list[list[str]]:
    """Rows of the table of figures."""
    return [[f.label, f.text, f.note] for f in spot.facts()]


def number(value: float) -> str:
    """Three digits, without exponents."""
    if value == 0:
        return "0"
    return f"{value:.3f}" if abs(value) >= 0.1 else f"{value:.4f}" if abs(value) >= 0.001 else f"{value:.1g}"
