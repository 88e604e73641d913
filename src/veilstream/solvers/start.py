"""`vs.start`: a policy that works wherever its person is, from a limit alone; or from a limit and her history.

It is a frame (`control.frame`). Without history it is made for a public kernel of moves, a guess at how anyone moves.
With a model that `veil fit` made, the places and moves of its record enter where she has been. What is promised of
anybody is a limit at every step, a mean kept by feedback, and the meter, which bounds what is revealed. Figures that
rest on the kernel say *model only*; on later data, which nothing was fitted to, they say *held out*.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from veilstream.artefact import Artefact, dumps, provenance, save
from veilstream.control.frame import Frame
from veilstream.control.frame_ladder import Framed, asked_of
from veilstream.control.frame_mechanism import FrameMechanism
from veilstream.control.limit_check import HeldOut, LimitCheck, check_limits, limits_json
from veilstream.control.replay import Counted, Replay, ReplayResult
from veilstream.data.limits import Quantity
from veilstream.data.spec import Recording
from veilstream.data.trajectories import Trajectories
from veilstream.errors import InputError
from veilstream.model.information import Array, Index
from veilstream.shown import Progress, Rows, Shown, watching
from veilstream.solvers.anywhere import Basis, Trial, solve_frame, solve_ladder
from veilstream.solvers.api import Model, artefact_of
from veilstream.solvers.frame import Kernel
from veilstream.solvers.places import errors_of
from veilstream.solvers.solution import RECORD, Fact, Level
from veilstream.units import format_duration, parse_duration, parse_length_m, parse_quantity

SPEED_KMH = 20.0  # of a move, doors and lights included
PERIODS = {2: "5min", 1: "30min"}  # of places, of values
MOVES = 4.0  # times the limit that a value moves, unless told
DRAWS = 40_000  # on later data
MODEL_ONLY, ANYBODY, ESTIMATED = str(Level.MODEL_ONLY), "proved, whoever it is", str(Level.ESTIMATED)


@dataclass(frozen=True, repr=False)
class Started(Shown):
    """What `start` gives: a policy file's content, with what it does.

    >>> import veilstream as vs
    >>> vs.start(max="500m")
    <Started at most 0.5 km at every step, anywhere: 0.6 bits for a step that stays, 52 at most for a new place>
    """

    policy: Framed
    trial: Trial  # of the frame that streams start with
    average: float | None
    every: float | None
    kernel: Kernel
    recording: Recording
    history: int = 0  # steps of the record
    later: HeldOut | None = None  # the policy on later data
    behind: dict[str, Any] = field(default_factory=dict)  # what the model says of its data
    command: str = field(default="veilstream.start")

    @property
    def frame(self) -> Frame:
        """That streams start with."""
        return self.policy if isinstance(self.policy, Frame) else self.policy.frames[self.policy.first]

    @property
    def unit(self) -> str:
        return self.frame.lattice.unit

    @property
    def limits(self) -> str:
        """In words."""
        said = (self.average, "on average"), (self.every, "at every step")
        return "at most " + " and ".join(f"{x:g} {self.unit} {when}" for x, when in said if x is not None)

    @property
    def checks(self) -> list[LimitCheck]:
        """The limits on later data."""
        return [] if self.later is None else check_limits(asked_of(self.policy), self.later, self.unit)

    @property
    def stay_bits(self) -> float:
        """What its meter counts for a release that is the last one again, where nothing is known of the place."""
        return float(-np.log2(self.frame.rates[0, len(self.frame.offsets) // 2]))

    def facts(self) -> list[Fact]:
        said, of = (f"{MODEL_ONLY}: under the kernel", MODEL_ONLY)
        if self.history:
            said = of = f"{ESTIMATED} {RECORD}, each outing as if its places were new"
        found = [
            Fact("error", self.trial.error, f"{self.unit} on average".strip(), said),
            Fact("leakage", self.trial.bits, "bits per step", of),
            Fact("  its meter", self.trial.charged, "bits per step", of),
        ]
        if self.later is not None:
            error, bits = self.later.raw_distortion, self.later.leakage
            found += [
                Fact("later error", error.value, f"{self.unit} on average".strip(), self.later.level),
                Fact("later leakage", bits.value, "bits per step, whatever their law", self.later.level),
            ]
        return [
            *found,
            Fact("a step that stays", self.stay_bits, "bits at most, at a new place", ANYBODY),
            Fact("a new place", self.frame.dearest, "bits at most", ANYBODY),
        ]

    def to_json(self) -> dict[str, Any]:
        figures = {"distortion": self.trial.error, "leakage": self.trial.bits, "charged": self.trial.charged}
        later = {} if self.later is None else {"held_out": self.later.to_json(), **limits_json(self.checks)}
        rule = self.policy.moves_by
        feedback = {} if rule is None else {"feedback": {**asdict(rule), "overshoot": rule.overshoot}}
        return {
            "avg": self.average,
            "max": self.every,
            "unit": self.unit,
            "spacing": self.frame.spacing,
            "period_s": self.recording.period_s,
            **figures,
            "level": ESTIMATED if self.history else MODEL_ONLY,
            "steps": self.history,
            "places": 0 if self.frame.places is None else len(self.frame.places),
            "bits_stay": self.stay_bits,
            "bits_at_most": self.frame.dearest,
            "kernel": asdict(self.kernel),
            **feedback,
            **later,
        }

    def about(self) -> tuple[str, Rows]:
        line = f"{self.limits}, anywhere: {self.stay_bits:.1f} bits for a step that stays, {self.frame.dearest:.0f} at "
        line += "most for a new place"
        rows: Rows = [("", check.words) for check in self.checks]
        rows += [(f.label.strip(), f"{f.value:.3g} {f.unit}, {f.level}") for f in self.facts()]
        rule = self.policy.moves_by
        if rule is not None:
            happens, promised = rule.words(self.unit, self.recording.stretch(rule.every))
            rows += [("feedback", happens), ("promised", promised)]
        if self.frame.places is not None:
            rows.append(("places", f"{len(self.frame.places)} cells of {self.frame.spacing:g} {self.unit}".strip()))
        return line, [*rows, ("steps", f"of {format_duration(self.recording.step_s)}")]

    def parts(self) -> dict[str, Any]:
        """What its file holds."""
        made = provenance(self.command, start=self.to_json(), **self.behind)
        return {"chain": self.policy.chain, "recording": self.recording, "provenance": made}

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
    model: Model | None = None,
    feedback: str | int | None = None,
    unit: str | None = None,
    period: str | float | None = None,
    stay: str | float = "1h",
    jump: str | float | None = None,
    progress: Progress | bool | None = None,
) -> Started:
    """A release policy that works wherever a person is, at whatever level a meter stands.

        avg         mean error: under a public guess at how anyone moves, or on the record of a model: "1km", "0.5kW"
        max         error at every step, whoever it is and wherever: "500m"
        model       what `fit` gives, or its file: her places enter where she has been
        feedback    correct `avg` by a public move every "day", "6h", ...: the mean is then kept whatever she does
        unit        of the limits, where they do not say it; km unless told
        period      length of a step (5min; values: 30min; a model has its own)
        stay, jump  the guess: how long anyone stays on average, how far a move goes in a step (20 km/h; values: four
                    times the limit)

    >>> import veilstream as vs
    >>> started = vs.start(avg="1km")
    >>> started.unit, started.recording.period_s, started.trial.error <= 1
    ('km', 300.0, True)
    """
    _check_asked(avg, max, feedback)
    known = None if model is None else _known(model, unit, period)
    axes, unit = _axes(unit, avg, max) if known is None else (known.record.points.shape[1], known.unit)
    mean, every = (
        None if text is None else _positive(text, unit, name) for name, text in (("`avg`", avg), ("`max`", max))
    )
    recording = known.recording if known else Recording(period_s=parse_duration(period or PERIODS[axes], "`period`"))
    far = _usual_move(axes, recording, mean, every) if jump is None else parse_quantity(jump, unit, "`jump`")
    stays = 1 - recording.step_s / np.maximum(parse_duration(stay, "`stay`"), 1.05 * recording.step_s)
    kernel = Kernel(stay=float(stays), jump=far, wander=0.02 if axes == 2 else 0.0)
    record = None if known is None else (known.record.points, *_whole(known.record))
    basis = Basis(axes, unit, kernel, record)
    policy: Framed
    with watching("solving", progress) as tell:
        if feedback is not None and mean is not None:
            steps = recording.steps_in(feedback, "`feedback`") if isinstance(feedback, str) else feedback
            policy, trial = solve_ladder(basis, mean, steps, tell)
        else:
            trial = solve_frame(basis, mean, every, tell)
            policy = replace(trial.frame, average=np.inf if mean is None else mean)
    made = Started(policy, trial, mean, every, kernel, recording)
    if known is None:
        return made
    later = None if known.held_out is None else on_later(policy, known.held_out, every)
    return replace(made, history=len(known.record), later=later, behind=known.behind)


def _check_asked(avg: Quantity, max: Quantity, feedback: str | int | None) -> None:
    if avg is None and max is None:
        raise InputError("say how far off releases may be: `avg='1km'` in the mean, or `max='500m'` at every step")
    if feedback is not None and (avg is None or max is not None):
        raise InputError("`feedback` keeps a mean: give `avg`, and no `max`")


def _axes(unit: str | None, *limits: Quantity) -> tuple[int, str]:
    """Two axes and km where the limits are lengths and no unit of values is given; else one, and their unit."""
    given = unit or next((found for found in map(_unit_of, limits) if found), "km")
    return (2, "km") if unit is None and _is_length(given) else (1, given)


def _usual_move(axes: int, recording: Recording, *limits: float | None) -> float:
    """How far a move goes in a step, unless told."""
    if axes == 2:
        return SPEED_KMH * recording.step_s / 3600
    return MOVES * min(limit for limit in limits if limit is not None)


@dataclass(frozen=True)
class _Known:
    """What a model's file says of its person."""

    record: Trajectories
    held_out: Trajectories | None
    recording: Recording
    unit: str
    behind: dict[str, Any]


