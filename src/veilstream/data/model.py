"""What a fit gives: states and chain, how the data behind them was recorded, and everything there is to say."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from veilstream.artefact import Artefact, dumps, provenance, save
from veilstream.data.card import ModelCard
from veilstream.data.crossval import CrossValidation
from veilstream.data.cycle import NONE, CycleChoice
from veilstream.data.hold_out import Later
from veilstream.data.readings import Account, Readings
from veilstream.data.spec import Recording
from veilstream.data.states import StateSpace
from veilstream.data.trajectories import Runs, Trajectories
from veilstream.model.chain import MarkovChain
from veilstream.shown import Rows, Shown, picture
from veilstream.units import counted, format_duration

RAW_SAMPLE = 200_000  # raw readings used


@dataclass(frozen=True)
class Distances:
    """Distances in the model's unit. `blind_*`: always releasing the one best state, which leaks nothing."""

    raw_mean: float  # raw reading to its state
    raw_median: float
    raw_p95: float
    blind_state: int
    blind_state_to_state: float
    blind_raw_to_state: float

    @classmethod
    def of(cls, readings: Readings, states: StateSpace, chain: MarkovChain) -> Distances:
        """From raw readings to their states, and what releasing always the same state would cost."""
        frame = readings.frame
        every = -(-frame.height // RAW_SAMPLE)
        raw = frame.select(readings.columns).gather_every(every).to_numpy()
        to_state = states.distance_to(raw, states.encode(raw))
        law = np.bincount(chain.symbols, chain.stationary, minlength=len(states))
        cost = law @ states.distances()
        blind = int(cost.argmin())
        to_blind = states.distance_to(raw, np.full(len(raw), blind))
        return cls(
            float(to_state.mean()),
            float(np.median(to_state)),
            float(np.quantile(to_state, 0.95)),
            blind,
            float(cost[blind]),
            float(to_blind.mean()),
        )


@dataclass(frozen=True)
class GapChoice:
    """Statistics of the chain that another way with gaps would have given, on the same states."""

    name: str
    transitions: int
    entropy_data: float
    entropy_rate: float
    chosen: bool


@dataclass(frozen=True, repr=False)
class FittedModel(Shown):
    """States and chain, how the data behind them was recorded, and everything there is to say about them.

    PRIVATE, like its file: it holds the readings. `account` counts what was done to them, `notes` warns.

        >>> import veilstream as vs
        >>> days = [0.1, 0.1, 0.3, 1.2, 0.4, 0.1] * 60
        >>> model = vs.fit({"time": [1800 * 10**6 + 1800 * i for i in range(360)], "kWh": days}, n_states=3)
        >>> model
        <FittedModel stream: 3 bins, steps of 30 min, order 1, 0.22 bits per step>
        >>> model.states.unit, len(model.chain)
        ('kWh', 3)
    """

    states: StateSpace
    chain: MarkovChain
    recording: Recording
    runs: Runs
    account: Account
    card: ModelCard
    held_out: CrossValidation | None
    orders: list[CrossValidation]
    gap_choices: list[GapChoice]
    distances: Distances
    traces: int
    points: int
    streams: int
    resolution_m: float
    notes: list[str] = field(default_factory=list)
    later: Later | None = None  # what was held out
    cycle: CycleChoice = NONE
    seed: int = 0
    data_sha256: str = ""
    reading: dict[str, str] = field(default_factory=dict)  # options that the data was read with

    @property
    def period_s(self) -> float | None:
        return self.recording.period_s

    @property
    def record(self) -> Trajectories | None:
        """The readings behind it, a row a step, for the file; None where there are none (all is known from others)."""
        return replace(self.runs.source, units=None).recorded() if len(self.runs.source) else None

    @property
    def within_resolution(self) -> float | None:
        """Share of the recorded steps whose reading is within the resolution of its state; None for values."""
        if not self.states.is_map or not len(self.runs.source):
            return None
        away = self.states.distance_to(self.runs.source.points, self.runs.source.states)
        return float((away * 1000 <= self.resolution_m).mean())

    def figures(self) -> dict[str, Any]:
        """The data card of the model's file: how much data there was, and how well the chain predicts."""
        steps = len(self.runs.source) + self.account.count("no stop") * (self.recording.noise == "drop")
        return {
            "states": len(self.states),
            "effective_sample": self.card.effective_sample,
            "steps": steps,
            "no_stop": self.account.count("no stop") / max(steps, 1),
            "raw_p95": self.distances.raw_p95,
            "held_out_bits": self.held_out.loss if self.held_out else None,
            "held_out_se": self.held_out.loss_se if self.held_out else None,
            "last_step": int(self.runs.source.step.max()) if len(self.runs.source) else None,
            "later_bits": self.later.loss.value if self.later else None,
            "later_low": self.later.loss.low if self.later else None,
            "later_high": self.later.loss.high if self.later else None,
        }

    def to_json(self) -> dict[str, Any]:
        card, held, apart = self.card, self.held_out, ("row_counts", "never_left", "never_entered")
        own = {k: getattr(self, k) for k in ("traces", "points", "streams", "period_s", "within_resolution", "notes")}
        return {
            **own,
            **{k: v for k, v in asdict(card).items() if k not in apart},
            "steps": self.runs.steps,
            "transitions": self.runs.transitions,
            "states": len(self.states),
            "kind": self.states.kind,
            "unit": self.states.unit,
            "order": self.chain.order,
            "recording": self.recording.export(),
            "held_out_bits": held.loss if held else None,
            "held_out_se": held.loss_se if held else None,
            "held_out": None if self.later is None else self.later.to_json(),
            "cycle": self.cycle.to_json(),
            "orders": [{"order": cv.order, "held_out_bits": cv.loss, "se": cv.loss_se} for cv in self.orders],
            "row_count_min": float(card.row_counts.min()),
            "row_count_median": float(np.median(card.row_counts)),
            "never_left": [self.states.names[i] for i in card.never_left],
            "never_entered": [self.states.names[i] for i in card.never_entered],
            "gap_choices": [asdict(c) for c in self.gap_choices],
            "distances": asdict(self.distances),
            "resolution_m": self.resolution_m if self.states.is_map else None,
            "study_only": list(self.recording.study_only),
            "account": self.account.to_json(),
        }

    # --- as a file, a line, a picture --------------------------------------------------------------------

    def parts(self, command: str, **more: Any) -> dict[str, Any]:
        """The parts of the model's file, as `artefact.save` takes them; command: the line that made it."""
        told = {"card": self.figures()} | ({"reading": self.reading} if self.reading else {}) | more
        return {
            "chain": self.chain,
            "states": self.states,
            "recording": self.recording,
            "record": self.record,
            "held_out": None if self.later is None else self.later.record,
            "provenance": provenance(command, self.seed, self.data_sha256, **told),
        }

    @cached_property
    def artefact(self) -> Artefact:
        """The model as its file holds it, which `solve`, `audit` and `report` go on with."""
        return dumps(None, **self.parts("veilstream.fit"))[0]

    def save(self, path: str | os.PathLike[str], command: str = "veilstream.fit", **more: Any) -> Artefact:
        """Write the model file, as `veil fit -o` does, and return what it holds; more: for its provenance."""
        return save(path, None, **self.parts(command, **more))

    def plot(self) -> Any:
        """A matplotlib Figure: its states with the moves between them, and the transition probabilities."""
        return picture("model", self.states, self.chain)

    def about(self) -> tuple[str, Rows]:
        period = "step numbers" if self.period_s is None else f"steps of {format_duration(self.period_s)}"
        rate = f"{self.card.entropy_rate:.2f} bits per step"
        line = f"{self.chain.name}: {len(self.states)} {self.states.kind}, {period}, order {self.chain.order}, {rate}"
        return line, [*self.facts(), *(("!", note) for note in self.notes)]

    def facts(self) -> Rows:
        """Label and text of every figure of the fit, in the order in which a terminal or a notebook shows them."""
        card, d, held, later = self.card, self.distances, self.held_out, self.later
        unit, far = self.states.unit, f" {self.states.unit}".rstrip()
        meant = (
            "right or wrong"
            if self.states.kind == "names"
            else f"distances in {unit or 'the value (no unit given: `unit`)'}"
        )
        counts = np.sort(card.row_counts)
        folds, last = "too few runs to hold any out", "none held out: solve will speak of the model only"
        if held is not None:
            more = f"{held.loss - card.entropy_rate:+.4f} to the entropy rate"
            folds = f"{held.loss:.4f} ± {held.loss_se:.4f} bits per step, by folds ({more})"
        if later is not None:
            loss = f"{later.loss.value:.4f} [{later.loss.low:.4f}, {later.loss.high:.4f}]"
            last = f"the latest {later.units} {later.record.unit}, {len(later.record):,} steps, held out but in the "
            last += f"model file (veil strip takes them out); log-loss {loss}"
        period = format_duration(self.period_s) if self.period_s else "steps without a clock"
        rows = [
            ("data", f"{counted(self.streams, 'stream')}, {counted(self.traces, 'trace')}, {self.points:,} points"),
            ("steps", f"{self.runs.steps:,} of {period} in {counted(len(self.runs.sequences), 'run')}"),
            ("states", f"{len(self.states)} {self.states.kind}, {meant}"),
            ("chain", f"order {self.chain.order}, {len(self.chain)} rows, {self.runs.transitions:,} transitions"),
        ]
        if self.cycle.clock is not None:
            rows.append(("clock", f"{self.cycle.clock}; held-out log-loss without it {self.cycle.plain:.4f}"))
        rows += [
            ("entropy rate", f"{card.entropy_rate:.4f} bits per step"),
            ("  in the counts", f"{card.entropy_data:.4f} bits per step (order 1, weighted by visits, no smoothing)"),
            ("held-out log-loss", folds),
            ("later part", last),
            ("self-transition", f"{card.self_transition:.1%} of steps stay, {card.moves:,} moves"),
            ("effective sample", f"{card.effective_sample:,.0f} independent visits"),
            ("transitions per row", f"{counts[0]:,.0f} at least, {counts[len(counts) // 2]:,.0f} in the middle"),
            (
                "raw reading to its state",
                f"{d.raw_mean:.3g}{far} mean, {d.raw_median:.3g} median, {d.raw_p95:.3g} for 95 %",
            ),
        ]
        if self.within_resolution is not None:
            near = f"{self.within_resolution:.1%} of steps within {self.resolution_m / 1000:g} km of their state"
            rows.append(("resolution", near))
        blind = f"{d.blind_state_to_state:.3g}{far} from state to state, {d.blind_raw_to_state:.3g}{far} from the raw "
        blind += "reading"
        rows.append((f"always releasing {self.states.names[d.blind_state]}", f"leaks nothing, costs {blind}"))
        for cv in self.orders if len(self.orders) > 1 else ():
            chosen = ", chosen" if cv.order == self.chain.order else ""
            rows.append((f"order {cv.order}", f"{cv.loss:.4f} ± {cv.loss_se:.4f} bits per step, held out{chosen}"))
        for way in self.gap_choices:
            bits = f"{way.entropy_data:.4f} bits in the counts, {way.entropy_rate:.4f} of the chain"
            rows.append((f"gaps: {way.name}", f"{way.transitions:,} transitions, {bits}{', chosen' * way.chosen}"))
        return rows
