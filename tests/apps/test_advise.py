"""`veil advise`: operating points in human words, each with its command."""

import json
import shlex
from types import SimpleNamespace

import numpy as np
import pytest

import veilstream as vs
from benchmarks import advise
from veilcli import veil
from veilstream.apps.cli.advise import _two
from veilstream.apps.cli.solve import headline
from veilstream.apps.verbs.advise import identified, rounded
from veilstream.audit.measures import Guess
from veilstream.solvers import search


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("advise") / "m.veil"
    veil("fit", "synthetic:household:400", "--states", 3, "-o", path)
    return path


@pytest.mark.slow
def test_every_point_comes_with_a_command_that_keeps_its_limit(model, tmp_path):
    told = json.loads(veil("advise", model, "--json").stdout)
    rows = told["points"]
    assert 3 <= len(rows) <= 5
    assert [r["felt"] for r in rows] == sorted((r["felt"] for r in rows), reverse=True)
    assert [r["bits"] for r in rows] == sorted(r["bits"] for r in rows)
    assert all(r["hit_rate"] >= r["hit_rate_blind"] for r in rows)
    assert all(r["felt"] <= told["felt"] for r in rows)
    words = shlex.split(rows[0]["command"])
    assert words[:3] == ["veil", "solve", str(model)]
    solved = json.loads(veil(*words[1:-1], tmp_path / "p.veil", "--window", 1, "--json").stdout)
    assert solved["raw_distortion"] == pytest.approx(rows[0]["felt"], rel=0.06)  # two digits
    assert solved["record"]["leakage"] <= 1.1 * rows[0]["bits"] + 0.01
    assert solved["hit_rate_blind"] == pytest.approx(rows[0]["hit_rate_blind"], abs=0.05)  # of few drawn steps there


@pytest.mark.slow
def test_the_table_speaks_of_people_before_bits(model):
    said = veil("advise", model).stdout
    heads = said[said.index("level identified") :].splitlines()[0]
    assert heads.split() == ["level", "identified", "error", "bits", "per", "step", "command"]
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
    assert solved["raw_distortion"] == pytest.approx(row["felt"], rel=0.06)
    assert not solved["public_points"]
    said = veil("advise", model, "--distortion", "zero-one").stdout
    assert "level identified" in said and "an error in" in said and "% of steps" in said and "an error of" not in said


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
    assert "error (kWh²)" in said and "felt" not in said
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


def test_releases_never_make_an_adversary_worse():
    """On a chain that hardly moves a few drawn streams are mostly elsewhere: 55 % with releases, 58 % without."""
    chain = vs.MarkovChain([[0.995, 0.003, 0.002], [0.006, 0.99, 0.004], [0.006, 0.004, 0.99]])
    levels = vs.StateSpace("bins", np.array([[0.0], [1.0], [2.0]]), ("a", "b", "c"), "kWh", np.array([0.5, 1.5]))
    file = vs.Artefact(None, None, levels, chain)
    for seed in range(6):
        rows = vs.advise(file, seed=seed)
        assert all(r.hit_rate >= r.hit_rate_blind for r in rows)
        assert rows[0].hit_rate < rows[-1].hit_rate


def test_how_often_an_adversary_is_right_has_a_closed_form_without_a_past():
    p = np.array([0.5, 0.3, 0.2])
    a = np.array([[0.8, 0.1, 0.1], [0.3, 0.6, 0.1], [0.1, 0.2, 0.7]])
    found, spread = identified(vs.MarkovChain(np.tile(p, (3, 1))), vs.Controller.of_table(a))
    exact = (p[:, None] * a).max(0).sum()
    assert abs(found - exact) < 5 * spread and 0 < spread < 0.002


@pytest.mark.slow
def test_many_states_have_advice_too():
    """How long it takes is a benchmark (`advise`)."""
    found = advise.measured(8)
    assert found["states"] >= 64 and found["rows"] >= 3 and found["least gain"] >= 0


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
    def solved(felt, bits, unit, thing):
        asked = SimpleNamespace(utility=SimpleNamespace(unit=unit, thing=thing))
        return SimpleNamespace(record=None, distortion=felt, leakage=bits, asked=asked)

    alone = headline(solved(0.5, -0.001, "km", "place"), None)
    assert alone == "A release has an error of 0.5 km on average, and reveals 0.000 bits per step."
    assert headline(solved(2, 0.1, "", "state"), Guess(0.5, 0.1, 0.4)).startswith(
        "Under the fitted chain an adversary who sees every release identifies the state in 50%"
    )
