"""Limits that a model's states are too coarse for: the command in the line makes them feasible."""

import shlex

import numpy as np
import pytest

import veilstream as vs
from veilcli import veil
from veilstream.data.readings import from_arrays

KM = 1 / 111.2  # degrees of latitude


def wanderer(seed, steps=1200):
    """Two places, errands about them, and now and then a day far away; five minutes a step."""
    rng = np.random.default_rng(seed)
    at, out = np.zeros(2), []
    while len(out) < steps:
        home = np.array([0.0, 0.0]) if rng.random() < 0.6 else np.array([6.0, 2.0])
        out += [home] * int(rng.integers(10, 40))
        far = rng.random() < 0.12
        leg = rng.normal(scale=40.0 if far else 1.5, size=(int(rng.integers(3, 8)), 2))
        out += list(home + np.cumsum(leg, 0) / (1 if far else 2))
    points = np.array(out[:steps]) + rng.normal(scale=0.05, size=(steps, 2))
    return np.array([40.0, 116.0]) + points * [KM, KM / np.cos(np.radians(40))] + at


def csv_of(points, path):
    rows = (f"{1_704_067_200 + 300 * i},{lat:.6f},{lon:.6f}" for i, (lat, lon) in enumerate(points))
    path.write_text("time,lat,lon\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("seed", range(4))
def test_half_a_kilometre_is_within_reach_of_a_plain_fit_whoever_it_is(seed):
    """95 % of readings within 1 km of their state said nothing about the others: means of 0.6 km and more."""
    points = wanderer(seed)
    model = vs.fit(from_arrays(300.0 * np.arange(len(points)), points, "km"))
    far = model.states.distance_to(model.artefact.record.points, model.artefact.record.symbols)
    assert far.mean() <= 0.35 and far.max() <= 2.0
    assert vs.solve(model, avg="500m", window=1).record.error <= 0.5 * (1 + 1e-6)
    assert vs.solve(model, max="0=5km,*=3km", window=1).leakage > 0


@pytest.mark.slow
@pytest.mark.parametrize("limit", [("--avg", "60m"), ("--max", "*=300m")])
def test_the_command_in_the_line_keeps_a_limit_that_the_states_cannot(limit, tmp_path):
    data, files = csv_of(wanderer(0, 500), tmp_path / "me.csv"), {"MODEL": tmp_path / "me.veil"}
    files["policy.veil"] = tmp_path / "policy.veil"
    assert veil("fit", data, "--grid", "900m", "-o", files["MODEL"]).returncode == 0
    solved = veil("solve", files["MODEL"], *limit, "--window", 1)
    assert solved.returncode == 2 and solved.stderr.count("\n") == 1
    command = shlex.split(solved.stderr.strip().partition("have no states: veil ")[2])
    assert veil(*[files.get(word, word) for word in command]).returncode == 0
    assert vs.load(files["policy.veil"]).policy.kind == "frame"


def test_values_of_any_size_too():
    rng = np.random.default_rng(0)
    readings = from_arrays(1800.0 * np.arange(2000), rng.gamma(2.0, 0.3, (2000, 1)), "kWh")
    with pytest.raises(vs.InputError, match=r"have no states: veil start MODEL --avg 0\.008kWh -o policy\.veil"):
        vs.solve(vs.fit(readings, cycle="none"), avg="8Wh")


def test_an_unknown_state_is_answered_by_those_that_are_visited_most(tmp_path):
    data, model = csv_of(wanderer(1), tmp_path / "me.csv"), tmp_path / "me.veil"
    veil("fit", data, "-o", model)
    said = veil("solve", model, "--max", "home=5km,*=3km").stderr
    assert "--max names the unknown state 'home'; the most visited of " in said and "% of steps)" in said
    assert len(said) < 500
    command = shlex.split(said.strip().partition("to give one that name: ")[2])
    assert veil(*command[1:]).returncode == 0
    assert veil("solve", model, "--max", "home=5km,*=3km", "--window", 1).returncode == 0


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ({"avg": "500"}, "`avg` '500' has no unit; write 500kWh or 500Wh"),
        ({"avg": " 0.5 "}, "`avg` '0.5' has no unit; write 0.5kWh or 0.5Wh"),
        ({"max": "2"}, "`max` '2' has no unit; write 2kWh or 2Wh"),
        ({"max": "*=2"}, "`max` * '2' has no unit"),
        ({"avg": "150%"}, "`avg` '150%' must be from 0% to 100% of what revealing nothing costs"),
        ({"avg": "-5%"}, "`avg` '-5%' must be from 0% to 100%"),
    ],
)
def test_a_limit_says_its_unit_and_is_no_more_than_revealing_nothing(limit, says):
    rng = np.random.default_rng(0)
    model = vs.fit(from_arrays(1800.0 * np.arange(200), rng.gamma(2.0, 0.3, (200, 1)), "kWh"), n_states=3)
    with pytest.raises(vs.InputError) as said:
        vs.solve(model, **limit)
    assert str(said.value).startswith(says)
    assert vs.solve(model, avg=0.3, window=1).record.error <= 0.3 * (1 + 1e-6)  # a number is in the model's unit
