"""`veil fit` as a user types it."""

import json
import re
import subprocess
import sys
import zipfile

import pytest

from real_data import GEOLIFE, METER, needs_geolife, needs_meter
from veilcli import refused, veil
from veilstream.artefact import load
from veilstream.data.synthetic import city

PAPER = [
    "--period",
    "5min",
    "--eps",
    "200m",
    *(f"--option={text}" for text in ("min-samples=8", "gaps=bridge", "noise=drop", "bin=mean")),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Two commuters in one CSV."""
    path = tmp_path_factory.mktemp("cli") / "people.csv"
    source = city(1_500)
    rows = [
        f"{who},{t:.0f},{lat:.6f},{lon:.6f}"
        for who in "ab"
        for t, (lat, lon) in zip(source.t_s, source.points, strict=True)
    ]
    path.write_text("\n".join(["stream,time,lat,lon", *rows]) + "\n")
    return path


@pytest.mark.slow
def test_fit_to_solve_in_the_units_of_the_user(table, tmp_path):
    model, picture = tmp_path / "m.veil", tmp_path / "m.png"
    done = veil("fit", table, "-o", model, "--plot", picture, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {"traces", "points", "steps", "states", "entropy_rate", "order", "period_s"} <= set(result)
    assert (result["points"], result["traces"], result["period_s"]) == (3_000, 2, 300.0)
    assert picture.read_bytes().startswith(b"\x89PNG")
    art = load(model)
    assert art.provenance["command"].startswith("veil fit")
    assert art.provenance["data_sha256"] == result["data_sha256"]
    assert art.chain.entropy_rate == pytest.approx(result["entropy_rate"])
    solved = json.loads(veil("solve", model, "--avg", "1km", "--json").stdout)
    assert solved["distortion"] <= 1.0 + 1e-3
    assert solved["leakage"] < result["entropy_rate"]
    refused("solve", model, "--avg", "1kWh", says="must be one of")


@pytest.mark.slow
def test_a_household_in_kwh(tmp_path):
    model = tmp_path / "h.veil"
    done = veil("fit", "synthetic:household:5000", "-o", model)
    assert done.returncode == 0, done.stderr
    for word in ("entropy rate", "held-out log-loss", "self-transition", "effective sample", "truth", "model written"):
        assert word in done.stdout
    solved = json.loads(veil("solve", model, "--avg", "0.1kWh", "--json").stdout)
    assert solved["distortion"] == pytest.approx(0.1, abs=1e-3)


@pytest.mark.slow
def test_a_picture_of_places_is_its_owners_alone(tmp_path):
    done = veil("fit", "synthetic:city:500", "--plot", tmp_path / "me.png")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "me.png").stat().st_mode & 0o77 == 0
    refused("fit", "synthetic:city:500", "--plot", tmp_path / "me.doc", says="the picture cannot be written")


def test_a_table_without_a_unit_is_told_without_holes(tmp_path):
    table = tmp_path / "meter.csv"
    values = [1, 2, 5, 9, 4, 3, 7, 8] * 30
    table.write_text("time,value\n" + "".join(f"{1.6e9 + 300 * i:.0f},{v}\n" for i, v in enumerate(values)))
    told = re.sub(r" *\n *", " ", veil("fit", table).stdout)
    assert "no unit given: --unit" in told and "raw reading to its state" in told
    assert re.search(r"costs [\d.]+ from state to state, [\d.]+ from the raw reading", told)


def test_bins_with_edges_of_ones_own(tmp_path):
    table, model = tmp_path / "glucose.csv", tmp_path / "g.veil"
    values = [60, 100, 120, 200, 150, 90, 65, 110] * 30
    table.write_text("time,value\n" + "".join(f"{1.6e9 + 300 * i:.0f},{v}\n" for i, v in enumerate(values)))
    done = veil("fit", table, "--unit", "mg/dL", "--edges", "70,180", "--name", "< 70 mg/dL=low", "-o", model)
    assert done.returncode == 0, done.stderr
    states = load(model).states
    assert states.names == ("low", "70-180 mg/dL", ">= 180 mg/dL")
    assert states.encode([69.9, 70, 179, 180]).tolist() == [0, 1, 1, 2]
    refused("fit", table, "--edges", "180,70", says="each above the last")
    refused("fit", table, "--edges", "70,high", says="--edges 'high' is not a number")
    refused("fit", table, "--edges", "70", "--states", "3", says="leave out --width and --states")
    refused("fit", table, "--name", "home", says="--name takes a state and its new name")
    refused("fit", table, "--name", "stop 1=home", says="--name: no state is called 'stop 1'")
    refused("fit", table, "--option", "cells=1km", says="--option cells=... is for positions")
    refused("fit", table, "--option", "smoothing=much", says="--option smoothing=... 'much' is not a number")


@pytest.mark.slow
def test_cells_beside_stops_or_none(table):
    def kind(*args):
        return json.loads(veil("fit", table, "--stream", "a", "--json", *args).stdout)

    assert kind("--resolution", "50m")["kind"] == "stops and cells"
    assert kind("--resolution", "50m")["within_resolution"] >= 0.95
    assert kind("--option", "cells=none")["kind"] == "stops"
    refused("fit", table, "--edges", "70", says="--edges is for values")


def test_one_model_per_stream_and_standard_input(table, tmp_path):
    done = veil("fit", table, "-o", tmp_path / "{stream}.veil", "--json")
    assert [m["chain"] for m in json.loads(done.stdout)["models"]] == ["a", "b"]
    assert load(tmp_path / "a.veil").states.names == load(tmp_path / "b.veil").states.names
    piped = veil("fit", "-", "--stream", "a", "--json", input=table.read_text())
    assert json.loads(piped.stdout)["points"] == 1_500


@pytest.mark.slow
def test_bad_input_is_one_line_and_exit_code_2(table, tmp_path):
    def put(name, text):
        (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return tmp_path / name

    head = "time,lat,lon\n2020-01-01T00:00:00Z,1,2\n"
    refused("fit", put("a.csv", "x,y\n1,2\n"), says="a.csv line 1: no time column")
    refused(
        "fit",
        put("b.csv", head + "2020-01-01T00:05:00Z,91,2\n"),
        says="b.csv line 3: lat is outside -90..90 degrees; correct it, or drop and count such rows with --skip-bad",
    )
    refused("fit", put("c.csv", ""), says="c.csv: empty file")
    refused("fit", put("d.csv", head), says="d.csv: one point only")
    refused("fit", put("e.csv", bytes(range(256)) * 9), says="e.csv line 1: a binary file")
    (tmp_path / "none").mkdir()
    refused("fit", tmp_path / "none", says="a folder without traces")
    refused("fit", says="no SOURCE given")
    refused("fit", table, "--period", "5 parsecs", says="--period '5 parsecs'")
    refused("fit", table, "--order", "many", says="--order 'many' is not a number")
    refused("fit", table, "--states", "99", says="no radius gives 99 stops")
    refused("fit", table, "-o", tmp_path / "a.csv" / "m.veil", says="cannot be written")
    with zipfile.ZipFile(tmp_path / "bomb.veil", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a", b"\0" * 5_000_000)
    refused("solve", tmp_path / "bomb.veil", "--avg", "1km", says="bomb.veil: a zip archive")


# --- real data -------------------------------------------------------------------------------------------


@needs_geolife
@pytest.mark.slow
def test_the_command_of_the_paper(tmp_path):
    model = tmp_path / "p.veil"
    result = json.loads(veil("fit", GEOLIFE / "016", *PAPER, "-o", model, "--json").stdout)
    assert (result["points"], result["states"], result["transitions"]) == (89_272, 16, 830)
    assert 0.52 <= result["entropy_rate"] <= 0.54
    assert len(load(model).study_only) == 3
    assert result["study_only"][1].startswith("--option gaps=bridge: ")
    solved = json.loads(veil("solve", model, "--avg", "0.8km", "--distortion", "states", "--json").stdout)
    assert solved["leakage"] <= 0.065
    assert solved["distortion"] <= 0.8 + 1e-3


@pytest.mark.slow
@needs_meter
def test_all_households_in_one_command(tmp_path):
    done = veil("fit", METER, "--unit", "kWh", "-o", tmp_path / "{stream}.veil", "--json")
    assert len(json.loads(done.stdout)["models"]) == 20
    assert len(list(tmp_path.glob("*.veil"))) == 20


@pytest.mark.slow
def test_a_thin_model_is_called_so_from_fit_to_audit(tmp_path):
    """A short walk: the card goes from the model into the policy, and every verb says what it means."""
    track, model, policy = tmp_path / "t.csv", tmp_path / "m.veil", tmp_path / "p.veil"
    track.write_text("t,value\n" + "".join(f"{i},{(i // 20) % 3}\n" for i in range(200)))
    fitted = veil("fit", track, "-o", model, "--states", 3, "--json")
    assert any(note.startswith("thin data: ") for note in json.loads(fitted.stdout)["notes"])
    assert load(model).provenance["card"]["states"] == 3
    solved = json.loads(veil("solve", model, "--avg", 0.3, "-o", policy, "--json").stdout)
    assert solved["level"] == "model only"
    assert any(line.startswith("thin data: ") for line in solved["warnings"])
    printed = veil("solve", model, "--avg", 0.3).stdout
    assert "bits per step, model only" in printed
    assert "! thin data: " in printed
    audited = veil("audit", policy, "--data", track, "--quick")
    assert "(model only" in " ".join(audited.stdout.split())
    assert "! thin data: " in audited.stdout
    other = tmp_path / "other.csv"
    other.write_text("t,value\n" + "".join(f"{i},{(i * 7) % 3}\n" for i in range(200)))
    found = json.loads(veil("audit", policy, "--data", other, "--quick", "--json").stdout)
    assert any("somebody else's" in line for line in found["warnings"])


@pytest.mark.slow
def test_a_picture_of_each_stream(table, tmp_path):
    """{stream} in the picture's name alone; in the model's alone the picture gets it too; no name leaves the folder."""
    done = veil("fit", table, "--plot", tmp_path / "{stream}.png", "--json")
    assert done.returncode == 0, done.stderr
    assert [m["plot"] for m in json.loads(done.stdout)["models"]] == [str(tmp_path / f"{s}.png") for s in "ab"]
    assert veil("fit", table, "-o", tmp_path / "{stream}.veil", "--plot", tmp_path / "x.png").returncode == 0
    assert {p.name for p in tmp_path.iterdir()} == {"a.png", "b.png", "x-a.png", "x-b.png", "a.veil", "b.veil"}
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in tmp_path.glob("*.png"))
    strange = tmp_path / "strange.csv"
    strange.write_text(table.read_text().replace("\na,", "\n../../a,"))
    assert veil("fit", strange, "--plot", tmp_path / "s" / "{stream}.png").returncode == 2  # no such folder
    (tmp_path / "s").mkdir()
    assert veil("fit", strange, "--plot", tmp_path / "s" / "{stream}.png").returncode == 0
    assert {p.name for p in (tmp_path / "s").iterdir()} == {"_.._a.png", "b.png"}


def test_help_names_every_format_there_is():
    from veilstream.data.readers import READERS

    said = veil("fit", "--help").stdout
    for reader in READERS:
        assert all(word in said for word in (*reader.name.split(), *reader.endings))


@pytest.mark.slow
def test_what_fit_was_told_about_the_file_the_other_verbs_know(tmp_path):
    """Day first, columns of other names, a unit: told once. What may be dropped is not: a release says so itself."""
    table, model, policy = tmp_path / "g.csv", tmp_path / "g.veil", tmp_path / "p.veil"
    levels = [60, 100, 120, 200, 150, 90, 65, 110] * 40
    rows = [f"{1 + i // 96:02d}-03-2026 {i % 96 // 4:02d}:{15 * (i % 4):02d},{v}\n" for i, v in enumerate(levels)]
    table.write_text("moment,level\n" + "".join(rows) + "28-03-2026 00:00,LO\n")
    told = [
        "--option",
        "time-format=%d-%m-%Y %H:%M",
        "--columns",
        "time=moment,value=level",
        "--unit",
        "mg/dL",
        "--skip-bad",
    ]
    assert veil("fit", table, *told, "--edges", "70,180", "-o", model).returncode == 0
    assert veil("solve", model, "--avg", "15mg/dL", "-o", policy).returncode == 0
    refused("audit", policy, "--quick", "--data", table, says="--skip-bad")
    done = veil("audit", policy, "--quick", "--data", table, "--skip-bad")
    assert done.returncode == 0, done.stderr
    code = "from veilstream.apps.cli import main; main()"
    shown = subprocess.run(
        [sys.executable, "-c", code, "release", policy, table, "--no-store", "--skip-bad"],
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0 and shown.stdout.count("\n") == 1 + len(levels), shown.stderr
    page = tmp_path / "r.html"
    few = ["--option", "points=3", "--option", "seconds=0", "--audit", "none"]
    assert veil("report", policy, "--data", table, "--skip-bad", "-o", page, *few).returncode == 0
    shared = tmp_path / "s.html"
    assert veil("report", policy, "--shareable", "-o", shared, *few).returncode == 0
    assert "moment" in page.read_text() and "moment" not in shared.read_text()
    plain = tmp_path / "plain.csv"
    plain.write_text("time,value\n" + "".join(f"{1.6e9 + 900 * i:.0f},{v}\n" for i, v in enumerate(levels)))
    done = veil("audit", policy, "--quick", "--data", plain)  # other names: read in the common way
    assert done.returncode == 0, done.stderr


def test_an_export_of_many_series_is_read_with_the_flag_that_its_message_says(tmp_path):
    kinds = [("HeartRate", "count/min", 50), ("StepCount", "count", 0)]
    records = [
        f'<Record type="HKQuantityTypeIdentifier{kind}" unit="{unit}" startDate="2024-01-01 {k // 12:02d}:'
        f'{k % 12 * 5:02d}:00 +0000" value="{low + k % 7}"/>'
        for k in range(120)
        for kind, unit, low in kinds
    ]
    export = tmp_path / "export.xml"
    export.write_text("<HealthData>" + "\n".join(records) + "</HealthData>")
    said = veil("fit", export).stderr
    flag = re.search(r"say (--columns) (\S+);", re.sub(r"\s+", " ", said))
    assert flag, said
    done = veil("fit", export, *flag.groups(), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["points"], found["unit"], found["period_s"]) == (120, "bpm", 300.0)


@pytest.mark.slow
def test_zone_names_from_a_table_to_releases(tmp_path):
    table, model, policy = (tmp_path / name for name in ("z.csv", "z.veil", "p.veil"))
    zones = ["home"] * 9 + ["Work"] * 6 + ["gym", "home", "Work"]
    rows = [f"{1704067200 + 3600 * k},{zones[k * k % 18]}" for k in range(600)]
    table.write_text("\n".join(["time,zone", *rows]) + "\n")
    assert veil("fit", table, "-o", model, "--cycle", "none", "--hold-out", "none").returncode == 0
    done = veil("solve", model, "--avg", "20%", "-o", policy, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["raw_distortion"] <= 20.1
    code = "from veilstream.apps.cli import main; main()"
    run = [sys.executable, "-c", code, "release", policy, "--no-store"]
    shown = subprocess.run([*run, table, "--format", "csv"], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    released = [line.split(",")[2] for line in shown.stdout.splitlines()[1:]]
    wrong = sum(zones[k * k % 18] != name for k, name in enumerate(released)) / len(released)
    assert set(released) <= set(zones) and 0.05 < wrong < 0.35
    live = '{"stream":"a","t":1704067200,"value":"home"}\n{"stream":"a","t":1704070800,"value":7}\n'
    shown = subprocess.run([*run, "--json"], input=live, capture_output=True, text=True)
    assert {json.loads(line)["released"] for line in shown.stdout.splitlines()} <= set(zones)
    assert json.loads(shown.stderr.splitlines()[-1])["released"] == 2
    numbers = tmp_path / "n.csv"
    numbers.write_text("time,value\n1704067200,1\n1704070800,2\n")
    refused("release", policy, numbers, "--no-store", says="the policy is about names")
