"""Recorded data as symbols of a policy's states, encoded as its model was fitted, and what became of the policy on it:
on the steps that were fitted, and on later ones (does the promise hold there, is it still the same person?)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.artefact import Artefact
from veilstream.control.drift import Drift, Same, claimed_felt, span
from veilstream.control.frame import NOWHERE
from veilstream.control.frame_ladder import Framed
from veilstream.control.frame_mechanism import FrameMechanism
from veilstream.control.limit_check import HELD_OUT, LEAST_UNITS, HeldOut
from veilstream.control.places import index_of
from veilstream.control.replay import Replay, ReplayResult
from veilstream.control.universal_bound import worst_rate
from veilstream.data.crossval import losses
from veilstream.data.hold_out import by_units, loss_of
from veilstream.data.readings import Entry, Readings
from veilstream.data.spec import Recording
from veilstream.data.states import StateSpace
from veilstream.data.steps import encode_steps, to_steps
from veilstream.data.trajectories import Ints, Runs
from veilstream.errors import InputError
from veilstream.model.data_card import DataCard
from veilstream.solvers.solution import Level
from veilstream.solvers.start import DRAWS, along, judged, on_later
from veilstream.solvers.warnings import about_stranger
from veilstream.units import counted, off

FAR = 1.0  # data is elsewhere if half of it lies further from every state than this many times the map's width


def recorded_runs(readings: Readings, policy: Artefact, recording: Recording | None = None) -> Runs:
    """The traces as symbols 0..n-1, recorded as the policy's model was unless another recording is given."""
    states = policy.states
    check_kind(readings, states)
    readings, steps, recording = to_steps(readings, recording or policy.recording)
    if states is None:
        states = _whole_numbers(steps.points, policy.chain.n_symbols, readings.where)
    elif states.is_map:
        _check_place(steps.points, states, readings.where)
    return encode_steps(steps, recording, states, account=readings.account)


def fitted_until(policy: Artefact) -> float:
    """The last step that the model behind a policy was fitted to; infinite where its file does not say."""
    card = DataCard.of(policy.provenance)
    if card is None and isinstance(policy.policy, Framed):
        return -np.inf  # made without data
    return np.inf if card is None or card.last_step is None else card.last_step


@dataclass(frozen=True)
class LaterData:
    """A policy on data that its model was not fitted to, and whether that is still the same person's."""

    figures: HeldOut
    worst: float | None  # bits per step whatever the data, proved
    drift: Drift | None  # None: no chain was fitted that she could have left

    def to_json(self) -> dict[str, Any]:
        own = {"held_out": self.figures.to_json(), "worst_leakage": self.worst}
        return own if self.drift is None else {**own, "drift": self.drift.to_json()}

    def changed(self, unit: str) -> list[str]:
        """A line, with what to do, where she has changed."""
        if self.drift is None or self.drift.same != Same.NO:
            return []
        return [
            f"THE PERSON HAS CHANGED: {self.drift.found(unit)}. Make the model anew with veil refit MODEL NEW and "
            "solve again; a gateway's store goes on counting."
        ]

    def words(self, unit: str) -> str:
        """A sentence about error and leakage on the later data, which rests on no model."""
        f, same = self.figures, Same.UNKNOWN if self.drift is None else self.drift.same
        most = (
            "" if self.worst is None else f"; no data whatever can make it more than {self.worst:.3f} ({Level.PROVED})"
        )
        far = off(span(f.raw_distortion), unit, "")
        text = (
            f"On later data ({counted(f.units, f.unit.removesuffix('s'))}) a release had {far} and revealed at most "
            f"{span(f.leakage)} bits per step, whatever the law of such data ({f.level}{most})."
        )
        if f.units < LEAST_UNITS:
            return text + f" With fewer than {LEAST_UNITS} {f.unit} that says little about the person."
        return text + (" So the person still is who the model says." if same == Same.YES else "")


def later_data(policy: Artefact, runs: Runs | None = None) -> LaterData | None:
    """On these runs, from the first step that was not fitted; without any such step what the file says of the data that
    was held out when it was made; None where it says nothing. The rule is `control.drift`'s."""
    card, said = DataCard.of(policy.provenance), policy.provenance.get("solution")
    if isinstance(policy.policy, Framed):
        said = policy.provenance.get("start")
        figures = HeldOut.read(said.get("held_out") if isinstance(said, Mapping) else None)
        return None if figures is None else LaterData(figures, None, None)
    if policy.states is None or policy.policy is None or policy.problem is None or card is None:
        return None
    if runs is None or not (later := runs.source.step > fitted_until(policy)).any():
        figures, loss = HeldOut.read(said.get("held_out") if isinstance(said, Mapping) else None), card.loss
    else:
        steps = by_units(runs.source, policy.recording)
        record = steps.take(later).recorded()
        figures = HeldOut.of(record.replay(policy.cost, policy.chain), policy.policy, policy.problem)
        scored = replace(steps, units=np.where(later, steps.units, -1))  # type: ignore[arg-type]  # they are there
        loss = loss_of(replace(runs, source=scored), policy.chain)
    if figures is None or loss is None:
        return None
    claimed = claimed_felt(policy.provenance)
    drift = Drift(loss, card.loss, figures.raw_distortion, claimed, figures.level == HELD_OUT)
    return LaterData(figures, worst_rate(policy.policy), drift)


