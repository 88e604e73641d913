"""python -m reproduce: items run, resume, are judged by the right rules, and say what was skipped."""

import csv
import json
import os
from dataclasses import replace

import numpy as np
import pytest

from real_data import GEOLIFE, needs_geolife
from reproduce import fig_adc, fig_idc, map_geolife
from reproduce.geolife import folder_of
from reproduce.item import OPTIMUM, Budget, Finding
from reproduce.run import MODULES, chosen, items, read, run
from veilcli import paper
from veilstream.errors import InputError
from veilstream.model.builtin import builtin_problem
from veilstream.model.problem import Average, Instantaneous
from veilstream.solvers import curve, solve

QUICK = Budget(
    certify_s=0.1,
    streams=32,
    steps=50,
    a2c_updates=5,
    sticky_updates=5,
    a2c_runs=1,
    segments=2,
    paper_steps=400,
    paper_width=8,
)


def test_every_module_has_an_item_of_its_own_name():
    found = items()
    assert len({i.name for i in found}) == len(found) == len(MODULES)
    assert [i.name.replace("-", "_") for i in found] == list(MODULES)
    assert all(i.paper and i.title for i in found)


@pytest.mark.slow
def test_items_write_their_files_and_an_index(tmp_path):
    outcomes = run(tmp_path, chosen("toy,grid-trajectory"), QUICK)
    assert [o.state for o in outcomes] == ["made", "made"]
    for name in ("toy", "grid-trajectory"):
        for ending in ("csv", "png", "svg", "json"):
            assert (tmp_path / f"{name}.{ending}").stat().st_size > 20
    index = (tmp_path / "index.html").read_text()
    assert "toy.png" in index and "not run yet" in index
    assert "http" not in index.replace("http-equiv", "")
    with (tmp_path / "toy.csv").open() as f:
        rows = list(csv.DictReader(f))
    assert sum(float(v) for k, v in rows[0].items() if k.startswith("release")) == pytest.approx(1, abs=1e-4)


def test_a_run_goes_on_where_it_was(tmp_path, monkeypatch):
    calls = []

    def made(desk):
        calls.append(desk.name)
        desk.table(["a"], [[1.0]])
        for ending in ("png", "svg"):
            (desk.folder / f"{desk.name}.{ending}").write_text("x")
        if desk.name == "stops" and len(calls) == 2:
            raise KeyboardInterrupt
        return Finding("ours", "yes")

    first, second = (replace(items()[0], name=n, make=made) for n in ("first", "stops"))
    monkeypatch.setattr("reproduce.run.items", lambda: [first, second])
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, [first, second], QUICK)
    assert read(tmp_path, second) is None
    assert [o.state for o in run(tmp_path, [first, second], QUICK)] == ["kept", "made"]
    assert calls == ["first", "stops", "stops"]
    assert [o.state for o in run(tmp_path, [first], replace(QUICK, seed=1))] == ["made"]  # other settings, made anew
    (tmp_path / "first.csv").unlink()
    assert run(tmp_path, [first], replace(QUICK, seed=1))[0].state == "made"
    (tmp_path / "first.json").write_text("{broken")
    assert run(tmp_path, [first], QUICK)[0].state == "made"


def test_without_geolife_the_rest_runs_and_says_so(tmp_path):
    outcomes = run(tmp_path, chosen("fig-geolife,map-geolife,grid-trajectory"), QUICK)
    assert ["GeoLife" in o.state for o in outcomes] == [True, True, False]
    assert "needs GeoLife&#x27;s folder" in (tmp_path / "index.html").read_text()


def test_bad_input_is_one_line(tmp_path):
    with pytest.raises(InputError, match="no GeoLife user"):
        folder_of(tmp_path)
    for args, said in (
        (["--only", "fig-nothing"], "no item 'fig-nothing'; there are fig-idc"),
        (["--geolife", str(tmp_path)], "no GeoLife user 016"),
        (["--only", "toy", "-o", "/proc/nowhere"], "cannot be written"),
    ):
        ended = paper("-o", tmp_path / "out", *args)
        assert ended.returncode == 2 and said in ended.stderr and ended.stderr.count("\n") == 1, ended.stderr


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_one_line(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot be written"):
        run(tmp_path, chosen("toy"), QUICK)


def test_the_judges_see_the_order_and_a_wrong_one():
    found = {}
    for chain in fig_idc.CHAINS:
        for limit in fig_idc.LIMITS:
            s = solve(builtin_problem(f"grid4x4-{chain}", Instantaneous(limit)), "myopic")
            found[chain, limit, "causal-ba"] = found[chain, limit, "myopic"] = s
    assert fig_idc.judge(found).verdicts[OPTIMUM] == "yes"
    swapped = {({"q0": "q2", "q2": "q0"}.get(c, c), k, m): s for (c, k, m), s in found.items()}
    assert fig_idc.judge(swapped).verdicts[OPTIMUM] == "no"


def test_without_memory_myopic_is_the_optimum():
    problem = builtin_problem("grid4x4-q0", Average(weight=1.0))
    weights = np.geomspace(0.3, 8, 5)
    assert fig_adc.excess(curve(problem, weights), curve(problem, weights, "myopic")) < 0.01


@pytest.mark.slow
@needs_geolife
def test_the_map_keeps_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(map_geolife, "available", lambda: False)
    ended = paper("-o", tmp_path, "--geolife", GEOLIFE, "--only", "map-geolife", "--json")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["items"][0]["agrees"] in ("yes", "in part")
    with (tmp_path / "map-geolife.csv").open() as f:
        assert 0 < np.mean([float(row["distance_km, the optimum"]) for row in csv.DictReader(f)]) <= 5
