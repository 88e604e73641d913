"""The latest part of a record, kept out of the fit so that promises can be checked on it: whole traces, or whole weeks.

What is kept out and resampled together is a unit: a trace where a stream is cut into many, a week of a long stream.
Weeks are counted back from the last step, so that those kept out are whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from veilstream.control.limit_check import LEAST_UNITS
from veilstream.data.crossval import losses
from veilstream.data.readings import MICROSECONDS, Readings
from veilstream.data.spec import Recording
from veilstream.data.trajectories import Runs, Trajectories
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.interval import Interval, ratio_interval

SHARE = 1 / 3
WEEK_S = 7 * 86_400


def by_units(steps: Trajectories, recording: Recording) -> Trajectories:
    """With the trace or week of every row: traces where streams are cut into some, unless there are more weeks than
    that; all is one unit without either."""
    pair = np.stack([steps.stream, np.zeros(len(steps), int) if steps.trace is None else steps.trace], 1)
    trace = np.unique(pair.astype(np.int64), axis=0, return_inverse=True)[1].ravel()
    first = np.full(int(trace.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, trace, steps.step.astype(np.int64))
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    cut = len(rank) > steps.n_streams
    if recording.period_s is not None and len(steps):
        back = ((steps.step.max() - steps.step) * recording.period_s // WEEK_S).astype(np.int64)
        weeks, week = np.unique(-back, return_inverse=True)
        if not cut or len(weeks) > len(rank):
            return replace(steps, units=week.ravel().astype(np.int64), unit="weeks")
    return replace(steps, units=rank[trace] if cut else np.zeros(len(steps), np.int64), unit="traces")


@dataclass(frozen=True, eq=False)
class Cut:
    """Steps of which the latest units are kept out of the fit, and what to say of it."""

    fitted: Trajectories  # with their units
    later: Trajectories
    n_later: int  # units kept out
    words: str


def split(steps: Trajectories, recording: Recording, share: float | None = None) -> Cut:
    """share: of the traces or weeks; None: a third where that is enough to say something, 0: nothing."""
    if share is not None and not 0 <= share < 1:
        raise InputError(f"`hold_out` must be a share from 0 up to 1, found {share:g}")
    steps = by_units(steps, recording)
    n = steps.n_units
    held = int(np.ceil((SHARE if share is None else share) * n - 1e-9))
    why = ""
    if share == 0:
        why = "as asked"
    elif recording.noise == "drop":
        why = "with `noise='drop'` later data has other stops"
    elif held < 1 or n < 2:
        why = f"the record is one {steps.unit[:-1]}"
    elif share is None and held < LEAST_UNITS:
        why = f"a third of {n} {steps.unit} is fewer than the {LEAST_UNITS} that say something"
    if why and share and share > 0:
        raise InputError(f"nothing can be held out: {why}; leave out `hold_out`")
    held = 0 if why else min(held, n - 1)
    words = f"steps of the latest {held} of {n} {steps.unit}, kept in the file to check promises on"
    if why:
        words = f"nothing is held out: {why}; `veil solve` then speaks of the model only"
    assert steps.units is not None
    late = steps.units >= n - held
    return Cut(steps.take(~late), steps.take(late), held, words)


def earlier(readings: Readings, cut: Cut, recording: Recording) -> Readings:
    """The raw readings that are not kept out."""
    import polars as pl

    if not cut.n_later:
        return readings
    frame, later = readings.frame, cut.later
    if later.unit == "weeks":
        begin = int(later.step.min())
        epoch = 0 if readings.stepped else round(recording.epoch_s * MICROSECONDS)
        return readings.with_frame(frame.filter(pl.col("t") < epoch + begin * round(recording.step_s * MICROSECONDS)))
    gone = pl.DataFrame({"stream": later.stream, "trace": later.trace}).unique()
    gone = gone.cast({"stream": frame.schema["stream"], "trace": frame.schema["trace"]})
    return readings.with_frame(frame.join(gone, on=["stream", "trace"], how="anti"))


@dataclass(frozen=True, eq=False)
class Later:
    """The part of the data that was held out, in the states found without it, and its log-loss under the chain."""

    record: Trajectories
    units: int
    loss: Interval  # bits per step

    def to_json(self) -> dict[str, Any]:
        return {"traces": self.units, "unit": self.record.unit, "steps": len(self.record), "bits": self.loss.to_json()}


def loss_of(runs: Runs, chain: MarkovChain) -> Interval:
    """Mean log-loss of the transitions of these runs, bits per step, over the units of their source (-1: none)."""
    assert runs.source.units is not None
    known = np.maximum.accumulate(runs.rows)  # a step that was filled belongs to the reading before it
    of = np.concatenate([u[1:] for u in np.split(runs.source.units[known], runs.ends[:-1])])
    bits = np.concatenate(losses(chain, runs.sequences, runs.first))[of >= 0]
    of = of[of >= 0]
    return ratio_interval(np.bincount(of, bits).astype(float), np.bincount(of).astype(float))
