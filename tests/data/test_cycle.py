"""The hour of the day in a fit: found where it is, not where it is not; days of 23 and 25 hours, and bad input."""

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest

from oracles import recomputed
from veilcli import veil
from veilstream.data.crossval import losses
from veilstream.data.cycle import Timed, cycle_of, pooled
from veilstream.data.fitting import fit_model
from veilstream.data.readings import from_arrays
from veilstream.data.spec import FitSpec
from veilstream.errors import InputError
from veilstream.model.clock import Clock

LONDON = ZoneInfo("Europe/London")
WINTER = datetime(2013, 1, 7, tzinfo=LONDON).timestamp()  # a Monday
HOUR = 3600.0


def levels(hours, days_differ=False, hourly=True, seed=0):
    """Whole levels 0..2 for each half-hour from WINTER on, drawn by the hour of London (and weekend, if so asked)."""
    rng = np.random.default_rng(seed)
    t = WINTER + 1800.0 * np.arange(2 * hours)
    local = [datetime.fromtimestamp(s, LONDON) for s in t]
    hour = np.array([d.hour for d in local])
    rest = np.array([d.weekday() >= 5 for d in local])
    want = np.where((hour >= 8) & (hour < 20) & hourly, 2, 0)
    if days_differ:
        want = np.where(rest, 2 - want, want)
    x = np.where(rng.random(len(t)) < 0.7, want, rng.integers(0, 3, len(t)))
    return t, x.astype(float)


def fitted(t, x, **options):
    readings = from_arrays(t, x[:, None], "kWh", "meter")
    return fit_model(readings, FitSpec(edges=(0.5, 1.5), **{"cycle": "auto", "smoothing": 0.001} | options))


