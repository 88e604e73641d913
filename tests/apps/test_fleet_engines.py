"""The seam: every engine gives the same, a dead worker loses its task only, an unreachable scheduler is one line."""

import socket
import time
from dataclasses import replace

import pytest

from fleetkit import QUICK, meter_table, square
from veilstream.apps.fleet import engines
from veilstream.apps.fleet.engines import Failure, engine
from veilstream.apps.fleet.run import run_fleet
from veilstream.errors import InputError

pytest.importorskip("joblib")
distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    """The engine's own local cluster, once for all tests: it takes seconds to start."""
    import dask

    with dask.config.set(engines.DASK), engines._client(distributed, 2, None) as client:
        yield client.scheduler.address


def outcomes(run, tasks):
    got = dict(run(square, tasks))
    assert len(got) == len(tasks)
    return [got[t] for t in tasks]


def numbers(tmp_path, kill="no"):
    flag = str(tmp_path / "killed")
    return [(i, flag, kill if i == 2 else "no") for i in range(6)] + [(-1, flag, "no")]


def check(got, dead=()):
    squares = [i * i for i in range(6)]
    assert [g for i, g in enumerate(got[:6]) if i not in dead] == [s for i, s in enumerate(squares) if i not in dead]
    assert isinstance(got[6], Failure) and "ValueError" in got[6].line and "-1" not in got[6].line


@pytest.mark.parametrize("name", ["serial", "joblib"])
def test_results_and_failures_come_back(name, tmp_path):
    with engine(name, 2) as run:
        check(outcomes(run, numbers(tmp_path)))


@pytest.mark.parametrize("name", ["joblib", "dask"])
def test_a_killed_worker_loses_nothing(name, tmp_path, cluster):
    with engine(name, 2, cluster if name == "dask" else None) as run:
        check(outcomes(run, numbers(tmp_path, "once")))
    assert (tmp_path / "killed").exists()


@pytest.mark.parametrize("name", ["joblib", "dask"])
def test_a_task_that_always_kills_fails_by_itself(name, tmp_path, cluster):
    with engine(name, 2, cluster if name == "dask" else None) as run:
        got = outcomes(run, numbers(tmp_path, "always"))
    check(got, dead=(2,))
    assert isinstance(got[2], Failure) and "died" in got[2].line


def test_all_engines_write_the_same_bytes_on_one_machine(tmp_path, cluster):
    """Same processor and libraries, one thread a task: the same sums in the same order. Elsewhere last bits differ."""
    source = meter_table(tmp_path / "meters.csv", {"a": 400, "b": 300, "c": 50})
    files = {}
    for name in ("serial", "joblib", "dask"):
        plan = replace(QUICK, engine=name, workers=2, scheduler=cluster if name == "dask" else None)
        summary = run_fleet([source], tmp_path / name, plan)
        assert summary.whole and len(summary.rows) == 3
        files[name] = {
            f"{u}/{f}": (tmp_path / name / "users" / u / f).read_bytes()
            for u in ("a", "b", "c")
            for f in ("model.veil", "policy.veil", "curve.csv")
        }
    assert files["serial"] == files["joblib"] == files["dask"]


def test_an_unreachable_scheduler_is_one_line(monkeypatch):
    monkeypatch.setattr(engines, "CONNECT_S", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    began = time.perf_counter()
    with pytest.raises(InputError, match=f"no dask scheduler answers at {address}"), engine("dask", 1, address):
        pass
    assert time.perf_counter() - began < 20  # dask's own patience is 30 s
    with pytest.raises(InputError, match="no dask scheduler"), engine("dask", 1, "nonsense://here"):
        pass


def test_bad_engines_are_named():
    with pytest.raises(InputError, match="serial, joblib, dask"):
        engine("spark")
    with pytest.raises(InputError, match="`scheduler` is for `engine='dask'`"):
        engine("joblib", 2, "tcp://localhost:1")
    with pytest.raises(InputError, match="at least 1"):
        engine("joblib", 0)
