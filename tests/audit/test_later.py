"""A deployed policy on later data: what it tells there, whether it is still the same person, and a model made anew."""

import json

import numpy as np
import pytest

from gatewaykit import core_of
from veilcli import refused, veil
from veilstream.artefact import load
from veilstream.audit.assemble import audit_artefact
from veilstream.audit.source import Recorded, later_data
from veilstream.audit.spec import AuditSpec
from veilstream.control.drift import exceeds
from veilstream.data.fit import read_as_fitted
from veilstream.data.fitting import refit_model
from veilstream.data.readings import from_arrays
from veilstream.data.spec import DataSpec
from veilstream.data.synthetic import household
from veilstream.errors import InputError
from veilstream.gateway.owner import look
from veilstream.gateway.records import Status
from veilstream.gateway.wire import Reading, reading
from veilstream.model.interval import Interval

WEEK, T0 = 336, 1.6e9 // 1800 * 1800
FITTED, NEW = 33, 12
QUICK = AuditSpec(streams=24, steps=60, copies=2)


def person(weeks, first_week, seed, change=None):
    source = household(weeks * WEEK, seed)
    values = source.points if change is None else change(source.points)
    return source.t_s + T0 + first_week * WEEK * 1800, values


def shuffled(values):
    """The same levels as often, in no order: a life that the chain does not know."""
    return np.random.default_rng(0).permutation(values)


