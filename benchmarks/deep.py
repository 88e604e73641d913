"""The jitted a2c against Stable-Baselines3's A2C: the same environment and network width, one run after the other.

Stable-Baselines3 brings torch, so it may live in an environment of its own: VEIL_SB3_PYTHON names its Python (this one
is asked unless told). That Python also needs numpy, scipy and gymnasium.
"""

import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import veilstream as vs
from benchmarks import ROOT
from veilstream.errors import InputError

WIDTH, STREAMS, HORIZON = 64, 64, 16  # of Stable-Baselines3; our streams take one step an update


def ours(steps: int = 100_000) -> float:
    """Steps per second of a2c on grid Q2, after compiling."""
    import jax

    from veilstream.deep import a2c
    from veilstream.deep.networks import Model

    problem = vs.builtin_problem("grid4x4-q2", vs.Average(weight=1.0))
    options = a2c.A2C(width=WIDTH, streams=STREAMS, updates=steps // STREAMS, segments=1)
    model = Model.of(problem, 1.0)
    state = a2c.start(model, options, 0)
    run = a2c.segment.lower(model, options, state).compile()
    started = time.perf_counter()
    jax.block_until_ready(run(model, state))  # type: ignore[no-untyped-call]
    return options.updates * STREAMS / (time.perf_counter() - started)


def sb3(envs: int, horizon: int, steps: int) -> float:
    """Steps per second of Stable-Baselines3, in its own process."""
    python = os.environ.get("VEIL_SB3_PYTHON", sys.executable)
    if python == sys.executable and find_spec("stable_baselines3") is None:
        raise InputError(
            "this benchmark needs stable-baselines3; install it beside torch in an environment of its own "
            "and set VEIL_SB3_PYTHON to its python"
        )
    source = os.pathsep.join([str(Path(vs.__file__).parents[1]), str(ROOT)])
    command = [python, "-m", "benchmarks.sb3_steps", f"--envs={envs}", f"--horizon={horizon}"]
    command += [f"--width={WIDTH}", f"--steps={steps}"]
    found = subprocess.run(command, env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True)
    if found.returncode:
        raise InputError(f"Stable-Baselines3 failed under {python}: {found.stderr.strip().splitlines()[-1:]}")
    return float(json.loads(found.stdout.splitlines()[-1])["steps_per_s"])


def run() -> dict[str, dict[str, float | str]]:
    """ratio_default: against its default settings; ratio_same: against as many streams and steps per update as ours."""
    load = os.getloadavg()[0]
    plain = sb3(envs=1, horizon=5, steps=2_000)
    same = sb3(envs=STREAMS, horizon=HORIZON, steps=20_000)
    fast = ours()
    return {
        "a2c steps per second": {
            "ours": fast,
            "stable-baselines3, default": plain,
            "stable-baselines3, our streams": same,
            "ratio_default": fast / plain,
            "ratio_same": fast / same,
            "load before": load,
        }
    }
