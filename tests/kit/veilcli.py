"""The command line as a user types it, in this process."""

import io
import logging
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

import pytest

from veilstream.apps.cli import alone, main

VEIL = [sys.executable, "-c", "from veilstream.apps.cli import main; main()"]  # in a process of its own


class Done(NamedTuple):
    """How a command ended: exit code, what it printed, what it complained about."""

    returncode: int
    stdout: str
    stderr: str


def unlogged() -> None:
    """As in a new process: a command that logs writes to what was its standard error, which is closed now."""
    log = logging.getLogger("veilstream")
    log.handlers, log.propagate = [], True
    log.setLevel(logging.NOTSET)


def bench(*args) -> Done:
    """`python -m benchmarks`, in this process."""
    from benchmarks import __main__ as module

    return veil(*args, command=alone(module.bench, module, "bench"))


def paper(*args) -> Done:
    """`python -m reproduce`, in this process."""
    from reproduce import __main__ as module

    return veil(*args, command=alone(module.paper, module, "paper"))


def veil(*args, input="", command=None) -> Done:
    """The command, in this process: loading scikit-learn anew each time would take most of the test."""
    out, err, stdin = (io.TextIOWrapper(io.BytesIO(text), write_through=True) for text in (b"", b"", input.encode()))
    unlogged()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["veil", *map(str, args)])
        patch.setattr(sys, "stdin", stdin)
        with pytest.raises(SystemExit) as end:
            main(command)
    unlogged()
    return Done(end.value.code or 0, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def refused(*args, says):
    done = veil(*args)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert says in done.stderr
