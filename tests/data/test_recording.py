"""The recording is a value in the file: who reads the same data by it gets the same symbols."""

from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import veilstream as vs
from veilstream.artefact import dumps
from veilstream.audit.source import recorded_runs
from veilstream.data.fitting import fit_model
from veilstream.data.readings import Account, from_arrays
from veilstream.data.spec import CHOICES, FitSpec, Recording
from veilstream.data.steps import encode
from veilstream.data.synthetic import city, household
from veilstream.errors import InputError
from veilstream.gateway.wire import Grid

BINS, GAPS, FILLS, NOISES = (CHOICES[name] for name in ("bin", "gaps", "fill", "noise"))


def broken_up(source, seed):
    """Several readings a step, many steps without any, long gaps, two traces, points far from every place."""
    rng = np.random.default_rng(seed)
    n, each = len(source.path), 3
    t = np.repeat(source.t_s, each) + source.period_s * np.tile([0.0, 0.3, 0.6], n)
    points = np.repeat(source.points, each, axis=0)
    if points.shape[1] == 2:
        points = points + rng.normal(scale=1e-4, size=points.shape)
        astray = rng.random(len(points)) < 0.05
        points[astray] += rng.uniform(-0.05, 0.05, size=(astray.sum(), 2))
    else:
        points = points * rng.uniform(0.5, 2.0, points.shape)
    keep = (rng.random(len(t)) < 0.6) & (np.arange(len(t)) // 40 % 5 > 0)
    readings = from_arrays(t[keep], points[keep], source.unit)
    trace = (np.arange(keep.sum()) > keep.sum() // 2).astype(np.uint32)
    return readings.with_frame(readings.frame.with_columns(pl.Series("trace", trace)))


PLACES, VALUES = broken_up(city(900), 1), broken_up(household(500), 2)


def fresh(readings):
    return replace(readings, account=Account())


def fit_and_audit(readings, options):
    """The runs of a fit, and those that an audit makes of the same data by the file alone."""
    model = fit_model(fresh(readings), options)
    artefact, _ = dumps(chain=model.chain, states=model.states, recording=model.recording)
    return model, recorded_runs(fresh(readings), artefact)


def assert_equal_runs(one, other):
    assert len(one.sequences) == len(other.sequences)
    for pairs in (zip(one.sequences, other.sequences, strict=True), zip(one.points, other.points, strict=True)):
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=1e-12)  # means and sums are made twice


COMBINATIONS = [
    *(("stops", *c) for c in product(("first", "mean"), GAPS, FILLS, NOISES)),
    *(("stops and cells", *c) for c in product(("first", "mean"), GAPS, FILLS, ("nearest",))),
    *(("grid", *c) for c in product(("first", "mean"), GAPS, FILLS, ("nearest",))),
    *(("bins", *c) for c in product(BINS, GAPS, FILLS, ("nearest",))),
]


@pytest.mark.parametrize(("kind", "bin", "gaps", "fill", "noise"), COMBINATIONS)
def test_fit_and_audit_of_the_same_data_give_the_same_symbols(kind, bin, gaps, fill, noise):
    recording = Recording(bin=bin, gaps=gaps, fill=fill, noise=noise, max_gap_s=None if kind == "bins" else 1500)
    options = FitSpec.of(
        recording, grid_m=1500.0 if kind == "grid" else None, cells_m=0.0 if kind == "stops" else None, cycle="none"
    )
    model, audited = fit_and_audit(VALUES if kind == "bins" else PLACES, options)
    assert model.states.kind == kind
    assert_equal_runs(model.runs, audited)
    deployable = (bin, gaps, noise) == ("first", "split", "nearest") and fill != "close"
    assert bool(model.recording.study_only) != deployable


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@example(Recording(period_s=3600.0, bin="mean", gaps="bridge", max_gap_s=7200.0, fill="hold", noise="drop", eps_m=51.0,
                   min_samples=11, max_speed_kmh=1000.0, epoch_s=1.0), False)  # fmt: skip
@given(
    st.builds(
        Recording,
        period_s=st.sampled_from([None, 60.0, 299.5, 600.0, 3600.0]),
        epoch_s=st.floats(0, 1e5),
        bin=st.sampled_from(BINS),
        gaps=st.sampled_from(GAPS),
        max_gap_s=st.sampled_from([None, 300.0, 7200.0]),
        fill=st.sampled_from(FILLS),
        noise=st.sampled_from(NOISES),
        eps_m=st.floats(50, 500),
        min_samples=st.integers(2, 12),
        max_speed_kmh=st.sampled_from([20.0, 1000.0]),
    ),
    st.booleans(),
)
def test_whatever_the_recording_it_is_enough(recording, values):
    assume(recording.bin != "sum" or values)
    recording = replace(recording, noise="nearest") if values else recording
    try:
        model, audited = fit_and_audit(VALUES if values else PLACES, FitSpec.of(recording, cycle="none"))
    except InputError as refusal:
        if not any(why in str(refusal) for why in ("in a row", "a chain needs 2")):
            raise
        assume(False)  # every step stands alone, or there is one stop and no cell beside it
    assert_equal_runs(model.runs, audited)


def test_one_stop_alone_is_refused_in_a_line_that_says_what_to_do():
    alone = Recording(
        period_s=3600.0, bin="mean", gaps="split", max_gap_s=300.0, noise="drop", eps_m=51.0, min_samples=12
    )
    with pytest.raises(InputError, match=r"1 stop found with radius 51 m .* a chain needs 2: change `eps_m` or"):
        fit_model(fresh(PLACES), FitSpec.of(alone, cycle="none"))


@pytest.mark.slow
def test_a_radius_that_was_searched_for_is_kept():
    asked = Recording(noise="drop", eps_m=40.0)
    model, audited = fit_and_audit(PLACES, FitSpec.of(asked, n_states=5, cycle="none"))
    assert model.recording.eps_m != asked.eps_m
    assert_equal_runs(model.runs, audited)


def test_of_a_deployable_recording_a_gateway_has_the_same_symbols():
    """Its steps, by its own grid; of each the first reading; its nearest state."""
    recording = Recording(period_s=299.5, epoch_s=17.0, max_speed_kmh=1e6)
    model = fit_model(fresh(PLACES), FitSpec.of(recording, cycle="none"))
    assert model.recording.study_only == ()
    grid, frame = Grid(model.recording.period_s, model.recording.epoch_s), PLACES.frame
    firsts = {}
    for t, lat, lon, trace in frame.select("t", "lat", "lon", "trace").iter_rows():
        firsts.setdefault((trace, grid.step(t / 1e6)), (lat, lon))
    assert model.runs.symbols.tolist() == model.states.encode(list(firsts.values())).tolist()


def test_the_data_of_the_issue_in_small():
    """A model fitted to sums agreed with its own audit on 23 % of symbols when the file did not say `sum`."""
    model, audited = fit_and_audit(VALUES, FitSpec.of(Recording(period_s=7200, bin="sum"), cycle="none"))
    assert (model.runs.symbols == audited.symbols).all()
    forgotten = encode(fresh(VALUES), replace(model.recording, bin="first"), model.states)
    assert (model.runs.symbols == forgotten.symbols).mean() < 0.5


@pytest.mark.parametrize(
    "wrong",
    [
        {"bin": "median"},
        {"gaps": "mend"},
        {"fill": "guess"},
        {"noise": "mute"},
        {"period_s": 0},
        {"period_s": float("inf")},
        {"max_gap_s": -1},
        {"eps_m": "wide"},
        {"eps_m": None},
        {"min_samples": 0},
        {"max_speed_kmh": float("nan")},
        {"epoch_s": None},
    ],
)
def test_a_recording_is_valid_or_does_not_exist(wrong):
    (field,) = wrong
    with pytest.raises(InputError, match=f"{field}.* must be"):
        Recording(**wrong)


def test_it_is_part_of_the_public_contract():
    assert vs.Recording is Recording


def test_steps_are_a_stretch_of_time_in_words():
    half_hours = Recording(period_s=1800.0)
    assert [half_hours.stretch(n) for n in (48, 336, 1440, 12)] == ["day", "week", "month", "6 h"]
    assert Recording().stretch(48) == ""
