"""The short form of `make attack`: a small trial of every drill, and that a finding is found and can be replayed."""

import json
import logging
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attack.__main__ import report, run, table
from attack.drill import Drill
from attack.drills import DRILLS
from patience import wait_until
from veilstream.gateway import store, wire
from veilstream.gateway.encoder import StateEncoder
from veilstream.gateway.place import Place
from veilstream.gateway.scheduler import Scheduler
from veilstream.gateway.store import Store

SEED = "make test"
SIZES = {"messages": 1.0, "same time": 0.2, "openapi": 0.05, "core": 0.2, "clock": 0.15}
MARKS = {"mosquitto": [pytest.mark.service("mosquitto")], "nats-server": [pytest.mark.service("nats-server")]}
SLOW = ("kill http", "kill pipe", "kill audiences", "openapi", "store")
ELSEWHERE = {  # drills that have a test of their own, where their promise is
    "veil files": "test_hostile_files.py",
    "flipped bytes": "gateway/test_second_draws.py",
    "two owners": "gateway/test_owners.py",
    "written over": "gateway/test_owners.py",
    "two workers": "gateway/test_nats_faults.py",
    "same path": "gateway/test_same_path.py",
    "kill mqtt": "gateway/test_gateway_mqtt.py",
    "odd brokers": "gateway/test_odd_brokers.py",
    "odd mosquitto": "gateway/test_odd_brokers.py",
    "kill nats": "gateway/test_gateway_nats.py",
}


def marks(drill: Drill) -> list:
    return [*MARKS.get(drill.needs, []), *([pytest.mark.slow] if drill.name in SLOW else [])]


@pytest.mark.parametrize(
    "drill", [pytest.param(d, id=d.name, marks=marks(d)) for d in DRILLS if d.name not in ELSEWHERE]
)
def test_the_promise_holds(drill):
    done = drill.run(SEED, 0, SIZES.get(drill.name, 0.2))
    assert done.finding is None, done.finding.where
    assert done.attacks > 0


@pytest.mark.parametrize("crowd", [1, 4])
def test_a_wait_is_longer_on_a_busy_machine_and_comes_to_its_end(crowd, monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (crowd * os.cpu_count(), 0.0, 0.0))
    start = time.monotonic()
    with pytest.raises(AssertionError, match=r"the moon did not happen within 0\.2 s"):
        wait_until(lambda: False, 0.2, "the moon")
    assert 0.2 * crowd <= time.monotonic() - start


def telling(space, points):
    """A gateway that says so when it cannot read a value."""
    symbols = ENCODE(space, points)
    if (symbols < 0).any():
        logging.getLogger("veilstream.core").warning("unreadable")
    return symbols


def slower(json):
    """What is no number takes longer."""
    value = NUMBER(json)
    until = time.perf_counter() + (2e-4 if math.isnan(value) else 0)
    while time.perf_counter() < until:
        pass
    return value


def raising(json):
    """What is no number is found out by an exception."""
    try:
        return float(bytes(json))
    except ValueError:
        return math.nan


ENCODE, NUMBER = StateEncoder.encode, wire._number
PLANTED = {
    "core": (Scheduler, "_closed", lambda self, s, r, last, find: None),  # steps are drawn again
    "store": (Store, "confirm", lambda self, ids: None),
    # no reading, no release
    "clock": (Scheduler, "_clocked", lambda self, S, s, step: 1 // (s.private.pending_step == step)),
    "messages": (wire, "_number", lambda json: float(bytes(json))),
    "same bytes": (StateEncoder, "encode", telling),
    "same time": (wire, "_number", slower),
    "same path": (wire, "_number", raising),
    "written over": (Place, "mark", lambda self: (1, 1)),
    "flipped bytes": (store, "checksum", lambda *row: 0),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name, monkeypatch):
    """Else a drill that finds nothing says nothing."""
    monkeypatch.setattr(*PLANTED[name])
    drill = next(d for d in DRILLS if d.name == name)
    size = {"flipped bytes": 2.0, "same time": 0.1}.get(name, 0.2)
    assert any(drill.run("planted", number, size).finding for number in range(3))


def test_every_drill_has_a_name_of_its_own():
    assert len({d.name for d in DRILLS}) == len(DRILLS)


def sometimes(t) -> int:
    t.figures["most"] = t.rng.random()
    assert t.rng.random() < 0.7, "it did not hold"
    return 10


def test_what_is_found_is_counted_told_and_found_again(capsys):
    drill = Drill("sometimes", "holds", sometimes)
    results = run([drill], "7", 0.3)
    wrong = [i for i, done in enumerate(results[drill]) if done.finding]
    assert len(wrong) == 5  # enough: it stops there
    assert [i for i in range(len(results[drill])) if drill.run("7", i).finding] == wrong
    assert f"make attack SEED=7 DRILL='sometimes' TRIAL={wrong[0]}" in capsys.readouterr().out
    told = report(results, "7", 1.0)["drills"]["sometimes"]
    assert (
        told["attacks"] == 10 * (told["trials"] - 5) and len(told["findings"]) == 5 and 0 < told["figures"]["most"] < 1
    )
    assert table(results).splitlines()[-2].split()[:4] == ["all", str(told["trials"]), str(told["attacks"]), "5"]


@pytest.mark.slow
def test_the_command_ends_with_what_it_found(tmp_path):
    """As `make attack` runs it, for one drill and no time: every drill is tried once at least."""
    tests = Path(__file__).parents[1]
    command = [sys.executable, "-m", "attack", "--drill", "messages", "--minutes", "0", "--json", tmp_path / "a.json"]
    paths = {"PYTHONPATH": f"{tests}:{tests / 'kit'}:{':'.join(sys.path)}"}
    done = subprocess.run(command, capture_output=True, text=True, env=paths, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "a.json").read_text())
    assert told["seed"] in done.stdout and told["drills"]["messages"]["trials"] == 1
