"""The command as a user types it."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import veilstream as vs
from veilcli import VEIL, veil
from veilstream.apps.cli import VERBS, app


def process(*args, **kwargs):
    """`veil` in a process of its own."""
    return subprocess.run(
        [*VEIL, *args],
        capture_output=True,
        text=True,
        **kwargs,
    )


KEYS = {
    "chain", "method", "window", "constraint", "leakage", "distortion", "weight", "objective",
    "lower_bound", "leakage_lower", "gap", "level", "status", "seconds",
}  # fmt: skip


@pytest.mark.slow
def test_solve_json_has_the_contract_and_the_reference_value():
    done = process("solve", "builtin:grid4x4-q2", "--lambda", "1", "--json")
    result = json.loads(done.stdout)
    assert done.returncode == 0 and done.stderr == ""
    assert set(result) >= KEYS
    assert result["objective"] == pytest.approx(1.6006, rel=3e-3)
    assert result["level"] == "computed exactly" and result["lower_bound"] is None


@pytest.mark.slow
def test_certify_prints_gap_and_leakage_bound():
    result = json.loads(process("solve", "builtin:grid4x4-q2", "--lambda", "1", "--certify", "--json").stdout)
    assert result["lower_bound"] <= result["objective"]
    assert 0 <= result["gap"] < 0.005
    assert 0 < result["leakage_lower"] <= result["leakage"]


@pytest.mark.slow
def test_limits_from_the_command_line():
    result = json.loads(process("solve", "builtin:grid2x3-toy", "--avg", "0.5", "--max", "0=1,*=2", "--json").stdout)
    assert result["distortion"] <= 0.5 + 1e-6
    assert "at every step" in result["constraint"]


@pytest.mark.slow
def test_a_policy_file_round_trips(tmp_path):
    path = tmp_path / "p.veil"
    done = process("solve", "builtin:grid2x3-toy", "--lambda", "2", "-o", str(path))
    assert done.returncode == 0, done.stderr
    policy = vs.load(path).policy
    assert policy.channel(policy.start()).shape == (6, 6)
    again = process("solve", str(path), "--lambda", "2", "--json")
    assert json.loads(again.stdout)["objective"] == pytest.approx(1.2319, rel=3e-3)


@pytest.mark.slow
def test_curve_and_its_picture(tmp_path):
    picture = tmp_path / "c.png"
    options = ["--points", "6", "--certify", "--seconds", "5", "--plot", str(picture), "--json"]
    done = process("curve", "builtin:grid2x3-toy", *options)
    result = json.loads(done.stdout)
    assert picture.stat().st_size > 10_000
    assert len(result["causal-ba"]) == 6 and len(result["planar-laplace"]) > 3
    assert all(p["leakage_lower"] <= p["leakage"] + 1e-9 for p in result["causal-ba"])


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["solve", "builtin:grid4x4-q7", "--lambda", "1"], "did you mean"),
        (["solve", "nowhere.veil", "--lambda", "1"], "no model file"),
        (["solve", "builtin:binary"], "how much utility"),
        (["solve", "builtin:binary", "--lambda", "-1"], ">= 0"),
        (["solve", "builtin:binary", "--lambda", "1", "--avg", "2"], "not several"),
        (["solve", "builtin:binary", "--avg", "2km"], "unit"),
        (["solve", "builtin:binary", "--max", "x"], "not a number"),
        (["solve", "builtin:binary", "--max", "attic=1"], "unknown state"),
        (["solve", "builtin:binary", "--lambda", "1", "--method", "causal_ba"], "did you mean"),
        (["curve", "builtin:binary", "--methods", "nonsense"], "unknown method"),
        (["curve", "builtin:binary", "--points", "1"], "points"),
        (["slove"], "No such command"),
        (["solve"], "Missing argument"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(args, says):
    done = veil(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and says in done.stderr, done.stderr


@pytest.mark.slow
def test_help_is_light_and_has_examples():
    heavy = ("jax", "sklearn", "polars", "matplotlib", "scipy", "paho", "uvicorn")
    code = "import sys; sys.argv=['veil','--help']\nfrom veilstream.apps.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    done = subprocess.run([sys.executable, "-c", code + "print(sorted(sys.modules))"], capture_output=True, text=True)
    loaded = done.stdout.rsplit("\n", 2)[-2]
    assert not [m for m in heavy if f"'{m}'" in loaded]
    for verb in VERBS:
        assert re.search(rf"│ {verb}\s", done.stdout), verb
        assert f"veil {verb}" in CliRunner().invoke(app, [verb, "--help"]).stdout, verb


def test_the_version_is_printed():
    assert veil("--version") == (0, f"veil {vs.__version__}\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_verbs_and_options(shell):
    """As the shell's own function asks: words typed so far in the environment, one proposal a line."""
    code = "import sys; sys.argv = ['veil']; from veilstream.apps.cli import main; main()"

    def proposals(*words):
        asked = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}  # bash
        asked |= {"_TYPER_COMPLETE_ARGS": " ".join(words), "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        env = {**os.environ, **asked, "_VEIL_COMPLETE": f"complete_{shell}"}
        return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout

    verbs = proposals("veil", "so")
    assert "solve" in verbs and "serve" not in verbs
    assert "--certify" in proposals("veil", "solve", "--cer")


def test_interrupt_is_130():
    code = "import veilstream.apps.cli as c\ndef stop(**_): raise KeyboardInterrupt\nc.app = stop\nc.main()"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 130


@pytest.mark.slow
def test_a_reader_who_stops_reading_is_no_failed_claim():
    """rich would end with 1, which means that a claim failed."""
    command = [
        sys.executable,
        "-c",
        "from veilstream.apps.cli import main; main()",
        "solve",
        "builtin:binary",
        "--lambda",
        "1",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert (process.wait(60), process.stderr.read()) == (141, b"")
    process.stderr.close()


def test_without_a_terminal_progress_is_a_line_a_minute(capsys):
    from veilstream.apps.cli.output import Minutes

    now = iter([0.0, 30.0, 61.0, 90.0, 130.0, 200.0])
    tell = Minutes("solving", clock=lambda: next(now))
    for done in (0.1, 0.25, 0.3, 0.5, 0.8):
        tell(done, "sweeps")
    assert capsys.readouterr().err.splitlines() == [
        "solving: sweeps, 25% after 1 min, about 3 min left",
        "solving: sweeps, 50% after 2 min, about 2 min left",
        "solving: sweeps, 80% after 3 min, less than a minute left",
    ]
    now = iter([0.0, 600.0, 601.0, 721.0])
    tell = Minutes("solving", clock=lambda: next(now))
    for done in (0.9, 0.0, 0.5):  # the proof begins at 601 s and is timed by itself
        tell(done, "proof")
    assert capsys.readouterr().err.splitlines()[1:] == ["solving: proof, 50% after 12 min, about 2 min left"]
    now = iter([0.0, 600.0, 601.0, 665.0, 666.0])
    tell = Minutes("solving", clock=lambda: next(now))
    for done in (0.9, 0.8, 0.05, 0.06):  # nothing is foretold from a piece that has just begun
        tell(done, "proof")
    assert capsys.readouterr().err.splitlines()[1:] == ["solving: proof, 5% after 11 min"]


def test_a_limit_may_name_a_stop_by_the_number_that_plots_show():
    from veilstream.data.limits import limits
    from veilstream.data.utility import Utility

    chain = vs.builtin("binary")
    model = Utility(chain, np.array([[0.0, 1.0], [1.0, 0.0]]), "km", ("stop 1", "stop 2"))
    assert limits(model, "2=5km,*=500m") == limits(model, "stop 2=5km,*=500m") == (0.5, 5.0)
    with pytest.raises(vs.InputError, match="unknown state '3'"):
        limits(model, "3=5km,*=500m")
