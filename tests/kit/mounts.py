"""Mounts for a test, where it may."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(at: Path, *arguments: object) -> Iterator[Path]:
    """What `mount` does with these arguments; skips where it is not allowed."""
    done = subprocess.run(["mount", *map(str, arguments), str(at)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("needs the right to mount")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


def may_mount() -> bool:
    with tempfile.TemporaryDirectory() as at:
        done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", at], capture_output=True, check=False)
        return not done.returncode and not subprocess.run(["umount", "-l", at], check=True).returncode


@contextlib.contextmanager
def bound(what: Path, at: Path) -> Iterator[Path]:
    """A file or folder under a second name."""
    at.mkdir() if what.is_dir() else at.touch()
    with mounted(at, "--bind", what):
        yield at
