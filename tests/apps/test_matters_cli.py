"""What is released and what limits are about, as the command line says it."""

import csv
import io
import json
import re
import shlex

import numpy as np
import pytest

from veilcli import veil
from veilstream.artefact import load
from veilstream.data.synthetic import city, household

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A meter and a walk, each fitted from its own CSV."""
    root = tmp_path_factory.mktemp("matters")
    source = household(1500)
    rows = [f"{int(t)},{v:.3f}" for t, v in zip(source.t_s, source.points[:, 0], strict=True)]
    (root / "meter.csv").write_text("time,value\n" + "\n".join(rows) + "\n")
    source = city(700)
    rows = [f"{int(t)},{lat:.6f},{lon:.6f}" for t, (lat, lon) in zip(source.t_s, source.points, strict=True)]
    (root / "walk.csv").write_text("time,lat,lon\n" + "\n".join(rows) + "\n")
    assert veil("fit", root / "meter.csv", "--unit", "kWh", "--states", 4, "-o", root / "m.veil").returncode == 0
    assert veil("fit", root / "walk.csv", "-o", root / "w.veil").returncode == 0
    return root


def released(folder, policy, source):
    done = veil("release", folder / policy, folder / source, "--no-store", "--format", "csv")
    assert done.returncode == 0, done.stderr
    return list(csv.DictReader(io.StringIO(done.stdout)))


def test_a_walk_is_released_at_public_points(folder):
    solve = ["solve", folder / "w.veil", "--avg", "1km", "--window", 1, "--json"]
    told = json.loads(veil(*solve, "-o", folder / "p.veil").stdout)
    assert told["public_points"] and told["raw_distortion"] <= 1.001
    model, policy = load(folder / "w.veil"), load(folder / "p.veil")
    public = {(r["lat"], r["lon"]) for r in released(folder, "p.veil", "walk.csv")}
    assert len(public) > 1
    assert public <= {tuple(map(repr, row)) for row in policy.points.coordinates.tolist()}
    assert all(len(v.partition(".")[2]) <= 3 for place in public for v in place)  # no digit that the grid has not
    centres = {tuple(map(repr, row)) for row in model.states.coordinates.tolist()}
    assert not public & centres
    old = json.loads(veil(*solve, "--show", "states", "-o", folder / "old.veil").stdout)
    assert not old["public_points"] and load(folder / "old.veil").points is None
    assert {(r["lat"], r["lon"]) for r in released(folder, "old.veil", "walk.csv")} <= centres
    found = json.loads(veil("audit", folder / "p.veil", "--data", folder / "walk.csv", "--quick", "--json").stdout)
    assert found["stands"] and found["raw_distortion"] == pytest.approx(told["raw_distortion"], rel=0.01)


def test_a_meter_adds_up_in_the_mean(folder):
    words = shlex.split("--avg 0.15kWh --keep-total --window 1 --json")
    told = json.loads(veil("solve", folder / "m.veil", *words, "-o", folder / "k.veil").stdout)
    kept = told["total"]
    assert abs(kept["off"]) < 1e-3 < abs(kept["off_without"]) and kept["sd"] > 0
    true = sum(float(r["value"]) for r in csv.DictReader((folder / "meter.csv").open()))
    totals = [sum(float(r["released"]) for r in released(folder, "k.veil", "meter.csv")) / true for _ in range(2)]
    assert abs(np.mean(totals) - 1 - kept["off"]) < 4 * kept["sd"] / 2**0.5
    said = " ".join(veil("solve", folder / "m.veil", *words[:-1]).stdout.split())
    assert "error of the mean over releases" in said and "standard deviation of one release" in said


def test_costs_have_their_own_units(folder):
    said = " ".join(
        veil("solve", folder / "m.veil", *shlex.split("--distortion zero-one --avg 30% --window 1")).stdout.split()
    )
    assert "a release has an error in 30 % of steps" in said
    words = shlex.split("--distortion squared --lambda 1 --window 1")
    veil("solve", folder / "m.veil", *words, "-o", folder / "s.veil")
    assert load(folder / "s.veil").unit == "kWh²"
    found = veil("audit", folder / "s.veil", "--data", folder / "meter.csv", "--quick").stdout
    assert re.search(r"a release had an error of [\d.e-]+ kWh² on average", " ".join(found.split()))


def test_a_table_forbids_and_says_so(folder):
    names = load(folder / "m.veil").states.names
    rows = [["", *names], *([x, *("inf" if i == 0 < j else abs(i - j) for j in range(4))] for i, x in enumerate(names))]
    table = folder / "costs.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    ran = veil(
        "solve", folder / "m.veil", "--distortion", table, "--avg", "0.6", "--window", 1, "-o", folder / "f.veil"
    )
    assert "! some confusions are forbidden" in ran.stdout
    assert np.isinf(np.where(load(folder / "f.veil").problem.forbidden, np.inf, 0)).sum() == 3
    states = load(folder / "m.veil").states
    true = [float(r["value"]) for r in csv.DictReader((folder / "meter.csv").open())]
    shown = [float(r["released"]) for r in released(folder, "f.veil", "meter.csv")]
    x, y = states.encode(true), states.encode(shown)
    assert (x == 0).sum() > 50 and (y[x == 0] == 0).all() and (x != y).any()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("w.veil --avg 1km --keep-total", "--keep-total is for values"),
        ("w.veil --avg 1km --show 5kWh", "--show '5kWh' has the unit 'kWh'"),
        ("w.veil --avg 1km --show 500km", "--show must be 1m to 100km, or states"),
        ("m.veil --avg 1kWh --show 0", "--show must be larger than zero"),
        ("m.veil --avg 1kWh --distortion cubed", "--distortion must be one of felt, states, absolute, squared"),
        ("m.veil --avg 1kWh --distortion none.csv", "none.csv: the table of --distortion cannot be read"),
        ("m.veil --avg 1kWh --distortion squared", "it must be 'kWh²'"),
        ("m.veil --avg 1kWh --option max-bits=1", "max-bits=... bounds the rungs of --feedback"),
        ("m.veil --avg 1kWh --feedback day --option max-bits=-1", "max-bits=..."),
        ("m.veil --avg 1kWh --feedback fortnight", "--feedback must be day, week, month, or a time like 6h"),
        ("m.veil --avg 1kWh --option seed=-1", "seed"),
        ("m.veil --avg 1kWh -o .", ". is a folder; name a file, as in policy.veil"),
        ("m.veil --avg 0.0001kWh", "allow more, or "),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder, words, line):
    model, *rest = shlex.split(words)
    ran = veil("solve", folder / model, *rest)
    assert ran.returncode == 2 and line in ran.stderr and ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("fit meter.csv --order auto --option max-order=0", "max-order"),
        ("fit meter.csv --states 0", "--states must be at least 1, found 0"),
        ("fit meter.csv --option smoothing=-1", "smoothing=... must be a number >= 0"),
        ("curve m.veil --methods ,", "--methods is empty"),
        ("curve m.veil --show 5km", "--show '5km' has the unit 'km'"),
        ("advise m.veil --distortion cubed", "--distortion must be one of"),
        ("fleet meter.csv --unit kWh -o out --option show=3km", "--show 3km: no user has values in that unit ('kWh')"),
        ("fleet meter.csv --unit kWh -o out --option audit=deep", "--audit must be quick or none"),
    ],
)
def test_other_verbs_refuse_in_one_line_too(folder, words, line, monkeypatch):
    monkeypatch.chdir(folder)
    ran = veil(*shlex.split(words))
    assert ran.returncode == 2 and line in ran.stderr and ran.stderr.count("\n") == 1


def test_a_report_of_a_zero_one_distortion_counts_steps(folder):
    words = shlex.split("--distortion zero-one --avg 30% --window 1")
    veil("solve", folder / "m.veil", *words, "-o", folder / "z.veil")
    few = ["--option", "points=3", "--option", "seconds=0", "--audit", "none", "-o", folder / "z.html"]
    said = veil("report", folder / "z.veil", "--data", folder / "meter.csv", *few).stdout
    assert (
        "identifies the level in" in said
        and "on your recorded data releases have an error in 30 % of steps and" in said
    )
    page = (folder / "z.html").read_text()
    assert '"levels_in":"kWh"' in page and "an error in 30 % of steps" in page and "an error of 30 %" not in page
