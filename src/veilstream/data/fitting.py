"""From readings to a model: clean, resample, find the states, cut into runs, fit the chain; and say what it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from veilstream.data.card import THIN_ROW, ModelCard, describe
from veilstream.data.clusters import Stops, find_stops, fitting_bins, given_places, grid_cells, value_bins
from veilstream.data.crossval import CrossValidation, Smoothing, blocks_of, cross_validate, pseudo_counts, select_order
from veilstream.data.cycle import NONE, no_clock, renewed, with_clock
from veilstream.data.dead_ends import link_dead_ends
from veilstream.data.distances import distances_of
from veilstream.data.encode import encode_steps
from veilstream.data.grid import RESOLUTION_M, stops_and_cells
from veilstream.data.hold_out import Later, earlier, split
from veilstream.data.model import FittedModel, GapChoice
from veilstream.data.moves import smoothing_of
from veilstream.data.readings import Account, Readings
from veilstream.data.recording import Recording
from veilstream.data.states import StateSpace, named
from veilstream.data.steps import DEFAULT_MAX_GAP_S, Runs, make_runs, to_steps
from veilstream.errors import InputError
from veilstream.model.chain import SMOOTHING, MarkovChain
from veilstream.units import format_duration

DEFAULT_BINS = 8
DRIFT = 0.1  # total variation from which the long-run law is said to differ


@dataclass(frozen=True)
class FitOptions:
    """Every choice of a fit: how the data is recorded, what the states are, what the chain is."""

    recording: Recording = field(default_factory=Recording)
    n_states: int | None = None
    grid_m: float | None = None
    width: float | None = None
    edges: tuple[float, ...] | None = None
    places: str | None = None
    cells_m: float | None = None  # cells beside stops; None: as wide as the resolution, none with n_states; 0: none
    resolution_m: float | None = None  # how near most readings are to their state; None: as wide as a cell
    names: tuple[tuple[str, str], ...] = ()  # states given other names: (found, wanted)
    order: int | None = 1  # None: chosen by cross-validation up to max_order
    max_order: int = 3
    smoothing: float = SMOOTHING
    moves: bool | None = None  # smooth by the distance of a move; None: cells and bins, where held-out loss gains by it
    hold_out: float | None = None  # latest share of the traces or weeks, not fitted; None: a third if enough, 0: none
    cycle: str = "none"  # the hour of the day: auto (where held-out loss gains by it), none, day, week
    zone: str | None = None  # whose hours; None: the record's own clock
    seed: int = 0

    @property
    def covering(self) -> tuple[float, float] | None:
        """Resolution and width of cells beside stops, in metres; None where stops are alone."""
        alone = self.recording.noise == "drop" or self.n_states is not None
        if self.cells_m == 0 or (self.cells_m is None and alone):
            return None
        resolution_m = self.resolution_m or self.cells_m or RESOLUTION_M
        return resolution_m, self.cells_m or resolution_m


def fit_model(
    readings: Readings,
    options: FitOptions,
    space: StateSpace | None = None,
    prior: NDArray[np.float64] | None = None,
    clocked: tuple[MarkovChain, float] | None = None,
    progress: Callable[[float, str], None] = lambda done, what: None,
) -> FittedModel:
    """The whole way, with the account of every step.

    space: states found elsewhere, shared with other people. prior: pseudo-counts n x n of what is known from them; with
    it the least data will do, down to none. clocked: the chain with a clock from before, and the counts it is worth.
    """
    if readings.stepped and options.recording.period_s not in (None, 1.0):
        raise InputError(f"{readings.where}: its times are step numbers, so there is no `period_s` to choose")
    points = readings.frame.height
    streams = readings.frame["stream"].n_unique()
    if points < 2 and prior is None:
        raise InputError(f"{readings.where}: one point only; a chain needs at least two consecutive steps")
    progress(0.0, "steps")
    readings, whole, recording = to_steps(readings, options.recording)
    account, length, traces = readings.account, format_duration(recording.step_s), readings.n_traces
    account.add("traces", traces, _cut_by(readings, recording))
    cut = split(whole, recording, options.hold_out)
    steps, readings = whole.keep(~cut.later), earlier(readings, whole, cut, recording)
    account.add("held out", int(cut.later.sum()), cut.told)
    if len(steps) < 2 and prior is None:
        raise InputError(f"{readings.where}: one step of {length} only; a chain needs at least two in a row")
    progress(0.25, "states")
    states, stops, note = find_states(steps.points, readings, options, space)
    states = states.renamed(dict(options.names))
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
    smoothing: Smoothing = options.smoothing
    if prior is None:
        stay = len(states) if stops is None else int(stops.labels.max(initial=-1)) + 1
        smoothing = smoothing_of(sequences, states, stay, options.smoothing, options.moves, options.seed, account)
    chain, held_out, orders = _fit_chain(sequences, len(states), options, smoothing, prior, _name(readings))
    cycle, without = NONE, ""
    progress(0.6, "hour of the day")
    if clocked is not None:
        chain = renewed(*clocked, runs, chain.name)
    elif prior is None or not (without := no_clock(chain, runs, recording, options.cycle)):
        known = smoothing if prior is None else options.smoothing + prior
        chain, held_out, cycle = with_clock(
            chain, held_out, runs, recording, known, options.cycle, options.zone, options.seed
        )
    progress(0.95, "figures")
    card = describe(chain, sequences)
    later = Later.of(encode_steps(whole.keep(cut.later), recording, states), cut, chain) if cut.held else None
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
        distances_of(readings, states, chain),
        traces,
        points,
        streams,
        options.resolution_m or options.cells_m or RESOLUTION_M,
        [*_merged(readings), *_clockless(without, options.cycle), *_warnings(card, states, recording)],
        later,
        cycle,
        options.seed,
        readings.sha256,
    )


def _cut_by(readings: Readings, recording: Recording) -> str:
    """What makes a trace."""
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
    points: NDArray[np.float64], readings: Readings, options: FitOptions, space: StateSpace | None = None
) -> tuple[StateSpace, Stops | None, str]:
    """The states of these points, which of the points are stops where that was asked, and a note."""
    if space is not None:
        return space, None, "states given, shared with others or from before"
    if readings.kind == "name":
        return _name_states(readings, options), None, "names of the data, each a state"
    if readings.kind == "value":
        states, note = _value_states(points, readings.unit, options)
        return states, None, note
    return _position_states(points, options)


def _name_states(readings: Readings, options: FitOptions) -> StateSpace:
    fields = ("`n_states`", "`grid_m`", "`width`", "`edges`", "`places`", "`cells_m`", "`resolution_m`")
    for what in fields:
        if getattr(options, what.strip("`")):
            raise InputError(f"{what} is for numbers; these readings are names, and each is a state")
    return named(readings.names)


def _value_states(points: NDArray[np.float64], unit: str, options: FitOptions) -> tuple[StateSpace, str]:
    if options.grid_m:
        raise InputError("`grid_m` is for positions; these are values: use `n_states` or `width`")
    if options.places:
        raise InputError("`places` is for positions; these are values: use `n_states` or `width`")
    if options.cells_m:
        raise InputError("`cells_m` is for positions; these are values: use `n_states` or `width`")
    if options.n_states is None and options.width is None and options.edges is None:
        return fitting_bins(points, unit)
    return value_bins(points, options.n_states or DEFAULT_BINS, options.width, unit, options.edges)


def _position_states(points: NDArray[np.float64], options: FitOptions) -> tuple[StateSpace, Stops | None, str]:
    if options.width is not None:
        raise InputError("`width` is for values; these are positions: use `eps_m`, `grid_m` or `places`")
    if options.edges is not None:
        raise InputError("`edges` is for values; these are positions: use `eps_m`, `grid_m` or `places`")
    if options.cells_m and (options.places is not None or options.grid_m is not None):
        raise InputError("`cells_m` stands beside stops: leave out `grid_m` and `places`")
    if options.places is not None:
        return given_places(options.places), None, f"given places of {options.places}"
    if options.grid_m is not None:
        return grid_cells(points, options.grid_m), None, f"visited cells of {options.grid_m:g} m"
    asked, covering = options.recording, options.covering
    if covering is None:
        stops = find_stops(points, asked.eps_m, asked.min_samples, options.n_states)
    else:
        stops = stops_and_cells(points, *covering, asked.eps_m, asked.min_samples, options.n_states)
    note = f"stops, radius {stops.eps_m:.4g} m, at least {asked.min_samples} points; {stops.note}"
    return stops.states, stops, note


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
    options: FitOptions,
    smoothing: Smoothing,
    prior: NDArray[np.float64] | None,
    name: str,
) -> tuple[MarkovChain, CrossValidation | None, list[CrossValidation]]:
    """The chain, its held-out loss where some can be held out, and that of every order tried."""
    enough, orders = len(blocks_of(sequences)) > 1, list[CrossValidation]()
    order = options.order
    if order is None and prior is not None and not enough:
        order = 1  # nothing to hold out
    if order is None:
        order, orders = select_order(sequences, n, options.max_order, smoothing, options.seed)
    pseudo = pseudo_counts(smoothing, sequences) + (0.0 if prior is None else prior)
    chain = MarkovChain.fit(sequences, n, order, pseudo, name=name)
    held_out = next((cv for cv in orders if cv.order == order), None)
    if held_out is None and prior is None and enough:
        held_out = cross_validate(sequences, n, order, smoothing, seed=options.seed)
    return chain, held_out, orders


# --- what to say about it --------------------------------------------------------------------------------


def _gap_choices(runs: Runs, n: int, recording: Recording, smoothing: Smoothing) -> list[GapChoice]:
    """The same states with gaps bridged, split at an hour, split at every missing step, and as chosen."""
    steps, symbols, period_s = runs.source, runs.symbols, recording.step_s
    chosen = (recording.gaps, recording.max_gap_s if recording.gaps == "split" else None)
    hour = max(DEFAULT_MAX_GAP_S, period_s)
    choices = dict.fromkeys([("bridge", None), ("split", hour), ("split", period_s), chosen])
    found = []
    whole = not (np.diff(steps.step)[steps.trace[1:] == steps.trace[:-1]] > 1).any()
    for gaps, gap_s in [] if whole else choices:  # without gaps there is nothing to choose
        other = make_runs(steps, symbols, replace(recording, gaps=gaps, max_gap_s=gap_s))
        if not other.transitions:
            continue
        linked = _with_links(other, n, gaps)
        chain = MarkovChain.fit(linked, n, smoothing=pseudo_counts(smoothing, linked))
        card = describe(chain, other.sequences)
        name = "bridge" if gap_s is None else f"split at {format_duration(gap_s)}, {recording.fill}"
        found.append(GapChoice(name, other.transitions, card.entropy_data, card.entropy_rate, (gaps, gap_s) == chosen))
    return found


def _merged(readings: Readings) -> list[str]:
    """Several streams in one model are never merged without a word."""
    names = [readings.streams[i] for i in sorted(readings.frame["stream"].unique())]
    if len(names) < 2:
        return []
    told = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    return [
        f"{len(names)} streams ({told}) make one model here, as if they were one person's; `out='{{stream}}.veil'` "
        f"makes one each, `stream={names[0]!r}` takes one"
    ]


def _clockless(why: str, cycle: str) -> list[str]:
    """Where others help somebody whose own record is too short for the clock that was asked for."""
    return [f"without a clock, though `cycle={cycle!r}`: {why}"] if why and cycle in ("day", "week") else []


def _warnings(card: ModelCard, states: StateSpace, recording: Recording) -> list[str]:
    notes = []
    for reason in recording.study_only:
        notes.append(f"study only ({reason}): no gateway can do this online, `veil serve` refuses the model")
    for what, which in (("left", card.never_left), ("entered", card.never_entered)):
        if which:
            names = ", ".join(states.names[i] for i in which[:6]) + (", ..." if len(which) > 6 else "")
            notes.append(f"never {what} in the data: {names}; smoothing alone speaks there")
    if card.thin_rows:
        notes.append(f"{card.thin_rows} of {len(card.row_counts)} rows rest on fewer than {THIN_ROW} transitions")
    if card.drift > DRIFT:
        notes.append(
            f"the chain's long-run law differs from the visits in the data by {card.drift:.2f} (total variation): "
            "gaps or few visits shape it; compare the ways with gaps"
        )
    return notes
