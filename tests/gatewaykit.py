"""What the tests of release, store and gateways share: small policies, artefacts, a broker on loopback."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from veilstream.artefact import Artefact, save
from veilstream.builtin import builtin_problem
from veilstream.gateway.core import Core
from veilstream.gateway.space import Space
from veilstream.policy import WindowPolicy
from veilstream.problem import Average, Problem
from veilstream.states import StateSpace
from veilstream.store import MEMORY, Store

NEEDS_MOSQUITTO = pytest.mark.skipif(
    shutil.which("mosquitto") is None and not Path("/usr/sbin/mosquitto").exists(),
    reason="needs mosquitto: apt-get install mosquitto",
)
NEEDS_CHROMIUM = pytest.mark.skipif(
    shutil.which("chromedriver") is None or shutil.which("chromium") is None,
    reason="needs headless Chromium: apt-get install chromium chromium-driver",
)


def problem_of(name: str = "grid4x4-q2", constraint=None) -> Problem:
    return builtin_problem(name, constraint or Average(weight=1.0))


def window_policy(problem: Problem, seed: int = 0, sharpness: float = 1.0) -> WindowPolicy:
    """Some policy of window 1 that keeps the problem's limits: near releases likelier, different after each release."""
    favour = np.random.default_rng(seed).dirichlet(np.ones(problem.n_outputs), problem.n_outputs)
    table = favour[:, None, :] * np.where(problem.allowed, np.exp(-sharpness * problem.distortion), 0)[None]
    return WindowPolicy.of_table(table / table.sum(-1, keepdims=True), 1)


def places(n: int = 16) -> StateSpace:
    """A grid of named places, about a kilometre apart."""
    side = int(np.ceil(np.sqrt(n)))
    at = [(39.9 + 0.01 * (i // side), 116.3 + 0.01 * (i % side)) for i in range(n)]
    return StateSpace("places", np.array(at), tuple(f"place {i}" for i in range(n)), "km")


def artefact(path: Path, seed: int = 0, states: StateSpace | None = None, name="grid4x4-q2", **more) -> Artefact:
    problem = problem_of(name)
    return save(path, window_policy(problem, seed), problem=problem, states=states, **more)


@contextlib.contextmanager
def core_of(art: Artefact, store: str | Path = MEMORY, ceiling=None, meter="exact", **more) -> Iterator[Core]:
    space = Space(art, ceiling, meter)
    core = Core({"": space}, Store(store, {"": space.binding}), **more)
    try:
        yield core
    finally:
        core.close()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(done, seconds: float = 20, what: str = "it") -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, f"{what} did not happen within {seconds} s"
        time.sleep(0.02)


class Mosquitto:
    """A broker on loopback that the test starts, kills and ends."""

    def __init__(self, folder: Path, *lines: str, persistent: bool = True) -> None:
        self.port = free_port()
        self._log = folder / "mosquitto.log"
        self._conf = folder / "mosquitto.conf"
        config = [f"listener {self.port} 127.0.0.1", "max_queued_messages 0", "max_inflight_messages 100"]
        config += [f"user {'root' if os.getuid() == 0 else ''}".strip()] if os.getuid() == 0 else []
        if persistent:
            config += ["persistence true", f"persistence_location {folder}/", "autosave_interval 1"]
        if not any(line.startswith("allow_anonymous") for line in lines):
            config.append("allow_anonymous true")
        self._conf.write_text("\n".join([*config, *lines]) + "\n")
        self.start()

    def start(self) -> None:
        command = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen([command, "-c", str(self._conf)], stdout=log, stderr=log)
        wait_until(self._listening, 10, f"mosquitto's start (see {self._log})")

    def _listening(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.5):
            return True
        return False

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(10)
