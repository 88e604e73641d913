"""The whole way from readings to a model, on synthetic and on real data."""

import time
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.data import write_large_csv
from real_data import GEOLIFE, METER, needs_geolife, needs_meter
from veilstream.data.fitting import fit_model
from veilstream.data.readings import from_arrays
from veilstream.data.sources import read
from veilstream.data.spec import FitSpec, Recording
from veilstream.data.steps import encode
from veilstream.data.synthetic import city, household
from veilstream.errors import InputError

PAPER = Recording(period_s=300, bin="mean", gaps="bridge", noise="drop", eps_m=200, min_samples=8)


def model_of(source, recording=None, **options):
    readings = from_arrays(source.t_s, source.points, source.unit, source.name)
    return fit_model(readings, FitSpec.of(recording or Recording(), **({"cycle": "none"} | options)))


def test_the_city_is_found_and_its_chain_with_it():
    source = city(20_000)
    model = model_of(source)
    assert len(model.states) == len(source.states)
    match = model.states.encode(source.states.coordinates)
    assert sorted(match) == list(range(len(match)))
    error = np.abs(model.chain.transition[np.ix_(match, match)] - source.chain.transition)
    rows = np.bincount(source.path, minlength=len(match))
    assert (error < 5 * np.sqrt(0.25 / rows)[:, None]).all()
    assert model.period_s == 300.0
    assert model.recording.study_only == ()


def test_the_household_is_found_with_its_edges():
    source = household(20_000)
    model = model_of(source, edges=tuple(source.states.edges))
    assert model.period_s == 1800.0
    assert model.states.unit == "kWh"
    assert np.abs(model.chain.transition - source.chain.transition).max() < 0.06
    assert model.held_out.loss == pytest.approx(model.card.entropy_rate, abs=0.05)


def test_study_only_is_marked_for_what_no_gateway_can_do():
    source = city(3_000)
    for recording in ({"noise": "drop"}, {"gaps": "bridge"}, {"fill": "close"}, {"bin": "mean"}):
        (field,) = recording
        assert model_of(source, Recording(**recording)).recording.study_only[0].startswith(f"`{field}=")
    assert model_of(source).recording.study_only == ()


def test_options_for_the_other_kind_of_data_are_refused():
    for source, options, says in (
        (city(500), {"width": 1.0}, "`width` is for values"),
        (household(500), {"grid_m": 100.0}, "`grid_m` is for positions"),
        (household(500), {"recording": Recording(noise="drop")}, "`noise='drop'` is for stops; these states are bins"),
        (city(500), {"recording": Recording(noise="drop"), "grid_m": 500.0}, "these states are grid"),
    ):
        with pytest.raises(InputError, match=says):
            model_of(source, **options)


def test_one_point_and_lonely_steps_are_one_line():
    t = np.array([0.0])
    with pytest.raises(InputError, match="one point only"):
        fit_model(from_arrays(t, np.zeros((1, 2)), "km"), FitSpec(cycle="none"))
    t = np.arange(40) * 7200.0
    values = np.random.default_rng(0).random((40, 1))
    with pytest.raises(InputError, match="no two steps of 5 min in a row"):
        fit_model(from_arrays(t, values, "kWh"), FitSpec.of(Recording(300), cycle="none"))


def test_nothing_is_dropped_without_being_counted():
    source = city(2_000)
    keep = np.random.default_rng(0).random(2_000) < 0.8
    model = fit_model(from_arrays(source.t_s[keep], source.points[keep], "km"), FitSpec(cycle="none"))
    account = model.account
    assert account.count("resampled") + account.count("steps missing") == model.runs.steps
    assert account.count("read") == keep.sum()
    assert account.count("transitions") == model.runs.transitions == model.runs.steps - len(model.runs.sequences)


@pytest.mark.slow
def test_a_large_table_is_read_quickly(tmp_path):
    """The five million rows of the bench, made smaller."""
    path = tmp_path / "large.csv"
    write_large_csv(path, rows=200_000)
    start = time.process_time()
    model = fit_model(read([str(path)]), FitSpec(cycle="none"))
    assert time.process_time() - start < 15
    assert (model.points, model.streams) == (200_000, 100)
    assert len(model.states) == 10