def write(path, t, values):
    path.write_text("time,value\n" + "".join(f"{a:.0f},{b:.4f}\n" for a, b in zip(t, values[:, 0], strict=True)))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a model of 33 weeks (11 held out), a policy, and later data of the same and of another life."""
    folder = tmp_path_factory.mktemp("later")
    write(folder / "old.csv", *person(FITTED, 0, 0))
    write(folder / "same.csv", *person(NEW, FITTED, 1))
    write(folder / "other.csv", *person(NEW, FITTED, 1, shuffled))
    assert not veil("fit", folder / "old.csv", "--unit", "kWh", "--states", 4, "-o", folder / "m.veil").returncode
    told = veil("solve", folder / "m.veil", "--avg", "0.15kWh", "-o", folder / "p.veil", "--json")
    return folder, json.loads(told.stdout)


def audited(folder, name):
    t, values = np.loadtxt(folder / name, delimiter=",", skiprows=1).T
    return found_of(folder, t, values[:, None])


def found_of(folder, t, values):
    policy = load(folder / "p.veil")
    return audit_artefact(policy, Recorded.of(policy, from_arrays(t, values, "kWh")), QUICK)


def recorded(folder, name):
    policy = load(folder / "p.veil")
    return Recorded.of(policy, read_as_fitted(policy.provenance, [str(folder / name)], DataSpec()))


@pytest.mark.slow
def test_on_the_old_record_only_what_was_held_out_counts(made):
    folder, solved = made
    found = audited(folder, "old.csv")
    held, before = found.later.figures, solved["held_out"]
    assert (held.units, held.unit, held.level) == (11, "weeks", "held out")
    for figure in ("raw_distortion", "distortion", "leakage"):
        assert getattr(held, figure).value == pytest.approx(before[figure]["value"], rel=1e-4)
    assert found.later.drift.loss.value == pytest.approx(found.later.drift.loss_fitted.value, rel=1e-3)
    assert found.later.worst == pytest.approx(solved["worst_leakage"])


@pytest.mark.slow
def test_the_same_person_stays_the_same(made):
    folder, solved = made
    found = audited(folder, "same.csv")
    assert found.later.figures.units == NEW
    assert found.later.drift.same == "still the person of the model"
    assert "still is who the model says" in found.words and "whatever the law of such data (held out" in found.words
    drift = found.to_json()["drift"]
    assert drift["loss"]["low"] <= drift["loss_fitted"]["value"] <= drift["loss"]["high"]
    assert drift["raw_distortion_claimed"] == solved["raw_distortion"]


@pytest.mark.slow
def test_another_life_is_said_with_what_to_do(made):
    folder, _ = made
    found = audited(folder, "other.csv")
    drift = found.later.drift
    assert (drift.same, drift.moved) == ("changed", True)
    assert drift.loss.low > drift.loss_fitted.high
    assert "THE PERSON HAS CHANGED" in found.words and "veil refit" in found.words
    assert found.stands  # the claim is about the chain, and holds for it


@pytest.mark.slow
@pytest.mark.parametrize("name", ["same.csv", "other.csv"])
def test_a_gateway_that_releases_the_same_readings_comes_to_the_same_verdict(made, tmp_path, name):
    """The loss is the same number; what is felt depends on the draws."""
    folder, _ = made
    t, values = np.loadtxt(folder / name, delimiter=",", skiprows=1).T
    with core_of(load(folder / "p.veil"), tmp_path / "s.db", now=lambda: float(t[-1])) as core:
        grid = core.spaces[""].grid
        for at in range(0, len(t), 1000):
            core.process([reading("a", *row, grid) for row in zip(t[at : at + 1000], values[at:], strict=False)])
        (found,) = look(tmp_path / "s.db")
    later, own = audited(folder, name).later.drift, found.drift
    assert own.loss.value == pytest.approx(later.loss.value) and own.loss_fitted == later.loss_fitted
    assert own.felt.value == pytest.approx(later.felt.value, rel=0.05) and own.felt_claimed == later.felt_claimed
    assert own.loss.high - own.loss.low == pytest.approx(later.loss.high - later.loss.low, rel=0.35)
    assert (own.moved, own.same) == (later.moved, later.same)


@pytest.mark.slow
def test_few_weeks_say_little_and_fitted_ones_nothing(made):
    folder, _ = made
    t, values = person(3, FITTED, 2, shuffled)
    found = found_of(folder, t, values)
    assert found.later.drift.same == "too little later data to say" and found.later.figures.level == "model only"
    assert "says little about the person" in found.words
    t, values = person(20, 0, 0)
    again = found_of(folder, t, values)
    assert again.later.figures == later_data(load(folder / "p.veil")).figures  # what the file says was held out


def test_recorded_data_and_later_data_are_told_apart(made):
    """Data that is all later than the fit is no recorded data, and the other way round."""
    folder, solved = made
    new = recorded(folder, "same.csv")
    replay, later = new.replay, new.later
    assert replay is None and "still is who the model says" in later.words("kWh") and later.figures.units == NEW
    old = recorded(folder, "old.csv")
    replay, later = old.replay, old.later
    assert replay.n_steps == (FITTED - 11) * WEEK and later.figures.units == 11
    assert replay.error(load(folder / "p.veil").policy) == pytest.approx(solved["raw_distortion"])


def test_a_difference_counts_beyond_both_intervals():
    narrow, wide = Interval(2.0, 1.9, 2.1), Interval(2.0, 1.0, 3.0)
    assert exceeds(Interval(2.2, 2.1, 2.3), narrow) and not exceeds(Interval(2.1, 2.0, 2.2), narrow)
    assert not exceeds(Interval(2.9, 2.8, 3.0), wide) and not exceeds(Interval(1.0, 0.9, 1.1), narrow)


def test_refit_keeps_states_and_steps_and_learns_the_new_life(made, tmp_path):
    folder, _ = made
    out = tmp_path / "n.veil"
    told = json.loads(veil("refit", folder / "m.veil", folder / "other.csv", "-o", out, "--json").stdout)
    old, new = load(folder / "m.veil"), load(out)
    assert (new.states.coordinates == old.states.coordinates).all() and new.states.names == old.states.names
    assert new.recording == old.recording and new.chain.order == old.chain.order
    assert told["refit_of"] == new.provenance["refit_of"] == old.sha256
    values = np.loadtxt(folder / "other.csv", delimiter=",", skiprows=1)[:, 1]
    visits = np.bincount(old.states.encode(values), minlength=4) / len(values)
    assert np.abs(new.chain.transition - visits).max() < 0.06  # in no order: every row is the law of visits
    assert told["strength"] <= 10
    shown = veil("refit", folder / "m.veil", folder / "other.csv", "-o", out).stdout
    assert "store beside that keeps steps and meter" in shown


def test_little_new_data_leans_on_the_old_chain(made):
    folder, _ = made
    old = load(folder / "m.veil")
    t, values = person(1, FITTED, 5)
    made_ = refit_model(old, from_arrays(t[:60], values[:60], "kWh"))
    assert made_.strength >= 30
    assert np.abs(made_.model.chain.transition - old.chain.transition).max() < 0.15
    with pytest.raises(InputError, match="nothing can be held out"):
        refit_model(old, from_arrays(t[:60], values[:60], "kWh"), hold_out=0.5)


@pytest.mark.slow
def test_the_store_of_the_old_policy_goes_on(made, tmp_path):
    """A step that was drawn stays drawn, and the meter counts on from where it was."""
    folder, _ = made
    new, store = tmp_path / "n.veil", tmp_path / "store.db"
    veil("refit", folder / "m.veil", folder / "other.csv", "-o", new)
    veil("solve", new, "--avg", "0.16kWh", "-o", tmp_path / "p2.veil")
    first, second = load(folder / "p.veil"), load(tmp_path / "p2.veil")
    now = T0 + 60 * WEEK * 1800

    def readings(core, steps):
        grid = core.spaces[""].grid
        return [Reading("me", *grid.step(now + 1800 * k), 0.4) for k in steps]

    with core_of(first, store, now=lambda: now + 1e6) as core:
        before = core.process(readings(core, range(5))).outcomes
    with core_of(second, store, now=lambda: now + 1e6) as core:
        again = core.process(readings(core, range(7))).outcomes
    assert [o.status for o in again] == [Status.repeated] * 5 + [Status.released] * 2
    assert [o.message for o in again[:5]] == [o.message for o in before]
    assert again[5].release.leaked_bits > before[4].release.leaked_bits


def test_bad_input_of_refit_is_one_line(made, tmp_path):
    folder, _ = made
    out = tmp_path / "x.veil"
    refused("refit", tmp_path / "none.veil", folder / "same.csv", "-o", out, says="no model file")
    (tmp_path / "places.csv").write_text(
        "time,lat,lon\n" + "".join(f"{1.6e9 + 300 * i:.0f},40,116\n" for i in range(9))
    )
    refused("refit", folder / "m.veil", tmp_path / "places.csv", "-o", out, says="different state spaces")
    refused("refit", folder / "m.veil", folder / "same.csv", "-o", out, "--hold-out", "2", says="--hold-out must be")
