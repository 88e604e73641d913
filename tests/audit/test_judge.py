"""`judge`: mechanisms beside ours, two files, programs; from Python and from the command line; its page."""

import json

import numpy as np
import pytest
import typer

import veilstream as vs
from veilcli import veil
from veilstream.apps.cli import app
from veilstream.apps.report.judged import page
from veilstream.audit.figures import LEAST_TRACES
from veilstream.audit.judge import NEXT_TO_NOTHING
from veilstream.audit.mechanisms.grid import snapped
from veilstream.audit.pairs import MOST_POINTS, Aligned
from veilstream.data.frames import readings_of
from veilstream.data.synthetic import city, household

QUICK = {"certify_seconds": 0.5, "streams": 40, "steps": 90}
LINE = [word for k, v in QUICK.items() for word in ("--option", f"{k}={v}")]


def written(path, source, points, streams=None):
    names = (source.states.is_map and ("lat", "lon")) or ("kWh",)
    head = ("time", *names, *(() if streams is None else ("stream",)))
    rows = [",".join(head)]
    for i, (t, p) in enumerate(zip(source.t_s, points, strict=True)):
        rows.append(",".join([f"{t:.0f}", *(f"{v:.6f}" for v in p), *(() if streams is None else (streams[i],))]))
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, source = tmp_path_factory.mktemp("judge"), city(1500)
    true = written(folder / "true.csv", source, source.points)
    return true, written(folder / "released.csv", source, snapped(source.points, 5.0)), folder


def test_every_row_is_at_least_the_floor_and_ours_is_between():
    found = vs.judge("builtin:grid2x3-toy", **QUICK)
    assert [row.name for row in found.rows] == ["hold", "planar-laplace", "randomised-response", "rounding"]
    for row in found.rows:
        assert row.floor <= row.ours.leakage.high + 1e-9
        assert row.ours.leakage.value <= row.leakage.high + 1e-3
        assert row.ours.error.value == pytest.approx(row.error.value, rel=2e-3, abs=2e-3)
        assert row.figures.vulnerability.value >= row.figures.prior - 0.1
    assert found.headline.startswith("4 mechanisms reveal")
    assert not found.private
    [ax] = found.plot().axes
    assert {row.label for row in found.rows} <= {text.get_text() for text in ax.texts}


def test_the_truth_has_nothing_beside_it():
    [row] = vs.judge("builtin:grid2x3-toy", mechanism=["hold=1"], **QUICK).rows
    assert row.error.value <= NEXT_TO_NOTHING
    assert row.ours is None
    assert row.leakage.value == pytest.approx(vs.builtin("grid2x3-toy").entropy_rate)


def test_two_files_of_a_grid_are_seen_through_and_the_page_holds_no_trace(files):
    true, released, folder = files
    done = veil("judge", true, released, "--json", "-o", folder / "judge.html", *LINE)
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)["mechanisms"]
    text = (folder / "judge.html").read_text()
    assert "PRIVATE" in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert not any(f"{v:.4f}" in text for v in city(1500).points[:50].ravel())
    assert row["files"]["traces"] >= LEAST_TRACES
    assert row["files"]["silent"] == 0
    assert row["vulnerability"]["value"] > 0.8
    assert row["floor"] < row["ours"]["leakage"]["value"] < row["leakage"]["value"]
    assert row["error"]["low"] < row["error"]["value"] < row["error"]["high"]


def test_a_program_is_judged_by_what_it_shows():
    class Coarse:
        """Snaps to 5 km, and remembers nothing."""

        def start(self):
            return None

        def release(self, state, reading):
            return state, snapped(reading, 5.0)

    source = city(1500)
    lat, lon = source.points.T
    model = vs.fit({"time": source.t_s, "lat": lat, "lon": lon})
    found = vs.judge(model, mechanism=[Coarse(), "grid=5km"], **QUICK)
    named, own = found.rows
    assert (named.label, own.label) == ("grid 5 km", "Coarse")
    assert own.level == "estimated with an interval"
    bits = own.figures.vulnerability
    assert bits.low - 0.03 <= named.figures.vulnerability.value <= bits.high + 0.03
    with pytest.raises(vs.InputError, match="start"):
        vs.judge(model, mechanism=[object()])


def test_an_own_policy_is_judged_exactly():
    problem = vs.builtin_problem("grid2x3-toy", vs.Average(weight=2.0))
    policy = vs.solve(problem, window=1).policy
    [row] = vs.judge("builtin:grid2x3-toy", mechanism=[policy], **QUICK).rows
    assert row.label == "Controller"
    assert row.leakage.value == pytest.approx(row.ours.leakage.value, rel=0.02)
    with pytest.raises(vs.InputError, match="releases"):
        vs.judge("builtin:binary", mechanism=[policy])


