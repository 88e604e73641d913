"""Data later than what a policy's model was fitted to: does the promise hold there, is it still the same person?

    loss   mean of -log2 P(x_{t+1} | x_t) under the policy's chain, against the loss on data held out when it was fitted
    felt   mean distance from reading to release, against what was found when it was solved

Somebody has changed where the difference is larger than both intervals (95 %, over whole traces or weeks) together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from veilstream.artefact import Artefact
from veilstream.core.any_law import worst_rate
from veilstream.core.held_out import HELD_OUT, LEAST_UNITS, HeldOut
from veilstream.core.interval import Interval
from veilstream.data.hold_out import loss_of, units_of
from veilstream.data.record import Record
from veilstream.data.steps import Runs
from veilstream.solvers.comfort import DataCard
from veilstream.solvers.solution import Level
from veilstream.units import off


class Same(StrEnum):
    """Whether the person still is who the model says."""

    YES = "still the person of the model"
    NO = "changed"
    UNKNOWN = "too little later data to say"


@dataclass(frozen=True)
class Drift:
    """Later data against what was known when the policy was made."""

    loss: Interval  # bits per step
    loss_fitted: Interval | None
    felt: Interval
    felt_claimed: float | None
    enough: bool  # traces or weeks to say something

    @property
    def same(self) -> Same:
        return Same.UNKNOWN if not self.enough else Same.NO if self.moved or self.farther else Same.YES

    @property
    def moved(self) -> bool:
        """Whether she moves in ways that the chain knows less well than it did."""
        return self.loss_fitted is not None and exceeds(self.loss, self.loss_fitted)

    @property
    def farther(self) -> bool:
        return self.felt_claimed is not None and self.felt.low > self.felt_claimed

    def to_json(self) -> dict[str, Any]:
        fitted = None if self.loss_fitted is None else self.loss_fitted.to_json()
        return {
            "same": str(self.same),
            "loss": self.loss.to_json(),
            "loss_fitted": fitted,
            "raw_distortion": self.felt.to_json(),
            "raw_distortion_claimed": self.felt_claimed,
        }


@dataclass(frozen=True)
class LaterData:
    """A policy on data that its model was not fitted to, and whether that is still the same person's."""

    figures: HeldOut
    worst: float | None  # bits per step whatever the data, proved
    drift: Drift

    def to_json(self) -> dict[str, Any]:
        own = {"held_out": self.figures.to_json(), "worst_leakage": self.worst}
        return {**own, "drift": self.drift.to_json()}

    def words(self, unit: str) -> str:
        """What it told there, under no model; and what to do where she has changed."""
        f, d = self.figures, self.drift
        most = (
            "" if self.worst is None else f"; no data whatever can make it more than {self.worst:.3f} ({Level.PROVED})"
        )
        far = off(_span(f.raw_distortion), unit, "")
        text = (
            f"On {f.units} {f.unit} later than what was fitted a release was {far} and told at most "
            f"{_span(f.leakage)} bits per step, whatever the law of such data ({f.level}{most}). "
        )
        if d.same == Same.UNKNOWN:
            return text + f"With fewer than {LEAST_UNITS} {f.unit} that says little about the person."
        if d.same == Same.YES:
            return text + "So the person still is who the model says."
        found = []
        if d.moved and d.loss_fitted is not None:
            found.append(
                f"the chain foresees a step to {_span(d.loss)} bits, {_span(d.loss_fitted)} when it was fitted"
            )
        if d.farther and d.felt_claimed is not None:
            found.append(f"releases are felt {off(_span(d.felt), unit, '')}, {d.felt_claimed:.3g} when it was solved")
        return text + (
            f"THE PERSON HAS CHANGED: {', and '.join(found)}. Make the model anew with veil refit MODEL NEW and solve "
            "again; a gateway's store goes on counting."
        )


def exceeds(now: Interval, before: Interval) -> bool:
    return now.value - before.value > float(np.hypot(now.value - now.low, before.high - before.value))


def later_data(policy: Artefact, runs: Runs) -> LaterData | None:
    """None where the file does not say until when it was fitted, or nothing is later than that."""
    card, steps = DataCard.of(policy.provenance), runs.source
    if policy.states is None or policy.policy is None or policy.problem is None or not len(steps):
        return None
    later = steps.step > (np.inf if card is None or card.last_step is None else card.last_step)
    if not later.any() or card is None:
        return None
    units = units_of(steps, policy.recording)
    kept, of = steps.keep(later), units.of[later]
    record = Record.of(kept.stream, kept.step, kept.points, runs.symbols[later], of, units.name)
    course = record.course(policy.cost, policy.chain)
    found = HeldOut.of(course, policy.policy, policy.chain, policy.problem.distortion)
    loss = loss_of(runs, np.where(later, units.of, -1), policy.chain)
    drift = Drift(loss, card.loss, found.raw_distortion, claimed_felt(policy.provenance), found.level == HELD_OUT)
    return LaterData(found, worst_rate(policy.policy), drift)


def claimed_felt(provenance: Mapping[str, Any]) -> float | None:
    said = provenance.get("solution")
    value = said.get("raw_distortion") if isinstance(said, Mapping) else None
    return float(value) if isinstance(value, int | float) and np.isfinite(value) else None


def _span(figure: Interval) -> str:
    return f"{figure.value:.3g} [{figure.low:.3g}, {figure.high:.3g}]"