# --- real data -------------------------------------------------------------------------------------------


@needs_geolife
def test_the_papers_setting_gives_16_stops_830_transitions_and_its_entropy():
    readings = read([str(GEOLIFE / "016")])
    assert readings.frame.height == 89_272
    model = fit_model(readings, FitSpec.of(PAPER, cycle="none"))
    assert (model.traces, len(model.states), model.runs.transitions) == (51, 16, 830)
    assert 0.52 <= model.card.entropy_rate <= 0.54
    assert model.card.entropy_data == pytest.approx(0.5257, abs=5e-4)
    by_name = {c.name: c.entropy_data for c in model.gap_choices}
    assert by_name["split at 1 h, close"] == pytest.approx(0.49, abs=0.005)
    assert by_name["split at 5 min, close"] == pytest.approx(0.20, abs=0.005)
    assert [reason.split("=")[0] for reason in model.recording.study_only] == ["`noise", "`gaps", "`bin"]


@needs_geolife
def test_the_radius_for_16_stops_is_found_from_far_away():
    readings = read([str(GEOLIFE / "016")])
    for eps_m in (200.0, 150.0, 240.0):
        model = fit_model(readings, FitSpec.of(replace(PAPER, eps_m=eps_m), n_states=16, cycle="none"))
        assert len(model.states) == 16
        assert len(encode(readings, model.recording, model.states).sequences) == len(model.runs.sequences)


@needs_geolife
def test_the_deployable_default_on_the_same_data():
    model = fit_model(read([str(GEOLIFE / "016")]), FitSpec(cycle="none"))
    assert model.recording.study_only == ()
    assert (model.chain.transition > 0).all()
    assert model.states.kind == "stops and cells"
    assert 80 <= len(model.states) <= 95
    assert model.within_resolution > 0.99  # one far reading is enough for more cells: limits at every step are about it
    assert model.held_out.loss < 1.9
    assert model.account.count("no stop") > 290


@needs_geolife
def test_stops_alone_on_the_same_data_are_as_they_were():
    model = fit_model(read([str(GEOLIFE / "016")]), FitSpec(cells_m=0.0, hold_out=0.0, cycle="none"))
    assert (model.states.kind, len(model.states), model.runs.transitions) == ("stops", 17, 1_370)
    assert 0.7 < model.card.entropy_rate < 0.9
    assert 0.9 < model.distances.raw_mean < 1.2
    assert model.held_out.loss == pytest.approx(1.1081, abs=2e-3)
    assert model.account.count("unseen moves") == 0


@needs_geolife
@pytest.mark.parametrize("user", ["006", "008", "018", ""])
def test_every_geolife_user_fits(user):
    model = fit_model(read([str(GEOLIFE / user)]), FitSpec(cycle="none"))
    assert model.runs.transitions > 100
    assert model.card.drift < 0.25
    assert model.within_resolution >= 0.95


@pytest.mark.slow
@needs_meter
def test_all_households_fit_alone_and_together():
    readings = read([str(METER)], unit="kWh")
    assert len(readings.streams) == 20
    together = fit_model(readings, FitSpec(cycle="none"))
    assert (together.points, together.streams) == (330_523, 20)
    for stream in readings.streams:
        model = fit_model(readings.only(stream), FitSpec(cycle="none"))
        assert 2 <= len(model.states) <= 24
        assert model.period_s == 1800.0
        assert (model.chain.transition > 0).all()


def test_several_streams_in_one_model_are_said(tmp_path):
    path = tmp_path / "two.csv"
    rows = "".join(f"{i},{who},{(i * 7 + k) % 5}\n" for k, who in enumerate(("ann", "bob")) for i in range(200))
    path.write_text("t,user,value\n" + rows)
    both = read([str(path)])
    assert "2 streams (ann, bob) make one model" in fit_model(both, FitSpec(cycle="none")).notes[0]
    assert not [n for n in fit_model(both.only("ann"), FitSpec(cycle="none")).notes if "streams" in n]
