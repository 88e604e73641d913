"""From readings to a model: clean, resample, find the states, cut into runs, fit the chain; and say what it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from veilstream.artefact import Artefact
from veilstream.data.bins import fitting_bins, value_bins
from veilstream.data.card import THIN_ROW, ModelCard, describe, newest_symbol_chain
from veilstream.data.clusters import Stops, find_stops, given_places, grid_cells
from veilstream.data.crossval import (
    CrossValidation,
    Smoothing,
    blocks_of,
    cross_validate,
    pseudo_counts,
    select_order,
    smoothing_of,
)
from veilstream.data.cycle import NONE, no_clock, renewed, with_clock
from veilstream.data.hold_out import Later, earlier, loss_of, split
from veilstream.data.model import Distances, FittedModel, GapChoice
from veilstream.data.readings import Account, Readings
from veilstream.data.spec import RESOLUTION_M, FitSpec, Recording
from veilstream.data.states import StateSpace, named
from veilstream.data.steps import DEFAULT_MAX_GAP_S, encode_steps, link_dead_ends, make_runs, to_steps
from veilstream.data.trajectories import Runs
from veilstream.errors import InputError
from veilstream.model.chain import SMOOTHING, MarkovChain
from veilstream.units import few, format_duration

DEFAULT_BINS = 8
OF_POSITIONS, OF_VALUES = ("grid_m", "places", "cells_m"), ("width", "edges")
DRIFT = 0.1  # total variation from which the long-run law is said to differ


def fit_model(
    readings: Readings,
    spec: FitSpec,
    space: StateSpace | None = None,
    prior: NDArray[np.float64] | None = None,
    clocked: tuple[MarkovChain, float] | None = None,
    progress: Callable[[float, str], None] = lambda done, what: None,
) -> FittedModel:
    """The whole way, with the account of every step.

    space: states found elsewhere, shared with other people. prior: pseudo-counts n x n of what is known from them; with
    it the least data will do, down to none. clocked: the chain with a clock from before, and the counts it is worth.
    """
    spec, points, streams = spec.in_unit(readings.unit), readings.frame.height, readings.frame["stream"].n_unique()
    if readings.stepped and spec.period_s not in (None, 1.0):
        raise InputError(f"{readings.where}: its times are step numbers, so there is no `period_s` to choose")
    if points < 2 and prior is None:
        raise InputError(f"{readings.where}: one point only; a chain needs at least two consecutive steps")
    progress(0.0, "steps")
    readings, whole, recording = to_steps(readings, spec.recording)
    account, length, traces = readings.account, format_duration(recording.step_s), readings.n_traces
    account.add("traces", traces, _cut_by(readings, recording))
    cut = split(whole, recording, spec.hold_out)
    steps, readings = cut.fitted, earlier(readings, cut, recording)
    account.add("held out", len(whole) - len(steps), cut.words)
    if len(steps) < 2 and prior is None:
        raise InputError(f"{readings.where}: one step of {length} only; a chain needs at least two in a row")
    progress(0.25, "states")
    states, stops, note = find_states(steps.points, readings, spec, space)
    states = states.renamed(spec.renamings)
    recording = recording if stops is None else replace(recording, eps_m=stops.eps_m)
    account.add("states", len(states), note)
    runs = encode_steps(steps, recording, states, stops, account)
    if not runs.transitions and prior is None:
        raise InputError(
            f"{readings.where}: no two steps of {length} in a row (all {len(runs.source)} stand alone); "
            "choose a longer `period_s` or `max_gap_s`"
        )
    progress(0.55, "chain")
    sequences = _with_links(runs, len(states), recording.gaps, account)
    uniform = spec.smoothing if isinstance(spec.smoothing, float | int) else SMOOTHING
    smoothing: Smoothing = uniform
    if prior is None:
        stay = len(states) if stops is None else stops.number
        smoothing = smoothing_of(sequences, states, stay, spec.smoothing, spec.seed, account)
    chain, held_out, orders = _fit_chain(sequences, len(states), spec, smoothing, prior, _name(readings))
    cycle, without = NONE, ""
    progress(0.6, "hour of the day")
    if clocked is not None:
        chain = renewed(*clocked, runs, chain.name)
    elif prior is None or not (without := no_clock(chain, runs, recording, spec.cycle)):
        known = smoothing if prior is None else uniform + prior
        chain, held_out, cycle = with_clock(chain, held_out, runs, recording, known, spec)
    progress(0.95, "figures")
    card = describe(chain, sequences)
    later = None
    if cut.n_later:
        after = encode_steps(cut.later, recording, states)
        later = Later(after.source.recorded(), cut.n_later, loss_of(after, chain))
    return FittedModel(
        states,
        chain,
        recording,
        runs,
        account,
        card,
        held_out,
        orders,
        _gap_choices(runs, len(states), recording, smoothing),
        Distances.of(readings, states, chain),
        traces,
        points,
        streams,
        spec.resolution_m or spec.cells_m or RESOLUTION_M,
        _notes(readings, card, states, recording, without, spec.cycle),
        later,
        cycle,
        spec.seed,
        readings.sha256,
    )


def _cut_by(readings: Readings, recording: Recording) -> str:
    """How the readings were cut into traces, for the account."""
    if readings.traced:
        return "as a column tells them apart"
    if readings.stepped or recording.gaps != "split":
        return "as the files have them"
    longest = format_duration(max(recording.max_gap_s or 0.0, DEFAULT_MAX_GAP_S))
    return f"cut where no reading came for {longest}" if readings.kind == "position" else "one a stream"


def _name(readings: Readings) -> str:
    present = [readings.streams[i] for i in sorted(readings.frame["stream"].unique())]
    return present[0] if len(present) == 1 else f"{len(present)} streams"


# --- states ----------------------------------------------------------------------------------------------


def find_states(
    points: NDArray[np.float64], readings: Readings, spec: FitSpec, space: StateSpace | None = None
) -> tuple[StateSpace, Stops | None, str]:
    """The states of these points, which of the points are stops where that was asked, and a note."""
    if space is not None:
        return space, None, "states given, shared with others or from before"
    _check_fields(readings.kind, spec)
    if readings.kind == "name":
        return named(readings.names), None, "names of the data, each a state"
    if readings.kind == "value":
        if spec.n_states is None and spec.width is None and spec.edges is None:
            states, note = fitting_bins(points, readings.unit)
        else:
            assert not isinstance(spec.width, str)  # read by its unit
            states, note = value_bins(points, spec.n_states or DEFAULT_BINS, spec.width, readings.unit, spec.edges)
        return states, None, note
    if spec.places is not None:
        return given_places(spec.places), None, f"given places of {spec.places}"
    if spec.grid_m is not None:
        return grid_cells(points, spec.grid_m), None, f"visited cells of {spec.grid_m:g} m"
    stops = find_stops(points, spec.eps_m, spec.min_samples, spec.n_states, spec.covering)
    note = f"stops, radius {stops.eps_m:.4g} m, at least {spec.min_samples} points; {stops.note}"
    return stops.states, stops, note


def _check_fields(kind: str, spec: FitSpec) -> None:
    """Raises where a field is about states of another kind."""
    ours = {
        "name": (
            (*OF_POSITIONS, *OF_VALUES, "n_states", "resolution_m"),
            "numbers; these readings are names, and each is a state",
        ),
        "value": (OF_POSITIONS, "positions; these are values: use `n_states` or `width`"),
        "position": (OF_VALUES, "values; these are positions: use `eps_m`, `grid_m` or `places`"),
    }
    fields, why = ours[kind]
    for name in fields:
        if getattr(spec, name):
            raise InputError(f"`{name}` is for {why}")
    if spec.cells_m and (spec.places is not None or spec.grid_m is not None):
        raise InputError("`cells_m` stands beside stops: leave out `grid_m` and `places`")


# --- chain -----------------------------------------------------------------------------------------------


def _with_links(runs: Runs, n: int, gaps: str, account: Account | None = None) -> list[NDArray[np.int64]]:
    """The runs, and where cutting left dead ends the moves that lead out of them."""
    links = link_dead_ends(runs.sequences, runs.streams, n) if gaps == "split" else []
    if links and account is not None:
        account.add(
            "dead ends",
            len(links),
            "transitions added from a place the cut runs never leave to where the stream is seen next",
        )
    return [*runs.sequences, *links]


def _fit_chain(
    sequences: Sequence[NDArray[np.int64]],
    n: int,
    spec: FitSpec,
    smoothing: Smoothing,
    prior: NDArray[np.float64] | None,
    name: str,
) -> tuple[MarkovChain, CrossValidation | None, list[CrossValidation]]:
    """The chain, its held-out loss where some can be held out, and that of every order tried."""
    enough, orders = len(blocks_of(sequences)) > 1, list[CrossValidation]()
    order: int = 1 if spec.order == "auto" else spec.order
    if spec.order == "auto" and (enough or prior is None):  # else nothing to hold out
        order, orders = select_order(sequences, n, spec.max_order, smoothing, spec.seed)
    pseudo = pseudo_counts(smoothing, sequences) + (0.0 if prior is None else prior)
    chain = MarkovChain.fit(sequences, n, order, pseudo, name=name)
    held_out = next((cv for cv in orders if cv.order == order), None)
    if held_out is None and prior is None and enough:
        held_out = cross_validate(sequences, n, order, smoothing, seed=spec.seed)
    return chain, held_out, orders


# --- what to say about it --------------------------------------------------------------------------------


def _gap_choices(runs: Runs, n: int, recording: Recording, smoothing: Smoothing) -> list[GapChoice]:
    """Chains on the same states with gaps bridged, split at an hour, split at every missing step, and as chosen."""
    steps, hour = runs.source, max(DEFAULT_MAX_GAP_S, recording.step_s)
    assert steps.trace is not None
    if not (np.diff(steps.step)[steps.trace[1:] == steps.trace[:-1]] > 1).any():
        return []  # without gaps there is nothing to choose
    split_at = (replace(recording, gaps="split", max_gap_s=seconds) for seconds in (hour, recording.step_s))
    found = []
    for way in dict.fromkeys([replace(recording, gaps="bridge"), *split_at, recording]):
        other = make_runs(steps, way)
        if not other.transitions:
            continue
        linked = _with_links(other, n, way.gaps)
        chain = MarkovChain.fit(linked, n, smoothing=pseudo_counts(smoothing, linked))
        card = describe(chain, other.sequences)
        name = f"split at {format_duration(way.max_gap_s or 0)}, {way.fill}" if way.gaps == "split" else "bridge"
        found.append(GapChoice(name, other.transitions, card.entropy_data, card.entropy_rate, way == recording))
    return found


def _notes(
    readings: Readings, card: ModelCard, states: StateSpace, recording: Recording, without: str, cycle: str
) -> list[str]:
    """What must stand beside the model; without: why it has no clock, where others' counts help it."""
    notes = []
    names = [readings.streams[i] for i in sorted(readings.frame["stream"].unique())]
    if len(names) > 1:  # never merged without a word
        notes.append(
            f"{len(names)} streams ({few(names, 4)}) make one model here, as if they were one person's; "
            f"`out='{{stream}}.veil'` makes one each, `stream={names[0]!r}` takes one"
        )
    if without and cycle in ("day", "week"):
        notes.append(f"without a clock, though `cycle={cycle!r}`: {without}")
    for reason in recording.study_only:
        notes.append(f"study only ({reason}): no gateway can do this online, `veil serve` refuses the model")
    for what, which in (("left", card.never_left), ("entered", card.never_entered)):
        if which:
            never = few([states.names[i] for i in which], 6)
            notes.append(f"never {what} in the data: {never}; smoothing alone speaks there")
    if card.thin_rows:
        notes.append(f"{card.thin_rows} of {len(card.row_counts)} rows rest on fewer than {THIN_ROW} transitions")
    if card.drift > DRIFT:
        notes.append(
            f"the chain's long-run law differs from the visits in the data by {card.drift:.2f} (total variation): "
            "gaps or few visits shape it; compare the ways with gaps"
        )
    return notes


# --- anew, from new readings of the same person ----------------------------------------------------------
#
#     P(x' | x) = (C(x, x') + k P_old(x, x')) / (C(x) + k)        k: strength, chosen by held-out log-loss by folds
#
# so that much new data speaks for itself, and little is helped by what was known.

LEAST = 5.0  # the strength for a row at one phase of a clock, where new counts are few
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
