"""The latest part of a record is kept out of the fit, goes with the model and never further."""

import json

import numpy as np
import polars as pl
import pytest

import veilstream as vs
from oracles import recomputed
from real_data import GEOLIFE, needs_geolife
from veilcli import refused, veil
from veilstream.artefact import load
from veilstream.data.fitting import fit_model, refit_model
from veilstream.data.hold_out import by_units, split
from veilstream.data.readings import Account, Readings, from_arrays
from veilstream.data.sources import read
from veilstream.data.spec import FitSpec, Recording
from veilstream.data.steps import to_steps
from veilstream.data.synthetic import household
from veilstream.data.trajectories import Trajectories
from veilstream.data.utility import Utility
from veilstream.errors import InputError

HALF_HOURS = 336  # of a week
LIMIT = "0.15kWh"


def a_meter(weeks, seed=0):
    source = household(weeks * HALF_HOURS, seed)
    return from_arrays(source.t_s, source.points, "kWh", "meter")


def traces(n=30, steps=40, stepped=False, seed=0):
    """n traces of one stream, written in the wrong order of time."""
    rng, every = np.random.default_rng(seed), 1 if stepped else 300
    order = rng.permutation(n)
    t = np.concatenate([(k * 10 * steps + np.arange(steps)) * every * 1_000_000 for k in order])
    value = np.concatenate([np.cumsum(rng.integers(-1, 2, steps)) % 5 for _ in order]).astype(float)
    columns = {"stream": np.zeros(n * steps, np.uint32), "trace": np.repeat(np.arange(n, dtype=np.uint32), steps)}
    frame = pl.DataFrame({**columns, "t": t, "value": value})
    return Readings(frame, ("a",), "value", "", Account(), stepped, traced=True), order


def test_whole_weeks_of_a_meter_counted_back_from_its_end():
    readings = a_meter(33)
    model = fit_model(readings, FitSpec(n_states=4, cycle="none"))
    later = model.later
    assert (later.units, later.record.unit, len(later.record)) == (11, "weeks", 11 * HALF_HOURS)
    assert model.runs.steps == 22 * HALF_HOURS
    assert later.record.step.min() > model.record.step.max()
    assert (np.bincount(later.record.units - later.record.units.min()) == HALF_HOURS).all()


def test_nothing_held_out_has_touched_states_chain_or_smoothing():
    whole = a_meter(33)
    first = whole.with_frame(whole.frame.head(22 * HALF_HOURS))
    held, alone = (
        fit_model(whole, FitSpec(n_states=4, cycle="none")),
        fit_model(first, FitSpec(n_states=4, hold_out=0.0, cycle="none")),
    )
    assert held.states.coordinates == recomputed(alone.states.coordinates)
    assert held.chain.transition == recomputed(alone.chain.transition)
    assert held.distances == alone.distances and held.held_out.loss == recomputed(alone.held_out.loss)
    all_of_it = fit_model(a_meter(33), FitSpec(n_states=4, hold_out=0.0, cycle="none"))
    assert all_of_it.later is None and all_of_it.runs.steps == 33 * HALF_HOURS
    assert (all_of_it.chain.transition != alone.chain.transition).any()


def test_whole_traces_the_latest_in_time_not_in_the_file():
    readings, order = traces()
    model = fit_model(readings, FitSpec(n_states=3, cycle="none"))
    assert (model.later.units, model.later.record.unit) == (10, "traces")
    gone = np.argsort(order)[-10:]  # the trace at place k of the file is number order[k] in time
    t = readings.frame.filter(pl.col("trace").is_in(gone.tolist()))["t"].to_numpy() // 300_000_000
    assert sorted(model.later.record.step) == sorted(t)
    assert model.account.count("held out") == 400


def test_the_loss_of_what_was_held_out_is_that_of_its_transitions():
    readings, _ = traces()
    model = fit_model(readings, FitSpec(n_states=3, cycle="none"))
    x = np.split(model.later.record.symbols, 10)
    bits = [-np.log2(model.chain.transition[s[:-1], s[1:]]).sum() for s in x]
    assert model.later.loss.value == pytest.approx(sum(bits) / (10 * 39))
    assert model.later.loss.low < model.later.loss.value < model.later.loss.high


