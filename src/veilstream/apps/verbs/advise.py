"""`vs.advise`: a few operating points of a model, found quickly, each with the command that makes its policy.

They are for choosing, not for release: one release is remembered, sweeps stop early, and of many possible releases only
those are used that the finest point needs. Each figure is that of a policy that exists; `solve` finds one that leaks a
little less.
"""

import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from veilstream.apps.report.content import asked_words
from veilstream.audit.bayes import infer
from veilstream.audit.traces import sampled
from veilstream.control.policy import Policy
from veilstream.control.replay import Replay
from veilstream.data.card import symbol_laws
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.problem import Average, Problem
from veilstream.shown import Progress, watching
from veilstream.solvers.api import Model, utility_of
from veilstream.solvers.causal_ba import CausalBA
from veilstream.solvers.search import Trail, axis_of, first_weights, least_distortion
from veilstream.solvers.solution import Level, Point
from veilstream.solvers.warnings import about_data, level
from veilstream.units import parse_quantity

SHARES = (0.1, 0.25, 0.5, 0.75)  # of the way from the least distance there is to that of revealing nothing
CLOSE, TRIES = 0.2, 3  # a point this near (relative) to its share will do; weights tried for one
TOLERANCE = 1e-3  # relative, of the sweeps
SAME = 0.01  # of all there is to hide, or to be off by, within which two points are one
FEW, MOST, LOST = 64, 96, 0.01  # releases that are all used, that are used at most, and what fewer may cost (share)
DRAWS, COPIES = 20_000, 2  # on the record; how often it is released at least
STREAMS, STEPS, WORK = (16, 64), 200, 2e9  # drawn from the chain for the adversary, and products of his filter
SMALL = {"km": ("m", 1000.0), "kWh": ("Wh", 1000.0)}  # units for numbers below 1


@dataclass(frozen=True)
class Advice:
    """One operating point: the error of releases, what they leak, how often an adversary is right, the command.

    >>> import veilstream as vs
    >>> vs.advise("builtin:binary")[-1].command
    'veil solve builtin:binary --avg 0.056 -o policy.veil'
    """

    limit: str  # of the mean error, as `avg` takes it
    felt: float  # mean error, in the unit of the model
    bits: float  # per step
    level: str
    hit_rate: float  # share of steps in which an adversary who sees every release identifies the state
    hit_rate_se: float
    hit_rate_blind: float  # the same without any release
    command: str