def _whole(record: Trajectories) -> tuple[Index, Index]:
    """Steps and streams."""
    return np.asarray(record.step, np.int64), np.asarray(record.stream, np.int64)


def _known(model: Model, unit: str | None, period: str | float | None) -> _Known:
    for name, told in (("unit", unit), ("period", period)):
        if told is not None:
            raise InputError(f"a model has its own `{name}`; leave it out")
    artefact = artefact_of(model, "no model file {!r}; make one with veil fit")
    if artefact.states is None or artefact.record is None:
        raise InputError("the model holds no readings (veil strip takes them out); make it anew with veil fit")
    if artefact.states.kind == "names":
        raise InputError("names lie nowhere, so there is no lattice for them; use veil solve")
    behind: dict[str, Any] = {k: v for k, v in artefact.provenance.items() if k in ("card", "reading")}
    return _Known(artefact.record, artefact.held_out, artefact.recording, artefact.states.unit, behind)


def along(policy: Framed, steps: Trajectories) -> Replay:
    """Recorded steps as the policy meets them; a release costs how far it is from the reading."""
    lattice = policy.lattice
    step, stream = _whole(steps)

    def cost(points: Array, y: Index) -> Array:
        return errors_of(lattice, points, y)

    x = lattice.encode(steps.points)
    return Replay(stream, step, x, units=steps.units, unit=steps.unit, points=steps.points, cost=cost)


def on_later(policy: Framed, later: Trajectories, every: float | None = None) -> HeldOut:
    """The policy along readings that it was not made from, and how many of them it keeps within the limit."""
    return judged(policy, along(policy, later), every)[0]


def judged(
    policy: Framed, replay: Replay, every: float | None, beside: Sequence[Counted] = ()
) -> tuple[HeldOut, ReplayResult]:
    """The figures of these streams, and what else is counted of each step."""

    def beyond(rows: Index, y: Index) -> Array:
        return (replay.of_releases(rows, y) > (every or 0.0) * (1 + 1e-9)).astype(float)

    found = replay.run(FrameMechanism(policy), draws=DRAWS, beside=[*beside, beyond])
    assert found.each is not None
    error, bits, far = found.each[0], found.each[1], found.each[-1]
    return HeldOut.of_steps(replay, error, bits, beyond=None if every is None else far), found


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
