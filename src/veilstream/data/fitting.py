"""From readings to a model: clean, resample, find the states, cut into runs, fit the chain; and say what it did."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.core.chain import SMOOTHING, MarkovChain
from veilstream.data.clean import MAX_SPEED_KMH, clean
from veilstream.data.crossval import (
    THIN_ROW,
    Card,
    CrossValidation,
    blocks_of,
    cross_validate,
    describe,
    link_dead_ends,
    select_order,
)
from veilstream.data.find import EPS_M, MIN_SAMPLES, find_stops, given_places, grid_cells, value_bins
from veilstream.data.readings import Account, Readings
from veilstream.data.states import StateSpace
from veilstream.data.steps import DEFAULT_MAX_GAP_S, Runs, Steps, default_period_s, make_runs, resample
from veilstream.errors import InputError
from veilstream.units import format_duration

NOISES = ("nearest", "drop")
DEFAULT_BINS = 8
RAW_SAMPLE = 200_000  # raw readings used for distances
DRIFT = 0.1  # total variation from which the long-run law is said to differ


@dataclass(frozen=True)
class FitOptions:
    """Every choice of `veil fit`; None means the default for the kind of data."""

    period_s: float | None = None
    bin: str = "first"
    gaps: str = "split"
    max_gap_s: float | None = None
    fill: str | None = None
    noise: str = "nearest"
    eps_m: float = EPS_M
    min_samples: int = MIN_SAMPLES
    n_states: int | None = None
    grid_m: float | None = None
    width: float | None = None
    edges: tuple[float, ...] | None = None
    places: str | None = None
    order: int | None = 1  # None: chosen by cross-validation up to max_order
    max_order: int = 3
    smoothing: float = SMOOTHING
    max_speed_kmh: float = MAX_SPEED_KMH
    seed: int = 0


@dataclass(frozen=True)
class GapChoice:
    """What another way with gaps would have given, on the same states."""

    name: str
    transitions: int
    entropy_data: float
    entropy_rate: float
    chosen: bool


@dataclass(frozen=True)
class Distances:
    """Distances in the model's unit. `blind_*`: always releasing the one best state, which leaks nothing."""

    raw_mean: float  # raw reading to its state
    raw_median: float
    raw_p95: float
    blind_state: int
    blind_state_to_state: float
    blind_raw_to_state: float


@dataclass(frozen=True)
class Model:
    """A fitted model and everything there is to say about it."""

    states: StateSpace
    chain: MarkovChain
    runs: Runs
    steps: Steps
    period_s: float | None
    account: Account
    card: Card
    held_out: CrossValidation | None
    orders: list[CrossValidation]
    gap_choices: list[GapChoice]
    distances: Distances
    traces: int
    points: int
    streams: int
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        card, held = self.card, self.held_out
        return {
            "traces": self.traces,
            "points": self.points,
            "streams": self.streams,
            "steps": self.runs.steps,
            "transitions": self.runs.transitions,
            "states": len(self.states),
            "kind": self.states.kind,
            "unit": self.states.unit,
            "order": self.chain.order,
            "period_s": self.period_s,
            "entropy_rate": card.entropy_rate,
            "entropy_data": card.entropy_data,
            "held_out_bits": held.loss if held else None,
            "held_out_se": held.loss_se if held else None,
            "orders": [{"order": cv.order, "held_out_bits": cv.loss, "se": cv.loss_se} for cv in self.orders],
            "self_transition": card.self_transition,
            "moves": card.moves,
            "effective_sample": card.effective_sample,
            "row_count_min": float(card.row_counts.min()),
            "row_count_median": float(np.median(card.row_counts)),
            "thin_rows": card.thin_rows,
            "never_left": [self.states.names[i] for i in card.never_left],
            "never_entered": [self.states.names[i] for i in card.never_entered],
            "drift": card.drift,
            "gap_choices": [c.__dict__ for c in self.gap_choices],
            "distances": self.distances.__dict__,
            "study_only": list(self.states.study_only),
            "account": self.account.to_json(),
            "notes": self.notes,
        }


