"""`veil advise`: operating points in human words, each with its command."""

import json
import shlex

import pytest

from oracles import recomputed
from veilcli import veil
from veilstream.apps.cli.advise import _two, rounded
from veilstream.apps.cli.headline import Guess, headline
from veilstream.solvers import search


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("advise") / "m.veil"
    veil("fit", "--synthetic", "household", "--steps", 400, "--states", 3, "-o", path)
    return path


@pytest.mark.slow
def test_every_point_comes_with_a_command_that_keeps_its_limit(model, tmp_path):
    told = json.loads(veil("advise", model, "--json").stdout)
    rows = told["points"]
    assert 3 <= len(rows) <= 5
    assert [r["felt"] for r in rows] == sorted((r["felt"] for r in rows), reverse=True)
    assert [r["bits"] for r in rows] == sorted(r["bits"] for r in rows)
    assert all(r["hit_rate"] >= r["hit_rate_blind"] - 4 * r["hit_rate_se"] - 0.05 for r in rows)
    assert all(r["felt"] <= told["felt"] for r in rows)
    words = shlex.split(rows[0]["command"])
    assert words[:3] == ["veil", "solve", str(model)]
    solved = json.loads(veil(*words[1:-1], tmp_path / "p.veil", "--window", 1, "--json").stdout)
    assert solved["raw_distortion"] == pytest.approx(rows[0]["felt"], rel=1e-6)
    assert solved["hit_rate_blind"] == recomputed(rows[0]["hit_rate_blind"])


@pytest.mark.slow
def test_the_table_speaks_of_people_before_bits(model):
    said = veil("advise", model).stdout
    assert said.index("level named") < said.index("felt") < said.index("command")
    assert said.count("veil solve ") >= 3
    printed = " ".join(veil("solve", model, "--budget", 0.2, "--window", 1).stdout.split())
    assert printed.index("identifies the level in") < printed.index("bits per step.") < printed.index("the truth")


@pytest.mark.slow
def test_what_matters_is_asked_as_of_solve_and_goes_into_the_command(model, tmp_path):
    told = json.loads(veil("advise", model, "--distortion", "zero-one", "--show", "states", "--json").stdout)
    assert told["unit"] == "%"
    row = told["points"][0]
    words = shlex.split(row["command"])
    assert words[3:7] == ["--distortion", "zero-one", "--show", "states"] and words[8].endswith("%")
    solved = json.loads(veil(*words[1:-1], tmp_path / "p.veil", "--window", 1, "--json").stdout)
    assert solved["raw_distortion"] == pytest.approx(row["felt"], rel=1e-6)
    assert not solved["public_points"]
    said = veil("advise", model, "--distortion", "zero-one").stdout
    assert "level named" in said and "wrong in" in said and "% off" not in said


@pytest.mark.slow
def test_a_curve_has_the_meaning_that_solve_has(model):
    asked = ["--distortion", "squared", "--methods", "causal-ba,planar-laplace", "--points", 3]
    told = json.loads(veil("curve", model, *asked, "--json").stdout)
    assert told["unit"].endswith("²")
    plain = json.loads(veil("curve", model, *asked[2:], "--json").stdout)
    assert all(p["raw_distortion"] >= 0 for name in ("causal-ba", "planar-laplace") for p in told[name])
    assert {p["distortion"] for p in told["causal-ba"]} != {p["distortion"] for p in plain["causal-ba"]}
    point = told["causal-ba"][1]
    words = ["--lambda", point["weight"], "--distortion", "squared", "--json"]
    solved = json.loads(veil("solve", model, *words).stdout)
    assert solved["raw_distortion"] == pytest.approx(point["raw_distortion"], rel=1e-2)
    said = veil("curve", model, *asked).stdout
    assert "felt" in said and "kWh²" in said
    assert veil("curve", model, "--distortion", "cubed").returncode == 2


@pytest.mark.slow
def test_around_a_clock_no_limit_is_searched_for(tmp_path, monkeypatch):
    """Meeting one takes twenty weights there: advice on three weeks of tracks took five minutes."""
    table, model = tmp_path / "meter.csv", tmp_path / "m.veil"
    rows = (f"{1_704_067_200 + 1800 * i},{1 + (i % 48 > 30) + (i * 7919 % 13) / 13:.2f}" for i in range(48 * 20))
    table.write_text("time,kWh\n" + "\n".join(rows) + "\n")
    done = veil("fit", table, "--states", 3, "--cycle", "day", "-o", model)
    assert done.returncode == 0 and "phases a day" in done.stdout, done.stderr
    monkeypatch.setattr(search, "meet", None)
    rows = json.loads(veil("advise", model, "--json").stdout)["points"]
    assert len(rows) >= 2 and [r["felt"] for r in rows] == sorted((r["felt"] for r in rows), reverse=True)
    for row in rows:
        assert row["limit"] == rounded(row["felt"], "kWh") and f"--avg {row['limit']}" in row["command"]


def test_felt_has_as_many_digits_as_limits():
    assert [_two(v) for v in (0.0369, 0.061, 8.3, 18.9, 120.4, 0.0)] == ["0.037", "0.061", "8.3", "19", "120", "0"]


def test_builtin_models_have_advice_too():
    rows = json.loads(veil("advise", "builtin:binary", "--json").stdout)["points"]
    assert len(rows) >= 2
    assert all("--avg" in r["command"] for r in rows)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.4213, "km", "420m"), (4.213, "km", "4.2km"), (37.77, "mg/dL", "38mg/dL"), (0.0123, "kWh", "12Wh")],
)
def test_limits_are_round_and_carry_their_unit(value, unit, text):
    assert rounded(value, unit) == text


def test_a_headline_without_an_adversary_is_a_sentence_too():
    assert (
        headline(None, 0.5, -0.001, "km", "place")
        == "A release is 0.5 km off on average, and reveals 0.000 bits per step."
    )
    assert headline(Guess(0.5, 0.1, 0.4), 2, 0.1, "", "state").startswith(
        "Under the fitted chain an adversary who sees every release identifies the state in 50%"
    )
