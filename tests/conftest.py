"""Before anything imports numpy or JAX, and for every process a test starts."""

import os
import sys
from typing import NamedTuple

import pytest

# the tests compile many small programs and run each for a moment
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# one process a core (pytest -n): threads of BLAS inside them would only wait for each other
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")


class Done(NamedTuple):
    """How a command ended: exit code, what it printed, what it complained about."""

    code: int
    out: str
    err: str


@pytest.fixture
def veil(monkeypatch, capsys):
    """The command, run in this process: quicker than starting one."""

    def run(*args) -> Done:
        from veilstream.apps.cli import main

        monkeypatch.setattr(sys, "argv", ["veil", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(ended.value.code or 0, *capsys.readouterr())

    return run
