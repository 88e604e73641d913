"""`veil demo`: what it makes can be opened, keeps its limits, and its advice works."""

import csv
import json
import re

import numpy as np
import pytest

import veilstream as vs
from veilcli import veil
from veilstream.apps.cli import demo
from veilstream.apps.cli.demo import DAY_STEPS, LIMITS_KM, SHOWN_KM, WEEK_STEPS
from veilstream.data.synthetic import city

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture
def said(folder, monkeypatch):
    """What it printed; made once."""
    monkeypatch.setenv("COLUMNS", "200")
    if not (folder / "said").exists():
        done = veil("demo", "-o", folder, "--seconds", "1")
        assert (done.returncode, done.stderr) == (0, "")
        (folder / "said").write_text(done.stdout)
    return (folder / "said").read_text()


def test_every_accuracy_is_kept_and_leaks_less_than_planar_laplace(said, folder):
    rows = re.findall(r"^ ?([\d.]+) km +([\d.]+) +([\d.]+) ± [\d.e-]+ +([\d.]+)", said, re.M)
    assert tuple(float(limit) for limit, *_ in rows) == LIMITS_KM
    for limit, ours, simulated, laplace in rows:
        policy = vs.load(folder / f"policy-{limit}km.veil")
        assert policy.provenance["solution"]["distortion"] <= float(limit) + 1e-6
        assert float(ours) == pytest.approx(policy.provenance["solution"]["leakage"], abs=1e-4)
        assert float(simulated) < 1.05 * float(ours) < float(laplace)


def test_the_released_week_is_as_far_off_as_allowed(said, folder):
    source = city(20_000, 0)
    with (folder / "released-week.csv").open() as file:
        names = [row["released"] for row in csv.DictReader(file)]
    y = np.array([source.states.names.index(name) for name in names])
    assert len(y) == WEEK_STEPS
    off = source.states.distances()[source.path[:WEEK_STEPS], y]
    days = off.reshape(-1, DAY_STEPS).mean(1)
    assert off.mean() == pytest.approx(SHOWN_KM, abs=5 * days.std(ddof=1) / np.sqrt(len(days)))


def test_its_report_opens_and_its_advice_works(said, folder):
    assert "PRIVATE" in (folder / "report.html").read_text() and (folder / "demo.png").stat().st_size > 10_000
    advised = re.search(r"^  veil (solve .*--avg 500m)", said, re.M)
    assert advised
    done = veil(*advised[1].split(), "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["distortion"] <= 0.5 + 1e-6


def test_its_advice_can_be_typed_where_the_command_is_not_on_the_path(monkeypatch):
    monkeypatch.setattr("sys.argv", [".venv/bin/veil", "demo"])
    monkeypatch.setattr(demo, "which", lambda name: None)
    assert demo.typed() == ".venv/bin/veil"
    monkeypatch.setattr(demo, "which", lambda name: "/usr/bin/veil")
    assert demo.typed() == "veil"