def advise(
    model: Model,
    *,
    distortion: str = "felt",
    show: str | None = None,
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> list[Advice]:
    """Three to five operating points, from far off to accurate, as `veil advise` shows them.

        >>> import veilstream as vs
        >>> points = vs.advise("builtin:grid4x4-q2")
        >>> points[0].bits < points[-1].bits and points[0].felt > points[-1].felt
        True

    Each has `.limit` (for `solve(model, avg=...)`), `.felt` (mean error), `.bits` per step, `.hit_rate` (how often an
    adversary identifies the state; `.hit_rate_blind` without any release) and `.command`. distortion, show: as in
    `solve`.
    """
    with watching("advising", progress) as tell:
        return advised(model, distortion, show, seed, tell)[1]


def advised(
    model: Model, distortion: str = "felt", show: str | None = None, seed: int = 0, progress: Progress | None = None
) -> tuple[Utility, list[Advice], list[str]]:
    """The model's distances (see `Utility`), the operating points, and the warnings that must stand beside them.

    Points lie near shares of the distance that revealing nothing costs, above what nobody can avoid; each once.
    """
    source, artefact = utility_of(model, distortion, 1.0, show)
    known = {} if artefact is None else artefact.provenance
    name = model if isinstance(model, str) else "MODEL"
    asked = ["veil", "solve", name, *asked_words({"distortion": distortion, "show": show}), "--avg"]
    found: list[Advice] = []
    blind, truth, unit = source.by_the_hour, source.chain.entropy_rate, source.unit
    free, replay = source.problem(Average(weight=1.0)), source.replay
    least = least_distortion(free) if replay is None else replay.least(free.allowed)
    chain, without = free.chain, float(symbol_laws(free.chain).max(1).mean())
    for felt, point, record in _walk(free, replay, least, blind, seed, progress):
        policy = point.policy.made_for(chain)
        bits = point.leakage if record is None else record.leakage(policy, chain, DRAWS, least=COPIES).bits
        if any(abs(felt - r.felt) < SAME * blind and abs(bits - r.bits) < SAME * truth for r in found):
            continue
        text = rounded(felt, unit)
        text = rounded(felt, unit, up=True) if parse_quantity(text, unit) < least else text
        hits, spread = identified(chain, policy, seed)
        sure = level(point.level if replay is None else Level.ESTIMATED, known)  # the distance is exact, bits are not
        command = shlex.join([*asked, text, "-o", "policy.veil"])
        found.append(Advice(text, felt, max(bits, 0.0), str(sure), max(hits, without), spread, without, command))
    if not found:
        raise InputError(f"{name}: there is nothing to choose; no limit is both useful and hides something")
    return source, sorted(found, key=lambda r: -r.felt), about_data(known)


def _walk(
    problem: Problem, replay: Replay | None, least: float, blind: float, seed: int, progress: Progress | None
) -> Iterator[tuple[float, Point, Replay | None]]:
    """A point near each share, each found from its neighbour; with the record as the releases used see it."""
    problem, replay = _fewer(problem, replay, LOST * (blind - least))
    solver = CausalBA(window=max(1, problem.chain.order), grow=False, seed=seed).rough(problem)
    solver = replace(solver, tolerance=TOLERANCE, most_starts=1)
    weights = first_weights(problem)
    weights = weights[len(weights) // 2 :][:1]
    tried = list(zip(weights.tolist(), solver.at(problem, weights), strict=True))
    for i, share in enumerate(SHARES):
        if progress:
            progress(i / len(SHARES), f"{share:.0%} of what revealing nothing costs")
        axis = axis_of(Average(limit=least + share * (blind - least)), problem, replay)
        trail = Trail(axis, [], tried)
        for _ in range(TRIES):
            if min(abs(axis.of(p) - axis.limit) for p in trail.points) < CLOSE * min(share, 0.4) * (blind - least):
                break
            weight = trail.next_weight()
            tried.append((weight, solver.at(problem, np.array([weight]), warm=trail.nearest(weight))[0]))
        point = min(trail.points, key=lambda p: abs(axis.over(p)))
        if (felt := axis.of(point)) < blind and point.leakage > 0:
            yield felt, point, replay


def _fewer(problem: Problem, replay: Replay | None, lost: float) -> tuple[Problem, Replay | None]:
    """Problem and record with fewer releases: those that lower the mean distance most, until little is lost."""
    d, chain = problem.distortion, problem.chain
    if problem.n_outputs <= FEW or problem.forbidden is not None:
        return problem, replay
    weight = chain.stationary
    if replay is not None:  # her own visits too: the chain's long run may be elsewhere
        visits = np.bincount(replay.states, minlength=len(chain))
        weight = (weight + visits / visits.sum()) / 2
    used, now, least = list[int](), np.full(len(d), d.max()), float(weight @ d.min(1))
    while len(used) < MOST and weight @ now > least + lost:
        used.append(int((weight @ np.minimum(now[:, None], d)).argmin()))
        now = np.minimum(now, d[:, used[-1]])
    used.sort()
    fewer = Problem(chain, d[:, used], problem.constraint)
    return fewer, None if replay is None else replace(replay, distances=replay.table[:, used])


def identified(chain: MarkovChain, policy: Policy, seed: int = 0) -> tuple[float, float]:
    """Share of steps in which the exact adversary's likeliest state is the true one: on data drawn from the chain, the
    mean of the probability that he gives to it, which is how often he is right; with its standard error."""
    streams = int(np.clip(WORK / (STEPS * len(chain) ** 2), *STREAMS))
    seen = infer(chain, policy, sampled(chain, policy, STEPS, streams, seed), whole=False)
    each = seen.filter.max(-1).mean(1)
    return float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each)))


def rounded(value: float, unit: str, up: bool = False) -> str:
    """Two digits with the unit: 0.4213 km is 420m."""
    name, factor = SMALL.get(unit, (unit, 1.0)) if value < 1 else (unit, 1.0)
    value *= factor
    digits = 1 - math.floor(math.log10(value)) if value > 0 else 0
    value = math.ceil(value * 10**digits) / 10**digits if up else round(value, digits)
    return f"{value:g}{name}"
