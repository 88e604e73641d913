"""`vs.start`: a policy for somebody of whom there is no history, from a limit alone.

It is a frame (`control.frame`) for a public kernel of moves. The kernel is a guess at how anyone moves, no more. What
is promised is a limit at every step, and the meter, which bounds what is revealed of anybody; every figure that rests
on the kernel says *model only*.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from veilstream.artefact import Artefact, dumps, provenance, save
from veilstream.control.frame import Frame
from veilstream.data.limits import Quantity
from veilstream.data.recording import Recording
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.shown import Progress, Rows, Shown, watching
from veilstream.solvers.frame import Found, Kernel, solve_frame
from veilstream.solvers.solution import Fact, Level
from veilstream.units import format_duration, parse_duration, parse_length_m, parse_quantity

SPEED_KMH = 20.0  # of a move, doors and lights included
PERIODS = {2: "5min", 1: "30min"}  # of places, of values
MOVES = 4.0  # times the limit that a value moves, unless told
MODEL_ONLY, ANYBODY = str(Level.MODEL_ONLY), "proved, whoever it is"


@dataclass(frozen=True, repr=False)
class Started(Shown):
    """What `start` gives: a policy file's content, with what it does under the public kernel.

    >>> import veilstream as vs
    >>> vs.start(max="500m")
    <Started at most 0.5 km at every step, anywhere: 0.2 bits for a step that stays, 47 at most for a new place>
    """

    found: Found
    average: float | None
    every: float | None
    kernel: Kernel
    period_s: float
    command: str = field(default="veilstream.start")

    @property
    def policy(self) -> Frame:
        return self.found.frame

    @property
    def unit(self) -> str:
        return self.policy.lattice.unit

    @property
    def limits(self) -> str:
        """In words."""
        said = (self.average, "on average"), (self.every, "at every step")
        return "at most " + " and ".join(f"{x:g} {self.unit} {when}" for x, when in said if x is not None)

    @property
    def stay_bits(self) -> float:
        """What its meter counts for a release that is the last one again."""
        return float(self.policy.charges[0, len(self.policy.offsets) // 2])

    def facts(self) -> list[Fact]:
        return [
            Fact("error", self.found.distortion, f"{self.unit} on average".strip(), f"{MODEL_ONLY}: under the kernel"),
            Fact("leakage", self.found.leakage, "bits per step", MODEL_ONLY),
            Fact("  its meter", self.found.charged, "bits per step", f"{MODEL_ONLY}: how often anyone moves"),
            Fact("a step that stays", self.stay_bits, "bits at most", ANYBODY),
            Fact("a new place", float(self.policy.charges.max()), "bits at most", ANYBODY),
        ]

    def to_json(self) -> dict[str, Any]:
        figures = {"distortion": self.found.distortion, "leakage": self.found.leakage, "charged": self.found.charged}
        return {
            "avg": self.average,
            "max": self.every,
            "unit": self.unit,
            "spacing": self.policy.spacing,
            "period_s": self.period_s,
            **figures,
            "level": MODEL_ONLY,
            "bits_stay": self.stay_bits,
            "bits_at_most": float(self.policy.charges.max()),
            "kernel": asdict(self.kernel),
        }

    def about(self) -> tuple[str, Rows]:
        stay, most = self.stay_bits, self.policy.charges.max()
        line = f"{self.limits}, anywhere: {stay:.1f} bits for a step that stays, {most:.0f} at most for a new place"
        rows = [(f.label.strip(), f"{f.value:.3g} {f.unit}, {f.level}") for f in self.facts()]
        return line, [*rows, ("steps", f"of {format_duration(self.period_s)}")]

    def parts(self) -> dict[str, Any]:
        """What its file holds."""
        made = provenance(self.command, start=self.to_json())
        return {"chain": self.policy.chain, "recording": Recording(period_s=self.period_s), "provenance": made}

    @cached_property
    def artefact(self) -> Artefact:
        return dumps(self.policy, **self.parts())[0]

    def save(self, path: str | os.PathLike[str]) -> Artefact:
        """Write the policy file, for `veil release` and `veil serve`."""
        return save(path, self.policy, **self.parts())


def start(
    avg: Quantity = None,
    max: Quantity = None,
    *,
    unit: str | None = None,
    period: str | float | None = None,
    stay: str | float = "1h",
    jump: str | float | None = None,
    progress: Progress | bool | None = None,
) -> Started:
    """A release policy without any history: wherever a person is, at whatever level a meter stands.

        avg         mean error under a public guess at how anyone moves: "1km", "0.5kW"
        max         error at every step, whoever it is and wherever: "500m"
        unit        of the limits, where they do not say it; km unless told
        period      length of a step (5min; values: 30min)
        stay, jump  the guess: how long anyone stays on average, how far a move goes in a step (20 km/h; values: four
                    times the limit)

    >>> import veilstream as vs
    >>> started = vs.start(avg="1km")
    >>> started.unit, started.period_s, started.found.distortion <= 1
    ('km', 300.0, True)
    """
    if avg is None and max is None:
        raise InputError("say how far off releases may be: `avg='1km'` in the mean, or `max='500m'` at every step")
    given = unit or next((found for found in map(_unit_of, (avg, max)) if found), "km")
    axes = 2 if _is_length(given) and unit is None else 1
    unit = "km" if axes == 2 else given
    mean, every = (
        None if text is None else _positive(text, unit, name) for name, text in (("`avg`", avg), ("`max`", max))
    )
    period_s = parse_duration(period or PERIODS[axes], "`period`")
    if jump is not None:
        far = parse_quantity(jump, unit, "`jump`")
    else:
        far = SPEED_KMH * period_s / 3600 if axes == 2 else MOVES * min(x for x in (mean, every) if x is not None)
    stays = 1 - period_s / np.maximum(parse_duration(stay, "`stay`"), 1.05 * period_s)
    kernel = Kernel(stay=float(stays), jump=far, wander=0.02 if axes == 2 else 0.0)
    with watching("solving", progress) as tell:
        found = solve_frame(mean, every, axes=axes, unit=unit, kernel=kernel, progress=tell)
    P = kernel.matrix(found.frame.offsets, found.frame.spacing)
    average = np.inf if mean is None else mean
    frame = replace(found.frame, chain=MarkovChain(P, name="anywhere"), average=average)
    return Started(replace(found, frame=frame), mean, every, kernel, period_s)


def _positive(limit: str | float, unit: str, name: str) -> float:
    found = parse_quantity(limit, unit, name)
    if found <= 0:
        raise InputError(f"{name} must be larger than zero, found {found:g}")
    return found


def _unit_of(limit: Quantity) -> str:
    return re.sub(r"^\s*[+-]?[\d.]*(?:[eE][+-]?\d+)?\s*", "", limit).strip() if isinstance(limit, str) else ""


def _is_length(unit: str) -> bool:
    try:
        parse_length_m(f"1{unit}")
    except InputError:
        return False
    return True