def test_people_are_told_apart_by_releases_that_tell_all(tmp_path):
    """Two households that are never at the same levels."""
    source = household(1200)
    who = ["ann", "bob"]
    streams = [who[i % 2] for i in range(1200)]
    values = source.points + np.array([[0.0], [5.0]])[np.arange(1200) % 2]
    source.t_s[:] = source.t_s[0] + 1800 * (np.arange(1200) // 2)
    true = written(tmp_path / "true.csv", source, values, streams)
    [row] = vs.judge(true, true, **QUICK).rows
    assert row.files.streams == row.files.homes == 2
    assert row.files.identified.value > 0.95
    assert row.error.value == 0
    assert row.ours is None


def test_few_traces_have_no_interval_and_it_says_so(tmp_path):
    source = household(12)
    true = written(tmp_path / "true.csv", source, source.points)
    found = vs.judge(true, true, **QUICK)
    [row] = found.rows
    assert row.files.traces < LEAST_TRACES
    assert np.isnan(row.leakage.low)
    assert row.level == "model only"
    assert "too few for an interval" in found.warnings[0]
    json.dumps(found.to_json(), allow_nan=False)
    assert "NaN" not in page(found)


def test_a_step_without_a_release_is_a_sign_too(files, tmp_path):
    """A zone that shows nothing: silence is a symbol, and the steps that are shown have no error."""
    source = city(1500)
    home = source.path == np.bincount(source.path).argmax()
    text = [line for line, hidden in zip(files[0].read_text().splitlines()[1:], home, strict=True) if not hidden]
    quiet = tmp_path / "quiet.csv"
    quiet.write_text("time,lat,lon\n" + "\n".join(text) + "\n")
    [row] = vs.judge(files[0], quiet, **QUICK).rows
    assert row.files.silent == pytest.approx(home.mean(), abs=0.02)
    assert row.error.value < 0.01
    assert row.figures.vulnerability.value > 0.8


def test_more_releases_than_can_be_told_apart_are_said(files, tmp_path):
    source = city(1500)
    noisy = source.points + np.random.default_rng(0).normal(scale=0.01, size=source.points.shape)
    found = vs.judge(files[0], written(tmp_path / "noisy.csv", source, noisy), **QUICK)
    assert len(noisy) > MOST_POINTS
    assert any("different releases" in line for line in found.warnings)


def test_releases_may_come_in_any_order(files, tmp_path):
    head, *rows = files[1].read_text().splitlines()
    mixed = tmp_path / "mixed.csv"
    mixed.write_text("\n".join([head, *np.random.default_rng(0).permutation(rows)]) + "\n")
    model = vs.fit(files[0], hold_out=0.0, cycle="none")
    a, b = (Aligned.of(model, readings_of(files[0]), readings_of(path)) for path in (files[1], mixed))
    assert (a.y == b.y).all()
    assert np.nanmax(np.abs(a.errors - b.errors)) == 0


def test_one_trace_holds_nothing_out(tmp_path):
    source = household(2)
    true = written(tmp_path / "true.csv", source, source.points)
    with pytest.raises(vs.InputError, match="held out"):
        vs.judge(true, true, **QUICK)


@pytest.mark.parametrize(
    ("other", "line"),
    [
        ("time,lat,lon\n1767225600,-47.0,-125.0\n1767225900,-47.0,-125.0\n", "at any step"),
        ("time,kWh\n1704067200,2\n1704069000,3\n", "both hold"),
    ],
)
def test_files_that_do_not_belong_together_are_one_line(files, tmp_path, other, line):
    second = tmp_path / "other.csv"
    second.write_text(other)
    done = veil("judge", files[0], second)
    assert done.returncode == 2
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_audit_takes_every_mechanism(files):
    source = city(1500)
    lat, lon = source.points.T
    solution = vs.solve(vs.fit({"time": source.t_s, "lat": lat, "lon": lon}), avg="1km")
    found = vs.audit(solution, against=["grid", "hold", "planar-laplace"], streams=20, steps=60)
    assert [one.name for one in found.against] == ["grid", "hold", "planar-laplace"]
    own = found.policy.settings[0].leakage.value
    assert all(one.settings[0].leakage.value > own for one in found.against)
    assert all(one.distortion <= 1.01 * found.policy.distortion for one in found.against)


def test_what_judge_says_is_a_flag_of_its_own_only_where_needed():
    verb = typer.main.get_command(app).commands["judge"]
    assert {o for p in verb.params for o in p.opts if o.startswith("-")} == {"-o", "--out", "--option", "--json"}


def test_a_file_that_is_not_there_is_no_mechanism_and_a_folder_of_a_mechanisms_name_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "true.csv").write_text("time,kwh\n0,1\n1800,2\n")
    (tmp_path / "grid").mkdir()
    said = veil("judge", "true.csv", "released.csv").stderr
    assert "released.csv: no such file or folder" in said and said.count("\n") == 1
    assert "mechanism gridd" in veil("judge", "builtin:binary", "gridd").stderr.replace("'", "")
    assert "mechanism grid is for" in veil("judge", "builtin:binary", "grid").stderr