def by_the_hour(weeks, seed=0, first=0):
    """High from noon to midnight, but for one hour in ten."""
    t = (np.arange(weeks * 168) + first) * 3600.0
    wrong = np.random.default_rng(seed).random(len(t)) < 0.1
    return from_arrays(t, (((t // 3600) % 24 >= 12) ^ wrong).astype(float)[:, None], "", "a")


@pytest.mark.slow
def test_under_a_chain_with_a_clock_later_steps_are_told_by_their_hour():
    model = fit_model(by_the_hour(40), FitSpec(edges=(0.5,), cycle="day"))
    record, chain, loss = model.later.record, model.chain, model.later.loss
    phase = chain.phase(record.step[:-1])
    bits = [-np.log2(chain.at(p).transition[a, b]) for p, a, b in
            zip(phase, record.symbols[:-1], record.symbols[1:], strict=True)]  # fmt: skip
    assert loss.value == pytest.approx(np.mean(bits))
    assert loss.low < model.held_out.loss < loss.high
    assert loss.high < fit_model(by_the_hour(40), FitSpec(edges=(0.5,), cycle="none")).later.loss.low
    utility = Utility.of(model.chain, model.states, model.record, held_out=record)
    solution = vs.solve(utility.problem(vs.Average(limit=0.1)), replay=utility.replay, held_out=utility.held_out)
    assert solution.held_out.raw_distortion.value == pytest.approx(0.1, abs=0.02)
    assert solution.worst_leakage >= solution.held_out.leakage.value


def test_a_refitted_chain_keeps_its_clock(tmp_path):
    model = fit_model(by_the_hour(40), FitSpec(edges=(0.5,), cycle="day"))
    vs.save(tmp_path / "m.veil", chain=model.chain, states=model.states, recording=model.recording)
    old = load(tmp_path / "m.veil")
    again = refit_model(old, by_the_hour(30, 1, 168 * 40)).model
    assert again.chain.clock.kind == "day" and again.chain.phases == old.chain.phases
    assert np.abs(again.chain.cycle - old.chain.cycle).mean() < 0.08  # some rows rest on few visits


def test_a_short_record_is_fitted_whole_and_says_so():
    for readings, why in (
        (a_meter(20), "a third of 20 weeks is fewer than the 10"),
        (traces(12)[0], "a third of 12 traces"),
        (traces(1, 900, stepped=True)[0], "the record is one trace"),
        (a_meter(1), "the record is one week"),
    ):
        model = fit_model(readings, FitSpec(n_states=3, cycle="none"))
        assert model.later is None
        (entry,) = (e for e in model.account.entries if e.step == "held out")
        assert entry.count == 0 and why in entry.note and "model only" in entry.note
    assert (
        fit_model(a_meter(20), FitSpec(n_states=3, hold_out=0.2, cycle="none")).later.units == 4
    )  # asked for: as asked
    for share, says in ((1.0, "from 0 up to 1"), (-0.1, "from 0 up to 1"), (0.4, "the record is one trace")):
        with pytest.raises(InputError, match=says):
            fit_model(traces(1, 900, stepped=True)[0], FitSpec(n_states=3, hold_out=share, cycle="none"))
    dropped = Trajectories(np.zeros(99, int), np.arange(99) * 100, np.zeros((99, 2)), trace=np.arange(99))
    assert "other stops" in split(dropped, Recording(period_s=300, noise="drop")).words


def test_units_are_what_there_are_more_of():
    _, steps, recording = to_steps(a_meter(12), Recording())
    units = by_units(steps, recording)
    assert (units.n_units, units.unit) == (12, "weeks")
    assert (np.diff(units.units) >= 0).all()
    who = np.repeat(np.arange(40), 700)
    many = Trajectories(who, np.tile(np.arange(700), 40), np.zeros((28_000, 1)), trace=who)
    units = by_units(many, Recording(period_s=1800))  # forty people are not forty traces of one
    assert (units.n_units, units.unit) == (3, "weeks")
    assert by_units(many, Recording()).n_units == 1
    _, steps, recording = to_steps(traces()[0], Recording())
    units = by_units(steps, recording)
    assert (units.n_units, units.unit) == (30, "traces")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("held")
    source = household(40 * HALF_HOURS)
    rows = [f"{t:.0f},{v:.4f}" for t, v in zip(source.t_s + 1.6e9, source.points[:, 0], strict=True)]
    (folder / "meter.csv").write_text("\n".join(["time,value", *rows]) + "\n")
    done = veil("fit", folder / "meter.csv", "--unit", "kWh", "--states", "4", "-o", folder / "m.veil")
    assert done.returncode == 0, done.stderr
    assert "the latest 14 weeks, 4,704 steps" in " ".join(done.stdout.split())
    return folder / "m.veil"


@pytest.mark.slow
def test_solve_says_the_same_figures_on_later_data(model, tmp_path):
    out = tmp_path / "p.veil"
    told = json.loads(veil("solve", model, "--avg", LIMIT, "--json", "-o", out).stdout)
    held = told["held_out"]
    assert (held["traces"], held["unit"], held["level"]) == (14, "weeks", "held out")
    for name in ("distortion", "raw_distortion", "leakage"):
        assert held[name]["low"] < held[name]["value"] < held[name]["high"]
    own = load(model)
    solved = load(out)
    replay, policy = own.held_out.replay(solved.cost, own.chain), solved.policy
    assert held["raw_distortion"]["value"] == pytest.approx(replay.error(policy), rel=1e-6)
    # a source that is the chain: the claim lies inside
    assert held["raw_distortion"]["low"] <= 0.15 <= held["raw_distortion"]["high"]
    assert held["leakage"]["low"] - 0.01 <= told["leakage"] <= held["leakage"]["high"]
    assert told["worst_leakage"] >= held["leakage"]["high"]
    shown = veil("solve", model, "--avg", LIMIT).stdout
    assert "held out: 14 weeks" in shown and "whatever the data is" in shown and "whatever its law" in shown
    assert load(out).record is None and load(out).held_out is None  # readings stay with the model
    assert load(out).provenance["solution"]["held_out"] == held


def test_strip_takes_the_readings_out(model, tmp_path):
    out = tmp_path / "s.veil"
    told = json.loads(veil("strip", model, "-o", out, "--json").stdout)
    assert told["removed"] == {"record": 26 * HALF_HOURS, "held_out": 14 * HALF_HOURS}
    before, after = load(model), load(out)
    assert (after.record, after.held_out) == (None, None)
    assert (after.chain.transition == before.chain.transition).all() and after.recording == before.recording
    solved = json.loads(veil("solve", out, "--avg", "0.1kWh", "--json").stdout)
    assert solved["held_out"] == {
        "traces": 0, "level": "model only", "distortion": None, "raw_distortion": None, "leakage": None
    }  # fmt: skip
    assert "model only" in veil("solve", out, "--avg", "0.1kWh").stdout
    refused("strip", tmp_path / "none.veil", "-o", out, says="no model file")
    vs.save(tmp_path / "p.veil", vs.solve(vs.builtin_problem("binary", vs.Average(weight=1.0))).policy,
            problem=vs.builtin_problem("binary", vs.Average(weight=1.0)))  # fmt: skip
    refused("strip", tmp_path / "p.veil", "-o", out, says="there are no readings in it")


def test_how_much_is_held_out_can_be_told(model, tmp_path):
    table = model.parent / "meter.csv"

    def held(*args):
        return json.loads(veil("fit", table, "--states", "4", "--json", *args).stdout)["held_out"]

    assert held("--hold-out", "none") is None
    assert held("--hold-out", "0.1")["traces"] == 4
    refused("fit", table, "--hold-out", "much", says="--hold-out 'much' is not a number")
    refused("fit", table, "--hold-out", "1.5", says="--hold-out must be a share from 0 up to 1")


@needs_geolife
@pytest.mark.parametrize(("user", "held"), [("016", 27), ("006", 16), ("008", 18), ("018", 20)])
def test_every_geolife_user_has_later_traces(user, held):
    model = fit_model(read([str(GEOLIFE / user)]), FitSpec(cycle="none"))
    assert (model.later.units, model.later.record.unit) == (held, "traces")
