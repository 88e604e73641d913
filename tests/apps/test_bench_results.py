"""Benchmarks kept in a file: what is compared, what counts as worse, the page made from them."""

import json
from pathlib import Path

import pytest

import bench_page
from benchmarks import core, limits, results
from veilcli import bench
from veilstream.errors import InputError

FACTS = {"processor": "a", "cores": 2}
FOUND = {"core": {"solve": {"seconds": 2.0, "ratio": 4.0, "objective": 1.0, "states": 16, "note": "ok"}}}


def changed(**figures):
    after = {"core": {"solve": {**FOUND["core"]["solve"], **figures}}}
    return {c.name.split(": ")[1]: c.worse for c in results.changes(FOUND, after)}


@pytest.mark.parametrize(
    ("figures", "worse"),
    [
        ({}, set()),
        ({"seconds": 2.3}, {"seconds"}),
        ({"seconds": 2.1}, set()),  # within what two runs differ by
        ({"seconds": 1.0, "ratio": 8.0, "objective": 0.9}, set()),
        ({"ratio": 3.0}, {"ratio"}),
        ({"objective": 1.001}, {"objective"}),  # computed: no noise to allow for
        ({"states": 99}, set()),  # neither good nor bad
    ],
)
def test_worse_is_by_the_kind_of_figure(figures, worse):
    assert {name for name, is_worse in changed(**figures).items() if is_worse} == worse


def test_a_file_keeps_groups_that_were_not_run_again_unless_the_machine_is_another(tmp_path):
    path = tmp_path / "bench" / "results.json"
    results.kept(path, FOUND, FACTS)
    results.kept(path, {"data": {"csv": {"seconds": 1.0}}}, FACTS)
    assert set(results.read(path)["results"]) == {"core", "data"} == set(results.read(path)["when"])
    results.kept(path, {"data": {"csv": {"seconds": 1.0}}}, {**FACTS, "processor": "b"})
    assert set(results.read(path)["results"]) == {"data"}
    path.write_text("{}")
    with pytest.raises(InputError, match="no results of python -m benchmarks"):
        results.read(path)


def test_the_machine_is_told_without_names_or_paths():
    facts = results.machine()
    assert (
        facts["cores"] >= 1 and facts["numpy"] and not any("/" in str(v) and "home" in str(v) for v in facts.values())
    )


def test_the_command_keeps_compares_and_fails_on_what_got_worse(tmp_path, monkeypatch):
    monkeypatch.setattr(core, "run", lambda: FOUND["core"])
    out = tmp_path / "results.json"
    assert bench("core", "-o", out).returncode == 0
    assert bench("core", "-o", "", "--compare", out).stdout.endswith("0 of 4 figures got worse\n")
    monkeypatch.setattr(core, "run", lambda: {"solve": {**FOUND["core"]["solve"], "seconds": 6.0}})
    again = bench("core", "-o", out, "--compare", out)
    assert again.returncode == 1 and "worse: core solve: seconds  2 -> 6  (3.00 times)" in again.stdout
    assert json.loads(out.read_text())["results"]["core"]["solve"]["seconds"] == 6.0


def test_a_limit_costs_a_few_weights_and_meets_them():
    row = limits.at_limit(16, certified=False)
    assert row["distortion/limit"] <= 1 + 1e-9 and row["bits/those_of_the_weight"] == pytest.approx(1, abs=2e-3)
    problem = limits.fitted(16)
    assert (problem.chain.transition > 0).all()


def test_the_page_is_that_of_the_file():
    told = json.loads(Path(bench_page.FIGURES).read_text())
    assert bench_page.PAGE.read_text() == bench_page.page(told)
    assert set(told["results"]) == set(told["when"])