def test_the_hour_is_found_where_it_is_and_gains():
    model = fitted(*levels(24 * 60), zone="Europe/London")
    assert model.chain.phases > 1
    assert model.chain.clock.kind == "day"
    assert model.chain.clock.zone == "Europe/London"
    assert model.held_out.loss < model.cycle.plain - model.cycle.gain_se
    assert model.to_json()["cycle"]["phases"] == model.chain.phases
    assert model.to_json()["held_out_bits"] == model.held_out.loss
    night, noon = model.chain.phase(np.array([0, 24]) + int(WINTER // 1800))
    assert model.chain.cycle[noon][0, 2] > 0.5 > 0.3 > model.chain.cycle[night][0, 2]
    assert (model.chain.rarest > 0).all()


def test_nothing_is_kept_where_the_hour_tells_nothing():
    model = fitted(*levels(24 * 60, hourly=False))
    assert model.chain.phases == 1
    assert model.cycle.clock is None
    assert model.to_json()["cycle"] is None
    plain = fitted(*levels(24 * 60, hourly=False), cycle="none")
    assert plain.chain.transition == recomputed(model.chain.transition)
    assert plain.held_out.loss == recomputed(model.held_out.loss)


def test_weekends_are_apart_where_they_differ():
    t, x = levels(24 * 90, days_differ=True)
    assert fitted(t, x, zone="Europe/London").chain.clock.kind == "week"
    assert fitted(t, x, zone="Europe/London", cycle="day").chain.clock.kind == "day"
    assert fitted(*levels(24 * 90), cycle="week").chain.clock.kind == "week"
    assert fitted(*levels(24 * 90)).chain.clock.kind == "day"


def test_summer_time_is_told_apart_from_the_records_own_clock():
    t, x = levels(24 * 180)  # into June
    right, own = fitted(t, x, zone="Europe/London"), fitted(t, x)
    assert own.chain.clock.zone is None
    assert right.held_out.loss < own.held_out.loss


@pytest.mark.parametrize(("month", "day", "steps"), [(3, 30, 142), (10, 26, 146)])
def test_days_of_23_and_25_hours_count_for_the_hours_they_have(month, day, steps):
    t = np.arange(
        datetime(2013, month, day, tzinfo=LONDON).timestamp(),
        datetime(2013, *((4, 2) if month == 3 else (10, 29)), tzinfo=LONDON).timestamp(),
        1800,
    )
    assert len(t) == steps
    local = [datetime.fromtimestamp(s, LONDON) for s in t]
    slot = np.array([2 * d.hour + d.minute // 30 for d in local], float)
    readings = from_arrays(t, slot[:, None], "", "meter")
    model = fit_model(readings, FitSpec(edges=tuple(np.arange(47) + 0.5), smoothing=0.001, cycle="none"))
    data = Timed.of(model.runs, 48, Clock("week", 48, 1800.0, 0.0, "Europe/London"), 0)
    assert (data.slot == data.x).all()  # the value is the half-hour itself
    assert data.weekend.sum() > 48


def test_a_clock_with_gaps_knows_the_hour_after_each():
    t, x = levels(24 * 60)
    kept = np.random.default_rng(0).random(len(t)) > 0.1
    whole, holes = fitted(t, x, zone="Europe/London"), fitted(t[kept], x[kept], zone="Europe/London")
    assert holes.chain.clock.kind == "day"
    noon = 24 + int(WINTER // 1800)
    seen, right = (m.chain.cycle[m.chain.phase(noon)][0, 2] for m in (holes, whole))
    assert seen == pytest.approx(right, abs=0.15)
    found = np.concatenate(losses(holes.chain, holes.runs.sequences, holes.runs.first))
    shifted = np.concatenate(losses(holes.chain, holes.runs.sequences, holes.runs.first + 24))
    assert found.mean() < shifted.mean() - 0.1  # twelve hours off, it would be lost


def test_times_with_offsets_and_times_of_a_zone_give_the_same_phases(tmp_path):
    from veilstream.data.sources import read

    t, x = levels(24 * 100, seed=3)  # over the change to summer time
    local = [datetime.fromtimestamp(s, LONDON) for s in t]
    aware = pl.DataFrame({"time": [d.isoformat() for d in local], "value": x})
    naive = pl.DataFrame({"time": [d.strftime("%Y-%m-%d %H:%M:%S") for d in local], "value": x})
    aware.write_csv(tmp_path / "aware.csv")
    naive.write_csv(tmp_path / "naive.csv")
    options = FitSpec(edges=(0.5, 1.5), smoothing=0.001, cycle="day", zone="Europe/London")
    one = fit_model(read([str(tmp_path / "aware.csv")], unit="kWh"), options)
    two = fit_model(read([str(tmp_path / "naive.csv")], unit="kWh", tz="Europe/London"), options)
    assert one.chain.clock == two.chain.clock
    assert one.chain.cycle == pytest.approx(two.chain.cycle)


def test_counts_are_pooled_with_their_neighbours_around_midnight():
    counts = np.zeros((2, 4, 1, 1))
    counts[0, 0] = 4
    assert pooled(counts, 4, 1, False)[0, :, 0, 0].tolist() == [4, 2, 0, 2]
    assert pooled(counts, 2, 0, True)[:, :, 0, 0].tolist() == [[4, 0], [0, 0]]
    P = cycle_of(np.zeros((2, 4, 2, 2)), np.array([[0.9, 0.1], [0.3, 0.7]]), ())
    assert pytest.approx(np.array([[[0.9, 0.1], [0.3, 0.7]]])) == P


@pytest.mark.parametrize("cycle", ["day", "week"])
def test_a_record_shorter_than_a_day_has_no_cycle(cycle):
    t, x = levels(20)
    assert fitted(t, x).chain.phases == 1
    with pytest.raises(InputError, match=f"`cycle='{cycle}'`: it needs a record of at least"):
        fitted(t, x, cycle=cycle)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cycle": "month"}, "one of auto, none, day, week"),
        ({"order": 2}, "chains of order 1"),
        ({"period_s": 7 * HOUR}, "whole steps of 7 h"),
        ({"fill": "close"}, "steps must follow each other"),
        ({"zone": "Mars/Olympus"}, "unknown time zone"),
    ],
)
def test_what_cannot_have_a_clock_says_why(options, said):
    t, x = levels(24 * 20)
    with pytest.raises(InputError, match=said):
        fitted(t, x, **{"cycle": "day"} | options)


def test_a_refit_keeps_the_clock_and_learns_by_it(tmp_path):
    import veilstream as vs
    from veilstream.data.fitting import refit_model

    t, x = levels(24 * 60)
    model = fitted(t, x, zone="Europe/London")
    old = vs.save(tmp_path / "m.veil", chain=model.chain, states=model.states, recording=model.recording)
    later, now = t + 60 * 24 * HOUR, 2.0 - x  # the same days, upside down
    made = refit_model(old, from_arrays(later, now[:, None], "kWh", "meter")).model
    assert made.chain.clock == old.chain.clock
    noon = made.chain.phase(24 + int(later[0] // 1800))
    assert made.chain.cycle[noon][1, 0] > 0.5 > model.chain.cycle[noon][1, 0]
    few = refit_model(old, from_arrays(later[:10], now[:10, None], "kWh", "meter")).model
    assert few.chain.cycle == pytest.approx(model.chain.cycle, abs=0.35)


def test_step_numbers_have_no_hour():
    _, x = levels(24 * 20)
    readings = from_arrays(np.arange(len(x), dtype=float), x[:, None], "kWh", "meter")
    readings = replace(readings, stepped=True)
    assert fit_model(readings, FitSpec(edges=(0.5, 1.5), cycle="auto")).chain.phases == 1
    with pytest.raises(InputError, match="step numbers"):
        fit_model(readings, FitSpec(edges=(0.5, 1.5), cycle="day"))


def test_the_command_takes_cycle_and_zone(tmp_path):
    t, x = levels(24 * 30)
    pl.DataFrame({"time": t.astype(int), "value": x}).write_csv(tmp_path / "m.csv")
    options = ("fit", tmp_path / "m.csv", "--edges", "0.5,1.5", "--unit", "kWh")
    said = veil(*options, "--zone", "Europe/London", "-o", tmp_path / "m.veil")
    assert said.returncode == 0
    assert "phases a day, Europe/London" in " ".join(said.stdout.split())
    assert veil(*options, "--zone", "Nowhere/Town").returncode == 2
    assert veil(*options, "--cycle", "none").returncode == 0
    wrong = veil(*options, "--cycle", "month")
    assert (wrong.returncode, "--cycle" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("states", [72, 60])
def test_with_many_states_phases_that_do_not_divide_each_other_are_tried_all_the_same(states):
    """So many states leave 12, 8 and 6 phases a day, or 8 and 6."""
    rng = np.random.default_rng(0)
    t = WINTER + 300.0 * np.arange(12 * 24 * 8)
    x = rng.integers(0, states, len(t)).astype(float)
    readings = from_arrays(t, x[:, None], "kWh", "meter")
    model = fit_model(readings, FitSpec(edges=tuple(np.arange(states - 1) + 0.5), cycle="day", hold_out=0.0))
    assert model.chain.phases in (6, 8, 12)
    assert np.allclose(model.chain.cycle.sum(-1), 1)