def fit_model(
    readings: Readings, options: FitOptions, space: StateSpace | None = None, prior: NDArray[np.float64] | None = None
) -> Model:
    """The whole way, with the account of every step.

    space: states found elsewhere, shared with other people. prior: pseudo-counts n x n of what is known from them; with
    it the least data will do, down to none.
    """
    if options.noise not in NOISES:
        raise InputError(f"--noise must be one of {', '.join(NOISES)}, found {options.noise!r}")
    if readings.stepped and options.period_s not in (None, 1.0):
        raise InputError(f"{readings.where}: its times are step numbers, so there is no --period to choose")
    traces, points = readings.n_traces, readings.frame.height
    streams = readings.frame["stream"].n_unique()
    if points < 2 and prior is None:
        raise InputError(f"{readings.where}: one point only; a chain needs at least two consecutive steps")
    readings, steps, options = to_steps(readings, options)
    account, period_s = readings.account, steps.period_s
    if len(steps) < 2 and prior is None:
        raise InputError(
            f"{readings.where}: one step of {format_duration(period_s)} only; a chain needs at least two in a row"
        )
    states, labels, noise, note = find_states(steps.points, readings, options, space)
    states = replace(states, study_only=_study_only(options))
    account.add("states", len(states), note)
    if noise.any() and options.noise == "drop":
        account.add("no stop", int(noise.sum()), "steps that belong to no stop, dropped (--noise drop)")
        steps, labels = steps.keep(~noise), labels[~noise]
    elif noise.any():
        account.add("no stop", int(noise.sum()), "steps that belong to no stop, given to the nearest one")
    runs = to_runs(steps, labels, options, account)
    if not runs.transitions and prior is None:
        raise InputError(
            f"{readings.where}: no two steps of {format_duration(period_s)} in a row (all {len(steps)} stand alone); "
            "choose a longer --period or --max-gap"
        )
    sequences = _linked(runs, len(states), options.gaps, account)
    order, orders = options.order, list[CrossValidation]()
    if order is None and prior is not None and len(blocks_of(sequences)) < 2:
        order = 1  # nothing to hold out
    if order is None:
        order, orders = select_order(sequences, len(states), options.max_order, options.smoothing, options.seed)
    smoothing = options.smoothing if prior is None else options.smoothing + prior
    chain = MarkovChain.fit(sequences, len(states), order, smoothing, name=_name(readings))
    held_out = next((cv for cv in orders if cv.order == order), None)
    if held_out is None and prior is None and len(blocks_of(sequences)) > 1:
        held_out = cross_validate(sequences, len(states), order, options.smoothing, seed=options.seed)
    card = describe(chain, sequences)
    return Model(
        states,
        chain,
        runs,
        steps,
        None if readings.stepped else period_s,
        account,
        card,
        held_out,
        orders,
        _gap_choices(steps, labels, len(states), options),
        _distances(readings, states, chain),
        traces,
        points,
        streams,
        _warnings(card, states),
    )


def to_steps(readings: Readings, options: FitOptions) -> tuple[Readings, Steps, FitOptions]:
    """Cleaned readings, their steps, and the options with the defaults for this kind of data."""
    readings = clean(readings, options.max_speed_kmh)
    options = _resolved(options, readings)
    return readings, resample(readings, float(options.period_s or 1.0), options.bin), options


def to_runs(steps: Steps, labels: NDArray[np.int64], options: FitOptions, account: Account | None = None) -> Runs:
    """The runs of labelled steps, cut and filled as the options say."""
    return make_runs(steps, labels, options.gaps, float(options.max_gap_s or 0), str(options.fill), account)


def _name(readings: Readings) -> str:
    present = [readings.streams[i] for i in sorted(readings.frame["stream"].unique())]
    return present[0] if len(present) == 1 else f"{len(present)} streams"


def _resolved(options: FitOptions, readings: Readings) -> FitOptions:
    """The defaults that depend on the data."""
    period_s = options.period_s or default_period_s(readings)
    max_gap_s = options.max_gap_s or max(period_s, DEFAULT_MAX_GAP_S if readings.kind == "position" else 0)
    study = options.gaps == "bridge" or options.noise == "drop"
    fill = options.fill or ("close" if study else "hold")
    return replace(options, period_s=period_s, max_gap_s=max_gap_s, fill=fill)


def _study_only(options: FitOptions) -> tuple[str, ...]:
    """What was done to the data that no gateway can do online."""
    reasons = {
        "--noise drop: steps that are no stop were left out": options.noise == "drop",
        "--gaps bridge: the trace was closed over gaps": options.gaps == "bridge",
        "--fill close: missing steps were left out": options.fill == "close" and options.gaps != "bridge",
    }
    return tuple(reason for reason, holds in reasons.items() if holds)


