"""Cleaning and steps: everything that is dropped is counted."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from veilstream.data.readings import Account, Readings, from_arrays
from veilstream.data.spec import Recording
from veilstream.data.steps import clean, default_period_s, make_runs, resample
from veilstream.data.trajectories import Trajectories
from veilstream.errors import InputError


def positions(t, lat, trace=None):
    points = np.stack([np.asarray(lat, float), np.zeros(len(t))], 1)
    readings = from_arrays(np.asarray(t, float), points, "km")
    if trace is None:
        return readings
    return readings.with_frame(readings.frame.with_columns(pl.Series("trace", trace, dtype=pl.UInt32)))


def cleaned(readings):
    return clean(readings, max_speed_kmh=1000.0)


def test_order_and_duplicates_are_counted_and_nothing_else_is_lost():
    readings = cleaned(positions([0, 20, 10, 10, 30], [0, 0.002, 0.001, 0.5, 0.003]))
    assert readings.frame["t"].to_list() == [0, 10_000_000, 20_000_000, 30_000_000]
    assert readings.frame["lat"].to_list() == [0, 0.001, 0.002, 0.003]  # of two at one time, the first
    assert readings.account.count("backward time") == 1
    assert readings.account.count("duplicate time") == 1


def test_a_spike_goes_and_a_lasting_jump_stays():
    t = np.arange(8) * 10.0
    spike = cleaned(positions(t, [0, 0, 0, 5, 0, 0, 0, 0]))
    assert spike.account.count("impossible speed") == 1
    assert spike.frame["lat"].to_list() == [0.0] * 7
    jump = cleaned(positions(t, [0, 0, 0, 0, 5, 5, 5, 5]))
    assert jump.account.count("impossible speed") == 0
    assert jump.account.count("jump") == 1
    assert jump.frame.height == 8
    for lat in ([5, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 5]):
        assert cleaned(positions(t, lat)).frame["lat"].to_list() == [0.0] * 7


def test_speeds_are_not_measured_across_traces():
    readings = cleaned(positions([0, 10, 20, 30], [0, 0, 5, 5], trace=[0, 0, 1, 1]))
    assert readings.frame.height == 4
    assert readings.account.count("jump") == 0


def test_first_mean_and_sum_of_a_step():
    readings = from_arrays(np.array([0.0, 100, 299, 300, 900]), np.array([[1.0], [2], [6], [4], [5]]), "kWh")
    for bin, expected in (("first", [1, 4, 5]), ("mean", [3, 4, 5]), ("sum", [9, 4, 5])):
        steps = resample(readings, Recording(300, bin=bin))
        assert steps.step.tolist() == [0, 1, 3]
        assert steps.points[:, 0].tolist() == expected
    with pytest.raises(InputError, match="`bin='sum'` is for values"):
        resample(positions([0, 1], [0, 0]), Recording(300, bin="sum"))


def test_the_period_of_values_is_their_median_distance():
    readings = from_arrays(np.array([0.0, 1800, 3600, 9000, 10800]), np.zeros((5, 1)), "kWh")
    assert default_period_s(readings) == 1800.0


def test_a_sensor_that_is_seconds_off_has_a_round_period():
    """A period of 298 s would drift through the day, and no clock divides by it."""
    for apart, period in ((298, 300), (905, 900), (59, 60), (400, 400)):
        readings = from_arrays(apart * np.arange(9.0), np.zeros((9, 1)), "mg/dL")
        assert default_period_s(readings) == period


def made(step, trace=None):
    step = np.asarray(step)
    trace = np.zeros_like(step) if trace is None else np.asarray(trace)
    return Trajectories(trace // 10, step, np.arange(len(step), dtype=float)[:, None], trace=trace)


def runs(steps, symbols, **recording):
    account = Account()
    found = make_runs(replace(steps, symbols=symbols), Recording(300, **recording), account)
    return [s.tolist() for s in found.sequences], found, account


def test_gaps_split_hold_close_and_bridge():
    steps, x = made([0, 1, 4, 20, 21]), np.array([0, 1, 2, 3, 4])
    got, found, account = runs(steps, x, gaps="split", max_gap_s=900, fill="hold")
    assert got == [[0, 1, 1, 1, 2], [3, 4]]
    assert (account.count("gaps split"), account.count("steps missing")) == (1, 2)
    assert account.count("transitions") == found.transitions == 5
    assert runs(steps, x, gaps="split", max_gap_s=900, fill="close")[0] == [[0, 1, 2], [3, 4]]
    got, _, account = runs(steps, x, gaps="split", max_gap_s=300)
    assert got == [[0, 1], [2], [3, 4]]
    assert account.count("runs of one step") == 1
    got, _, account = runs(steps, x, gaps="bridge", fill="hold")
    assert got == [[0, 1, 2, 3, 4]]
    assert account.count("steps missing") == 17


def test_traces_are_never_joined():
    assert runs(made([0, 1, 2, 3], [0, 0, 1, 1]), np.arange(4), gaps="bridge")[0] == [[0, 1], [2, 3]]


def test_every_symbol_has_its_reading_beside_it_and_a_filled_step_has_none():
    _, found, _ = runs(made([0, 1, 4, 20, 21]), np.array([0, 1, 2, 3, 4]), max_gap_s=900)
    nan = np.nan
    for points, expected in zip(found.points, ([0, 1, nan, nan, 2], [3, 4]), strict=True):
        np.testing.assert_array_equal(points[:, 0], expected)
    assert found.symbols.tolist() == [0, 1, 2, 3, 4]


def test_steps_are_counted_from_the_epoch():
    readings = from_arrays(np.array([0.0, 100, 299, 300]), np.arange(4.0)[:, None], "kWh")
    assert resample(readings, Recording(300, epoch_s=100)).step.tolist() == [-1, 0]


def test_one_stream_of_many():
    codes = {"stream": pl.UInt32, "trace": pl.UInt32}
    frame = pl.DataFrame({"stream": [0, 1], "trace": [0, 1], "t": [0, 0], "value": [1.0, 2.0]}, schema_overrides=codes)
    readings = Readings(frame, ("a", "b"), "value", "", Account())
    assert readings.only("b").frame["value"].to_list() == [2.0]
    with pytest.raises(InputError, match="no stream 'c'"):
        readings.only("c")
