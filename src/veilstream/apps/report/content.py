"""Everything the report says, as plain data: computed once here, drawn by `page`."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.apps.report.audit_part import AuditPart, audit_part
from veilstream.apps.report.layout import crowd, east_north_km, lower_curve
from veilstream.apps.report.points import (
    Example,
    curve_constraint,
    distinct,
    example,
    mean_channel,
    slopes,
    stretch,
)
from veilstream.artefact import Artefact
from veilstream.audit.verdict import noun
from veilstream.core.histories import TrueStates
from veilstream.core.information import Array
from veilstream.core.policy import Policy
from veilstream.core.problem import Average, Both, Instantaneous, Problem
from veilstream.data.card import newest_symbol_chain
from veilstream.data.states import StateSpace
from veilstream.errors import InputError
from veilstream.solvers import curve, default_weights, solve
from veilstream.solvers.baselines import Baseline
from veilstream.solvers.bounds import certify_curve
from veilstream.solvers.comfort import about_data, about_policy, honest_point, level
from veilstream.solvers.solution import Level, Point, Progress, Solution
from veilstream.units import format_duration

MAX_STEPS = 288
MAX_CELLS = 1_500_000  # bytes of posteriors and channels in a page, over all operating points
BASELINES = {
    "myopic": "myopic: best for each step alone",
    "planar-laplace": "planar Laplace (geo-indistinguishability)",
    "randomised-response": "randomised response",
    "rounding": "rounding to zones",
    "constant": "always the same",
}


@dataclass(frozen=True)
class Options:
    shareable: bool = False
    points: int = 16
    seconds: float = 20.0
    seed: int = 0
    audit: str = "quick"  # full, none


@dataclass(frozen=True)
class Rival:
    """One row of the table at equal distortion; `note` says why there are no numbers."""

    label: str
    leakage: float | None
    leakage_se: float
    distortion: float | None
    level: str
    note: str = ""


@dataclass(frozen=True)
class Spot:
    """A place on the slider."""

    point: Point
    low: float  # bits below which no policy this accurate can be, proved
    own: bool
    example: Example
    channel: Array
    channel_level: str  # how sure the channel is
    command: str = ""  # that makes it


@dataclass(frozen=True)
class Content:
    """The report."""

    artefact: Artefact
    problem: Problem
    options: Options
    unit: str
    names: tuple[str, ...]
    path: NDArray[np.int64]  # true symbols of the example
    law: Array  # share of time of each symbol
    spots: list[Spot]
    solutions: list[Solution]
    baselines: list[Rival]
    family: list[Point]  # planar Laplace, for the picture
    audit: AuditPart
    card: list[tuple[str, str]] = field(default_factory=list)
    account: list[dict[str, Any]] = field(default_factory=list)

    @property
    def warnings(self) -> list[str]:
        """What must stand beside the figures."""
        own = self.own.point
        lines = [*about_policy(own.leakage, self.artefact.chain), *about_data(self.artefact.provenance)]
        return list(dict.fromkeys([*lines, *self.audit.warnings]))

    @property
    def own(self) -> Spot:
        return next(s for s in self.spots if s.own)

    @property
    def period(self) -> str:
        return "step" if not self.artefact.period_s else f"step of {format_duration(self.artefact.period_s)}"


def collect(
    artefact: Artefact,
    sequences: Sequence[NDArray[np.int64]] | None,
    options: Options,
    card: Sequence[tuple[str, str]] = (),
    account: Sequence[dict[str, Any]] = (),
    progress: Progress | None = None,
) -> Content:
    """All the numbers. `sequences`: recorded symbols, needed unless the report is shareable."""
    if artefact.policy is None or artefact.problem is None:
        raise InputError("this file holds a model without a policy; make one with veil solve MODEL --avg 1km -o FILE")
    problem, chain = artefact.problem, artefact.chain
    recorded = None if options.shareable else sequences
    if options.shareable:
        sequences = [chain.symbols[chain.sample(10 * MAX_STEPS, seed=options.seed)[0]]]
    if not sequences:
        raise InputError("the report shows recorded traces: give `data`, or `shareable` to draw them from the chain")
    free = problem.under(curve_constraint(problem.constraint))
    own = honest_point(Point.of(problem, artefact.policy), artefact.provenance)
    solutions = curve(free, default_weights(free, options.points), seed=options.seed, progress=progress)
    near = [w for w in slopes(solutions, own.distortion) if w not in {s.weight for s in solutions}]
    if near:  # so that band and curve are narrow where the policy is
        solutions += curve(free, near, seed=options.seed)
    solutions = certify_curve(sorted(solutions, key=lambda s: s.weight), options.seconds, progress)
    solutions = [replace(s, level=level(s.level, artefact.provenance)) for s in solutions]
    kept = [s for s in distinct(solutions) if not _same(s, own, solutions)]
    n_spots = len(kept) + 1
    room = MAX_CELLS // n_spots - chain.n_symbols * problem.n_outputs
    path = stretch(sequences, int(np.clip(room // chain.n_symbols, 24, MAX_STEPS)))
    z = TrueStates.of(chain).along(path)
    points = [(own, True), *((Point(s.policy, s.leakage, s.distortion, s.level, s.leakage_se), False) for s in kept)]
    spots = []
    for i, (point, is_own) in enumerate(sorted(points, key=lambda p: (p[0].distortion, -p[0].leakage))):
        if progress:
            progress((i + 1) / n_spots, "examples")
        low = float(lower_curve(solutions, np.array([point.distortion]))[0])
        spot = _spot(artefact, point.policy, point, low, is_own, z, options.seed)
        weight = next((s.weight for s in kept if s.policy is point.policy), None)
        spots.append(replace(spot, command=command_of(artefact, weight, options.shareable)))
    return Content(
        artefact,
        free,
        options,
        artefact.unit,
        tuple(artefact.states.names) if artefact.states is not None else tuple(map(str, range(problem.n_outputs))),
        path,
        newest_symbol_chain(chain)[0],
        spots,
        solutions,
        [
            replace(b, level=str(level(Level(b.level), artefact.provenance))) if b.level else b
            for b in baselines(problem, own, options.seed)
        ],
        Baseline("planar-laplace", settings=16, seed=options.seed).family(_free(problem), progress),
        audit_part(artefact, recorded, options.audit, options.seed, progress),
        list(card),
        list(account),
    )


def _same(solution: Solution, own: Point, solutions: Sequence[Solution]) -> bool:
    reach = max(s.distortion for s in solutions) or 1.0
    most = max(s.leakage for s in solutions) or 1.0
    apart = abs(solution.distortion - own.distortion) / reach, abs(solution.leakage - own.leakage) / most
    return max(apart) < 0.01


def _spot(
    artefact: Artefact, policy: Policy, point: Point, low: float, own: bool, z: NDArray[np.int64], seed: int
) -> Spot:
    channel, level = mean_channel(artefact.chain, policy, seed)
    return Spot(point, min(low, point.leakage), own, example(artefact.chain, policy, z, seed), channel, level)


def command_of(artefact: Artefact, weight: float | None, shareable: bool) -> str:
    """The command that makes a point of the curve; for the policy itself the one that made it, where it may be told."""
    assert artefact.problem is not None
    constraint, states = artefact.problem.constraint, artefact.states
    if weight is None:
        told = artefact.provenance.get("command")
        return told if isinstance(told, str) and told and not shareable else f"that of this policy ({constraint})"
    words = ["veil", "solve", "MODEL", "--lambda", f"{weight:.4g}", *_asked(artefact)]
    if isinstance(constraint, Both | Instantaneous):
        limit = constraint.limit if isinstance(constraint, Instantaneous) else constraint.instantaneous.limit
        unit = "" if states is None else states.unit
        if isinstance(limit, tuple):
            names = map(str, range(len(limit))) if states is None else states.names
            text = ",".join(f"{name}={one:g}{unit}" for name, one in zip(names, limit, strict=False))
        else:
            text = f"{limit:g}{unit}"
        words += ["--max", text]
    return shlex.join([*words, "-o", "policy.veil"])


def _asked(artefact: Artefact) -> list[str]:
    """The flags that say what the distortion and the releases are, where they were told."""
    said = artefact.provenance.get("asked")
    told = said if isinstance(said, dict) else {}
    pairs = [(flag, told.get(flag)) for flag in ("--distortion", "--show")]
    return [word for flag, v in pairs if isinstance(v, str) and v != "felt" and v.isprintable() for word in (flag, v)]


def _free(problem: Problem) -> Problem:
    return problem.under(Average(weight=1.0))


def baselines(problem: Problem, own: Point, seed: int) -> list[Rival]:
    """What else there is, at a mean distortion of at most the policy's."""
    rows = [Rival("this policy", own.leakage, own.leakage_se, own.distortion, str(own.level))]
    limit = Average(limit=own.distortion)
    free = curve_constraint(problem.constraint)
    for method, label in BASELINES.items():
        keeps = method == "myopic" and isinstance(free, Both)
        constraint = Both(limit, free.instantaneous) if keeps and isinstance(free, Both) else limit
        try:
            s = solve(problem.under(constraint), method, seed=seed)
        except InputError:
            least = float((problem.chain.stationary @ problem.distortion).min())
            why = "cannot be this accurate" + (f" (off by {least:.3g} on average)" if method == "constant" else "")
            rows.append(Rival(label, None, 0, None, "", why))
            continue
        note = "does not keep the limit at every step" if isinstance(free, Both) and not keeps else ""
        rows.append(Rival(label, s.leakage, s.leakage_se, s.distortion, str(s.level), note))
    return rows


