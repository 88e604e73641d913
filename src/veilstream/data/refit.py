"""A model made anew from new readings of the same person: her states and steps stay, the chain starts from what it was.

    P(x' | x) = (C(x, x') + k P_old(x, x')) / (C(x) + k)            k: strength, chosen by held-out log-loss by folds

so that much new data speaks for itself, and little is helped by what was known. A chain with a clock is looked for the
same clock's hours again, where that pays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from veilstream.artefact import Artefact
from veilstream.data.card import newest_symbol_chain
from veilstream.data.crossval import blocks_of, cross_validate
from veilstream.data.encode import encode_steps
from veilstream.data.fitting import fit_model
from veilstream.data.hold_out import split
from veilstream.data.model import FittedModel
from veilstream.data.readings import Account, Readings
from veilstream.data.spec import FitSpec
from veilstream.data.steps import to_steps
from veilstream.model.chain import SMOOTHING

LEAST = 5.0  # the same for a row at one phase of a clock, where new counts are few
STRENGTHS = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # counts that the old chain is worth in a row


@dataclass(frozen=True)
class Refitted:
    model: FittedModel
    strength: float


def refit_model(old: Artefact, readings: Readings, hold_out: float | None = None, seed: int = 0) -> Refitted:
    """old: a model, or a policy with one; its states, recording, order and clock are kept."""
    assert old.states is not None
    before = newest_symbol_chain(old.chain)[1]
    _, steps, recording = to_steps(replace(readings, account=Account()), old.recording)
    fitted = encode_steps(split(steps, recording, hold_out).fitted, recording, old.states).sequences
    order, strength = old.chain.order, STRENGTHS[-1]
    if len(blocks_of(fitted)) > 1:
        tried = [cross_validate(fitted, len(old.states), order, SMOOTHING + k * before, seed=seed) for k in STRENGTHS]
        strength = STRENGTHS[min(range(len(tried)), key=lambda i: tried[i].loss)]
    spec = FitSpec.of(old.recording, order=order, smoothing=SMOOTHING, hold_out=hold_out, cycle="none", seed=seed)
    clocked = (old.chain, max(strength / old.chain.phases, LEAST)) if old.chain.phases > 1 else None
    return Refitted(fit_model(readings, spec, old.states, strength * before, clocked), strength)
