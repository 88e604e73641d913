"""The claim of a policy against what was measured, and the audit in plain words with guarantee levels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from veilstream.artefact import Artefact
from veilstream.audit.measures import NATS, Setting
from veilstream.audit.source import LaterData, Recorded
from veilstream.audit.spec import AuditSpec
from veilstream.control.feedback import Feedback
from veilstream.control.frame_ladder import Framed
from veilstream.control.limit_check import LimitCheck, Verdict, limits_json, weakest
from veilstream.control.policy import Policy
from veilstream.control.replay import ReplayResult
from veilstream.control.stationary import holds_all, long_run
from veilstream.errors import InputError
from veilstream.model.information import entropy
from veilstream.model.interval import Z95, Interval
from veilstream.model.problem import Problem
from veilstream.shown import Rows, Shown
from veilstream.solvers.solution import SURE, Level, Point
from veilstream.solvers.warnings import limits_of
from veilstream.units import noun, off

SLACK = 0.005  # of the claim
ALIKE = 0.05  # by which two errors that count as the same may differ


@dataclass(frozen=True)
class Claim:
    """The figures that a policy file claims of itself."""

    leakage: float  # bits per step
    distortion: float | None
    startup_bits: float  # at most, once
    level: str
    leakage_se: float = 0.0
    bound: bool = False  # the leakage is an upper bound: what someone who forgets as the policy does would learn


@dataclass(frozen=True, eq=False)
class Audited:
    """A policy under audit, in one or two settings."""

    name: str
    leakage: float | None  # claimed, bits per step
    distortion: float | None
    settings: list[Setting]  # none of a policy that believes no chain

    def to_json(self) -> dict[str, Any]:
        own = {"policy": self.name, "leakage": self.leakage, "distortion": self.distortion}
        return {**own, "settings": [s.to_json() for s in self.settings]}


class Checked(Shown):
    """Claims held against data drawn from the chain, and limits against later data."""

    @property
    @abstractmethod
    def contradictions(self) -> tuple[str, ...]: ...

    @property
    @abstractmethod
    def limits(self) -> list[LimitCheck]: ...

    @property
    def stands(self) -> bool:
        return not self.contradictions

    @property
    def fails(self) -> bool:
        """Whether the claim is contradicted, or a limit broken on later data."""
        return not self.stands or weakest(self.limits) is Verdict.BROKEN


@dataclass(frozen=True, eq=False, repr=False)
class Assessment(Checked):
    """What a file claims, what was found, and whether the one stands against the other.

        >>> import veilstream as vs
        >>> found = vs.audit(vs.solve("builtin:binary", avg=0.1), streams=20, steps=60)
        >>> found
        <Assessment of causal-ba: the claim stands>
        >>> found.stands, found.claim.leakage > 0
        (True, True)

    `.words` is the verdict, `.policy` the figures behind it.
    """

    artefact: Artefact
    policy: Audited
    against: Sequence[Audited]
    options: AuditSpec
    claim: Claim | None
    warnings: tuple[str, ...]  # what must stand beside it
    data: Recorded  # and what became of it
    seconds: float = 0.0

    @property
    def later(self) -> LaterData | None:
        """On data that the model was not fitted to."""
        return self.data.later

    @cached_property
    def limits(self) -> list[LimitCheck]:
        """Whether later data shows them kept."""
        return limits_of(self.artefact, None if self.later is None else self.later.figures)

    @property
    def unit(self) -> str:
        """Unit of the distances between states."""
        return "" if self.artefact.states is None else self.artefact.states.unit

    @property
    def cost_unit(self) -> str:
        """Unit of the distortion."""
        return self.artefact.unit

    @cached_property
    def contradictions(self) -> tuple[str, ...]:
        """Each way in which data drawn from the chain, where the model is the truth, contradicts the claim."""
        claim, found = self.claim, list[str]()
        if claim is None:
            return ()
        seen = self.policy.settings[0]
        allowed = claim.leakage + claim.startup_bits / self.options.sizes[1]
        if exceeds(seen.leakage, allowed, claim.leakage_se):
            found.append(
                f"measured leakage {pm(seen.leakage)} bits per step, claimed {claim.leakage:.4f} "
                f"(+ {claim.startup_bits:.2f} once)"
            )
        if claim.distortion is not None and exceeds(seen.distortion, claim.distortion * (1 + SLACK)):
            found.append(f"measured distortion {pm(seen.distortion)}, claimed {claim.distortion:.4f}")
        if seen.broken:
            found.append(f"{seen.broken} releases break the limit at every step")
        return tuple(found)

    @cached_property
    def words(self) -> str:
        told = [check.words for check in self.limits]
        told += [] if self.later is None else self.later.changed(self.cost_unit)
        record = self.data.record
        known = self.artefact.states is not None or not self.policy.settings
        if record is not None and known and self.artefact.policy is not None:
            told.append(felt_words(record, self.cost_unit, self.artefact.policy.moves_by))
        told += [] if self.later is None else [self.later.words(self.cost_unit)]
        return "\n".join([*told, verdict(self)])

    def about(self) -> tuple[str, Rows]:
        limit = weakest(self.limits)
        stands = "the claim stands" if limit is None else f"limit {limit}; leakage as claimed under its chain"
        if not self.stands:
            stands = "THE CLAIM IS CONTRADICTED"
        rows = [("!", line) for line in (*self.contradictions, *self.warnings)]
        return f"of {self.policy.name}: {stands}", [("verdict", self.words), *rows]

    def to_json(self) -> dict[str, Any]:
        stands: dict[str, Any] = {"stands": self.stands, "contradictions": list(self.contradictions)}
        felt = {} if self.data.record is None else self.data.record.to_json()
        felt |= {} if self.later is None else self.later.to_json()
        if self.data.charged is not None:
            felt |= {"charged": self.data.charged, "elsewhere": self.data.elsewhere}
        felt |= limits_json(self.limits)
        stands["warnings"] = list(self.warnings)
        return {**stands, "verdict": self.words, **self.policy.to_json(), **felt}


def claim_of(provenance: Mapping[str, Any], problem: Problem, policy: Policy) -> Claim | None:
    """The file's own figures; without any, the policy's steady state where that can be computed."""
    said = provenance.get("solution")
    if not (isinstance(said, Mapping) and "leakage" in said):
        if long_run(problem.chain, policy) is None:
            return None
        own = Point.of(problem, policy)
        said = {k: getattr(own, k) for k in ("leakage", "distortion", "startup_bits", "leakage_se", "level")}
    startup, level = _number(said, "startup_bits"), str(said.get("level", Level.ESTIMATED))[:40]
    return Claim(
        _number(said, "leakage") or 0.0,
        _number(said, "distortion"),
        max(float(entropy(problem.chain.initial)) if startup is None else startup, 0.0),
        level,
        _number(said, "leakage_se") or 0.0,
        level != Level.ESTIMATED and not holds_all(problem.chain, policy),
    )


def _number(said: Mapping[str, Any], key: str) -> float | None:
    value = said.get(key)
    if value is None:
        return None
    if not isinstance(value, int | float) or not np.isfinite(value):
        raise InputError(f"the policy file's claim is not readable: {key} is {str(value)[:20]!r}")
    return float(value)


def exceeds(seen: Interval, allowed: float, se: float = 0.0) -> bool:
    """Whether a measured figure contradicts what is claimed; se: of the claim."""
    own = (seen.high - seen.low) / (2 * Z95)
    return seen.value > allowed * (1 + SLACK) + SURE * float(np.hypot(own, se)) + 1e-9


def pm(seen: Interval) -> str:
    """Value and half of its interval."""
    return f"{round(seen.value, 4) + 0.0:.4f} ± {(seen.high - seen.low) / 2:.4f}"  # never -0.0000


# --- in words --------------------------------------------------------------------------------------------


def felt_words(record: ReplayResult, unit: str, rule: Feedback | None = None) -> str:
    words = (
        f"On your recorded data a release had {off(f'{record.error:.3g}', unit)}, and revealed "
        f"{max(record.bits, 0.0):.3f} ± {1.96 * record.bits_se:.3f} bits per step, starts and gaps included."
    )
    if record.rungs and record.charged is not None and rule is not None:
        used = [i for i, share in enumerate(record.rungs) if share > 0]
        words += (
            f" Its limit is {rule.limit:.3g} {unit or 'units'}: feedback moved it {record.moves:.0f} times, between "
            f"rungs {used[0]} and {used[-1]} of {len(record.rungs)}, and its meter charged {record.charged:.3f} bits "
            "per step."
        )
    return words


def verdict(audit: Assessment) -> str:
    """A few lines for someone who has not read the paper: the claim, who knows the chain, who learns, baselines."""
    own = audit.policy.settings
    if not own:
        return _anywhere_words(audit)
    words = [_claim_words(audit), _exact_words(own[-1], audit.unit)]
    words += [_learner_words(s) for s in own]
    words += [_against_words(audit.policy, other, audit.unit, audit.cost_unit) for other in audit.against]
    if audit.artefact.policy is not None and audit.artefact.policy.moves_by is not None:
        words.append("What is said of the fitted chain and of adversaries is of the first rung.")
    if len(own) > 1:
        words.append(
            "Figures that are not marked held out are about the fitted chain; the recorded traces show one "
            "person's past, and say nothing certain about the future."
        )
    return "\n".join(w for w in words if w)


def _anywhere_words(audit: Assessment) -> str:
    """Of a policy that believes no chain: what bounds it, whoever she is."""
    policy, data = audit.artefact.policy, audit.data
    assert isinstance(policy, Framed)
    words = "Nobody's chain is believed, so no adversary of one is run. Whoever she is and whatever she does, releases "
    words += "reveal in the mean at most what the meter counts"
    if data.charged is not None:
        words += f": {data.charged:.3f} bits per step on the data given ({Level.PROVED})"
    words += f". No release costs more than {policy.dearest:.0f} bits ({Level.PROVED})."
    if data.elsewhere is not None and policy.places is not None:
        words += f" {data.elsewhere:.0%} of releases were at none of her {len(policy.places)} places."
    return words


def _claim_words(audit: Assessment) -> str:
    seen, claim, truth = audit.policy.settings[0], audit.claim, audit.artefact.chain.entropy_rate
    measured = f"measured on {seen.steps:,} steps drawn from the chain: {pm(seen.leakage)}, estimated with an interval"
    if claim is None:
        return f"The file claims no leakage; {measured}."
    most, how = ("at most ", f"{claim.level}, an upper bound") if claim.bound else ("", claim.level)
    said = f"leaks {most}{claim.leakage:.4f} bits per step under the fitted chain ({how}"
    said += f"; {claim.startup_bits:.1f} bits more once, at the start)" if claim.startup_bits > 0.05 else ")"
    share = f"{claim.leakage / truth:.0%} of the {truth:.3f} the truth would" if truth else ""
    if audit.stands:
        return f"The policy {said}, {share}; {measured}: as claimed."
    return f"THE CLAIM FAILS. The policy says it {said}, but " + "; ".join(audit.contradictions) + "."


def _exact_words(s: Setting, unit: str) -> str:
    thing = noun(unit)
    where = "on all the data given" if s.name == "traces" else "on data drawn from the chain"
    now, blind = s.adversaries["filter"]["released"], s.adversaries["filter"]["nothing"]
    whole, guess = s.adversaries["smoother"]["released"], s.adversaries["smoother"]["nothing"]
    text = (
        f"An adversary who knows chain and policy, {where}, identifies the current {thing} in {now.top1:.0%} of steps "
        f"({blind.top1:.0%} without any release, 100% with the truth)"
    )
    if now.error is not None and blind.error is not None:
        text += f", with an error of {now.error:.3g} {unit or 'units'} on average ({blind.error:.3g} without)"
    if whole.recovered is not None and guess.recovered is not None:
        text += f", and afterwards recovers {whole.recovered:.0%} of a trace ({guess.recovered:.0%} without)"
    if whole.home is not None and whole.work is not None:
        most, second = f"{whole.home:.0%}", f"{whole.work:.0%}"
        text += f"; the time at the most visited {thing} is recognised in {most}, at the second in {second}"
    return text + " (estimated)."


def _learner_words(s: Setting) -> str:
    if not s.on_releases:
        return ""
    best = min(s.on_releases, key=lambda one: one.cross_entropy.value)
    back = "the last release" if best.lookback == 1 else f"the last {best.lookback} releases"
    text = f"A neural network that sees {back} reaches {_span(best.cross_entropy)} nats on "
    if s.name == "chain":
        text += "data from the chain"
        if best.least is None or best.excess is None:
            return text + "."
        over = best.excess.value / best.least if best.least else 0.0
        return text + (
            f"; the least possible is {best.least * NATS:.3f} (computed exactly), and on the same steps it is "
            f"{abs(over):.1%} {'above' if over >= 0 else 'below'} the predictor that reaches it."
        )
    text += "held-out recorded traces; "
    own, gap = s.adversaries["predictor"]["released"].cross_entropy, best.gap or Interval(0, 0, 0)
    text += f"the chain's own adversary, who has seen them, {own.value * NATS:.3f} (model gap {_span(gap, '+')}). "
    for k in s.untried:
        text += f"A chain of order {k} was not tried: too many histories to follow. "
    fair = [one for one in s.learned if one.name.startswith("chain") and one.gap is not None]
    for one in fair[:1]:
        text += f"Against a {one.name} fitted to the same training traces the network gains {_span(one.gap, '+')}. "
    gaps = [gap, *(one.gap for one in fair[:1] if one.gap is not None)]
    if any(g.low > 0 for g in gaps):
        return text + "So the MODEL GAP is real: whoever learns from data gets more than such a chain admits."
    if all(g.high < 0 for g in gaps):
        return text + "So there is no sign of a model gap."
    return text + "So these traces do not show a model gap, and are too few to rule one out."


def _span(v: Interval | None, sign: str = "") -> str:
    v = (v or Interval(0, 0, 0)).scaled(NATS)
    return f"{v.value:{sign}.3f} [{v.low:{sign}.3f}, {v.high:{sign}.3f}]"


def _against_words(own: Audited, other: Audited, unit: str, of: str) -> str:
    a, b = (p.settings[-1].adversaries["filter"]["released"] for p in (own, other))
    seen = own.settings[0].leakage
    ours, theirs = (p.settings[0].leakage.value if p.leakage is None else p.leakage for p in (own, other))
    known = ours > 1e-6 and (own.leakage is not None or seen.low > seen.value / 2)  # well enough for a ratio
    more = f"{theirs / ours:.1f} times as much" if known else f"{theirs:.3g} bits where this policy leaks {ours:.2g}"
    assert own.distortion is not None and other.distortion is not None  # policies on a chain
    same = f"At the same mean error in the long run ({own.distortion:.3g} {of or 'units'})"
    if abs(other.distortion - own.distortion) > ALIKE * own.distortion:  # a mechanism that has no such setting
        same = f"At a mean error of {other.distortion:.3g} {of or 'units'}, where this policy has {own.distortion:.3g},"
    return (
        f"{same} {other.name} leaks {more}, and "
        f"an adversary identifies the {noun(unit)} in {b.top1:.0%} of steps instead of {a.top1:.0%}."
    )