def find_states(
    points: NDArray[np.float64], readings: Readings, options: FitOptions, space: StateSpace | None = None
) -> tuple[StateSpace, NDArray[np.int64], NDArray[np.bool_], str]:
    """States, the state of every step, which steps are no stop, and a note."""
    none = np.zeros(len(points), bool)
    if space is not None:
        return space, space.encode(points), none, "states shared with others"
    if readings.kind == "value":
        if options.grid_m or options.places:
            told = "--grid" if options.grid_m else "--places"
            raise InputError(f"{told} is for positions; these are values: use --states or --width")
        if options.noise == "drop":
            raise InputError("--noise drop is for stops; every value falls into a bin")
        states, note = value_bins(points, options.n_states or DEFAULT_BINS, options.width, readings.unit, options.edges)
        return states, states.encode(points), none, note
    if options.width is not None:
        raise InputError("--width is for values; these are positions: use --eps, --grid or --places")
    if options.places is not None:
        states = given_places(options.places)
        return states, states.encode(points), none, f"given places of {options.places}"
    if options.grid_m is not None:
        states = grid_cells(points, options.grid_m)
        return states, states.encode(points), none, f"visited cells of {options.grid_m:g} m"
    stops = find_stops(points, options.eps_m, options.min_samples, options.n_states)
    labels = stops.labels if options.noise == "drop" else stops.states.encode(points)
    note = f"stops, radius {stops.eps_m:.4g} m, at least {options.min_samples} points; {stops.note}"
    return stops.states, labels, stops.labels < 0, note


def _linked(runs: Runs, n: int, gaps: str, account: Account | None = None) -> list[NDArray[np.int64]]:
    """The runs, and where cutting left dead ends the moves that lead out of them."""
    links = link_dead_ends(runs.sequences, runs.streams, n) if gaps == "split" else []
    if links and account is not None:
        account.add(
            "dead ends",
            len(links),
            "transitions added from a place the cut runs never leave to where the stream is seen next",
        )
    return [*runs.sequences, *links]


def _gap_choices(steps: Steps, labels: NDArray[np.int64], n: int, options: FitOptions) -> list[GapChoice]:
    """The same states with gaps bridged, split at an hour, split at every missing step, and as chosen."""
    hour, period = max(DEFAULT_MAX_GAP_S, steps.period_s), steps.period_s
    chosen = (options.gaps, options.max_gap_s if options.gaps == "split" else 0.0)
    choices = dict.fromkeys([("bridge", 0.0), ("split", hour), ("split", period), chosen])
    found = []
    whole = not (np.diff(steps.step)[steps.trace[1:] == steps.trace[:-1]] > 1).any()
    for gaps, gap_s in [] if whole else choices:  # without gaps there is nothing to choose
        runs = make_runs(steps, labels, gaps, float(gap_s or 0), str(options.fill))
        if not runs.transitions:
            continue
        card = describe(MarkovChain.fit(_linked(runs, n, gaps), n, smoothing=options.smoothing), runs.sequences)
        name = "bridge" if gaps == "bridge" else f"split at {format_duration(float(gap_s or 0))}, {options.fill}"
        found.append(GapChoice(name, runs.transitions, card.entropy_data, card.entropy_rate, (gaps, gap_s) == chosen))
    return found


def _distances(readings: Readings, states: StateSpace, chain: MarkovChain) -> Distances:
    """From raw readings to their states, and what releasing always the same state would cost."""
    frame = readings.frame
    every = -(-frame.height // RAW_SAMPLE)
    raw = frame.select(readings.columns).gather_every(every).to_numpy()
    to_state = states.distance_to(raw, states.encode(raw))
    law = np.bincount(chain.symbols, chain.stationary, minlength=len(states))
    cost = law @ states.distances()
    blind = int(cost.argmin())
    to_blind = states.distance_to(raw, np.full(len(raw), blind))
    return Distances(
        float(to_state.mean()),
        float(np.median(to_state)),
        float(np.quantile(to_state, 0.95)),
        blind,
        float(cost[blind]),
        float(to_blind.mean()),
    )


def _warnings(card: Card, states: StateSpace) -> list[str]:
    notes = []
    for reason in states.study_only:
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
            "gaps or few visits shape it; compare the ways with gaps below"
        )
    return notes