# --- what the page's script draws ------------------------------------------------------------------------


def payload(content: Content) -> dict[str, Any]:
    """JSON for the figures. No coordinates on the earth, only km from the middle; no true value if shareable."""
    states = content.artefact.states
    places = east_north_km(states) if states is not None and states.is_map else None
    near = crowd(places) if places is not None else None
    points = content.artefact.points
    D, L = _found(content)
    grid = np.linspace(0, D.max() or 1.0, 200)
    return {
        "unit": content.unit,
        "hours": (content.artefact.period_s or 0) / 3600,
        "names": content.names,
        "thing": noun("" if states is None else states.unit),
        "blind": _r(content.law.max()),
        "truth": _r(content.artefact.chain.entropy_rate),
        "law": _r(content.law),
        "places": None if places is None else _r(places),
        "near": None if near is None else near.tolist(),
        "levels": None if states is None or states.is_map else _r(states.coordinates[:, 0]),
        "shown": None if states is None or points is None else _shown(states, points),
        "true": content.path.tolist(),
        "sampled": content.options.shareable,
        "curve": {"d": _r(D), "l": _r(L), "x": _r(grid), "low": _r(lower_curve(content.solutions, grid))},
        "laplace": [[_r(p.distortion), _r(p.leakage)] for p in content.family],
        "own": next(i for i, s in enumerate(content.spots) if s.own),
        "spots": [
            {
                "d": _r(s.point.distortion),
                "l": _r(s.point.leakage),
                "se": _r(s.point.leakage_se),
                "low": _r(s.low),
                "level": str(s.point.level),
                "right": _r(s.example.right),
                "right_se": _r(s.example.right_se),
                "released": s.example.released.tolist(),
                "posterior": _bytes(s.example.posterior),
                "channel": _bytes(s.channel),
                "channel_level": s.channel_level,
                "command": s.command,
            }
            for s in content.spots
        ],
    }


