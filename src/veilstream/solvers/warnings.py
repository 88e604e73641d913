"""No false comfort: the lines that must stand beside a result, each starting with what is wrong."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from veilstream.artefact import Artefact
from veilstream.control.frame_ladder import Framed, asked_of
from veilstream.control.limit_check import HeldOut, LimitCheck, check_limits
from veilstream.control.replay import ReplayResult
from veilstream.data.limits import anywhere
from veilstream.model.chain import MarkovChain
from veilstream.model.data_card import PER_STATE, DataCard
from veilstream.model.problem import Problem
from veilstream.solvers.solution import Level, Point, Solution
from veilstream.units import SMALLER, convert

SAME = 0.01  # share of the truth's bits within which a policy hides nothing, or everything
MOST = 0.5  # of steps at no stop
NEARLY_ALL, BEYOND, FEW_STEPS = 0.99, 2.0, 0.02  # of fitted readings; times their distance; of later steps
LOSS_FACTOR, LOSS_BITS = 2.0, 0.2  # data is strange beyond this many times the model's own loss, and this much more


def about_data(provenance: Mapping[str, Any]) -> list[str]:
    """Too little of it, or states that do not cover it."""
    card, found = DataCard.of(provenance), list[str]()
    if card is None:
        return []
    if card.thin:
        found.append(
            f"thin data: {card.effective_sample:,.0f} independent visits for {card.states} states, fewer than "
            f"{PER_STATE} each; figures are true of the model only, not yet of the person: record longer, or fit fewer "
            "states (veil fit --states)"
        )
    if card.no_stop > MOST:
        found.append(
            f"{card.no_stop:.0%} of steps are at no stop and count as the nearest one: between stops a release can be "
            "far from where the person was; cover them with cells (veil fit --resolution)"
        )
    return found


def level(found: Level, provenance: Mapping[str, Any]) -> Level:
    """How sure a figure is about the person, given the data behind the model."""
    card = DataCard.of(provenance)
    return Level.MODEL_ONLY if card is not None and card.thin else found


def honest(solution: Solution, provenance: Mapping[str, Any]) -> Solution:
    """The solution with its level and with every line that must stand beside it."""
    lines = about_policy(solution.leakage, solution.person) + about_data(provenance)
    return replace(solution, level=level(solution.level, provenance), warnings=[*solution.warnings, *lines])


def honest_point(point: Point, provenance: Mapping[str, Any]) -> Point:
    return replace(point, level=level(point.level, provenance))


def about_policy(leakage: float, chain: MarkovChain) -> list[str]:
    """Whether it hides nothing, or everything."""
    truth = chain.entropy_rate
    if truth <= 0:
        return []
    if leakage >= (1 - SAME) * truth:
        return [
            f"this policy hides nothing: {leakage:.3f} bits per step of the {truth:.3f} that the truth would reveal; "
            "allow a larger distance to hide something"
        ]
    if leakage <= SAME * truth:
        return [
            f"this policy hides everything: {leakage:.2g} bits per step of {truth:.3f}; releases hardly depend on the "
            "truth, ask for a smaller distance if they are to be of use"
        ]
    return []


def about_forbidden(problem: Problem) -> list[str]:
    """What forbidding confusions means where nothing was read."""
    if problem.forbidden is None:
        return []
    blind = "only what every state may show is released" if problem.open.any() else "nothing is released"
    return [
        f"some confusions are forbidden: at a reading that cannot be read {blind}, and a clock, which would show the "
        "last known state where a reading is missing, is refused"
    ]


def about_later(solution: Solution) -> list[str]:
    """What to do about a limit that later data lies above."""
    asked = solution.asked
    elsewhere = None if asked is None or asked.model is None else about_elsewhere(asked.model)
    command = None if elsewhere is None else anywhere(asked.utility, solution.problem.constraint)
    todo = "ask for less ({}), or make the model anew when there is more data (veil refit)"
    if command is not None:
        todo = f"{elsewhere}, where no policy on these states can follow; one without states does: {command}"
    return [
        f"the limit is {c.verdict} on later data, which lies above it: {todo.format(c.flag)}"
        for c in solution.limits
        if c.above
    ]


def about_elsewhere(model: Artefact) -> str | None:
    """How much of the later data lies farther from every state than nearly all that was fitted, where that is much."""
    states, record, later = model.states, model.record, model.held_out
    if states is None or record is None or later is None or states.kind == "names":
        return None
    near, far = (states.distance_to(steps.points, states.encode(steps.points)) for steps in (record, later))
    beyond = far > BEYOND * max(float(np.quantile(near, NEARLY_ALL)), 1e-9)
    if beyond.mean() < FEW_STEPS:
        return None
    span = f"{far[beyond].min():.2g} to {far.max():.2g} {states.unit}"
    return f"{beyond.mean():.0%} of its steps lie {span} from every state"


def quantile_in(asked: Any) -> float:
    """Of the readings of a state that a limit at every step is for, from what was asked; a file may say anything."""
    said = asked.get("quantile") if isinstance(asked, Mapping) else None
    known = isinstance(said, str) and said.replace(".", "", 1).isdecimal() and 0 < float(said) <= 1
    return float(said) if known else 1.0  # type: ignore[arg-type]


def limits_of(policy: Artefact, later: HeldOut | None) -> list[LimitCheck]:
    """Every limit of a policy's file on later data."""
    if isinstance(policy.policy, Framed):
        return check_limits(asked_of(policy.policy), later, policy.unit)
    if policy.problem is None or policy.states is None:
        return []
    between_states = ReplayResult.of(policy.provenance.get("solution")) is None
    beyond = 1 - quantile_in(policy.provenance.get("asked"))
    return check_limits(policy.problem.constraint, later, policy.unit, between_states, beyond)


def about_limit(flag: str, text: str, unit: str, blind: float) -> list[str]:
    """A bare number that is farther than revealing nothing, and would be sensible in a smaller unit."""
    try:
        bare = float(text)
    except ValueError:
        return []
    small = SMALLER.get(unit)
    if small is None or bare <= blind or not 0 < convert(bare, small, unit) < blind:
        return []
    return [
        f"{flag} {text} has no unit and was read as {text} {unit}, more than revealing nothing costs ({blind:.3g} "
        f"{unit}); was {text}{small} meant?"
    ]


def about_stranger(loss: float, away: float | None, chain: MarkovChain, provenance: Mapping[str, Any]) -> list[str]:
    """Whether data looks like somebody else's: its log-loss (bits per step), its median distance from the states."""
    card = DataCard.of(provenance)
    own = chain.entropy_rate if card is None or card.held_out_bits is None else card.held_out_bits
    found = []
    if loss > LOSS_FACTOR * own + LOSS_BITS:
        found.append(
            f"this data looks like somebody else's: {loss:.2f} bits per step under the chain, {own:.2f} on the data it "
            "was fitted to"
        )
    elif card is not None and card.raw_p95 is not None and away is not None and away > card.raw_p95 > 0:
        found.append(
            f"this data looks like somebody else's: half of it lies farther than {away:.3g} from every state, where "
            f"95 % of the fitted readings were within {card.raw_p95:.3g}"
        )
    return found
