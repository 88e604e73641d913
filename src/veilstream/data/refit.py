"""A model made anew from new readings of the same person: her states and steps stay, the chain starts from what it was.

    P(x' | x) = (C(x, x') + k P_old(x, x')) / (C(x) + k)            k: strength, chosen by held-out log-loss by folds

so that much new data speaks for itself, and little is helped by what was known. A chain with a clock is looked for the
same clock's hours again, where that pays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from veilstream.artefact import Artefact, is_guess
from veilstream.data.card import newest_symbol_chain
from veilstream.data.crossval import blocks_of, cross_validate
from veilstream.data.encode import encode_steps
from veilstream.data.fitting import fit_model
from veilstream.data.hold_out import split
from veilstream.data.model import FittedModel
from veilstream.data.readings import MICROSECONDS, Account, Readings
from veilstream.data.spec import FitSpec
from veilstream.data.steps import to_steps
from veilstream.errors import InputError
from veilstream.model.chain import SMOOTHING

LEAST = 5.0  # the same for a row at one phase of a clock, where new counts are few
DAYS = 14  # of readings before a person's own chain takes over from a public guess
STRENGTHS = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # counts that the old chain is worth in a row


@dataclass(frozen=True)
class Refitted:
    model: FittedModel
    strength: float


def check_enough(readings: Readings) -> None:
    """Raises unless there are two weeks of them."""
    if readings.stepped:
        raise InputError(f"{readings.where}: its times are step numbers, so nobody can say whether they are two weeks")
    t = readings.frame["t"].to_numpy()
    days = float(np.ptp(t)) / MICROSECONDS / 86400 if len(t) else 0.0
    if round(days) < DAYS:
        raise InputError(
            f"{readings.where}: {days:.1f} days of readings; {DAYS} are needed before a chain of her own takes over "
            "from the public guess of veil start: serve that until then"
        )


def refit_model(old: Artefact, readings: Readings, hold_out: float | None = None, seed: int = 0) -> Refitted:
    """old: a model, or a policy with one; its states, recording, order and clock are kept."""
    assert old.states is not None
    before = newest_symbol_chain(old.chain)[1]
    _, steps, recording = to_steps(replace(readings, account=Account()), old.recording)
    fitted = encode_steps(split(steps, recording, hold_out).fitted, recording, old.states).sequences
    guess, order = is_guess(old.provenance), old.chain.order
    # what is known of nobody counts a little everywhere: most of its states will never be seen
    strengths, smoothing = (STRENGTHS[1:], SMOOTHING / len(old.states)) if guess else (STRENGTHS, SMOOTHING)
    strength = strengths[-1]
    if len(blocks_of(fitted)) > 1:
        tried = [cross_validate(fitted, len(old.states), order, smoothing + k * before, seed=seed) for k in strengths]
        strength = strengths[min(range(len(tried)), key=lambda i: tried[i].loss)]
    spec = FitSpec.of(old.recording, order=order, smoothing=smoothing, hold_out=hold_out, cycle="none", seed=seed)
    clocked = (old.chain, max(strength / old.chain.phases, LEAST)) if old.chain.phases > 1 else None
    return Refitted(fit_model(readings, spec, old.states, strength * before, clocked), strength)
