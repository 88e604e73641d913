"""Fleets from users to summary: bad users, resuming, one folder one fleet, the page."""

import json
import os
import re
import signal
import subprocess
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import veilstream as vs
from fleetkit import QUICK, meter_table, plt_user
from oracles import recomputed
from veilcli import VEIL, veil
from veilstream.apps.fleet import folder as disk
from veilstream.apps.fleet.page import median_curve, shares
from veilstream.apps.fleet.run import run_fleet
from veilstream.apps.fleet.summary import moves
from veilstream.apps.fleet.users import read_users
from veilstream.artefact import load
from veilstream.data.spec import FitSpec
from veilstream.model.data_card import DataCard

SMALL = ["states=3", "window=1", "points=2", "certify=0", "audit=none"]
FLAGS = ["--weight=5", *(f"--option={text}" for text in SMALL), "--json"]


# --- runs ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_pooled_users_have_the_clock_that_was_asked_for_or_say_why_not(tmp_path):
    """Both stand on the states and moves of each other; one record is shorter than a day."""
    table = meter_table(tmp_path / "m.csv", {"much": 48 * 6, "little": 40})
    plan = replace(QUICK, fit=FitSpec(n_states=2, cycle="day"))
    summary = run_fleet([table], tmp_path / "out", plan)
    little, much = sorted(summary.rows, key=lambda r: r["user"])
    assert little["pool"] and much["pool"]
    assert much["cycle"]["kind"] == "day" and load(tmp_path / "out" / "users" / "much" / "policy.veil").chain.phases > 1
    assert little["cycle"] is None
    assert any("without a clock" in note and "at least 2 days, found 1" in note for note in little["notes"])
    assert "1 of 2 users have no clock: their records are too short" in summary.notes


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A small fleet of two kinds of data, with a poisoned user and one of 12 steps; its folder and what it said."""
    root = tmp_path_factory.mktemp("fleet")
    plt_user(root / "g", "000", files=3)
    plt_user(root / "g", "001", text="broken")
    table = meter_table(root / "m.csv", {"a": 300, "b": 300, "short": 12}, columns={"bad": ["oops"]})
    plan = replace(QUICK, weight=None, avg=("30%",), certify=0.2, audit="quick")
    plan = replace(plan, fit=FitSpec(width=0.4, cycle="none", unit="kWh"))  # GeoLife: stops, meters: 3 bins
    sources = [str(root / "g"), table]
    return root, sources, plan, run_fleet(sources, root / "out", plan)


def test_the_rest_goes_on_and_the_summary_names_what_failed(ran):
    root, _, _, summary = ran
    assert {r["user"] for r in summary.rows} == {"000", "a", "b", "short"}
    assert set(summary.failed) == {"001", "bad"} and not summary.whole
    assert all("\n" not in line and len(line) < 300 for line in summary.failed.values())
    told = json.loads((root / "out" / "fleet.json").read_text())
    assert told["users"] == 4 and set(told["failed"]) == {"001", "bad"} and not told["audit_contradicts"]
    page = (root / "out" / "index.html").read_text()
    for word in ("001", "bad", "000", "short", "PRIVATE"):
        assert word in page
    short = next(r for r in told["rows"] if r["user"] == "short")
    assert short["pool"]["strength"] > 0 and short["states"] == 3 and short["transitions"] == 11
    assert next(r for r in told["rows"] if r["user"] == "000")["pool"] is None


def test_a_thin_model_is_said_to_be_one_wherever_its_figures_are(ran):
    """12 steps make 11 transitions: whatever is computed of them is true of the model only."""
    root, _, _, summary = ran
    row = next(r for r in summary.rows if r["user"] == "short")
    place = disk.places(root / "out", ["short"])["short"]
    assert row["level"] == "model only" and any("thin data" in note for note in row["notes"])
    for file in ("policy.veil", "model.veil"):
        assert DataCard.of(vs.load(place / file).provenance).thin
    assert vs.load(place / "policy.veil").provenance["solution"]["level"] == "model only"
    assert any("thin data" in w for w in json.loads((place / "audit.json").read_text())["warnings"])
    assert "model only" in (root / "out" / "index.html").read_text().split("User by user")[1]


def test_a_column_that_nobody_fills_is_left_out_with_its_explanation(ran):
    from veilstream.apps.fleet.page import page

    told = json.loads((ran[0] / "out" / "fleet.json").read_text())
    empty = [{**r, "audit": None, "leakage_lower": None, "gap": None, "cycle": None} for r in told["rows"]]
    assert 'scope="col">audit<' in page(told) and "<em>identified</em>" in page(told)
    bare = page({**told, "rows": empty})
    assert not [h for h in ("audit", "identified", "at least", "gap", "clock", "moves") if f'scope="col">{h}<' in bare]
    assert (
        "<em>identified</em>" not in bare and "<em>at least</em>" not in bare and 'scope="col">long run: bits<' in bare
    )


def test_what_is_felt_on_the_record_stands_before_the_long_run(ran):
    root, _, _, _ = ran
    told = json.loads((root / "out" / "fleet.json").read_text())
    for row in told["rows"]:
        if row["raw_distortion"] is None:
            continue
        assert row["distortion_share"] == recomputed(row["raw_distortion"] / row["blind_distortion"])
        assert f"{row['raw_distortion']:.3g} {row['unit']}" in (root / "out" / "index.html").read_text()
        place = disk.places(root / "out", [row["user"]])[row["user"]]
        said = json.loads((place / "audit.json").read_text())
        assert said["raw_distortion"] == pytest.approx(row["raw_distortion"])
        assert f"On your recorded data a release had an error of {row['raw_distortion']:.3g} " in said["verdict"]
    assert any(row["raw_distortion"] is not None for row in told["rows"])


def test_each_user_has_a_policy_that_meets_the_limit_and_can_be_served(ran):
    root, _, _, summary = ran
    for row in summary.rows:
        place = disk.places(root / "out", [row["user"]])[row["user"]]
        policy, model = vs.load(place / "policy.veil"), vs.load(place / "model.veil")
        kept = row["distortion"] if row["raw_distortion"] is None else row["raw_distortion"]
        assert kept <= 0.3 * row["blind_distortion"] * (1 + 1e-6)
        assert not policy.study_only and (model.chain.transition > 0).all()
        assert row["leakage_lower"] <= row["leakage"] <= row["entropy_rate"] + 1e-9
        assert json.loads((place / "audit.json").read_text())["stands"] is True
        assert (place / "curve.csv").read_text().startswith("weight,distortion,leakage")
        assert (place / "policy.veil").stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_a_second_run_keeps_and_a_change_makes_anew(ran, tmp_path):
    root, sources, plan, first = ran
    again = run_fleet(sources, root / "out", plan)
    assert all(r["kept"] for r in again.rows) and set(again.failed) == set(first.failed)
    assert {r["user"]: r["leakage"] for r in again.rows} == {r["user"]: r["leakage"] for r in first.rows}
    model = root / "out" / "users" / "000" / "curve.csv"
    model.write_text("altered")
    third = run_fleet(sources, root / "out", plan)
    assert [r["user"] for r in third.rows if not r.get("kept")] == ["000"] and model.read_text() != "altered"
    other = run_fleet(sources[:1], root / "out", replace(plan, seed=1))
    assert not any(r.get("kept") for r in other.rows)


def test_a_user_who_becomes_unusable_has_her_policy_set_aside(tmp_path):
    plt_user(tmp_path / "g", "000")
    plt_user(tmp_path / "g", "001", seed=1)
    plan = replace(QUICK, fit=FitSpec(cycle="none"))
    assert run_fleet([str(tmp_path / "g")], tmp_path / "out", plan).whole
    (tmp_path / "g" / "001" / "Trajectory" / "1.plt").write_text("broken")
    later = run_fleet([str(tmp_path / "g")], tmp_path / "out", plan)
    assert set(later.failed) == {"001"} and later.rows[0]["kept"]
    assert sorted(p.name for p in (tmp_path / "out" / "users").iterdir()) == ["000", "001.stale"]


def test_a_digest_changes_with_everything_it_depends_on(tmp_path):
    from veilstream.apps.fleet.run import tasks_of

    users, _ = read_users([meter_table(tmp_path / "m.csv", {"a": 60, "b": 60})])
    tasks, _, _ = tasks_of(users, QUICK)
    digests = {t.digest for t in tasks}
    own = tasks[0].readings
    moved = replace(tasks[0], readings=own.with_frame(own.frame.with_columns(own.frame["value"] + 1e-9)))
    digests |= {moved.digest, replace(tasks[0], prior=tasks[0].prior * 1.001).digest}
    digests |= {t.digest for t in tasks_of(users, replace(QUICK, seed=1))[0]}
    digests |= {t.digest for t in tasks_of(users, replace(QUICK, pool="off"))[0]}
    assert len(digests) == 8
    assert tasks[0].digest == tasks_of(users, QUICK)[0][0].digest  # the same sums on the same machine


def test_one_state_or_one_step_alone_is_a_line(tmp_path):
    table = tmp_path / "m.csv"
    rows = [f"2024-01-01 {h:02}:00:00,{0.1 * (h % 3)},5.0,{'1.0' if h == 3 else ''}" for h in range(24)]
    table.write_text("time,good,constant,once\n" + "\n".join(rows) + "\n")
    alone = run_fleet([str(table)], tmp_path / "alone", replace(QUICK, pool="off"))
    assert [r["user"] for r in alone.rows] == ["good"] and set(alone.failed) == {"constant", "once"}
    assert "one bin" in alone.failed["constant"] and "two" in alone.failed["once"]
    pooled = run_fleet([str(table)], tmp_path / "pooled", QUICK)  # with others to lean on, both get a policy
    assert pooled.whole and len(pooled.rows) == 3


# --- the folder and the command --------------------------------------------------------------------------


def test_two_fleets_in_one_folder_is_one_line(tmp_path):
    table = meter_table(tmp_path / "m.csv", {"a": 40, "b": 40})
    with disk.claimed(tmp_path / "out"):
        code, out, err = veil("fleet", table, "-o", tmp_path / "out", *FLAGS)
    assert code == 2 and out == ""
    assert "another fleet is writing here" in err and len(err.splitlines()) == 1


@pytest.mark.slow
def test_a_killed_fleet_frees_its_folder_and_goes_on(tmp_path):
    """kill -9 in the middle: the system frees the lock, what was done is kept, the second run does the rest."""
    names = "abcdefghijkl"
    table = meter_table(tmp_path / "m.csv", dict.fromkeys(names, 200))
    command = [*VEIL, "fleet", table, "-o", str(tmp_path / "out"), *FLAGS]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not list((tmp_path / "out").glob("users/*/done.json")) and first.poll() is None:
        time.sleep(0.005)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    done = {p.parent.name for p in (tmp_path / "out").glob("users/*/done.json")}
    assert done and done != set(names)
    second = subprocess.run(command, capture_output=True, text=True)
    told = json.loads(second.stdout)
    assert second.returncode == 0 and told["users"] == len(names)
    assert {r["user"] for r in told["rows"] if r.get("kept")} == done


def test_exit_code_one_and_a_line_for_each_that_failed(tmp_path):
    table = meter_table(tmp_path / "m.csv", {"a": 40, "b": 40}, columns={"bad": ["oops"]})
    code, out, _ = veil("fleet", table, "-o", tmp_path / "out", *FLAGS[:-1])
    assert code == 1
    assert re.search(r"^failed bad: .*m\.csv line 2", out, re.M) and "2 users done, 1 failed" in out


def test_bad_usage_is_one_line(tmp_path):
    table = meter_table(tmp_path / "m.csv", {"a": 40, "b": 40})
    for args, said in (
        (["--engine", "spark"], "serial, joblib, dask"),
        (["--avg", "1km"], "has no limit for users in no unit"),
        (["--option", "pool=maybe"], "auto or off"),
        (["--option", "method=nonsense"], "unknown method"),
        (["--max", "home=5km"], "one limit per unit"),
        (["--avg", "25%", "--option", "feedback=sometimes"], "--feedback must be day, week"),
    ):
        code, _, err = veil("fleet", table, "-o", tmp_path / "out", *args)
        assert code == 2 and said in err and len(err.splitlines()) == 1


# --- the page --------------------------------------------------------------------------------------------


def test_the_median_curve_is_the_median(ran):
    rows = ran[3].rows
    x, y = median_curve(rows)[30]
    by_hand = [np.interp(x, *shares(r).T) for r in rows if shares(r)[-1, 0] >= x]
    assert y == pytest.approx(np.median(by_hand))


def test_a_narrow_terminal_cuts_no_figure_and_one_user_is_one(capsys, monkeypatch, tmp_path):
    from veilstream.apps.cli.fleet import show
    from veilstream.apps.fleet.page import headline

    row = {"user": "MAC000002", "steps": 5999, "unit": "kWh", "cycle": None, "audit": {"stands": True}, "level": ""}
    row |= {"distortion": 0.0406, "leakage": 1.0292, "raw_distortion": 0.04, "raw_leakage": 1.0126}
    row |= {"leakage_lower": None, "entropy_rate": 2.386, "leakage_share": 0.43, "raw_truth": None}
    told = {"rows": [row], "notes": [], "failed": {}, "kept": 0, "users": 1, "seconds": 1.0, "engine": "serial"}
    told |= {"limit_words": "", "limit_verdicts": {}}
    monkeypatch.setenv("COLUMNS", "60")
    show(SimpleNamespace(to_json=lambda: told), tmp_path)
    out = capsys.readouterr().out.splitlines()
    assert out[1].split() == [
        *("MAC000002", "model", "only", "0.04", "kWh", "1.013", "43.0%", "0.0406", "kWh", "1.029", "5,999"),
        *("as", "claimed"),
    ]
    assert "at least" not in out[0] and out[2].startswith("1 user done")
    assert headline(told, [row]) == "1 user has a policy; releases reveal 57% less than the truth would."


def test_the_page_holds_no_markup_of_a_name_and_asks_for_nothing(ran):
    from veilstream.apps.fleet.page import page

    told = json.loads((ran[0] / "out" / "fleet.json").read_text())
    told["rows"][0]["user"] = "<script>alert(1)</script>"
    told["failed"] = {"<b>x</b>": "<i>y</i>"}
    text = page(told)
    assert "<script>alert" not in text and "<b>x" not in text and "<i>y" not in text
    assert not re.search(r"(src|href)=\"(?!data:,)", text) and "default-src 'none'" in text


# --- later data ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["auto", "off"])
def test_what_was_held_out_of_a_user_shapes_neither_her_states_nor_the_pool(tmp_path, pool):
    """The last third of a year may hold anything: model and policy are the same, only what is said of it differs."""
    weeks = {"a": 30 * 336, "b": 30 * 336, "c": 400}
    meter_table(tmp_path / "one.csv", weeks)
    lines = (tmp_path / "one.csv").read_text().splitlines()
    late = 1 + 20 * 336
    quiet = [",".join([line.split(",")[0], "0.01", "0.02", ""]) for line in lines[late:]]
    (tmp_path / "two.csv").write_text("\n".join([*lines[:late], *quiet]) + "\n")
    plan, told = replace(QUICK, pool=pool), []
    for name in ("one", "two"):
        summary = run_fleet([str(tmp_path / f"{name}.csv")], tmp_path / name, plan).to_json()
        told.append({r["user"]: r for r in summary["rows"]})
    for user in "ab":
        first, second = (t[user] for t in told)
        assert first["held_out"]["traces"] == 10 and first["held_out"]["level"] == "held out"
        assert first["leakage"] == recomputed(second["leakage"]) and first["states"] == second["states"]
        assert first["held_out"]["raw_distortion"] != second["held_out"]["raw_distortion"]
        models = [load(tmp_path / name / "users" / user / "model.veil") for name in ("one", "two")]
        assert models[0].chain.transition == recomputed(models[1].chain.transition)
        assert len(models[0].held_out) == 10 * 336
        assert load(tmp_path / "one" / "users" / user / "policy.veil").held_out is None
        assert first["worst_leakage"] >= first["held_out"]["leakage"]["value"] - 1e-9
    assert told[0]["c"]["held_out"] is None
    page = (tmp_path / "one" / "index.html").read_text()
    assert "later: bits" in page and "whatever the law of that data" in page and ">model only<" in page


def test_a_ladder_is_told_with_its_limit_and_its_promise():
    climbed = {"rungs": [0, 0.5, 0.5], "moves": 7.2, "limit": 0.1, "overshoot": 52.0, "every": 10, "promised": True}
    assert (
        moves({"feedback": climbed, "unit": "kWh"})[0]
        == "7 on rungs 1 to 2; limit 0.1 kWh, at most 0.2 kWh over 52 periods"
    )
    assert moves({"feedback": {**climbed, "promised": False}, "unit": "kWh"})[0].endswith("limit 0.1 kWh, not promised")
    assert moves({"unit": "kWh"}) == ("", None)