def _shown(states: StateSpace, points: StateSpace) -> dict[str, Any]:
    """The public points: what to call each, where it is, and the state it lies at."""
    where = _r(east_north_km(states, points)) if states.is_map else None
    names = [str(k) for k in range(len(points))] if states.is_map else points.names
    return {"names": names, "places": where, "at": states.encode(points.coordinates).tolist()}


def _found(content: Content) -> tuple[Array, Array]:
    """The curve of all policies found; the report's own is part of it where it lies below the rest."""
    D, L = np.array([(s.distortion, s.leakage) for s in distinct(content.solutions)]).T
    own = content.own.point
    if D[0] < own.distortion < D[-1] and own.leakage < np.interp(own.distortion, D, L):
        at = int(np.searchsorted(D, own.distortion))
        D, L = np.insert(D, at, own.distortion), np.insert(L, at, own.leakage)
    return D, L


def _r(value: Any) -> Any:
    """Five digits are enough for a picture."""
    if np.ndim(value) == 0:
        return float(f"{float(value):.5g}")
    return [_r(v) for v in np.asarray(value)]


def _bytes(probabilities: Array) -> str:
    """One byte each, row by row."""
    return base64.b64encode(np.round(255 * np.clip(probabilities, 0, 1)).astype(np.uint8).tobytes()).decode()
