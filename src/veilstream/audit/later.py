"""Data later than what a policy's model was fitted to: does the promise hold there, is it still the same person?

The rule is `control.drift`'s; here are the figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilstream.artefact import Artefact
from veilstream.control.drift import Drift, Same, claimed_felt, span
from veilstream.control.held_out import HELD_OUT, LEAST_UNITS, HeldOut
from veilstream.control.universal_bound import worst_rate
from veilstream.data.hold_out import loss_of, units_of
from veilstream.data.record import Record
from veilstream.data.steps import Runs
from veilstream.model.data_card import DataCard
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

    def changed(self, unit: str) -> list[str]:
        """A line, with what to do, where she has changed."""
        if self.drift.same != Same.NO:
            return []
        return [
            f"THE PERSON HAS CHANGED: {self.drift.found(unit)}. Make the model anew with veil refit MODEL NEW and "
            "solve again; a gateway's store goes on counting."
        ]

    def words(self, unit: str) -> str:
        """What it revealed there, under no model."""
        f, d = self.figures, self.drift
        most = (
            "" if self.worst is None else f"; no data whatever can make it more than {self.worst:.3f} ({Level.PROVED})"
        )
        far = off(span(f.raw_distortion), unit, "")
        text = (
            f"On later data ({f.units} {f.unit}) a release had {far} and revealed at most "
            f"{span(f.leakage)} bits per step, whatever the law of such data ({f.level}{most})."
        )
        if d.same == Same.UNKNOWN:
            return text + f" With fewer than {LEAST_UNITS} {f.unit} that says little about the person."
        return text + (" So the person still is who the model says." if d.same == Same.YES else "")


def later_data(policy: Artefact, runs: Runs | None = None) -> LaterData | None:
    """On these runs, from the first step that was not fitted; without any such step what the file says of the data that
    was held out when it was made; None where it says nothing."""
    card, said = DataCard.of(policy.provenance), policy.provenance.get("solution")
    if policy.states is None or policy.policy is None or policy.problem is None or card is None:
        return None
    last, steps = np.inf if card.last_step is None else card.last_step, None if runs is None else runs.source
    if runs is None or steps is None or not (later := steps.step > last).any():
        figures, loss = HeldOut.read(said.get("held_out") if isinstance(said, Mapping) else None), card.loss
    else:
        units = units_of(steps, policy.recording)
        kept, of = steps.keep(later), units.of[later]
        record = Record.of(kept.stream, kept.step, kept.points, runs.symbols[later], of, units.name)
        figures = HeldOut.of(record.course(policy.cost, policy.chain), policy.policy, policy.problem)
        loss = loss_of(runs, np.where(later, units.of, -1), policy.chain)
    if figures is None or loss is None:
        return None
    claimed = claimed_felt(policy.provenance)
    drift = Drift(loss, card.loss, figures.raw_distortion, claimed, figures.level == HELD_OUT)
    return LaterData(figures, worst_rate(policy.policy), drift)
