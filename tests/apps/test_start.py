"""Starting without history: a model today, her own after two weeks, one store all the way."""

import json

import numpy as np
import pytest

from gatewaykit import core_of
from veilcli import refused, veil
from veilstream.artefact import is_guess, load
from veilstream.control.accountant import Capacity
from veilstream.gateway.space import Space
from veilstream.gateway.wire import Reading
from veilstream.solvers.warnings import GUESS

STEP = 1800.0


def ok(*args):
    done = veil(*args)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A start model of a meter, its policy, and three weeks of her readings."""
    folder = tmp_path_factory.mktemp("start")
    ok("start", "--levels", "0:3:1kW", "-o", folder / "ann.veil")
    ok("solve", folder / "ann.veil", "--avg", "0.4kW", "-o", folder / "policy.veil")
    rng, state, rows = np.random.default_rng(0), 0, []
    for k in range(21 * 48):
        state = state if rng.random() < 0.9 else int(rng.integers(0, 3))
        rows.append((k * STEP, state + 0.1 * rng.random()))
    for days in (5, 21):
        text = "".join(f"{1_700_000_000 + t:.0f},{v:.3f}\n" for t, v in rows[: days * 48])
        (folder / f"{days}.csv").write_text("time,value\n" + text)
    return folder


def test_what_it_says_and_writes(made, tmp_path):
    told = json.loads(ok("start", "--levels", "0:3:1kW", "-o", tmp_path / "m.veil", "--json"))
    assert (told["states"], told["unit"], told["level"], told["meter"]) == (4, "kW", "model only", "capacity")
    assert told["start"]["stay"] == 0.5 and "goes 0.75 kW" in told["start"]["kernel"]
    model = load(tmp_path / "m.veil")
    assert is_guess(model.provenance) and model.record is None and model.held_out is None and not model.study_only
    assert model.period_s == STEP
    shown = ok("start", "--grid", "1km", "--around", "48.137,11.575", "--radius", "3km")
    assert "a stay lasts 1 h on average" in shown and "goes 1.67 km" in shown and "0.10% of steps go anywhere" in shown
    assert GUESS in shown and "nothing written" in shown


@pytest.mark.slow
def test_model_only_stands_wherever_figures_are(made):
    told = json.loads(ok("solve", made / "ann.veil", "--avg", "0.4kW", "--json"))
    assert told["level"] == "model only" and GUESS in told["warnings"]
    assert told["held_out"]["level"] == "model only"
    assert told["leakage"] < told["worst_leakage"] <= 2.0
    shown = ok("solve", made / "ann.veil", "--avg", "0.4kW")
    assert "bits per step, model only" in shown and "whatever the data is, proved" in " ".join(shown.split())
    assert "when the model was fitted" not in shown
    points = json.loads(ok("advise", made / "ann.veil", "--json"))
    assert "model only" in json.dumps(points)


def test_its_meter_is_the_worst_case_and_no_other_unasked(made, tmp_path):
    policy = load(made / "policy.veil")
    assert is_guess(policy.provenance) and isinstance(Space(policy).mechanism.meter, Capacity)
    refused("serve", made / "policy.veil", "--http", "1", "--option", "meter=exact", says="is a public guess")
    refused("serve", made / "policy.veil", "--http", "1", "--option", "meter=any", says="is a public guess")
    with core_of(policy, meter=None) as core:
        most = json.loads(ok("solve", made / "ann.veil", "--avg", "0.4kW", "--json"))["worst_leakage"]
        first = core.process([Reading("ann", 1, 1, 1.0), Reading("ann", 9, 9, 2.0)]).outcomes  # with a gap
        assert 0 < first[0].release.leaked_bits <= most + 1e-6
        assert first[1].release.leaked_bits <= 2 * most + 1e-6


def test_refit_takes_over_after_two_weeks_and_the_store_goes_on(made, tmp_path):
    store, served = tmp_path / "s.db", tmp_path / "policy.veil"
    served.write_bytes((made / "policy.veil").read_bytes())
    before = {}
    with core_of(load(served), store, meter=None) as core:
        for step in range(30):
            (outcome,) = core.process([Reading("ann", step, step * STEP, 1.0)]).outcomes
            before[step] = outcome.release
    assert before[29].leaked_bits > 0
    refused("refit", made / "ann.veil", made / "5.csv", "-o", tmp_path / "no.veil", says="5.0 days of readings; 14 are")
    told = json.loads(ok("refit", made / "ann.veil", made / "21.csv", "-o", tmp_path / "ann-2.veil", "--json"))
    assert any("in 3 of the 4 states" in note for note in told["notes"]) and told["strength"] > 0
    new = load(tmp_path / "ann-2.veil")
    assert not is_guess(new.provenance) and new.states.names == load(made / "ann.veil").states.names
    ok("solve", tmp_path / "ann-2.veil", "--avg", "0.4kW", "-o", served)
    assert not isinstance(Space(load(served)).mechanism.meter, Capacity)
    with core_of(load(served), store, meter=None) as core:
        assert core.store.changed == {""}
        again = core.process([Reading("ann", step, step * STEP, 2.9) for step in range(30)]).outcomes
        assert [o.release for o in again] == list(before.values())  # never a second draw
        (later,) = core.process([Reading("ann", 30, 30 * STEP, 1.0)]).outcomes
        assert later.release.leaked_bits >= before[29].leaked_bits  # the bits add up
        assert core.streams == 1
    with core_of(load(served), store, meter=None) as core:
        (same,) = core.process([Reading("ann", 30, 30 * STEP, 0.0)]).outcomes
        assert same.release == later.release


def test_many_cells_are_solved_without_sweeps(tmp_path):
    ok("start", "--grid", "1km", "--around", "48.137,11.575", "--radius", "5km", "-o", tmp_path / "m.veil")
    told = json.loads(ok("solve", tmp_path / "m.veil", "--avg", "1.5km", "-o", tmp_path / "p.veil", "--json"))
    assert told["method"] == "held" and told["distortion"] <= 1.5 and told["level"] == "model only"
    with core_of(load(tmp_path / "p.veil"), meter=None) as core:
        out = core.process([Reading("ann", k, k * 300.0, (48.137, 11.575)) for k in range(20)]).outcomes
    assert out[-1].release.leaked_bits <= 20 * told["worst_leakage"] + 1e-6


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "say where"),
        (["--grid", "500m"], "--around is missing"),
        (["--grid", "500m", "--around", "48.1,11.5"], "--radius is missing"),
        (["--levels", "0:5:1kW", "--places", "a=1,2;b=3,4"], "say where"),
        (["--grid", "10m", "--around", "48.1,11.5", "--radius", "200km"], "The finest that goes is --grid 25"),
        (["--levels", "0:5:1kW", "--option", "jump=3km"], "jump"),
        (["--levels", "0:5:1kW", "--option", "stay=soon"], "stay"),
        (["--levels", "0:5:1kW", "--option", "anywhere=2"], "anywhere"),
    ],
)
def test_bad_input_is_one_line(args, says):
    refused("start", *args, says=says)