@dataclass(frozen=True, eq=False)
class Recorded:
    """Recorded data as a policy meets it, PRIVATE; where none is given, what the policy's file says of its own."""

    record: ReplayResult | None  # error and bits on the steps that the model was fitted to
    later: LaterData | None  # and what is later
    sequences: Sequence[Ints] | None = None  # the symbols of its runs; None: no data was given
    first: Sequence[int] | Ints | None = None  # the public number of the first step of each
    replay: Replay | None = None  # the steps that were fitted, with their readings
    traces: int = 0
    readings: int = 0
    account: Sequence[Entry] = ()  # of what was done to the readings
    warnings: tuple[str, ...] = ()
    elsewhere: float | None = None  # of a frame: share of steps that are released at none of her places
    charged: float | None = None  # and bits per step that its meter counts

    @classmethod
    def nothing(cls, policy: Artefact) -> Recorded:
        """No data at all."""
        return cls(ReplayResult.of(policy.provenance.get("solution")), later_data(policy))

    @classmethod
    def symbols(
        cls, policy: Artefact, sequences: Sequence[Ints], first: Sequence[int] | Ints | None = None
    ) -> Recorded:
        """Data that is encoded already, without its readings."""
        steps = sum(map(len, sequences))
        return replace(cls.nothing(policy), sequences=sequences, first=first, traces=len(sequences), readings=steps)

    @classmethod
    def of(cls, policy: Artefact, readings: Readings, recording: Recording | None = None) -> Recorded:
        """Readings, encoded as the policy's model was fitted unless another recording is given."""
        if isinstance(policy.policy, Framed):
            return anywhere(policy, policy.policy, readings, recording)
        runs, replay = recorded_runs(readings, policy, recording), None
        fitted = runs.source.step <= fitted_until(policy)
        if policy.states is not None and fitted.any():
            replay = runs.source.take(fitted).recorded().replay(policy.cost, policy.chain)
        own = cls.nothing(policy)
        cut = policy.recording.gaps == "split"  # by time; else as the files have them
        return cls(
            own.record if replay is None or policy.policy is None else replay.whole(policy.policy, policy.chain),
            later_data(policy, runs) or own.later,
            runs.sequences,
            runs.first,
            replay,
            len(np.unique(runs.source.columns["trace"])) if cut else readings.n_traces,
            readings.frame.height,
            readings.account.entries,
            tuple(strange(policy, runs)),
        )


def anywhere(file: Artefact, policy: Framed, readings: Readings, recording: Recording | None = None) -> Recorded:
    """Readings as a frame meets them, wherever they are."""
    lattice = policy.lattice
    check_units("position" if lattice.is_map else "value", lattice.unit, readings)
    readings, steps, recording = to_steps(readings, recording or file.recording)
    steps = by_units(steps, recording)
    steps = replace(steps, symbols=np.zeros(len(steps), np.int64)).recorded()
    limit = None if np.isinf(policy.limit) else policy.limit
    every = along(policy, steps)
    figures: HeldOut | None
    figures, seen = judged(policy, every, limit, [lambda _, y: index_of(policy.packed, y) == NOWHERE])
    assert seen.each is not None
    fitted, record = steps.step <= fitted_until(file), None
    if fitted.any():
        record = along(policy, steps.take(fitted)).run(FrameMechanism(policy), draws=DRAWS)
        figures = None if fitted.all() else on_later(policy, steps.take(~fitted), limit)
    later = None if figures is None else LaterData(figures, None, None)
    return Recorded(
        record,
        later or Recorded.nothing(file).later,
        replay=every,
        traces=steps.n_units,
        readings=readings.frame.height,
        elsewhere=float(seen.each[2].mean()),
        charged=seen.charged,
        account=readings.account.entries,
    )


def strange(policy: Artefact, runs: Runs) -> list[str]:
    """A line where the data looks like somebody else's."""
    chain = policy.chain
    bits = np.concatenate([np.zeros(0), *losses(chain, runs.sequences, runs.first)])
    if not len(bits):
        return []
    states, away = policy.states, None
    if states is not None and len(runs.source):
        away = _typically_away(runs.source.points, states)
    return about_stranger(float(bits.mean()), away, chain, policy.provenance)


def check_kind(readings: Readings, states: StateSpace | None) -> None:
    """Raises unless the data is of the policy's kind and unit."""
    of_policy = "value" if states is None else {"bins": "value", "names": "name"}.get(states.kind, "position")
    check_units(of_policy, "" if states is None or states.is_map else states.unit, readings)


def check_units(kind: str, unit: str, readings: Readings) -> None:
    if readings.kind != kind:
        raise other_states(f"the policy is about {kind}s, {readings.where} holds {readings.kind}s")
    if kind != "position" and readings.unit and unit and readings.unit != unit:
        raise other_states(f"the policy's values are in {unit}, those of {readings.where} in {readings.unit}")


def _whole_numbers(points: NDArray[np.float64], n: int, where: str) -> StateSpace:
    """States that are numbers 0..n-1, for data that holds nothing else."""
    values, numbers = points[:, 0], np.arange(float(n))
    if not np.isin(values, numbers).all():
        raise other_states(f"the policy's states are 0..{n - 1}, {where} holds other numbers")
    return StateSpace("bins", numbers[:, None], tuple(map(str, range(n))), "", numbers[1:] - 0.5)


def _check_place(points: NDArray[np.float64], states: StateSpace, where: str) -> None:
    away, width = _typically_away(points, states), max(float(states.distances().max()), 1.0)
    if away > FAR * width:
        raise other_states(
            f"half of {where} lies more than {away:.0f} km from every place of the policy, which spans {width:.0f} km"
        )


def _typically_away(points: NDArray[np.float64], states: StateSpace) -> float:
    return float(np.median(states.distance_to(points, states.encode(points))))


def other_states(found: str) -> InputError:
    return InputError(f"the policy and the data have different state spaces: {found}")
