"""Data later than what a policy's model was fitted to: does the promise hold there, is it still the same person?

The rule is `core.drift`'s; here are the figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from veilstream.artefact import Artefact
from veilstream.core.any_law import worst_rate
from veilstream.core.data_card import DataCard
from veilstream.core.drift import Drift, Same, claimed_felt, span
from veilstream.core.held_out import HELD_OUT, LEAST_UNITS, HeldOut
from veilstream.data.hold_out import loss_of, units_of
from veilstream.data.record import Record
from veilstream.data.steps import Runs
from veilstream.solvers.solution import Level
from veilstream.units import off


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
        far = off(span(f.raw_distortion), unit, "")
        text = (
            f"On {f.units} {f.unit} later than what was fitted a release was {far} and told at most "
            f"{span(f.leakage)} bits per step, whatever the law of such data ({f.level}{most}). "
        )
        if d.same == Same.UNKNOWN:
            return text + f"With fewer than {LEAST_UNITS} {f.unit} that says little about the person."
        if d.same == Same.YES:
            return text + "So the person still is who the model says."
        return text + (
            f"THE PERSON HAS CHANGED: {d.found(unit)}. Make the model anew with veil refit MODEL NEW and solve "
            "again; a gateway's store goes on counting."
        )


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
    found = HeldOut.of(course, policy.policy, policy.problem)
    loss = loss_of(runs, np.where(later, units.of, -1), policy.chain)
    drift = Drift(loss, card.loss, found.raw_distortion, claimed_felt(policy.provenance), found.level == HELD_OUT)
    return LaterData(found, worst_rate(policy.policy), drift)
